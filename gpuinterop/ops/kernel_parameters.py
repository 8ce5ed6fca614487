"""Checks of the arguments of user kernels: texts, and numbers that a parameter would narrow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import NAMES, dtype_from_id
from gpuinterop.errors import ArgumentTypeError, DTypeError
from gpuinterop.ops.dtype_promotion import STRONG_NUMBER
from gpuinterop.scalars import scalars_to_array

from .operand_conversion import as_scalar, viewed

__all__ = [
    "number_ranges", "numbers_as_arrays", "require_held_numbers", "require_safe_arrays",
    "require_text",
]  # fmt: skip


def require_text(value: Any, what: str, where: str) -> str:
    """Return `value` if the compiler can be given it."""
    if not isinstance(value, str):
        raise ArgumentTypeError(where=where, expected=f"text as {what}", got=repr(value),
                                fix="pass a str")  # fmt: skip
    bad = re.search("[\0\ud800-\udfff]", value)
    if bad:
        # The compiler would stop reading at a zero, and half a character has no bytes.
        line = value.count("\n", 0, bad.start()) + 1
        raise ArgumentTypeError(
            where=where, expected=f"text of whole characters other than zero as {what}",
            got=f"{bad[0]!r} in line {line}", fix="leave it out",
        )  # fmt: skip
    return value


def require_safe_arrays(
    where: str, parameters: Sequence[tuple[str, str]], types: Sequence[str], kinds: Sequence[int]
) -> None:
    """Refuse arrays whose dtype NumPy does not cast safely to that of the parameter."""
    for (_, name), wanted, kind in zip(parameters, types, kinds, strict=True):
        # The others are numbers, which are judged by their value.
        if 0 <= kind < STRONG_NUMBER and not np.can_cast(
            dtype_from_id(kind), dtype_from_id(NAMES.index(wanted)), "safe"
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
    """Refuse numbers that `scalars_to_array` refuses for the dtype of their parameter."""
    for (kind, name), value in zip(parameters, arguments, strict=False):
        if isinstance(value, _core.Array):
            continue
        value = as_scalar(value, where)
        if isinstance(value, (bool, int, float, complex, np.generic)):
            wanted = kind if len(kind) > 1 else _letter(kind, parameters, arguments)
            if wanted is not None:
                scalars_to_array(value, wanted, f"{where}, parameter {name}")


def number_ranges(
    parameters: Sequence[tuple[str, str]], arguments: Sequence[Any]
) -> dict[int, tuple[Any, Any]] | None:
    """For the position of each number the range that needs no check; None if one needs a check."""
    found = {}
    for i, ((kind, _), value) in enumerate(zip(parameters, arguments, strict=False)):
        if isinstance(value, _core.Array):
            continue
        named = kind if len(kind) > 1 else _letter(kind, parameters, arguments)
        if named is None or type(value) not in (int, float):
            return None
        low, high = found[i] = _range(named)
        if not low <= value <= high:
            return None
    return found


def numbers_as_arrays(
    where: str, parameters: Sequence[tuple[str, str]], arguments: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return numbers that come without an array as arrays of the dtypes that their parameters declare.

    Where a letter declares them, NumPy's numbers say the dtype, and Python's follow `asarray`.
    """
    if len(arguments) != len(parameters) or not all(map(_is_number, arguments)):
        return arguments
    named: dict[str, Any] = {}
    for (kind, _), value in zip(parameters, arguments, strict=True):
        if len(kind) == 1 and hasattr(value, "dtype"):
            named[kind] = np.result_type(*filter(None, [named.get(kind)]), value.dtype)
    found = []
    for (kind, name), value in zip(parameters, arguments, strict=True):
        dtype = dtype_from_id(NAMES.index(kind)) if len(kind) > 1 else named.get(kind)
        elements = scalars_to_array(value, dtype, f"{where}, parameter {name}")
        found.append(viewed(elements, None, where))
    return tuple(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex, np.generic)) or (
        isinstance(value, np.ndarray) and value.ndim == 0
    )


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
    dtype = dtype_from_id(NAMES.index(name))
    if dtype.kind in "iu" and name in np.sctypeDict:
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if dtype.kind == "f" and name in np.sctypeDict:
        return float(np.finfo(dtype).min), float(np.finfo(dtype).max)
    return 1, 0
