"""The layouts and element types that every bridge is tried with, as data.

A layout is a window on a flat buffer: NumPy, a library under test and we ourselves can each build it
without the help of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuinterop.dtypes import NAMES, NUMPY_NAMES, dtype_from_id

__all__ = ["DTYPES", "LAYOUTS", "PLAIN", "Layout", "legend", "named_dtype"]

DTYPES = (
    "float32 bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float64 complex64 "
    "complex128 bfloat16 float8_e4m3fn float8_e5m2"
).split()
# Those that NumPy has without ml_dtypes; a library either has them all or says which.
PLAIN = frozenset(NUMPY_NAMES)


@dataclass(frozen=True)
class Layout:
    """A window on `count` elements; strides and offset count elements.

    `strides` are those of every axis, also where the extent is 1 and they mean nothing. `made_by` is
    how a reader would make such an array with NumPy.
    """

    name: str
    count: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    readonly: bool = False
    made_by: str = ""

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def negative(self) -> bool:
        return any(s < 0 for s in self.strides) and self.size > 0

    @property
    def overlapping(self) -> bool:
        """Whether several elements are one."""
        return any(s == 0 and n > 1 for n, s in zip(self.shape, self.strides, strict=True))

    def byte_strides(self, itemsize: int) -> tuple[int, ...]:
        return tuple(s * itemsize for s in self.strides)

    def of(self, flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The window on a NumPy buffer, which it keeps alive."""
        # Through bytes: NumPy cannot restride some types of ml_dtypes by itself.
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


LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("C", 12, (3, 4), (4, 1), made_by="np.zeros((3, 4))"),
        Layout("F", 12, (3, 4), (1, 3), made_by="np.zeros((4, 3)).T"),
        Layout("sliced", 48, (3, 4), (16, 2), made_by="np.zeros((6, 8))[::2, ::2]"),
        Layout("reversed", 12, (3, 4), (-4, 1), 8, made_by="np.zeros((3, 4))[::-1]"),
        Layout("mirrored", 12, (3, 4), (4, -1), 3, made_by="np.zeros((3, 4))[:, ::-1]"),
        Layout("broadcast", 4, (3, 4), (0, 1), made_by="as_strided(np.zeros(4), (3, 4), (0, 8))"),
        # 2 elements in: too little for libraries that want whole cache lines.
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
    )
}


def legend() -> list[tuple[str, str]]:
    """Each layout's name and the NumPy expression that makes one."""
    return [(layout.name, layout.made_by) for layout in LAYOUTS.values()]


def named_dtype(name: str) -> np.dtype[Any] | None:
    """NumPy's dtype of that name, or None when it takes ml_dtypes and that is not installed."""
    try:
        return dtype_from_id(NAMES.index(name))
    except (ImportError, ValueError, TypeError):
        return None
