"""A reduction of an expression as one kernel: several operands, a graph, a reduction, and its results.

The kernel, or the program of loops on "cpu", reduces a value as it computes it. Values without an accumulator (floats
below 16 bits) are computed first and then reduced.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import ACCUMULATORS, WORKING, dtype_from_id, dtype_id
from gpuinterop.layout import broadcast_shapes, c_strides
from gpuinterop.ops import output_arrays
from gpuinterop.ops.expression_codegen import device_function, host_values
from gpuinterop.ops.expression_dtypes import is_strict, number_kind
from gpuinterop.ops.host_reduction import host_stages
from gpuinterop.ops.reduction_codegen import INPUT, OUTPUT, Recipe, launches_for
from gpuinterop.ops.reduction_plan import Operand
from gpuinterop.ops.reduction_table import (
    REDUCTIONS,
    check_not_empty,
    full_strides,
    reduced_shape,
    require_accumulated,
)
from gpuinterop.views import read_reduced_axes

if TYPE_CHECKING:
    from gpuinterop.ops.expression_graph import Graph


class ReductionKernel:
    """The reduction of a graph of one result, and a second graph of the reduced value, if there is one.

    Parameters
    ----------
    graph : of the elements of the operands.
    op, axis, keepdims : the reduction.
    posts : a graph of the reduced value and the extras, which have the result's shape.
    dtypes : of the results; that of the reduction by default.
    where : the name in errors.
    """

    def __init__(
        self,
        graph: Graph,
        op: str,
        axis: int | tuple[int, ...] | None = -1,
        posts: Graph | None = None,
        dtypes: Sequence[Any] | None = None,
        where: str = "fuse",
        keepdims: bool = False,
    ) -> None:
        self.graph, self.op, self.axis, self.keepdims = graph, op, axis, keepdims
        self.posts, self.dtypes, self._where = posts, dtypes, where
        self.in_python = posts is not None or graph.has_texts()  # on "cpu"
        self._caches: dict[int, _core.PlanCache] = {}  # by the number of operands

    def __call__(self, *operands: Any, extras: Sequence[Any] = (), out: Any = None) -> Any:
        """Return the result (a tuple when there are several), or fill `out` (a tuple then too).

        Operands broadcast against each other, extras against the result. Queued on the current
        stream; nothing is copied.
        """
        # A planned layout has been checked before: the core finds the plan by the operands.
        n = len(operands)
        if n == 0:
            output_arrays.require_arrays(self._where, None)
        cache = self._caches.get(n)
        if cache is None:
            cache = self._caches[n] = _core.PlanCache(
                lambda given, outs: self.resolved(given[:n], given[n:], outs),
                self._where,
            )
        if out is not None and not isinstance(out, tuple):
            out = (out,)
        return cache((*operands, *extras) if extras else operands, out)

    def resolved(self, operands: Sequence[Any], extras: Sequence[Any], out: Any) -> Any:
        """The plan for operands on a GPU, the result of those in host memory."""
        device = output_arrays.require_arrays(self._where, *operands, *extras)
        cls = type(output_arrays.leading(operands))
        shape = broadcast_shapes([output_arrays.plain(x).shape for x in operands], self._where)
        axes = read_reduced_axes(self.axis, len(shape), self._where)
        kept = reduced_shape(shape, axes)
        check_not_empty(self.op, shape, axes)
        full = [output_arrays.plain(x).broadcast_to(shape) for x in operands]
        after = [output_arrays.plain(e).broadcast_to(kept) for e in extras]
        kinds = self._dtypes(full)
        made = reduced_shape(shape, axes, self.keepdims)
        sinks = None
        if out is not None:
            output_arrays.check_count(out, len(kinds), self._where)
            sinks = [
                output_arrays.check_out(given, made, kind, full[0], self._where)
                for given, kind in zip(out, kinds, strict=True)
            ]
            output_arrays.refuse_overlap(sinks, self._where)
        if device.type == "cpu" and self.in_python:
            return self._on_host(cls, full, after, kept, kinds, out)
        # The thread that reads an extra then writes to the same address.
        if not any(_core._may_overlap(x, o) for x in full for o in sinks or ()) and not any(
            _core._may_overlap(e, o) and not _same_place(e, o) for e in after for o in sinks or ()
        ):
            return self._plan(cls, axes, full, after, kinds, sinks)
        # Elements would be overwritten before all blocks have read them.
        values = self._plan(cls, axes, full, after, kinds, None).run((*full, *after), None)
        for o, value in zip(out, values if isinstance(values, tuple) else (values,), strict=True):
            _core.copy_into(o, value, where=self._where)
        return out if len(out) > 1 else out[0]

    def graphs(self, operands: Sequence[Any], extras: Sequence[Any]) -> tuple[Graph, Graph | None]:
        """The graphs of the elements and of the reduced value, for operands of these dtypes."""
        return self.graph, self.posts

    def _dtypes(self, operands: Sequence[Any]) -> list[np.dtype[Any]]:
        """The dtypes of the results."""
        if self.dtypes is not None:
            return list(self.dtypes)
        graph, _ = self.graphs(operands, ())
        value = dtype_from_id(graph.result_rows(_rows(operands))[0])
        return [np.dtype(REDUCTIONS[self.op].result(value))]

    def _on_host(
        self,
        cls: type,
        operands: Sequence[Any],
        extras: Sequence[Any],
        kept: tuple[int, ...],
        kinds: Sequence[Any],
        out: Any,
    ) -> Any:
        raise AssertionError("the host computes the values before it reduces them")

    def recipe(self, operands: Sequence[Any], extras: Sequence[Any]) -> Recipe:
        """What the kernel computes, for operands of these dtypes."""
        graph, posts = self.graphs(operands, extras)
        rows = _rows(operands)
        mapped = dtype_from_id(graph.result_rows(rows)[0])
        reduced = np.dtype(REDUCTIONS[self.op].result(mapped))
        value, element, accumulator = REDUCTIONS[self.op].kernel(mapped.name, reduced.name)
        functions = [device_function("gi_fused", graph, rows)]
        if posts is not None:
            given = (dtype_id(reduced), *_rows(extras))
            functions.append(device_function("gi_posts", posts, given))
        names = ", ".join(f"x{i}" for i in range(len(operands)))
        return Recipe(
            inputs=tuple(x.dtype.name for x in operands),
            value=value,
            map=re.sub(r"\bx0\b", f"gi_mapped({names})", element),
            op=accumulator,
            outputs=tuple(kind.name for kind in self._dtypes(operands)),
            extras=tuple(e.dtype.name for e in extras),
            posts=posts is not None,
            support="".join(function.text for function in functions)
            + _returning(mapped.name, [x.dtype.name for x in operands]),
            declared="\n".join(function.declared for function in functions),
            defined="\n".join(function.defined for function in functions),
        )

    def _plan(
        self, cls: type, axes: tuple[int, ...], operands: Sequence[Any], extras: Sequence[Any],
        kinds: Sequence[Any], outs: Any,
    ) -> Any:  # fmt: skip
        shape, n = operands[0].shape, len(operands)
        require_accumulated(self._where, *(x.dtype for x in (*operands, *extras)))
        made = reduced_shape(shape, axes, self.keepdims)
        if operands[0].device.type == "cpu":
            rows, result = _rows(operands), dtype_id(kinds[0])
            stages = host_stages(
                self.op, rows, lambda program, _: host_values(program, self.graph, rows)[0],
                self.graph.result_rows(rows)[0], result, math.prod(shape[i] for i in axes),
            )  # fmt: skip
            output = output_arrays.class_for(cls, kinds[0]), result, made
            return _core.make_host_reduction(stages, shape, axes, output)
        sinks = [c_strides(made, 1)] * len(kinds) if outs is None else [o._strides for o in outs]
        device = operands[0].device.index
        launches, scratch = launches_for(
            device, self.recipe(operands, extras), shape, axes,
            [(INPUT, i, Operand.of(x)) for i, x in enumerate(operands)],
            [
                (OUTPUT, j, Operand(full_strides(strides, axes, len(shape)), kind.itemsize))
                for j, (strides, kind) in enumerate(zip(sinks, kinds, strict=True))
            ],
            [
                (INPUT, n + i, Operand.of(e, full_strides(e._strides, axes, len(shape))))
                for i, e in enumerate(extras)
            ],
        )  # fmt: skip
        results = [(output_arrays.class_for(cls, kind), dtype_id(kind), made) for kind in kinds]
        return _core.make_plan(device, launches, scratch, results)


class FusedReduction:
    """One reduced value of an expression; `part` computes the values that are reduced."""

    def __init__(
        self, part: Graph, reduction: tuple[str, Any, bool], elementwise: Callable[..., Any]
    ) -> None:
        self.op, self.axis, self.keepdims = reduction
        strict = replace(part, strict=(True,) * len(part.inputs))
        # By whether the operands are CudaNdarrays, all of them or none.
        self.kernels = [
            ReductionKernel(graph, self.op, self.axis, keepdims=self.keepdims)
            for graph in (part, strict)
        ]
        self.value = elementwise
        self.reads_only = part.results[0].index >= 0
        # By kinds of operands.
        self._ways: dict[Any, tuple[ReductionKernel | None, list[Any], bool]] = {}

    def __call__(self, operands: Sequence[Any], out: Any) -> Any:
        """The result for operands that the elementwise function takes."""
        # Each device has one object, so its id identifies the device.
        key = tuple([
            (type(x), x.dtype, id(x.device)) if isinstance(x, _core.Array) else type(x)
            for x in operands
        ])  # fmt: skip
        way = self._ways.get(key)
        if way is None:
            way = self._ways[key] = self._way(operands)
        kernel, numbers, plain = way
        if kernel is None:
            value = operands[0] if plain else self.value(*operands)
            return getattr(value, self.op)(self.axis, keepdims=self.keepdims, out=out)
        if numbers:
            operands = list(operands)
            for i, cls, dtype, code, index in numbers:
                number = _core.empty(cls, (), dtype, code, index, where="fuse")
                number.fill(operands[i])
                operands[i] = number
        made = kernel(*operands, out=out)
        return output_arrays.plain(made) if plain and out is None else made

    def _way(self, operands: Sequence[Any]) -> tuple[ReductionKernel | None, list[Any], bool]:
        """How operands of these kinds are reduced: the kernel, and the 0-d arrays it reads for numbers.

        The third value is true if a CudaNdarray cannot hold the kernel's result, or, without a
        kernel, if the first operand is reduced unchanged.
        """
        like = next((x for x in operands if isinstance(x, _core.Array)), None)
        if self.reads_only and like is not None and operands[0] is like:
            return None, [], True
        known = all(isinstance(x, (_core.Array, int, float, complex)) for x in operands)
        no_loops = self.kernels[0].in_python or REDUCTIONS[self.op].host is None
        if like is None or not known or (like.device.type == "cpu" and no_loops):
            return None, [], False
        strict = is_strict(like)
        kernel = self.kernels[strict]
        kinds = [
            dtype_id(x.dtype) if isinstance(x, _core.Array) else number_kind(x) for x in operands
        ]
        rows = kernel.graph.input_rows(kinds)
        dtypes = [dtype_from_id(row) for row in rows]
        # The result is a CudaNdarray only if all operands are.
        alike = all(
            (type(x) is type(like) and x.device == like.device) if isinstance(x, _core.Array)
            else output_arrays.class_for(type(like), dtype) is type(like)
            for x, dtype in zip(operands, dtypes, strict=True)
        )  # fmt: skip
        mapped = dtype_from_id(kernel.graph.result_rows(rows)[0])
        if not alike or any(dtype.name not in ACCUMULATORS for dtype in (*dtypes, mapped)):
            return None, [], False
        device = like.device
        numbers = [
            (i, type(like), dtype, device.type_code, device.index)
            for i, (x, dtype) in enumerate(zip(operands, dtypes, strict=True))
            if not isinstance(x, _core.Array)
        ]
        return kernel, numbers, strict and not kernel.graph.strict_results(rows)[0]


def _rows(operands: Sequence[Any]) -> tuple[int, ...]:
    return tuple(dtype_id(x.dtype) for x in operands)


def _returning(result: str, inputs: Sequence[str]) -> str:
    """gi_mapped: the value that gi_fused sets, as an expression."""
    parameters = ", ".join(f"{WORKING[name]} a{i}" for i, name in enumerate(inputs))
    given = ", ".join([*(f"a{i}" for i in range(len(inputs))), "value"])
    return (
        f"GI_FN {WORKING[result]} gi_mapped({parameters}) {{\n"
        f"  {WORKING[result]} value;\n  gi_fused({given});\n  return value;\n}}\n"
    )


def _same_place(x: Any, y: Any) -> bool:
    return bool(x.ptr == y.ptr and x._strides == y._strides and x.itemsize == y.itemsize)
