"""Reads and writes elements at index arrays, on both devices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.error_messages import index_out_of_range
from gpuinterop.errors import UnsupportedError
from gpuinterop.host_views import as_numpy_view
from gpuinterop.scalars import PIECE

from . import output_arrays
from .index_expression import IndexArray, block_shape, upload

# OutOfRange in native/ops/indexing.hpp. INSIDE: the indices are known to be in range.
RAISE, CLIP, WRAP, INSIDE = range(4)
MODES = {"raise": RAISE, "clip": CLIP, "wrap": WRAP}
_NAMES: tuple[Any, ...] = (*MODES, "wrap")
_MOST = np.iinfo(np.int64).max


class Elements:
    """The elements of `view` at index arrays of some of its axes, by NumPy's rule for ``view[key]``.

    Attributes
    ----------
    shape : of the elements: that to which the arrays broadcast, from `axis` on, amid the other axes.
    """

    def __init__(
        self, view: Any, arrays: Sequence[tuple[int, IndexArray]], axis: int, where: str,
        mode: int = RAISE, block: Sequence[tuple[int, ...]] = (),
    ) -> None:  # fmt: skip
        """`block` are further shapes that take part in the broadcast."""
        self.view, self.where, self.mode = view, where, mode
        self.axes = tuple(axis for axis, _ in arrays)
        self.source_axes = tuple(axis if a.axis is None else a.axis for axis, a in arrays)
        shapes = [*(a.shape for _, a in arrays), *block]
        self.block = shapes[0] if len(shapes) == 1 else block_shape(shapes, where)
        self.axis = axis
        rest = [n for i, n in enumerate(view.shape) if i not in self.axes]
        self.shape = (*rest[:axis], *self.block, *rest[axis:])
        self.order = [*self.axes, *(i for i in range(view.ndim) if i not in self.axes)]
        self.on_host = view.device.type == "cpu"
        if len(arrays) > _core.MAX_INDEX_ARRAYS:
            raise UnsupportedError(
                where=where, expected=f"at most {_core.MAX_INDEX_ARRAYS} index arrays", got=f"{len(arrays)} of them",
                fix="merge axes: x.reshape(-1)[numpy.ravel_multi_index(indices, x.shape)]",
            )  # fmt: skip
        self._require_axes_with_elements(arrays)
        self.arrays = [self._on_device(i, array) for i, (_, array) in enumerate(arrays)]
        if mode == RAISE and all(array.inside for _, array in arrays):
            self.mode = INSIDE

    def _require_axes_with_elements(self, arrays: Sequence[tuple[int, IndexArray]]) -> None:
        for (axis, array), source_axis in zip(arrays, self.source_axes, strict=True):
            if not self.view.shape[axis] and 0 not in self.block:
                count = array.values.size
                got = "1 index" if count == 1 else f"{count} indices"
                raise index_out_of_range(self.where, 0, got, source_axis)

    def _on_device(self, number: int, array: IndexArray) -> Any:
        """Return the indices on the device of the elements."""
        values = array.values
        if isinstance(values, _core.Array):
            return values
        if self.on_host:
            return values if array.live or _core._recording() is None else values.copy()
        if self.mode == RAISE and not array.inside and 0 not in self.block:
            self._require_inside(number, values)
            array.inside = True
        return upload(values, self.view.device, array.listed, self.where)

    def _require_inside(self, number: int, values: np.ndarray[Any, Any]) -> None:
        extent = self.view.shape[self.axes[number]]
        if not values.size:
            return
        low, high = int(values.min()), int(values.max())
        if low < -extent or high >= extent:
            got = f"index {low}" if low == high else f"indices from {low} to {high}"
            raise index_out_of_range(self.where, extent, got, self.source_axes[number])

    def _require_all_inside(self) -> None:
        """Check the indices although no element is read or written, as NumPy does if the index arrays have any."""
        if 0 in self.block:
            return
        for number, values in enumerate(self.arrays):
            if self.mode == RAISE and values.size:
                device = isinstance(values, _core.Array)
                on_host = output_arrays.plain(values).get() if device else values
                self._require_inside(number, on_host)

    # ---- the host ------------------------------------------------------------------------------------

    def _host_indices(self) -> list[Any]:
        """Return the indices broadcast to each other; NumPy checks them, or `_in_mode` changes them."""
        for number, values in enumerate(self.arrays):
            if self.mode == RAISE and values.dtype == np.uint64:
                self._require_inside(number, values)  # NumPy casts 2**64 - 1 to -1
        return [
            values if values.shape == self.block else np.broadcast_to(values, self.block)
            for values in self.arrays
        ]

    def _in_mode(self, number: int, values: Any) -> Any:
        """Return indices of one array as NumPy reads them."""
        extent = self.view.shape[self.axes[number]]
        if self.mode == CLIP:
            if values.dtype == np.uint64:
                values = np.minimum(values, np.uint64(_MOST))
            return np.clip(values.astype(np.int64), 0, extent - 1)
        if self.mode == WRAP:
            wide = values if values.dtype == np.uint64 else values.astype(np.int64)
            return (wide % wide.dtype.type(extent)).astype(np.int64)
        return values

    def _raise_for_numpy(self) -> None:
        """Raise for an index that NumPy refuses."""
        for number, values in enumerate(self.arrays):
            self._require_inside(number, values)

    def _block_first(self, array: Any) -> Any:
        """Return a NumPy array of `shape` with the axes of the indices first."""
        block = range(self.axis, self.axis + len(self.block))
        if not self.axis:
            return array
        return array.transpose([*block, *(i for i in range(array.ndim) if i not in block)])

    # ---- both ----------------------------------------------------------------------------------------

    def read(self, target: Any, keeps: bool = False) -> None:
        """Fill `target`, of `shape`. With `keeps` it keeps its values if an index is out of range."""
        if 0 in self.shape:
            self._require_all_inside()
            return
        if not self.on_host:
            _core._gather(
                self.view,
                self.arrays,
                target,
                self.axes,
                self.source_axes,
                self.axis,
                self.mode,
                keeps,
                self.where,
            )
            return
        self._on_host(
            self._read_on_host,
            as_numpy_view(self.view, self.where),
            as_numpy_view(target, written=True),
        )

    def _on_host(self, work: Any, *arrays: Any) -> None:
        """Run work on NumPy arrays now, or at each replay of the capture that this thread records."""

        def run() -> None:
            try:
                with np.errstate(all="ignore"):
                    work(*arrays)
            except IndexError:
                self._raise_for_numpy()
                raise

        output_arrays.record_or_run(run)

    def _fits_modes_of_numpy(self) -> bool:
        """Whether numpy.take and numpy.put may read the indices.

        They cast 2**64 - 1 to -1. Their "wrap" adds or subtracts the length until the index is inside: forever,
        if it is far outside.
        """
        values, extent = self.arrays[0], self.view.shape[self.axes[0]]
        if values.dtype == np.uint64 or self.mode != WRAP or not values.size:
            return bool(values.dtype != np.uint64)
        # NumPy 2.1 buffers the minimum of several dimensions.
        flat = values.reshape(-1) if values.flags.c_contiguous else values
        low, high = int(flat.min()), int(flat.max())
        return bool(-8 * extent <= low and high < 8 * extent)

    def _read_on_host(self, source: Any, result: Any) -> None:
        # numpy.take copies operands that are not contiguous.
        contiguous = result.flags.c_contiguous and source.flags.c_contiguous
        (first, *_), mode = self.arrays, self.mode
        if self.axes == (self.axis,) and contiguous and self._fits_modes_of_numpy():
            # Mode "raise" makes a temporary array. "wrap" is for negative indices.
            if mode == RAISE and result.size > PIECE:
                self._require_inside(0, first)
                mode = WRAP
            # It casts indices of another dtype.
            for part in [()] if first.dtype == np.intp else _pieces(self.block, result.size):
                key: Any = (*(slice(None),) * self.axis, *part, ...)
                np.take(source, first[part], self.axis, result[key], _NAMES[mode])
            return
        indices = self._host_indices()
        source, result = source.transpose(self.order), self._block_first(result)
        block = self.block
        if all(array.flags.c_contiguous for array in (result, *indices)):
            # NumPy does not copy parts of arrays of one dimension.
            result = result.reshape(-1, *result.shape[len(block) :])
            indices, block = [index.reshape(-1) for index in indices], (math.prod(block),)
        for piece in _pieces(block, math.prod(block)):
            places = [self._in_mode(number, index[piece]) for number, index in enumerate(indices)]
            target = result[piece] if piece else result
            for part in _pieces(places[0].shape, target.size):
                target[part] = source[tuple(index[part] for index in places)]

    def write(self, value: Any, adds: bool = False) -> None:
        """Set the elements to `value`, or add it; it has `shape` or, in host memory, may have one element."""
        if 0 in self.shape:
            self._require_all_inside()
            return
        if not self.on_host:
            _core._scatter(
                self.view,
                self.arrays,
                value,
                self.axes,
                self.source_axes,
                self.axis,
                self.mode,
                adds,
                self.where,
            )
            return
        if adds and len(self.shape) > 32:  # numpy.add.at would write outside its own arrays
            raise UnsupportedError(
                where=self.where, expected="at most 32 axes, because numpy.add.at has no more",
                got=f"{len(self.shape)} axes", fix="merge axes first: x.reshape(...)",
            )  # fmt: skip
        target, values = as_numpy_view(self.view, written=True), as_numpy_view(value, self.where)
        values = (
            values if values.size == 1 and not self.axis else np.broadcast_to(values, self.shape)
        )
        self._on_host(self._write_on_host, target, values, adds)

    def _write_on_host(self, target: Any, values: Any, adds: bool) -> None:
        target, values = target.transpose(self.order), self._block_first(values)
        indices = tuple(self._host_indices())
        if not adds:
            target[indices] = values
            return
        self._raise_for_numpy()  # before the first piece is added
        for part in _pieces(self.block, math.prod(self.shape)):
            added = values if values.size == 1 else values[part]
            np.add.at(target, tuple(index[part] for index in indices), added.astype(target.dtype))

    def put(self, values: Any) -> None:
        """Set the elements along one axis, in host memory, to those of a 1-d array, which is repeated."""

        def work(target: Any, values: Any) -> None:
            indices, mode = self.arrays[0], self.mode
            if mode == RAISE:
                self._require_inside(0, indices)  # before the first element is written
                mode = WRAP
            if not self._fits_modes_of_numpy():
                indices, mode = self._in_mode(0, indices).astype(np.intp), WRAP
            np.put(target, indices, values, _NAMES[mode])

        self._on_host(
            work, as_numpy_view(self.view, written=True), as_numpy_view(values, self.where)
        )


class ElementsAlongAxis(Elements):
    """The elements at indices along one axis that match the other axes, as in numpy.take_along_axis."""

    def __init__(self, view: Any, array: IndexArray, axis: int, where: str) -> None:
        whole = (*view.shape[:axis], array.shape[axis], *view.shape[axis + 1 :])
        super().__init__(view, [(axis, array)], axis, where)
        self.axis = -1  # kAlong in native/ops/indexing.hpp
        self.shape = self.block = _core.broadcast_shapes([array.shape, whole], where)

    def _read_on_host(self, source: Any, result: Any) -> None:
        axis, (indices,) = self.axes[0], self._host_indices()
        source = np.broadcast_to(
            source, (*self.shape[:axis], source.shape[axis], *self.shape[axis + 1 :])
        )
        for part in _pieces(self.shape, result.size):
            whole = source if len(part) == axis + 1 else source[part]  # not divided along the axis
            result[part] = np.take_along_axis(whole, indices[part], axis)

    def _write_on_host(self, target: Any, values: Any, adds: bool) -> None:
        np.put_along_axis(target, self._host_indices()[0], values, self.axes[0])


def _pieces(block: tuple[int, ...], size: int) -> Iterator[tuple[slice, ...]]:
    """Yield keys that divide index arrays of this shape; each selects about `PIECE` of `size` elements."""
    longest = max(range(len(block)), key=block.__getitem__, default=0)
    length = block[longest] if block else 1
    step = max(1, PIECE * length // max(size, 1))
    if not block or step >= length:
        yield ()
        return
    for start in range(0, length, step):
        yield (*(slice(None),) * longest, slice(start, start + step))
