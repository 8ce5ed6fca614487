"""A compiled expression: kernels that run one after the other, as `partition` divides it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.dtypes import ACCUMULATORS, dtype_from_id, dtype_id
from gpuinterop.elementwise.calls import add_operation
from gpuinterop.elementwise.operands import as_array_or_none, general_class, is_foreign_array
from gpuinterop.elementwise.results import class_for, leading
from gpuinterop.errors import ArgumentTypeError
from gpuinterop.reduce.codegen import ACCUMULATOR_BYTES, Output
from gpuinterop.reduce.functions import FUNCTIONS_OF_AXES
from gpuinterop.reduce.table import REDUCTIONS

from .codegen import ElementwiseOperation
from .graph import Graph, Value, code_of_number, is_strict, shapes_of, strong
from .partition import Read, Stage, bare_end, depends_on_shapes, partition
from .reduction_kernel import ReductionKernel

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

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledExpression, (self._graph, self._results, self.__name__)

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
        if self.needs_shapes:
            values = _on_one_device(values, out)
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
        key = tuple(map(_signature if self.needs_shapes else is_strict, operands))
        made: Callable[..., Any] = self._operations.get_or_make(
            key, lambda: self._compile(operands)
        )
        return made

    def _compile(self, operands: Sequence[Any]) -> Callable[..., Any]:
        strict = tuple(map(is_strict, operands))
        shapes = tuple(map(shape_of, operands)) if self.needs_shapes else ()
        stages = partition(self._results, shapes)
        first = stages[0]
        arguments = tuple(Read(i) for i in range(len(self._graph.inputs)))
        if len(stages) == 1 and not first.reductions and first.reads == arguments:
            kernel: Callable[..., Any] = self._kernel(replace(first.part, strict=strict))
            return kernel
        graph = replace(self._graph, strict=strict, results=self._results)
        return _Steps(graph, shapes, operands, self._kernel).compile(stages)

    def _kernel(self, part: Graph) -> Any:
        """Return the core's operation for a graph; equal graphs share one."""
        return self._kernels.get_or_make(
            part.signature(), lambda: add_operation(ElementwiseOperation(self.__name__, part))[1]
        )


def _signature(x: Any) -> tuple[Any, ...]:
    """Return the properties of an operand on which the steps depend."""
    # Each device has one object, so its id identifies the device.
    if not isinstance(x, _core.Array):
        return (type(x),)
    seen = core_view(x)
    return type(x), seen.dtype, id(seen.device), tuple(seen.shape)


class ValueType(NamedTuple):
    """An operand or a value: its class, None for a number, and its type code."""

    cls: Any
    code: int

    @property
    def is_strict(self) -> bool:
        return getattr(self.cls, "_only", None) is not None


class NumberRead(NamedTuple):
    """The position of a number among the operands, and the class and dtype of the 0-d array that is read instead."""

    position: int
    cls: Any
    dtype: int


class Store(NamedTuple):
    """A value that a step stores; see native/fusion/prepared_calls.cpp."""

    result: int
    later: list[int]
    reused: int
    cls: Any
    dtype: int
    shape: tuple[int, ...]
    broadcasts: bool


class Step(NamedTuple):
    """A launch or a program; see native/fusion/prepared_calls.cpp."""

    function: Any
    reads: Sequence[Read]
    stores: list[Store]
    numbers: Sequence[NumberRead] = ()


class _Steps:
    """Makes the compiled form of an expression in several stages, or of one with a reduction."""

    def __init__(
        self, graph: Graph, shapes: Sequence[tuple[int, ...]], operands: Sequence[Any],
        kernel: Callable[[Graph], Any],
    ) -> None:  # fmt: skip
        self.graph, self.given_shapes, self.kernel = graph, shapes, kernel
        self.shapes = shapes_of(graph.order(), dict(enumerate(shapes)))
        self.types = [
            ValueType(type(x), dtype_id(core_view(x).dtype)) if isinstance(x, _core.Array)
            else ValueType(None, code_of_number(x)) for x in operands
        ]  # fmt: skip
        codes, strict = graph.codes([x.code for x in self.types])
        arrays = [x for x in operands if isinstance(x, _core.Array)]
        self.on_host = not arrays or core_view(arrays[0]).device.type == "cpu"
        other = general_class([type(x) for x in arrays])
        self.value_types = {
            value: ValueType(type(leading(arrays)) if value in strict else other, strong(code))
            for value, code in codes.items()
        }

    def compile(self, stages: Sequence[Stage]) -> _core.CompiledSteps:
        # In host memory each reduction is a program of its own.
        steps = None
        if not self.on_host:
            steps = self._steps(stages)
        if steps is None:
            if any(stage.ends for stage in stages):
                stages = partition(self.graph.results, self.given_shapes, joined=False)
            steps = self._steps(stages)
        assert steps is not None
        return _core.CompiledSteps(len(self.types), len(self.graph.results), steps)

    def _steps(self, stages: Sequence[Stage]) -> list[Step] | None:
        """Return the steps; None if operands of these types do not permit what follows a reduction."""
        types, steps = [*self.types], []
        slots = [*range(len(types))]  # of the places of values
        count = len(types)
        for stage, stores in zip(stages, self._stores(stages), strict=True):
            operand_types = [types[r.place] for r in (*stage.reads, *stage.extras)]
            types += [self._type(value) for value in stage.stores]
            stores = [x._replace(reused=slots[x.reused] if x.reused >= 0 else -1) for x in stores]
            reads = [Read(slots[place], axes) for place, axes in (*stage.reads, *stage.extras)]
            found = self._reduction(stage, operand_types, stores) if stage.reductions else None
            if found is not None:
                steps.append(Step(found[0], reads, stores, found[1]))
            elif not stage.reductions:
                steps.append(Step(self._elementwise(stage.part, operand_types), reads, stores))
            elif stage.ends:
                return None
            else:
                ((op, axis, keepdims),) = stage.reductions
                if stage.part.results[0].index < 0:  # computed by one kernel, reduced by another
                    elements = self._elementwise(stage.part, operand_types)
                    between = self._store(stage.stores[0].operands[0])
                    steps.append(Step(elements, reads, [between]))
                    reads, count = [Read(count)], count + 1
                reduce = partial(FUNCTIONS_OF_AXES[op], axis=axis, keepdims=keepdims)
                steps.append(Step(reduce, reads, stores))
            slots += range(count, count + len(stores))
            count += len(stores)
        return steps

    def _reduction(
        self, stage: Stage, types: Sequence[ValueType], stores: Sequence[Store]
    ) -> tuple[_core.PlanCache, list[NumberRead]] | None:
        """Return the plans of a stage that reduces; None if no kernel can compute it for operands of these types.

        With them the numbers among the operands.
        """
        like = next((x for x in types if x.cls is not None), None)
        only_reduces = stage.part.results[0].index >= 0 and not stage.ends
        if only_reduces or like is None or max(len(types), len(stores)) > _core.MAX_PLANNED:
            return None
        if self.on_host and stage.part.has_texts():
            return None
        n, cls, strict = len(stage.reads), like.cls, like.is_strict
        part = replace(stage.part, strict=(strict,) * n)
        type_ids = part.input_ids([x.code for x in types[:n]])
        mapped = [dtype_from_id(type_id) for type_id in part.result_ids(type_ids)]
        ops = [op for op, _, _ in stage.reductions]
        reduced = [np.dtype(REDUCTIONS[op].result(m)) for op, m in zip(ops, mapped, strict=True)]
        accumulator_bytes = sum(2 * max(4, dtype.itemsize) for dtype in reduced)
        if len(reduced) > 1 and accumulator_bytes > ACCUMULATOR_BYTES:
            return None
        strict_values = [
            s and r == m
            for s, r, m in zip(part.strict_results(type_ids), reduced, mapped, strict=True)
        ]
        ends, position = [], n
        for end in stage.ends or [bare_end(stage.reductions[0][2])]:
            extra = types[position : position + len(end.extras)]
            flags = (*(strict_values[i] for i in end.reduced), *(strict,) * len(extra))
            after = replace(end.after, strict=flags)
            of_reduced = [dtype_id(reduced[i]) for i in end.reduced]
            after_ids = after.input_ids((*of_reduced, *(x.code for x in extra)))
            type_ids, position = (*type_ids, *after_ids[len(of_reduced) :]), position + len(extra)
            ends.append(end._replace(after=after))
        dtypes = [dtype_from_id(type_id) for type_id in type_ids]
        # The results are CudaNdarrays only if all operands are.
        one_class = all(
            (class_for(cls, dtype) if x.cls is None else x.cls) is cls
            for x, dtype in zip(types, dtypes, strict=True)
        )
        if not one_class or any(dtype.name not in ACCUMULATORS for dtype in (*dtypes, *mapped)):
            return None
        results = [Output(store.cls, store.dtype, store.shape) for store in stores]
        kernel = ReductionKernel(part, ops, stage.reductions[0][1], ends, type_ids, results)
        numbers = [NumberRead(i, cls, type_ids[i]) for i, x in enumerate(types) if x.cls is None]
        return _core.PlanCache(kernel.prepare, "fuse"), numbers

    def _type(self, value: Value) -> ValueType:
        return self.value_types[id(value)]

    def _elementwise(self, part: Graph, types: Sequence[ValueType]) -> Any:
        """Return the kernel of a graph; its results are CudaNdarrays if its operands are."""
        return self.kernel(replace(part, strict=tuple(x.is_strict for x in types)))

    def _store(
        self, value: Value, result: int = -1, later: Sequence[int] = (), reused: int = -1
    ) -> Store:
        cls, type_id = self._type(value)
        cls, shape = class_for(cls, dtype_from_id(type_id)), self.shapes[id(value)]
        return Store(result, [*later], reused, cls, type_id, shape, value.reduction is None)

    def _stores(self, stages: Sequence[Stage]) -> list[list[Store]]:
        """Return for each stage its values: the result that each is, and where it is stored.

        A value may be stored in the memory of one of its type and shape that its stage is the last to read.
        """

        def layout(value: Any) -> tuple[Any, ...]:
            return self._type(value), self.shapes[id(value)]

        unplaced = dict(enumerate(self.graph.results))
        inputs = {*range(len(self.types))}
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
                result = next((j for j, x in unplaced.items() if x is value), -1)
                unplaced.pop(result, None)
                reused = last.pop(layout(value), -1)
                stores.append(self._store(value, result, sorted(inputs & later), reused))
            temporaries += [
                value if store.result < 0 else None
                for value, store in zip(stage.stores, stores, strict=True)
            ]
            stores_of_stages.append(stores)
        return stores_of_stages


def _on_one_device(operands: Sequence[Any], out: Any) -> list[Any]:
    """Return the operands, arrays of other libraries converted to the device of the first gpuinterop array."""
    outs = out if isinstance(out, tuple) else (out,)
    like = next((x for x in (*operands, *outs) if isinstance(x, _core.Array)), None)
    return [as_array_or_none(x, like, "fuse") if is_foreign_array(x) else x for x in operands]
