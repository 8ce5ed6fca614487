"""Convolutions and pooling of images: the elements under each position of a window, and their product or maximum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt

__all__ = ["conv2d", "max_pool_2d", "pool_2d"]


def _windows(x: Any, window: Sequence[Any], step: Sequence[Any]) -> tuple[Any, tuple[Any, Any]]:
    """Return the elements under a window, (positions, elements, images, channels), and the shape of the positions."""
    (images, channels, *size), w = x.shape, x.shape[3]
    rows, columns = ((size[i] - window[i]) // step[i] + 1 for i in range(2))
    if tuple(step) == tuple(window):  # no overlap: the gradient then adds nothing up
        parts = x[:, :, : rows * step[0], : columns * step[1]].reshape(
            (images, channels, rows, step[0], columns, step[1])
        )
        parts = parts.dimshuffle(2, 4, 3, 5, 0, 1)
        return parts.reshape((rows * columns, step[0] * step[1], images, channels)), (rows, columns)
    first = pt.arange(rows)[:, None] * (step[0] * w) + pt.arange(columns) * step[1]
    offset = pt.arange(window[0])[:, None] * w + pt.arange(window[1])
    index = (first.reshape((-1, 1)) + offset.reshape((1, -1))).flatten()
    planes = x.reshape((images * channels, size[0] * size[1])).T
    return planes[index].reshape((rows * columns, window[0] * window[1], images, channels)), (
        rows,
        columns,
    )


def _padded(x: Any, before: Sequence[Any], after: Sequence[Any], value: float = 0) -> Any:
    """Return images with rows and columns of a value around them."""
    if tuple(before) == tuple(after) == (0, 0):
        return x
    h, w = x.shape[2], x.shape[3]
    shape = x.shape[0], x.shape[1], h + before[0] + after[0], w + before[1] + after[1]
    frame = pt.alloc(np.asarray(value, x.dtype), *shape)
    return pt.set_subtensor(frame[:, :, before[0] : before[0] + h, before[1] : before[1] + w], x)


def conv2d(input: Any, filters: Any, input_shape: Any = None, filter_shape: Any = None, border_mode: Any = "valid",
           subsample: Sequence[int] = (1, 1), filter_flip: bool = True, **_: Any) -> Any:  # fmt: skip
    """Return the convolutions of images with filters: a gather and a matrix product."""
    x, filters = pt.as_tensor_variable(input), pt.as_tensor_variable(filters)
    known = filter_shape or [None] * 4  # None: the length of the filters
    count, _, *window = (filters.shape[i] if n is None else n for i, n in enumerate(known))
    modes: dict[str, Any] = {
        "valid": 0,
        "full": [n - 1 for n in window],
        "half": [n // 2 for n in window],
    }
    pad: Any = modes[border_mode] if isinstance(border_mode, str) else border_mode
    if pad:
        pad = [pad, pad] if isinstance(pad, int) else pad
        x = _padded(x, pad, pad)
    taken, positions = _windows(x, window, subsample)
    n, size, images, channels = taken.shape
    columns = taken.dimshuffle(0, 2, 3, 1).reshape((n * images, channels * size))
    weights = filters[:, :, ::-1, ::-1] if filter_flip else filters
    found = pt.dot(columns, weights.reshape((count, channels * size)).T).reshape((n, images, count))
    return found.dimshuffle(1, 2, 0).reshape((images, count, *positions))


def pool_2d(input: Any, ds: Any = None, ignore_border: Any = None, st: Any = None, padding: Any = (0, 0),
            mode: str = "max", ws: Any = None, stride: Any = None, pad: Any = None) -> Any:  # fmt: skip
    """Return the maximum, the sum or the mean under each position of a window over the last two axes."""
    window = ds or ws
    step, before = st or stride or window, pad or padding
    x = pt.as_tensor_variable(input)
    leading = [x.shape[i] for i in range(x.ndim - 2)]
    x = x.reshape((-1, 1, x.shape[x.ndim - 2], x.shape[x.ndim - 1]))
    after = before
    if not ignore_border:
        after = [_border(x.shape[2 + i], window[i], step[i]) for i in range(2)]
    counted = mode.startswith("average") and not (ignore_border and mode == "average_inc_pad")
    if counted:
        x = pt.concatenate([x, pt.ones_like(x)], axis=1)
    x = _padded(x, before, after, -np.inf if mode == "max" else 0)
    taken, positions = _windows(x, window, step)
    found = taken.max(axis=1) if mode == "max" else taken.sum(axis=1)
    if mode.startswith("average"):
        found = found[:, :, :1] / (found[:, :, 1:] if counted else window[0] * window[1])
    return found[:, :, 0].T.reshape((*leading, *positions))


def _border(n: Any, window: int, step: int) -> Any:
    """Return how many elements are missing at the end of an axis, where windows that are partly outside count."""
    steps = (n - 1) // step if step >= window else -(-pt.maximum(n - window, 0) // step)
    return pt.maximum(steps * step + window - n, 0)


max_pool_2d = pool_2d
