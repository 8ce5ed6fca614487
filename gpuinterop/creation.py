"""Functions that make arrays from values, other arrays, shapes and pointers."""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuinterop.devices as devices
from gpuinterop import _core
from gpuinterop.arrays.core_view import class_for, core_view
from gpuinterop.arrays.dtypes import as_supported_dtype
from gpuinterop.arrays.from_pointer import from_address
from gpuinterop.arrays.numpy_views import read_by_numpy, wrap_numpy
from gpuinterop.arrays.scalars import is_scalar_or_list, scalars_to_array
from gpuinterop.devices import resolve_device
from gpuinterop.elementwise.calls import CALLS
from gpuinterop.elementwise.results import as_operands
from gpuinterop.errors import (
    ArgumentTypeError,
    DTypeError,
    ShapeError,
    short_repr,
    type_name,
)
from gpuinterop.errors.arguments import checks_arguments, read_copy, require_order
from gpuinterop.errors.context import reraise_from
from gpuinterop.errors.messages import copy_needed, not_an_array
from gpuinterop.exchange.incoming import (
    as_input_array,
    as_source,
    cast_from,
    copy_of_value,
    default_device_for,
    new_device_copy,
    new_full,
)
from gpuinterop.ndarray import ArrayMethods, CudaNdarray, GpuArray

_EXACT = 1 << 24  # float32 represents all integers up to it


@checks_arguments()
def array(value: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return a new C-ordered array with the values of `value`; never shares memory.

    Float32 becomes a `CudaNdarray`, any other dtype a `GpuArray`.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.array([[1, 2], [3, 4]], device="cpu")
    >>> x.shape, x.dtype
    ((2, 2), dtype('float32'))
    """
    return copy_of_value(class_for, value, dtype, device, "array")


def _from_values(values: np.ndarray[Any, Any], dtype: Any, device: Any, where: str) -> Any:
    """Return an array of values in order, which does not count as a copy."""
    place = devices.default_device() if device is None else resolve_device(device, where)
    cast = scalars_to_array(values, dtype, where)
    return new_device_copy(class_for(cast.dtype), wrap_numpy(cast), place, where, True)


@checks_arguments("copy")
def asarray(obj: Any, /, dtype: Any = None, *, device: Any = None, copy: bool | None = None) -> Any:
    """Return `obj` as a gpuinterop array, which shares its memory where possible.

    The result keeps shared memory alive and is ready on the current stream. Float32 gives a `CudaNdarray`, any
    other dtype a `GpuArray`; only `dtype` narrows values. Python scalars and lists become float32, rounded;
    integers that float32 would round are refused, as are values too large for the dtype. A list of arrays of one
    shape and that dtype on one GPU is stacked there. Host data shares memory on device "cpu" and is uploaded when
    the (default) device is a GPU. ``copy=False`` raises where a copy would be needed, ``copy=True`` always copies.

    Raises
    ------
    CopyForbiddenError
        `copy` is false and a copy, cast or transfer is needed.
    DTypeError
        A Python scalar that the dtype cannot hold.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> n = numpy.arange(3.0)
    >>> x = gpuinterop.asarray(n, device="cpu")
    >>> x[0] = 5  # in the memory of n
    >>> n.tolist()
    [5.0, 1.0, 2.0]
    """
    copy = read_copy(copy, "asarray")
    if copy:
        return copy_of_value(class_for, obj, dtype, device, "asarray")
    if dtype is None and device is None:
        # The common case: arrays of other libraries that are already on the default device.
        found = _core.share_ordinary(obj)
        if found is not None and (
            found.device.type != "cpu" or devices.default_device().type == "cpu"
        ):
            return found
    listed = is_scalar_or_list(obj)
    # A capsule is consumed only after all checks.
    seen = _core._look_into(obj, "asarray")
    source = as_source(obj, dtype, "asarray", copy) if seen is None else seen
    wanted = source.dtype if dtype is None else as_supported_dtype(dtype, "asarray")
    target = (
        default_device_for(obj, source) if device is None else resolve_device(device, "asarray")
    )
    needs = [
        *([f"a cast from {source.dtype} to {wanted}"] if wanted != source.dtype else []),
        *([f"a transfer from {source.device} to {target}"] if target != source.device else []),
        *([f"{type_name(obj)}, which has no memory to share"] if listed else []),
    ]
    if needs and copy is not None:
        raise copy_needed("asarray", " and ".join(needs))
    if not needs and issubclass(type(obj), (CudaNdarray, GpuArray)):
        return obj
    if seen is not None:
        source = as_source(obj, None, "asarray", copy)
    if wanted != source.dtype:
        source = cast_from(obj, source, wanted, "asarray")
    cls = class_for(wanted)
    if target == source.device and not listed:
        return _core.adopt(cls, source)
    return new_device_copy(cls, source, target, "asarray", listed)


@_core.served
def empty(shape: Any, dtype: Any = None, *, device: Any = None, order: str = "C") -> Any:
    """Return an uninitialized array; float32 unless `dtype` is given.

    A `CudaNdarray` for float32, a `GpuArray` for any other dtype, on `default_device()` unless
    `device` names one. `order` is "C" or "F".

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.empty((2, 3), "int8", device="cpu").nbytes
    6
    """
    return _empty(shape, dtype, device, "empty", require_order(order, "CF", "empty"))


def _empty(shape: Any, dtype: Any, device: Any, where: str, order: str = "C") -> Any:
    place = devices.default_device() if device is None else resolve_device(device, where)
    wanted = _for_core(dtype, where)
    return _core.empty(None, shape, wanted, place.type_code, place.index, order, where)


@_core.served
def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return a C-ordered array of one value; float32 unless `dtype` is given.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.full(2, 7, device="cpu").tolist()
    [7.0, 7.0]
    """
    value = fill_value
    is_small = type(value) is int and -_EXACT <= value <= _EXACT
    if dtype is None and not is_small and isinstance(value, (int, np.integer, list, tuple)):
        # Only the check, because the scalar is filled in on the device without an upload.
        scalars_to_array(value, None, "full")
    return _full(shape, value, dtype, device, "full")


def _full(shape: Any, value: Any, dtype: Any, device: Any, where: str) -> Any:
    return new_full(None, shape, value, _for_core(dtype, where), device, where)


def _for_core(dtype: Any, where: str) -> Any:
    """Return what the core reads as the dtype of a new array; it reads an int, which is no dtype, as an id."""
    return (
        "float32"
        if dtype is None
        else as_supported_dtype(dtype, where)
        if type(dtype) is int
        else dtype
    )


@_core.served
def zeros(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return a C-ordered array of zeros; float32 unless `dtype` is given.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.zeros((2, 2), device="cpu").tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    return _full(shape, 0, dtype, device, "zeros")


@_core.served
def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return a C-ordered array of ones; float32 unless `dtype` is given.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.ones(2, "int32", device="cpu").tolist()
    [1, 1]
    """
    return _full(shape, 1, dtype, device, "ones")


@_core.served
def empty_like(x: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an uninitialized C-ordered array of `x`'s shape, dtype and device.

    `x` may be an array of any library; its elements are not read.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.zeros((2, 3), device="cpu")
    >>> gpuinterop.empty_like(x, "int8").dtype
    dtype('int8')
    """
    return _empty_like(x, dtype, device, "empty_like")


@_core.served
def full_like(x: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return a C-ordered array of one value with `x`'s shape, dtype and device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.full_like(gpuinterop.zeros(2, device="cpu"), 7).tolist()
    [7.0, 7.0]
    """
    return _full_like(x, fill_value, dtype, device, "full_like")


@_core.served
def zeros_like(x: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return C-ordered zeros with `x`'s shape, dtype and device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.zeros_like(gpuinterop.ones(2, device="cpu")).tolist()
    [0.0, 0.0]
    """
    return _full_like(x, 0, dtype, device, "zeros_like")


@_core.served
def ones_like(x: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return C-ordered ones with `x`'s shape, dtype and device.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.ones_like(gpuinterop.zeros(2, device="cpu")).tolist()
    [1.0, 1.0]
    """
    return _full_like(x, 1, dtype, device, "ones_like")


def _full_like(x: Any, value: Any, dtype: Any, device: Any, where: str) -> Any:
    made = _empty_like(x, dtype, device, where)
    with reraise_from(where):
        made[...] = value
    return made


def _empty_like(x: Any, dtype: Any, device: Any, where: str) -> Any:
    if not isinstance(x, _core.Array):
        if not hasattr(x, "shape") or not hasattr(x, "dtype"):
            raise ArgumentTypeError(where=where, expected="an array to take shape and dtype from",
                                    got=type_name(x),
                                    fix="call empty, zeros, ones or full(shape, ...)")  # fmt: skip
        if isinstance(x, np.ndarray):  # also one that cannot be shared
            if dtype is None:
                dtype = x.dtype if x.dtype.isnative else x.dtype.newbyteorder("=")
            return _empty(x.shape, dtype, "cpu" if device is None else device, where)
        # Converted, because NumPy does not know the dtypes of other libraries.
        x = as_input_array(x, None, where)
    x = core_view(x)
    return _empty(x.shape, x.dtype if dtype is None else dtype,
                  x.device if device is None else device, where)  # fmt: skip


@_core.served
def eye(n: int, m: int | None = None, k: int = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """Return a matrix with ones on its `k`-th diagonal and zeros elsewhere.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.eye(2, device="cpu").tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    made = _full((n, n if m is None else m), 0, dtype, device, "eye")
    with reraise_from("eye"):
        diagonal = made.diagonal(k)
    if diagonal.size:
        diagonal[...] = 1
    return made


@_core.served
def arange(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None
) -> Any:
    """Return evenly spaced values, as numpy.arange computes them; float32 by default.

    Integers that the default float32 would round, those beyond 2**24, are refused: pass "int64" as the
    dtype to keep them or "float32" to round them. With dtype bool there are at most two values.
    Every bit is NumPy's.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.arange(0, 1, 0.25, device="cpu").tolist()
    [0.0, 0.25, 0.5, 0.75]
    """
    if stop is None:
        start, stop = 0, start
    given = (start, stop, step)
    values = _computed("arange", _spaced, given, "finite start, stop and step, with step not 0")
    if dtype is not None and as_supported_dtype(dtype, "arange") == np.bool_ and values.size > 2:
        raise DTypeError(where="arange", expected="at most two values of dtype bool",
                         got=f"{values.size} values",
                         fix="compare integers: gpuinterop.arange(n) > 0")  # fmt: skip
    return _from_values(values, dtype, device, "arange")


def _spaced(start: Any, stop: Any, step: Any) -> np.ndarray[Any, Any]:
    """Return numpy.arange(start, stop, step); integers beyond int64 stay exact, while NumPy converts them to floats."""
    given = (start, stop, step)
    if (
        all(isinstance(n, (int, np.integer)) for n in given)
        and max(map(abs, map(int, given))) >= 2**63
    ):
        numbers = range(int(start), int(stop), int(step))
        fits = len(numbers) and all(0 <= n < 2**64 for n in (numbers[0], numbers[-1]))
        return np.fromiter(numbers, np.uint64 if fits else object, len(numbers))
    return np.arange(start, stop, step)


def _computed(where: str, function: Any, given: tuple[Any, ...], expected: str) -> Any:
    """Return the result of NumPy's function for the user's numbers; raise ShapeError if it fails."""
    given = tuple(n.item() if isinstance(n, ArrayMethods) and n.ndim == 0 else n for n in given)
    try:
        if None in given:
            raise TypeError("None is not a number")
        for number in given:
            read_by_numpy(number)  # or its error
        with reraise_from(where):
            return function(*given)
    except (ArithmeticError, ValueError, TypeError) as error:
        written = ", ".join(map(short_repr, given))
        raise ShapeError(where=where, expected=expected, got=f"{where}({written}): {error}",
                         fix=f"pass {expected}") from error  # fmt: skip


@_core.served
def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, *, dtype: Any = None,
    device: Any = None,
) -> Any:  # fmt: skip
    """Return `num` evenly spaced values from `start` to `stop`, as numpy.linspace does; float32 by default.

    Integer dtypes round down, and refuse values out of their range.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.linspace(0, 1, 5, device="cpu").tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    given = (start, stop, num, endpoint)
    rule = "numbers as start and stop, and an int of 0 or more as num"
    values = _computed("linspace", np.linspace, given, rule)
    if dtype is not None and as_supported_dtype(dtype, "linspace").name.startswith(("int", "uint")):
        values = np.floor(values)
    return _from_values(values, dtype, device, "linspace")


def dimshuffle(x: Any, *pattern: Any) -> Any:
    """Return a view of `x` with its axes rearranged; see `CudaNdarray.dimshuffle`.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.dimshuffle(gpuinterop.ones((2, 3)), 1, "x", 0).shape
    (3, 1, 2)
    """
    # Theano's function accepts no other objects.
    if not isinstance(x, ArrayMethods):
        raise not_an_array("dimshuffle", "x", type_name(x))
    return x.dimshuffle(*pattern)


def broadcast_to(x: Any, shape: Any) -> Any:
    """Return a read-only view of `x` repeated to `shape` by strides of 0; see numpy.broadcast_to.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.broadcast_to([1, 2], (3, 2)).strides
    (0, 4)
    """
    (x,) = as_operands("broadcast_to", x)
    return x.broadcast_to(shape)


def from_gpu_pointer(
    ptr: int, shape: Any, strides: Any = None, base: Any = None, *, device: Any = None,
    nbytes: int = -1, readonly: bool = False,
) -> CudaNdarray:  # fmt: skip
    """Wrap float32 memory at an address, with Theano's arguments and units.

    Shares, never copies or frees. `strides` count elements; None means C order. The array and every
    view of it hold a reference to `base`, any object. Without `device` the driver reports the device of
    the memory. Shape and strides are checked as by `CudaNdarray.from_pointer`.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> n = numpy.arange(6, dtype="float32")
    >>> gpuinterop.from_gpu_pointer(n.ctypes.data, (2, 3), (3, 1), n, device="cpu").tolist()
    [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    """
    made: CudaNdarray = from_address(
        CudaNdarray, ptr, shape, strides, base, device, nbytes, readonly
    )
    return made


CALLS.update(arange=arange, asarray=asarray)
