"""Transforms by cuFFT: of the last axes of an array, up to three at once.

cuFFT reads and writes any layout whose axes it can step through with a stride and a distance. Others, such as the
middle axis of three, are copied, which counts as a copy.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.devices import find_libraries
from gpuinterop.elementwise.results import new_like
from gpuinterop.errors import DTypeError, ShapeError

MOST_AXES = 3  # of one plan


@cache
def load() -> None:
    """Open cuFFT on first use."""
    _core._fft_open(find_libraries.find("cufft").path)


def complex_numbers(x: Any, axes: list[int], lengths: list[int], inverse: bool) -> Any:
    """Return the transform of complex numbers, without a factor."""
    x = _fitted(x.astype(_complex(x.dtype), copy=False), axes, lengths)
    while axes:
        axes, last = axes[:-MOST_AXES], axes[-MOST_AXES:]
        x = _run(x, last, x.shape, x.dtype, inverse)
    return x


def from_real(x: Any, axes: list[int], lengths: list[int], inverse: bool) -> Any:
    """Return the transform of real numbers, without a factor."""
    if x.dtype.kind == "c":
        raise DTypeError(where="fft", expected="real numbers", got=str(x.dtype),
                         fix="transform them by fft, or take the real parts")  # fmt: skip
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype("float64")
    x = _fitted(x.astype(dtype, copy=False), axes, lengths)
    first, last = axes[:-MOST_AXES], axes[-MOST_AXES:]
    half = x.shape[axes[-1]] // 2 + 1
    x = _run(x, last, _with_length(x, axes[-1], half), _complex(dtype), inverse)
    return complex_numbers(x, first, [-1] * len(first), inverse) if first else x


def to_real(x: Any, axes: list[int], lengths: list[int], inverse: bool) -> Any:
    """Return the inverse of `from_real`."""
    dtype = _complex(x.dtype)
    wanted = 2 * (x.shape[axes[-1]] - 1) if lengths[-1] < 0 else lengths[-1]
    if wanted < 1:
        raise too_short(wanted)
    x = _fitted(x.astype(dtype, copy=False), axes, [*lengths[:-1], wanted // 2 + 1])
    first, last = axes[:-MOST_AXES], axes[-MOST_AXES:]
    if first:
        x = complex_numbers(x, first, [-1] * len(first), inverse)
    real = np.empty(0, dtype).real.dtype
    return _run(x, last, _with_length(x, axes[-1], wanted), real, inverse)


def _complex(dtype: Any) -> Any:
    if dtype.kind == "c":
        return dtype
    return np.dtype("complex64" if dtype == np.float32 else "complex128")


def _with_length(x: Any, axis: int, length: int) -> tuple[int, ...]:
    return (*x.shape[:axis], length, *x.shape[axis + 1 :])


def too_short(points: int) -> ShapeError:
    """Return the error of a transform without points."""
    return ShapeError(
        where="fft", expected="one point or more along each axis", got=f"{points} points",
        fix="pass n of 1 or more",
    )  # fmt: skip


def _fitted(x: Any, axes: list[int], lengths: list[int]) -> Any:
    """Return the array cut, or padded with zeros, to lengths along axes."""
    shape = list(x.shape)
    for axis, length in zip(axes, lengths, strict=True):
        shape[axis] = shape[axis] if length < 0 else length
        if shape[axis] < 1:
            raise too_short(shape[axis])
    part = x[tuple(slice(min(n, wanted)) for n, wanted in zip(x.shape, shape, strict=True))]
    if part.shape == tuple(shape):
        return part
    padded = new_like(x, tuple(shape), x.dtype)
    padded[...] = 0
    _core.copy_into(padded[tuple(slice(n) for n in part.shape)], part, where="fft", uncounted=True)
    return padded


def _run(x: Any, axes: list[int], shape: tuple[int, ...], dtype: Any, inverse: bool) -> Any:
    """Return the transform along up to three axes, as an array of that shape and dtype."""
    out = new_like(x, tuple(shape), dtype)
    if not math.prod(shape):
        return out
    load()
    order = (*(i for i in range(x.ndim) if i not in axes), *axes)
    moved, target = x.transpose(order), out.transpose(order)
    if _core._fft_transform(moved, target, len(axes), inverse, "fft"):
        return out
    packed = new_like(x, target.shape, dtype)
    _core._fft_transform(moved.copy("C"), packed, len(axes), inverse, "fft")
    back = tuple(order.index(i) for i in range(x.ndim))
    return packed.transpose(back)
