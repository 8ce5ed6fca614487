"""Types of the native core. Written by `make stub` from tools/core_slots.pyi."""

from collections.abc import Callable, Sequence
from collections.abc import Iterator, Sequence
from gpuinterop.devices import Device
from gpuinterop.ndarray import CudaNdarray, GpuArray
from numpy.typing import DTypeLike
from typing import Any, Callable, Literal, TypeAlias, TypeVar, overload
from typing_extensions import Self
import numpy as np

A = TypeVar('A', bound=Array)
T = TypeVar('T')
Shape = int | Sequence[int]
Float32: TypeAlias = type[np.float32] | Literal['float32', 'f4']
OtherDType: TypeAlias = type[bool | int | float | complex | np.bool | np.integer[Any] | np.float16 | np.complexfloating[Any, Any]] | Literal['bool', 'int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64', 'float16', 'float64', 'complex64', 'complex128', 'bfloat16']

def set_hooks(**hooks: Callable[..., Any]) -> None:
    """
    Fill entries of the table by which the core calls Python: set_hooks(copied=note).
    """
class Array:
    """A strided array in host or CUDA memory."""

    def __lt__(self, other: Any, /) -> GpuArray:
        ...

    def __le__(self, other: Any, /) -> GpuArray:
        ...

    def __eq__(self, other: Any, /) -> GpuArray:  # type: ignore[override]
        ...

    def __ne__(self, other: Any, /) -> GpuArray:  # type: ignore[override]
        ...

    def __gt__(self, other: Any, /) -> GpuArray:
        ...

    def __ge__(self, other: Any, /) -> GpuArray:
        ...

    def __iter__(self) -> Iterator[Self]:
        ...

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        ...

    @overload
    def __add__(self, other: CudaNdarray, /) -> CudaNdarray:
        ...

    @overload
    def __add__(self, other: Any, /) -> Self:
        ...

    @overload
    def __radd__(self, other: CudaNdarray, /) -> CudaNdarray:
        ...

    @overload
    def __radd__(self, other: Any, /) -> Self:
        ...

    @overload
    def __sub__(self, other: CudaNdarray, /) -> CudaNdarray:
        ...

    @overload
    def __sub__(self, other: Any, /) -> Self:
        ...

    @overload
    def __rsub__(self, other: CudaNdarray, /) -> CudaNdarray:
        ...

    @overload
    def __rsub__(self, other: Any, /) -> Self:
        ...

    @overload
    def __mul__(self, other: CudaNdarray, /) -> CudaNdarray:
        ...

    @overload
    def __mul__(self, other: Any, /) -> Self:
        ...

    @overload
    def __rmul__(self, other: CudaNdarray, /) -> CudaNdarray:
        ...

    @overload
    def __rmul__(self, other: Any, /) -> Self:
        ...

    @overload
    def __mod__(self, other: CudaNdarray, /) -> CudaNdarray:
        ...

    @overload
    def __mod__(self, other: Any, /) -> Self:
        ...

    @overload
    def __rmod__(self, other: CudaNdarray, /) -> CudaNdarray:
        ...

    @overload
    def __rmod__(self, other: Any, /) -> Self:
        ...

    @overload
    def __divmod__(self, other: CudaNdarray, /) -> tuple[CudaNdarray, CudaNdarray]:
        ...

    @overload
    def __divmod__(self, other: Any, /) -> tuple[Self, Self]:
        ...

    @overload
    def __rdivmod__(self, other: CudaNdarray, /) -> tuple[CudaNdarray, CudaNdarray]:
        ...

    @overload
    def __rdivmod__(self, other: Any, /) -> tuple[Self, Self]:
        ...

    @overload
    def __pow__(self, other: CudaNdarray, modulus: None=None, /) -> CudaNdarray:
        ...

    @overload
    def __pow__(self, other: Any, modulus: None=None, /) -> Self:
        ...

    @overload
    def __rpow__(self, other: CudaNdarray, modulus: None=None, /) -> CudaNdarray:
        ...

    @overload
    def __rpow__(self, other: Any, modulus: None=None, /) -> Self:
        ...

    def __neg__(self) -> Self:
        ...

    def __pos__(self) -> Self:
        ...

    def __abs__(self) -> Self:
        ...

    def __invert__(self) -> Self:
        ...

    def __lshift__(self, other: Any, /) -> Self:
        ...

    def __rlshift__(self, other: Any, /) -> Self:
        ...

    def __rshift__(self, other: Any, /) -> Self:
        ...

    def __rrshift__(self, other: Any, /) -> Self:
        ...

    def __and__(self, other: Any, /) -> Self:
        ...

    def __rand__(self, other: Any, /) -> Self:
        ...

    def __xor__(self, other: Any, /) -> Self:
        ...

    def __rxor__(self, other: Any, /) -> Self:
        ...

    def __or__(self, other: Any, /) -> Self:
        ...

    def __ror__(self, other: Any, /) -> Self:
        ...

    def __iadd__(self, other: Any, /) -> Self:  # type: ignore[misc]
        ...

    def __isub__(self, other: Any, /) -> Self:  # type: ignore[misc]
        ...

    def __imul__(self, other: Any, /) -> Self:  # type: ignore[misc]
        ...

    def __imod__(self, other: Any, /) -> Self:  # type: ignore[misc]
        ...

    def __ipow__(self, other: Any, modulus: None=None, /) -> Self:  # type: ignore[misc]
        ...

    def __ilshift__(self, other: Any, /) -> Self:
        ...

    def __irshift__(self, other: Any, /) -> Self:
        ...

    def __iand__(self, other: Any, /) -> Self:
        ...

    def __ixor__(self, other: Any, /) -> Self:
        ...

    def __ior__(self, other: Any, /) -> Self:
        ...

    @overload
    def __floordiv__(self, other: CudaNdarray, /) -> CudaNdarray:
        ...

    @overload
    def __floordiv__(self, other: Any, /) -> Self:
        ...

    @overload
    def __rfloordiv__(self, other: CudaNdarray, /) -> CudaNdarray:
        ...

    @overload
    def __rfloordiv__(self, other: Any, /) -> Self:
        ...

    @overload
    def __truediv__(self, other: CudaNdarray, /) -> CudaNdarray:
        ...

    @overload
    def __truediv__(self, other: Any, /) -> Self:
        ...

    @overload
    def __rtruediv__(self, other: CudaNdarray, /) -> CudaNdarray:
        ...

    @overload
    def __rtruediv__(self, other: Any, /) -> Self:
        ...

    def __ifloordiv__(self, other: Any, /) -> Self:  # type: ignore[misc]
        ...

    def __itruediv__(self, other: Any, /) -> Self:  # type: ignore[misc]
        ...

    @overload
    def __matmul__(self, other: CudaNdarray, /) -> CudaNdarray:
        ...

    @overload
    def __matmul__(self, other: Any, /) -> Self:
        ...

    @overload
    def __rmatmul__(self, other: CudaNdarray, /) -> CudaNdarray:
        ...

    @overload
    def __rmatmul__(self, other: Any, /) -> Self:
        ...

    def __imatmul__(self, other: Any, /) -> Self:  # type: ignore[misc]
        ...

    def __len__(self) -> int:
        ...

    def __getitem__(self, key: Any, /) -> Self:
        ...

    def __setitem__(self, key: Any, value: Any, /) -> None:
        ...

    def __delitem__(self, key: Any, /) -> None:
        ...

    def is_c_contiguous(self) -> bool:
        """True when the elements lie in C order without gaps; extents of 1 do not count."""

    def is_f_contiguous(self) -> bool:
        """True when the elements lie in column order without gaps; extents of 1 do not count."""

    def view(self) -> Self:
        """A new object over the same memory."""

    def _permuted(self, axes: Sequence[int], /) -> Self:
        """View with the axes in another order."""

    def _reshaped(self, shape: Shape, /) -> Self | None:
        """View under another shape, or None when strides forbid one."""

    def _broadcast_to(self, shape: Shape, /) -> Self:
        """Read-only view repeated to a larger shape."""

    def _restrided(self, shape: Shape, strides: Sequence[int], offset: int, /) -> Self:
        """Checked view: shape, strides and offset in elements."""

    def copy(self, order: str='C') -> Self:
        """Return an independent compact copy, whatever the strides are; in one of NumPy's orders."""

    def fill(self, value: Any, /) -> None:
        """Set every element to one value."""

    def _copied(self, where: str, /) -> Self:
        """C-ordered copy for the method that is named."""

    def _memory_order(self) -> list[int]:
        """The axes from the longest step to the shortest."""

    def _set_stride(self, axis: int, stride: int, /) -> None:
        """Set the stride of one axis, in elements, in place."""

    def _set_shape_i(self, axis: int, extent: int, /) -> None:
        """Set one extent in place."""

    def _set_shape(self, shape: Shape, /) -> None:
        """Set the shape in place where strides allow it."""

    def __dlpack__(self, *, stream: int | None=None, max_version: tuple[int, int] | None=None, dl_device: tuple[int, int] | None=None, copy: bool | None=None) -> Any:
        ...

    def __dlpack_device__(self) -> tuple[int, int]:
        ...

    def __array_function__(self, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        ...

    @overload
    def astype(self, dtype: Float32, order: str='C', copy: bool=True) -> Self:  # type: ignore[overload-overlap]
        """A copy in another dtype; the array itself when copy=False and nothing changes."""

    @overload
    def astype(self, dtype: OtherDType, order: str='C', copy: bool=True) -> GpuArray:
        """A copy in another dtype; the array itself when copy=False and nothing changes."""

    @overload
    def astype(self, dtype: DTypeLike, order: str='C', copy: bool=True) -> CudaNdarray | GpuArray:
        """A copy in another dtype; the array itself when copy=False and nothing changes."""

    @overload
    def clip(self, min: Any=None, max: Any=None, out: None=None) -> Self:
        """Every element cut to the range from min to max."""

    @overload
    def clip(self, min: Any=None, max: Any=None, *, out: A) -> A:
        """Every element cut to the range from min to max."""

    @overload
    def round(self, decimals: int=0, out: None=None) -> Self:
        """Every element rounded to the given number of decimals."""

    @overload
    def round(self, decimals: int=0, *, out: A) -> A:
        """Every element rounded to the given number of decimals."""

    @overload
    def take(self, indices: Any, axis: int | None=None, out: None=None, mode: str='raise', max_threads: int=1) -> Self:
        """Elements gathered along an axis, as numpy.take."""

    @overload
    def take(self, indices: Any, axis: int | None=None, *, out: A, mode: str='raise', max_threads: int=1) -> A:
        """Elements gathered along an axis, as numpy.take."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any=None, where: Any=True, dtype: Any=None, casting: str='same_kind', order: str='K', subok: bool=True, axis: Any=0, keepdims: bool=False, initial: Any=None) -> Any:
        ...

    def exp(self) -> Self:
        """The exponential of every element, a new C-ordered array."""

    def conj(self) -> Self:
        """The complex conjugate of every element."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    _strides: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""

    @property
    def size(self) -> int:
        """Number of elements."""

    @property
    def mem_size(self) -> int:
        """Number of elements, under the name that PyCUDA reads."""

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""

    @property
    def ptr(self) -> int:
        """Address of element [0, ..., 0]; 0 when empty."""

    @property
    def gpudata(self) -> int:
        """Address of element [0, ..., 0]; 0 when empty."""
    _dev_data: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype object."""

    @property
    def device(self) -> Device:
        """The device that holds the memory."""

    @property
    def base(self) -> Any:
        """The root owner of a view, the foreign owner, or None."""
    readonly: bool

    @property
    def memory(self) -> Literal['host', 'device', 'pinned', 'managed']:
        """'host', 'device', 'pinned' or 'managed'."""

    @property
    def T(self) -> Self:
        """A view with the axes reversed."""

    @property
    def _stream(self) -> int:
        """Handle of the stream of the last use; 0 on the host."""

    @property
    def _owns(self) -> bool:
        """True for a root owner."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        ...

    @property
    def __array_interface__(self) -> dict[str, Any]:
        ...
    __hash__: None  # type: ignore[assignment]
    __dlpack_c_exchange_api__: Any
    __c_dlpack_exchange_api__: Any

    @overload
    def dot(self, other: CudaNdarray, out: None=None) -> CudaNdarray:
        """Return numpy.dot's product."""

    @overload
    def dot(self, other: Any, out: None=None) -> Self:
        """Return numpy.dot's product."""

    @overload
    def dot(self, other: Any, out: A) -> A:
        """Return numpy.dot's product."""

    @overload
    def sum(self, axis: Any=None, dtype: Any=None, out: None=None, keepdims: bool=False, initial: Any=None, where: Any=True) -> Self:
        """Return the sum over `axis`. float32 sums keep their rounding errors apart."""

    @overload
    def sum(self, axis: Any=None, dtype: Any=None, *, out: A, keepdims: bool=False, initial: Any=None, where: Any=True) -> A:
        """Return the sum over `axis`. float32 sums keep their rounding errors apart."""

    @overload
    def prod(self, axis: Any=None, dtype: Any=None, out: None=None, keepdims: bool=False, initial: Any=None, where: Any=True) -> Self:
        """Return the product over `axis`."""

    @overload
    def prod(self, axis: Any=None, dtype: Any=None, *, out: A, keepdims: bool=False, initial: Any=None, where: Any=True) -> A:
        """Return the product over `axis`."""

    @overload
    def mean(self, axis: Any=None, dtype: Any=None, out: None=None, keepdims: bool=False, *, where: Any=True) -> Self:
        """Return the mean over `axis`."""

    @overload
    def mean(self, axis: Any=None, dtype: Any=None, *, out: A, keepdims: bool=False, where: Any=True) -> A:
        """Return the mean over `axis`."""

    @overload
    def min(self, axis: Any=None, out: None=None, keepdims: bool=False, initial: Any=None, where: Any=True) -> Self:
        """Return the minimum over `axis`; a NaN wins."""

    @overload
    def min(self, axis: Any=None, *, out: A, keepdims: bool=False, initial: Any=None, where: Any=True) -> A:
        """Return the minimum over `axis`; a NaN wins."""

    @overload
    def max(self, axis: Any=None, out: None=None, keepdims: bool=False, initial: Any=None, where: Any=True) -> Self:
        """Return the maximum over `axis`; a NaN wins."""

    @overload
    def max(self, axis: Any=None, *, out: A, keepdims: bool=False, initial: Any=None, where: Any=True) -> A:
        """Return the maximum over `axis`; a NaN wins."""

    @overload
    def argmin(self, axis: Any=None, out: None=None, keepdims: bool=False) -> GpuArray:
        """Return the position of the first minimum over `axis`; several axes, or all, count as one."""

    @overload
    def argmin(self, axis: Any=None, *, out: A, keepdims: bool=False) -> A:
        """Return the position of the first minimum over `axis`; several axes, or all, count as one."""

    @overload
    def argmax(self, axis: Any=None, out: None=None, keepdims: bool=False) -> GpuArray:
        """Return the position of the first maximum over `axis`; several axes, or all, count as one."""

    @overload
    def argmax(self, axis: Any=None, *, out: A, keepdims: bool=False) -> A:
        """Return the position of the first maximum over `axis`; several axes, or all, count as one."""

    @overload
    def any(self, axis: Any=None, out: None=None, keepdims: bool=False, *, where: Any=True) -> GpuArray:
        """Return whether any element over `axis` is not zero."""

    @overload
    def any(self, axis: Any=None, *, out: A, keepdims: bool=False, where: Any=True) -> A:
        """Return whether any element over `axis` is not zero."""

    @overload
    def all(self, axis: Any=None, out: None=None, keepdims: bool=False, *, where: Any=True) -> GpuArray:
        """Return whether all elements over `axis` are not zero."""

    @overload
    def all(self, axis: Any=None, *, out: A, keepdims: bool=False, where: Any=True) -> A:
        """Return whether all elements over `axis` are not zero."""

    @overload
    def var(self, axis: Any=None, dtype: Any=None, out: None=None, ddof: float=0, keepdims: bool=False, *, where: Any=True) -> Self:
        """Return the variance over `axis`, divided by n - ddof."""

    @overload
    def var(self, axis: Any=None, dtype: Any=None, *, out: A, ddof: float=0, keepdims: bool=False, where: Any=True) -> A:
        """Return the variance over `axis`, divided by n - ddof."""

    @overload
    def std(self, axis: Any=None, dtype: Any=None, out: None=None, ddof: float=0, keepdims: bool=False, *, where: Any=True) -> Self:
        """Return the standard deviation over `axis`."""

    @overload
    def std(self, axis: Any=None, dtype: Any=None, *, out: A, ddof: float=0, keepdims: bool=False, where: Any=True) -> A:
        """Return the standard deviation over `axis`."""
def empty(cls: type[A], shape: Shape, dtype: Any, device_type: int, device_id: int, order: str='C', where: str='empty') -> A:
    """A fresh array of `cls`; its elements are not set."""
def from_pointer(cls: type[A], ptr: int, shape: Shape, strides: Sequence[int] | None, dtype: Any, device_type: int, device_id: int, base: Any, nbytes: int=-1, readonly: bool=False, where: str='from_pointer', in_elements: bool=False) -> A:
    """An array over foreign memory; strides in bytes, unless in_elements."""
def read_ints(value: Any, where: str='shape', what: str='shape') -> tuple[int, ...]:
    """
    A tuple of ints from an int or a sequence of ints, as every shape here is read.
    """
def alignment_of(dtype: Any, device_type: int) -> int:
    """What the addresses of elements of a dtype are multiples of."""
def copy_into(dst: Array, src: Array, non_blocking: bool=False, where: str='copy_into', uncounted: bool=False) -> None:
    """
    dst[...] = src for equal dtypes, between any strides and devices. uncounted: dst is a result, or one of the two holds Python's numbers on their way, so that this is no copy.
    """
def view(cls: type[A], x: Array) -> A:
    """The same memory as an array of another class."""
def adopt(cls: type[A], x: Array) -> A:
    """
    The same array as an object of another class, sharing ownership: base stays as it is.
    """
def _watch(change: int) -> int:
    """Add to the number of active copy watchers; returns it."""
def _dtype_rows() -> list[tuple[str, int, int, int]]:
    """The dtype table: (name, DLPack code, bits, itemsize)."""
MAX_DIMS: int = 64
def cuda_available() -> bool:
    """Whether the CUDA driver answers and has a device."""
def cuda_device_count() -> int:
    """Number of CUDA devices, 0 without a driver."""
def cuda_unavailable_reason() -> str:
    """What was tried and failed, or ''."""
def cuda_driver_version() -> int:
    """13000 for CUDA 13.0; 0 without a driver."""
def cuda_library_path() -> str:
    """The libcuda that was taken, or ''."""
def cuda_forked() -> bool:
    """
    Whether a parent process had initialised CUDA before it forked this one.
    """
def cuda_device_properties(ordinal: int) -> dict[str, Any]:
    """Properties by their runtime API names."""
def cuda_mem_info(ordinal: int) -> tuple[Any, ...]:
    """(free, total) bytes of a device."""
def memory_statistics(device_type: int, device_id: int) -> dict[str, Any]:
    """Bytes and buffers that this library holds on a device."""
def reset_peak(device_type: int, device_id: int) -> None:
    """Make the peak what is live now."""
def cuda_empty_cache(ordinal: int) -> None:
    """Give cached memory back to the driver and the system."""
def cuda_synchronize(ordinal: int) -> None:
    """Wait for everything that is queued on a device."""
def cuda_started(ordinal: int) -> bool:
    """Whether this library has used a device in this process."""
def current_context() -> int:
    """Handle of the CUDA context that is current in this thread; 0 for none."""
def set_current_context(handle: int) -> None:
    """
    Make a CUDA context current in this thread in place of the one that is.
    """
def inspect_pointer(address: int) -> dict[str, Any]:
    """
    What the driver knows of an address: known, memory, device, same_context, start, nbytes.
    """
def pinned_bytes(ordinal: int, nbytes: int) -> Array:
    """Page-locked host memory, at least one byte."""
def is_pinned_here(address: int, nbytes: int) -> bool:
    """Whether these bytes lie in memory of pinned_bytes()."""
def capturing() -> bool:
    """Whether some stream is known to be captured into a graph."""
class Stream:
    """
    An order of work on one device. `with stream:` makes it this thread's current one.
    """

    def __init__(self, device: object | None=None, *, blocking: bool=False, priority: int=0) -> None:
        """
        A new stream. A blocking one is ordered with the legacy default stream; lower numbers of
        `priority` go first.
        """

    @property
    def device(self) -> Device:
        """The device whose work it orders."""

    @property
    def handle(self) -> int:
        """The driver's handle as an int; 1 is the legacy default stream."""

    @property
    def ptr(self) -> int:
        """The handle, under CuPy's name."""

    @property
    def cuda_stream(self) -> int:
        """The handle, under torch's name."""

    @property
    def owner(self) -> object:
        """The foreign object whose stream this is, or None."""

    @property
    def priority(self) -> int:
        """The number it was made with; lower ones go first."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol of CUDA's Python libraries: (version, handle)."""

    def __index__(self) -> int:
        ...

    def synchronize(self) -> None:
        """Wait on the host until everything queued so far is done."""

    def query(self) -> bool:
        """Whether everything queued so far is done."""

    def wait(self, other: object) -> None:
        """Let later work wait for another stream's work, or for an event."""

    def record(self, event: object | None=None) -> object:
        """Record an event, a new one by default, and return it."""

    @property
    def is_capturing(self) -> bool:
        """Whether a graph is being captured from it."""

    def __enter__(self) -> Self:
        ...

    def __exit__(self, *args: Any) -> None:
        ...

    def __eq__(self, other: object) -> bool:
        ...

    def __hash__(self) -> int:
        ...

    def __repr__(self) -> str:
        ...
class Event:
    """A point in a stream's order of work."""

    def __init__(self, device: object | None=None, *, timing: bool=False, blocking: bool=False) -> None:
        """
        A new event. With `timing` it can measure; with `blocking` synchronize() sleeps, not spins.
        """

    @property
    def device(self) -> Device:
        """The device whose streams it is recorded on."""

    @property
    def handle(self) -> int:
        """The driver's handle as an int; 0 on device "cpu"."""

    @property
    def timing(self) -> bool:
        """Whether it can measure time."""

    def record(self, stream: object | None=None) -> None:
        """Mark this point of a stream, by default the current one."""

    def wait(self, stream: object | None=None) -> None:
        """
        Let a stream's later work, by default the current one's, wait for this point.
        """

    def query(self) -> bool:
        """Whether the work before this point is done; True if never recorded."""

    def synchronize(self) -> None:
        """Wait on the host for this point."""

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to `end`, which is waited for."""

    def __repr__(self) -> str:
        ...
def foreign_stream(device_type: int, device_id: int, handle: int, owner: object | None, lasting: bool=False) -> Stream:
    """
    A stream by its handle; `owner` is kept alive as long as the result. `lasting`: it is
    never destroyed, whatever becomes of the owner.
    """
def entered_stream(device_type: int, device_id: int) -> Stream | None:
    """
    The Stream object that is current in this thread, None if it is not from `with`.
    """
def current_stream_handle(device_id: int) -> int:
    """Handle of this thread's current stream."""
def stream_device(handle: int) -> int:
    """Number of the device whose primary context a stream handle belongs to."""
def _cuda_shutdown() -> None:
    """Leave all memory to the driver from here on: the process ends."""
@overload
def import_any(cls: type[A], obj: Any, device: tuple[int, int] | None=None, copy: bool | None=None, where: str='from_dlpack', realign: bool | None=False) -> A:
    ...
@overload
def import_any(cls: None, obj: Any, device: tuple[int, int] | None=None, copy: bool | None=None, where: str='from_dlpack', realign: bool | None=False) -> Any:
    """An array of class `cls` over the memory of `obj`, by the first protocol that works. `realign`: memory that is not aligned is copied; None: it is shared, for looking at its geometry alone."""
def export_via(x: Array, type: type[T], /) -> T:
    """
    An object of `type` over the memory of `x`, through that type's DLPack C exchange API.
    """
def _look_into(capsule: Any, where: str='from_dlpack', realign: bool=False, /) -> Array | None:
    """
    What a DLPack capsule describes, as an array that owns nothing; the capsule stays unused. None for another object.
    """
def share_plain(obj: Any, /) -> Array | None:
    """
    An array over an ordinary array of numpy, torch or cupy; None for what needs a converter's look.
    """
def _set_converters_changed(changed: bool, /) -> None:
    """Whether share_plain leaves all to the converters."""
def _set_result_types(float32_class: type[Array], other_class: type[Array], /) -> None:
    """Classes of the objects that consumers of the C exchange API get back."""
class LoadedKernel:
    """A kernel in a device's memory."""

    def launch(self, grid: object, block: object, shared: int, arguments: object, used: object) -> None:
        """
        Queue it on the current stream: arguments as bytes, and the arrays it touches.
        """

    def repeat(self, times: int) -> None:
        """Launch one thread many times: what a launch costs."""

    def attribute(self, what: int) -> int:
        """
        A CUfunction_attribute: 4 is the registers of a thread, 3 its local bytes.
        """
def _load_kernel(device: int, compile: Callable[[bool], tuple[bytes, str]], name: str) -> LoadedKernel:
    """
    Load what compile(fresh: bool) returns: cubin or PTX, and the kernel's symbol in it.
    """
def _compute_capability(device: int) -> int:
    """Times ten: 90 for 9.0."""
def _add_op(name: str, inputs: int, results: int, compares: bool=False, ufunc: object | None=None) -> int:
    """Add an elementwise operation; its id."""
def _drop_op(op: int) -> None:
    """
    Forget an operation that nobody can call any more; its id is given to another one.
    """
def _op_function(op: int, name: str, doc: str) -> object:
    """The operation as a function."""
def _op_of(function: object) -> int:
    """The id of an operation."""
def _forget_kernels() -> None:
    """Unload them, for tests."""
def _take(src: object, indices: object, axis: int, dst: object, extent: int) -> None:
    """
    Gather on CUDA. The indices were brought inside of `extent`, that of the axis.
    """
def _check_out(out: object, shape: object, dtype: int, like: object, where: str) -> None:
    """
    Refuse an out of another shape, dtype (a row) or device than `like`, or not to be written.
    """
def _may_overlap(a: object, b: object) -> bool:
    """Do two arrays share a byte? True when that cannot be told quickly."""
def _reaches(terms: Sequence[tuple[int, int]], target: int, budget: int) -> bool | None:
    """
    Whether sum(step * index) is target for some indices up to the limit of each (step, limit); None if the budget is too small to decide.
    """
def _overlaps_itself(a: object) -> bool:
    """Do two elements share a byte? True when that cannot be told quickly."""
C_CONTIGUOUS: int = 1
F_CONTIGUOUS: int = 2
NEGATIVE: int = 4
READONLY: int = 8
ON_CUDA: int = 16
EMPTY: int = 32
ALIGNED64: int = 64
IS_FLOAT32: int = 128
NUMPY_DTYPE: int = 256
def traits(x: object | None) -> int:
    """
    The properties of an array that converters ask for, as bits; 0 of other objects.
    """
def primary_is_current(device: int) -> bool:
    """
    True when the device's primary context is the calling thread's current one.
    """
def hand_over(x: object, consumer: int, where: str) -> None:
    """
    Make a foreign stream wait for what is queued on the array; no host synchronisation.
    """
def require_hand_over(x: object, consumer: int, where: str) -> None:
    """CaptureError where hand_over() would raise it; nothing waits."""
def require_wait(device: int, waiter: int, producer: int, where: str) -> None:
    """
    CaptureError where a capture forbids one stream to wait for another; nothing waits.
    """
def require_copies(device: int, to_host: bool, where: str) -> None:
    """
    CaptureError where a capture forbids copies on this device, or from it to the host.
    """
def used_on(x: object, stream: int, where: str, lasting: bool=False) -> None:
    """
    The next use of the array is on this stream, and later ones wait for it. `lasting`: the stream is never destroyed; else used_up() is best called while it lives.
    """
def used_up(x: object, stream: int) -> None:
    """What used_on() announced for this stream has been queued by now."""
def finish_uses(x: object, where: str) -> None:
    """Wait on the host until all work queued on the array is done."""
def ready_parts(x: Any, mask: int, wanted: int, consumer: int, /) -> tuple[tuple[int, ...], tuple[int, ...], Any, int] | None:
    """
    (shape, strides, dtype, address) of a C-contiguous array for which ready_for() holds, else None.
    """
def borrow(cls: object | None, ptr: int, shape: object, strides: object, dtype: object, device_type: int, device_id: int, base: object | None, readonly: bool, stream: int, where: str) -> object:
    """
    An array over foreign memory that `base` keeps alive; strides in bytes. cls None: by dtype; device_id -1: where the driver says.
    """
def check_borrowed(ptr: int, shape: object, strides: object, dtype: object, device_type: int, device_id: int, where: str) -> None:
    """Fail where `borrow` would; nothing is made."""
def imports(family: int=0, /) -> Callable[[T], T]:
    """
    Decorator of a converter (obj, copyif=False): plain objects of the family (NUMPY, TORCH, CUPY; 0: any) are imported without calling it.
    """
def exports(library: str='', /) -> Callable[[T], T]:
    """
    Decorator of a converter (x, copyif=False), or without a library (x, library, copyif=False): plain arrays are exported without calling it, to a library that _set_exporter() has registered.
    """
def _set_exporter(library: str, type: type, cuda: bool, /) -> None:
    """
    The library's arrays are objects of `type`, which its exchange table makes; `cuda`: on GPUs too.
    """
NUMPY: int = 1
TORCH: int = 2
CUPY: int = 3
def after_stream(x: object, producer: int, where: str) -> None:
    """
    Our current stream waits for a stream on which a library wrote the array unannounced.
    """
def writable_alias(x: object) -> object:
    """
    The same array without the read-only mark, for consumers known not to write.
    """
def pointer_info(ptr: int) -> tuple[str, int, bool, int, int] | None:
    """
    (memory, device, in the primary context, start and bytes of the allocation), or None when the driver does not know the address.
    """
class LaunchPlan:
    """Kernels of an operation on operands of known layout."""

    def run(self, operands: tuple[Any, ...], outs: object | None=None) -> object:
        ...
def make_plan(device: int, launches: Sequence[Any], scratch_bytes: int, outputs: Sequence[Any]) -> LaunchPlan:
    """A Plan from parameters with null addresses and where to write them."""
class PlanCache:
    """Plans by the layouts of operands; asks `miss` for new ones."""

    def __init__(self, miss: object, where: str='plan') -> None:
        ...

    def __call__(self, operands: tuple[Any, ...], outs: object | None=None) -> object:
        ...
def _forget_calls() -> None:
    """Empty the cache of calls."""
def _add_reduction(op: str, name: str, parameters: str, doc: str) -> object:
    """
    The function of an entry of the table of reductions, which is a method too if it has a docstring.
    """
class Recorder:
    """A captured sequence: see gpuinterop.capture."""

    def __init__(self, device_type: int, device_id: int) -> None:
        ...

    def begin(self) -> None:
        ...

    def end(self) -> None:
        ...

    def abandon(self) -> None:
        ...

    def leave(self) -> None:
        ...

    def replay(self) -> None:
        ...

    def keep(self, array: object) -> None:
        ...

    @property
    def nodes(self) -> int:
        ...

    @property
    def ready(self) -> bool:
        ...
def _recording() -> object:
    """The capture of this thread, or None."""
def _require_values(where: str, array: object) -> None:
    """
    Refuse while this thread records on the host, and results that nothing has filled yet.
    """
def _require_set(where: str, array: object) -> None:
    """Refuse results of a capture that nothing has filled yet."""
def _note_write(array: object) -> None:
    """A write outside of a capture gives the array values."""
def _record_call(call: object) -> bool:
    ...
def blas_open(cublas: str, cublas_lt: str) -> None:
    """Open cuBLAS; once."""
def blas_is_open() -> bool:
    ...
def blas_version(device: int) -> int:
    ...
def _product_function(name: str, doc: str) -> object:
    """A product as a function."""
def _allow_tf32(allowed: object) -> bool:
    """
    Whether this thread's float32 products may use TF32; the former answer.
    """
class PreparedCalls:
    """A callable that finds a prepared operation by its arguments."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call self as a function."""

    def __get__(self, instance: Any, owner: Any=None, /) -> Any:
        """Return an attribute of instance, which is of type owner."""

    def __init__(self, binds: bool=False) -> None:
        ...

    def _add(self, expected: list[Any], operands: list[Any], operation: object, rebuild: object | None) -> None:
        """
        `expected`: (type, constant, dtype, ndim, low, high) for each argument. `operands`: (position, None), (-1, object), or (-2, function of the tuple of arguments).
        """
