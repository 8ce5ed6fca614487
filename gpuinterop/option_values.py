"""What may be given for a switch, True or False and nothing else that is true, and for an order."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop.errors import ArgumentTypeError, ShapeError, shown

__all__ = ["require_optional_bool", "require_order", "require_bool"]


def require_bool(value: Any, name: str, where: str) -> bool:
    """Return a bool, NumPy's too, as Python's; a device in the place of ``copyif`` would mean "copy"."""
    if value is False or value is True:
        return value
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ArgumentTypeError(where=where, expected=f"{name}=True or False", got=shown(value),
                            fix=f"pass {name}=True, or leave it out")  # fmt: skip


def require_optional_bool(value: Any, name: str, where: str) -> bool | None:
    """The same for a switch that None leaves open."""
    if value is None or isinstance(value, (bool, np.bool_)):
        return None if value is None else bool(value)
    raise ArgumentTypeError(where=where, expected=f"{name}=True, False or None", got=shown(value),
                            fix=f"pass {name}=False to forbid a copy, True to ask for one")  # fmt: skip


def require_order(value: Any, orders: str, where: str, fix: str = "pass one of these") -> str:
    """Return one of NumPy's letters for an order of elements, those of `orders`."""
    if isinstance(value, str) and len(value) == 1 and value in orders:
        return value
    *first, last = [repr(letter) for letter in orders]
    raise ShapeError(where=where, expected=f"order {', '.join(first)} or {last}", got=shown(value),
                     fix=fix)  # fmt: skip
