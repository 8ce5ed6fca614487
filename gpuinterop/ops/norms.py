"""Vector norms: reductions of magnitudes."""

from __future__ import annotations

import atexit
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import refuse_half_complex
from gpuinterop.errors import ShapeError
from gpuinterop.host_views import as_numpy_view
from gpuinterop.ops import output_arrays
from gpuinterop.ops.reduction_dispatch import new_as, normalized_axes, plan_for
from gpuinterop.ops.reduction_table import REDUCTIONS, check_not_empty
from gpuinterop.option_values import require_bool

__all__ = ["norm"]

_plans: dict[tuple[Any, ...], _core.PlanCache] = {}
# Plans are Python objects: the core lets go of them while Python can still take them.
atexit.register(_plans.clear)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the vector norm over `axis` (all axes by default): ord 2, 1, inf or -inf.

    A matrix is taken as the vector of its elements, whatever `ord` is. For the norm of a matrix call
    numpy.linalg.norm: on these arrays it computes Frobenius' norm, which is its default. Squares are
    summed in float64, so float32 values up to 1e38 do not overflow on the way.
    """
    (x,) = output_arrays.taken("norm", x)
    ndim = output_arrays.plain(x).ndim
    if ord is None or (isinstance(ord, str) and ord == "fro"):
        op = "norm2"
    elif isinstance(ord, (int, float, np.number)) and ord in (2, 1, np.inf, -np.inf):
        op = {2: "norm2", 1: "norm1", np.inf: "norm_max", -np.inf: "norm_min"}[float(ord)]
    else:
        raise ShapeError(
            where="norm", expected="ord 2, 1, inf or -inf", got=repr(ord),
            fix="numpy.linalg.norm on the host",
        )  # fmt: skip
    axes = normalized_axes(axis, ndim, "norm")
    given: Any = keepdims
    kept = bool(given) if isinstance(given, int) else require_bool(given, "keepdims", "norm")
    cache = _plans.get((op, axes, kept))
    if cache is None:
        cache = _plans[op, axes, kept] = _core.PlanCache(
            lambda operands, _: _norm(op, operands[0], axes, kept), "norm"
        )
    return cache((x,))


def _norm(op: str, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The plan on a GPU, the norm in host memory."""
    cls, x = type(x), output_arrays.plain(x)
    refuse_half_complex(x.dtype, "norm")
    result = REDUCTIONS[op].result(x.dtype)
    kept = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape)) if keepdims else kept
    reduced = int(np.prod([x.shape[i] for i in axes], dtype=np.int64))
    check_not_empty(op, reduced, x.shape, "norm")
    if x.device.type != "cpu":
        return plan_for(op, x, axes, shape, result, None, 0.0, keepdims, cls)
    out = new_as(cls, x, shape, result, op)
    source, sink = as_numpy_view(x), as_numpy_view(out, written=True).reshape(kept)

    def work() -> None:
        # The smallest integer has no magnitude of its own type.
        size = np.abs(source if source.dtype.kind == "c" else source.astype(np.float64))
        size = size.astype(np.float64, copy=False)
        with np.errstate(all="ignore"):
            if op == "norm2":
                sink[...] = np.sqrt(np.sum(size * size, axis=axes))
            elif op == "norm1":
                sink[...] = np.sum(size, axis=axes)
            else:
                sink[...] = (np.max if op == "norm_max" else np.min)(size, axis=axes)

    output_arrays.record_or_run(work)
    return out
