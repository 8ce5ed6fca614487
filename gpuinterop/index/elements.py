"""Reads and writes elements at index arrays, on both devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import dtype_id
from gpuinterop.elementwise import results
from gpuinterop.elementwise.host_program import row_program
from gpuinterop.elementwise.table import TABLE
from gpuinterop.errors import UnsupportedError
from gpuinterop.errors.messages import index_out_of_range

from .keys import IndexArray, block_shape

RAISE, INSIDE = _core.RAISE, _core.INSIDE  # INSIDE: the indices are known to be in range
MODES = {"raise": RAISE, "clip": _core.CLIP, "wrap": _core.WRAP}


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
        """Return the indices on the device of the elements; those that are copied there are checked before."""
        uploaded = not self.on_host and not isinstance(array.values, _core.Array)
        if uploaded and self.mode == RAISE and not array.inside and 0 not in self.block:
            self._require_inside(number, array.values)
            array.inside = True
        return array.to_device_of(self.view, self.where)

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
                on_host = results.plain(values).get() if device else values
                self._require_inside(number, on_host)

    def read(self, target: Any, keeps: bool = False) -> None:
        """Fill `target`, of `shape`. With `keeps` it keeps its values if an index is out of range."""
        if 0 in self.shape:
            self._require_all_inside()
            return
        self._run(_core._gather, target, keeps)

    def write(self, value: Any, adds: bool = False) -> None:
        """Set the elements to `value`, or add it; it has `shape` or, in host memory, may have one element."""
        if 0 in self.shape:
            self._require_all_inside()
            return
        self._run(_core._scatter, value, addition(dtype_id(self.view.dtype)) if adds else None)

    def _run(self, move: Any, other: Any, option: Any) -> None:
        """Move elements between the view and another array."""
        axes = self.axes, self.source_axes, self.axis
        move(self.view, self.arrays, other, *axes, self.mode, option, self.where)


@cache
def addition(dtype: int) -> Any:
    """Return the program that adds an element to another one in host memory."""
    return row_program(TABLE["add"], (dtype, dtype), (dtype, dtype), (dtype,), True)


class ElementsAlongAxis(Elements):
    """The elements at indices along one axis that match the other axes, as in numpy.take_along_axis."""

    def __init__(self, view: Any, array: IndexArray, axis: int, where: str) -> None:
        whole = (*view.shape[:axis], array.shape[axis], *view.shape[axis + 1 :])
        super().__init__(view, [(axis, array)], axis, where)
        self.axis = -1  # kAlong in native/index/elements.hpp
        self.shape = self.block = _core.broadcast_shapes([array.shape, whole], where)
