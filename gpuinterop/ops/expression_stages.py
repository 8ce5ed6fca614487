"""A compiled expression: kernels that run one after the other, as `expression_partition` divides it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.array_inputs import refuse_foreign
from gpuinterop.dtypes import dtype_from_id, dtype_id
from gpuinterop.errors import ArgumentTypeError
from gpuinterop.layout import core_view

from .core_callbacks import add_operation
from .expression_codegen import ElementwiseOperation
from .expression_dtypes import Value, is_strict, number_kind, strong
from .expression_graph import Graph, shapes_of
from .expression_partition import Read, Stage, depends_on_shapes, partition
from .fused_reduction import FusedReduction
from .operand_conversion import gpuarray_class, is_foreign_array, viewed
from .output_arrays import (
    check_count,
    check_out,
    leading,
    new_like,
    plain,
    refuse_overlap,
    require_arrays,
)

_MOST = 64


class Kernels(dict[Any, Any]):
    """The 64 most recently used values: ``kernels.recall(key)`` is None for any other key."""

    def recall(self, key: Any) -> Any:
        value = self.pop(key, None)
        if value is not None:
            self[key] = value  # now the most recent one
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        if len(self) > _MOST:
            del self[next(iter(self))]


def shape_of(x: Any) -> tuple[int, ...]:
    """Return the core's shape of an array, whatever a subclass overrides; () for a number."""
    try:
        return tuple(np.shape(core_view(x) if isinstance(x, _core.Array) else x))
    except RuntimeError:  # of torch, for tensors without memory
        refuse_foreign(x, "fuse")
        raise


def expected_argument(
    x: Any, *, constant: bool = False, by_shape: bool = False
) -> tuple[Any, ...] | None:
    """Return the data by which the core recognises an argument like `x`; None for arrays of other libraries."""
    if constant:
        return None, x, -1, 0, None, 0.0, 0.0
    if isinstance(x, _core.Array):
        seen = core_view(x)
        return (
            type(x),
            None,
            dtype_id(seen.dtype),
            seen.ndim,
            seen.shape if by_shape else None,
            0.0,
            0.0,
        )
    if type(x) in (bool, int, float, complex):
        return type(x), None, -1, 0, None, -math.inf, math.inf
    return None


class CompiledExpression(_core.PreparedCalls):
    """The result of `Expression.compile`: call it with an array or a number for each input."""

    def __init__(
        self,
        graph: Graph,
        results: Sequence[Value],
        name: str,
        kernels: Kernels | None = None,
    ) -> None:
        super().__init__()
        self.__name__ = name
        self._graph, self._results = graph, list(results)
        self._kernels = Kernels() if kernels is None else kernels
        self._operations = Kernels()
        self.needs_shapes = depends_on_shapes(results, len(graph.inputs))

    def __repr__(self) -> str:
        return f"<compiled expression {self.__name__} of {len(self._graph.inputs)} inputs>"

    def _prepare(self, *operands: Any, out: Any = None) -> Any:
        """Handle a call that is not cached."""
        if len(operands) != len(self._graph.inputs):
            raise ArgumentTypeError(
                where=self.__name__, expected=f"{len(self._graph.inputs)} operands",
                got=f"{len(operands)} operands", fix="pass an array or a number for each input",
            )  # fmt: skip
        operation = self.operation(operands)
        expected: list[Any] = [expected_argument(x, by_shape=self.needs_shapes) for x in operands]
        if None not in expected:
            self._add(expected, [(i, None) for i in range(len(operands))], operation, None)
        return operation(*operands, out=out)

    def operation(self, operands: Sequence[Any]) -> Callable[..., Any]:
        """Return the function that computes the results of operands like these."""
        strict = tuple(map(is_strict, operands))
        shapes = tuple(map(shape_of, operands)) if self.needs_shapes else ()
        found: Callable[..., Any] | None = self._operations.recall((strict, shapes))
        if found is None:
            found = self._compiled(strict, shapes)
            self._operations[strict, shapes] = found
        return found

    def _compiled(self, strict: Sequence[bool], shapes: Sequence[Any]) -> Callable[..., Any]:
        stages = partition(self._results, shapes)
        first = stages[0]
        arguments = tuple(Read(i) for i in range(len(self._graph.inputs)))
        if len(stages) == 1 and not first.reductions and first.reads == arguments:
            kernel: Callable[..., Any] = self._kernel(replace(first.part, strict=strict))
            return kernel
        runs = [(stage, self._function(stage)) for stage in stages]
        return _Stages(runs, replace(self._graph, strict=strict, results=self._results), shapes)

    def _function(self, stage: Stage) -> Callable[..., Sequence[Any]]:
        """Return the function of a stage; it takes all values, and an `out` array or None for each result."""
        if not stage.reductions:
            elementwise = self._elementwise(stage.part)
            return lambda values, outs: elementwise(*_operands(stage.reads, values), outs=outs)
        ends = [(e.reduced, e.after.signature(), e.keepdims, e.once) for e in stage.ends]
        key = (*stage.part.signature(), stage.reductions, *ends)
        found: FusedReduction | None = self._kernels.recall(key)
        if found is None:
            elements = None if stage.apart else self._elementwise(stage.part)
            found = FusedReduction(stage.part, stage.reductions, stage.ends, elements)
            self._kernels[key] = found
        reduction, reads, extras = found, stage.reads, stage.extras
        last = {id(v): part for part in stage.apart for v in part.stores}
        places = {id(v): j for j, v in enumerate(stage.stores)}
        # The functions of the parts, and the positions of their results among those of the stage, or -1.
        apart = [
            (
                self._function(s),
                [places.get(id(v), -1) if last[id(v)] is s else -1 for v in s.stores],
            )
            for s in stage.apart
        ]

        def run(values: list[Any], outs: Sequence[Any]) -> Sequence[Any]:
            made = reduction(_operands(reads, values), _operands(extras, values), outs)
            return _run_apart(apart, [*values], outs) if made is None else made

        return run

    def _elementwise(self, part: Graph) -> Callable[..., Sequence[Any]]:
        """Return the kernel of a graph; its results are CudaNdarrays if its operands are."""
        known: dict[tuple[bool, ...], Any] = {}

        def run(*operands: Any, outs: Sequence[Any]) -> Sequence[Any]:
            strict = tuple(map(is_strict, operands))
            if strict not in known:
                known[strict] = self._kernel(replace(part, strict=strict))
            given = None if all(out is None for out in outs) else tuple(outs)
            made = known[strict](*operands, out=given)
            return made if isinstance(made, tuple) else (made,)

        return run

    def _kernel(self, part: Graph) -> Any:
        """Return the core's operation for a graph; equal graphs share one."""
        key = part.signature()
        found = self._kernels.recall(key)
        if found is None:
            found = add_operation(ElementwiseOperation(self.__name__, part))[1]
            self._kernels[key] = found
        return found


class _Stages:
    """The operation of an expression in several stages, or of one with a reduction."""

    def __init__(
        self, stages: Sequence[tuple[Stage, Callable[..., Sequence[Any]]]], graph: Graph,
        shapes: Sequence[tuple[int, ...]],
    ) -> None:  # fmt: skip
        self.stages, self.graph, self.results = stages, graph, len(graph.results)
        self.shapes = shapes_of(graph.order(), dict(enumerate(shapes)))
        # For each stage the places of its values among the results, or -1.
        self.places: list[tuple[int, ...]] = []
        left = dict(enumerate(graph.results))
        for stage, _ in stages:
            places = []
            for value in stage.stores:
                places.append(next((j for j, result in left.items() if result is value), -1))
                left.pop(places[-1], None)
            self.places.append(tuple(places))
        # For each result of each stage the inputs that are read after it is written.
        self.later: list[list[list[int]]] = []
        inputs = {*range(len(graph.inputs))}
        for i, (stage, _) in enumerate(stages):
            later = {r.place for s, _ in stages[i + 1 :] for r in (*s.reads, *s.extras)}
            self.later.append([
                sorted(inputs & (later | stage.read_beside(value))) for value in stage.stores
            ])  # fmt: skip
        self._known: dict[tuple[int, ...], tuple[dict[int, Any], set[int]]] = {}  # of `_dtypes`

    def __call__(self, *operands: Any, out: Any = None) -> Any:
        if out is not None:
            return self._into(operands, out if isinstance(out, tuple) else (out,))
        values = _beside_each_other(operands, ())
        found: list[Any] = [None] * (
            self.results + 1
        )  # the last one is for values that are not results
        for (_, run), places in zip(self.stages, self.places, strict=True):
            made = run(values, [None] * len(places))
            for place, value in zip(places, made, strict=True):
                found[place] = value
            values.extend(made)
        return found[0] if self.results == 1 else tuple(found[:-1])

    def _into(self, operands: Sequence[Any], outs: Sequence[Any]) -> Any:
        """Write the results to `outs`, each of which may be None or overlap the operands."""
        check_count(outs, self.results, "fuse")
        refuse_overlap(outs, "fuse")
        values = _beside_each_other(operands, outs)
        arrays = [x for x in values if isinstance(x, _core.Array)]
        require_arrays("fuse", *arrays)
        like = leading(arrays)
        dtypes, strict = self._dtypes(values)
        for value, out in zip(self.graph.results, outs, strict=True):
            if out is not None:  # all are checked before any is written
                check_out(out, self._shape_in(out, value), dtypes[id(value)], like, "fuse")
        found = list(outs)
        copies: list[tuple[Any, Any]] = []
        for i, ((stage, run), places) in enumerate(zip(self.stages, self.places, strict=True)):
            sinks = []
            for place, value, later in zip(places, stage.stores, self.later[i], strict=True):
                sink = None if place < 0 else outs[place]
                if (
                    sink is None
                    or shape_of(sink) != self.shapes[id(value)]
                    or any(
                        isinstance(values[j], _core.Array) and _core._may_overlap(sink, values[j])
                        for j in later
                    )
                ):
                    plainly = is_strict(like) and id(value) not in strict
                    cls = gpuarray_class() if plainly else type(like)
                    sink = new_like(like, self.shapes[id(value)], dtypes[id(value)], "fuse", cls)
                sinks.append(sink)
                if place >= 0 and outs[place] is None:
                    found[place] = sink
                elif place >= 0 and outs[place] is not sink:
                    copies.append((outs[place], sink))
            run(values, sinks)
            values.extend(sinks)
        for sink, value in copies:
            _core.copy_into(sink, value, where="fuse")
        return found[0] if self.results == 1 else tuple(found)

    def _shape_in(self, out: Any, value: Value) -> tuple[int, ...]:
        """Return the shape that `out` must have: the value's, or one to which an elementwise value broadcasts."""
        shape = self.shapes[id(value)]
        given = shape_of(out) if isinstance(out, _core.Array) else shape
        lead = len(given) - len(shape)
        fits = lead >= 0 and all(n in (1, m) for n, m in zip(shape, given[lead:], strict=True))
        return given if fits and value.reduction is None else shape

    def _dtypes(self, values: Sequence[Any]) -> tuple[dict[int, Any], set[int]]:
        """Return the dtype of each value of the graph, and the values that are CudaNdarrays if the operands are."""
        given = tuple([
            dtype_id(x.dtype) if isinstance(x, _core.Array) else number_kind(x) for x in values
        ])  # fmt: skip
        if given not in self._known:
            kinds, strict = self.graph.kinds(given)
            dtypes = {value: dtype_from_id(strong(kind)) for value, kind in kinds.items()}
            self._known[given] = dtypes, strict
        return self._known[given]


def _run_apart(
    parts: Sequence[tuple[Callable[..., Sequence[Any]], Sequence[int]]],
    values: list[Any],
    outs: Sequence[Any],
) -> list[Any]:
    """Compute the results of a stage by the stages into which it can be divided."""
    found: list[Any] = [None] * len(outs)
    for run, places in parts:
        made = run(values, [None if j < 0 else outs[j] for j in places])
        values.extend(made)
        for j, value in zip(places, made, strict=True):
            if j >= 0:
                found[j] = value
    return found


def _operands(reads: Sequence[Read], values: Sequence[Any]) -> list[Any]:
    """Return the operands of a stage: values, or views of them with other axes."""
    return [
        values[place] if axes is None else _with_axes(values[place], axes) for place, axes in reads
    ]


def _with_axes(value: Any, axes: tuple[int, ...]) -> Any:
    pattern = ["x" if axis < 0 else axis for axis in axes]
    return _core.view(type(value), plain(value).dimshuffle(*pattern))


def _beside_each_other(operands: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    """Return the operands, arrays of other libraries converted to the device of the first gpuinterop array."""
    like = next((x for x in (*operands, *outs) if isinstance(x, _core.Array)), None)
    return [viewed(x, like, "fuse") if is_foreign_array(x) else x for x in operands]
