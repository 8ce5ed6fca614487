"""A mapped reduction in one kernel: several operands, an expression, a reduction, results from it.

The expressions are CUDA C over x0, x1, ... (operands), r (the reduced value) and e0, e1, ... (operands
of the result's shape); `host` says the same in NumPy. Each becomes a `CudaText` in a graph.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop.dtypes import as_supported_dtype
from gpuinterop.errors import ArgumentTypeError, ShapeError
from gpuinterop.host_views import as_numpy_view
from gpuinterop.ops import output_arrays, reduction_launch
from gpuinterop.ops.cuda_text import CudaText, assigned
from gpuinterop.ops.dtype_promotion import common_dtype
from gpuinterop.ops.expression import Expression
from gpuinterop.ops.reduction_kernel import ReductionKernel
from gpuinterop.ops.reduction_table import FUSED, REDUCTIONS, accumulated_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["MapReduce"]


class MapReduce(ReductionKernel):
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
        super().__init__(
            Expression(), op, axis, None, dtypes, where
        )  # the graphs follow the dtypes
        self.map, self.host, self.support = map, host, support
        self.texts, self.locals = tuple(posts), locals
        self._counts = max(1, _mentioned("x", map)), _mentioned("e", locals, *posts)

    def resolved(self, operands: Sequence[Any], extras: Sequence[Any], out: Any) -> Any:
        """The same for as many operands and extras as the expressions mention."""
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
        return super().resolved(operands, extras, out)

    def _dtypes(self, operands: Sequence[Any]) -> list[np.dtype[Any]]:
        reduced = REDUCTIONS[self.op].result(self._common(operands))
        return [
            as_supported_dtype(reduced if self.dtypes is None else self.dtypes[j], "MapReduce")
            for j in range(len(self.texts))
        ]

    def _common(self, operands: Sequence[Any]) -> np.dtype[Any]:
        common: np.dtype[Any] = common_dtype([x.dtype for x in operands], self._where)
        return common

    def graphs(
        self, operands: Sequence[Any], extras: Sequence[Any]
    ) -> tuple[Expression, Expression]:
        """The texts with the dtypes of these operands."""
        value = accumulated_dtype(self.op, self._common(operands))
        outs = [kind.name for kind in self._dtypes(operands)]
        mapped = CudaText(
            ", ".join(f"{x.dtype.name} x{i}" for i, x in enumerate(operands)),
            f"{value} gi_value", assigned("gi_value", value, self.map), "map", self.support,
        )  # fmt: skip
        reduced = REDUCTIONS[self.op].result(np.dtype(value)).name
        posts = CudaText(
            ", ".join([f"{reduced} r", *(f"{e.dtype.name} e{i}" for i, e in enumerate(extras))]),
            ", ".join(f"{name} gi_y{j}" for j, name in enumerate(outs)),
            self.locals + " ".join(
                f"{assigned(f'gi_y{j}', name, post)};"
                for j, (name, post) in enumerate(zip(outs, self.texts, strict=True))
            ), "posts", self.support,
        )  # fmt: skip
        return _graph_of(mapped), _graph_of(posts)

    def _on_host(
        self,
        cls: type,
        operands: Sequence[Any],
        extras: Sequence[Any],
        kept: tuple[int, ...],
        out: Any,
    ) -> Any:
        kinds = self._dtypes(operands)
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


def _graph_of(text: CudaText) -> Expression:
    graph = Expression()
    values = [graph.input() for _ in text.ins]
    graph.results = [graph.cuda(text, *values, result=j) for j in range(text.results)]
    return graph


def _mentioned(letter: str, *texts: str) -> int:
    """How many operands the texts speak of: one more than the highest that they name."""
    found = re.findall(rf"\b{letter}(\d+)\b", " ".join(texts))
    # int() limits the digits that it reads; far fewer name more operands than exist.
    return max((int(number[:9]) for number in found), default=-1) + 1
