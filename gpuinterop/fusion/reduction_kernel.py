"""Reductions of an expression as one kernel: several operands, a graph, reductions of its results, and what follows.

The kernel, or the program of loops on "cpu", reduces a value as it computes it. Values without an accumulator (floats
below 16 bits) are computed first and then reduced.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import c_strides
from gpuinterop.arrays.dtypes import ACCUMULATORS, NAMES, WORKING, dtype_from_id, dtype_id
from gpuinterop.elementwise import results as output_arrays
from gpuinterop.elementwise.operands import gpuarray_class
from gpuinterop.reduce.codegen import ACCUMULATOR_BYTES, INPUT, OUTPUT, Ending, Recipe, launches_for
from gpuinterop.reduce.host_program import host_stages
from gpuinterop.reduce.launch import Operand
from gpuinterop.reduce.table import (
    REDUCTIONS,
    check_not_empty,
    full_strides,
    reduced_shape,
    require_accumulated,
)

from .codegen import device_function, host_values
from .partition import End, bare_end

if TYPE_CHECKING:
    from .graph import Graph


class ReductionKernel:
    """Reductions of the results of a graph, and the graphs of the reduced values.

    Parameters
    ----------
    graph : of the elements of the operands.
    ops : the reductions, one for each result of the graph.
    axis : of the first reduction.
    ends : the results, with the extras, which have the shape of their results.
    where : the name in errors.
    on_host : computes the results in host memory; by default programs do, for one `bare_end`.
    """

    def __init__(
        self,
        graph: Graph,
        ops: Sequence[str],
        axis: int | tuple[int, ...] | None,
        ends: Sequence[End],
        where: str = "fuse",
        on_host: Callable[..., Any] | None = None,
    ) -> None:
        self.graph, self.ops, self.axis, self.ends = graph, tuple(ops), axis, tuple(ends)
        self._where, self._on_host = where, on_host
        self._dtypes = cache(self._new_dtypes)
        # Computes the results of operands and extras, or fills `out`, a tuple.
        self.run = _core.PlanCache(self.prepare, where)

    def prepare(self, arrays: Sequence[Any], out: Any) -> Any:
        """Return the plan for operands and extras on a GPU, or the result for those in host memory."""
        n = len(self.graph.inputs)
        operands, extras = arrays[:n], arrays[n:]
        device = output_arrays.require_arrays(self._where, *operands, *extras)
        cls = type(output_arrays.leading(operands))
        shape = _core.broadcast_shapes(
            [output_arrays.plain(x).shape for x in operands], self._where
        )
        axes = _core.read_axes(self.axis, len(shape), self._where)
        kept = reduced_shape(shape, axes)
        for op in self.ops:
            check_not_empty(op, shape, axes)
        full = [output_arrays.plain(x).broadcast_to(shape) for x in operands]
        extras = [output_arrays.plain(e) for e in extras]
        after = self._broadcast(extras, kept, reduced_shape(shape, axes, True))
        dtypes = self._dtypes(_ids(full), _ids(after))
        shapes = self._shapes(shape, axes)
        sinks = None
        if out is not None:
            output_arrays.check_count(out, len(dtypes), self._where)
            sinks = [
                output_arrays.check_out(given, extents, dtype, full[0], self._where)
                for given, extents, dtype in zip(out, shapes, dtypes, strict=True)
            ]
            output_arrays.refuse_overlap(sinks, self._where)
        if device.type == "cpu" and self._on_host is not None:
            return self._on_host(cls, full, after, kept, dtypes, out)
        # Within an end the thread that reads an extra then writes to the same address.
        read_by = [i for i, end in enumerate(self.ends) for _ in end.extras]
        written_by = [i for i, end in enumerate(self.ends) for _ in end.after.results]
        outs_and_ends = [*zip(sinks or (), written_by, strict=False)]
        if not any(_core._may_overlap(x, o) for x in full for o, _ in outs_and_ends) and not any(
            _core._may_overlap(e, o) and not (i == j and _same_place(e, o))
            for e, i in zip(extras, read_by, strict=True) for o, j in outs_and_ends
        ):  # fmt: skip
            return self._plan(cls, axes, full, after, dtypes, sinks)
        # Elements would be overwritten before all blocks have read them.
        values = self._plan(cls, axes, full, after, dtypes, None).run((*full, *after), None)
        for o, value in zip(out, values if isinstance(values, tuple) else (values,), strict=True):
            _core.copy_into(o, value, where=self._where)
        return out if len(out) > 1 else out[0]

    def _broadcast(
        self, extras: Sequence[Any], kept: tuple[int, ...], kept_all: tuple[int, ...]
    ) -> list[Any]:
        """Return the extras in the shapes of the reduced values: without or with the reduced axes."""
        ends = [end for end in self.ends for _ in end.extras]
        return [
            e.reshape(()).broadcast_to(kept) if end.once is not None
            else e.broadcast_to(kept_all if end.keepdims else kept)
            for e, end in zip(extras, ends, strict=True)
        ]  # fmt: skip

    def _shapes(self, shape: tuple[int, ...], axes: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the shapes of the results."""
        kept, kept_all = (reduced_shape(shape, axes, keepdims) for keepdims in (False, True))
        return [end.shape(kept, kept_all) for end in self.ends for _ in end.after.results]

    def _new_dtypes(
        self, type_ids: tuple[int, ...], extras: tuple[int, ...]
    ) -> list[np.dtype[Any]]:
        """Return the dtypes of the results, for those of operands and extras."""
        input_ids = _end_ids(self.ends, self._values(type_ids)[1], extras)
        return [
            np.dtype(dtype_from_id(type_id))
            for end, given in zip(self.ends, input_ids, strict=True)
            for type_id in end.after.result_ids(given)
        ]

    def _values(self, type_ids: Sequence[int]) -> tuple[list[Any], list[Any]]:
        """Return the dtypes of the elements and of the reduced values."""
        mapped = [dtype_from_id(type_id) for type_id in self.graph.result_ids(type_ids)]
        pairs = zip(self.ops, mapped, strict=True)
        return mapped, [np.dtype(REDUCTIONS[op].result(dtype)) for op, dtype in pairs]

    def recipe(self, type_ids: tuple[int, ...], extras: tuple[int, ...]) -> Recipe:
        """Return the recipe of the kernel for operands and extras of these dtypes."""
        mapped, reduced = self._values(type_ids)
        parts = [
            REDUCTIONS[op].kernel(m.name, r.name)
            for op, m, r in zip(self.ops, mapped, reduced, strict=True)
        ]
        value, _, accumulator = parts[-1]
        for dtype, _, op in reversed(parts[:-1]):
            value, accumulator = f"Pair<{dtype}, {value}>", f"Both<{op}, {accumulator}>"
        functions = [device_function("gi_fused", self.graph, type_ids)]
        endings, results, read = [], 0, 0
        end_ids = _end_ids(self.ends, reduced, extras)
        for n, (end, given) in enumerate(zip(self.ends, end_ids, strict=True)):
            functions.append(device_function(f"gi_posts{n}", end.after, given))
            extra, result = read + len(end.extras), results + len(end.after.results)
            values = [_member(i, len(parts)) for i in end.reduced]
            once = end.once is not None
            endings.append(Ending(values, range(read, extra), range(results, result), once))
            read, results = extra, result
        texts, declared, defined = zip(*functions, strict=True)
        inputs = tuple(NAMES[type_id] for type_id in type_ids)
        return Recipe(
            inputs=inputs,
            value=value,
            map=f"gi_mapped({', '.join(f'x{i}' for i in range(len(type_ids)))})",
            op=accumulator,
            outputs=tuple(dtype.name for dtype in self._dtypes(type_ids, extras)),
            extras=tuple(NAMES[type_id] for type_id in extras),
            ends=tuple(endings),
            support="".join(texts) + _map_function(value, parts, mapped, inputs),
            declared="\n".join(declared),
            defined="\n".join(defined),
        )

    def _plan(
        self, cls: type, axes: tuple[int, ...], operands: Sequence[Any], extras: Sequence[Any],
        dtypes: Sequence[Any], outs: Any,
    ) -> Any:  # fmt: skip
        shape, n = operands[0].shape, len(operands)
        require_accumulated(self._where, *(x.dtype for x in (*operands, *extras)))
        shapes = self._shapes(shape, axes)
        if operands[0].device.type == "cpu":
            type_ids, result = _ids(operands), dtype_id(dtypes[0])
            stages = host_stages(
                self.ops[0], type_ids, lambda program, _: host_values(program, self.graph, type_ids)[0],
                self.graph.result_ids(type_ids)[0], result, math.prod(shape[i] for i in axes),
            )  # fmt: skip
            output = output_arrays.class_for(cls, dtypes[0]), result, shapes[0]
            return _core.make_host_reduction(stages, shape, axes, output)
        # A result that is stored once has the same place for each element of the others.
        sinks = [c_strides(m, 1) for m in shapes] if outs is None else [o._strides for o in outs]
        once = [end.once is not None for end in self.ends for _ in end.after.results]
        zeros = (0,) * len(shape)
        sinks = [
            zeros if alone else full_strides(strides, axes, len(shape))
            for strides, alone in zip(sinks, once, strict=True)
        ]
        device = operands[0].device.index
        launches, scratch = launches_for(
            device, self.recipe(_ids(operands), _ids(extras)), shape, axes,
            [(INPUT, i, Operand.of(x)) for i, x in enumerate(operands)],
            [
                (OUTPUT, j, Operand(strides, dtype.itemsize))
                for j, (strides, dtype) in enumerate(zip(sinks, dtypes, strict=True))
            ],
            [
                (INPUT, n + i, Operand.of(e, full_strides(e._strides, axes, len(shape))))
                for i, e in enumerate(extras)
            ],
        )  # fmt: skip
        results = [
            (output_arrays.class_for(cls, dtype), dtype_id(dtype), extents)
            for dtype, extents in zip(dtypes, shapes, strict=True)
        ]
        return _core.make_plan(device, launches, scratch, results)


def _ids(operands: Sequence[Any]) -> tuple[int, ...]:
    return tuple(dtype_id(x.dtype) for x in operands)


def _end_ids(
    ends: Sequence[End], reduced: Sequence[Any], extras: Sequence[int]
) -> list[tuple[int, ...]]:
    """Return for each end the dtypes of its reduced values and its extras."""
    rest = iter(extras)
    return [
        (*(dtype_id(reduced[i]) for i in end.reduced), *islice(rest, len(end.extras)))
        for end in ends
    ]


def _member(i: int, count: int) -> str:
    """Return the expression of reduced value i of a kernel; several are nested pairs."""
    return "gi_r" + ".second" * i + (".first" if i < count - 1 else "")


_ELEMENT = re.compile(r"\bx0\b")


def _map_function(
    value: str, parts: Sequence[tuple[str, str, str]], mapped: Sequence[Any], inputs: Sequence[str]
) -> str:
    """Return gi_mapped, a function that returns the elements to reduce from the values that gi_fused sets."""
    parameters = ", ".join(f"{WORKING[name]} a{i}" for i, name in enumerate(inputs))
    names = ", ".join([f"a{i}" for i in range(len(inputs))] + [f"m{j}" for j in range(len(mapped))])
    declared = " ".join(f"{WORKING[dtype.name]} m{j};" for j, dtype in enumerate(mapped))
    elements = [
        f"gi_to<{dtype}>({_ELEMENT.sub(f'm{j}', element)})"
        for j, (dtype, element, _) in enumerate(parts)
    ]
    pair = elements[-1]
    for element in reversed(elements[:-1]):
        pair = f"gi_pair({element}, {pair})"
    return (
        f"GI_FN {value} gi_mapped({parameters}) {{\n"
        f"  {declared}\n  gi_fused({names});\n  return {pair};\n}}\n"
    )


def _same_place(x: Any, y: Any) -> bool:
    dtypes = [(a.ptr, a.shape, a._strides, a.itemsize) for a in (x, y)]
    return bool(dtypes[0] == dtypes[1])


# ---- a kernel as a stage of a compiled expression -----------------------------------------------


if TYPE_CHECKING:
    from .partition import Stage


class ValueType(NamedTuple):
    """An operand or a result of a stage: its class, None for a number, and its type code."""

    cls: Any
    code: int

    @property
    def is_strict(self) -> bool:
        return getattr(self.cls, "_only", None) is not None


def fused_reduction(
    stage: Stage, types: Sequence[ValueType], result_types: Sequence[ValueType], device: Any,
    kernel_for: Callable[[Any, Callable[[], ReductionKernel]], ReductionKernel],
) -> tuple[ReductionKernel, list[tuple[int, Any, int]], list[Any]] | None:  # fmt: skip
    """Return the kernel of a stage for operands and extras of these types; None if no kernel can compute it.

    With it the positions of numbers among them, each with the class and the dtype of the 0-d array that the kernel
    reads instead, and for each result GpuArray if it is not a CudaNdarray although the operands are, else None.
    `result_types` are the results. `kernel_for` returns the kernel that it has for a key, or makes it.
    """
    like = next((x for x in types if x.cls is not None), None)
    only_reduces = stage.part.results[0].index >= 0 and not stage.ends
    if only_reduces or like is None or max(len(types), len(result_types)) > _core.MAX_PLANNED:
        return None
    if device.type == "cpu" and stage.part.has_texts():
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
        s and r == m for s, r, m in zip(part.strict_results(type_ids), reduced, mapped, strict=True)
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
    # The result is a CudaNdarray only if all operands are.
    is_one_class = all(
        (output_arrays.class_for(cls, dtype) if x.cls is None else x.cls) is cls
        for x, dtype in zip(types, dtypes, strict=True)
    )
    if not is_one_class or any(dtype.name not in ACCUMULATORS for dtype in (*dtypes, *mapped)):
        return None
    signatures_of_ends = [(e.reduced, e.after.signature(), e.keepdims, e.once) for e in ends]
    kernel = kernel_for(
        (*part.signature(), stage.reductions, *signatures_of_ends),
        lambda: ReductionKernel(part, ops, stage.reductions[0][1], ends),
    )
    numbers = [
        (i, cls, dtype_id(dtype))
        for i, (x, dtype) in enumerate(zip(types, dtypes, strict=True))
        if x.cls is None
    ]
    general = gpuarray_class()
    views = [general if strict and x.cls is not cls else None for x in result_types]
    return kernel, numbers, views
