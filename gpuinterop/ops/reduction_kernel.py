"""A reduction of an expression as one kernel: several operands, a graph, a reduction, results from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core, dtypes
from gpuinterop.errors import DTypeError
from gpuinterop.layout import broadcast_shapes, c_strides
from gpuinterop.ops import output_arrays, reduction_launch
from gpuinterop.ops.expression_codegen import device_function
from gpuinterop.ops.reduction_codegen import Recipe
from gpuinterop.ops.reduction_plan import plan_reduction
from gpuinterop.ops.reduction_table import REDUCTIONS, check_not_empty, reduced_shape
from gpuinterop.views import read_reduced_axes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinterop.ops.expression_graph import Graph

__all__ = ["ReductionKernel"]


class ReductionKernel:
    """The reduction of a graph of one result, and a second graph of the reduced value, if there is one.

    Parameters
    ----------
    graph : of the elements of the operands.
    op, axis : the reduction.
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
    ) -> None:
        self.graph, self.op, self.axis, self.posts = graph, op, axis, posts
        self.dtypes, self._where = dtypes, where
        self._caches: dict[int, _core.PlanCache] = {}  # by the number of operands

    def __call__(self, *operands: Any, extras: Sequence[Any] = (), out: Any = None) -> Any:
        """Return the result (a tuple when there are several), or fill `out` (a tuple then too).

        Operands broadcast against each other, extras against the result. Queued on the current
        stream; nothing is copied.
        """
        # A layout that was planned has been checked: the core finds it by the operands as given.
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
        operands = [output_arrays.plain(x) for x in operands]
        extras = [output_arrays.plain(e) for e in extras]
        shape = broadcast_shapes([x.shape for x in operands], self._where)
        axes = read_reduced_axes(self.axis, len(shape), self._where)
        kept = reduced_shape(shape, axes)
        count = int(np.prod([shape[i] for i in axes], dtype=np.int64))
        check_not_empty(self.op, count, shape)
        full = [x if x.shape == shape else x.broadcast_to(shape) for x in operands]
        after = [e if e.shape == kept else e.broadcast_to(kept) for e in extras]
        if device.type == "cpu":
            return self._on_host(cls, full, after, kept, out)
        sinks = [] if out is None else [o for o in out if isinstance(o, _core.Array)]
        # An extra is read by the thread that then writes its place.
        if not any(_core._may_overlap(x, o) for x in full for o in sinks) and not any(
            _core._may_overlap(e, o) and not _same_place(e, o) for e in after for o in sinks
        ):
            return self._plan(cls, axes, full, after, out)
        # Elements would be overwritten before all blocks have read them.
        self._check_outs(full[0], kept, self._dtypes(full), out)
        made = self._plan(cls, axes, full, after, None).run((*full, *after), None)
        for o, value in zip(out, made if isinstance(made, tuple) else (made,), strict=True):
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
        value = dtypes.dtype_from_id(graph.result_rows(_rows(operands))[0])
        return [np.dtype(REDUCTIONS[self.op].result(value))]

    def _on_host(
        self,
        cls: type,
        operands: Sequence[Any],
        extras: Sequence[Any],
        kept: tuple[int, ...],
        out: Any,
    ) -> Any:
        raise AssertionError("the host computes the values before it reduces them")

    def _check_outs(
        self, like: Any, kept: tuple[int, ...], kinds: Sequence[Any], outs: Sequence[Any]
    ) -> list[Any]:
        output_arrays.check_count(outs, len(kinds), self._where)
        found = [
            output_arrays.check_out(given, kept, kind, like, self._where)
            for given, kind in zip(outs, kinds, strict=True)
        ]
        output_arrays.refuse_overlap(found, self._where)
        return found

    def recipe(self, operands: Sequence[Any], extras: Sequence[Any]) -> Recipe:
        """What the kernel computes, for operands of these dtypes."""
        graph, posts = self.graphs(operands, extras)
        rows = _rows(operands)
        mapped = dtypes.dtype_from_id(graph.result_rows(rows)[0])
        reduced = np.dtype(REDUCTIONS[self.op].result(mapped))
        value, element, accumulator = REDUCTIONS[self.op].kernel(mapped.name, reduced.name)
        functions = [device_function("gi_fused", graph, rows)]
        if posts is not None:
            given = (dtypes.dtype_id(reduced), *_rows(extras))
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
        self,
        cls: type,
        axes: tuple[int, ...],
        operands: Sequence[Any],
        extras: Sequence[Any],
        outs: Any,
    ) -> Any:
        shape = operands[0].shape
        kept = reduced_shape(shape, axes)
        kinds = self._dtypes(operands)
        if outs is not None:
            outs = self._check_outs(operands[0], kept, kinds, outs)
        for x in (*operands, *extras):
            if x.dtype.name not in dtypes.ACCUMULATORS:
                raise DTypeError(
                    where=self._where,
                    expected="number types",
                    got=str(x.dtype),
                    fix="cast it first",
                )
        device = operands[0].device.index
        recipe = self.recipe(operands, extras)
        fresh = c_strides(kept, 1)
        sinks = [fresh] * len(kinds) if outs is None else [tuple(o._strides) for o in outs]
        full = [reduction_launch.over(strides, axes, len(shape)) for strides in sinks]
        after = [reduction_launch.over(e._strides, axes, len(shape)) for e in extras]
        given = [reduction_launch.operand(x) for x in operands]
        # Extras ride along as results do: their strides follow the kept dimensions.
        plan = plan_reduction(
            shape,
            axes,
            given,
            [*full, *after],
            multiprocessors=reduction_launch.multiprocessors(device),
        )
        g = plan.geometry
        n = len(kinds)
        launches, scratch = reduction_launch.launches_for(
            device,
            recipe,
            plan,
            [
                (reduction_launch.INPUT, i, g.in_shifts[i] * x.itemsize)
                for i, x in enumerate(operands)
            ],
            [
                (reduction_launch.OUTPUT, j, g.out_shifts[j] * kind.itemsize)
                for j, kind in enumerate(kinds)
            ],
            extras=[
                (reduction_launch.INPUT, len(operands) + e, g.out_shifts[n + e] * x.itemsize)
                for e, x in enumerate(extras)
            ],
            extra_strides=g.out_strides[n:],
        )
        return _core.make_plan(
            device,
            launches,
            scratch,
            [(output_arrays.class_for(cls, kind), dtypes.dtype_id(kind), kept) for kind in kinds],
        )


def _rows(operands: Sequence[Any]) -> tuple[int, ...]:
    return tuple(dtypes.dtype_id(x.dtype) for x in operands)


def _returning(result: str, inputs: Sequence[str]) -> str:
    """gi_mapped: the value that gi_fused sets, as an expression."""
    working = dtypes.WORKING
    parameters = ", ".join(f"{working[name]} a{i}" for i, name in enumerate(inputs))
    given = ", ".join([*(f"a{i}" for i in range(len(inputs))), "value"])
    return (
        f"GI_FN {working[result]} gi_mapped({parameters}) {{\n"
        f"  {working[result]} value;\n  gi_fused({given});\n  return value;\n}}\n"
    )


def _same_place(x: Any, y: Any) -> bool:
    y = output_arrays.plain(y)
    return bool(x.ptr == y.ptr and x._strides == y._strides and x.itemsize == y.itemsize)
