"""Allocation, reshaping, joining and splitting of device arrays, and the positions of maxima."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.tensor.basic import Alloc, AllocEmpty, ExtractDiag, Join, MakeVector, Split
from pytensor.tensor.extra_ops import FillDiagonal
from pytensor.tensor.math import Argmax
from pytensor.tensor.shape import Reshape, SpecifyShape

import gpuinterop as gi

from . import settings
from .lowering import device_inputs, lower, read_first, record_as


def _lengths(values: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in values)


@lower.register(Alloc)
def _alloc(op: Any, node: Any) -> Any:
    def run(inputs: Any, outputs: Any) -> None:
        value, shape = inputs[0], _lengths(inputs[1:])
        result = gi.empty(shape, value.dtype, device=value.device)
        result[...] = value
        outputs[0][0] = result

    return run


record_as(
    "fixed", Alloc, AllocEmpty, Reshape, Join, Split, Argmax, ExtractDiag, MakeVector, SpecifyShape
)
record_as("values", FillDiagonal)
read_first(Alloc, Reshape, SpecifyShape, Split, Argmax, ExtractDiag)


@lower.register(AllocEmpty)
def _alloc_empty(op: Any, node: Any) -> Any:
    def run(inputs: Any, outputs: Any) -> None:
        outputs[0][0] = gi.empty(_lengths(inputs), op.dtype, device=settings.device())

    return run


@lower.register(Reshape)
def _reshape(op: Any, node: Any) -> Any:
    def run(inputs: Any, outputs: Any) -> None:
        x, shape = inputs
        outputs[0][0] = x.reshape(_lengths(shape))

    return run


@lower.register(SpecifyShape)
def _specify_shape(op: Any, node: Any) -> Any:
    def run(inputs: Any, outputs: Any) -> None:
        x, *lengths = inputs
        if any(n is not None and int(n) != m for n, m in zip(lengths, x.shape, strict=True)):
            raise AssertionError(f"SpecifyShape: expected shape {tuple(lengths)}, got {x.shape}")
        outputs[0][0] = x

    return run


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


@lower.register(MakeVector)
def _make_vector(op: Any, node: Any) -> Any:
    def run(inputs: Any, outputs: Any) -> None:
        result = gi.empty((len(inputs),), op.dtype, device=inputs[0].device)
        for i, x in enumerate(inputs):
            result[i] = x
        outputs[0][0] = result

    return run


@lower.register(Argmax)
def _argmax(op: Any, node: Any) -> Any:
    ndim = node.inputs[0].type.ndim
    axes = tuple(range(ndim)) if op.axis is None else tuple(op.axis)
    others = [d for d in range(ndim) if d not in axes]

    def run(inputs: Any, outputs: Any) -> None:
        (x,) = inputs
        if len(axes) == 1:
            outputs[0][0] = x.argmax(axes[0])
        elif not others:
            outputs[0][0] = x.argmax()
        else:  # the position in the flattened axes
            kept = tuple(x.shape[d] for d in others)
            outputs[0][0] = x.transpose(*others, *axes).reshape((*kept, -1)).argmax(len(kept))

    return run


@lower.register(ExtractDiag)
def _diagonal(op: Any, node: Any) -> Any:
    def run(inputs: Any, outputs: Any) -> None:
        part = inputs[0].diagonal(op.offset, op.axis1, op.axis2)
        outputs[0][0] = part if op.view else part.copy()

    return run


@lower.register(FillDiagonal)
def _fill_diagonal(op: Any, node: Any) -> Any:
    def run(inputs: Any, outputs: Any) -> None:
        x, value = inputs
        outputs[0][0] = result = x.copy()
        result.diagonal()[...] = value.item() if isinstance(value, np.ndarray) else value

    return run


@device_inputs.register(FillDiagonal)
def _matrix(op: Any, node: Any) -> list[int] | None:
    return [0] if node.inputs[0].type.ndim == 2 else None  # the host fills tensors
