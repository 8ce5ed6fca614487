"""Fuses parts of a graph, each to one expression: reductions with the elementwise operations that make their operands,
and products with vectors with the operations on their operands and results.

On a GPU the kernel of a product or reduction then also runs the operations on its operands and its result. On "cpu" the
products stay BLAS calls.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter, copy_stack_trace
from pytensor.tensor import blas
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.type import TensorType

from gpuinterop import Expression
from gpuinterop.fusion.builder import Value

from . import settings
from .device_op import GpuOp, class_for, printed
from .device_variables import is_device
from .lowering import lower, record_as
from .lowering.elementwise import reduction_name, shape_of_operands, shapes_of, widens
from .lowering.scalar_ops import Expressions, compiled, emit, host_value
from .replay import is_fixed


class Fusion(Op):
    """The nodes between `inputs` and `outputs`, variables of an inner graph of device Ops.

    Two are equal if their inner graphs compute the same and write to the same inputs.
    """

    __props__ = ("structure", "written")

    def __init__(self, inputs: list[Any], outputs: list[Any], nodes: list[Any]) -> None:
        self.inputs, self.outputs, self.nodes = inputs, outputs, nodes
        places: dict[Any, Any] = {x: (i, x.type) for i, x in enumerate(inputs)}
        operations = []
        for k, node in enumerate(nodes):
            operands = [places[x] if x in places else x.signature() for x in node.inputs]
            operations.append((node.op, *operands))
            places.update((o, (len(inputs) + k, i)) for i, o in enumerate(node.outputs))
        self.structure = (*operations, *(places[o] for o in outputs))

    @property
    def written(self) -> tuple[Any, ...]:
        """The pairs of a result and the input that it overwrites."""
        return tuple(sorted((o, i) for o, [i] in self.destroy_map.items()))

    def in_place(self, pattern: dict[int, int]) -> Fusion:
        """Return this Op with results that are written to the memory of inputs."""
        made = copy.copy(self)
        made.destroy_map = {o: [i] for o, i in pattern.items()}
        return made

    def make_node(self, *inputs: Any) -> Any:
        kinds = [TensorType(o.type.dtype, o.type.shape) for o in self.outputs]
        return Apply(self, list(inputs), [kind() for kind in kinds])

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        raise NotImplementedError  # only the device has this Op


class ElemwiseReduction(Fusion):
    """A reduction of an elementwise result that nothing else reads."""


@printed.register(Fusion)
def _print_fusion(host: Any, name: str) -> str:
    names = ", ".join(str(node.op) for node in host.nodes)
    return f"{name}{{{names}}}{[*host.written] if host.written else ''}"


@printed.register(ElemwiseReduction)
def _print_elemwise_reduction(host: Any, name: str) -> str:
    elemwise, reduction = (node.op.host for node in host.nodes)
    operation = getattr(elemwise.scalar_op, "name", None) or str(elemwise.scalar_op)
    red = printed(reduction, "").replace("{", f"{{pre={operation},red=", 1)
    return f"GpuCAReduce{red}"


record_as("values", Fusion)


@lower.register(Fusion)
@lower.register(ElemwiseReduction)
def _fusion(op: Any, node: Any) -> Any:
    numbers = [i for i, x in enumerate(op.inputs) if not is_device(x)]
    known: dict[Any, bool] = {}
    fixed = [i for i in numbers if is_fixed(node.inputs[i], known)]
    calls: dict[Any, Any] = {}

    def call_for(inputs: Any) -> Any:
        """Return the kernels and the places of their inputs; a few sets of numbers are constants of kernels."""
        key: Any = tuple([inputs[i] for i in fixed])
        if key not in calls:
            if len(calls) >= _CONSTANTS:
                key = None
            if key not in calls:
                constants = {} if key is None else dict(zip(fixed, key, strict=True))
                call = compiled(op.inputs, op.nodes, op.outputs, "fusion", constants)
                calls[key] = call, [i for i in range(len(op.inputs)) if i not in constants]
        return calls[key]

    pattern = dict(op.written)
    checked: set[Any] = set()
    one = len(op.outputs) == 1

    def run(inputs: Any, outputs: Any) -> None:
        for i in numbers:
            inputs[i] = inputs[i].item()
        shapes = tuple(shapes_of(inputs))
        if shapes not in checked:  # an expression would broadcast axes of length 1
            _check(op, shapes)
            checked.add(shapes)
        out = tuple([inputs[pattern[o]] if o in pattern else None for o in range(len(outputs))])
        call, places = call_for(inputs)
        operands = [inputs[i] for i in places]
        results = call(*operands, out=out) if pattern else call(*operands)
        for cell, result in zip(outputs, (results,) if one else results, strict=True):
            cell[0] = result

    return run


_CONSTANTS = 4  # sets of values for which kernels are compiled


# The name "GpuGemv" shows programs that a product runs on the device.
class_for(Fusion).__name__ = "GpuGemv"

# ---- fusible nodes ---------------------------------------------------------------------------------


@emit.register(CAReduce)
def _emit_reduction(op: Any, made: Expressions, node: Any, operands: list[Value]) -> list[Value]:
    name, (x,), dtype = str(reduction_name(op, node)), operands, node.outputs[0].type.dtype
    if widens(name, node):
        x = made.graph.cast(x, dtype)
    return [made.graph.cast(made.graph.reduce(name, x, op.axis), dtype)]


@emit.register(DimShuffle)
def _emit_dimshuffle(op: Any, made: Expressions, node: Any, operands: list[Value]) -> list[Value]:
    (x,) = operands
    if x.number is not None:
        return [x]
    return [made.graph.dimshuffle(x, [-1 if axis == "x" else axis for axis in op.new_order])]


@emit.register(blas.Gemv)
def _emit_gemv(op: Any, made: Expressions, node: Any, operands: list[Value]) -> list[Value]:
    z, alpha, a, x, beta = operands
    value = _product(made.graph, node.inputs[2], a, x)
    if alpha.number != 1:
        value = made.graph.apply("multiply", value, alpha)
    if beta.number != 0:
        value = made.graph.apply("add", value, made.graph.apply("multiply", z, beta))
    return [value]


@emit.register(Dot)
def _emit_dot(op: Any, made: Expressions, node: Any, operands: list[Value]) -> list[Value]:
    if node.inputs[0].type.ndim == 1 and node.inputs[1].type.ndim == 2:
        rows = made.graph.dimshuffle(operands[0], (0, -1))
        return [_sum_of_products(made.graph, rows, operands[1], 0)]
    return [_product(made.graph, node.inputs[0], *operands)]


def _product(graph: Expression, variable: Any, a: Value, x: Value) -> Value:
    return _sum_of_products(graph, a, x, -1)


def _sum_of_products(graph: Expression, a: Value, x: Value, axis: int) -> Value:
    return graph.reduce("sum", graph.apply("multiply", a, x), axis)


def _is_product(node: Any) -> bool:
    host = node.op.host
    if isinstance(host, blas.Gemv):
        return not host.inplace
    if not isinstance(host, Dot):
        return False
    ndims = [x.type.ndim for x in node.inputs]
    return 1 in ndims and max(ndims) <= 2


def _can_join(node: Any) -> bool:
    if not isinstance(node.op, GpuOp) or node.op.destroy_map:
        return False
    host = node.op.host
    floats = all(is_device(o) for o in node.outputs)
    if isinstance(host, DimShuffle):
        kept = {axis for axis in host.new_order if axis != "x"}
        return kept == set(range(node.inputs[0].type.ndim))
    if isinstance(host, CAReduce):
        return host.axis != () and floats
    return floats and (isinstance(host, Elemwise) or _is_product(node))


# ---- shapes ----------------------------------------------------------------------------------------


def _check(op: Any, shapes: tuple[Any, ...]) -> None:
    """Raise ValueError for shapes that the single Ops would refuse."""
    known: dict[Any, Any] = dict(zip(op.inputs, shapes, strict=True))
    for node in op.nodes:
        given = [known[x] if x in known else host_value(x).shape for x in node.inputs]
        host = node.op.host
        if isinstance(host, Elemwise):
            shape = shape_of_operands(host, given, [x.type.broadcastable for x in node.inputs])
        elif isinstance(host, CAReduce):
            axes = range(len(given[0])) if host.axis is None else host.axis
            shape = tuple(n for i, n in enumerate(given[0]) if i not in axes)
        elif isinstance(host, DimShuffle):
            shape = tuple(1 if axis == "x" else given[0][axis] for axis in host.new_order)
        else:
            z, a, x = (given[0], given[2], given[3]) if len(given) == 5 else (None, *given)
            unused = len(given) == 5 and _is_zero(node.inputs[4])
            shape = (*a[:-1], *x[1:])
            if a[-1] != x[0] or (z is not None and not unused and z != shape):
                raise ValueError(
                    f"{host}: expected shapes that fit, got {', '.join(map(str, given))}"
                )
        known.update(dict.fromkeys(node.outputs, shape))


def _is_zero(x: Any) -> bool:
    return isinstance(x, Constant) and not np.any(host_value(x))


def same_shape_inputs(op: Any, o: int) -> set[int]:
    """Return the positions of the inputs that an output may overwrite, because they always have its shape."""
    found: set[int] = set()
    waiting = [op.outputs[o]]
    while waiting:
        x = waiting.pop()
        if x in op.inputs:
            found.add(op.inputs.index(x))
        elif x.owner is not None and isinstance(x.owner.op.host, (Elemwise, blas.Gemv)):
            places = [0] if isinstance(x.owner.op.host, blas.Gemv) else range(len(x.owner.inputs))
            waiting += [i for p in places if (i := x.owner.inputs[p]).type == x.type]
    return found


# ---- the rewrite -----------------------------------------------------------------------------------


class Fuse(GraphRewriter):
    """Replace parts of a graph by one Op each: around products with vectors, and at reductions."""

    def apply(self, fgraph: Any) -> None:
        if settings.captures():
            self.fuse_products(fgraph)
        for node in fgraph.toposort():
            if _reduces_elemwise(fgraph, node):
                _replace(fgraph, [node.inputs[0].owner, node], ElemwiseReduction)

    def fuse_products(self, fgraph: Any) -> None:
        tried: set[Any] = set()
        while True:
            order = fgraph.toposort()
            seed = next(
                (n for n in order if n not in tried and _can_join(n) and _is_product(n)), None
            )
            if seed is None:
                return
            tried.add(seed)
            part = _part_around(order, seed)
            if len(part) > 1:
                _replace(fgraph, part, Fusion)


def _reduces_elemwise(fgraph: Any, node: Any) -> bool:
    """Return whether a node reduces the only result of an elementwise operation, which nothing else reads."""
    if not isinstance(node.op, class_for(CAReduce)) or node.op.host.axis == ():
        return False
    (x,) = node.inputs
    made = x.owner is not None and isinstance(x.owner.op, class_for(Elemwise))
    return (
        made and len(x.owner.outputs) == len(fgraph.clients[x]) == 1 and not x.owner.op.destroy_map
    )


def _part_around(order: list[Any], seed: Any) -> list[Any]:
    """Return the connected nodes around `seed` that can be fused; no node between them may be left out."""
    parents = {node: {x.owner for x in node.inputs if x.owner} for node in order}

    def grown(allowed: set[Any]) -> set[Any]:
        inside: set[Any] = set()
        outside: set[Any] = set()  # nodes that depend on the part without belonging to it
        for node in order:
            if node in allowed and not parents[node] & outside:
                inside.add(node)
            elif parents[node] & (inside | outside):
                outside.add(node)
        return inside

    allowed = {node for node in order if _can_join(node)}
    inside = grown(allowed)
    if seed not in inside:  # an earlier part precedes it, so begin with the seed
        later = {seed}
        for node in order:
            if parents[node] & later:
                later.add(node)
        inside = grown(allowed & later)
    connected, waiting = {seed}, [seed]
    while waiting:
        node = waiting.pop()
        near = parents[node] | {n for n in inside if node in parents[n]}
        for other in (near & inside) - connected:
            connected.add(other)
            waiting.append(other)
    return [node for node in order if node in connected]


def _replace(fgraph: Any, part: list[Any], kind: type[Fusion]) -> None:
    made = {o for node in part for o in node.outputs}
    outputs = [
        o for node in part for o in node.outputs
        if any(client not in part for client, _ in fgraph.clients[o])
    ]  # fmt: skip
    inner: dict[Any, Any] = {}
    outer: list[Any] = []
    nodes = []
    for node in part:
        operands = []
        for place, x in enumerate(node.inputs):
            unused = place == 0 and isinstance(node.op.host, blas.Gemv) and _is_zero(node.inputs[4])
            alone = isinstance(x, Constant) and all(n == 1 for n in x.type.shape)
            if unused:  # a product that adds nothing
                operands.append(x.type.make_constant(np.zeros((1,) * x.type.ndim, x.type.dtype)))
                continue
            if x not in made and x not in inner and not alone:
                inner[x] = x.type()
                outer.append(x)
            operands.append(inner.get(x, x))
        # Not made by the Op, which would take the shape from an addend that is not used.
        new = Apply(node.op, operands, [o.type() for o in node.outputs])
        inner.update(zip(node.outputs, new.outputs, strict=True))
        nodes.append(new)
    host = kind([inner[x] for x in outer], [inner[o] for o in outputs], nodes)
    results = class_for(kind)(host)(*outer, return_list=True)
    copy_stack_trace(outputs, results)
    fgraph.replace_all_validate(list(zip(outputs, results, strict=True)), reason="gpu_fuse")
