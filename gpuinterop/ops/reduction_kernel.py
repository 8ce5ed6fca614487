"""A reduction of an expression as one kernel: several operands, a graph, a reduction, and its results.

The kernel, or the program of loops on "cpu", reduces a value as it computes it. Values without an accumulator (floats
below 16 bits) are computed first and then reduced.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import ACCUMULATORS, WORKING, dtype_from_id, dtype_id
from gpuinterop.layout import broadcast_shapes, c_strides
from gpuinterop.ops import output_arrays
from gpuinterop.ops.expression_codegen import device_function, host_values
from gpuinterop.ops.expression_dtypes import is_strict, number_kind
from gpuinterop.ops.host_reduction import host_stages
from gpuinterop.ops.reduction_codegen import INPUT, OUTPUT, Recipe, launches_for
from gpuinterop.ops.reduction_geometry import Operand
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
    dtypes : of the results; by default those of the graph that computes them.
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
        """Return the result, or a tuple of several, or fill `out`, then also a tuple.

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
        """Return the plan for operands on a GPU, or the result for operands in host memory."""
        device = output_arrays.require_arrays(self._where, *operands, *extras)
        cls = type(output_arrays.leading(operands))
        shape = broadcast_shapes([output_arrays.plain(x).shape for x in operands], self._where)
        axes = read_reduced_axes(self.axis, len(shape), self._where)
        kept = reduced_shape(shape, axes)
        check_not_empty(self.op, shape, axes)
        full = [output_arrays.plain(x).broadcast_to(shape) for x in operands]
        after = [output_arrays.plain(e).broadcast_to(kept) for e in extras]
        kinds = self._dtypes(full, after)
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
        """Return the graphs of the elements and of the reduced value, for operands of these dtypes."""
        return self.graph, self.posts

    def _dtypes(self, operands: Sequence[Any], extras: Sequence[Any]) -> list[np.dtype[Any]]:
        """Return the dtypes of the results."""
        if self.dtypes is not None:
            return list(self.dtypes)
        graph, posts = self.graphs(operands, extras)
        value = dtype_from_id(graph.result_rows(_rows(operands))[0])
        reduced = np.dtype(REDUCTIONS[self.op].result(value))
        if posts is None:
            return [reduced]
        rows = posts.result_rows((dtype_id(reduced), *_rows(extras)))
        return [np.dtype(dtype_from_id(row)) for row in rows]

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
        """Return the recipe of the kernel for operands of these dtypes."""
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
            outputs=tuple(kind.name for kind in self._dtypes(operands, extras)),
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
    """A stage of an expression that reduces: one kernel, or one for each part if no kernel supports the dtypes.

    Parameters
    ----------
    part, reduction : the graph of the elements, and their reduction.
    elements : computes that graph.
    after : the graph of the reduced value and the extras; None if the reduced value is the result.
    rest : computes that graph.
    """

    def __init__(
        self,
        part: Graph,
        reduction: tuple[str, Any, bool],
        elements: Callable[..., Sequence[Any]],
        after: Graph | None,
        rest: Callable[..., Sequence[Any]] | None,
    ) -> None:
        self.op, self.axis, self.keepdims = reduction
        self.part, self.after, self.elements, self.rest = part, after, elements, rest
        self.reads_only = part.results[0].index >= 0
        if after is not None:
            self.alone = FusedReduction(part, reduction, elements, None, None)
        self._kernels: dict[tuple[bool, bool], ReductionKernel] = {}
        self._ways: dict[Any, _Way | None] = {}  # by kinds of operands and extras

    def __call__(
        self, operands: Sequence[Any], extras: Sequence[Any], outs: Sequence[Any]
    ) -> Sequence[Any]:
        # Each device has one object, so its id identifies the device.
        key = tuple([
            (type(x), x.dtype, id(x.device)) if isinstance(x, _core.Array) else type(x)
            for x in (*operands, *extras)
        ])  # fmt: skip
        if key not in self._ways:
            self._ways[key] = self._way(operands, extras)
        way = self._ways[key]
        given = None if outs[0] is None else tuple(outs)
        if way is None:
            return self._one_by_one(operands, extras, outs)
        n = len(operands)
        if way.numbers:
            values = [*operands, *extras]
            for i, cls, dtype, code, index in way.numbers:
                number = _core.empty(cls, (), dtype, code, index, where="fuse")
                number.fill(values[i])
                values[i] = number
            operands, extras = values[:n], values[n:]
        made = way.kernel(*operands, extras=extras, out=given)
        results = made if isinstance(made, tuple) else (made,)
        if given is not None:
            return results
        return [
            output_arrays.plain(x) if plain else x
            for x, plain in zip(results, way.plain, strict=True)
        ]

    def _one_by_one(
        self, operands: Sequence[Any], extras: Sequence[Any], outs: Sequence[Any]
    ) -> Sequence[Any]:
        """Compute the results by a kernel for the elements, one that reduces them, and one for the rest."""
        if self.rest is None:
            value = operands[0] if self.reads_only else self.elements(*operands, outs=(None,))[0]
            reduced = getattr(value, self.op)(self.axis, keepdims=self.keepdims, out=outs[0])
            return (reduced,)
        reduced = self.alone(operands, (), (None,))[0]
        if self.keepdims:  # the extras have no reduced axes
            axes = read_reduced_axes(self.axis, reduced.ndim, "fuse")
            plain = output_arrays.plain(reduced).squeeze(axes)
            made = self.rest(_core.view(type(reduced), plain), *extras, outs=[None] * len(outs))
            return [x.reshape(reduced.shape) for x in made]
        return self.rest(reduced, *extras, outs=outs)

    def _way(self, operands: Sequence[Any], extras: Sequence[Any]) -> _Way | None:
        """Return how one kernel reduces operands of these kinds; None if no kernel can."""
        values = [*operands, *extras]
        like = next((x for x in values if isinstance(x, _core.Array)), None)
        plain_reduction = self.reads_only and self.after is None
        known = all(isinstance(x, (_core.Array, int, float, complex)) for x in values)
        if plain_reduction or like is None or not known:
            return None
        no_loops = self.part.has_texts() or REDUCTIONS[self.op].host is None
        if like.device.type == "cpu" and (no_loops or self.after is not None):
            return None
        kinds = [
            dtype_id(x.dtype) if isinstance(x, _core.Array) else number_kind(x) for x in values
        ]
        strict, n = is_strict(like), len(operands)
        part = replace(self.part, strict=(strict,) * n)
        rows = part.input_rows(kinds[:n])
        mapped = dtype_from_id(part.result_rows(rows)[0])
        reduced = np.dtype(REDUCTIONS[self.op].result(mapped))
        strict_results = part.strict_results(rows)
        strict_value = strict_results[0] and reduced == mapped
        after = self.after
        if after is not None:
            after = replace(after, strict=(strict_value, *(strict,) * len(extras)))
            after_rows = after.input_rows((dtype_id(reduced), *kinds[n:]))
            strict_results = after.strict_results(after_rows)
            rows = (*rows, *after_rows[1:])
        dtypes = [dtype_from_id(row) for row in rows]
        # The result is a CudaNdarray only if all operands are.
        alike = all(
            (type(x) is type(like) and x.device == like.device) if isinstance(x, _core.Array)
            else output_arrays.class_for(type(like), dtype) is type(like)
            for x, dtype in zip(values, dtypes, strict=True)
        )  # fmt: skip
        if not alike or any(dtype.name not in ACCUMULATORS for dtype in (*dtypes, mapped)):
            return None
        device = like.device
        numbers = [
            (i, type(like), dtype, device.type_code, device.index)
            for i, (x, dtype) in enumerate(zip(values, dtypes, strict=True))
            if not isinstance(x, _core.Array)
        ]
        kernel = self._kernels.get((strict, strict_value))
        if kernel is None:
            kernel = self._kernels[strict, strict_value] = ReductionKernel(
                part, self.op, self.axis, after, keepdims=self.keepdims
            )
        return _Way(kernel, numbers, [strict and not s for s in strict_results])


class _Way(NamedTuple):
    """One kernel for operands of certain kinds.

    Attributes
    ----------
    numbers : the positions of numbers among operands and extras, and of the 0-d array that the kernel
        reads instead: class, dtype, device.
    plain : for each result, whether it is not a CudaNdarray although the operands are.
    """

    kernel: ReductionKernel
    numbers: list[tuple[int, Any, Any, int, int]]
    plain: list[bool]


def _rows(operands: Sequence[Any]) -> tuple[int, ...]:
    return tuple(dtype_id(x.dtype) for x in operands)


def _returning(result: str, inputs: Sequence[str]) -> str:
    """Return gi_mapped, a function that returns the value that gi_fused sets."""
    parameters = ", ".join(f"{WORKING[name]} a{i}" for i, name in enumerate(inputs))
    given = ", ".join([*(f"a{i}" for i in range(len(inputs))), "value"])
    return (
        f"GI_FN {WORKING[result]} gi_mapped({parameters}) {{\n"
        f"  {WORKING[result]} value;\n  gi_fused({given});\n  return value;\n}}\n"
    )


def _same_place(x: Any, y: Any) -> bool:
    return bool(x.ptr == y.ptr and x._strides == y._strides and x.itemsize == y.itemsize)
