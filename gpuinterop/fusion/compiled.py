"""A compiled expression: kernels that run one after the other, as `partition` divides it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.dtypes import dtype_from_id, dtype_id
from gpuinterop.elementwise.calls import add_operation
from gpuinterop.elementwise.operands import as_array_or_none, general_class, is_foreign_array
from gpuinterop.elementwise.results import (
    check_count,
    check_out,
    leading,
    new_like,
    plain,
    refuse_overlap,
    require_arrays,
)
from gpuinterop.errors import ArgumentTypeError

from .codegen import ElementwiseOperation
from .graph import Graph, Value, code_of_number, is_strict, shapes_of, strong
from .partition import Read, Stage, depends_on_shapes, partition
from .reduction_kernel import ValueType, fused_reduction

_MOST = 64


class Kernels(dict[Any, Any]):
    """The 64 most recently used values: ``kernels.recall(key)`` is None for any other key."""

    def recall(self, key: Any) -> Any:
        value = self.pop(key, None)
        if value is not None:
            self[key] = value  # now the most recent one
        return value

    def get_or_make(self, key: Any, make: Callable[[], Any]) -> Any:
        value = self.recall(key)
        if value is None:
            value = self[key] = make()
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        if len(self) > _MOST:
            del self[next(iter(self))]


def shape_of(x: Any) -> tuple[int, ...]:
    """Return the core's shape of an array, whatever a subclass overrides; () for a number."""
    return tuple(core_view(x).shape if isinstance(x, _core.Array) else np.shape(x))


ANY_NUMBER = -math.inf, math.inf  # limits of an argument


def limits_of(x: Any) -> tuple[float, float] | None:
    """Return the limits of arguments like `x`; None for what the core does not recognise, such as foreign arrays."""
    known = isinstance(x, _core.Array) or type(x) in (bool, int, float, complex)
    return ANY_NUMBER if known else None


class CompiledExpression(_core.PreparedCalls):
    """The result of `Expression.compile`: call it with an array or a number for each input."""

    def __init__(
        self, graph: Graph, results: Sequence[Value], name: str, kernels: Kernels | None = None
    ) -> None:
        super().__init__()
        self.__name__ = name
        self._graph, self._results = graph, list(results)
        self._kernels = Kernels() if kernels is None else kernels
        self._operations = Kernels()
        self._names = [f"x{i}" for i in range(len(graph.inputs))]
        self.needs_shapes = depends_on_shapes(results, len(graph.inputs))

    def __repr__(self) -> str:
        return f"<compiled expression {self.__name__} of {len(self._graph.inputs)} inputs>"

    def _prepare(self, *operands: Any, out: Any = None, **others: Any) -> Any:
        """Handle a call that is not cached."""
        names = self._names
        if len(operands) != len(names) or others:
            count, got = (f"{n} operand{'s' * (n != 1)}" for n in (len(names), len(operands)))
            raise ArgumentTypeError(
                where=self.__name__, expected=f"{count}, and out= as the only keyword",
                got=", ".join([got, *(f"{name}=..." for name in others)]),
                fix=f"call {self.__name__}({', '.join(names)})",
            )  # fmt: skip
        values, limits = self._read_arguments(operands)
        operation = self.operation(values)
        if None not in limits:
            places = [(i, None) for i in range(len(operands))]
            self._add(operands, limits, places, operation, by_shape=self.needs_shapes)
        return operation(*values, out=out)

    def _read_arguments(self, values: Sequence[Any]) -> tuple[Sequence[Any], list[Any]]:
        """Return the operands, and the limits by which the core recognises the arguments of later calls."""
        return values, [*map(limits_of, values)]

    def operation(self, operands: Sequence[Any]) -> Callable[..., Any]:
        """Return the function that computes the results of operands like these."""
        strict = tuple(map(is_strict, operands))
        shapes = tuple(map(shape_of, operands)) if self.needs_shapes else ()
        operation: Callable[..., Any] = self._operations.get_or_make(
            (strict, shapes), lambda: self._compile(strict, shapes)
        )
        return operation

    def _compile(self, strict: Sequence[bool], shapes: Sequence[Any]) -> Callable[..., Any]:
        stages = partition(self._results, shapes)
        first = stages[0]
        arguments = tuple(Read(i) for i in range(len(self._graph.inputs)))
        if len(stages) == 1 and not first.reductions and first.reads == arguments:
            kernel: Callable[..., Any] = self._kernel(replace(first.part, strict=strict))
            return kernel
        graph = replace(self._graph, strict=strict, results=self._results)
        return _Stages(graph, shapes, stages, self._function)

    def _function(
        self, stage: Stage, types: Sequence[ValueType], results: Sequence[ValueType], device: Any
    ) -> Callable[..., Sequence[Any]] | None:
        """Return the function of a stage, or None; it takes all values, and an `out` array or None for each result."""
        reads = stage.reads
        if not stage.reductions:
            elementwise = self._elementwise(stage.part, types)
            return lambda values, outs: elementwise(_operands(reads, values), outs)
        kernel = fused_reduction(stage, types, results, device, self._kernels.get_or_make)
        if kernel is not None:
            all_reads = (*reads, *stage.extras)
            return lambda values, outs: kernel(_operands(all_reads, values), outs)
        if stage.ends:
            return None
        is_read = stage.part.results[0].index >= 0
        elements = None if is_read else self._elementwise(stage.part, types)
        ((op, axis, keepdims),) = stage.reductions

        def run(values: list[Any], outs: Sequence[Any]) -> Sequence[Any]:
            """Compute the elements by one kernel, and reduce them by another one."""
            operands = _operands(reads, values)
            value = elements(operands, (None,))[0] if elements else operands[0]
            return (getattr(value, op)(axis, keepdims=keepdims, out=outs[0]),)

        return run

    def _elementwise(self, part: Graph, types: Sequence[ValueType]) -> Callable[..., Sequence[Any]]:
        """Return the kernel of a graph; its results are CudaNdarrays if its operands are."""
        kernel = self._kernel(replace(part, strict=tuple(x.is_strict for x in types)))

        def run(operands: Sequence[Any], outs: Sequence[Any]) -> Sequence[Any]:
            made = kernel(*operands, out=None if all(out is None for out in outs) else tuple(outs))
            return made if isinstance(made, tuple) else (made,)

        return run

    def _kernel(self, part: Graph) -> Any:
        """Return the core's operation for a graph; equal graphs share one."""
        return self._kernels.get_or_make(
            part.signature(), lambda: add_operation(ElementwiseOperation(self.__name__, part))[1]
        )


class _TypedStages(NamedTuple):
    """How operands of certain types are computed.

    Attributes
    ----------
    runs : the functions of the stages.
    stores : for each stage its values; for each value its place among the results, or -1, the inputs that are read
        after it is written, and the value in whose memory it is stored, or -1: the stage is the last to read that one.
    value_types : the class and dtype of each value.
    """

    runs: list[Callable[..., Sequence[Any]]]
    stores: list[list[tuple[Value, int, list[int], int]]]
    value_types: dict[int, ValueType]


class _Stages:
    """The operation of an expression in several stages, or of one with a reduction."""

    def __init__(
        self, graph: Graph, shapes: Sequence[tuple[int, ...]], joined: Sequence[Stage],
        function: Callable[..., Callable[..., Sequence[Any]] | None],
    ) -> None:  # fmt: skip
        self.graph, self.results, self.function = graph, len(graph.results), function
        self.given_shapes, self.joined = shapes, joined
        self.shapes = shapes_of(graph.order(), dict(enumerate(shapes)))
        self._by_types: dict[tuple[Any, ...], _TypedStages] = {}  # by the types of the operands

    def __call__(self, *operands: Any, out: Any = None) -> Any:
        if out is not None:
            return self._into(operands, out if isinstance(out, tuple) else (out,))
        values = _on_one_device(operands, ())
        typed = self._stages_for(values)
        # The last one is for values that are not results.
        results: list[Any] = [None] * (self.results + 1)
        for run, stores in zip(typed.runs, typed.stores, strict=True):
            stored = run(values, [None if reused < 0 else values[reused] for *_, reused in stores])
            for (_, place, _, _), value in zip(stores, stored, strict=True):
                results[place] = value
            values.extend(stored)
        return results[0] if self.results == 1 else tuple(results[:-1])

    def _stages_for(self, values: Sequence[Any]) -> _TypedStages:
        # Each device has one object, so its id identifies the device.
        key = tuple([
            (type(x), x.dtype, id(x.device)) if isinstance(x, _core.Array) else type(x) for x in values
        ])  # fmt: skip
        typed = self._by_types.get(key)
        if typed is None:
            typed = self._by_types[key] = self._new_stages(values)
        return typed

    def _new_stages(self, values: Sequence[Any]) -> _TypedStages:
        types = [
            ValueType(type(x), dtype_id(x.dtype)) if isinstance(x, _core.Array)
            else ValueType(None, code_of_number(x)) for x in values
        ]  # fmt: skip
        codes, strict = self.graph.codes([x.code for x in types])
        arrays = [x for x in values if isinstance(x, _core.Array)]
        device = arrays[0].device if arrays else None
        other = general_class([type(x) for x in arrays])
        value_types = {
            value: ValueType(type(leading(arrays)) if value in strict else other, strong(code))
            for value, code in codes.items()
        }
        # In host memory each reduction is a program of its own.
        stages, runs = self.joined, []
        if device is not None and device.type != "cpu":
            runs = self._runs(stages, types, value_types, device)
        if None in runs or not runs:
            if any(stage.ends for stage in stages):
                stages = partition(self.graph.results, self.given_shapes, joined=False)
            runs = self._runs(stages, types, value_types, device)
        return _TypedStages(runs, self._stores(stages, value_types), value_types)

    def _runs(
        self, stages: Sequence[Stage], types: Sequence[ValueType], value_types: dict[int, ValueType], device: Any
    ) -> list[Any]:  # fmt: skip
        """Return the functions of the stages; None for one that its operands do not permit."""
        all_types, runs = [*types], []
        for stage in stages:
            result_types = [value_types[id(value)] for value in stage.stores]
            operand_types = [all_types[r.place] for r in (*stage.reads, *stage.extras)]
            runs.append(self.function(stage, operand_types, result_types, device))
            all_types += result_types
        return runs

    def _stores(
        self, stages: Sequence[Stage], value_types: dict[int, ValueType]
    ) -> list[list[tuple[Value, int, list[int], int]]]:
        """Return the attribute `stores` of `_TypedStages`."""

        def layout(value: Any) -> tuple[Any, ...]:
            return value_types[id(value)], self.shapes[id(value)]

        unplaced = dict(enumerate(self.graph.results))
        inputs = {*range(len(self.graph.inputs))}
        temporaries: list[Value | None] = [None] * len(inputs)  # None for inputs and results
        stores_of_stages = []
        for i, stage in enumerate(stages):
            later = {r.place for s in stages[i + 1 :] for r in (*s.reads, *s.extras)}
            read = [temporaries[r.place] for r in stage.reads]
            last = {} if stage.reductions or None in read else {
                layout(value): r.place for value, r in zip(read, stage.reads, strict=True)
                if r.place not in later and r.axes is None and read.count(value) == 1
            }  # fmt: skip
            stores = []
            for value in stage.stores:
                place = next((j for j, result in unplaced.items() if result is value), -1)
                unplaced.pop(place, None)
                stores.append((value, place, sorted(inputs & later), last.pop(layout(value), -1)))
            temporaries += [value if place < 0 else None for value, place, *_ in stores]
            stores_of_stages.append(stores)
        return stores_of_stages

    def _into(self, operands: Sequence[Any], outs: Sequence[Any]) -> Any:
        """Write the results to `outs`, each of which may be None or overlap the operands."""
        check_count(outs, self.results, "fuse")
        refuse_overlap(outs, "fuse")
        values = _on_one_device(operands, outs)
        arrays = [x for x in values if isinstance(x, _core.Array)]
        require_arrays("fuse", *arrays)
        like, typed = leading(arrays), self._stages_for(values)
        for value, out in zip(self.graph.results, outs, strict=True):
            if out is not None:  # all are checked before any is written
                dtype = dtype_from_id(typed.value_types[id(value)].code)
                check_out(out, self._shape_in(out, value), dtype, like, "fuse")
        results = list(outs)
        copies: list[tuple[Any, Any]] = []
        for run, stores in zip(typed.runs, typed.stores, strict=True):
            sinks = []
            for value, place, later, reused in stores:
                sink = outs[place] if place >= 0 else values[reused] if reused >= 0 else None
                if (
                    sink is None
                    or shape_of(sink) != self.shapes[id(value)]
                    or any(
                        isinstance(values[j], _core.Array) and _core._may_overlap(sink, values[j])
                        for j in later
                    )
                ):
                    cls, type_id = typed.value_types[id(value)]
                    shape = self.shapes[id(value)]
                    sink = new_like(like, shape, dtype_from_id(type_id), "fuse", cls)
                sinks.append(sink)
                if place >= 0 and outs[place] is None:
                    results[place] = sink
                elif place >= 0 and outs[place] is not sink:
                    copies.append((outs[place], sink))
            run(values, sinks)
            values.extend(sinks)
        for sink, value in copies:
            _core.copy_into(sink, value, where="fuse")
        return results[0] if self.results == 1 else tuple(results)

    def _shape_in(self, out: Any, value: Value) -> tuple[int, ...]:
        """Return the shape that `out` must have: the value's, or one to which an elementwise value broadcasts."""
        shape = self.shapes[id(value)]
        out_shape = shape_of(out) if isinstance(out, _core.Array) else shape
        lead = len(out_shape) - len(shape)
        fits = lead >= 0 and all(n in (1, m) for n, m in zip(shape, out_shape[lead:], strict=True))
        return out_shape if fits and value.reduction is None else shape


def _operands(reads: Sequence[Read], values: Sequence[Any]) -> list[Any]:
    """Return the operands of a stage: values, or views of them with other axes."""
    return [
        values[place] if axes is None else _with_axes(values[place], axes) for place, axes in reads
    ]


def _with_axes(value: Any, axes: tuple[int, ...]) -> Any:
    pattern = ["x" if axis < 0 else axis for axis in axes]
    return _core.view(type(value), plain(value).dimshuffle(*pattern))


def _on_one_device(operands: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    """Return the operands, arrays of other libraries converted to the device of the first gpuinterop array."""
    like = next((x for x in (*operands, *outs) if isinstance(x, _core.Array)), None)
    return [as_array_or_none(x, like, "fuse") if is_foreign_array(x) else x for x in operands]
