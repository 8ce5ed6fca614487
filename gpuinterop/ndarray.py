"""The two array classes: `CudaNdarray`, the float32 array of the Theano tutorials, and `GpuArray`, for any dtype.

Both derive from the core's array, which holds shape, strides and memory in C++. The memory is on a GPU
or, on device "cpu", in host memory, with the same rules.
"""

from __future__ import annotations

import math
import operator
import os
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

import gpuinterop.devices as devices
from gpuinterop import _core
from gpuinterop.arrays import copy_tracking, dtypes, numpy_views
from gpuinterop.arrays import from_pointer as pointers
from gpuinterop.arrays.core_view import c_strides, core_view
from gpuinterop.arrays.kernel_arguments import ArgumentMethods
from gpuinterop.arrays.numpy_views import (
    download,
    has_core_layout,
    only_element,
    to_host_array,
    wrap_numpy,
)
from gpuinterop.arrays.views import ViewMethods, own_state
from gpuinterop.devices import resolve_device
from gpuinterop.elementwise.calls import call
from gpuinterop.elementwise.missing_names import ATTRIBUTES, MissingName
from gpuinterop.errors import (
    ArgumentTypeError,
    ArrayIndexError,
    CopyForbiddenError,
    DeviceError,
    GpuInteropError,
    MissingNameError,
    ShapeError,
    StreamError,
    short_repr,
    type_name,
)
from gpuinterop.errors.arguments import checks_arguments, require_bool
from gpuinterop.errors.context import reraise_from
from gpuinterop.exchange import incoming
from gpuinterop.reduce.functions import ReductionMethods
from gpuinterop.sorting.methods import SortingMethods

if TYPE_CHECKING:
    from gpuinterop.drawing.draw import Drawing

__all__ = ["CudaNdarray", "GpuArray"]

Self = TypeVar("Self", bound="ArrayMethods")


class ArrayMethods(ReductionMethods, SortingMethods, ArgumentMethods, ViewMethods):
    """The methods of both classes: reading and writing values, conversions to Python and NumPy."""

    __slots__ = ()

    # Above NumPy's scalars and arrays, so that `ndarray + x` calls the operator of this class.
    __array_priority__ = 1000.0
    __torch_function__: Any = classmethod(incoming.torch_function)

    def __dir__(self) -> list[str]:
        # For completion: without the names that only Theano's programs and PyCUDA's kernels read, and those that
        # this array lacks. An interface is not read for that: other libraries' streams would have to wait from then on.
        lacks = {f"__{'cuda_' if self.device.type == 'cpu' else ''}array_interface__"}
        lacks |= {"mT"} if self.ndim < 2 else set()
        names = set(super().__dir__()) - _MISSING - {"allocator"} - lacks
        return [name for name in names if name[:1] != "_" or name[:2] == "__"]

    # ---- reading values ----------------------------------------------------------------------------

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """Return `gpuinterop.array_api`, the functions of the array API standard."""
        return call("array namespace", api_version)

    @property
    def mT(self: Self) -> Self:
        """The view with the last two axes exchanged."""
        if self.ndim < 2:  # an AttributeError, so that tools may list the attributes
            raise MissingNameError(
                where="x.mT", expected="an array of two or more axes",
                got=f"shape {self.shape}", fix="add an axis: x[None]",
            )  # fmt: skip
        return self.swapaxes(-1, -2)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Return the elements as a NumPy array: downloaded, or shared on device "cpu"."""
        seen = core_view(self)
        if seen.device.type == "cpu":
            with reraise_from("numpy.asarray"):
                return np.array(to_host_array(self, "numpy.asarray"), dtype=dtype, copy=copy)
        if copy is False:
            raise CopyForbiddenError(
                where="numpy.asarray",
                expected="host memory, which NumPy can share",
                got=f"an array on {seen.device}",
                fix="allow the download: numpy.asarray(x)",
            )
        copy_tracking.report_hidden_download(seen.nbytes, "numpy.asarray")
        host = to_host_array(self, "numpy.asarray", memory=True)
        return host if dtype is None else host.astype(dtype, copy=False)

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Return Arrow's two capsules, for pyarrow and polars; shares memory if it can. Needs pyarrow."""
        found: tuple[Any, Any] = import_module("gpuinterop.exchange.arrow").to_arrow(
            self, requested_schema
        )
        return found

    def get(self, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """Return a new NumPy array with the elements, or fill `out`; never shares memory.

        Waits for the work that is queued on the array.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x.get()
        array([[1., 2.],
               [3., 4.]], dtype=float32)
        """
        if out is None:
            return download(self, "get")
        seen = core_view(self)
        if seen.device.type == "cpu":
            _core._require_values("get", self)
        if not isinstance(out, np.ndarray):
            raise ArgumentTypeError(where="get", expected="a NumPy array to fill",
                                    got=type_name(out),
                                    fix="pass numpy.empty(x.shape, x.dtype), or omit out")  # fmt: skip
        target = _core.share_ordinary(out)
        if target is None:
            target = numpy_views.require_aligned_host(out, "get")
        if target.shape != seen.shape:
            raise ShapeError(where="get", expected=f"shape {seen.shape}", got=str(target.shape),
                             fix="pass an array of the same shape")  # fmt: skip
        _core.copy_into(target, self, where="get")
        return out

    def item(self, *index: Any) -> Any:
        """Return one element as a Python scalar; without an index, the only element.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x.item(0, 1), x.sum().item()
        (2.0, 10.0)
        """
        if len(index) == 1 and isinstance(index[0], tuple):
            index = index[0]
        if not index:
            return only_element(self, "item")
        found = _core._element(self, index, "item")
        return self._refuse_index(index) if found is NotImplemented else found

    def _refuse_index(self, index: tuple[Any, ...]) -> Any:
        """Raise for an index of `item` that names no element."""
        seen: Any = _core.view(GpuArray, self)
        try:
            places = tuple(map(operator.index, index))
        except TypeError:
            raise ArgumentTypeError(where="item", expected="an int, or one for each axis",
                                    got=", ".join(map(short_repr, index)),
                                    fix="write x.item(0)") from None  # fmt: skip
        if len(places) == seen.ndim > 1:
            try:
                return seen[places]  # raises
            except GpuInteropError as error:
                raise error.changed(where="item") from None
        raise ArrayIndexError(
            where="item",
            expected="one index into the flattened array, or one for each axis",
            got=f"{', '.join(map(short_repr, places))} for an array of shape {seen.shape}",
            fix="pass an index from -x.size to x.size - 1, or one for each axis",
        )

    def __contains__(self, value: Any) -> bool:
        """Return whether an element equals `value`, which broadcasts as in NumPy."""
        found: Any = self == value
        return bool(found.any() if isinstance(found, _core.Array) else found)

    def tolist(self) -> Any:
        """Return the elements as nested Python lists, a 0-d array as a scalar.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x.tolist()
        [[1.0, 2.0], [3.0, 4.0]]
        """
        with reraise_from("tolist"):
            return to_host_array(self, "tolist").tolist()

    def tobytes(self) -> bytes:
        """Return a copy of the elements in C order, as bytes.

        Examples
        --------
        >>> import gpuinterop
        >>> gpuinterop.asarray([65, 66], "uint8", device="cpu").tobytes()
        b'AB'
        """
        seen = core_view(self)
        if seen.device.type == "cpu":
            copy_tracking.report_copy("host", seen.nbytes, "tobytes")
        with reraise_from("tobytes"):
            return to_host_array(self, "tobytes", memory=True).tobytes()

    __bytes__ = tobytes  # Python would otherwise read one byte from each integer

    def __float__(self) -> float:
        return float(only_element(self, "float"))

    def __int__(self) -> int:
        return int(only_element(self, "int"))

    def __complex__(self) -> complex:
        return complex(only_element(self, "complex"))

    def __index__(self) -> int:
        seen = core_view(self)
        if seen.dtype.kind not in "iu" or seen.ndim:
            raise ArgumentTypeError(
                where="index",
                expected="a 0-d array of integers",
                got=f"dtype {seen.dtype}, shape {seen.shape}",
                fix="convert it: int(x)",
            )
        return int(only_element(self, "index"))

    def __round__(self: Self, ndigits: int | None = None) -> Self:
        return self.round(ndigits or 0)

    def __bool__(self) -> bool:
        return bool(only_element(self, "bool"))

    def __repr__(self) -> str:
        name = type(self).__name__
        body = np.array2string(to_host_array(self, "repr"), separator=", ", prefix=name + "(")
        seen = core_view(self)
        notes = [f"shape={seen.shape}"] if seen.size == 0 else []
        if seen.dtype != np.float32 or not isinstance(self, CudaNdarray):
            notes.append(f"dtype={seen.dtype}")
        notes.append(f"device='{seen.device}'")
        if not seen.is_c_contiguous():
            notes.append(f"strides={seen.strides}")
        if seen.readonly:
            notes.append("readonly")
        base = self.base
        if base is not None and not isinstance(base, _core.Array):
            notes.append(f"memory of {type(base).__module__}.{type(base).__qualname__}")
        return f"{name}({body}, {', '.join(notes)})"

    def __str__(self) -> str:
        return str(to_host_array(self, "str"))

    def draw(self, to: str | None = None) -> Drawing:
        """Draw the memory of the array, as `gpuinterop.draw` does; downloads nothing.

        Examples
        --------
        >>> import gpuinterop
        >>> print(gpuinterop.zeros((2, 2), device="cpu").T.draw())
        float32, shape (2, 2), strides (4, 8) bytes, on cpu
        shares 16 bytes owned by a CudaNdarray of shape (2, 2)
        <BLANKLINE>
             |---> axis 0
         +0 0,0 1,0
         +8 0,1 1,1
        <BLANKLINE>
        axis 0: length 2, step +4 bytes, 1 cell forward
        axis 1: length 2, step +8 bytes, 2 cells forward
        """
        from gpuinterop.drawing import draw  # noqa: PLC0415 - few programs draw

        return draw.draw(self, to)

    def _repr_html_(self) -> str:
        from gpuinterop.drawing import draw  # noqa: PLC0415

        return draw.html(self)

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        return format(only_element(self, "format"), spec)

    # ---- writing values -----------------------------------------------------------------------------

    def set(self, value: Any) -> None:
        """Set the elements from an array of the same shape (PyCUDA's name for assignment).

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x.set([[5, 6], [7, 8]])
        >>> x.tolist()
        [[5.0, 6.0], [7.0, 8.0]]
        """
        try:  # not by reraise_from, which would run six more Python functions in a cached call
            self[...] = value
        except GpuInteropError as error:
            raise error.changed(where="set") from None

    # ---- devices --------------------------------------------------------------------------------

    @checks_arguments("copy")
    def to_device(self: Self, device: Any, /, *, stream: Any = None, copy: bool = False) -> Self:
        """Return the array on another device: itself if it is there already, else a copy.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x.to_device("cpu") is x
        True
        """
        copy = require_bool(copy, "copy", "to_device")
        target = resolve_device(device, "to_device")
        seen = core_view(self)
        if target == seen.device and not copy:
            return self
        moved: Self = _core.empty(
            type(self), seen.shape, seen.dtype, target.type_code, target.index, where="to_device"
        )
        if stream is None:
            _core.copy_into(moved, self, where="to_device")
        else:
            places = [d for d in (target, seen.device) if d.type == "cuda"] or [target]
            order = devices.as_stream(stream, places[0])
            if order.device not in places:
                raise StreamError(where="to_device",
                                  expected=f"a stream of {' or '.join(map(str, places))}",
                                  got=f"{order} for a copy from {seen.device} to {target}",
                                  fix="pass a stream of one of the two devices, or omit stream")  # fmt: skip
            with order:
                _core.copy_into(moved, self, where="to_device")
        return moved

    transfer = to_device

    def cpu(self: Self) -> Self:
        """Return the array in host memory.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x.cpu().device
        Device('cpu')
        """
        return self.to_device("cpu")

    def cuda(self: Self, index: int = 0) -> Self:
        """Return the array on a GPU.

        Examples
        --------
        >>> import gpuinterop
        >>> gpuinterop.ones(3, device="cpu").cuda().device == "cuda:0"
        True
        """
        return self.to_device(resolve_device(f"cuda:{index}", "cuda"))

    def sync(self) -> None:
        """Wait until all work queued on this array is done.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x.sync()
        """
        if core_view(self).device.type == "cuda":
            _core.finish_uses(self, "sync")

    # ---- pickling ------------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: Any) -> Any:
        if type(self).__reduce__ is not ArrayMethods.__reduce__:
            return self.__reduce__()  # of a subclass
        return self._reduced(protocol)

    def __reduce__(self) -> Any:
        return self._reduced(2)

    def _reduced(self, protocol: int) -> tuple[Any, ...]:
        memory, strides, offset = pickled_memory(self)
        seen, flat = core_view(self), core_view(memory)
        if (
            seen.device.type == "cpu" and protocol < 5
        ):  # NumPy copies; protocol 5 receives the memory itself
            copy_tracking.report_copy("host", flat.nbytes, "pickle")
        host = to_host_array(flat, "pickle", memory=True).view(np.uint8)
        host.flags.writeable = host.flags.writeable and not seen.readonly
        layout = seen.dtype, seen.shape, strides, offset, seen.readonly
        return _unpickle, (type(self), host, str(seen.device), layout), own_state(self)


def pickled_memory(x: ArrayMethods) -> tuple[_core.Array, tuple[int, ...], int]:
    """Return the memory from the first to the last element as a vector, and the strides and the offset in it.

    An array with more gaps than elements is copied first, without gaps. Axes keep their order and direction.
    """
    seen: Any = _core.view(GpuArray, x)
    steps = (
        [(n - 1) * s for n, s in zip(seen.shape, seen._strides, strict=True)] if seen.size else []
    )
    low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    length = high - low + 1 if seen.size else 0
    repeated = tuple(slice(None if s else 1) for s in seen._strides)
    if length > 2 * max(1, seen[repeated].size):
        forward = tuple(slice(None, None, -1 if s < 0 else 1) for s in seen._strides)
        packed = seen[repeated][forward].copy("K")[forward].broadcast_to(seen.shape)
        return pickled_memory(packed)
    return seen._restrided((length,), (1,), low), seen._strides, -low


def _unpickle(
    cls: type[ArrayMethods], host: np.ndarray[Any, Any], place: str, layout: Any = None
) -> ArrayMethods:
    """Make an array of its bytes, and the dtype, shape, strides, offset and readonly of `layout`."""
    wish = os.environ.get("GPUINTEROP_UNPICKLE_DEVICE")
    place = wish or place
    try:
        target = devices.device(place)
    except DeviceError as error:
        raise DeviceError(
            where="GPUINTEROP_UNPICKLE_DEVICE" if wish else "unpickle", got=error.got,
            expected=error.expected if wish else f"the device the array was pickled on, {place}",
            fix="set GPUINTEROP_UNPICKLE_DEVICE=cpu to load it into host memory",
        ) from error  # fmt: skip
    host = np.asarray(host)  # because a subclass may report any dtype
    if layout is None:  # a pickle of an earlier version, with the elements in their dtype
        host = np.ascontiguousarray(host)
        layout = host.dtype, host.shape, c_strides(host.shape, 1), 0, False
    dtype, shape, strides, offset, readonly = layout
    incoming.check_cast(cls, dtypes.as_supported_dtype(dtype, "unpickle"), "unpickle")
    host = host.reshape(-1).view(dtype)
    if not has_core_layout(host):  # a buffer may begin at any address
        host = host.copy()
    plain = math.prod(shape) == host.size and offset == 0
    contiguous = plain and tuple(strides) == c_strides(shape, 1)
    whole = host.reshape(shape) if contiguous else host
    array: ArrayMethods
    if target.type == "cpu" and (host.flags.writeable or readonly):
        array = _core.adopt(cls, wrap_numpy(whole))
    else:
        array = _core.empty(
            cls, whole.shape, dtype, target.type_code, target.index, where="unpickle"
        )
        _core.copy_into(array, wrap_numpy(whole), where="unpickle")
    if not contiguous:
        array = array._restrided(shape, strides, offset)
    if readonly and not array.readonly:
        array.readonly = True
    return array


class CudaNdarray(ArrayMethods):
    """A strided float32 array in CUDA memory, or in host memory on device "cpu".

    ``CudaNdarray(value)`` copies `value`: a NumPy array, nested lists of numbers, or an array of any
    library that implements an exchange protocol. The dtype must be float32; other dtypes raise
    TypeError, because only the caller casts, for example by ``dtype="float32"``. The result is
    C-ordered and owns its memory. Without `device` it is on the GPU of `value`, or on
    `default_device()` if `value` is on the host. To share memory instead of copying use
    `gpuinterop.asarray` or `from_dlpack`.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.CudaNdarray(numpy.ones((2, 3), "float32"), device="cpu")
    >>> x[:, ::-1].strides, x[:, ::-1]._strides
    ((12, -4), (3, -1))
    """

    __slots__ = ()

    _only = np.dtype(np.float32)

    @checks_arguments()
    def __new__(cls, value: Any, device: Any = None, *, dtype: Any = None) -> CudaNdarray:
        if isinstance(value, int) and isinstance(device, int):
            raise ArgumentTypeError(
                where=cls.__name__, expected="the values of the array, and a device", got=f"{value}, {device}",
                fix=f"pass a shape to {cls.__name__}.zeros(({value}, {device}))",
            )  # fmt: skip
        if dtype is not None:
            incoming.check_cast(cls, dtypes.as_supported_dtype(dtype, cls.__name__), cls.__name__)
        return incoming.copy_of_value(lambda _: cls, value, dtype, device, cls.__name__)

    @classmethod
    def zeros(cls, shape: Any, device: Any = None) -> CudaNdarray:
        """Return an array of zeros.

        Examples
        --------
        >>> import gpuinterop
        >>> gpuinterop.CudaNdarray.zeros((2, 2), "cpu").tolist()
        [[0.0, 0.0], [0.0, 0.0]]
        """
        return incoming.new_full(cls, shape, 0.0, np.float32, device)

    @classmethod
    def from_pointer(
        cls,
        ptr: int,
        shape: Any,
        strides: Any = None,
        base: Any = None,
        *,
        device: Any = None,
        nbytes: int = -1,
        readonly: bool = False,
    ) -> CudaNdarray:
        """Wrap float32 memory at an address; the array and its views hold a reference to `base`.

        Shares, never copies or frees. `strides` are in elements, as for `from_gpu_pointer`. Strides
        and shape are checked against `nbytes`, the size of the memory from `ptr` on. Without it they
        are checked against the memory of `base` if that is a gpuinterop array, else on a GPU against
        the driver's allocation.

        Examples
        --------
        >>> import numpy, gpuinterop
        >>> n = numpy.arange(3, dtype="float32")
        >>> gpuinterop.CudaNdarray.from_pointer(n.ctypes.data, (3,), (1,), n, device="cpu").tolist()
        [0.0, 1.0, 2.0]
        """
        return pointers.from_address(
            cls, ptr, shape, strides, base, device, nbytes, readonly,
            where="CudaNdarray.from_pointer",
        )  # fmt: skip


class GpuArray(ArrayMethods):
    """An array of any dtype, in CUDA memory or, on device "cpu", in host memory.

    ``GpuArray(value, dtype=None)`` copies `value`; strides count bytes throughout.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.GpuArray([1, 2], "int32", device="cpu")
    GpuArray([1, 2], dtype=int32, device='cpu')
    """

    __slots__ = ()

    @checks_arguments()
    def __new__(cls, value: Any, dtype: Any = None, device: Any = None) -> GpuArray:
        return incoming.copy_of_value(lambda _: cls, value, dtype, device, cls.__name__)

    @classmethod
    def zeros(cls, shape: Any, dtype: Any = np.float32, device: Any = None) -> GpuArray:
        """Return an array of zeros.

        Examples
        --------
        >>> import gpuinterop
        >>> gpuinterop.GpuArray.zeros(2, "int8", "cpu").tolist()
        [0, 0]
        """
        return incoming.new_full(cls, shape, 0, dtype, device)

    @classmethod
    def from_pointer(
        cls,
        ptr: int,
        shape: Any,
        dtype: Any,
        strides: Any = None,
        base: Any = None,
        *,
        device: Any = None,
        nbytes: int = -1,
        readonly: bool = False,
    ) -> GpuArray:
        """Wrap memory of any dtype, as `CudaNdarray.from_pointer` does; `strides` are in bytes.

        Examples
        --------
        >>> import numpy, gpuinterop
        >>> n = numpy.arange(3)
        >>> gpuinterop.GpuArray.from_pointer(n.ctypes.data, (3,), n.dtype, None, n, device="cpu").tolist()
        [0, 1, 2]
        """
        return pointers.from_address(
            cls, ptr, shape, strides, base, device, nbytes, readonly, dtype, False,
            "GpuArray.from_pointer",
        )  # fmt: skip


for _mixin in ArrayMethods.__mro__[: ArrayMethods.__mro__.index(_core.Array)]:
    for _method in vars(_mixin).values():
        # Errors of Python name the class, and pickle reads it.
        for _function in (_method, getattr(_method, "__wrapped__", None)):
            if isinstance(_function, (FunctionType, type(ArrayMethods.sort))):
                _function.__module__ = __name__
                _function.__qualname__ = f"GpuArray.{_function.__name__}"

_MISSING = ATTRIBUTES - {*dir(ArrayMethods)}
for _name in _MISSING:
    setattr(ArrayMethods, _name, MissingName(_name))


_core._set_result_types(CudaNdarray, GpuArray)
