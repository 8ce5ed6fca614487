"""Fourier transforms, with numpy.fft's names: NumPy's functions on "cpu", cuFFT on CUDA.

float32 and complex64 are transformed in single precision, integers as float64. The transforms are queued on the
current stream. Plans are kept, and their work areas are memory of the package's allocator.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.devices import default_device
from gpuinterop.elementwise.calls import FUNCTIONS, call
from gpuinterop.elementwise.missing_names import missing_name
from gpuinterop.elementwise.results import check_out, plain
from gpuinterop.errors import ArgumentTypeError, BoundsError, ShapeError, short_repr
from gpuinterop.errors.messages import not_one_of
from gpuinterop.index.join_split import concatenate
from gpuinterop.numpy_calls.submodules import by_device

from . import cufft

__all__ = """
    fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2 rfftfreq rfftn
""".split()


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    raise missing_name(f"gpuinterop.fft.{name}", name, __all__)


# ---- arguments ------------------------------------------------------------------------------------


_INVERSE_NORMS = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _require_norm(norm: Any) -> None:
    if norm is not None and norm not in _INVERSE_NORMS:
        raise not_one_of("fft", "norm", tuple(_INVERSE_NORMS), norm, error=ShapeError)


def _factor(norm: str | None, inverse: bool, count: int) -> float:
    """Return what a transform of `count` points multiplies its result by."""
    if norm == "ortho":
        return 1 / math.sqrt(count)
    return 1 / count if inverse == (norm != "forward") else 1


def _axes_and_lengths(x: Any, s: Any, axes: Any) -> tuple[list[int], list[int]]:
    """Return the axes, counted from 0, and for each the number of points, -1 for those of the array."""
    if axes is None:
        chosen = list(range(x.ndim)) if s is None else list(range(x.ndim - len(s), x.ndim))
    else:
        chosen = list(_core.read_ints(axes, "fft", "axes"))
    chosen = [_core.read_axis(axis, x.ndim, "fft") for axis in chosen]
    lengths = [-1] * len(chosen) if s is None else list(_core.read_ints(s, "fft", "lengths"))
    for n in lengths:
        if n < 1 and n != -1:
            raise cufft.too_short(n)
    if len(lengths) != len(chosen) or len(set(chosen)) != len(chosen) or not chosen:
        raise ShapeError(
            where="fft", expected="different axes, and a length for each",
            got=f"s={short_repr(s)}, axes={short_repr(axes)}",
            fix="pass axes and s of one length",
        )  # fmt: skip
    if s is not None:
        lengths = [x.shape[axis] if n == -1 else n for axis, n in zip(chosen, lengths, strict=True)]
    return chosen, lengths


def _several(name: str, a: Any, s: Any, axes: Any, norm: Any, out: Any) -> Any:
    """Transform along axes: `name` is that of the function, for the dtypes and the direction."""
    axes, lengths = _axes_and_lengths(a, s, axes)
    inverse, real = name[0] == "i", "r" in name.partition("f")[0]
    found = (
        cufft.to_real if inverse and real else cufft.from_real if real else cufft.complex_numbers
    )(a, axes, lengths, inverse)
    points = math.prod(
        (found if inverse or not real else a).shape[i] if n < 0 or (inverse and real) else n
        for i, n in zip(axes, lengths, strict=True)
    )
    factor = _factor(norm, inverse, points)
    if factor != 1:
        found = FUNCTIONS["multiply"](found, factor, out=found)
    if out is None:
        return found
    check_out(out, found.shape, found.dtype, found, "fft")
    plain(out)[...] = found
    return out


def _one(name: str, a: Any, n: Any, axis: Any, norm: Any, out: Any) -> Any:
    return _several(name, a, None if n is None else (n,), (axis,), norm, out)


def _one_axis(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: Any = None) -> None:
    _several_axes(a, None if n is None else (n,), (axis,), norm)
    if n is not None and n < 1:  # -1 counts in `s` alone
        raise cufft.too_short(n)


def _several_axes(
    a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None
) -> None:
    _require_norm(norm)
    for axis, length in zip(*_axes_and_lengths(a, s, axes), strict=True):
        if (a.shape[axis] if length < 0 else length) < 1:
            raise cufft.too_short(0)


def _two_axes(
    a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None
) -> None:
    _several_axes(a, s, axes, norm)


def _shift_axes(x: Any, axes: Any = None) -> None:
    if axes is not None:
        _axes_and_lengths(x, None, axes)


_by_device = partial(by_device, np.fft)
_by_pieces = _by_device(own=True, usual=True, check=_shift_axes)  # for any dtype
_along_one = _by_device(check=_one_axis)


# ---- transforms -----------------------------------------------------------------------------------


# name | what it returns, and in the next line an example: the argument = the value.
_TABLE = """
fft | Return the Fourier transform along `axis`, of `n` points: the axis is cut or padded with zeros.
    [1.0, 0.0] = [(1+0j), (1+0j)]
ifft | Return the inverse of fft.
    [2.0, 0.0] = [(1+0j), (1+0j)]
rfft | Return the first half of the Fourier transform of real numbers: ``n // 2 + 1`` values.
    [1.0, 0.0] = [(1+0j), (1+0j)]
irfft | Return the inverse of rfft: `n` real numbers, by default ``2 * (m - 1)`` of m values.
    [1.0, 1.0] = [1.0, 0.0]
fft2 | Return the Fourier transform along two axes; see fftn.
    [[1.0]] = [[(1+0j)]]
ifft2 | Return the inverse of fft2.
    [[1.0]] = [[(1+0j)]]
rfft2 | Return the first half of the Fourier transform of real numbers along two axes.
    [[1.0]] = [[(1+0j)]]
irfft2 | Return the inverse of rfft2.
    [[1.0, 1.0]] = [[1.0, 0.0]]
fftn | Return the Fourier transform along `axes`, by default all, of `s` points each.
    [[1.0]] = [[(1+0j)]]
ifftn | Return the inverse of fftn.
    [[1.0]] = [[(1+0j)]]
rfftn | Return the Fourier transform of real numbers along `axes`: the first half along the last of them.
    [[1.0]] = [[(1+0j)]]
irfftn | Return the inverse of rfftn.
    [[1.0, 1.0]] = [[1.0, 0.0]]
"""


def _transform(row: str, example: str) -> Any:
    """Return a transform along one axis, along two ("2" in its name), or along several ("n")."""
    name, summary = row.split(" | ")

    def along_one(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
        return _one(name, a, n, axis, norm, out)

    def along_two(
        a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None
    ) -> Any:
        return _several(name, a, s, axes, norm, out)

    def along_several(
        a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None
    ) -> Any:
        return _several(name, a, s, axes, norm, out)

    forms: dict[str, tuple[Any, Any]] = {
        "2": (along_two, _two_axes), "n": (along_several, _several_axes)
    }  # fmt: skip
    function, check = forms.get(name[-1], (along_one, _one_axis))
    function.__name__ = function.__qualname__ = name
    argument, value = example.strip().split(" = ")
    function.__doc__ = (
        f"{summary}\n\nExamples\n--------\n>>> import gpuinterop\n"
        f">>> gpuinterop.fft.{name}({argument}).tolist()\n{value}\n"
    )
    return _core.served(_by_device(check=check)(function))


_lines = _TABLE.strip().splitlines()
fft, ifft, rfft, irfft, fft2, ifft2, rfft2, irfft2, fftn, ifftn, rfftn, irfftn = map(
    _transform, _lines[::2], _lines[1::2]
)


@_along_one
def hfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    """Return the real Fourier transform of values that are the first half of a Hermitian sequence.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.fft.hfft([1.0, 0.0]).tolist()
    [1.0, 1.0]
    """
    swapped = _INVERSE_NORMS[norm or "backward"]
    return _one("irfft", FUNCTIONS["conjugate"](a), n, axis, swapped, out)


@_along_one
def ihfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    """Return the inverse of hfft.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.fft.ihfft([1.0, 1.0]).tolist()
    [(1-0j), -0j]
    """
    swapped = _INVERSE_NORMS[norm or "backward"]
    found = _one("rfft", a, n, axis, swapped, out)
    return FUNCTIONS["conjugate"](found, out=found)


# ---- frequencies and their order --------------------------------------------------------------------


def _shifted(x: Any, axes: Any, back: bool) -> Any:
    chosen = range(x.ndim) if axes is None else _core.read_ints(axes, "fft", "axes")
    for given in chosen:
        axis = _core.read_axis(given, x.ndim, "fft")
        half = x.shape[axis] // 2
        cut = half if back else x.shape[axis] - half
        before = (slice(None),) * axis
        end, start = (*before, slice(cut, None)), (*before, slice(cut))
        x = concatenate([x[end], x[start]], axis)
    return x


@_core.served
@_by_pieces
def fftshift(x: Any, axes: Any = None) -> Any:
    """Return the values with that of frequency 0 in the middle of each axis.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.fft.fftshift([0.0, 1.0, -1.0]).tolist()
    [-1.0, 0.0, 1.0]
    """
    return _shifted(x, axes, False)


@_core.served
@_by_pieces
def ifftshift(x: Any, axes: Any = None) -> Any:
    """Return the inverse of fftshift.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.fft.ifftshift([-1.0, 0.0, 1.0]).tolist()
    [0.0, 1.0, -1.0]
    """
    return _shifted(x, axes, True)


def frequencies(name: str, n: Any, d: Any) -> Any:
    """Return the result of np.fft.fftfreq or np.fft.rfftfreq; raise for arguments that it refuses."""
    try:
        return getattr(np.fft, name)(n, d)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise (ArgumentTypeError if isinstance(error, TypeError) else BoundsError)(
            where=f"fft.{name}", expected="one sample or more, at a distance d other than 0",
            got=f"n={short_repr(n)}, d={short_repr(d)}", fix="pass the number of samples as an int, and d as a float",
        ) from None  # fmt: skip


def _on_device(found: np.ndarray[Any, Any], device: Any) -> Any:
    if device is None and default_device().type == "cpu":
        return _core.import_any(_core.gpuarray_class(), found)
    return plain(call("asarray", found, device=device))


def fftfreq(n: int, d: Any = 1.0, device: Any = None) -> Any:
    """Return the frequencies of the values of fft, for samples that are `d` apart: float64 on the default device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.fft.fftfreq(2).tolist()
    [0.0, -0.5]
    """
    return _on_device(frequencies("fftfreq", n, d), device)


def rfftfreq(n: int, d: Any = 1.0, device: Any = None) -> Any:
    """Return the frequencies of the values of rfft; see fftfreq.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.fft.rfftfreq(2).tolist()
    [0.0, 0.5]
    """
    return _on_device(frequencies("rfftfreq", n, d), device)
