"""Elements gathered by index."""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuinterop.devices as devices
from gpuinterop import _core
from gpuinterop.array_inputs import is_scalar_or_list
from gpuinterop.errors import ArgumentTypeError, ArrayIndexError, CaptureError
from gpuinterop.host_views import as_numpy_view, refuse_mask, wrap_numpy
from gpuinterop.ops import output_arrays
from gpuinterop.ops.casting import cast
from gpuinterop.ops.core_callbacks import FUNCTIONS
from gpuinterop.views import read_axis

from .output_arrays import record_or_run

__all__ = ["take"]


def _on_host(indices: Any) -> np.ndarray[Any, Any]:
    """Indices as a host array; those of an array on a GPU are waited for."""
    refuse_mask(indices, "take")
    try:
        return np.asarray(indices)
    except CaptureError:
        if _core._recording() is None and not _core.capturing():
            raise  # a result that no replay has filled
        raise CaptureError(
            where="take",
            expected="indices whose values can be looked at, as mode='raise' does",
            got="an array of indices, while a capture records",
            fix="pass mode='clip' or mode='wrap', or the indices as a NumPy array or a list",
        ) from None


def _require_whole(indices: Any, dtype: np.dtype[Any], size: int) -> None:
    # An empty list has no better dtype than float64.
    if dtype.kind in "iu" or (size == 0 and dtype == np.float64):
        return
    raise ArgumentTypeError(
        where="take",
        expected="integer indices",
        got=f"dtype {dtype}",
        fix=_suggested_fix(indices, dtype),
    )


def _inside(indices: Any, mode: str, extent: int, ax: int) -> np.ndarray[Any, Any]:
    """Indices from 0 on, as int64 on the host."""
    host = _on_host(indices)
    _require_whole(indices, host.dtype, host.size)
    if host.size and not extent:
        raise _empty(host.size, ax)
    wide = host if host.dtype == np.uint64 else host.astype(np.int64)
    if mode == "wrap" and extent:
        wide = wide % extent
    elif mode == "clip" and extent:
        wide = np.clip(wide, 0, extent - 1)
    elif host.size and (int(host.min()) < -extent or int(host.max()) >= extent):
        raise ArrayIndexError(
            where="take",
            expected=f"indices from {-extent} to {extent - 1}",
            got=f"indices from {host.min()} to {host.max()}",
            fix="pass mode='clip' or mode='wrap', or correct the indices",
            axis=ax,
        )
    wide = wide.astype(np.int64)
    return np.where(wide < 0, wide + extent, wide)


def _empty(count: int, ax: int) -> ArrayIndexError:
    return ArrayIndexError(
        where="take", expected="no index: the axis is empty", got=f"{count} of them",
        fix="test the shape first, or take along another axis", axis=ax,
    )  # fmt: skip


def _brought_inside(indices: Any, mode: str, extent: int, ax: int) -> Any:
    """Return an array of indices within the axis, computed on its device without a wait of the host."""
    indices = output_arrays.plain(indices)
    for function, rest in _bringing_inside(indices, mode, extent, ax):
        indices = function(indices, *rest)
    return indices


def _bringing_inside(
    indices: Any, mode: str, extent: int, ax: int
) -> list[tuple[Any, tuple[Any, ...]]]:
    """What is applied to the indices of an array, one after the other, with further operands."""
    _require_whole(indices, indices.dtype, indices.size)
    if indices.size and not extent:
        raise _empty(indices.size, ax)
    wide = indices.dtype in (np.int64, np.uint64)
    found: list[tuple[Any, tuple[Any, ...]]] = [] if wide else [(cast, (np.int64,))]
    if extent and mode == "clip":
        found.append((FUNCTIONS["clip"], (0, extent - 1)))
    elif extent:
        found.append((FUNCTIONS["remainder"], (extent,)))
    return [*found, (cast, (np.int64,))] if indices.dtype == np.uint64 else found


def _suggested_fix(indices: Any, dtype: np.dtype[Any]) -> str:
    """Return the fix for indices of a wrong dtype. The values of a mask would count as the indices 0 and 1."""
    given = "indices.get()" if isinstance(indices, _core.Array) else "indices"
    if dtype == np.bool_:
        return f"pass the places where the mask is true: numpy.flatnonzero({given})"
    if dtype.kind == "f":
        return f"choose a rounding, then cast, for example numpy.rint({given}).astype('int64')"
    return "pass integers, or a sequence of ints"


def take(
    x: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise",
    max_threads: int = 1,
) -> Any:  # fmt: skip
    """Return the elements of x at `indices` along `axis`, of the flattened x when it is None.

    `mode` says what an index outside does: "raise" IndexError, "wrap" around, or "clip" to the
    ends. Negative indices count from the end with "raise". The result is a new C-ordered array, or
    `out`. With "raise" the host looks at the indices: those of an array on a GPU are waited for, and
    those of an array cannot be captured. With "wrap" and "clip" all is done on the device.
    `max_threads` is an argument of the documents' time, and changes nothing.
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
    places = (_brought_inside if here and mode != "raise" else _inside)(indices, mode, extent, ax)
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
    """The indices on the device: copied now even while they are recorded, as constants of the graph.

    The recorder keeps them alive. A capture that is not ours would not: there the copy is refused.
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
