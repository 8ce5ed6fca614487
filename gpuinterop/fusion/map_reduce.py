"""MapReduce: an expression of several operands, a reduction and expressions of its result, in one kernel.

The expressions are CUDA C over x0, x1, ... (operands), r (the reduced value) and e0, e1, ... (operands
of the result's shape); `host` computes the same in NumPy. Each becomes a `CudaText` in a graph.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import c_strides, core_view
from gpuinterop.arrays.dtypes import NAMES, as_supported_dtype, dtype_from_id, dtype_id
from gpuinterop.arrays.numpy_views import as_numpy_view
from gpuinterop.elementwise import results
from gpuinterop.elementwise.promotion import common_dtype
from gpuinterop.errors import ArgumentTypeError, ShapeError, short_repr
from gpuinterop.errors.messages import not_one_of
from gpuinterop.jit import EXACT, compile_source
from gpuinterop.jit.compiler import require_arch
from gpuinterop.reduce.codegen import Output, render
from gpuinterop.reduce.launch import Operand, choose_launch
from gpuinterop.reduce.table import (
    FUSED,
    REDUCTIONS,
    accumulated_dtype,
    check_not_empty,
    reduced_shape,
    require_accumulated,
)

from .builder import Expression
from .compiled import ANY_NUMBER, Step, Store, shape_of
from .cuda_text import CudaText, assignment_text, host_results
from .partition import End, Read
from .reduction_kernel import ReductionKernel

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
    axis : the reduced axes; negative ones count from the end.
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
        where: str = "MapReduce",
    ) -> None:
        if op not in FUSED:
            raise not_one_of(where, "op", FUSED, op, error=ShapeError)
        if not callable(host):
            raise ArgumentTypeError(
                where=where, expected="a NumPy function of (operands, extras) as host",
                got=short_repr(host), fix="pass for example host=lambda x, e: (numpy.sum(x[0], axis=-1),)",
            )  # fmt: skip
        texts = (map, locals, *posts)
        if isinstance(posts, str) or not all(isinstance(text, str) for text in texts):
            raise ArgumentTypeError(
                where=where, expected="map and locals as text, and posts as a tuple of texts",
                got=f"map={short_repr(map)}, posts={short_repr(posts)}, locals={short_repr(locals)}",
                fix="write for example posts=('r',)",
            )  # fmt: skip
        if dtypes is not None and len(dtypes) != len(posts):
            raise ArgumentTypeError(
                where=where, expected="as many dtypes as posts", got=f"{len(dtypes)} and {len(posts)}",
                fix="name the dtype of each result: dtypes=('float32', 'bool')",
            )  # fmt: skip
        self.op, self.axis, self.dtypes, self._where = op, axis, dtypes, where
        self.map, self.host = map, host
        self.texts, self.locals = tuple(posts), locals
        self._counts = max(1, _mentioned("x", map)), _mentioned("e", locals, *posts)
        if max(sum(self._counts), len(posts)) > _core.MAX_PLANNED:
            raise ArgumentTypeError(
                where=where, expected=f"at most {_core.MAX_PLANNED} operands and extras, and as many posts",
                got=f"{self._counts[0]} operands, {self._counts[1]} extras and {len(posts)} posts",
                fix="number the operands without gaps: x0, x1, ..., or split the operation",
            )  # fmt: skip
        self._calls = _Calls()
        self._calls._prepare = self._prepare

    def __reduce__(self) -> tuple[Any, ...]:
        options: dict[str, Any] = {
            "op": self.op,
            "axis": self.axis,
            "posts": self.texts,
            "locals": self.locals,
        }
        make = partial(type(self), **options, dtypes=self.dtypes, where=self._where)
        return make, (self.map, self.host)

    def compile(self, arch: int, *dtypes: Any, extras: Sequence[Any] = ()) -> bytes:
        """Return machine code for C-contiguous arrays and a compute capability times ten.

        `dtypes` are those of the operands, `extras` those of the extras, all float32 by default.
        CompileError shows the line. The call needs NVRTC but no GPU, so it can also check the texts on device "cpu".
        """
        where = f"{self._where}.compile"
        arch = require_arch(arch, where)
        n, m = self._counts
        dtypes, extras = dtypes or ("float32",) * n, extras or ("float32",) * m
        self._require_counts(dtypes, extras)
        type_ids = [dtype_id(dtype, where) for dtype in (*dtypes, *extras)]
        reduced = len(self.axis) if isinstance(self.axis, tuple) else 1
        shape = (256,) * (reduced + 1)
        inputs = [Operand(c_strides(shape, 1), dtype_from_id(i).itemsize) for i in type_ids[:n]]
        outs = [(1, *(0,) * reduced)] * (len(self.texts) + m)
        launch = choose_launch(shape, tuple(range(1, reduced + 1)), inputs, outs)
        text = render(self._kernel(type_ids, self._results(type_ids)).recipe(), launch)
        return compile_source(text, arch, options=EXACT, name=f"gi_reduce_{launch.mode}.cu")

    def __call__(self, *operands: Any, extras: Any = (), out: Any = None) -> Any:
        """Return the result, or a tuple of several, or fill `out`, then also a tuple.

        Operands broadcast against each other, extras against the result. Queued on the current
        stream; nothing is copied.
        """
        if isinstance(extras, _core.Array):
            extras = (extras,)
        self._require_counts(operands, extras)
        return self._calls(*operands, *extras, out=out)

    def _require_counts(self, operands: Sequence[Any], extras: Sequence[Any]) -> None:
        if (len(operands), len(extras)) != self._counts:
            n, m = self._counts
            raise ArgumentTypeError(
                where=self._where,
                expected=f"as many operands and extras as the expressions use: {n} and {m}",
                got=f"{len(operands)} and {len(extras)}",
                fix="pass an array for each of x0, x1, ..., and extras=(...) for each of e0, e1, ...",
            )

    def _prepare(self, *arrays: Any, out: Any = None) -> Any:
        """Handle a call that is not cached."""
        n = self._counts[0]
        device = results.require_arrays(self._where, *arrays)
        shape = _core.broadcast_shapes([*map(shape_of, arrays[:n])], self._where)
        axes = _core.read_axes(self.axis, len(shape), self._where)
        check_not_empty(self.op, shape, axes)
        kept = reduced_shape(shape, axes)
        for extra in arrays[n:]:
            results.plain(extra).broadcast_to(kept)
        type_ids = [dtype_id(core_view(x).dtype) for x in arrays]
        made = self._results(type_ids, type(results.leading(arrays[:n])), kept)
        function: Any = partial(self._on_host, made, shape)
        if device.type != "cpu":
            function = _core.PlanCache(self._kernel(type_ids, made).prepare, self._where)
        places = [Read(i) for i in range(len(arrays))]
        stores = [Store(j, [], -1, *result, False) for j, result in enumerate(made)]
        steps = _core.CompiledSteps(
            len(arrays), len(made), [Step(function, places, stores)], self._where
        )
        self._calls._add(arrays, [ANY_NUMBER] * len(arrays), places, steps, by_shape=True)
        return steps(*arrays, out=out)

    def _results(
        self, type_ids: Sequence[int], cls: Any = None, shape: tuple[int, ...] = ()
    ) -> list[Output]:
        """Return class, dtype and shape of each result, for operands and extras of these dtypes."""
        dtypes = [dtype_from_id(type_id) for type_id in type_ids]
        require_accumulated(self._where, *dtypes)
        common = common_dtype(dtypes[: self._counts[0]], self._where)
        given = self.dtypes or [REDUCTIONS[self.op].result(common)] * len(self.texts)
        made = [as_supported_dtype(dtype, "MapReduce") for dtype in given]
        return [Output(results.class_for(cls, dtype), dtype_id(dtype), shape) for dtype in made]

    def _kernel(self, type_ids: Sequence[int], made: Sequence[Output]) -> ReductionKernel:
        """Return the kernel for operands and extras of these dtypes."""
        names, outs = ([NAMES[i] for i in ids] for ids in (type_ids, [i for _, i, _ in made]))
        inputs, extras = names[: self._counts[0]], names[self._counts[0] :]
        operand_ids = type_ids[: self._counts[0]]
        common = common_dtype([*map(dtype_from_id, operand_ids)], self._where)
        value = accumulated_dtype(self.op, common)
        mapped = CudaText(
            ", ".join(f"{name} x{i}" for i, name in enumerate(inputs)),
            f"{value} gi_value", assignment_text("gi_value", value, self.map), "map",
        )  # fmt: skip
        reduced = REDUCTIONS[self.op].result(np.dtype(value)).name
        posts = CudaText(
            ", ".join([f"{reduced} r", *(f"{name} e{i}" for i, name in enumerate(extras))]),
            ", ".join(f"{name} gi_y{j}" for j, name in enumerate(outs)),
            self.locals + " ".join(
                f"{assignment_text(f'gi_y{j}', name, post)};"
                for j, (name, post) in enumerate(zip(outs, self.texts, strict=True))
            ), "posts",
        )  # fmt: skip
        ends = [End((0,), Expression.of_text(posts), extras)]  # of which only the number is used
        graph = Expression.of_text(mapped)
        return ReductionKernel(graph, (self.op,), self.axis, ends, type_ids, made, self._where)

    def _on_host(
        self, made: Sequence[Output], shape: tuple[int, ...], *arrays: Any, out: Any
    ) -> Any:
        """Compute the results in host memory, into new arrays or `out`."""
        n, kept = self._counts[0], made[0][2]
        outs = out if isinstance(out, tuple) else (out,)
        if out is None:
            outs = tuple(
                results.new_like(arrays[0], kept, dtype_from_id(type_id), self._where, cls)
                for cls, type_id, _ in made
            )
        reads, reads_after = (
            [as_numpy_view(results.plain(x).broadcast_to(extents), self._where) for x in some]
            for some, extents in ((arrays[:n], shape), (arrays[n:], kept))
        )
        writes = [as_numpy_view(o, written=True) for o in outs]

        def work() -> None:
            with np.errstate(all="ignore"):
                dtypes = [dtype_from_id(type_id) for _, type_id, _ in made]
                values = host_results(self._where, self.host(reads, reads_after), kept, dtypes)
                if len(values) > 1:  # an operand that is returned is read before any out is written
                    values = tuple(v.copy() for v in values)
                for sink, value in zip(writes, values, strict=True):
                    sink[...] = value

        results.record_or_run(work)
        return outs[0] if len(outs) == 1 else outs


class _Calls(_core.PreparedCalls):
    """The calls of one MapReduce; its `_prepare` is a method of that."""

    _prepare: Any


def _mentioned(letter: str, *texts: str) -> int:
    """Return the number of operands in the texts: one more than the highest index."""
    # Not the exponent of 1.e5, nor a member.
    found = re.findall(rf"(?<![\w.]){letter}(\d+)\b", " ".join(texts))
    # int() limits the digits that it reads; far fewer name more operands than exist.
    return max((int(number[:9]) for number in found), default=-1) + 1
