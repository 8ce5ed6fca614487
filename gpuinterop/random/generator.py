"""Generator: fills arrays with random numbers, on the host by the core and on a GPU by a kernel of the same text."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

import gpuinterop.devices as devices
from gpuinterop import _core
from gpuinterop.arrays.core_view import class_for, core_view
from gpuinterop.arrays.dtypes import STORAGE, as_supported_dtype
from gpuinterop.devices import resolve_device
from gpuinterop.elementwise import results
from gpuinterop.elementwise.calls import FUNCTIONS
from gpuinterop.elementwise.functions import cast
from gpuinterop.errors import (
    ArgumentTypeError,
    BoundsError,
    CaptureError,
    ConversionTypeError,
    DTypeError,
    RangeError,
    ShapeError,
    short_repr,
    type_name,
)
from gpuinterop.errors.arguments import checks_arguments, is_index, require_bool, require_int
from gpuinterop.errors.messages import devices_differ, missing_name, not_an_array
from gpuinterop.exchange.incoming import copy_of_value
from gpuinterop.index.masks import may_wait
from gpuinterop.index.take_put import take
from gpuinterop.jit import kernel_text
from gpuinterop.jit.compiler import kernels_of
from gpuinterop.jit.texts import program

from .philox import Philox

UNIFORM, NORMAL, INTEGERS = range(3)  # as Numbers of native/random/fill.cpp
_THREADS, _EACH = 256, 4  # threads of a block, and blocks of Philox that a thread computes
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
# By how much a sum of probabilities may differ from 1, by the bytes of one: about the square root of their precision.
_ROUNDED = {2: 0.1, 4: 4e-4}
# The usual ways to write a dtype, because reading any other one costs microseconds.
_FLOATS: dict[Any, np.dtype[Any]] = {
    None: _FLOAT32, "float32": _FLOAT32, np.float32: _FLOAT32, _FLOAT32: _FLOAT32,
    "float64": _FLOAT64, np.float64: _FLOAT64, _FLOAT64: _FLOAT64, float: _FLOAT64,
}  # fmt: skip


@checks_arguments()
def default_rng(seed: Any = None, *, device: Any = None) -> Generator:
    """Return a `Generator` of random numbers on a device, by default `default_device()`.

    A seed gives the same bits on every device, for uniform and normal numbers and for integers. They are not
    the numbers that NumPy draws from the seed. `seed` may also be a `Philox` or a `Generator`.

    Examples
    --------
    >>> import gpuinterop
    >>> rng = gpuinterop.random.default_rng(5, device="cpu")
    >>> again = gpuinterop.random.default_rng(5, device="cpu")
    >>> rng.random(3).tolist() == again.random(3).tolist()
    True
    """
    if isinstance(seed, Generator) and device is None:
        return seed
    bits = seed.bit_generator if isinstance(seed, Generator) else seed
    return Generator(bits if isinstance(bits, Philox) else Philox(bits), device=device)


# What other libraries' functions are called here.
_OTHER_NAMES = {
    "rand": "random(shape)", "randn": "standard_normal(shape)", "randint": "integers(low, high, shape)",
    "sample": "random(shape)", "random_sample": "random(shape)", "randperm": "permutation(n)",
}  # fmt: skip


def missing_function(where: str, name: str) -> AttributeError:
    """Return the error for a name that `where`, the module or a generator, lacks."""
    if name.startswith("_"):
        return AttributeError(f"{where} has no attribute {name!r}")
    rng = "rng" if where == "rng" else "gpuinterop.random.default_rng(seed)"
    call = _OTHER_NAMES.get(name, f"{name}(...)" if hasattr(Generator, name) else "")
    if call:
        fix = f"write {rng}.{call}; "
    elif hasattr(np.random.Generator, name):
        fix = f"draw on the host: gpuinterop.asarray(numpy.random.default_rng(seed).{name}(...)); "
    else:
        fix = f"write {rng}; " * (name in ("seed", "manual_seed", "RandomState"))
    error: AttributeError = missing_name(f"{where}.{name}", name, fix)
    return error


class Generator:
    """Random numbers on one device, by the names and arguments of ``numpy.random.Generator``.

    Each call returns a new array that owns its memory, or fills ``out=``; the work is queued on the current
    stream. Floats are float32 unless `dtype` says float64; without `size` the result is 0-d. Each
    call begins with a new block of Philox. A capture refuses it, because each replay would repeat its numbers.

    Examples
    --------
    >>> import gpuinterop
    >>> rng = gpuinterop.random.default_rng(0, device="cpu")
    >>> rng.standard_normal((2, 3)).shape, rng.device
    ((2, 3), Device('cpu'))
    """

    __slots__ = ("_device", "bit_generator")

    def __init__(self, bit_generator: Philox, *, device: Any = None) -> None:
        if not isinstance(bit_generator, Philox):
            raise ArgumentTypeError(
                where="Generator", expected="a gpuinterop.random.Philox", got=type_name(bit_generator),
                fix="call gpuinterop.random.default_rng(seed)",
            )  # fmt: skip
        self.bit_generator = bit_generator
        self._device = (
            devices.default_device() if device is None else resolve_device(device, "default_rng")
        )

    def __getattr__(self, name: str) -> Any:
        raise missing_function("rng", name)

    @property
    def device(self) -> Any:
        """The device of the arrays."""
        return self._device

    def __repr__(self) -> str:
        return f"Generator(Philox) on {self._device}"

    def spawn(self, n_children: int) -> list[Generator]:
        """Return new generators on this device, with sequences independent of this one and of each other.

        Examples
        --------
        >>> import gpuinterop
        >>> len(gpuinterop.random.default_rng(0, device="cpu").spawn(2))
        2
        """
        return [
            Generator(bits, device=self._device) for bits in self.bit_generator.spawn(n_children)
        ]

    # ---- floats ----------------------------------------------------------------------------------

    @_core.served
    def random(self, size: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """Return uniform numbers from 0 to below 1: multiples of 2^-24 in float32, of 2^-53 in float64.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.random.default_rng(0, device="cpu").random(1000)
        >>> bool(((x >= 0) & (x < 1)).all())
        True
        """
        return self._floats(UNIFORM, size, dtype, out, "random")

    def uniform(
        self, low: float = 0.0, high: float = 1.0, size: Any = None, dtype: Any = None, out: Any = None
    ) -> Any:  # fmt: skip
        """Return uniform numbers from `low` to `high`, which rounding may reach.

        They are low + (high - low) * random(), rounded once.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.random.default_rng(0, device="cpu").uniform(-1, 1, 1000)
        >>> bool((abs(x) <= 1).all())
        True
        """
        first = _as_float(low, "low", "uniform")
        span = _as_float(high, "high", "uniform") - first
        if math.isinf(span):
            raise RangeError(where="uniform", expected="high - low that float64 holds",
                             got=f"{short_repr(high)} - {short_repr(low)}", fix="pass closer bounds")  # fmt: skip
        return self._floats(UNIFORM, size, dtype, out, "uniform", first, span)

    @_core.served
    def standard_normal(self, size: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """Return normal numbers of mean 0 and standard deviation 1, by the method of Box and Muller.

        They are the same bits on every device. In float32 they lie within 6.8, in float64 within 8.6.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.random.default_rng(0, device="cpu").standard_normal(10000)
        >>> abs(float(x.mean())) < 0.05, abs(float(x.std()) - 1) < 0.05
        (True, True)
        """
        return self._floats(NORMAL, size, dtype, out, "standard_normal")

    def normal(
        self, loc: float = 0.0, scale: float = 1.0, size: Any = None, dtype: Any = None, out: Any = None
    ) -> Any:  # fmt: skip
        """Return normal numbers of mean `loc` and standard deviation `scale`.

        They are loc + scale * standard_normal(), rounded once.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.random.default_rng(0, device="cpu").normal(5, 2, 10000)
        >>> abs(float(x.mean()) - 5) < 0.1
        True
        """
        spread = _as_float(scale, "scale", "normal")
        if spread < 0:
            raise BoundsError(where="normal", expected="scale of 0 or more", got=short_repr(scale),
                             fix="pass the standard deviation")  # fmt: skip
        return self._floats(
            NORMAL, size, dtype, out, "normal", _as_float(loc, "loc", "normal"), spread
        )

    def _floats(
        self, kind: int, size: Any, dtype: Any, out: Any, where: str, shift: float = 0.0,
        scale: float = 1.0,
    ) -> Any:  # fmt: skip
        wanted = _float_dtype(dtype, where)
        if out is None:
            target = made = self._empty(size, wanted, where)
        else:
            made, target = (
                out,
                self._checked_out(out, size, None if dtype is None else wanted, where),
            )
            wanted = target.dtype
        single = wanted is _FLOAT32
        if single and (shift or scale != 1.0):
            shift, scale = _as_float32(shift, where), _as_float32(scale, where)
        numbers = target.size
        if numbers:
            state = self.bit_generator.take(-(-numbers // (4 if single else 2)))
            if self._device.type == "cpu":
                _core._random_fill(target, kind, state, shift=shift, scale=scale, where=where)
            else:
                form = "<Qq96s2f" if single else "<Qq96s2d"
                params = struct.pack(form, target.ptr, numbers, state, shift, scale)
                name = ("float32" if single else "float64", shift != 0 or scale != 1)
                self._launch(kind, name, numbers, params, target)
        if out is not None:
            _write_back(made, target, where)
        return made

    # ---- integers --------------------------------------------------------------------------------

    @_core.served
    def integers(
        self, low: int, high: int | None = None, size: Any = None, dtype: Any = np.int64,
        endpoint: bool = False,
    ) -> Any:  # fmt: skip
        """Return integers from `low` to below `high`, or to `high` with `endpoint`; from 0 with one bound.

        Each integer has the same probability. They are not those that NumPy draws from the same seed.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.random.default_rng(0, device="cpu").integers(1, 6, 1000, endpoint=True)
        >>> int(x.min()), int(x.max())
        (1, 6)
        """
        wanted = as_supported_dtype(dtype, "integers")
        if wanted.kind not in "iub" or wanted.isbuiltin != 1:
            raise DTypeError(where="integers", expected="an integer dtype, or bool", got=str(wanted),
                             fix="cast the result: rng.integers(n, size=k).astype('float32')")  # fmt: skip
        endpoint = require_bool(endpoint, "endpoint", "integers")
        first, last = (0, low) if high is None else (low, high)
        first = require_int(first, "low", "integers")
        last = require_int(last, "low" if high is None else "high", "integers") - (not endpoint)
        least, most = _limits(wanted)
        if first > last:
            raise BoundsError(where="integers", expected="low below high, or equal with endpoint=True",
                             got=f"low {first}, high {last + (not endpoint)}",
                             fix="pass the lower bound first")  # fmt: skip
        if first < least or last > most:
            raise RangeError(where="integers", expected=f"bounds that {wanted} holds",
                             got=f"integers from {first} to {last}", fix="pass a wider dtype")  # fmt: skip
        target = self._empty(size, wanted, "integers")
        self._fill_integers(target, first, last - first + 1)
        return target

    def _fill_integers(self, target: Any, first: int, count: int) -> None:
        """Fill an array with `count` different integers, from `first` on."""
        numbers, words = target.size, 1 << 64
        if not numbers:
            return
        state = self.bit_generator.take(-(-numbers // 2))
        low, span, least = first % words, count % words, words % count
        if self._device.type == "cpu":
            _core._random_fill(target, INTEGERS, state, low, span, least, where="integers")
            return
        params = struct.pack("<Qq96s3Q", target.ptr, numbers, state, low, span, least)
        self._launch(INTEGERS, (f"u{8 * target.itemsize}", False), numbers, params, target)

    # ---- orders and choices ----------------------------------------------------------------------

    @_core.served
    def permutation(self, x: Any, axis: int = 0) -> Any:
        """Return the ints below `x` in random order, or a copy of an array with its rows in random order.

        The order is that of random 64-bit keys.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.random.default_rng(0, device="cpu").permutation(10)
        >>> sorted(x.tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        """
        if _is_count(x):
            return self._order(_as_count(x, "permutation"), "permutation")
        array = self._own(x, "x", "permutation")
        along = _core.read_axis(axis, array.ndim, "permutation")
        return take(array, self._order(array.shape[along], "permutation"), along)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Put the rows of an array in random order, in place.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.arange(5, device="cpu")
        >>> gpuinterop.random.default_rng(0, device="cpu").shuffle(x)
        >>> sorted(x.tolist())
        [0.0, 1.0, 2.0, 3.0, 4.0]
        """
        if not isinstance(x, _core.Array):
            raise not_an_array("shuffle", "x", type_name(x))
        x[...] = self.permutation(x, axis)

    def choice(
        self, a: Any, size: Any = None, replace: bool = True, p: Any = None, axis: int = 0
    ) -> Any:
        """Return random rows of an array, or random ints below `a`, with the probabilities `p`.

        Without `replace` each row is chosen at most once. A `p` on the host is checked. On a GPU it is not, because
        that would wait: it is divided by its sum, and without `replace` rows of probability 0 are chosen where too
        few others are left.

        Examples
        --------
        >>> import gpuinterop
        >>> rng = gpuinterop.random.default_rng(0, device="cpu")
        >>> len(set(rng.choice(10, 4, replace=False).tolist()))
        4
        """
        replace = require_bool(replace, "replace", "choice")
        array = None if _is_count(a) else self._own(a, "a", "choice")
        along = 0 if array is None else _core.read_axis(axis, array.ndim, "choice")
        count = _as_count(a, "choice") if array is None else array.shape[along]
        shape = () if size is None else _core.read_ints(size, "choice", "size")
        wanted = math.prod(shape)
        if wanted and (not count or (not replace and wanted > count)):
            fix = "pass replace=True, or a smaller size" if count else "choose from one row or more"
            raise ShapeError(
                where="choice", expected=f"at most {count} rows", got=f"{wanted} rows", fix=fix
            )
        weights = None if p is None else self._weights(p, count, 0 if replace else wanted)
        if not replace:
            places = self._order(count, "choice", weights)[:wanted].reshape(shape)
        elif weights is None:
            places = self.integers(0, max(count, 1), shape)
        else:
            sums = np.cumsum(weights)
            places = np.searchsorted(sums / sums[-1:], self.random(shape, "float64"), side="right")
        return places if array is None else take(array, places, along)

    @_core.served
    def _order(self, count: int, where: str, weights: Any = None) -> Any:
        """Return the ints below `count` in random order; those of larger weight come earlier."""
        if weights is None:
            keys = self._empty((count,), np.dtype(np.uint64), where)
            self._fill_integers(keys, 0, 1 << 64)
        else:  # a race: the time of each is exponential
            keys = FUNCTIONS["log"](1 - self.random(count, "float64")) / -weights
        return np.argsort(keys, kind="stable")

    def _own(self, value: Any, name: str, where: str) -> Any:
        """Return an array argument on the device of the generator."""
        if not isinstance(value, _core.Array):
            value = copy_of_value(class_for, value, None, self._device, where)
        if core_view(value).device is not self._device:
            raise devices_differ(where, self._device, core_view(value).device)
        if not value.ndim:
            raise ShapeError(where=where, expected=f"an int, or an array of one axis or more, as {name}",
                             got="a 0-d array", fix="pass an int")  # fmt: skip
        return value

    def _weights(self, p: Any, count: int, least: int) -> Any:
        """Return probabilities as float64 on the device; those of the host are checked."""
        on_host = not isinstance(p, _core.Array) or core_view(p).device.type == "cpu"
        if on_host:
            host, rounded = _as_probabilities(p)
            fits = (host >= 0).all() and abs(host.sum() - 1) < rounded
            if host.shape == (count,) and not fits:
                raise ShapeError(
                    where="choice", expected="p of probabilities from 0 to 1 whose sum is 1",
                    got=f"{short_repr(p)} of sum {host.sum():.6g}", fix="divide by the sum: p / p.sum()",
                )  # fmt: skip
            if host.shape == (count,) and np.count_nonzero(host) < least:
                raise ShapeError(
                    where="choice", expected=f"p with {least} probabilities above 0, because each row is chosen once",
                    got=f"{np.count_nonzero(host)} above 0", fix="pass replace=True, or a smaller size",
                )  # fmt: skip
            if not isinstance(p, _core.Array):
                p = copy_of_value(class_for, host, None, self._device, "choice")
        weights = cast(self._own(p, "p", "choice"), np.float64, copy=False)
        if weights.shape != (count,):
            raise ShapeError(where="choice", expected=f"p of shape ({count},)", got=str(weights.shape),
                             fix="pass a probability for each row")  # fmt: skip
        return weights

    # ---- arrays and kernels ----------------------------------------------------------------------

    def _empty(self, size: Any, dtype: np.dtype[Any], where: str) -> Any:
        device = self._device
        if not may_wait(device):
            raise _captured(where)
        shape = () if size is None else size
        return _core.empty(None, shape, dtype, device.type_code, device.index, "C", where)

    def _checked_out(self, out: Any, size: Any, wanted: np.dtype[Any] | None, where: str) -> Any:
        """Return the array to fill: `out`, or a new one if a kernel cannot write to it as it is."""
        if not isinstance(out, _core.Array):
            raise not_an_array(where, "out", type_name(out))
        plain = results.plain(out)
        if plain.device is not self._device:
            raise devices_differ(where, self._device, plain.device)
        if plain.dtype not in (_FLOAT32, _FLOAT64) or (
            wanted is not None and wanted != plain.dtype  # None == float64, for NumPy
        ):
            raise DTypeError(
                where=where, expected=f"out of dtype {'float32 or float64' if wanted is None else wanted}",
                got=str(plain.dtype), fix="pass an out of this dtype, or omit dtype",
            )  # fmt: skip
        shape = plain.shape if size is None else _core.read_ints(size, where, "size")
        if tuple(shape) != plain.shape:
            raise ShapeError(where=where, expected=f"size as the shape of out, {plain.shape}",
                             got=short_repr(size), fix="omit size")  # fmt: skip
        if not may_wait(self._device):
            raise _captured(where)
        _core._prepare_write(out, where)  # also refuses a read-only array
        if plain.is_c_contiguous() and not (self._device.type == "cuda" and plain.ptr % 16):
            return plain
        return results.new_like(plain, plain.shape, plain.dtype, where)

    def _launch(
        self, kind: int, element: tuple[str, bool], numbers: int, params: bytes, target: Any
    ) -> None:
        together = _THREADS * _EACH * (4 if element[0] == "float32" else 2)
        blocks = (-(-numbers // together),)
        (kernel,) = kernels_of(self._device.index, ("gi_random_fill",), fill_text, kind, *element)
        kernel.launch(blocks, (_THREADS,), 0, [params], [target])


def fill_text(kind: int, dtype: str, scaled: bool = False) -> str:
    """Return the program of a kernel, for "float32", "float64", or an unsigned type of CUDA's text."""
    values = {
        "UNIFORM": UNIFORM, "NORMAL": NORMAL, "INTEGERS": INTEGERS, "KIND": kind, "SCALED": int(scaled),
        "THREADS": _THREADS, "EACH": _EACH,
    }  # fmt: skip
    element = f"typedef {STORAGE.get(dtype, dtype)} T;"
    parts = (kernel_text("random/numbers.cuh"), kernel_text("random/fill.cuh"))
    return program(values, element, *parts)


def _write_back(out: Any, target: Any, where: str) -> None:
    if core_view(out).ptr != target.ptr:
        _core.copy_into(out, target, where=where, uncounted=True)


def _captured(where: str) -> CaptureError:
    return CaptureError(
        where=where, expected="random numbers outside a capture, because each replay would repeat them",
        got="a call during a capture",
        fix="call it before the capture, and before each replay fill the same array: rng.random(out=x)",
    )  # fmt: skip


def _float_dtype(dtype: Any, where: str) -> np.dtype[Any]:
    try:
        known = _FLOATS.get(dtype)
    except TypeError:  # cannot be hashed
        known = None
    wanted = as_supported_dtype(dtype, where) if known is None else known
    if wanted not in (_FLOAT32, _FLOAT64):
        raise DTypeError(where=where, expected="dtype float32 or float64", got=str(wanted),
                         fix=f"cast the result: rng.{where}(...).astype('{wanted}')")  # fmt: skip
    return _FLOAT32 if wanted == _FLOAT32 else _FLOAT64


# How a program draws from a distribution whose numbers are arrays.
_OF_ARRAYS = {
    "normal": "loc + scale * rng.standard_normal(size)",
    "uniform": "low + (high - low) * rng.random(size)",
}  # fmt: skip


def _as_float(value: Any, name: str, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentTypeError(
            where=where, expected=f"a number as {name}", got=short_repr(value),
            fix=f"for an array of them compute {_OF_ARRAYS[where]}",
        ) from error  # fmt: skip
    if not math.isfinite(number):
        raise RangeError(where=where, expected=f"a finite number as {name}", got=short_repr(value),
                         fix="pass a finite number")  # fmt: skip
    return number


def _as_probabilities(p: Any) -> tuple[np.ndarray[Any, Any], float]:
    """Return probabilities as float64, and by how much their sum may differ from 1."""
    try:
        given = np.asarray(p)
        # Objects may be fractions.
        casting: Any = "unsafe" if given.dtype == object else "same_kind"
        host = given.astype(np.float64, casting=casting)
    except (TypeError, ValueError) as error:
        raise ConversionTypeError(where="choice", expected="real numbers as p", got=short_repr(p),
                                  fix="pass a probability for each row") from error  # fmt: skip
    return host, _ROUNDED.get(given.dtype.itemsize, 1e-6)


def _as_float32(value: float, where: str) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        raise RangeError(where=where, expected="numbers that float32 holds", got=short_repr(value),
                         fix="pass dtype='float64'") from None  # fmt: skip


def _is_count(value: Any) -> bool:
    return is_index(value) and not isinstance(value, _core.Array)  # which has __index__ too


def _as_count(value: Any, where: str) -> int:
    count = require_int(value, "the number of rows", where)
    if count < 0:
        raise ShapeError(where=where, expected="0 rows or more", got=short_repr(value),
                         fix="pass the number of rows")  # fmt: skip
    return count


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype.kind == "b":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)
