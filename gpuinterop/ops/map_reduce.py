"""A mapped reduction in one kernel: several operands, an expression, a reduction, results from it.

Inner products, products of matrices with vectors and reductions in `fuse` are built on it. The
expressions are CUDA C over x0, x1, ... (operands), r (the reduced value) and e0, e1, ... (operands
of the result's shape); `host` says the same in NumPy.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core, dtypes
from gpuinterop.errors import ArgumentTypeError, DTypeError, ShapeError
from gpuinterop.host_views import as_numpy_view
from gpuinterop.layout import broadcast_shapes, c_strides
from gpuinterop.ops import output_arrays, reduction_launch, target
from gpuinterop.ops.dtype_promotion import common_dtype
from gpuinterop.ops.reduction_codegen import Recipe
from gpuinterop.ops.reduction_plan import plan_reduction
from gpuinterop.ops.reduction_table import FUSED, REDUCTIONS, check_not_empty
from gpuinterop.views import read_reduced_axes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["MapReduce"]


class MapReduce:
    """A reusable kernel ``posts(reduce(map(x0, x1, ...)), e0, ...)`` over one or more axes.

    Parameters
    ----------
    map : expression of x0, x1, ...
    host : NumPy function of (operands, extras) that returns the results as a tuple.
    op : "sum", "prod", "mean", "min", "max", "any" or "all".
    axis : the reduced axes, counted from the end when negative.
    posts : an expression for each result.
    locals : declarations that the posts share, "const float z = r + e0;".
    dtypes : dtype of each result; that of the reduction by default.
    where : the name in errors.

    Examples
    --------
    >>> import numpy as np, gpuinterop
    >>> dot = gpuinterop.MapReduce("x0 * x1", lambda x, e: (np.sum(x[0] * x[1], axis=-1),))
    >>> x = gpuinterop.asarray(np.arange(4, dtype="float32"), device="cpu")
    >>> float(dot(x, x))
    14.0
    """

    def __init__(
        self,
        map: str,
        host: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
        *,
        op: str = "sum",
        axis: int | tuple[int, ...] = -1,
        posts: Sequence[str] = ("r",),
        locals: str = "",
        dtypes: Sequence[Any] | None = None,
        support: str = "",
        where: str = "MapReduce",
    ) -> None:
        if op not in FUSED:
            raise ShapeError(
                where=where,
                expected=f"op {', '.join(FUSED[:-1])} or {FUSED[-1]}",
                got=repr(op),
                fix="use the array's method for the others",
            )
        if not callable(host):
            raise ArgumentTypeError(
                where=where, expected="a NumPy function of (operands, extras) as host",
                got=repr(host), fix="host=lambda x, e: (numpy.sum(x[0], axis=-1),)",
            )  # fmt: skip
        self.map, self.host, self.op = map, host, op
        self.axis, self.posts, self.locals = axis, tuple(posts), locals
        self.dtypes, self.support = dtypes, support
        self._where = where
        self._counts = max(1, _mentioned("x", map)), _mentioned("e", locals, *posts)
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
                lambda given, outs: self._resolved(*self._counted(given[:n], given[n:]), outs),
                self._where,
            )
        if out is not None and not isinstance(out, tuple):
            out = (out,)
        return cache((*operands, *extras) if extras else operands, out)

    def _counted(self, operands: Sequence[Any], extras: Sequence[Any]) -> tuple[Any, Any]:
        """Both, if they are as many as the expressions mention."""
        for given, count, letter, what in zip(
            (operands, extras), self._counts, "xe", ("operand", "extra"), strict=True
        ):
            if len(given) != count:
                names = ", ".join(f"{letter}{i}" for i in range(min(count, 16)))
                names += f", ... {letter}{count - 1}" * (count > 16)
                raise ArgumentTypeError(
                    where=self._where,
                    expected=f"{count} {what}{'s'[: count != 1]}, as the expressions mention"
                    + f": {names}" * (count > 0),
                    got=str(len(given)),
                    fix=f"pass an array for each of {names}" if count else f"leave out the {what}s",
                )
        return operands, extras

    def _resolved(self, operands: Sequence[Any], extras: Sequence[Any], out: Any) -> Any:
        """The plan for operands on a GPU, the result of those in host memory."""
        device = output_arrays.require_arrays(self._where, *operands, *extras)
        cls = type(output_arrays.leading(operands))
        operands = [output_arrays.plain(x) for x in operands]
        extras = [output_arrays.plain(e) for e in extras]
        shape = broadcast_shapes([x.shape for x in operands], self._where)
        axes = read_reduced_axes(self.axis, len(shape), self._where)
        kept = tuple(n for i, n in enumerate(shape) if i not in axes)
        count = int(np.prod([shape[i] for i in axes], dtype=np.int64))
        check_not_empty(self.op, count, shape)
        full = [x if x.shape == shape else x.broadcast_to(shape) for x in operands]
        after = [e if e.shape == kept else e.broadcast_to(kept) for e in extras]
        if device.type == "cpu":
            return self._on_host(cls, full, after, kept, out)
        sinks = [] if out is None else [o for o in out if isinstance(o, _core.Array)]
        # An extra is read by the thread that then writes its place.
        if not any(reduction_launch.may_overlap(x, o) for x in full for o in sinks) and not any(
            reduction_launch.may_overlap(e, o) and not _same_place(e, o)
            for e in after
            for o in sinks
        ):
            return self._plan(cls, full, after, out)
        # Elements would be overwritten before all blocks have read them.
        self._check_outs(full[0], kept, self._dtypes(full)[1], out)
        made = self._plan(cls, full, after, None).run((*full, *after), None)
        for o, value in zip(out, made if isinstance(made, tuple) else (made,), strict=True):
            _core.copy_into(o, value, where=self._where)
        return out if len(out) > 1 else out[0]

    def _dtypes(self, operands: Sequence[Any]) -> tuple[Any, list[Any]]:
        """The dtype of the map's value, and those of the results."""
        common = common_dtype([x.dtype for x in operands], self._where)
        reduced = REDUCTIONS[self.op].result(common)
        return common, [
            dtypes.as_supported_dtype(
                reduced if self.dtypes is None else self.dtypes[j], "MapReduce"
            )
            for j in range(len(self.posts))
        ]

    def _support(self, operands: Sequence[Any]) -> str:
        """Device functions that the expressions call."""
        return self.support

    def _on_host(
        self,
        cls: type,
        operands: Sequence[Any],
        extras: Sequence[Any],
        kept: tuple[int, ...],
        out: Any,
    ) -> Any:
        _, kinds = self._dtypes(operands)
        if out is not None:
            self._check_outs(operands[0], kept, kinds, out)
        outs = out or [reduction_launch.new_as(cls, operands[0], kept, kind) for kind in kinds]
        reads = [as_numpy_view(x) for x in operands]
        reads_after = [as_numpy_view(e) for e in extras]
        writes = [as_numpy_view(o, written=True) for o in outs]

        def work() -> None:
            with np.errstate(all="ignore"):
                values = self._returned(self.host(reads, reads_after), len(writes))
                if len(writes) > 1:  # an operand that is returned is read before any out is written
                    values = [v.copy() if isinstance(v, np.ndarray) else v for v in values]
                for sink, value in zip(writes, values, strict=True):
                    self._store(sink, value)

        output_arrays.record_or_run(work)
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _returned(self, found: Any, count: int) -> Sequence[Any]:
        """The results of host=, one value for each result of the kernel."""
        if isinstance(found, (tuple, list)) and len(found) == count:
            return found
        got = type(found).__name__
        raise ArgumentTypeError(
            where=self._where,
            expected=f"a tuple of {count} array{'s'[: count != 1]} from host=",
            got=f"{got} of {len(found)}" if isinstance(found, (tuple, list)) else got,
            fix=f"return ({', '.join(f'result{j}' for j in range(count))},)",
        )

    def _store(self, sink: Any, value: Any) -> None:
        try:
            sink[...] = value
        except (TypeError, ValueError):
            raise ShapeError(
                where=self._where, expected=f"numbers of shape {sink.shape} from host=",
                got=f"{type(value).__name__} of shape {np.shape(value)}",
                fix=f"reduce over axis {self.axis} in host= as well",
            ) from None  # fmt: skip

    def _check_outs(
        self, like: Any, kept: tuple[int, ...], kinds: Sequence[Any], outs: Sequence[Any]
    ) -> list[Any]:
        output_arrays.check_count(outs, len(kinds), self._where)
        found = [
            reduction_launch.check_out(given, kept, kind, like, self._where)
            for given, kind in zip(outs, kinds, strict=True)
        ]
        output_arrays.refuse_overlap(found, self._where)
        return found

    def _recipe(self, operands: Sequence[Any], extras: Sequence[Any]) -> Recipe:
        common, kinds = self._dtypes(operands)
        value, mapped, accumulator = REDUCTIONS[self.op].kernel(
            common.name, REDUCTIONS[self.op].result(common).name
        )
        return Recipe(
            inputs=tuple(x.dtype.name for x in operands),
            value=value,
            map=self.map
            if mapped == "x0"
            else re.sub(r"\bx0\b", lambda _: f"({self.map})", mapped),
            op=accumulator,
            outputs=tuple(kind.name for kind in kinds),
            posts=self.posts,
            extras=tuple(e.dtype.name for e in extras),
            locals=self.locals,
            support=self._support(operands),
        )

    def _plan(self, cls: type, operands: Sequence[Any], extras: Sequence[Any], outs: Any) -> Any:
        shape = operands[0].shape
        axes = read_reduced_axes(self.axis, len(shape), self._where)
        kept = tuple(n for i, n in enumerate(shape) if i not in axes)
        _, kinds = self._dtypes(operands)
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
        recipe = self._recipe(operands, extras)
        fresh = c_strides(kept, 1)
        sinks = [fresh if outs is None else tuple(o._strides) for o in outs or kinds]
        full = [reduction_launch.over(strides, axes, len(shape)) for strides in sinks]
        after = [reduction_launch.over(e._strides, axes, len(shape)) for e in extras]
        given = [reduction_launch.operand(x) for x in operands]
        # Extras ride along as results do: their strides follow the kept dimensions.
        plan = plan_reduction(
            shape, axes, given, [*full, *after], multiprocessors=target.multiprocessors(device)
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


def _mentioned(letter: str, *texts: str) -> int:
    """How many operands the texts speak of: one more than the highest that they name."""
    found = re.findall(rf"\b{letter}(\d+)\b", " ".join(texts))
    # int() limits the digits that it reads; far fewer name more operands than exist.
    return max((int(number[:9]) for number in found), default=-1) + 1


def _same_place(x: Any, y: Any) -> bool:
    y = output_arrays.plain(y)
    return bool(x.ptr == y.ptr and x._strides == y._strides and x.itemsize == y.itemsize)
