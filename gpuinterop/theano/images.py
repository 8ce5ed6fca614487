"""Convolutions and pooling of images: the elements under each position of a window, and their product or maximum.

The classes are Theano's operations, which are called with the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.raise_op import Assert

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
    if border_mode is None or (isinstance(border_mode, str) and border_mode not in modes):
        raise ValueError(
            f"conv2d: border_mode={border_mode!r}: expected 'valid', 'full', 'half', an int or a pair of ints"
        )
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


class Pool:
    """Pooling with windows of one size."""

    def __init__(
        self,
        ds: Any,
        ignore_border: bool = False,
        st: Any = None,
        padding: Any = (0, 0),
        mode: str = "max",
    ) -> None:
        self.arguments = ds, ignore_border, st, padding, mode

    def __call__(self, x: Any) -> Any:
        """Return the maximum, the sum or the mean under each position of the window."""
        return pool_2d(x, *self.arguments)


def conv2d_grad_wrt_inputs(output_grad: Any, filters: Any, input_shape: Any, filter_shape: Any = None,
                           *rest: Any, **options: Any) -> Any:  # fmt: skip
    """Return the gradient of `conv2d` with respect to the images, for that with respect to its result."""
    top, filters = pt.as_tensor_variable(output_grad), pt.as_tensor_variable(filters)
    known = top.shape[0], filters.shape[1], None, None
    x = pt.zeros(
        [n if n is not None else k for n, k in zip(input_shape, known, strict=True)], top.dtype
    )
    found = conv2d(x, filters, None, filter_shape, *rest, **options)
    return grad(None, x, known_grads={found: top})


def conv2d_grad_wrt_weights(input: Any, output_grad: Any, filter_shape: Any, input_shape: Any = None,
                            *rest: Any, **options: Any) -> Any:  # fmt: skip
    """Return the gradient of `conv2d` with respect to the filters, for that with respect to its result."""
    x, top = pt.as_tensor_variable(input), pt.as_tensor_variable(output_grad)
    known = top.shape[1], x.shape[1], None, None
    shape = [n if n is not None else k for n, k in zip(filter_shape, known, strict=True)]
    filters = pt.zeros(shape, top.dtype)
    found = conv2d(x, filters, None, shape, *rest, **options)
    return grad(None, filters, known_grads={found: top})


class BaseAbstractConv2d:
    """The options of a convolution and of its gradients."""

    def __init__(self, imshp: Any = None, kshp: Any = None, border_mode: Any = "valid",
                 subsample: Sequence[int] = (1, 1), filter_flip: bool = True) -> None:  # fmt: skip
        self.shapes = imshp, kshp
        self.options = {
            "border_mode": border_mode,
            "subsample": subsample,
            "filter_flip": filter_flip,
        }


class AbstractConv2d(BaseAbstractConv2d):
    """Convolution with options."""

    def __call__(self, img: Any, kern: Any) -> Any:
        """Return `conv2d` of images and filters."""
        return conv2d(img, kern, *self.shapes, **self.options)


class AbstractConv2d_gradInputs(BaseAbstractConv2d):
    """The gradient of the convolution with respect to the images."""

    def __call__(self, kern: Any, topgrad: Any, shape: Any) -> Any:
        """Return the gradient of images whose height and width are `shape`."""
        height_and_width = shape[0], shape[1]
        return conv2d_grad_wrt_inputs(
            topgrad, kern, (None, None, *height_and_width), self.shapes[1], **self.options
        )


class AbstractConv2d_gradWeights(BaseAbstractConv2d):
    """The gradient of the convolution with respect to the filters."""

    def __call__(self, img: Any, topgrad: Any, shape: Any) -> Any:
        """Return the gradient of filters whose height and width are `shape`."""
        return conv2d_grad_wrt_weights(
            img, topgrad, (None, None, shape[0], shape[1]), **self.options
        )


class GpuCorrMM(AbstractConv2d):
    """Correlation: the filters are not reversed."""

    def __init__(
        self, border_mode: Any = "valid", subsample: Sequence[int] = (1, 1), pad: Any = (0, 0)
    ) -> None:
        border = pad if border_mode == "valid" else border_mode
        super().__init__(border_mode=border, subsample=subsample, filter_flip=False)


def get_conv_output_shape(
    image_shape: Any, kernel_shape: Any, border_mode: Any, subsample: Any
) -> tuple[Any, ...]:
    """Return the shape of a convolution; lengths that are not known are None."""
    pads = (border_mode,) * len(subsample) if isinstance(border_mode, (str, int)) else border_mode
    lengths = (
        None
        if n is None or k is None
        else (n + 2 * {"valid": 0, "half": k // 2, "full": k - 1}.get(p, p) - k) // s + 1
        for n, k, p, s in zip(image_shape[2:], kernel_shape[2:], pads, subsample, strict=True)
    )
    return (image_shape[0], kernel_shape[0], *lengths)


def conv3d(signals: Any, filters: Any, signals_shape: Any = None, filters_shape: Any = None,
           border_mode: Any = "valid") -> Any:  # fmt: skip
    """Return the convolution of films with films (film, time, channel, height, width); its length is "valid"."""
    time, rows, columns = (border_mode,) * 3 if isinstance(border_mode, str) else border_mode
    if time != "valid" or rows != columns:
        raise NotImplementedError(
            f"conv3d: border_mode={border_mode}: expected 'valid' for the time, and one mode for images"
        )
    x, w = pt.as_tensor_variable(signals), pt.as_tensor_variable(filters)
    films, length, channels, height, width = x.shape if signals_shape is None else signals_shape
    count, steps, _, *window = w.shape if filters_shape is None else filters_shape
    positions = length - steps + 1
    # The images under a filter are the channels of one image, which is convolved with the images of the filter.
    parts = x[:, pt.arange(positions)[:, None] + pt.arange(steps)]
    parts = parts.reshape((films * positions, steps * channels, height, width))
    weights = w[:, ::-1].reshape((count, steps * channels, *window))
    found = conv2d(parts, weights, None, (count, steps * channels, *window), border_mode=rows)
    return found.reshape((films, positions, count, found.shape[2], found.shape[3]))


def signal_conv2d(input: Any, filters: Any, image_shape: Any = None, filter_shape: Any = None,
                  border_mode: Any = "valid", subsample: Sequence[int] = (1, 1), **_: Any) -> Any:  # fmt: skip
    """Return the convolutions of an image, or some, with a filter, or some: all have one channel."""
    x, w = pt.as_tensor_variable(input), pt.as_tensor_variable(filters)
    images, planes = (
        v.dimshuffle(0, "x", 1, 2) if v.ndim == 3 else v.dimshuffle("x", "x", 0, 1) for v in (x, w)
    )
    found = conv2d(images, planes, border_mode=border_mode, subsample=subsample)
    one = {axis for axis, v in enumerate((x, w)) if v.ndim == 2}
    return found[tuple(0 if axis in one else slice(None) for axis in range(4))]


def images2neibs(ten4: Any, neib_shape: Any, neib_step: Any = None, mode: str = "valid") -> Any:
    """Return the elements under each position of a window, a row for each: by image, channel and position."""
    if mode not in ("valid", "ignore_borders"):
        raise NotImplementedError(
            f"images2neibs: mode={mode!r}: expected 'valid' or 'ignore_borders'"
        )
    x = pt.as_tensor_variable(ten4)
    window = neib_shape[0], neib_shape[1]
    step = window if neib_step is None else (neib_step[0], neib_step[1])
    taken, _ = _windows(x, window, step)
    size = window[0] * window[1]
    if mode == "valid":  # the check is of a number, so that the images stay on the device
        fits = [pt.eq((x.shape[2 + i] - window[i]) % step[i], 0) for i in range(2)]
        size = Assert("images2neibs: mode='valid': the windows do not cover the images")(
            size, *fits
        )
    return taken.dimshuffle(2, 3, 0, 1).reshape((-1, size))


def neibs2images(neibs: Any, neib_shape: Any, original_shape: Any, mode: str = "valid") -> Any:
    """Return the images of adjacent windows; with "ignore_borders" other elements are 0."""
    x, (height, width) = pt.as_tensor_variable(neibs), (neib_shape[0], neib_shape[1])
    images, channels, *size = (original_shape[i] for i in range(4))
    rows, columns = size[0] // height, size[1] // width
    parts = x.reshape((images, channels, rows, columns, height, width)).dimshuffle(0, 1, 2, 4, 3, 5)
    found = parts.reshape((images, channels, rows * height, columns * width))
    return (
        _padded(found, (0, 0), [n - m for n, m in zip(size, found.shape[2:], strict=True)])
        if mode != "valid"
        else found
    )


def dnn_conv(img: Any, kerns: Any, border_mode: Any = "valid", subsample: Sequence[int] = (1, 1),
             conv_mode: str = "conv", *_: Any, **__: Any) -> Any:  # fmt: skip
    """Return `conv2d`, or the correlation for the mode "cross"."""
    return conv2d(img, kerns, None, None, border_mode, subsample, conv_mode == "conv")


def dnn_pool(img: Any, ws: Any, stride: Any = (1, 1), mode: str = "max", pad: Any = (0, 0)) -> Any:
    """Return `pool_2d` without windows that are partly outside."""
    mode = "average_inc_pad" if mode == "average" else mode
    return pool_2d(img, ws, True, stride, pad, mode)
