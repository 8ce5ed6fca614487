"""Interrupts at a chosen point of a program, raised where Python raises those of a signal."""

from __future__ import annotations

import ctypes
import signal
import sys
from typing import Any

# As a frame's trace function: as if the signal arrived there. Python code here would be interrupted itself.
interrupt: Any = ctypes.PYFUNCTYPE(None, *3 * [ctypes.py_object])(
    ("PyErr_SetInterrupt", ctypes.pythonapi)
)


def _raise(*_: object) -> None:
    sys.settrace(None)
    raise KeyboardInterrupt


def prepare() -> None:
    """Let the first interrupt end tracing, so that there is only one."""
    signal.signal(signal.SIGINT, _raise)
