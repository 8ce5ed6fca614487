"""Reading values and foreign arrays: what arrays are made from and what is assigned to them."""

from __future__ import annotations

import operator
import re
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

import gpuinterop.devices as devices
from gpuinterop import _core, copy_tracking
from gpuinterop.dtypes import known
from gpuinterop.error_context import host_out_of_memory, renamed, reraise_from, resolve_device
from gpuinterop.errors import (
    ArgumentTypeError,
    BoundsError,
    ContiguityError,
    ConversionTypeError,
    DeviceError,
    DTypeError,
    GpuInteropError,
    UnsupportedError,
    shown,
)
from gpuinterop.foreign_handles import CPU, CUDA
from gpuinterop.layout import is_array, real
from gpuinterop.option_values import require_bool
from gpuinterop.scalars import NUMBERS, scalars_to_array

__all__ = [
    "as_input_array",
    "assigned",
    "borrowed",
    "cast",
    "check_cast",
    "construct",
    "home",
    "require_aligned_host",
    "as_numpy_view",
    "is_index",
    "needs_converter",
    "is_scalar_or_list",
    "new_array",
    "new_full",
    "over",
    "read_counts",
    "read_shape",
    "refuse_mask",
    "peek_capsule",
    "write",
]


A = TypeVar("A", bound=_core.Array)


_Capsule = type(_core.Array.__dlpack_c_exchange_api__)


def peek_capsule(value: Any, where: str) -> _core.Array | None:
    """Return what a DLPack capsule describes, None for another object; the capsule stays unused.

    A capsule can be taken once, so what may be refused is looked at before.
    """
    return _core._look_into(value, where, True) if isinstance(value, _Capsule) else None


def check_cast(cls: Any, got: Any, where: str) -> None:
    """Refuse a dtype that `cls` does not hold: CudaNdarray names its only one in `_only`."""
    only = getattr(cls, "_only", None)
    if only is not None and got != only:
        raise DTypeError(
            where=where,
            expected=f"{only}, the only dtype of a {cls.__name__}",
            got=f"dtype {got}",
            fix=f"write the cast: x.astype('{only}'), or keep the dtype with GpuArray",
        )


class _HostView:
    """Lets NumPy share a host array's memory, holding the array as its owner."""

    __slots__ = ("__array_interface__", "array")

    def __init__(self, array: _core.Array) -> None:
        # As the core's own class: a subclass may override any attribute, and NumPy would follow it
        # out of the memory. This also refuses geometry in the making (_set_stride and friends).
        array = real(array)
        self.array = array
        # Types from ml_dtypes have no typestr of their own: integers, viewed afterwards. Not "V2":
        # NumPy 2.1.0 crashes on it.
        own = array.dtype.isbuiltin == 1
        self.__array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "typestr": array.dtype.str
            if own
            else f"{'|' if array.itemsize == 1 else '<'}u{array.itemsize}",
            "data": (array.ptr, array.readonly),
            "strides": array.strides,
        }


def as_numpy_view(array: _core.Array, *, written: bool = False) -> np.ndarray[Any, Any]:
    """Return a NumPy array that shares a host array's memory and keeps it alive.

    A result of a capture that nothing has filled yet is refused, unless it is `written`.
    """
    if written:
        _core._note_write(array)
    else:
        _core._require_set("gpuinterop.capture", array)
    seen = real(array)
    if seen.size == 0:
        # Older NumPy takes no null pointer, and there is nothing to share.
        return np.empty(seen.shape, seen.dtype)
    view = _HostView(array)
    return np.asarray(view).view(view.array.dtype)


def over(host: np.ndarray[Any, Any]) -> _core.Array:
    """Return a core array over a NumPy array's memory."""
    host = np.asarray(host)  # a subclass may say anything of its shape
    return _core.from_pointer(
        _core.Array,
        host.ctypes.data if host.size else 0,
        host.shape,
        host.strides if host.size else None,
        host.dtype,
        1,
        0,
        host,
        readonly=not host.flags.writeable,
    )


def require_aligned_host(host: np.ndarray[Any, Any], where: str) -> _core.Array:
    """Return a core array over a NumPy array that a copy reads or fills in place."""
    refuse_mask(host, where)
    plain = np.asarray(host)
    size = known(plain.dtype).itemsize
    if not _in_place(plain):
        raise ContiguityError(
            where=where,
            expected=f"a NumPy array of aligned elements, a multiple of {size} bytes apart",
            got=f"shape {plain.shape} with strides {plain.strides} (bytes) "
            f"at address {plain.ctypes.data:#x}",
            fix="copy through an array of its own: numpy.empty(shape, dtype)",
        )
    return over(plain)


def refuse_repeats(target: _core.Array, where: str) -> None:
    """Refuse to fill an array in which a stride of 0 repeats one element."""
    for axis, (extent, stride) in enumerate(zip(target.shape, target.strides, strict=True)):
        if stride == 0 and extent > 1 and target.size:
            raise ContiguityError(
                where=where,
                expected="a destination whose elements lie apart",
                got=f"shape {target.shape} with strides {target.strides} (bytes): "
                f"axis {axis} repeats one element",
                fix="copy into an array of its own, for example pinned_empty(shape, dtype)",
                axis=axis,
            )


def is_scalar_or_list(value: Any) -> bool:
    """Whether `value` is a number or a list, Python's or NumPy's, which no memory lies behind."""
    return isinstance(value, (*NUMBERS, np.generic))


def new_array(
    cls: type[A], source: _core.Array, device: Any, where: str, values: bool = False
) -> A:
    """Return a C-ordered copy of `source` as a `cls` on `device`; no copy to watchers if of `values`."""
    source = real(source)
    check_cast(cls, source.dtype, where)
    target = resolve_device(device, where)
    made = _core.empty(cls, source.shape, source.dtype, target.type_code, target.index, where=where)
    # A kernel fills elements of more than 4 bytes, which is worth its compilation where nothing else will do.
    fills = values and (source.itemsize <= 4 or _core._recording() is not None)
    write(made, source, where, values, fills)
    return made


def write(
    target: _core.Array, source: _core.Array, where: str, values: bool, fills: bool = True
) -> None:
    """Copy `source`, unseen by watchers if of `values`: one of these can be filled in, without a wait."""
    if values and fills and source.ndim == 0 and target.device.type != "cpu":
        target[...] = as_numpy_view(source)[()]
    else:
        _core.copy_into(target, source, where=where, uncounted=values)


def construct(cls: type[A], value: Any, dtype: Any, device: Any) -> A:
    """Return what ``cls(value)`` makes: a copy, on the default device if `value` is on the host."""
    seen = peek_capsule(value, cls.__name__)
    if seen is not None:
        check_cast(cls, seen.dtype if dtype is None else known(dtype, cls.__name__), cls.__name__)
    source = as_input_array(value, dtype, cls.__name__)
    place = home(value, source) if device is None else device
    return new_array(cls, source, place, cls.__name__, is_scalar_or_list(value))


def home(value: Any, source: _core.Array) -> devices.Device:
    """Return where an array made from `value` lives when nobody says: GPU data stays where it is.

    Arrays of this library stay as well; foreign host data goes to the default device.
    """
    if source.device.type == "cpu" and not isinstance(value, _core.Array):
        return devices.default_device()
    return source.device


def new_full(cls: type[A], shape: Any, value: Any, dtype: Any, device: Any, where: str = "") -> A:
    """Return an array of one value."""
    positional = not where  # of the classes alone: zeros(2, 3) for zeros((2, 3))
    where = where or f"{cls.__name__}.zeros"
    check_cast(cls, known(dtype, where), cls.__name__)
    try:
        target = resolve_device(device, where)
    except DeviceError as error:
        if not (positional and is_index(device) and is_index(shape)):
            raise
        raise DeviceError(where=where, expected=error.expected, got=error.got,
                          fix="name a device that exists; a shape is one argument, a tuple: "
                          f"({shown(shape)}, {shown(device)})") from None  # fmt: skip
    with reraise_from(where):
        extents = read_shape(shape)
        made = _core.empty(cls, extents, dtype, target.type_code, target.index)
        made[...] = value
    return made


def as_input_array(value: Any, dtype: Any, where: str, copyif: bool = True) -> _core.Array:
    """Return `value` as an array to read from, cast when `dtype` asks for it.

    Without `copyif` it shares memory, or is refused.
    """
    if is_array(value):
        found = real(value)
    elif isinstance(value, np.generic) and dtype is not None:
        return over(scalars_to_array(value, dtype, where))
    elif isinstance(value, (np.ndarray, np.generic)):
        found = _from_numpy(value, where, copyif)
    elif isinstance(value, NUMBERS):
        return over(scalars_to_array(value, dtype, where))
    else:
        found = _import(value, where, copyif)
    return cast(value, found, dtype, where)


def cast(value: Any, found: _core.Array, dtype: Any, where: str) -> _core.Array:
    """Return `found`, which was read from `value`, in another dtype.

    The value itself is not asked again: a capsule is used up, another object may have changed its mind.
    """
    if dtype is None or found.dtype == known(dtype, where):
        return found
    unmade = isinstance(value, _core.Array) and _core._recording() is not None
    if found.device.type == "cpu" and not unmade:
        try:
            if _core._recording() is not None:
                return over(as_numpy_view(found).astype(dtype))
            # Memory of this library, so that nobody has to copy it again.
            made = _core.empty(_core.Array, found.shape, dtype, 1, 0, where=where)
            as_numpy_view(made, written=True)[...] = as_numpy_view(found)
            return made
        except MemoryError as error:
            raise host_out_of_memory(error, where) from None
    cast: _core.Array = (value if isinstance(value, _core.Array) else found).astype(dtype)
    return cast


def _import(value: Any, where: str, copyif: bool) -> _core.Array:
    if isinstance(value, (str, dict, set)) or value is None:
        raise _unknown(value, where)
    try:
        return _core.import_any(_core.Array, value, where=where, realign=copyif)
    except ConversionTypeError:
        # Last, so that arrays which speak a protocol pay nothing for those which do not.
        if needs_converter(value):
            with reraise_from(where):
                return real(import_module("gpuinterop.converters").from_any(value, copyif))
        if isinstance(value, type) or _core.protocols_of(value):
            raise
        raise _unknown(value, where) from None


def needs_converter(value: Any) -> bool:
    """Whether `value` speaks no protocol and only a converter knows it: gnumpy's, a plugin's."""
    if value is None or isinstance(value, (str, list, tuple, dict, set, type)):
        return False
    found = import_module("gpuinterop.converters.registry").find_backend(value)
    return found is not None and not _core.protocols_of(value)


def refuse_mask(value: Any, where: str) -> None:
    """Refuse NumPy's masked arrays in which something is masked: no array here has a mask."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise UnsupportedError(
            where=where,
            expected="data without a mask",
            got=f"a masked array with {int(np.sum(np.ma.getmaskarray(value)))} masked elements",
            fix="fill it, a.filled(value), or pass a.data to ignore the mask",
        )


def _in_place(host: np.ndarray[Any, Any]) -> bool:
    """Whether arrays here can show the memory: whole elements apart, at addresses for such elements."""
    size, step = host.dtype.itemsize, _core.alignment_of(host.dtype, 1)
    return not host.size or (
        host.ctypes.data % step == 0 and not any(s % size for s in host.strides)
    )


def _from_numpy(value: Any, where: str, copyif: bool) -> _core.Array:
    refuse_mask(value, where)
    host = np.asarray(value)
    native = known(host.dtype.newbyteorder("="), where)
    if host.dtype.isnative and _in_place(host):
        return over(host)
    if not copyif:
        raise ContiguityError(
            where=where,
            expected="values in aligned memory of native byte order, which can be shared",
            got=f"dtype {host.dtype.str}, strides {host.strides} (bytes), "
            f"address {host.ctypes.data:#x}",
            fix=f"allow a copy, or make one: numpy.array(a, '{native}')",
        )
    copy_tracking.note("host", host.nbytes, where)
    return over(host.astype(native))


def assigned(value: Any, dtype: Any, cls: type) -> _core.Array:
    """Return what ``x[key] = value`` assigns, in the target's dtype.

    Python's numbers and NumPy's scalars take on the dtype. Arrays, alone or in a list, must have it already
    when the target is a `CudaNdarray`; a `GpuArray` casts, as NumPy does.
    """
    where = "x[key] = value"
    if isinstance(value, (*NUMBERS, np.generic)):
        return over(scalars_to_array(value, dtype, where, casts=not hasattr(cls, "_only")))
    try:
        seen = peek_capsule(value, where)
        if seen is not None and seen.dtype != dtype:
            check_cast(cls, seen.dtype, where)
        found = as_input_array(value, None, where)
        if _core._recording() is not None and type(value) is np.ndarray and value.ndim == 0:
            # A number for the operators too: the replays of a capture have the one of today.
            found = over(as_numpy_view(found).copy())
        if found.dtype == dtype:
            return found
        check_cast(cls, found.dtype, where)
        return cast(value, found, dtype, where)
    except GpuInteropError as error:
        # Elsewhere x is what is converted; here it is the array that is assigned to.
        fix = re.sub(r"\bx\b(?=\.|\))", "value", error.fix)
        raise renamed(error, error.where, fix) from None


def is_index(value: Any) -> bool:
    """Whether `value` is one whole number. Arrays have the method too, and are sequences."""
    return hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0


def read_shape(shape: Any, where: str = "shape") -> tuple[int, ...]:
    """Return a shape given as an int or a sequence of ints."""
    return _core.read_ints(shape, where)


def read_counts(values: Any, where: str = "counts") -> tuple[int, ...]:
    """Return numbers given as an int or any number of them."""
    if is_index(values):
        return (operator.index(values),)
    try:
        return tuple(operator.index(n) for n in values)
    except TypeError:
        raise ArgumentTypeError(where=where, expected="an int or a sequence of ints",
                                got=shown(values), fix="pass a tuple of ints") from None  # fmt: skip


def borrowed(
    cls: type[A],
    ptr: int,
    shape: Any,
    strides: Any,
    base: Any,
    device: Any,
    nbytes: int,
    readonly: bool,
    dtype: Any = np.float32,
    in_elements: bool = True,
    where: str = "from_gpu_pointer",
) -> A:
    """Return an array over memory at an address; strides count elements, or else bytes.

    What it reaches is checked: against `nbytes`, else against the memory of `base` when that is an
    array here, else on a GPU against the allocation that the driver knows.
    """
    if isinstance(ptr, bool | _core.Array) or not hasattr(ptr, "__index__"):
        raise ArgumentTypeError(where=where, expected="an int as address",
                                got=shown(ptr), fix="pass int(x.gpudata) or x.ptr")  # fmt: skip
    address = operator.index(ptr)
    if not 0 <= address < 1 << 64:
        raise BoundsError(where=where, expected="an address from 0 to 2**64 - 1",
                          got=shown(address), fix="pass x.ptr, unsigned")  # fmt: skip
    try:
        limit = operator.index(nbytes)
    except TypeError:
        raise ArgumentTypeError(where=where, expected="an int as nbytes",
                                got=shown(nbytes), fix="pass the number of bytes") from None  # fmt: skip
    if not -1 <= limit < 1 << 63:
        raise BoundsError(where=where, expected="nbytes of at least 0, below 2**63",
                          got=shown(limit), fix="leave it out when it is not known")  # fmt: skip
    readonly = require_bool(readonly, "readonly", where)
    target = resolve_device(device, where) if device is not None else _locate(address)
    with reraise_from(where):  # what fails may be a layout
        return _core.from_pointer(
            cls,
            address,
            read_shape(shape, where),
            strides,
            known(dtype, where),
            target.type_code,
            target.index,
            base,
            nbytes=limit,
            readonly=readonly,
            where=where,
            in_elements=in_elements,
        )


def _locate(address: int) -> devices.Device:
    """Return the device of a pointer, also of pinned memory; what the driver does not know is the CPU's."""
    default = devices.default_device()
    if address == 0 or not _core.cuda_device_count():
        return default
    found = _core.inspect_pointer(address)
    if default.type == "cpu" and found["memory"] != "device":  # what the host reads as well
        return default
    return devices.device_from_dlpack(*((CUDA, found["device"]) if found["known"] else (CPU, 0)))


def _unknown(value: Any, where: str) -> ConversionTypeError:
    """The error for an object that is no array and no number."""
    fix = "pass numbers, or an array of them"
    if hasattr(type(value), "__array__"):
        fix = "convert it first: numpy.asarray(x)"
    elif hasattr(type(value), "__iter__") and not isinstance(value, (str, dict)):
        fix = "make a list of it first: list(x)"
    return ConversionTypeError(
        where=where,
        expected="a number, nested lists of numbers, or an array that speaks DLPack, the CUDA "
        "Array Interface, NumPy's array interface or the buffer protocol",
        got=f"an object of type {type(value).__module__}.{type(value).__qualname__}",
        fix=fix,
    )
