"""Elemwise, CAReduce and DimShuffle on device arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise

import gpuinterop as gi

from ..device_op import printed
from ..device_variables import is_device
from . import computes, device_inputs, lower, read_first, record_as
from .scalar_ops import compiled, supported

_REDUCTIONS: dict[str, str] = {
    "Add": "sum", "Mul": "prod", "Maximum": "max", "Minimum": "min", "ScalarMaximum": "max",
    "ScalarMinimum": "min", "AND": "all", "OR": "any",
}  # fmt: skip


@lower.register(Elemwise)
def _elemwise(op: Any, node: Any) -> Any:
    # Variables of its own, because an input may occur twice.
    inner = [x.type() for x in node.inputs]
    made = Apply(node.op, inner, [o.type() for o in node.outputs])
    call = compiled(inner, [made], made.outputs, str(op.scalar_op), {})
    inplace = dict(op.inplace_pattern)
    if len(node.inputs) == len(node.outputs) == 1 and not inplace:
        return _of_one_array(call)
    patterns = [x.type.broadcastable for x in node.inputs]
    numbers = [i for i, x in enumerate(node.inputs) if not is_device(x)]
    arrays = [i for i, x in enumerate(node.inputs) if is_device(x)]

    def run(inputs: Any, outputs: Any) -> None:
        for i in numbers:
            inputs[i] = inputs[i].item()
        shape = inputs[arrays[0]].shape if arrays else ()
        if any(inputs[i].shape != shape for i in arrays):
            shape = shape_of_operands(op, shapes_of(inputs), patterns)
        out = []
        for i, cell in enumerate(outputs):
            old = inputs[inplace[i]] if i in inplace else cell[0]
            if old is not None and old.shape == shape:
                out.append(old)
        results = call(*inputs, out=tuple(out)) if len(out) == len(outputs) else call(*inputs)
        if len(outputs) == 1:
            outputs[0][0] = results
        else:
            for cell, result in zip(outputs, results, strict=True):
                cell[0] = result

    return run


def _of_one_array(call: Any) -> Any:
    def run(inputs: Any, outputs: Any) -> None:
        x, cell = inputs[0], outputs[0]
        old = cell[0]  # the result of the last call, if PyTensor keeps it
        cell[0] = call(x) if old is None or old.shape != x.shape else call(x, out=old)

    return run


def shapes_of(operands: Any) -> list[Any]:
    """Return the shapes of arrays and numbers."""
    return [getattr(x, "shape", ()) for x in operands]


def shape_of_operands(op: Any, given: list[Any], patterns: Any) -> tuple[int, ...]:
    """Return the shape of the result; an axis of length 1 is broadcast only if its type declares it."""
    shapes = [x for x in given if x]
    shape = tuple(next((n for n in ns if n != 1), 1) for ns in zip(*shapes, strict=True))
    for one, pattern in zip(given, patterns, strict=True):
        for n, full, declared in zip(one, shape, pattern, strict=False):
            if n != full and not declared:
                raise ValueError(
                    f"Runtime broadcasting not allowed. {op}: expected equal lengths, got shapes "
                    f"{', '.join(map(str, shapes))}; an axis of length 1 is broadcast only if its type declares it"
                )
    return shape


def reduction_name(op: Any, node: Any) -> str | None:
    """Return the name of gpuinterop's reduction; it has none for `AND` and `OR` of integers, which combine bits."""
    name = _REDUCTIONS.get(type(op.scalar_op).__name__)
    return name if name not in ("all", "any") or node.inputs[0].type.dtype == "bool" else None


@lower.register(CAReduce)
def _reduction(op: Any, node: Any) -> Any:
    axis, dtype = op.axis, np.dtype(node.outputs[0].type.dtype)
    name = str(reduction_name(op, node))
    function, options = getattr(gi, name), {"dtype": dtype} if widens(name, node) else {}

    def run(inputs: Any, outputs: Any) -> None:
        result = function(inputs[0], axis, **options)
        outputs[0][0] = result if result.dtype == dtype else result.astype(dtype)

    return run


def widens(name: str, node: Any) -> bool:
    """Return whether elements are converted before they are summed: a sum of float16 could overflow."""
    source, dtype = node.inputs[0].type.dtype, node.outputs[0].type.dtype
    return name in ("sum", "prod") and source != dtype != "bool" and np.can_cast(source, dtype)


@computes(DimShuffle)
def _dimshuffle(op: Any, x: Any) -> Any:
    return x.dimshuffle(*op.new_order)


def fits_kernel(inputs: int, outputs: int) -> bool:
    """Return whether a kernel can have this many operands. The host has no such limit."""
    return outputs <= 8 and inputs + outputs <= 24


@device_inputs.register(Elemwise)
def _all_tensors(op: Any, node: Any) -> list[int] | None:
    if not fits_kernel(len(node.inputs), len(node.outputs)) or not supported(op.scalar_op, node):
        return None
    # A value of one element on the host is passed by value.
    return [i for i, x in enumerate(node.inputs) if not all(x.type.broadcastable)]


@device_inputs.register(CAReduce)
def _reduced(op: Any, node: Any) -> list[int] | None:
    return [0] if reduction_name(op, node) else None


read_first(DimShuffle)
record_as("values", Elemwise)
record_as("fixed", CAReduce, DimShuffle)


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
