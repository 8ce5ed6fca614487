"""Dtype promotion: the dtypes in which an operation computes, and its kernel body.

The rule is NumPy's. Python's int, float and complex are weakly typed: they take the other operand's
dtype. A type of ml_dtypes stays beside integers and bools of any size (bfloat16 + int32 is bfloat16, while float16 +
int32 is float64); with wider floats and complex numbers it is promoted as float16 is; two different ones, or one and
float16, promote to float32.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import (
    LETTERS,
    NAMES,
    NUMPY_NAMES,
    WITHOUT_KERNELS,
    dtype_from_id,
    dtype_id,
)
from gpuinterop.errors import DTypeError, GpuInteropError
from gpuinterop.errors.messages import not_held_exactly, out_dtype_differs, undefined_for_dtypes

from .codegen import ADDRESS, STORAGE, Body
from .table import TABLE, Row

# The core's type code of an operand: a dtype id for an array, STRONG_NUMBER + dtype id for a number
# of that dtype, or one of these.
STRONG_NUMBER = _core.STRONG_NUMBER
WEAK_INT, WEAK_FLOAT, WEAK_COMPLEX = _core.WEAK_INT, _core.WEAK_FLOAT, _core.WEAK_COMPLEX
WEAK: dict[int, type] = {WEAK_INT: int, WEAK_FLOAT: float, WEAK_COMPLEX: complex}
WEAK_CODES: dict[type, int] = {number: code for code, number in WEAK.items()}
_FLOAT16, _FLOAT32, _COMPLEX64 = (NAMES.index(n) for n in ("float16", "float32", "complex64"))
_BOOL = NAMES.index("bool")

Loop = tuple[tuple[int, ...], tuple[int, ...]]  # dtype ids of the inputs, and of the results


def id_of_code(code: int) -> int:
    """Return the dtype id of an array or a number; `code` is not weak."""
    return code % STRONG_NUMBER


def is_extended(type_id: int) -> bool:
    """Return whether only ml_dtypes defines the type for NumPy."""
    return type_id >= len(NUMPY_NAMES)


def letter_of(type_id: int) -> str:
    """Return the letter of a dtype: "b", "i", "u", "f" or "c"."""
    return LETTERS[NAMES[type_id]]


def name_of_code(code: int) -> str:
    """Return the name of an operand's type for messages."""
    if code in WEAK:
        return f"Python {WEAK[code].__name__}"
    return NAMES[id_of_code(code)]


def _no_loop(row: Row, codes: Sequence[int]) -> GpuInteropError:
    got = ", ".join(name_of_code(k) for k in codes)
    return undefined_for_dtypes(row.name, row.name, got, _suggested_fix(row, codes))


def _suggested_fix(row: Row, codes: Sequence[int]) -> str:
    """Return the fix: a cast to a dtype for which NumPy has the operation, or else the computation on the host."""
    strong = [dtype_from_id(id_of_code(k)) for k in codes if k >= 0]
    wide = any(d.itemsize == 8 and d.kind in "iuf" for d in strong)
    names = ["float64", "int64"] if wide else ["float32", "int32"]
    if {letter_of(id_of_code(k)) for k in codes if k >= 0} <= {"b", "i", "u"}:
        names.reverse()
    if any(d.name == "complex32" for d in strong):  # a cast to real numbers would lose a part
        names.insert(0, "complex64")
    for name, number in itertools.product(names, (None, float, int)):
        # the values of where, and the compared operands of clip
        operands = [np.dtype(name) if k >= 0 else number or WEAK[k] for k in codes][-row.rule.nin :]
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


def _stand_ins(codes: Sequence[int]) -> tuple[int | None, tuple[int, ...]]:
    """Return the extended type of the result, if it is one, and the codes by which NumPy's rule finds the dtypes.

    float16 stands for the extended type of a result, float32 for extended types that are promoted.
    """
    type_ids = [k if k < 0 else id_of_code(k) for k in codes]
    floats = {r for r in type_ids if r >= 0 and letter_of(r) in "fc"}
    if len(floats) != 1 or not is_extended(next(iter(floats))) or WEAK_COMPLEX in codes:
        return None, tuple(_FLOAT32 if is_extended(r) else r for r in type_ids)
    # bfloat16 + int32 is bfloat16: integers are weakly typed with it, but not with float16.
    return floats.pop(), tuple(
        k if k < 0 else _FLOAT16 if letter_of(k) == "f" else WEAK_INT for k in type_ids
    )


@lru_cache(maxsize=4096)
def loop_dtypes(row: Row, codes: tuple[int, ...]) -> Loop:
    """Return the dtypes in which `row` computes, for operands of these type codes.

    Raises
    ------
    DTypeError
        NumPy has no loop for these dtypes, or only one for a dtype that gpuinterop does not have.
    """
    if any(k >= 0 and NAMES[id_of_code(k)] in WITHOUT_KERNELS for k in codes):
        raise _no_loop(row, codes)
    extended, numpy_codes = _stand_ins(codes)
    if row.name == "where":
        loop = _where(row, numpy_codes, codes)
    elif row.name == "cast":
        loop = ((numpy_codes[0],), (numpy_codes[0],))
    else:
        loop = _numpy_loop(row, numpy_codes, codes)
    if extended is None:
        return loop

    def back(r: int) -> int:
        return extended if r == _FLOAT16 else r

    return tuple(back(r) for r in loop[0]), tuple(back(r) for r in loop[1])


def common_dtype(values: Sequence[Any], where: str) -> np.dtype[Any]:
    """Return the promoted dtype of dtypes, NumPy's arrays and Python's numbers: that of an operator's result.

    NumPy does not promote the types of ml_dtypes, because its result depends on the version of ml_dtypes.
    """
    found = [one if type(one) in WEAK_CODES else np.result_type(one) for one in values]
    if not any(isinstance(one, np.dtype) and one.isbuiltin == 2 for one in found):
        return np.result_type(*found)
    codes = [WEAK_CODES[type(x)] if type(x) in WEAK_CODES else dtype_id(x, where) for x in found]
    if all(code == codes[0] for code in codes):
        return dtype_from_id(codes[0])
    if any(code >= 0 and NAMES[code] in WITHOUT_KERNELS for code in codes):
        raise DTypeError(
            where=where, expected="arrays of dtypes that have a common one",
            got=", ".join(map(name_of_code, codes)), fix=_suggested_fix(TABLE["add"], codes),
        )  # fmt: skip
    extended, stand_ins = _stand_ins(codes)
    if extended is not None:
        return dtype_from_id(extended)
    return np.result_type(*(WEAK[k](0) if k < 0 else dtype_from_id(k) for k in stand_ins))


def _numpy_loop(row: Row, numpy_codes: tuple[int, ...], codes: tuple[int, ...]) -> Loop:
    operands: list[Any] = [WEAK[k] if k < 0 else dtype_from_id(k) for k in numpy_codes]
    rule = row.rule
    if all(k < 0 for k in numpy_codes):
        # Weak operands only: their own NumPy types.
        operands = [np.result_type(o(0)) for o in operands]
    if len(operands) == 3 and rule.nin == 2:  # clip: all three together
        operands = [_common(rule, operands, row, codes)] * 3
        names = (NAMES.index(operands[0].name),)
        return names * 3, names
    try:
        resolved = rule.resolve_dtypes((*operands, *[None] * rule.nout))
    except TypeError as error:
        raise _no_loop(row, codes) from error
    try:
        type_ids = tuple(NAMES.index(d.name) for d in resolved)
    except ValueError as error:  # object, datetime, longdouble
        raise _no_loop(row, codes) from error
    return type_ids[: rule.nin], type_ids[rule.nin :]


def _common(rule: np.ufunc, operands: list[Any], row: Row, codes: tuple[int, ...]) -> Any:
    strong = [o for o in operands if isinstance(o, np.dtype)]
    common: Any = np.result_type(*strong)  # all at once, because promotion is not associative
    try:
        for other in [common, *(o for o in operands if o not in strong)]:
            common = rule.resolve_dtypes((common, other, None))[-1]
    except TypeError as error:
        raise _no_loop(row, codes) from error
    return common


def _where(row: Row, numpy_codes: tuple[int, ...], codes: tuple[int, ...]) -> Loop:
    values = numpy_codes[1:]
    if all(k == _BOOL for k in values):
        promoted = _BOOL
    elif values[0] == values[1] and values[0] >= 0:
        promoted = values[0]
    else:
        promoted = _numpy_loop(row, values, codes)[1][0]
    return (_BOOL, promoted, promoted), (promoted,)


def require_exact_in(where: str, only: Any, codes: tuple[int, ...]) -> None:
    """Require that float32 holds operands of these dtypes exactly, because a CudaNdarray is among them.

    All of ml_dtypes' types are accepted, because none has more than 16 bits.
    """
    for code in codes:
        type_id = id_of_code(code) if code >= 0 else -1
        if code == WEAK_COMPLEX or (
            type_id >= 0
            and not is_extended(type_id)
            and not np.can_cast(dtype_from_id(type_id), only)
        ):
            raise not_held_exactly(where, only, name_of_code(code))


def check_casts(where: str, outs: tuple[int, ...], out_ids: tuple[int, ...]) -> None:
    """Refuse `out` dtypes (-1 for none) to which NumPy does not cast results of these dtypes."""
    for type_id, out in zip(outs, out_ids, strict=True):
        if out < 0 or out == type_id:
            continue
        if NAMES[out] in WITHOUT_KERNELS:
            fits = False
        elif is_extended(out) or is_extended(type_id):
            fits = letter_of(type_id) != "c" or letter_of(out) == "c"
        else:
            fits = np.can_cast(dtype_from_id(type_id), dtype_from_id(out), casting="same_kind")
        if not fits:
            raise out_dtype_differs(where, NAMES[type_id], NAMES[out])


# ---- bodies of kernels ---------------------------------------------------------------------------

_OPERAND = re.compile(r"\b([xyz])\b")


def substitute(expression: str, values: tuple[str, ...]) -> str:
    """Return the expression with x, y and z replaced by values."""
    return _OPERAND.sub(lambda match: values["xyz".index(match[1])], expression)


@lru_cache(maxsize=4096)
def body_for(row: Row, codes: tuple[int, ...]) -> tuple[Body, Loop]:
    """Return the kernel body for operands of these dtypes, and its dtypes."""
    ins, outs = loop_dtypes(row, codes)
    expression = row.expressions.get(letter_of(ins[row.letter_from]))
    if expression is None or any(NAMES[r] not in STORAGE for r in (*ins, *outs)):
        # Refused on "cpu" as well.
        raise DTypeError(
            where=row.name,
            expected=f"a dtype for which {row.name} has a kernel",
            got=", ".join(name_of_code(k) for k in codes),
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


@lru_cache(maxsize=64)
def core_body(op: str, stored: tuple[str, ...]) -> Body:
    """Return the body of an operation of the core outside the table; `stored` as in native/index/elements.cpp.

    Operations that move bits have one kernel for all dtypes of one size.
    """
    if op in ("copy", "fill"):
        return Body(op, stored[:1], stored[1:], "o0 = a0;")
    if op == "select":
        return Body(op, stored[:3], stored[3:], "o0 = a0 ? a1 : a2;")
    if op == "spaced":  # the array's address, an index and its value, the first value and the step
        place = "const i64 i = (i64)(((u64)a0 - a1) / sizeof(*a0));"
        body = f"{place} o0 = i == a2 ? a5 : a3 + i * a4;"
        return Body(op, (ADDRESS, *stored[1:6]), stored[6:], body)
    if op == "triangle":
        # An address that grows by an element with the column, and shrinks with the row; that of the first element of
        # the upper part, and whether the upper part stays; the elements.
        body = "o0 = a2; if (((u64)a0 >= a1.lo) != (bool)a1.hi) o0 = {};"
        return Body(op, (ADDRESS, *stored[1:3]), stored[3:], body)
    if op == "join":
        # The result, its address and the elements of a row; the parts; the stride between rows and the end of each.
        count = (len(stored) - 3) // 2
        parts, ends = range(2, 2 + count), [f"a{2 + count + i}" for i in range(count)]
        value = "0"
        for i in reversed(range(count)):
            begin = f" - {ends[i - 1]}.hi" if i else ""
            element = f"a{parts[i]}[(i64)row * (i64){ends[i]}.lo + (i64)(at{begin})]"
            value = element if i == count - 1 else f"at < {ends[i]}.hi ? {element} : {value}"
        places = "const u32 i = (u32)(((u64)a0 - a1.lo) / sizeof(*a0)), row = i / (u32)a1.hi, at = i % (u32)a1.hi;"
        loop = (ADDRESS, stored[1], *[ADDRESS] * count, *stored[2 + count : -1])
        return Body(op, loop, stored[-1:], f"{places} o0 = {value};", once=True)
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
