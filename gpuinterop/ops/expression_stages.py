"""A compiled expression: kernels that run one after the other.

A reduction ends a stage, because its value is known only when every element has been read. Values that
are computed from it belong to later stages. Only reduced values are stored between stages: a value that
several stages need is computed in each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import dtype_id
from gpuinterop.errors import ArgumentTypeError
from gpuinterop.layout import core_view

from .core_callbacks import add_operation, is_foreign_array, viewed
from .expression_codegen import ElementwiseOperation
from .expression_dtypes import Value, is_strict
from .expression_graph import Graph, ordered, shapes_of
from .output_arrays import check_count, check_out, refuse_overlap
from .reduction_kernel import FusedReduction

_MOST = 64


class Kernels(dict[Any, Any]):
    """The values that were used last, at most 64: ``kernels.recall(key)`` is None for the others."""

    def recall(self, key: Any) -> Any:
        value = self.pop(key, None)
        if value is not None:
            self[key] = value  # as the newest
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        if len(self) > _MOST:
            del self[next(iter(self))]


def shape_of(x: Any) -> tuple[int, ...]:
    """The core's shape of an array, whatever a subclass overrides; () for a number."""
    return tuple(np.shape(core_view(x) if isinstance(x, _core.Array) else x))


def expected_argument(x: Any, constant: bool = False) -> tuple[Any, ...] | None:
    """How the core recognises an argument like `x`; None for arrays of other libraries."""
    if constant:
        return None, x, -1, 0, 0.0, 0.0
    if isinstance(x, _core.Array):
        seen = core_view(x)
        return type(x), None, dtype_id(seen.dtype), seen.ndim, 0.0, 0.0
    if type(x) in (bool, int, float, complex):
        return type(x), None, -1, 0, -math.inf, math.inf
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
        # Results of the same operands have one shape. Otherwise it depends on the operands' shapes.
        leaves = {_leaves(value) for value in self._results if value.reduction is None}
        self.needs_shapes = len(leaves) > 1

    def __repr__(self) -> str:
        return f"<compiled expression {self.__name__} of {len(self._graph.inputs)} inputs>"

    def _prepare(self, *operands: Any, out: Any = None) -> Any:
        """Handle a call that is not cached."""
        if len(operands) != len(self._graph.inputs):
            raise ArgumentTypeError(
                where=self.__name__, expected=f"{len(self._graph.inputs)} operands",
                got=str(len(operands)), fix="pass an array or a number for each input",
            )  # fmt: skip
        operation = self.operation(operands)
        expected = [expected_argument(x) for x in operands]
        if not self.needs_shapes and None not in expected:
            self._add(expected, [(i, None) for i in range(len(operands))], operation, None)
        return operation(*operands, out=out)

    def operation(self, operands: Sequence[Any]) -> Callable[..., Any]:
        """The function that computes the results of operands like these."""
        strict = tuple(map(is_strict, operands))
        shapes = tuple(map(shape_of, operands)) if self.needs_shapes else ()
        found: Callable[..., Any] | None = self._operations.recall((strict, shapes))
        if found is None:
            found = self._compiled(strict, shapes)
            self._operations[strict, shapes] = found
        return found

    def _compiled(self, strict: Sequence[bool], shapes: Sequence[Any]) -> Callable[..., Any]:
        stages = self._stages(shapes)
        if len(stages) == 1 and not stages[0].reduces:
            part, leaves = _part_of(self._results)
            if [leaf.index for leaf in leaves] == list(range(len(self._graph.inputs))):
                kernel: Callable[..., Any] = self._kernel(replace(part, strict=strict))
                return kernel
        return _Stages(stages, len(self._results))

    def _stages(self, shapes: Sequence[tuple[int, ...]]) -> list[_Stage]:
        """The stages that compute the results; elementwise results of one shape are one stage."""
        stages: list[_Stage] = []
        places: dict[int, int] = {}  # of the reduced values
        left = dict(enumerate(self._results))
        values = ordered(self._results, through=True)
        for value in values:
            if value.reduction is None:
                continue
            part, leaves = _part_of([value.operands[0]])
            gives = next(((j,) for j, result in left.items() if result is value), ())
            for j in gives:
                del left[j]
            run = _alone(self._reduction(part, value.reduction))
            stages.append(_Stage(run, _reads(leaves, places), gives, True))
            places[id(value)] = len(self._graph.inputs) + len(places)
        groups: dict[tuple[int, ...] | None, list[int]] = {}
        found = shapes_of(values, dict(enumerate(shapes))) if self.needs_shapes else {}
        for j, value in left.items():
            groups.setdefault(found.get(id(value)), []).append(j)
        for group in groups.values():
            part, leaves = _part_of([self._results[j] for j in group])
            run = _together(self._elementwise(part))
            stages.append(_Stage(run, _reads(leaves, places), tuple(group), False))
        return stages

    def _elementwise(self, part: Graph) -> Callable[..., Any]:
        """The function of a stage: its operands decide which of them are CudaNdarrays."""
        known: dict[tuple[bool, ...], Any] = {}

        def run(*operands: Any, out: Any = None) -> Any:
            strict = tuple(map(is_strict, operands))
            if strict not in known:
                known[strict] = self._kernel(replace(part, strict=strict))
            return known[strict](*operands, out=out)

        return run

    def _kernel(self, part: Graph) -> Any:
        """The core's operation for a graph; equal graphs have one."""
        key = part.signature()
        found = self._kernels.recall(key)
        if found is None:
            found = add_operation(ElementwiseOperation(self.__name__, part))[1]
            self._kernels[key] = found
        return found

    def _reduction(self, part: Graph, reduction: tuple[str, Any, bool]) -> FusedReduction:
        key = (*part.signature(), repr(reduction))
        found: FusedReduction | None = self._kernels.recall(key)
        if found is None:
            found = FusedReduction(part, reduction, self._elementwise(part))
            self._kernels[key] = found
        return found


@dataclass(frozen=True)
class _Stage:
    """One kernel.

    Attributes
    ----------
    run : takes the operands and an out, or None, for each result; returns the results.
    reads : places of its operands among the arguments and, after them, the reduced values.
    gives : places of its results among those of the function; none for a value in between.
    reduces : whether its one result joins the reduced values.
    """

    run: Callable[[list[Any], list[Any]], Sequence[Any]]
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    reduces: bool


class _Stages:
    """The operation of an expression in several stages."""

    def __init__(self, stages: Sequence[_Stage], results: int) -> None:
        self.stages, self.results = stages, results

    def __call__(self, *operands: Any, out: Any = None) -> Any:
        outs: list[Any] = [None] * self.results
        if out is not None:
            outs = list(out) if isinstance(out, tuple) else [out]
            check_count(outs, self.results, "fuse")
            refuse_overlap(outs, "fuse")
        values = _beside_each_other(operands, outs)
        found: list[Any] = [None] * self.results
        copies: list[tuple[Any, Any]] = []
        for stage in self.stages:
            # The last stage checks and writes its `out` arrays. Results of earlier stages are copied after it.
            last = stage is self.stages[-1]
            sinks = [outs[place] if last else None for place in stage.gives] or [None]
            made = stage.run([values[place] for place in stage.reads], sinks)
            for place, value in zip(stage.gives, made, strict=False):
                found[place] = value
                if not last and outs[place] is not None:
                    check_out(outs[place], core_view(value).shape, value.dtype, value, "fuse")
                    copies.append((outs[place], value))
            values.extend(made if stage.reduces else ())
        for sink, value in copies:
            _core.copy_into(sink, value, where="fuse")
        results = [v if o is None else o for o, v in zip(outs, found, strict=True)]
        return results[0] if self.results == 1 else tuple(results)


def _beside_each_other(operands: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    """The operands, with arrays of other libraries converted to the device of the first gpuinterop array."""
    like = next((x for x in (*operands, *outs) if isinstance(x, _core.Array)), None)
    return [viewed(x, like, "fuse") if is_foreign_array(x) else x for x in operands]


def _part_of(results: Sequence[Value]) -> tuple[Graph, list[Value]]:
    """The graph from its leaves to the results, with the leaves as its inputs; and the leaves."""
    values = ordered(results)
    leaves = sorted(
        (value for value in values if value.is_leaf),
        key=lambda value: (value.index < 0, value.index),
    )
    part = Graph()
    made = {id(leaf): part.input(weak=leaf.weak) for leaf in leaves}
    for value in values:
        if not value.is_leaf:
            operands = tuple(made[id(o)] for o in value.operands)
            made[id(value)] = replace(value, operands=operands)
    part.results = [made[id(value)] for value in results]
    return part, leaves


def _leaves(value: Value) -> frozenset[int]:
    """The arrays that a value is computed from."""
    return frozenset(id(leaf) for leaf in _part_of([value])[1] if not leaf.weak)


def _reads(leaves: Sequence[Value], places: dict[int, int]) -> tuple[int, ...]:
    return tuple(leaf.index if leaf.index >= 0 else places[id(leaf)] for leaf in leaves)


def _alone(reduction: FusedReduction) -> Callable[..., Sequence[Any]]:
    return lambda operands, outs: (reduction(operands, outs[0]),)


def _together(operation: Callable[..., Any]) -> Callable[..., Sequence[Any]]:
    def run(operands: list[Any], outs: list[Any]) -> Sequence[Any]:
        given = None if all(out is None for out in outs) else tuple(outs)
        values = operation(*operands, out=given)
        return values if isinstance(values, tuple) else (values,)

    return run
