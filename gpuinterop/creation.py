"""Making arrays: from values, from other arrays, from shapes, from pointers."""

from __future__ import annotations

import operator
from typing import Any, TypeVar, cast

import numpy as np

from gpuinterop import _core, devices
from gpuinterop.errors import (
    ArgumentTypeError,
    ConversionTypeError,
    CopyForbiddenError,
    DTypeError,
    ShapeError,
)
from gpuinterop.ndarray import ArrayMethods, CudaNdarray, GpuArray, check_cast, over, unknown

__all__ = [
    "arange",
    "array",
    "asarray",
    "dimshuffle",
    "empty",
    "empty_like",
    "from_dlpack",
    "from_gpu_pointer",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]

T = TypeVar("T", bound=ArrayMethods)


def array(
    value: Any, *, dtype: Any = None, device: Any = None, cls: type[T] | None = None
) -> T:
    """Return a new C-ordered array with the values of `value`; never shares memory.

    Without `cls`, float32 becomes a `CudaNdarray` and any other dtype a `GpuArray`.
    """
    source = _as_source(value, dtype, cls, "array")
    cls = cls or _class_for(source.dtype)
    check_cast(cls, source.dtype, cls.__name__)
    if device is not None:
        target = devices.device(device)
    elif source.device.type == "cpu" and not isinstance(value, _core.Array):
        target = devices.default_device()
    else:
        target = source.device
    made: T = _core.empty(cls, source.shape, source.dtype, target.type_code, target.index)
    _core.copy_into(made, source, where=cls.__name__)
    return made


def asarray(
    obj: Any, /, dtype: Any = None, *, device: Any = None, copy: bool | None = None
) -> Any:
    """Return `obj` as an array here: sharing its memory where possible.

    Float32 gives a `CudaNdarray`, any other dtype a `GpuArray`; nothing is narrowed unless
    `dtype` says so. Python numbers and lists become float32. Host data shares memory on device
    "cpu" and is uploaded when the (default) device is a GPU. ``copy=False`` raises where a copy
    would be needed, ``copy=True`` always copies.

    Raises
    ------
    CopyForbiddenError
        `copy` is false and a copy, cast or transfer is needed.
    """
    if copy:
        return array(obj, dtype=dtype, device=device)
    source = _as_source(obj, None, None, "asarray")
    wanted = source.dtype if dtype is None else np.dtype(dtype)
    if device is not None:
        target = devices.device(device)
    elif isinstance(obj, _core.Array) or source.device.type != "cpu":
        target = source.device
    else:
        target = devices.default_device()
    fresh = not isinstance(obj, _core.Array) and isinstance(obj, (int, float, complex, list, tuple))
    needs = [
        *([f"a cast from {source.dtype} to {wanted}"] if wanted != source.dtype else []),
        *([f"a transfer from {source.device} to {target}"] if target != source.device else []),
        *(["an array made from Python numbers"] if fresh else []),
    ]
    if needs and copy is False:
        raise CopyForbiddenError(
            where="asarray",
            expected="an object whose memory can be shared",
            got=" and ".join(needs),
            fix="pass copy=None to allow a copy",
        )
    if not needs and isinstance(obj, (CudaNdarray, GpuArray)):
        return obj
    if wanted != source.dtype:
        return array(obj, dtype=wanted, device=target)
    cls = _class_for(wanted)
    if target == source.device:
        return _core.adopt(cls, source)
    moved = _core.empty(cls, source.shape, wanted, target.type_code, target.index)
    _core.copy_into(moved, source, where="asarray")
    return moved


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """Return an array that shares memory with `x` through DLPack (or the protocol it has).

    Float32 gives a `CudaNdarray`, any other dtype a `GpuArray`. Stays on `x`'s device unless
    `device` names another. ``copy=False`` raises where a copy would be needed.
    """
    from gpuinterop.converters import protocols

    return protocols.from_dlpack(x, device=device, copy=copy)


def _class_for(dtype: Any) -> Any:
    return CudaNdarray if dtype == np.float32 else GpuArray


def _as_source(value: Any, dtype: Any, cls: type | None, where: str) -> _core.Array:
    """Return `value` as an array to read from, cast when `dtype` asks for it."""
    if isinstance(value, _core.Array):
        found = value
    elif isinstance(value, (np.ndarray, np.generic)):
        found = _from_numpy(value)
    elif isinstance(value, (bool, int, float, complex, list, tuple)):
        return over(_from_numbers(value, np.float32 if dtype is None else dtype, where))
    else:
        found = _import(value, where)
    if dtype is None or found.dtype == np.dtype(dtype):
        return found
    if found.device.type == "cpu":
        host = np.asarray(_core.view(GpuArray, found))
        return over(host.astype(dtype))
    return cast(_core.Array, _core.view(GpuArray, found).astype(dtype))


def _import(value: Any, where: str) -> _core.Array:
    if isinstance(value, (str, dict, set)) or value is None:
        raise unknown(value, where)
    return _core.import_any(_core.Array, value)


def _from_numpy(value: Any) -> _core.Array:
    host = np.asarray(value)
    if not host.dtype.isnative:
        host = host.astype(host.dtype.newbyteorder("="))
    size = host.dtype.itemsize
    if not host.flags.aligned or any(s % size for s in host.strides):
        host = host.copy()
    return over(host)


def _from_numbers(value: Any, dtype: Any, where: str) -> np.ndarray[Any, Any]:
    """Python numbers as an array of `dtype`; integers must survive it exactly."""
    try:
        found = np.asarray(value)
    except ValueError as error:
        raise ShapeError(
            where=where,
            expected="nested lists of equal lengths",
            got=str(error),
            fix="pad the rows to one length",
        ) from error
    if found.dtype.kind not in "biufc":
        raise ConversionTypeError(
            where=where,
            expected="numbers, or nested lists of numbers",
            got=f"a {type(value).__name__} that NumPy reads as dtype {found.dtype}",
            fix="pass numbers",
        )
    wanted = np.dtype(dtype)
    if found.dtype.kind == "c" and wanted.kind != "c":
        raise DTypeError(where=where, expected=f"real numbers, for dtype {wanted}",
                         got="complex numbers", fix="pass their real part")  # fmt: skip
    result = found.astype(wanted)
    if found.dtype.kind in "iu" and found.size and not np.array_equal(result.astype(found.dtype), found):
        raise DTypeError(
            where=where,
            expected=f"integers that {wanted} holds exactly",
            got=f"values from {found.min()} to {found.max()}",
            fix="round them yourself with float(), or choose a wider dtype with GpuArray",
        )
    return result


def source(value: Any, dtype: Any, place: tuple[int, int], cls: type) -> _core.Array:
    """Return what ``x[key] = value`` assigns, in the target's dtype.

    Python and NumPy scalars take on the dtype. Arrays must have it already when the target is a
    `CudaNdarray`; a `GpuArray` casts, as NumPy does.
    """
    where = "x[key] = value"
    if isinstance(value, (bool, int, float, complex, np.generic)):
        number = value.item() if isinstance(value, np.generic) else value
        if isinstance(number, complex) and dtype.kind != "c":
            raise DTypeError(where=where, expected=f"a real number, for dtype {dtype}",
                             got=repr(value), fix="assign its real part")  # fmt: skip
        try:
            return over(np.asarray(number, dtype=dtype))
        except (OverflowError, TypeError, ValueError) as error:
            raise DTypeError(where=where, expected=f"a number that {dtype} can hold",
                             got=repr(value), fix=f"cast it: {dtype}(value)") from error  # fmt: skip
    if isinstance(value, (list, tuple)):
        return over(_from_numbers(value, dtype, where))
    found = _as_source(value, None, None, where)
    if found.dtype == dtype:
        return found
    check_cast(cls, found.dtype, where)
    return _as_source(value, dtype, None, where)


def _shape(shape: Any) -> tuple[int, ...]:
    if hasattr(shape, "__index__"):
        return (operator.index(shape),)
    try:
        return tuple(operator.index(n) for n in shape)
    except TypeError:
        raise ArgumentTypeError(where="shape", expected="an int or a sequence of ints",
                                got=repr(shape), fix="pass a tuple of ints") from None  # fmt: skip


def empty(shape: Any, dtype: Any = None, *, device: Any = None, order: str = "C", cls: Any = None) -> Any:
    """Return an array whose elements are not set."""
    wanted = np.dtype(np.float32 if dtype is None else dtype)
    cls = cls or _class_for(wanted)
    check_cast(cls, wanted, "empty")
    target = devices.device(device)
    return _core.empty(cls, _shape(shape), wanted, target.type_code, target.index, order)


def full(shape: Any, value: Any, dtype: Any = None, *, device: Any = None, cls: Any = None) -> Any:
    """Return an array of one value; float32 unless `dtype` says otherwise."""
    made = empty(shape, dtype, device=device, cls=cls)
    made[...] = value
    return made


def zeros(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array of zeros."""
    return full(shape, 0, dtype, device=device)


def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array of ones."""
    return full(shape, 1, dtype, device=device)


def empty_like(x: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an unset C-ordered array of `x`'s shape, dtype and device."""
    return empty(x.shape, x.dtype if dtype is None else dtype, device=device or x.device)


def full_like(x: Any, value: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array of one value with `x`'s shape, dtype and device."""
    made = empty_like(x, dtype, device=device)
    made[...] = value
    return made


def zeros_like(x: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return zeros with `x`'s shape, dtype and device."""
    return full_like(x, 0, dtype, device=device)


def ones_like(x: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return ones with `x`'s shape, dtype and device."""
    return full_like(x, 1, dtype, device=device)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None) -> Any:
    """Return evenly spaced values, as numpy.arange computes them; float32 by default."""
    wanted = np.dtype(np.float32 if dtype is None else dtype)
    if stop is None:
        start, stop = 0, start
    values = np.arange(start, stop, step)
    return array(values.astype(wanted), device=device)


def from_gpu_pointer(
    ptr: int,
    shape: Any,
    strides: Any = None,
    base: Any = None,
    *,
    device: Any = None,
    nbytes: int = -1,
    readonly: bool = False,
    cls: Any = CudaNdarray,
) -> Any:
    """Wrap float32 memory at an address, under the documents' name and with their units.

    Shares, never copies or frees. `strides` count elements; None means C order. `base`, any
    object, is kept alive by the array and every view of it. Without `device` the pointer itself
    is asked where it lives.
    """
    if isinstance(ptr, bool) or not hasattr(ptr, "__index__"):
        raise ArgumentTypeError(where="from_gpu_pointer", expected="an int as address",
                                got=repr(ptr), fix="pass int(x.gpudata) or x.ptr")  # fmt: skip
    address = operator.index(ptr)
    extents = _shape(shape)
    steps = None if strides is None else tuple(4 * s for s in _shape(strides))
    target = devices.device(device) if device is not None else _locate(address)
    return _core.from_pointer(
        cls,
        address,
        extents,
        steps,
        np.dtype(np.float32),
        target.type_code,
        target.index,
        base,
        nbytes=nbytes,
        readonly=readonly,
        where="from_gpu_pointer",
    )


def _locate(address: int) -> devices.Device:
    """Return the device of a pointer; host memory as far as the driver knows is the CPU's."""
    default = devices.default_device()
    inspect = getattr(_core, "inspect_pointer", None)
    if default.type == "cpu" or address == 0 or inspect is None:
        return default
    found = inspect(address)
    return devices.from_codes(2, found["device"]) if found["known"] else devices.from_codes(1, 0)


def dimshuffle(x: Any, *pattern: Any) -> Any:
    """Return a view of `x` with its axes rearranged; see `CudaNdarray.dimshuffle`."""
    if not isinstance(x, ArrayMethods):
        raise ArgumentTypeError(where="dimshuffle", expected="an array of this library",
                                got=f"an object of type {type(x).__name__}",
                                fix="convert it with gpuinterop.asarray(x)")  # fmt: skip
    return x.dimshuffle(*pattern)
