"""Elemwise, CAReduce and DimShuffle on device arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise

import gpuinterop as gi

from .device_op import printed
from .lowering import device_inputs, lower
from .scalar_ops import compiled

_REDUCTIONS: dict[str, str] = {
    "Add": "sum", "Mul": "prod", "Maximum": "max", "Minimum": "min", "ScalarMaximum": "max",
    "ScalarMinimum": "min", "AND": "all", "OR": "any",
}  # fmt: skip


@lower.register(Elemwise)
def _elemwise(op: Any, node: Any) -> Any:
    call = compiled(op.scalar_op, node, str(op.scalar_op))
    patterns = [x.type.broadcastable for x in node.inputs]
    several = len(node.outputs) > 1
    inplace = dict(op.inplace_pattern)
    by_value = [not hasattr(x.type, "array_class") for x in node.inputs]

    def run(inputs: Any, outputs: Any) -> None:
        operands = [
            x.reshape(())[()] if host else x for x, host in zip(inputs, by_value, strict=True)
        ]
        shape = _shape(op, operands, patterns)
        out = []
        for i, cell in enumerate(outputs):
            old = inputs[inplace[i]] if i in inplace else cell[0]
            fits = old is not None and old.shape == shape and not old.readonly
            out.append(old if fits else None)
        if several:
            results = call(*operands) if None in out else call(*operands, out=tuple(out))
        else:
            results = (call(*operands, out=out[0]),)
        for cell, result in zip(outputs, results, strict=True):
            cell[0] = result

    return run


def _shape(op: Any, operands: Any, patterns: Any) -> tuple[int, ...]:
    """The shape of the result; a length 1 that is not declared broadcastable is not repeated."""
    shapes = [x.shape for x in operands if hasattr(x, "shape")]
    shape = np.broadcast_shapes(*shapes)
    for x, pattern in zip(operands, patterns, strict=True):
        for n, full, declared in zip(getattr(x, "shape", ()), shape, pattern, strict=False):
            if n != full and not declared:
                raise ValueError(
                    f"{op}: expected equal lengths, got shapes {', '.join(map(str, shapes))}; "
                    "a length of 1 is repeated only where the type declares it"
                )
    return shape


@lower.register(CAReduce)
def _reduction(op: Any, node: Any) -> Any:
    name = _REDUCTIONS[type(op.scalar_op).__name__]
    axis, dtype = op.axis, node.outputs[0].type.dtype
    function = getattr(gi, name)

    def run(inputs: Any, outputs: Any) -> None:
        result = function(inputs[0], axis)
        outputs[0][0] = result if str(result.dtype) == dtype else result.astype(dtype)

    return run


@lower.register(DimShuffle)
def _dimshuffle(op: Any, node: Any) -> Any:
    order = op.new_order

    def run(inputs: Any, outputs: Any) -> None:
        outputs[0][0] = inputs[0].dimshuffle(*order)

    return run


@device_inputs.register(Elemwise)
def _all_tensors(op: Any, node: Any) -> list[int]:
    # A value of one element on the host is passed by value.
    return [i for i, x in enumerate(node.inputs) if not all(x.type.broadcastable)]


@device_inputs.register(CAReduce)
@device_inputs.register(DimShuffle)
def _first(op: Any, node: Any) -> list[int]:
    return [0]


@printed.register(Elemwise)
def _print_elemwise(host: Any, name: str) -> str:
    pairs = ", ".join(f"({o}, {i})" for o, i in sorted(host.inplace_pattern.items()))
    operation = getattr(host.scalar_op, "name", None) or str(host.scalar_op)
    return f"{name}{{{operation}}}[{pairs}]" if pairs else f"{name}{{{operation},no_inplace}}"


@printed.register(CAReduce)
def _print_reduction(host: Any, name: str) -> str:
    axes = "" if host.axis is None else "{" + ",".join(map(str, host.axis)) + "}"
    return f"{name}{{{getattr(host.scalar_op, 'name', None) or host.scalar_op}}}{axes}"


@printed.register(DimShuffle)
def _print_dimshuffle(host: Any, name: str) -> str:
    return f"{name}{{{','.join(map(str, host.new_order))}}}"
