"""Rewrites that move a graph to the device, under PyTensor's tag "gpu".

They run after the fusion of elementwise Ops: bring inputs to the device, replace each Op that has a lowering and a
neighbour on the device, and remove transfers that cancel each other.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from pytensor.compile.mode import optdb
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.configdefaults import config
from pytensor.graph.basic import Constant
from pytensor.graph.rewriting.basic import (
    EquilibriumGraphRewriter,
    GraphRewriter,
    copy_stack_trace,
    in2out,
    node_rewriter,
)
from pytensor.graph.rewriting.db import SequenceDB
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Composite
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.rewriting.elemwise import InplaceGraphOptimizer
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.symbolic import TensorSymbolicOp
from pytensor.tensor.type import TensorType

from .device_op import GpuOp, class_for
from .device_variables import (
    CudaNdarrayType,
    GpuFromHost,
    HostFromGpu,
    as_device_variable,
    current_type,
    gpu_from_host,
    host_from_gpu,
    is_device,
)
from .fusion import Fuse, Fusion, same_shape_inputs
from .lowering import device_inputs, has_lowering
from .lowering.elementwise import fits_kernel
from .lowering.indexing import INPLACE as INDEXING_IN_PLACE
from .lowering.products import INPLACE as PRODUCTS_IN_PLACE

try:
    from pytensor.conditional.op import IfElse
except ImportError:  # before PyTensor 3.3
    from pytensor.ifelse import IfElse


def _may_move(variable: Any) -> bool:
    """Return whether values of this type are held on the device."""
    if not isinstance(variable.type, TensorType):
        return False
    if issubclass(current_type(), CudaNdarrayType):
        return bool(variable.type.dtype == "float32")
    return bool(variable.type.dtype != "object")


def _results_may_move(node: Any) -> bool:
    """Return whether the results may be on the device: float32, or the comparisons and indices computed from it."""
    dtypes = [getattr(o.type, "dtype", "object") for o in node.outputs]
    if not issubclass(current_type(), CudaNdarrayType):
        return "object" not in dtypes
    return "float32" in dtypes or all(np.dtype(d).kind in "biu" for d in dtypes)


def _is_small(x: Any) -> bool:
    """Return whether an operand of another dtype may be transferred because it is small, such as indices and masks."""
    return isinstance(x.type, TensorType) and np.dtype(x.type.dtype).kind in "biu"


def _from_device(variable: Any) -> bool:
    return variable.owner is not None and isinstance(variable.owner.op, HostFromGpu)


def _is_wanted(fgraph: Any, variable: Any) -> bool:
    return any(isinstance(client.op, GpuFromHost) for client, _ in fgraph.clients[variable])


class InputsToDevice(GraphRewriter):
    """Read inputs of the function through the device, so that the Ops that use them can move."""

    def apply(self, fgraph: Any) -> None:
        for x in list(fgraph.inputs):
            if not (_may_move(x) and x.type.ndim):
                continue
            moved = host_from_gpu(gpu_from_host(x))
            for client, i in list(fgraph.clients[x]):
                if has_lowering(client.op):
                    fgraph.change_node_input(client, i, moved, reason="inputs_to_device")


@node_rewriter(None)
def move_to_device(fgraph: Any, node: Any) -> Any:
    """Replace a host Op by its device Op if an input comes from the device, or an output goes to it."""
    op = node.op
    if not has_lowering(op) or op.destroy_map:
        return None
    wanted = any(_is_wanted(fgraph, o) for o in node.outputs)
    if not wanted and not any(map(_from_device, node.inputs)):
        return None
    if isinstance(op, Elemwise) and not fits_kernel(len(node.inputs), len(node.outputs)):
        return _split(node)
    places = device_inputs(op, node)
    if places is None or not _results_may_move(node):
        return None
    inputs = []
    for i, x in enumerate(node.inputs):
        if i in places or _from_device(x):
            if not (_may_move(x) or _from_device(x) or _is_small(x)):
                return None
            inputs.append(as_device_variable(x))
        else:
            inputs.append(x)
    outputs = class_for(type(op))(op)(*inputs, return_list=True)
    copy_stack_trace(node.outputs, outputs)
    return [host_from_gpu(o) if is_device(o) else o for o in outputs]


def _split(node: Any) -> list[Any] | None:
    """Compute the results of a fused operation in groups that each fit in a kernel."""
    if len(node.outputs) == 1:
        return None
    inner = node.op.scalar_op.fgraph.unfreeze()
    groups: list[tuple[set[Any], list[Any]]] = []
    for result in inner.outputs:
        needed = {x for x in ancestors([result]) if x in inner.inputs}
        if groups and fits_kernel(len(groups[-1][0] | needed), len(groups[-1][1]) + 1):
            groups[-1][0].update(needed)
            groups[-1][1].append(result)
        else:
            groups.append((needed, [result]))
    results = []
    for needed, outputs in groups:
        places = [i for i, x in enumerate(inner.inputs) if x in needed]
        scalar_op = Composite([inner.inputs[i] for i in places], outputs)
        results += Elemwise(scalar_op)(*[node.inputs[i] for i in places], return_list=True)
    if any(new.type != old.type for new, old in zip(results, node.outputs, strict=True)):
        return None  # broadcast by an operand of another group
    copy_stack_trace(node.outputs, results)
    return results


@node_rewriter([Elemwise])
def open_fused(fgraph: Any, node: Any) -> list[Any] | None:
    """Compute a fused operation of the host by its parts: without a C++ compiler it would run in Python, element by
    element, and integers of Python overflow where NumPy's wrap.
    """
    if config.cxx or not isinstance(node.op.scalar_op, Composite):
        return None
    inner = node.op.scalar_op.fgraph.unfreeze()
    known: dict[Any, Any] = dict(zip(inner.inputs, node.inputs, strict=True))
    for part in inner.toposort():
        operands = [known[x] if x in known else np.asarray(x.data) for x in part.inputs]
        known.update(zip(part.outputs, Elemwise(part.op)(*operands, return_list=True), strict=True))
    results = [known[x] for x in inner.outputs]
    if any(new.type != old.type for new, old in zip(results, node.outputs, strict=True)):
        return None  # a result that another operand broadcasts
    copy_stack_trace(node.outputs, results)
    return results


@node_rewriter([IfElse, CheckAndRaise])
def pass_on_device(fgraph: Any, node: Any) -> Any:
    """Let Ops that pass values of any type pass device arrays."""
    first = int(isinstance(node.op, IfElse))
    count = len(node.outputs)
    values = node.inputs[first : first + count * (1 + first)]
    # For ifelse, the two possible values of each result.
    pairs = [values[i::count] for i in range(count)]
    moving = [
        (any(map(_from_device, pair)) or _is_wanted(fgraph, result))
        and all(_may_move(x) or _from_device(x) for x in pair)
        for pair, result in zip(pairs, node.outputs, strict=True)
    ]
    if not any(moving):
        return None
    moved = [as_device_variable(x) if moving[i % count] else x for i, x in enumerate(values)]
    others = list(node.inputs)
    others[first : first + len(values)] = moved
    outputs = node.op(*others, return_list=True)
    copy_stack_trace(node.outputs, outputs)
    return [host_from_gpu(o) if is_device(o) else o for o in outputs]


@node_rewriter([GpuFromHost, HostFromGpu])
def remove_round_trip(fgraph: Any, node: Any) -> Any:
    """Remove a transfer that undoes another one, and move constants to the device once."""
    (x,) = node.inputs
    if isinstance(node.op, GpuFromHost) and isinstance(x, Constant):
        return [as_device_variable(x)]
    if (
        x.owner is None
        or not isinstance(x.owner.op, (GpuFromHost, HostFromGpu))
        or type(x.owner.op) is type(node.op)
    ):
        return None
    source = x.owner.inputs[0]
    return [source] if node.outputs[0].type.is_super(source.type) else None


@node_rewriter([GpuOp])
def read_on_device(fgraph: Any, node: Any) -> Any:
    """Read an operand on the device, if it moved there only after the operation."""
    if not any(map(_from_device, node.inputs)):
        return None
    inputs = [as_device_variable(x) if _from_device(x) else x for x in node.inputs]
    outputs = node.op(*inputs, return_list=True)
    copy_stack_trace(node.outputs, outputs)
    return outputs


@node_rewriter([TensorSymbolicOp])
def open_symbolic_op(fgraph: Any, node: Any) -> Any:
    """Replace an Op that consists of other Ops, such as softmax, by these."""
    return inline_ofg_node(node) if any(map(_may_move, node.outputs)) else None


@node_rewriter([Shape_i])
def shape_on_device(fgraph: Any, node: Any) -> Any:
    """Read the shape of a device array without downloading it."""
    (x,) = node.inputs
    return [Shape_i(node.op.i)(x.owner.inputs[0])] if _from_device(x) else None


@node_rewriter([class_for(op) for op in (*PRODUCTS_IN_PLACE, *INDEXING_IN_PLACE)], inplace=True)
def write_in_place(fgraph: Any, node: Any) -> Any:
    """Let a product write to its addend, and an assignment to the array itself."""
    host = node.op.host
    if host.inplace:
        return None
    if isinstance(host, PRODUCTS_IN_PLACE):
        host = type(host)(inplace=True)
    else:
        host = copy.copy(host)
        host.inplace, host.destroy_map = True, {0: [0]}
    return type(node.op)(host)(*node.inputs, return_list=True)


class ElementwiseInPlace(InplaceGraphOptimizer):
    """Let elementwise operations write to an operand that is used for the last time."""

    op = class_for(Elemwise)

    def filter_candidate_pairs(self, fgraph: Any, node: Any, protected_inputs: Any) -> Any:
        free = [
            (i, x) for i, x in enumerate(node.inputs)
            if is_device(x) and not isinstance(x, Constant) and x not in protected_inputs
            and not fgraph.has_destroyers([x]) and node.inputs.count(x) == 1
        ]  # fmt: skip
        return [
            ((o, out), (i, x))
            for o, out in enumerate(node.outputs)
            for i, x in free
            if x.type == out.type
        ]

    def create_inplace_node(self, node: Any, inplace_pattern: Any) -> Any:
        host = node.op.host
        pattern = {o: i for o, [i] in inplace_pattern.items()}
        return type(node.op)(type(host)(host.scalar_op, pattern)).make_node(*node.inputs)


class FusionInPlace(ElementwiseInPlace):
    """Let the kernels of a fused part write to operands of the same shape."""

    op = class_for(Fusion)

    def filter_candidate_pairs(self, fgraph: Any, node: Any, protected_inputs: Any) -> Any:
        pairs = super().filter_candidate_pairs(fgraph, node, protected_inputs)
        host = node.op.host
        return [pair for pair in pairs if pair[1][0] in same_shape_inputs(host, pair[0][0])]

    def create_inplace_node(self, node: Any, inplace_pattern: Any) -> Any:
        host = node.op.host.in_place({o: i for o, [i] in inplace_pattern.items()})
        return type(node.op)(host).make_node(*node.inputs)


_moves = SequenceDB()
_moves.register("gpu_inputs", InputsToDevice(), "gpu", position=0)
_moves.register(
    "gpu_move",
    EquilibriumGraphRewriter(
        [move_to_device, pass_on_device, read_on_device, shape_on_device], max_use_ratio=10, ignore_newtrees=False
    ),
    "gpu", position=1,
)  # fmt: skip
_moves.register(
    "gpu_transfers",
    EquilibriumGraphRewriter([remove_round_trip], max_use_ratio=10),
    "gpu",
    position=2,
)
_moves.register("gpu_fuse", Fuse(), "gpu", position=3)
# Before the fusion of elementwise Ops (49).
optdb.register("gpu_symbolic", in2out(open_symbolic_op, name="gpu_symbolic"), "gpu", position=48.9)
optdb.register("gpu_opt", _moves, "gpu", position=49.05)
optdb.register(
    "open_fused", in2out(open_fused, name="open_fused"), "gpu", "gpu_host", position=49.1
)
# After the destroy handler (49.5); products first, so that they can write to the memory of their addends.
optdb.register(
    "gpu_write_in_place", in2out(write_in_place, name="gpu_write_in_place"),
    "gpu", "inplace", position=50.3,
)  # fmt: skip
optdb.register("gpu_elementwise_in_place", ElementwiseInPlace(), "gpu", "inplace", position=50.6)
optdb.register("gpu_fusion_in_place", FusionInPlace(), "gpu", "inplace", position=50.7)
