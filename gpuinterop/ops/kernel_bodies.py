"""From a row of the table and the operands' dtypes to the body of a kernel."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from gpuinterop.dtypes import NAMES
from gpuinterop.errors import DTypeError
from gpuinterop.jit.codegen import ADDRESS, STORAGE, Body

from .dtype_promotion import Loop, dtype_kind, loop_dtypes, name_of_kind
from .operation_table import Row

__all__ = ["body_for", "raw_body", "raw_name", "substitute", "take_body"]

_OPERAND = re.compile(r"\b([xyz])\b")


def substitute(expression: str, values: tuple[str, ...]) -> str:
    """The expression with x, y and z replaced."""
    return _OPERAND.sub(lambda match: values["xyz".index(match[1])], expression)


def no_kernel(row: Row, kinds: tuple[int, ...]) -> DTypeError:
    """The error for a dtype that has no kernel: it is refused on "cpu" as well."""
    real = "x.astype('float64') keeps the real parts"
    operands = ", ".join(f"{letter}.get()" for letter in "xyz"[: row.inputs])
    numpys = isinstance(row.numpy, np.ufunc)
    return DTypeError(
        where=row.name,
        expected=f"a dtype that {row.name} has a kernel for",
        got=", ".join(name_of_kind(k) for k in kinds),
        fix=f"let NumPy compute it, numpy.{row.name}({operands}); {real}" if numpys else real,
    )


@lru_cache(maxsize=4096)
def body_for(row: Row, kinds: tuple[int, ...]) -> tuple[Body, Loop]:
    """The computation for operands of these dtypes, and its dtypes."""
    ins, outs = loop_dtypes(row, kinds)
    expression = row.expressions.get(dtype_kind(ins[row.kinds_from]))
    if expression is None or any(NAMES[r] not in STORAGE for r in (*ins, *outs)):
        raise no_kernel(row, kinds)
    parts = [part.strip() for part in expression.split(";")]
    names = tuple(f"a{i}" for i in range(row.inputs))
    statements = " ".join(f"o{j} = {substitute(part, names)};" for j, part in enumerate(parts))
    name = row.name if row.name != "divmod" else "divmod_"
    return (
        Body(name, tuple(NAMES[r] for r in ins), tuple(NAMES[r] for r in outs), statements),
        (ins, outs),
    )


def raw_name(itemsize: int) -> str:
    """The name of plain bits of a size."""
    return f"u{8 * itemsize}"


@lru_cache(maxsize=16)
def raw_body(op: str, itemsize: int) -> Body:
    """Moves bits: the same kernel for all dtypes of one size."""
    name = raw_name(itemsize)
    return Body(op, (name,), (name,), "o0 = a0;")


@lru_cache(maxsize=16)
def take_body(itemsize: int) -> Body:
    """Gathers bits: index, address of the element at index 0, step between indices."""
    name = raw_name(itemsize)
    return Body("take", ("int64", ADDRESS, "int64"), (name,), "o0 = a1[a0 * a2];", once=True)
