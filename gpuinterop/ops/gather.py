"""Elements gathered by index."""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuinterop.devices as devices
from gpuinterop import _core
from gpuinterop.array_inputs import is_scalar_or_list
from gpuinterop.error_context import reraise_from
from gpuinterop.errors import ArgumentTypeError, ArrayIndexError
from gpuinterop.host_views import as_numpy_view, refuse_mask, wrap_numpy
from gpuinterop.ops import output_arrays
from gpuinterop.ops.casting import cast
from gpuinterop.ops.core_callbacks import FUNCTIONS
from gpuinterop.views import read_axis

from .output_arrays import record_or_run


def _require_whole(indices: Any) -> None:
    # NumPy gives an empty list the dtype float64.
    if indices.dtype.kind in "iu" or (indices.size == 0 and indices.dtype == np.float64):
        return
    raise ArgumentTypeError(
        where="take", expected="integer indices", got=f"dtype {indices.dtype}",
        fix="pass integers, for a mask numpy.flatnonzero(numpy.asarray(mask))",
    )  # fmt: skip


def _on_host(indices: Any, mode: str, extent: int) -> np.ndarray[Any, Any]:
    """Indices from 0 on, as int64; waits for those of an array on a GPU."""
    refuse_mask(indices, "take")
    with reraise_from("take"):
        host = np.asarray(indices)
    _require_whole(host)
    wide = host.astype(np.int64)
    if mode == "wrap":
        return wide % max(extent, 1)
    if mode == "clip":
        return np.clip(wide, 0, max(extent - 1, 0))
    if extent and host.size and (int(host.min()) < -extent or int(host.max()) >= extent):
        raise ArrayIndexError(
            where="take",
            expected=f"indices from {-extent} to {extent - 1}",
            got=f"indices from {host.min()} to {host.max()}",
            fix="pass mode='clip' or mode='wrap', or correct the indices",
        )
    return np.where(wide < 0, wide + extent, wide)


def _on_device(indices: Any, mode: str, extent: int) -> Any:
    """Indices from 0 on, computed on their device; the host does not wait."""
    indices = output_arrays.plain(indices)
    _require_whole(indices)
    wide = indices if indices.dtype == np.int64 else cast(indices, np.int64)
    if mode == "clip":
        return FUNCTIONS["clip"](wide, 0, max(extent - 1, 0))
    return FUNCTIONS["remainder"](wide, max(extent, 1))


def take(
    x: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise",
    max_threads: int = 1,
) -> Any:  # fmt: skip
    """Return the elements of x at `indices` along `axis`, of the flattened x when it is None.

    `mode` determines the effect of an index out of range: "raise" IndexError, "wrap" around, or
    "clip" to the ends. Negative indices count from the end with "raise". The result is a new
    C-ordered array, or `out`. With "raise" the host reads the indices, so the call waits for those of
    an array on a GPU and cannot capture those of an array. "wrap" and "clip" run on the device.
    `max_threads` is accepted for old programs and has no effect.
    """
    if mode not in ("raise", "wrap", "clip"):
        raise ArgumentTypeError(where="take", expected="mode 'raise', 'wrap' or 'clip'",
                                got=repr(mode), fix="pass one of these")  # fmt: skip
    (x,) = output_arrays.taken("take", x)
    cls, source = type(x), output_arrays.plain(x)
    device, dtype = source.device, source.dtype
    if axis is None:
        source = source.reshape(-1)
    if source.ndim == 0:
        source = source.reshape(1)
    ax = read_axis(0 if axis is None else axis, source.ndim, "take")
    extent = source.shape[ax]
    here = isinstance(indices, _core.Array) and output_arrays.plain(indices).device == device
    places = (_on_device if here and mode != "raise" else _on_host)(indices, mode, extent)
    if places.size and not extent:
        raise ArrayIndexError(
            where="take", expected="no index: the axis is empty", got=f"{places.size} of them",
            fix="test the shape first, or take along another axis", axis=ax,
        )  # fmt: skip
    shape = (*source.shape[:ax], *places.shape, *source.shape[ax + 1 :])
    if out is None:
        result = _core.empty(cls, shape, dtype, device.type_code, device.index)
    else:
        result = out
        output_arrays.check_out(out, shape, dtype, source, "take")
    if 0 in shape:
        return result
    if device.type == "cpu":
        target, read = as_numpy_view(result, written=True), as_numpy_view(source)
        index = as_numpy_view(places) if isinstance(places, _core.Array) else places

        def work() -> None:
            target[...] = np.take(read, index, axis=ax)

        record_or_run(work)
        return result
    if not isinstance(places, _core.Array):
        places = _uploaded(places, device, is_scalar_or_list(indices))
    _core._take(source, places, ax, result, extent)
    return result


def _uploaded(host: np.ndarray[Any, Any], device: devices.Device, values: bool) -> _core.Array:
    """The indices on the device: copied now, even during a capture, as constants of the graph.

    The recorder keeps them alive. Another library's capture would not, so the copy is refused there.
    """

    def copied() -> _core.Array:
        made = _core.empty(_core.Array, host.shape, np.int64, device.type_code, device.index)
        _core.copy_into(
            made, wrap_numpy(np.asarray(host, order="C")), where="take", uncounted=values
        )
        return made

    if _core._recording() is None:
        return copied()
    outside = devices.Stream(device)
    with devices.stream(outside):
        made = copied()
    outside.synchronize()  # the capture then has nothing to wait for
    return made
