"""Allocation, reshaping, joining and splitting of device arrays, and the positions of maxima."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    ARange,
    ExtractDiag,
    Eye,
    Join,
    MakeVector,
    Split,
)
from pytensor.tensor.extra_ops import FillDiagonal
from pytensor.tensor.math import Argmax
from pytensor.tensor.shape import Reshape, SpecifyShape

import gpuinterop as gi

from .. import settings
from ..replay import GRAPHS
from . import computes, device_inputs, lower, read_first, record_as


def _lengths(values: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in values)


@computes(Alloc)
def _alloc(op: Any, value: Any, *shape: Any) -> Any:
    result = gi.empty(_lengths(shape), value.dtype, device=value.device)
    result[...] = value
    return result


record_as(
    "fixed", Alloc, AllocEmpty, ARange, Eye, Reshape, Join, Split, Argmax, ExtractDiag, MakeVector,
    SpecifyShape,
)  # fmt: skip
record_as("values", FillDiagonal)
read_first(Alloc, Reshape, SpecifyShape, Split, Argmax, ExtractDiag)


@computes(AllocEmpty)
def _alloc_empty(op: Any, *shape: Any) -> Any:
    return gi.empty(_lengths(shape), op.dtype, device=settings.device())


@lower.register(ARange)
def _arange(op: Any, node: Any) -> Any:
    # A capture refuses the upload of the values, but copies those of an earlier call.
    @lru_cache(GRAPHS)
    def values(*numbers: Any) -> Any:
        return gi.asarray(np.arange(*numbers, dtype=op.dtype), device=settings.device())

    def run(inputs: Any, outputs: Any) -> None:
        outputs[0][0] = values(*(n.item() for n in inputs)).copy()

    return run


@computes(Eye)
def _eye(op: Any, *numbers: Any) -> Any:
    return gi.eye(*_lengths(numbers), dtype=op.dtype, device=settings.device())


@computes(Reshape)
def _reshape(op: Any, x: Any, shape: Any) -> Any:
    return x.reshape(_lengths(shape))


@computes(SpecifyShape)
def _specify_shape(op: Any, x: Any, *lengths: Any) -> Any:
    if any(n is not None and int(n) != m for n, m in zip(lengths, x.shape, strict=True)):
        raise AssertionError(f"SpecifyShape: expected shape {lengths}, got {x.shape}")
    return x


@lower.register(Join)
def _join(op: Any, node: Any) -> Any:
    static = getattr(op, "axis", None)
    dtype = np.dtype(node.outputs[0].type.dtype)

    def run(inputs: Any, outputs: Any) -> None:
        axis, parts = (static, inputs) if static is not None else (int(inputs[0]), inputs[1:])
        parts = [x if x.dtype == dtype else x.astype(dtype) for x in parts]
        outputs[0][0] = gi.concatenate(parts, axis=axis)

    return run


@lower.register(Split)
def _split(op: Any, node: Any) -> Any:
    static = getattr(op, "axis", None)

    def run(inputs: Any, outputs: Any) -> None:
        x = inputs[0]
        axis, lengths = (static, inputs[1]) if static is not None else (int(inputs[1]), inputs[2])
        lengths = _lengths(lengths)
        if min(lengths, default=0) < 0 or sum(lengths) != x.shape[axis]:
            raise ValueError(f"Split: expected lengths of sum {x.shape[axis]}, got {lengths}")
        ends = np.cumsum(lengths)[:-1].tolist()
        for cell, part in zip(outputs, gi.split(x, ends, axis=axis), strict=True):
            cell[0] = part

    return run


@device_inputs.register(Join)
@device_inputs.register(MakeVector)
def _arrays(op: Any, node: Any) -> list[int]:
    # Before PyTensor 3.3 the first input of Join is its axis, an integer without dimensions.
    return [i for i, x in enumerate(node.inputs) if x.type.ndim or isinstance(op, MakeVector)]


@computes(MakeVector)
def _make_vector(op: Any, *values: Any) -> Any:
    result = gi.empty((len(values),), op.dtype, device=values[0].device)
    for i, x in enumerate(values):
        result[i] = x
    return result


@computes(Argmax)
def _argmax(op: Any, x: Any) -> Any:
    axes = tuple(range(x.ndim)) if op.axis is None else tuple(op.axis)
    others = [d for d in range(x.ndim) if d not in axes]
    if len(axes) == 1:
        return x.argmax(axes[0])
    if not others:
        return x.argmax()
    # The position in the flattened axes.
    kept = tuple(x.shape[d] for d in others)
    return x.transpose(*others, *axes).reshape((*kept, -1)).argmax(len(kept))


@computes(ExtractDiag)
def _diagonal(op: Any, x: Any) -> Any:
    part = x.diagonal(op.offset, op.axis1, op.axis2)
    return part if op.view else part.copy()


@computes(FillDiagonal)
def _fill_diagonal(op: Any, x: Any, value: Any) -> Any:
    result = x.copy()
    result.diagonal()[...] = value.item() if isinstance(value, np.ndarray) else value
    return result


@device_inputs.register(FillDiagonal)
def _matrix(op: Any, node: Any) -> list[int] | None:
    return [0] if node.inputs[0].type.ndim == 2 else None  # the host fills tensors
