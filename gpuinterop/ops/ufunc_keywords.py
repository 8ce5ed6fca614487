"""Calls of an operation with NumPy's further keywords: dtype= at its word, the others refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import as_supported_dtype, dtype_id
from gpuinterop.error_messages import integer_out_of_range
from gpuinterop.errors import ArgumentTypeError, DTypeError

from .dtype_promotion import dtype_kind, is_extended
from .operand_conversion import as_scalar, viewed
from .operation_table import Row

# Operations with results of dtype bool, for operands of every dtype.
BOOL_RESULTS = {
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isnan", "isinf", "isfinite",
    "signbit", "logical_and", "logical_or", "logical_xor", "logical_not",
}  # fmt: skip

# What is taken where it asks for what is done anyway.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "where": (True,), "casting": ("same_kind",), "order": ("K", "C"), "subok": (True,),
    "signature": (None,),
}  # fmt: skip
_NUMBERS = (int, float, complex)  # bool is an int


def bind_keywords(
    entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The operands and positional outs of the call without keywords other than out that does the same."""
    name, n = entry.name, entry.inputs
    names = [parameter for _, parameter in getattr(entry, "ins", ())] or "xyzuvw"
    if not n <= len(args) <= n + entry.results or ("out" in kwargs and len(args) > n):
        raise ArgumentTypeError(
            where=name,
            expected=f"{n} operand{'s' if n != 1 else ''}, and perhaps out=",
            got=f"{len(args)}",
            fix=f"call {name}({', '.join(names[i % len(names)] for i in range(n))})",
        )
    for key, value in kwargs.items():
        if key in ("out", "dtype") or any(
            value is v or (isinstance(value, str) and value == v) for v in _NEUTRAL.get(key, ())
        ):
            continue
        raise ArgumentTypeError(
            where=name,
            expected="the keywords out and dtype",
            got=f"{key}={value!r}",
            fix="select elements with gpuinterop.where, or write into a view: out=y[::2]"
            if key == "where"
            else f"leave out {key}",
        )
    wanted = kwargs.get("dtype")
    operands = (
        args[:n] if wanted is None else _cast(entry, args[:n], as_supported_dtype(wanted, name))
    )
    return operands, args[n:]


def _cast(row: Row, operands: tuple[Any, ...], wanted: np.dtype[Any]) -> tuple[Any, ...]:
    """The operands in the dtypes of the loop whose results are `wanted`."""
    like = next((x for x in operands if isinstance(x, _core.Array)), None)
    taken = [_taken(x, like, row.name) for x in operands]
    if any(x is None for x in taken):
        return operands  # the plain call words the error
    types = _loop(row, [_described(x) for x in taken], wanted)
    numbers = not any(hasattr(x, "dtype") for x in taken)
    cast = []
    for x, dtype in zip(taken, types, strict=True):
        if hasattr(x, "dtype"):
            x = x.astype(dtype) if x.dtype != dtype else x
        elif numbers and isinstance(x, _NUMBERS):
            # Nothing else says the dtype: a number of it.
            try:
                x = np.asarray(x).astype(dtype)[()]
            except OverflowError:  # an int beyond float64
                raise integer_out_of_range(row.name, x, dtype, "") from None
        cast.append(x)
    return tuple(cast)


def _taken(x: Any, like: Any, where: str) -> Any:
    """An array of ours, a number, or what stands for an array in a fused function; None for the rest."""
    x = as_scalar(x, where)
    scalar = isinstance(x, (np.generic, *_NUMBERS))
    return x if scalar or hasattr(x, "__gpuinterop_trace__") else viewed(x, like, where)


def _described(x: Any) -> Any:
    """A dtype, or the type of a number that takes on another operand's."""
    dtype = getattr(x, "dtype", None)
    if isinstance(dtype, np.dtype):
        # What NumPy has no loops for follows float16's.
        return np.dtype(np.float16) if is_extended(dtype_id(dtype)) else dtype
    return (
        np.dtype(np.bool_) if isinstance(x, bool) else next(t for t in _NUMBERS if isinstance(x, t))
    )


def _loop(row: Row, given: list[Any], wanted: np.dtype[Any]) -> list[np.dtype[Any]]:
    """What NumPy casts the operands to for results of a dtype."""
    extended = is_extended(dtype_id(wanted))
    asked = np.dtype(np.float16) if extended else wanted
    if not any(isinstance(one, np.dtype) for one in given):
        given = [np.result_type(one(0)) for one in given]
    rule = row.rule
    if rule.nin != row.inputs:  # clip, whose operands are all of the result's dtype
        if all(_fits(one, asked) for one in given):
            return [wanted] * row.inputs
        raise _no_loop(row, given, wanted)
    signature: Any = (*[None] * rule.nin, *[asked] * rule.nout)
    try:
        found = rule.resolve_dtypes(
            (*given, *[None] * rule.nout), signature=signature, casting="same_kind"
        )[: rule.nin]
    except TypeError as error:
        raise _no_loop(row, given, wanted) from error
    return [wanted if extended and one == asked else one for one in found]


def _fits(given: Any, wanted: np.dtype[Any]) -> bool:
    if isinstance(given, np.dtype):
        return np.can_cast(given, wanted, "same_kind")
    held = {int: "iufc", float: "fc", complex: "c"}
    return dtype_kind(dtype_id(wanted)) in held.get(given, "")


def _no_loop(row: Row, given: list[Any], wanted: np.dtype[Any]) -> DTypeError:
    names = ", ".join(str(one) if isinstance(one, np.dtype) else one.__name__ for one in given)
    return DTypeError(
        where=row.name,
        expected="dtype=bool, as the results are true or false"
        if row.name in BOOL_RESULTS and wanted != np.bool_
        else f"a dtype= that NumPy computes {row.name} of {names} in",
        got=f"dtype={wanted}",
        fix=f"leave dtype out and cast the result: {row.name}(...).astype('{wanted}')",
    )
