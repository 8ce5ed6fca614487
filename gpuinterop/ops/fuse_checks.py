"""What the outs of a fused function in stages must be, asked before its first stage writes one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import dtype_from_id, dtype_id, refuse_half_complex
from gpuinterop.errors import ArgumentTypeError, ShapeError
from gpuinterop.layout import core_view

from .core_callbacks import check_casts
from .fuse_numbers import described
from .fuse_shapes import shapes_of
from .output_arrays import check_out, require_arrays
from .reduction_dispatch import normalized_axes
from .reduction_table import REDUCTIONS, check_not_empty, recipe_for
from .trace import Node, input_kind, is_strict, kinds_of, ordered, strong

if TYPE_CHECKING:
    from .fuse_stages import Stage

__all__ = ["check_outs"]


def check_outs(
    results: Sequence[Node],
    stages: Sequence[Stage],
    operands: Sequence[Any],
    outs: Sequence[Any],
) -> None:
    """Refuse what any of the stages would refuse: until then nothing has been written.

    `operands` are arrays of this library, and numbers.
    """
    for out in outs:
        if out is not None and not isinstance(out, _core.Array):
            raise ArgumentTypeError(
                where="fuse", expected="an array of this library as out",
                got=f"an object of type {type(out).__module__}.{type(out).__qualname__}",
                fix="share it first: gpuinterop.asarray(out), or call it without out",
            )  # fmt: skip
    nodes = ordered(results, through=True)
    read = {n.index: operands[n.index] for n in nodes if n.index >= 0}
    shapes = shapes_of(nodes, {i: described(x)[0] for i, x in read.items()})
    kinds, _ = kinds_of(
        nodes,
        {i: input_kind(x) for i, x in read.items()},
        {i: is_strict(x) for i, x in read.items()},
    )
    for result in results:
        arrays = _arrays(result, operands)
        if arrays:
            require_arrays("fuse", *arrays)
    for node in nodes:
        if node.reduction is not None:
            of = node.operands[0]
            _check_reduction(node, shapes[id(of)], dtype_from_id(strong(kinds[id(of)])), operands)
    for stage in stages:
        rows = [strong(kinds[id(results[place])]) for place in stage.gives]
        given = [(place, outs[place]) for place in stage.gives if outs[place] is not None]
        if not given:
            continue
        like = next(iter(_arrays(results[given[0][0]], operands)), given[0][1])
        shape = shapes[id(results[given[0][0]])]
        if stage.reduces:
            ((place, out),) = given
            check_out(out, shape, dtype_from_id(rows[0]), like, _place(results[place]))
            continue
        for _, out in given:
            shape = _repeated(shape, out)
        for _, out in given:
            check_out(out, shape, out.dtype, like, "fuse")
        held_rows = [-1 if outs[p] is None else dtype_id(outs[p].dtype) for p in stage.gives]
        check_casts("fuse", tuple(rows), tuple(held_rows))


def _arrays(result: Node, operands: Sequence[Any]) -> list[Any]:
    """The arrays that a result is computed from."""
    found = [operands[n.index] for n in ordered([result], through=True) if n.index >= 0]
    return [x for x in found if isinstance(x, _core.Array)]


def _check_reduction(
    node: Node, shape: tuple[int, ...], dtype: Any, operands: Sequence[Any]
) -> None:
    assert node.reduction is not None
    op, axis, _ = node.reduction
    axes = normalized_axes(axis, len(shape), op)
    check_not_empty(op, math.prod(shape[i] for i in axes), shape)
    refuse_half_complex(dtype, op)
    if any(core_view(x).device.type == "cuda" for x in _arrays(node, operands)):
        recipe_for(op, dtype, np.dtype(REDUCTIONS[op].result(dtype)))


def _place(node: Node) -> str:
    return "fuse" if node.reduction is None else node.reduction[0]


def _repeated(shape: tuple[int, ...], out: Any) -> tuple[int, ...]:
    """The shape of the results beside an out, to which they are repeated."""
    wanted = core_view(out).shape
    last = wanted[len(wanted) - len(shape) :]
    if len(wanted) < len(shape) or any(n not in (1, m) for n, m in zip(shape, last, strict=True)):
        raise ShapeError(
            where="fuse", expected=f"an out of shape {shape}", got=str(wanted),
            fix="pass an out of that shape, or none",
        )  # fmt: skip
    return wanted
