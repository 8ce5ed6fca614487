"""Interrupts at a chosen point of a program, raised where Python raises those of a signal."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Trace functions that are no Python code, which would be interrupted itself. The first one of a frame: as if a signal
# arrived there.
_TRACE = ctypes.PYFUNCTYPE(None, *3 * [ctypes.py_object])
interrupt: Any = _TRACE(("PyErr_SetInterrupt", ctypes.pythonapi))
_ignore: Any = _TRACE(("Py_IsInitialized", ctypes.pythonapi))


def _raise(*_: object) -> None:
    sys.settrace(None)
    raise KeyboardInterrupt


def prepare() -> None:
    """Let the first interrupt end tracing, so that there is only one."""
    signal.signal(signal.SIGINT, _raise)


def in_each_opcode(run: Callable[[], object]) -> Iterator[None]:
    """Call `run` with a signal at its first instruction, at its second, and so on; yield after each interrupt.

    The instructions are those of `run`, of the package and of contextlib.
    """
    codes = run.__code__.co_filename, f"{os.sep}gpuinterop{os.sep}", f"{os.sep}contextlib.py"
    handler = signal.signal(signal.SIGINT, _raise)
    try:
        for number in itertools.count(1):
            left = number

            def trace(frame: Any, event: str, _: object) -> Any:
                nonlocal left
                frame.f_trace_opcodes = True  # from Python 3.12 on not at once: lines count too
                if not any(part in frame.f_code.co_filename for part in codes):
                    return None
                left -= event in ("opcode", "line")
                if left > 0:
                    return trace
                frame.f_trace = interrupt
                sys.settrace(_ignore)
                return None  # f_trace stays

            sys.settrace(trace)
            try:
                run()
                time.sleep(0)  # Python raises pending interrupts after such a call
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
            if left > 0:
                return
            yield
    finally:
        signal.signal(signal.SIGINT, handler)
