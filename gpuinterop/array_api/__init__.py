"""The array API standard for gpuinterop arrays: ``x.__array_namespace__()``.

The standard's functions are NumPy's, with NumPy's names. So a function here is NumPy's, called with `GpuArray`
operands: gpuinterop computes it, or the array library of the device does. Functions that NumPy lacks, or that make
arrays, are written out. NumPy's other functions of arrays, such as `pad`, are there as well, because programs for
NumPy, CuPy and JAX look for them in the namespace.

A `CudaNdarray` counts as an array of float32, and results are `GpuArray`: float64, int64 or complex128 unless a dtype
is given.
"""

from __future__ import annotations

import builtins
import sys
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import gpuinterop.devices as devices
from gpuinterop import _core, creation
from gpuinterop.arrays.dtypes import as_supported_dtype
from gpuinterop.converters import from_dlpack as _from_dlpack
from gpuinterop.elementwise.calls import CALLS
from gpuinterop.elementwise.promotion import common_dtype
from gpuinterop.elementwise.results import plain, require_arrays
from gpuinterop.errors import ArgumentTypeError, short_repr
from gpuinterop.exchange.incoming import new_full
from gpuinterop.ndarray import GpuArray
from gpuinterop.sorting import sort as _sort
from gpuinterop.sorting.search import unique_values as _unique_values

from .of_numpy import look_up, of_numpy, wide

_IMPORTED = frozenset(globals())
VERSIONS = ("2023.12", "2024.12", "2025.12")
__array_api_version__ = VERSIONS[-1]

# NumPy's functions that are the standard's.
_OF_NUMPY = frozenset(
    """
    abs acos acosh add all any argmax argmin asin asinh atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift
    bitwise_or bitwise_right_shift bitwise_xor broadcast_arrays broadcast_to ceil concat conj copysign cos cosh
    count_nonzero cumulative_prod cumulative_sum diff divide equal exp expand_dims expm1 flip floor greater
    greater_equal hypot imag isfinite isin isinf isnan less less_equal log log10 log1p log2 logaddexp logical_and
    logical_not logical_or logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum moveaxis multiply
    negative nextafter nonzero not_equal permute_dims positive pow prod real reciprocal remainder repeat reshape roll
    round searchsorted sign signbit sin sinh sqrt square squeeze stack std subtract sum take take_along_axis tan
    tensordot tile tril triu trunc unique_all unique_counts unique_inverse unstack var vecdot where
    """.split()
)


def __getattr__(name: str) -> Any:
    if name in ("fft", "linalg", "special"):
        return import_module(f"{__name__}.{name}")
    return look_up(globals(), np, name)


def __dir__() -> list[str]:
    own = {name for name in globals().keys() - _IMPORTED if not name.startswith("_")}
    return sorted(
        own - {"Limits", "VERSIONS", "namespace"}
        | _OF_NUMPY
        | {"fft", "linalg", "special", "__array_namespace_info__"}
    )


# ---- dtypes, constants, inspection -------------------------------------------------------------------------------

# These are names of the module. Its code writes `builtins.bool`.
_DTYPES = {
    name: np.dtype(name)
    for name in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 "
    "complex64 complex128".split()
}
globals().update(_DTYPES)
_DEFAULTS = {
    "real floating": np.dtype("float64"),
    "complex floating": np.dtype("complex128"),
    "integral": np.dtype("int64"),
    "indexing": np.dtype("int64"),
}

float16 = np.dtype("float16")  # beyond the standard, because SciPy uses it
e, pi, inf, nan = np.e, np.pi, np.inf, np.nan
newaxis = None


def _dtypes_of(values: tuple[Any, ...], where: str) -> list[Any]:
    """Return the dtypes of arrays and of names, and other values as they are."""
    # By gpuinterop, because NumPy reads the names of ml_dtypes only once that is imported.
    return [
        x.dtype if isinstance(x, _core.Array) else as_supported_dtype(x, where) if isinstance(x, str) else x
        for x in values
    ]  # fmt: skip


def can_cast(from_: Any, to: Any, /) -> bool:
    """Return whether values of a dtype, or of an array, can be cast by the standard's promotion rules.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.can_cast("float32", "int32")
    False
    """
    return builtins.bool(np.can_cast(*_dtypes_of((from_, to), "can_cast")))


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """Return the dtype of an operation's result, for arrays, dtypes and numbers.

    The types of ml_dtypes promote as in gpuinterop's operators, whichever version is installed.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.result_type("float32", "int16", 2.5)
    dtype('float32')
    """
    return common_dtype(_dtypes_of(arrays_and_dtypes, "result_type"), "result_type")


class Limits(NamedTuple):
    """The limits of a floating dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


def finfo(type: Any, /) -> Limits:
    """Return the limits of a floating dtype, or of an array's.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.finfo("float32").bits
    32
    """
    (dtype,) = _dtypes_of((type,), "finfo")
    if dtype.kind == "V":
        import ml_dtypes  # noqa: PLC0415  # it is installed, because it made the dtype; NumPy knows 0.7 and later

        found = ml_dtypes.finfo(dtype)
    else:
        found = np.finfo(dtype)
    eps, smallest = float(found.eps), float(found.smallest_normal)
    return Limits(found.bits, eps, float(found.max), float(found.min), smallest, found.dtype)


def iinfo(type: Any, /) -> np.iinfo[Any]:
    """Return the limits of an integer dtype, or of an array's.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.iinfo("int8").max
    127
    """
    return np.iinfo(*_dtypes_of((type,), "iinfo"))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether a dtype is of a kind, such as "real floating", or one of several.

    Examples
    --------
    >>> import gpuinterop, numpy
    >>> gpuinterop.isdtype(numpy.dtype("int8"), ("bool", "integral"))
    True
    """
    return builtins.bool(np.isdtype(dtype, kind))


class _Info:
    """What `__array_namespace_info__` returns."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> devices.Device:
        return devices.default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        return dict(_DEFAULTS)

    def devices(self) -> tuple[devices.Device, ...]:
        return tuple(devices.devices())

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        wanted = (kind,) if isinstance(kind, str) else kind
        return {n: d for n, d in _DTYPES.items() if wanted is None or np.isdtype(d, wanted)}


def __array_namespace_info__() -> _Info:
    """Return what the namespace can do: devices, dtypes and limits."""
    return _Info()


# ---- arrays ---------------------------------------------------------------------------------------------------------


def _dtype_of(dtype: Any, function: str, default: str = "float64") -> np.dtype[Any]:
    if dtype is None:
        return np.dtype(default)
    return as_supported_dtype(dtype, f"array_api.{function}")


def _operand(function: str, x: Any) -> Any:
    require_arrays(f"array_api.{function}", x)
    return plain(x)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
    """Return an array of a value: another array on its own memory where the dtype and the device allow it."""
    if copy is not False and isinstance(obj, (list, tuple)):
        obj = _stacked(obj)
    if copy is not False and isinstance(obj, (builtins.bool, int, float, complex, list, tuple)):
        dtype = None if dtype is None else _dtype_of(dtype, "asarray")
        obj = np.asarray(obj, dtype)  # which has the standard's default dtypes
        device = devices.default_device() if device is None else device
    return plain(creation.asarray(obj, dtype, device=device, copy=copy))


def _stacked(values: Any) -> Any:
    """Return nested lists of numbers and of arrays on one GPU as an array there, other lists as they are."""
    if {*map(type, values)} <= {builtins.bool, int, float, complex}:
        return values
    parts = [_stacked(x) if isinstance(x, (list, tuple)) else x for x in values]
    places = {x.device for x in parts if isinstance(x, _core.Array)}
    if len(places) != 1 or devices.device("cpu") in places:
        return values
    (place,) = places
    wide = [plain(x) if isinstance(x, _core.Array) else asarray(x, device=place) for x in parts]
    return np.stack(wide)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """Return an array on the memory of `x`."""
    return plain(_from_dlpack(x, device=device, copy=copy))


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Return an uninitialized array."""
    return plain(creation.empty(shape, _dtype_of(dtype, "empty"), device=device))


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Return an array of zeros."""
    return plain(creation.zeros(shape, _dtype_of(dtype, "zeros"), device=device))


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Return an array of ones."""
    return plain(creation.ones(shape, _dtype_of(dtype, "ones"), device=device))


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Return an array of one value."""
    dtype = result_type(fill_value) if dtype is None else dtype
    return new_full(GpuArray, shape, fill_value, _dtype_of(dtype, "full"), device, "full")


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Return an uninitialized array of the shape, dtype and device of another."""
    return plain(creation.empty_like(_operand("empty_like", x), dtype, device=device))


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Return zeros of the shape, dtype and device of another array."""
    return plain(creation.zeros_like(_operand("zeros_like", x), dtype, device=device))


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Return ones of the shape, dtype and device of another array."""
    return plain(creation.ones_like(_operand("ones_like", x), dtype, device=device))


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Return one value in the shape, dtype and device of another array."""
    x = _operand("full_like", x)
    dtype = x.dtype if dtype is None else dtype
    return full(x.shape, fill_value, dtype=dtype, device=x.device if device is None else device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Any:
    """Return a matrix with ones on the k-th diagonal."""
    return plain(creation.eye(n_rows, n_cols, k, _dtype_of(dtype, "eye"), device=device))


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
) -> Any:
    """Return evenly spaced values of a step."""
    first, last = (0, start) if stop is None else (start, stop)
    if dtype is None:
        dtype = np.result_type(*map(np.asarray, (first, last, step)))
    return plain(creation.arange(first, last, step, _dtype_of(dtype, "arange"), device=device))


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None,
    endpoint: builtins.bool = True,
) -> Any:  # fmt: skip
    """Return `num` evenly spaced values between two ends."""
    kind = "complex128" if isinstance(start, complex) or isinstance(stop, complex) else "float64"
    values = np.linspace(
        start, stop, num, endpoint=endpoint, dtype=_dtype_of(dtype, "linspace", kind)
    )
    return asarray(values, device=devices.default_device() if device is None else device)


# ---- functions that NumPy lacks, or has with other parameters -----------------------------------


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """Return an array in another dtype, on another device if one is given."""
    found = _operand("astype", x).astype(dtype, copy=copy)
    return found if device is None else found.to_device(device)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Return the elements, or the nearer of two bounds where they lie outside."""
    return np.clip(_operand("clip", x), wide(min), wide(max))


def floor_divide(x1: Any, x2: Any, /) -> Any:
    """Return the quotients rounded down; with an infinite operand the quotient itself, as the standard says.

    NumPy, and the operator ``x1 // x2``, have NaN for inf // 1, and -1 for 1 // -inf, which is -0 here.
    """
    rounded, x1, x2 = _floor_divide(x1, x2), wide(x1), wide(x2)
    if rounded.dtype.kind != "f":
        return rounded
    return np.where(np.isinf(x1) | np.isinf(x2), np.divide(x1, x2), rounded)


_floor_divide = of_numpy(np, "floor_divide")


def tanh(x: Any, /) -> Any:
    """Return the hyperbolic tangent; the imaginary part of an infinity's is a zero with the sign of its own.

    That is the standard's rule; NumPy and C99 take the sign of sin(2 imag(x)).
    """
    found = _tanh(x)
    if found.dtype.kind == "c":
        x = wide(x)
        found.imag[...] = np.where(np.isinf(x.real), np.copysign(0, x.imag), found.imag)
    return found


_tanh = of_numpy(np, "tanh")


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which shapes broadcast.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.broadcast_shapes((3, 1), (2,))
    (3, 2)
    """
    return tuple(np.broadcast_shapes(*shapes))


def _options_of_sorts(descending: Any, stable: Any) -> dict[str, Any]:
    # Every sort is stable, and the usual call gives no option.
    return {"descending": descending, "stable": None if stable is True else stable}


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Return a sorted copy along an axis."""
    options = _options_of_sorts(descending, stable)
    return _sort.sort(_operand("sort", x), axis, **options)


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Return the indices that sort along an axis; equal elements keep their order."""
    options = _options_of_sorts(descending, stable)
    return _sort.argsort(_operand("argsort", x), axis, **options)


def unique_values(x: Any, /) -> Any:
    """Return the distinct elements, sorted."""
    return _unique_values(_operand("unique_values", x))


# ---- the namespace --------------------------------------------------------------------------------------------------


def namespace(api_version: str | None = None) -> ModuleType:
    """Return this module, for a version of the standard that it implements."""
    if api_version is not None and api_version not in VERSIONS:
        raise ArgumentTypeError(
            where="__array_namespace__",
            expected=f"a version of the standard: {', '.join(VERSIONS)}",
            got=short_repr(api_version),
            fix="omit api_version",
        )
    return _this


CALLS["array namespace"] = namespace
_this = sys.modules[__name__]
