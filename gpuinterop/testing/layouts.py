"""The layouts and dtypes with which every bridge is tried.

A layout is a strided view of a flat buffer. NumPy, the library under test and gpuinterop can each build
it independently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import class_for
from gpuinterop.arrays.dtypes import NAMES, NUMPY_NAMES, dtype_from_id
from gpuinterop.devices import foreign_handles

DTYPES = (
    "float32 bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float64 complex64 "
    "complex128 bfloat16 float8_e4m3fn float8_e5m2"
).split()
# The dtypes of NumPy itself, without those of ml_dtypes.
PLAIN = frozenset(NUMPY_NAMES)


@dataclass(frozen=True)
class Layout:
    """A strided view of `count` elements; strides and offset are in elements.

    `strides` has an entry for every axis, including axes of length 1. `made_by` is a NumPy expression
    for such an array. `dtypes` are those with which it is tried unless the user names some; () are all.
    """

    name: str
    count: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    readonly: bool = False
    made_by: str = ""
    dtypes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def negative(self) -> bool:
        return any(s < 0 for s in self.strides) and self.size > 0

    @property
    def overlapping(self) -> bool:
        """Whether several indices refer to the same element."""
        return any(s == 0 and n > 1 for n, s in zip(self.shape, self.strides, strict=True))

    def byte_strides(self, itemsize: int) -> tuple[int, ...]:
        return tuple(s * itemsize for s in self.strides)

    def of(self, flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the view of a NumPy buffer."""
        # As bytes, because NumPy cannot set the strides of some types of ml_dtypes.
        view: np.ndarray[Any, Any] = np.ndarray(
            self.shape,
            flat.dtype,
            flat.view(np.uint8),
            self.offset * flat.itemsize,
            self.byte_strides(flat.itemsize),
        )
        if self.readonly:
            view.flags.writeable = False
        return view

    def over(self, address: int, dtype: np.dtype[Any], place: tuple[str, int], owner: Any) -> Any:
        """Return a gpuinterop array over a buffer at an address, which `owner` keeps alive."""
        return _core.from_pointer(
            class_for(dtype), address + self.offset * dtype.itemsize, self.shape,
            self.byte_strides(dtype.itemsize), dtype, foreign_handles.NAMES[place[0]], place[1], owner,
            readonly=self.readonly,
        )  # fmt: skip


# The narrowest dtype, the usual one and the widest, because the layouts with gaps differ in strides alone.
_WIDTHS = ("int8", "float32", "complex128")

LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("C", 12, (3, 4), (4, 1), made_by="np.zeros((3, 4))"),
        Layout("F", 12, (3, 4), (1, 3), made_by="np.zeros((4, 3)).T"),
        Layout("sliced", 48, (3, 4), (16, 2), made_by="np.zeros((6, 8))[::2, ::2]"),
        Layout("reversed", 12, (3, 4), (-4, 1), 8, made_by="np.zeros((3, 4))[::-1]"),
        Layout("mirrored", 12, (3, 4), (4, -1), 3, made_by="np.zeros((3, 4))[:, ::-1]"),
        Layout("broadcast", 4, (3, 4), (0, 1), made_by="as_strided(np.zeros(4), (3, 4), (0, 8))"),
        # An offset of 2 elements, which is less than the alignment that some libraries require.
        Layout("offset", 14, (3, 4), (4, 1), 2, made_by="np.zeros(14)[2:].reshape(3, 4)"),
        Layout(
            "permuted", 24, (4, 2, 3), (1, 12, 4), made_by="np.zeros((2, 3, 4)).transpose(2, 0, 1)"
        ),
        Layout("every-other", 14, (7,), (2,), made_by="np.zeros(14)[::2]"),
        Layout("size-1", 12, (3, 1, 4), (4, 777, 1), made_by="np.zeros((3, 4))[:, None]"),
        Layout("empty", 4, (0, 4), (4, 1), made_by="np.zeros((0, 4))"),
        Layout("0-d", 1, (), (), made_by="np.zeros(())"),
        Layout(
            "readonly",
            12,
            (3, 4),
            (4, 1),
            readonly=True,
            made_by="np.broadcast_to(np.zeros((3, 4)), (3, 4))",
        ),
        # Rows without a step inside, but with gaps between them: a row pitch.
        Layout("pitch", 18, (3, 4), (6, 1), made_by="np.zeros((3, 6))[:, :4]", dtypes=_WIDTHS),
        Layout("F-pitch", 20, (3, 4), (1, 5), 1, made_by="np.zeros((4, 5)).T[1:4]", dtypes=_WIDTHS),
        Layout(
            "flipped",
            18,
            (3, 4),
            (-6, 1),
            12,
            made_by="np.zeros((3, 6))[::-1, :4]",
            dtypes=_WIDTHS,
        ),
        # Gaps between the planes alone, and gaps along every axis with an offset.
        Layout(
            "planes",
            40,
            (2, 3, 4),
            (20, 4, 1),
            made_by="np.zeros((2, 5, 4))[:, :3]",
            dtypes=_WIDTHS,
        ),
        Layout(
            "block",
            72,
            (2, 3, 4),
            (24, 6, 1),
            32,
            made_by="np.zeros((3, 4, 6))[1:, 1:, 2:]",
            dtypes=_WIDTHS,
        ),
    )
}


def named_dtype(name: str) -> np.dtype[Any] | None:
    """Return NumPy's dtype, or None if it needs ml_dtypes and that package is not installed."""
    try:
        return dtype_from_id(NAMES.index(name))
    except (ImportError, ValueError, TypeError):
        return None
