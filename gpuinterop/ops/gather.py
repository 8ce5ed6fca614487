"""Elements gathered by index."""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuinterop.devices as devices
from gpuinterop import _core
from gpuinterop.errors import ArgumentTypeError, ArrayIndexError
from gpuinterop.ops import results
from gpuinterop.sources import host_view, over
from gpuinterop.views import read_axis

from .results import record_or_run

__all__ = ["take"]


def _indices(indices: Any) -> np.ndarray[Any, Any]:
    """Indices as a host array of int64: they decide where to look, so they are checked here."""
    host = np.asarray(indices)
    if host.dtype.kind not in "iu":
        if host.size == 0 and host.dtype == np.float64:  # an empty list has no better dtype
            return host.astype(np.int64)
        raise ArgumentTypeError(
            where="take",
            expected="integer indices",
            got=f"dtype {host.dtype}",
            fix=_mend(indices, host.dtype),
        )
    if host.dtype == np.uint64 and host.size and host.max() > np.iinfo(np.int64).max:
        raise ArrayIndexError(  # as int64 they would count from the end
            where="take",
            expected="indices that fit 63 bits",
            got=str(host.max()),
            fix="mend the indices",
        )
    return host.astype(np.int64)


def _mend(indices: Any, dtype: np.dtype[Any]) -> str:
    """What selects what was meant: as numbers, the truths of a mask would be the places 0 and 1."""
    given = "indices.get()" if isinstance(indices, _core.Array) else "indices"
    if dtype == np.bool_:
        return f"pass the places where the mask is true: numpy.flatnonzero({given})"
    if dtype.kind == "f":
        return f"round them as you mean it, then cast: numpy.rint({given}).astype('int64')"
    return "pass integers, or a sequence of ints"


def take(
    x: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise"
) -> Any:
    """Return the elements of x at `indices` along `axis`, of the flattened x when it is None.

    `mode` says what an index outside does: "raise" IndexError, "wrap" around, or "clip" to the
    ends. Negative indices count from the end with "raise". The result is a new C-ordered array, or
    `out`.
    """
    if mode not in ("raise", "wrap", "clip"):
        raise ArgumentTypeError(where="take", expected="mode 'raise', 'wrap' or 'clip'",
                                got=repr(mode), fix="pass one of these")  # fmt: skip
    (x,) = results.taken("take", x)
    cls, source = type(x), results.plain(x)
    device, dtype = source.device, source.dtype
    if axis is None:
        source = source.reshape(-1)
    if source.ndim == 0:
        source = source.reshape(1)
    ax = read_axis(0 if axis is None else axis, source.ndim, "take")
    extent = source.shape[ax]
    host = _indices(indices)
    if mode == "wrap" and extent:
        host = host % extent
    elif mode == "clip" and extent:
        host = np.clip(host, 0, extent - 1)
    elif host.size and (int(host.min()) < -extent or int(host.max()) >= extent):
        raise ArrayIndexError(
            where="take",
            expected=f"indices from {-extent} to {extent - 1}"
            if extent
            else "no index: the axis is empty",
            got=f"indices from {host.min()} to {host.max()}",
            fix="pass mode='clip' or mode='wrap', or mend the indices",
            axis=ax,
        )
    host = np.where(host < 0, host + extent, host)
    shape = (*source.shape[:ax], *host.shape, *source.shape[ax + 1 :])
    if out is None:
        result = _core.empty(cls, shape, dtype, device.type_code, device.index)
    else:
        result = out
        results.check_out(out, shape, dtype, source, "take")
    if 0 in shape:
        return result
    if device.type == "cpu":
        target, read = host_view(result, written=True), host_view(source)

        def work() -> None:
            target[...] = np.take(read, host, axis=ax)

        record_or_run(work)
        return result
    _core._take(source, _uploaded(host, device), ax, result)
    return result


def _uploaded(host: np.ndarray[Any, Any], device: devices.Device) -> _core.Array:
    """The indices on the device: copied now even while they are recorded, as constants of the graph.

    The recorder keeps them alive. A capture that is not ours would not: there the copy is refused.
    """

    def copied() -> _core.Array:
        made = _core.empty(_core.Array, host.shape, np.int64, device.type_code, device.index)
        _core.copy_into(made, over(np.ascontiguousarray(host)), where="take")
        return made

    if _core._recording() is None:
        return copied()
    outside = devices.Stream(device)
    with devices.stream(outside):
        made = copied()
    outside.synchronize()  # the capture then has nothing to wait for
    return made
