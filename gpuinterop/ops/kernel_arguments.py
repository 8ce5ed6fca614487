"""What a declared parameter of a kernel takes: nothing is narrowed without a word."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import NAMES, dtype_of
from gpuinterop.errors import DTypeError
from gpuinterop.scalars import as_elements

__all__ = ["require_safe_arrays", "require_held_numbers"]


def require_safe_arrays(
    where: str, parameters: Sequence[tuple[str, str]], types: Sequence[str], kinds: Sequence[int]
) -> None:
    """Refuse arrays whose dtype NumPy does not cast safely to that of the parameter."""
    for (_, name), wanted, kind in zip(parameters, types, kinds, strict=True):
        # Below 0 and from 64 on are numbers, which are judged by their value.
        if 0 <= kind < 64 and not np.can_cast(
            dtype_of(kind), dtype_of(NAMES.index(wanted)), "safe"
        ):
            raise DTypeError(
                where=where,
                expected=f"for {name} an array of a dtype that NumPy casts safely to {wanted}",
                got=NAMES[kind],
                fix=f"cast it: {name}.astype({wanted!r}), or declare {name} as {NAMES[kind]}",
            )


def require_held_numbers(
    where: str, parameters: Sequence[tuple[str, str]], arguments: Sequence[Any]
) -> None:
    """Refuse numbers that `as_elements` refuses for the dtype of their parameter."""
    for (kind, name), value in zip(parameters, arguments, strict=False):
        if isinstance(value, _core.Array):
            continue
        if type(value) in (int, float) and len(kind) > 1:  # nearly all of them, and quickly
            low, high = _range(kind)
            if low <= value <= high:
                continue
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value[()]
        if isinstance(value, (bool, int, float, complex, np.generic)):
            wanted = kind if len(kind) > 1 else _letter(kind, parameters, arguments)
            if wanted is not None:
                as_elements(value, wanted, f"{where}, parameter {name}")


def _letter(
    letter: str, parameters: Sequence[tuple[str, str]], arguments: Sequence[Any]
) -> str | None:
    """The dtype that the arrays give a letter."""
    for (kind, _), value in zip(parameters, arguments, strict=False):
        if kind == letter and isinstance(value, (_core.Array, np.ndarray)):
            return str(value.dtype.name)
    return None


@cache
def _range(name: str) -> tuple[Any, Any]:
    """Python's ints and floats between these need no further question; none is, if it is empty."""
    dtype = dtype_of(NAMES.index(name))
    if dtype.kind in "iu" and name in np.sctypeDict:
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if dtype.kind == "f" and name in np.sctypeDict:
        return float(np.finfo(dtype).min), float(np.finfo(dtype).max)
    return 1, 0
