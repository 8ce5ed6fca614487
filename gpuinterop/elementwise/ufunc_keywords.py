"""Calls of an operation with NumPy's further keywords: `dtype=` and `order=` are supported, others raise an error."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import WITHOUT_KERNELS, as_supported_dtype, dtype_id
from gpuinterop.errors import ArgumentTypeError, DTypeError, short_repr
from gpuinterop.errors.messages import integer_out_of_range, negative_exponent
from gpuinterop.exchange.incoming import as_scalar

from .operands import as_array_or_none
from .promotion import is_extended
from .table import Row

# The accepted values of further keywords; all but order="C" request the default behaviour.
_ACCEPTED: dict[str, tuple[Any, ...]] = {
    "where": (True,), "casting": ("same_kind",), "order": ("K", "C"), "subok": (True,),
    "signature": (None,),
}  # fmt: skip
_NUMBERS = (int, float, complex)  # bool is an int


def bind_keywords(
    entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[np.dtype[Any] | None, ...]]:
    """Return the operands and positional outs of the call, and the dtypes to which it casts array operands."""
    name, n = entry.name, entry.inputs
    names = [parameter for _, parameter in getattr(entry, "ins", ())] or "xyzuvw"
    if not n <= len(args) <= n + entry.results or ("out" in kwargs and len(args) > n):
        indices = ", or nonzero(x) for indices" if name == "where" else ""
        raise ArgumentTypeError(
            where=name,
            expected=f"{n} operand{'s' if n != 1 else ''}, and optionally out=",
            got=f"{len(args)}",
            fix=f"call {name}({', '.join(names[i % len(names)] for i in range(n))}){indices}",
        )
    for key, value in kwargs.items():
        if key in ("out", "dtype") or any(
            value is v or (isinstance(value, str) and value == v) for v in _ACCEPTED.get(key, ())
        ):
            continue
        raise ArgumentTypeError(
            where=name,
            expected="the keywords out, dtype and order ('K' or 'C')",
            got=f"{key}={short_repr(value)}",
            fix="select elements with gpuinterop.where, or write into a view: out=y[::2]"
            if key == "where"
            else f"omit {key}=",
        )
    dtype = kwargs.get("dtype")
    if dtype is None:
        return args[:n], args[n:], ()
    operands, casts = _cast(entry, args[:n], as_supported_dtype(dtype, name))
    return operands, args[n:], casts


def _cast(
    row: Row, operands: tuple[Any, ...], result_dtype: np.dtype[Any]
) -> tuple[tuple[Any, ...], tuple[np.dtype[Any] | None, ...]]:
    """Return the operands, and the dtypes of NumPy's loop with results `result_dtype`, to which the kernel casts."""
    like = next((x for x in operands if isinstance(x, _core.Array)), None)
    values = []
    for x in operands:
        x = as_scalar(x, row.name)
        if not isinstance(x, (np.generic, *_NUMBERS)) and not hasattr(x, "__gpuinterop_trace__"):
            x = as_array_or_none(x, like, row.name)
        if x is None:
            return operands, ()  # the plain call raises the error
        values.append(x)
    types = [
        _dtype_of_rules(x.dtype) if hasattr(x, "dtype")
        else np.dtype(np.bool_) if isinstance(x, bool)
        else next(t for t in _NUMBERS if isinstance(x, t))  # takes the dtype of another operand
        for x in values
    ]  # fmt: skip
    loop_types = _loop(row, types, result_dtype)
    numbers = not any(hasattr(x, "dtype") for x in values)
    if row.name == "power" and loop_types[0].kind == "i" and isinstance(values[1], int):
        if values[1] < 0:
            raise negative_exponent(row.name)
        numbers = True  # a kernel that casts does not check the sign of an int
    cast, dtypes = [], []
    for x, dtype in zip(values, loop_types, strict=True):
        in_kernel = (
            isinstance(x, _core.Array)
            and x.dtype != dtype
            and not {x.dtype.name, dtype.name} & set(WITHOUT_KERNELS)
        )
        dtypes.append(dtype if in_kernel else None)
        if hasattr(x, "dtype"):
            x = x.astype(dtype, "K") if x.dtype != dtype and not in_kernel else x
        elif numbers and isinstance(x, _NUMBERS):
            # No other operand determines the dtype, so give the number this dtype.
            try:
                x = dtype.type(x)
            except (OverflowError, TypeError):  # TypeError: of a dtype of ml_dtypes
                wider = "int64" if dtype.kind in "iu" else ""
                raise integer_out_of_range(row.name, x, dtype, wider) from None
        cast.append(x)
    return tuple(cast), tuple(dtypes) if any(dtypes) else ()


def _dtype_of_rules(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype, or float16 for a dtype without NumPy loops, which follows the rules of float16."""
    return np.dtype(np.float16) if is_extended(dtype_id(dtype)) else dtype


def _loop(row: Row, types: list[Any], result_dtype: np.dtype[Any]) -> list[np.dtype[Any]]:
    """Return the dtypes to which NumPy casts the operands for results of a dtype."""
    rule, requested = row.rule, _dtype_of_rules(result_dtype)
    # The operands of clip and where all have the result's dtype.
    candidates = [types] if rule.nin == row.inputs else [[types[0], one] for one in types[1:]]
    loop_types: list[np.dtype[Any]] = []
    try:
        for operands in candidates:
            if not any(isinstance(one, np.dtype) for one in operands):
                operands = [np.result_type(one(0)) for one in operands]
            signature: Any = (*[None] * rule.nin, *[requested] * rule.nout)
            resolved = rule.resolve_dtypes(
                (*operands, *[None] * rule.nout), signature=signature, casting="same_kind"
            )
            loop_types = [*resolved[: rule.nin]]
    except TypeError as error:
        names = ", ".join(str(one) if isinstance(one, np.dtype) else one.__name__ for one in types)
        raise DTypeError(
            where=row.name,
            expected=f"dtype= in which NumPy computes {row.name} of {names}",
            got=f"dtype={result_dtype}",
            fix=f"omit dtype= and cast the result: {row.name}(...).astype('{result_dtype}')",
        ) from error
    loop_types = loop_types if rule.nin == row.inputs else [requested] * row.inputs
    return [result_dtype if one == requested else one for one in loop_types]
