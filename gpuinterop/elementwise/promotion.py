"""Dtype promotion: the dtypes in which an operation computes, and its kernel body.

The rule is NumPy's. Python's int, float and complex are weakly typed: they take the other operand's
dtype. The types of ml_dtypes behave as float16 does, but two different ones, or one and float16,
promote to float32.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gpuinterop.arrays.dtypes import (
    KINDS,
    NAMES,
    NUMPY_NAMES,
    WITHOUT_KERNELS,
    dtype_from_id,
    dtype_id,
)
from gpuinterop.errors import DTypeError
from gpuinterop.errors.messages import out_dtype_differs

from .codegen import ADDRESS, STORAGE, Body
from .table import TABLE, Row

# The core's type code of an operand ("kind"): a dtype id for an array, STRONG_NUMBER + dtype id for a number
# of that dtype, or one of these.
STRONG_NUMBER = 64  # kStrongNumber in native/elementwise/operands.hpp
WEAK: dict[int, type] = {-1: int, -2: float, -3: complex}
_FLOAT16, _FLOAT32, _COMPLEX64 = (NAMES.index(n) for n in ("float16", "float32", "complex64"))
_BOOL = NAMES.index("bool")

Loop = tuple[tuple[int, ...], tuple[int, ...]]  # rows of the inputs, rows of the results


def row_of_kind(kind: int) -> int:
    """Return the dtype id of an array or a number; `kind` is not weak."""
    return kind % STRONG_NUMBER


def is_extended(row: int) -> bool:
    """Return whether only ml_dtypes defines the type for NumPy."""
    return row >= len(NUMPY_NAMES)


def dtype_kind(row: int) -> str:
    """Return the kind of a dtype: "b", "i", "u", "f" or "c"."""
    return KINDS[NAMES[row]]


def name_of_kind(kind: int) -> str:
    """Return the name of an operand's type for messages."""
    if kind in WEAK:
        return f"Python {WEAK[kind].__name__}"
    return NAMES[row_of_kind(kind)]


def _no_loop(row: Row, kinds: Sequence[int]) -> DTypeError:
    return DTypeError(
        where=row.name,
        expected=f"dtypes for which {row.name} is defined",
        got=", ".join(name_of_kind(k) for k in kinds),
        fix=_suggested_fix(row, kinds),
    )


def _suggested_fix(row: Row, kinds: Sequence[int]) -> str:
    """Return the fix: a cast to a dtype for which NumPy has the operation, or else the computation on the host."""
    strong = [dtype_from_id(row_of_kind(k)) for k in kinds if k >= 0]
    wide = any(d.itemsize == 8 and d.kind in "iuf" for d in strong)
    names = ["float64", "int64"] if wide else ["float32", "int32"]
    if {dtype_kind(row_of_kind(k)) for k in kinds if k >= 0} <= {"b", "i", "u"}:
        names.reverse()
    if any(d.name == "complex32" for d in strong):  # a cast to real numbers would lose a part
        names.insert(0, "complex64")
    for name, number in itertools.product(names, (None, float, int)):
        # the values of where, and the compared operands of clip
        operands = [np.dtype(name) if k >= 0 else number or WEAK[k] for k in kinds][-row.rule.nin :]
        try:
            row.rule.resolve_dtypes((*operands, *[None] * row.rule.nout))
        except (TypeError, ValueError):
            continue
        cast = f"cast first: x.astype('{name}')"
        if number is None:
            return cast
        passed = "pass a float" if number is float else "pass an int"
        return passed if strong[0].kind == np.dtype(name).kind else f"{cast}, and {passed}"
    return "compute it on the host: numpy.asarray(x)"


def _common_extended_type(kinds: Sequence[int]) -> int | None:
    """Return the extended type of all operands, or None if they promote to float32 or above."""
    rows = {r for r in map(row_of_kind, (k for k in kinds if k >= 0)) if dtype_kind(r) in "fc"}
    if len(rows) == 1 and is_extended(next(iter(rows))) and -3 not in kinds:
        return rows.pop()
    return None


@lru_cache(maxsize=4096)
def loop_dtypes(row: Row, kinds: tuple[int, ...]) -> Loop:
    """Return the dtypes in which `row` computes, for operands of these kinds.

    Raises
    ------
    DTypeError
        NumPy has no loop for these dtypes, or only one for a dtype that gpuinterop does not have.
    """
    if any(k >= 0 and NAMES[row_of_kind(k)] in WITHOUT_KERNELS for k in kinds):
        raise _no_loop(row, kinds)
    extended = _common_extended_type(kinds)
    stand_in = _FLOAT16 if extended is not None else _FLOAT32
    rows = [k if k < 0 else row_of_kind(k) for k in kinds]
    numpy_kinds = tuple(stand_in if is_extended(r) else r for r in rows)
    if extended is not None:
        # bfloat16 + int32 is bfloat16: integers are weakly typed with it, but not with float16.
        numpy_kinds = tuple(k if k < 0 or dtype_kind(k) == "f" else -1 for k in numpy_kinds)
    if row.name == "where":
        loop = _where(row, numpy_kinds, kinds)
    elif row.name == "cast":
        loop = ((numpy_kinds[0],), (numpy_kinds[0],))
    else:
        loop = _numpy_loop(row, numpy_kinds, kinds)
    if extended is None:
        return loop

    def back(r: int) -> int:
        return extended if r == _FLOAT16 else r

    return tuple(back(r) for r in loop[0]), tuple(back(r) for r in loop[1])


def common_dtype(dtypes: Sequence[Any], where: str) -> Any:
    """Return the promoted dtype of arrays: that of their sum, by NumPy's rule for NumPy's dtypes."""
    try:
        return np.result_type(*dtypes)
    except TypeError:
        row = dtype_id(dtypes[0])
        try:
            for other in dtypes[1:]:
                row = loop_dtypes(TABLE["add"], (row, dtype_id(other)))[1][0]
        except DTypeError as error:
            raise DTypeError(
                where=where, expected="arrays of dtypes that have a common one",
                got=", ".join(str(d) for d in dtypes), fix=error.fix,
            ) from None  # fmt: skip
        return dtype_from_id(row)


def _numpy_loop(row: Row, numpy_kinds: tuple[int, ...], kinds: tuple[int, ...]) -> Loop:
    operands: list[Any] = [WEAK[k] if k < 0 else dtype_from_id(k) for k in numpy_kinds]
    rule = row.rule
    if all(k < 0 for k in numpy_kinds):
        # Weak operands only: their own NumPy types.
        operands = [np.result_type(o(0)) for o in operands]
    if len(operands) == 3 and rule.nin == 2:  # clip: all three together
        operands = [_common(rule, operands, row, kinds)] * 3
        names = (NAMES.index(operands[0].name),)
        return names * 3, names
    try:
        resolved = rule.resolve_dtypes((*operands, *[None] * rule.nout))
    except TypeError as error:
        raise _no_loop(row, kinds) from error
    try:
        rows = tuple(NAMES.index(d.name) for d in resolved)
    except ValueError as error:  # object, datetime, longdouble
        raise _no_loop(row, kinds) from error
    return rows[: rule.nin], rows[rule.nin :]


def _common(rule: np.ufunc, operands: list[Any], row: Row, kinds: tuple[int, ...]) -> Any:
    strong = [o for o in operands if isinstance(o, np.dtype)]
    common: Any = strong[0]
    try:
        for other in [*strong[1:], *(o for o in operands if o not in strong)]:
            common = rule.resolve_dtypes((common, other, None))[-1]
    except TypeError as error:
        raise _no_loop(row, kinds) from error
    return common


def _where(row: Row, numpy_kinds: tuple[int, ...], kinds: tuple[int, ...]) -> Loop:
    values = numpy_kinds[1:]
    if all(k == _BOOL for k in values):
        promoted = _BOOL
    elif values[0] == values[1] and values[0] >= 0:
        promoted = values[0]
    else:
        promoted = _numpy_loop(row, values, kinds)[1][0]
    return (_BOOL, promoted, promoted), (promoted,)


def require_exact_in(where: str, only: Any, kinds: tuple[int, ...]) -> None:
    """Require that float32 holds operands of these dtypes exactly, because a CudaNdarray is among them.

    All of ml_dtypes' types are accepted, because none has more than 16 bits.
    """
    for kind in kinds:
        row = row_of_kind(kind) if kind >= 0 else -1
        if kind == -3 or (
            row >= 0 and not is_extended(row) and not np.can_cast(dtype_from_id(row), only)
        ):
            raise DTypeError(
                where=where,
                expected=f"operands that {only} holds exactly, because one is a CudaNdarray",
                got=name_of_kind(kind),
                fix="cast the operand to float32, or the CudaNdarray to the wider dtype: x.astype('float64')",
            )


def check_casts(where: str, outs: tuple[int, ...], out_rows: tuple[int, ...]) -> None:
    """Refuse `out` dtypes (-1 for none) to which NumPy does not cast results of these dtypes."""
    for row, out in zip(outs, out_rows, strict=True):
        if out < 0 or out == row:
            continue
        if NAMES[out] in WITHOUT_KERNELS:
            fits = False
        elif is_extended(out) or is_extended(row):
            fits = dtype_kind(row) != "c" or dtype_kind(out) == "c"
        else:
            fits = np.can_cast(dtype_from_id(row), dtype_from_id(out), casting="same_kind")
        if not fits:
            raise out_dtype_differs(where, NAMES[row], NAMES[out])


# ---- bodies of kernels ---------------------------------------------------------------------------

_OPERAND = re.compile(r"\b([xyz])\b")


def substitute(expression: str, values: tuple[str, ...]) -> str:
    """Return the expression with x, y and z replaced by values."""
    return _OPERAND.sub(lambda match: values["xyz".index(match[1])], expression)


@lru_cache(maxsize=4096)
def body_for(row: Row, kinds: tuple[int, ...]) -> tuple[Body, Loop]:
    """Return the kernel body for operands of these dtypes, and its dtypes."""
    ins, outs = loop_dtypes(row, kinds)
    expression = row.expressions.get(dtype_kind(ins[row.kinds_from]))
    if expression is None or any(NAMES[r] not in STORAGE for r in (*ins, *outs)):
        # Refused on "cpu" as well.
        raise DTypeError(
            where=row.name,
            expected=f"a dtype for which {row.name} has a kernel",
            got=", ".join(name_of_kind(k) for k in kinds),
            fix="cast first (x.astype('float64') keeps the real parts), or pass x.get() to NumPy's function",
        )
    parts = [part.strip() for part in expression.split(";")]
    names = tuple(f"a{i}" for i in range(row.inputs))
    statements = " ".join(f"o{j} = {substitute(part, names)};" for j, part in enumerate(parts))
    name = row.name if row.name != "divmod" else "divmod_"
    return (
        Body(
            name,
            tuple(NAMES[r] for r in ins),
            tuple(NAMES[r] for r in outs),
            statements,
            keeps_signs=row.keeps_signs,
        ),
        (ins, outs),
    )


def raw_name(itemsize: int) -> str:
    """Return the CUDA type of plain bits of a size."""
    return f"u{8 * itemsize}"


@lru_cache(maxsize=64)
def core_body(op: str, stored: tuple[str, ...]) -> Body:
    """Return the body of an operation of the core outside the table; `stored` as in native/index/elements.cpp.

    Operations that move bits have one kernel for all dtypes of one size.
    """
    if op in ("copy", "fill"):
        return Body(op, stored[:1], stored[1:], "o0 = a0;")
    if op == "select":
        return Body(op, stored[:3], stored[3:], "o0 = a0 ? a1 : a2;")
    # Index arrays, the length and stride of the axis of each, the address at which to record an index out of range.
    count = 1 if op == "check_indices" else (len(stored) - 3) // 2
    control = 2 * count
    places = " + ".join(
        f"gi_place(a{i}, a{count + i}, a{control}, {i}, inside)" for i in range(count)
    )
    indices, body = stored[: control + 1], f"bool inside = true; const i64 at = {places};"
    if op == "check_indices":
        return Body(op, indices, (), f"{body} (void)at;", once=True)
    frame, other = f"a{control + 1}", f"a{control + 2}"
    if op == "gather":
        return Body(op, (*indices, ADDRESS), stored[-1:], f"{body} o0 = {frame}[at];", once=True)
    writes = {"scatter": f"*gi_writable({frame}, at) = {other};",
              "scatter_add": f"gi_atomic_add(gi_writable({frame}, at), {other});"}  # fmt: skip
    return Body(
        op, (*indices, ADDRESS, stored[-1]), (), f"{body} if (inside) {writes[op]}", once=True
    )
