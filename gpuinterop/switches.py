"""What may be given for a switch, an argument that is True or False: nothing else that is true."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop.errors import ArgumentTypeError, shown

__all__ = ["as_choice", "as_switch"]


def as_switch(value: Any, name: str, where: str) -> bool:
    """Return a bool, NumPy's too, as Python's; a device in the place of ``copyif`` would mean "copy"."""
    if value is False or value is True:
        return value
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ArgumentTypeError(where=where, expected=f"{name}=True or False", got=shown(value),
                            fix=f"pass {name}=True, or leave it out")  # fmt: skip


def as_choice(value: Any, name: str, where: str) -> bool | None:
    """The same for a switch that None leaves open."""
    if value is None or isinstance(value, (bool, np.bool_)):
        return None if value is None else bool(value)
    raise ArgumentTypeError(where=where, expected=f"{name}=True, False or None", got=shown(value),
                            fix=f"pass {name}=False to forbid a copy, True to ask for one")  # fmt: skip
