"""Types of the names at the top level. Written by `make stub` from tools/face_slots.pyi."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, SupportsIndex, TypeAlias, TypeVar, overload

import numpy as np

from gpuinterop._core import DTypeLike, Float32, OtherDType

from gpuinterop import converters as converters, testing as testing
from gpuinterop._version import __version__ as __version__
from gpuinterop.ndarray import *
from gpuinterop.creation import from_gpu_pointer as from_gpu_pointer
from gpuinterop.pinned import *
from gpuinterop.devices import (
    Device as Device,
    Event as Event,
    Stream as Stream,
    default_device as default_device,
    device as device,
    empty_cache as empty_cache,
    mem_info as mem_info,
    memory_stats as memory_stats,
    synchronize as synchronize,
)
from gpuinterop.errors import *
from gpuinterop.ops.equality import allclose as allclose
from gpuinterop.ops.expression import (
    CudaText as CudaText,
    Expression as Expression,
)
from gpuinterop.converters.library_streams import stream as stream
from gpuinterop.ops.elementwise_kernel import *
from gpuinterop.ops.raw_kernel import (
    RawKernel as RawKernel,
    strided as strided,
)
from gpuinterop.sharing import *
from gpuinterop.ops.map_reduce import *
from gpuinterop.ops.capture import *
from gpuinterop.copy_tracking import (
    count_copies as count_copies,
    log_transfers as log_transfers,
    no_copies as no_copies,
)
from gpuinterop.doctor import show_config as show_config

__all__: list[str]

# The classes of results, and subclasses that users define.
_A = TypeVar("_A", bound=CudaNdarray | GpuArray)
_B = TypeVar("_B", bound=CudaNdarray | GpuArray)
_C = TypeVar("_C", bound=CudaNdarray)
_Array: TypeAlias = CudaNdarray | GpuArray

# Arguments. A dtype that a type checker can infer determines the class of the result.
_Shape: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
_Axis: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None
_Numbers: TypeAlias = complex | list[Any] | tuple[Any, ...]

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **options: Any) -> Any: ...

class _CudaInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> Any: ...

class _HostInterface(Protocol):
    @property
    def __array_interface__(self) -> Any: ...

# The operands of an operation: arrays of any library, and numbers.
_AnyArray: TypeAlias = _DLPack | _CudaInterface | _HostInterface
_Operand: TypeAlias = _AnyArray | np.generic | complex

# ---- creating arrays --------------------------------------------------------------------------

@overload
def array(value: CudaNdarray | _Numbers, dtype: Float32 | None = None, *, device: Any = None) -> CudaNdarray: ...
@overload
def array(value: Any, dtype: Float32, *, device: Any = None) -> CudaNdarray: ...
@overload
def array(value: Any, dtype: OtherDType, *, device: Any = None) -> GpuArray: ...
@overload
def array(value: Any, dtype: DTypeLike | None = None, *, device: Any = None) -> _Array: ...

@overload
def asarray(obj: CudaNdarray | _Numbers, /, dtype: Float32 | None = None, *, device: Any = None, copy: bool | None = None) -> CudaNdarray: ...
@overload
def asarray(obj: Any, /, dtype: OtherDType, *, device: Any = None, copy: bool | None = None) -> GpuArray: ...
@overload
def asarray(obj: Any, /, dtype: DTypeLike | None = None, *, device: Any = None, copy: bool | None = None) -> _Array: ...

@overload
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None, cls: type[_A]) -> _A: ...
@overload
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None, cls: None = None) -> _Array: ...

def from_any(obj: Any, copyif: bool = False, **options: Any) -> _Array: ...

@overload
def empty(shape: _Shape, dtype: Float32 | None = None, *, device: Any = None, order: str = "C") -> CudaNdarray: ...  # type: ignore[overload-overlap]
@overload
def empty(shape: _Shape, dtype: OtherDType, *, device: Any = None, order: str = "C") -> GpuArray: ...
@overload
def empty(shape: _Shape, dtype: DTypeLike | None, *, device: Any = None, order: str = "C") -> _Array: ...

@overload
def full(shape: _Shape, value: Any, dtype: Float32 | None = None, *, device: Any = None) -> CudaNdarray: ...
@overload
def full(shape: _Shape, value: Any, dtype: OtherDType, *, device: Any = None) -> GpuArray: ...
@overload
def full(shape: _Shape, value: Any, dtype: DTypeLike | None, *, device: Any = None) -> _Array: ...

class _Filled(Protocol):
    @overload
    def __call__(self, shape: _Shape, dtype: Float32 | None = None, *, device: Any = None) -> CudaNdarray: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, shape: _Shape, dtype: OtherDType, *, device: Any = None) -> GpuArray: ...
    @overload
    def __call__(self, shape: _Shape, dtype: DTypeLike | None, *, device: Any = None) -> _Array: ...

zeros: _Filled
ones: _Filled

@overload
def eye(n: int, m: int | None = None, k: int = 0, dtype: Float32 | None = None, *, device: Any = None) -> CudaNdarray: ...  # type: ignore[overload-overlap]
@overload
def eye(n: int, m: int | None = None, k: int = 0, *, dtype: OtherDType, device: Any = None) -> GpuArray: ...
@overload
def eye(n: int, m: int | None = None, k: int = 0, dtype: DTypeLike | None = None, *, device: Any = None) -> _Array: ...

@overload
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Float32 | None = None, *, device: Any = None) -> CudaNdarray: ...
@overload
def arange(start: Any, stop: Any = None, step: Any = 1, *, dtype: OtherDType, device: Any = None) -> GpuArray: ...
@overload
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: DTypeLike | None = None, *, device: Any = None) -> _Array: ...

@overload
def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, *, dtype: Float32 | None = None, device: Any = None) -> CudaNdarray: ...
@overload
def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, *, dtype: OtherDType, device: Any = None) -> GpuArray: ...
@overload
def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, *, dtype: DTypeLike | None = None, device: Any = None) -> _Array: ...

class _Alike(Protocol):
    @overload
    def __call__(self, x: CudaNdarray, dtype: Float32 | None = None, *, device: Any = None) -> CudaNdarray: ...
    @overload
    def __call__(self, x: Any, dtype: Float32, *, device: Any = None) -> CudaNdarray: ...
    @overload
    def __call__(self, x: Any, dtype: OtherDType, *, device: Any = None) -> GpuArray: ...
    @overload
    def __call__(self, x: Any, dtype: DTypeLike | None = None, *, device: Any = None) -> _Array: ...

empty_like: _Alike
zeros_like: _Alike
ones_like: _Alike

@overload
def full_like(x: CudaNdarray, value: Any, dtype: Float32 | None = None, *, device: Any = None) -> CudaNdarray: ...
@overload
def full_like(x: Any, value: Any, dtype: Float32, *, device: Any = None) -> CudaNdarray: ...
@overload
def full_like(x: Any, value: Any, dtype: OtherDType, *, device: Any = None) -> GpuArray: ...
@overload
def full_like(x: Any, value: Any, dtype: DTypeLike | None = None, *, device: Any = None) -> _Array: ...

def dimshuffle(x: _A, *pattern: Any) -> _A: ...

@overload
def broadcast_to(x: _A, shape: _Shape) -> _A: ...
@overload
def broadcast_to(x: _AnyArray, shape: _Shape) -> GpuArray: ...

# ---- operations on elements -------------------------------------------------------------------
# A CudaNdarray among the operands makes the result one, where float32 can hold it. Where the class
# of an operand is unknown (_A is both), so is that of the result.

class _Unary(Protocol):
    @overload
    def __call__(self, x: _A, /, out: None = None, *, dtype: Float32 | None = None, order: str = "K") -> _A: ...
    @overload
    def __call__(self, x: _Operand, /, out: None = None, *, dtype: OtherDType, order: str = "K") -> GpuArray: ...
    @overload
    def __call__(self, x: _Operand, /, out: None = None, *, dtype: None = None, order: str = "K") -> GpuArray: ...
    @overload
    def __call__(self, x: _Operand, /, out: None = None, *, dtype: DTypeLike, order: str = "K") -> _Array: ...
    @overload
    def __call__(self, x: _Operand, /, out: _A, *, dtype: DTypeLike | None = None, order: str = "K") -> _A: ...

class _Binary(Protocol):
    @overload
    def __call__(self, x: _C, y: _Operand, /, out: None = None, *, dtype: Float32 | None = None, order: str = "K") -> _C: ...
    @overload
    def __call__(self, x: _Operand, y: _C, /, out: None = None, *, dtype: Float32 | None = None, order: str = "K") -> _C: ...
    @overload
    def __call__(self, x: _Operand, y: _Operand, /, out: None = None, *, dtype: OtherDType, order: str = "K") -> GpuArray: ...
    @overload
    def __call__(self, x: _A, y: _A, /, out: None = None, *, dtype: None = None, order: str = "K") -> _A: ...
    @overload
    def __call__(self, x: _A, y: _Operand, /, out: None = None, *, dtype: None = None, order: str = "K") -> _A: ...
    @overload
    def __call__(self, x: _Operand, y: _A, /, out: None = None, *, dtype: None = None, order: str = "K") -> _A: ...
    @overload
    def __call__(self, x: _Operand, y: _Operand, /, out: None = None, *, dtype: None = None, order: str = "K") -> GpuArray: ...
    @overload
    def __call__(self, x: _Operand, y: _Operand, /, out: None = None, *, dtype: DTypeLike, order: str = "K") -> _Array: ...
    @overload
    def __call__(self, x: _Operand, y: _Operand, /, out: _A, *, dtype: DTypeLike | None = None, order: str = "K") -> _A: ...

# Comparisons, and what is computed in no less than float64.
class _UnaryOther(Protocol):
    @overload
    def __call__(self, x: _Operand, /, out: None = None, *, dtype: DTypeLike | None = None, order: str = "K") -> GpuArray: ...
    @overload
    def __call__(self, x: _Operand, /, out: _A, *, dtype: DTypeLike | None = None, order: str = "K") -> _A: ...

class _Add(_Binary, Protocol):
    @staticmethod
    def at(x: _Array, indices: Any, values: Any) -> None: ...

class _BinaryOther(Protocol):
    @overload
    def __call__(self, x: _Operand, y: _Operand, /, out: None = None, *, dtype: DTypeLike | None = None, order: str = "K") -> GpuArray: ...
    @overload
    def __call__(self, x: _Operand, y: _Operand, /, out: _A, *, dtype: DTypeLike | None = None, order: str = "K") -> _A: ...

class _BinaryPair(Protocol):
    @overload
    def __call__(self, x: _A, y: _A | complex, /, out: None = None) -> tuple[_A, _A]: ...
    @overload
    def __call__(self, x: complex, y: _A, /, out: None = None) -> tuple[_A, _A]: ...
    @overload
    def __call__(self, x: _Operand, y: _Operand, /, out: None = None) -> tuple[_Array, _Array]: ...
    @overload
    def __call__(self, x: _Operand, y: _Operand, /, out: tuple[_A, _B]) -> tuple[_A, _B]: ...

@overload
def where(condition: _Operand, x: _A, y: _A | complex, /, out: None = None, *, dtype: None = None, order: str = "K") -> _A: ...
@overload
def where(condition: _Operand, x: complex, y: _A, /, out: None = None, *, dtype: None = None, order: str = "K") -> _A: ...
@overload
def where(condition: _Operand, x: _Operand, y: _Operand, /, out: None = None, *, dtype: Any = None, order: str = "K") -> _Array: ...
@overload
def where(condition: _Operand, x: _Operand, y: _Operand, /, out: _A, *, dtype: Any = None, order: str = "K") -> _A: ...

@overload
def clip(x: _A, min: _Operand | None = None, max: _Operand | None = None, out: None = None) -> _A: ...
@overload
def clip(x: _Operand, min: _Operand | None = None, max: _Operand | None = None, out: None = None) -> _Array: ...
@overload
def clip(x: _Operand, min: _Operand | None = None, max: _Operand | None = None, *, out: _A) -> _A: ...

@overload
def round(x: _A, decimals: int = 0, out: None = None) -> _A: ...
@overload
def round(x: _Operand, decimals: int = 0, out: None = None) -> GpuArray: ...
@overload
def round(x: _Operand, decimals: int = 0, *, out: _A) -> _A: ...

@overload
def astype(x: _A, dtype: Float32, order: str = "K", copy: bool = True) -> _A: ...
@overload
def astype(x: _AnyArray, dtype: Float32 | OtherDType, order: str = "K", copy: bool = True) -> GpuArray: ...
@overload
def astype(x: _AnyArray, dtype: DTypeLike, order: str = "K", copy: bool = True) -> _Array: ...

# ---- reductions, products, joining ------------------------------------------------------------

class _Sum(Protocol):
    @overload
    def __call__(self, x: _A, /, axis: _Axis = None, dtype: DTypeLike | None = None, out: None = None, keepdims: bool = False) -> _A: ...
    @overload
    def __call__(self, x: _AnyArray, /, axis: _Axis = None, dtype: DTypeLike | None = None, out: None = None, keepdims: bool = False) -> GpuArray: ...
    @overload
    def __call__(self, x: _AnyArray, /, axis: _Axis = None, dtype: DTypeLike | None = None, *, out: _A, keepdims: bool = False) -> _A: ...

class _Spread(Protocol):
    @overload
    def __call__(self, x: _A, /, axis: _Axis = None, dtype: DTypeLike | None = None, out: None = None, ddof: float = 0, keepdims: bool = False) -> _A: ...
    @overload
    def __call__(self, x: _AnyArray, /, axis: _Axis = None, dtype: DTypeLike | None = None, out: None = None, ddof: float = 0, keepdims: bool = False) -> GpuArray: ...
    @overload
    def __call__(self, x: _AnyArray, /, axis: _Axis = None, dtype: DTypeLike | None = None, *, out: _A, ddof: float = 0, keepdims: bool = False) -> _A: ...

class _Extreme(Protocol):
    @overload
    def __call__(self, x: _A, /, axis: _Axis = None, out: None = None, keepdims: bool = False) -> _A: ...
    @overload
    def __call__(self, x: _AnyArray, /, axis: _Axis = None, out: None = None, keepdims: bool = False) -> GpuArray: ...
    @overload
    def __call__(self, x: _AnyArray, /, axis: _Axis = None, *, out: _A, keepdims: bool = False) -> _A: ...

class _Question(Protocol):
    @overload
    def __call__(self, x: _AnyArray, /, axis: _Axis = None, out: None = None, keepdims: bool = False) -> GpuArray: ...
    @overload
    def __call__(self, x: _AnyArray, /, axis: _Axis = None, *, out: _A, keepdims: bool = False) -> _A: ...

@overload
def norm(x: _A, ord: Any = None, axis: _Axis = None, keepdims: bool = False) -> _A: ...
@overload
def norm(x: _AnyArray, ord: Any = None, axis: _Axis = None, keepdims: bool = False) -> GpuArray: ...

@overload
def reduce_sum(x: _A, mask: Sequence[int]) -> _A: ...
@overload
def reduce_sum(x: _AnyArray, mask: Sequence[int]) -> GpuArray: ...

# Products. Of operands that are not of one class, a CudaNdarray among them decides.
@overload
def dot(a: _A, b: _A, out: None = None) -> _A: ...
@overload
def dot(a: _Operand, b: _Operand, out: None = None) -> _Array: ...
@overload
def dot(a: _Operand, b: _Operand, out: _A) -> _A: ...

class _Inner(Protocol):
    @overload
    def __call__(self, a: _A, b: _A) -> _A: ...
    @overload
    def __call__(self, a: _Operand, b: _Operand) -> _Array: ...

inner: _Inner
vdot: _Inner

@overload
def matmul(a: _A, b: _A, /, out: None = None, *, tf32: bool | None = None) -> _A: ...
@overload
def matmul(a: _Operand, b: _Operand, /, out: None = None, *, tf32: bool | None = None) -> _Array: ...
@overload
def matmul(a: _Operand, b: _Operand, /, out: _A, *, tf32: bool | None = None) -> _A: ...

@overload
def addmm(c: _A, a: _A, b: _A, *, alpha: float = 1.0, beta: float = 1.0, out: None = None, tf32: bool | None = None) -> _A: ...
@overload
def addmm(c: _AnyArray, a: _AnyArray, b: _AnyArray, *, alpha: float = 1.0, beta: float = 1.0, out: None = None, tf32: bool | None = None) -> _Array: ...
@overload
def addmm(c: _AnyArray, a: _AnyArray, b: _AnyArray, *, alpha: float = 1.0, beta: float = 1.0, out: _A, tf32: bool | None = None) -> _A: ...

@overload
def gemm(a: _A, b: _A, c: _A | None = None, *, alpha: float = 1.0, beta: float = 1.0, out: None = None, tf32: bool | None = None) -> _A: ...
@overload
def gemm(a: _AnyArray, b: _AnyArray, c: _AnyArray | None = None, *, alpha: float = 1.0, beta: float = 1.0, out: None = None, tf32: bool | None = None) -> _Array: ...
@overload
def gemm(a: _AnyArray, b: _AnyArray, c: _AnyArray | None = None, *, alpha: float = 1.0, beta: float = 1.0, out: _A, tf32: bool | None = None) -> _A: ...

@overload
def gemv(a: _A, x: _A, y: _A | None = None, *, alpha: float = 1.0, beta: float = 1.0, out: None = None) -> _A: ...
@overload
def gemv(a: _AnyArray, x: _AnyArray, y: _AnyArray | None = None, *, alpha: float = 1.0, beta: float = 1.0, out: None = None) -> _Array: ...
@overload
def gemv(a: _AnyArray, x: _AnyArray, y: _AnyArray | None = None, *, alpha: float = 1.0, beta: float = 1.0, out: _A) -> _A: ...

@overload
def ger(x: _A, y: _A, a: _A | None = None, *, alpha: float = 1.0, out: None = None) -> _A: ...
@overload
def ger(x: _AnyArray, y: _AnyArray, a: _AnyArray | None = None, *, alpha: float = 1.0, out: None = None) -> _Array: ...
@overload
def ger(x: _AnyArray, y: _AnyArray, a: _AnyArray | None = None, *, alpha: float = 1.0, out: _A) -> _A: ...

@overload
def concatenate(arrays: Sequence[_A], axis: int | None = 0, out: None = None) -> _A: ...
@overload
def concatenate(arrays: Sequence[_AnyArray], axis: int | None = 0, out: None = None) -> _Array: ...
@overload
def concatenate(arrays: Sequence[_AnyArray], axis: int | None = 0, *, out: _A) -> _A: ...

@overload
def stack(arrays: Sequence[_A], axis: int = 0, out: None = None) -> _A: ...
@overload
def stack(arrays: Sequence[_AnyArray], axis: int = 0, out: None = None) -> _Array: ...
@overload
def stack(arrays: Sequence[_AnyArray], axis: int = 0, *, out: _A) -> _A: ...

@overload
def join(axis: int, *arrays: _A) -> _A: ...
@overload
def join(axis: int, *arrays: _AnyArray) -> _Array: ...

@overload
def compress(condition: Any, x: _A, axis: int | None = None, out: None = None) -> _A: ...
@overload
def compress(condition: Any, x: _AnyArray, axis: int | None = None, out: None = None) -> GpuArray: ...
@overload
def compress(condition: Any, x: _AnyArray, axis: int | None = None, *, out: _A) -> _A: ...

@overload
def repeat(x: _A, repeats: Any, axis: int | None = None) -> _A: ...
@overload
def repeat(x: _AnyArray, repeats: Any, axis: int | None = None) -> GpuArray: ...

@overload
def take_along_axis(x: _A, indices: Any, axis: int | None = -1) -> _A: ...
@overload
def take_along_axis(x: _AnyArray, indices: Any, axis: int | None = -1) -> GpuArray: ...

def nonzero(x: _AnyArray) -> tuple[GpuArray, ...]: ...
def flatnonzero(x: _AnyArray) -> GpuArray: ...
def put(x: _Array, ind: Any, v: Any, mode: str = "raise") -> None: ...
def put_along_axis(x: _Array, indices: Any, values: Any, axis: int | None) -> None: ...

@overload
def take(x: _A, indices: Any, axis: int | None = None, out: None = None, mode: str = "raise", max_threads: int = 1) -> _A: ...
@overload
def take(x: _AnyArray, indices: Any, axis: int | None = None, out: None = None, mode: str = "raise", max_threads: int = 1) -> GpuArray: ...
@overload
def take(x: _AnyArray, indices: Any, axis: int | None = None, *, out: _A, mode: str = "raise", max_threads: int = 1) -> _A: ...

@overload
def split(x: _A, sections: Any, axis: int = 0) -> list[_A]: ...
@overload
def split(x: _AnyArray, sections: Any, axis: int = 0) -> list[GpuArray]: ...

# ---- fused functions --------------------------------------------------------------------------

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_R = TypeVar("_R")
_S = TypeVar("_S")

class _Fused(Generic[_P, _R]):
    __name__: str
    __qualname__: str
    __wrapped__: Callable[_P, _R]
    @overload
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    @overload
    def __call__(self, *args: Any, out: Any, **kwargs: Any) -> _R: ...
    @overload
    def __get__(self, instance: None, owner: Any = None) -> _Fused[_P, _R]: ...
    @overload
    def __get__(self: _Fused[Concatenate[_S, _Q], _R], instance: _S, owner: Any = None) -> _Fused[_Q, _R]: ...

@overload
def fuse(function: Callable[_P, _R], *, static_argnames: str | Sequence[str] = ()) -> _Fused[_P, _R]: ...
@overload
def fuse(*, static_argnames: str | Sequence[str]) -> Callable[[Callable[_P, _R]], _Fused[_P, _R]]: ...

def allow_tf32(allowed: bool = True) -> AbstractContextManager[None]: ...

# ---- the Theano-compatible converters ---------------------------------------------------------

def to_cudandarray(x: Any, copyif: bool = False) -> CudaNdarray: ...
def garray_to_cudandarray(x: Any, copyif: bool = False) -> CudaNdarray: ...
def cudamat_to_cudandarray(x: Any, copyif: bool = False, *, layout: str = "memory") -> CudaNdarray: ...
def to_gpuarray(x: CudaNdarray | GpuArray, copyif: bool = False, *, allow_readonly: bool = False, strided: bool = False) -> Any: ...
def cudandarray_to_garray(x: CudaNdarray, copyif: bool = False, *, allow_readonly: bool = False, module: Any = None) -> Any: ...
def cudandarray_to_cudamat(x: CudaNdarray, copyif: bool = False, *, allow_readonly: bool = False, layout: str = "memory", trans: bool = False, module: Any = None) -> Any: ...

# ---- modules that can be called like their function ---------------------------------------------

import gpuinterop.devices as _devices

class _DevicesModule:
    Device: type[_devices.Device]
    Event: type[_devices.Event]
    Stream: type[_devices.Stream]
    as_stream = staticmethod(_devices.as_stream)
    current_stream = staticmethod(_devices.current_stream)
    default_device = staticmethod(_devices.default_device)
    device = staticmethod(_devices.device)
    device_from_dlpack = staticmethod(_devices.device_from_dlpack)
    device_properties = staticmethod(_devices.device_properties)
    devices = staticmethod(_devices.devices)
    empty_cache = staticmethod(_devices.empty_cache)
    legacy_stream = staticmethod(_devices.legacy_stream)
    mem_info = staticmethod(_devices.mem_info)
    memory_stats = staticmethod(_devices.memory_stats)
    per_thread_stream = staticmethod(_devices.per_thread_stream)
    reset_peak_memory = staticmethod(_devices.reset_peak_memory)
    set_default_device = staticmethod(_devices.set_default_device)
    stream = staticmethod(_devices.stream)
    synchronize = staticmethod(_devices.synchronize)
    __call__ = staticmethod(_devices.devices)

devices: _DevicesModule

import gpuinterop.explain as _explain

class _ExplainModule:
    explain = staticmethod(_explain.explain)
    __call__ = staticmethod(_explain.explain)

explain: _ExplainModule

import gpuinterop.doctor as _doctor

class _DoctorModule:
    Report: type[_doctor.Report]
    SCHEMA: str
    doctor = staticmethod(_doctor.doctor)
    show_config = staticmethod(_doctor.show_config)
    __call__ = staticmethod(_doctor.doctor)

doctor: _DoctorModule


# ---- conversions by name ---------------------------------------------------------------------

import cupy
import jax
import tensorflow
import torch
import tvm_ffi
import warp

@overload
def to(x: Any, library: Literal['gpuinterop'], copyif: bool = False, **options: Any) -> _Array: ...
@overload
def to(x: Any, library: Literal['cudandarray'], copyif: bool = False, **options: Any) -> CudaNdarray: ...
@overload
def to(x: Any, library: Literal['numpy', 'np'], copyif: bool = False, **options: Any) -> np.ndarray[Any, np.dtype[Any]]: ...
@overload
def to(x: Any, library: Literal['torch', 'pytorch'], copyif: bool = False, **options: Any) -> torch.Tensor: ...
@overload
def to(x: Any, library: Literal['cupy'], copyif: bool = False, **options: Any) -> cupy.ndarray: ...
@overload
def to(x: Any, library: Literal['jax', 'jax.numpy', 'jnp'], copyif: bool = False, **options: Any) -> jax.Array: ...
@overload
def to(x: Any, library: Literal['numba', 'pycuda', 'gpuarray', 'cudamat', 'gnumpy', 'garray', 'cuda_core', 'cuda.core', 'cuda-core', 'array_api', 'array-api', 'array_api_strict', 'dpnp'], copyif: bool = False, **options: Any) -> Any: ...
@overload
def to(x: Any, library: Literal['tvm_ffi', 'tvm-ffi', 'tvm'], copyif: bool = False, **options: Any) -> tvm_ffi.Tensor: ...
@overload
def to(x: Any, library: Literal['warp'], copyif: bool = False, **options: Any) -> warp.array[Any]: ...
@overload
def to(x: Any, library: Literal['tensorflow', 'tf'], copyif: bool = False, **options: Any) -> tensorflow.Tensor: ...
@overload
def to(x: Any, library: Literal['buffer', 'memoryview'], copyif: bool = False, **options: Any) -> memoryview: ...
@overload
def to(x: Any, *, library: str, copyif: bool = False, **options: Any) -> Any: ...

# ---- the table's operations ------------------------------------------------------------------

abs: _Unary
absolute: _Unary
acos: _Unary
acosh: _Unary
add: _Add
all: _Question
amax: _Extreme
amin: _Extreme
any: _Question
arccos: _Unary
arccosh: _Unary
arcsin: _Unary
arcsinh: _Unary
arctan2: _Binary
arctan: _Unary
arctanh: _Unary
argmax: _Question
argmin: _Question
asin: _Unary
asinh: _Unary
atan2: _Binary
atan: _Unary
atanh: _Unary
bitwise_and: _Binary
bitwise_invert: _Unary
bitwise_left_shift: _Binary
bitwise_not: _Unary
bitwise_or: _Binary
bitwise_right_shift: _Binary
bitwise_xor: _Binary
cbrt: _Unary
ceil: _Unary
conj: _Unary
conjugate: _Unary
copysign: _Binary
cos: _Unary
cosh: _Unary
deg2rad: _Unary
degrees: _Unary
digamma: _Unary
divide: _Binary
divmod: _BinaryPair
equal: _BinaryOther
erf: _Unary
erfc: _Unary
erfinv: _Unary
exp2: _Unary
exp: _Unary
expm1: _Unary
fabs: _Unary
float_power: _BinaryOther
floor: _Unary
floor_divide: _Binary
fmax: _Binary
fmin: _Binary
fmod: _Binary
gamma: _Unary
gammaln: _Unary
gcd: _Binary
greater: _BinaryOther
greater_equal: _BinaryOther
heaviside: _Binary
hypot: _Binary
invert: _Unary
isfinite: _UnaryOther
isinf: _UnaryOther
isnan: _UnaryOther
left_shift: _Binary
less: _BinaryOther
less_equal: _BinaryOther
lgamma: _Unary
log10: _Unary
log1p: _Unary
log2: _Unary
log: _Unary
logaddexp: _Binary
logical_and: _BinaryOther
logical_not: _UnaryOther
logical_or: _BinaryOther
logical_xor: _BinaryOther
max: _Extreme
maximum: _Binary
mean: _Sum
min: _Extreme
minimum: _Binary
mod: _Binary
multiply: _Binary
negative: _Unary
not_equal: _BinaryOther
positive: _Unary
pow: _Binary
power: _Binary
prod: _Sum
psi: _Unary
rad2deg: _Unary
radians: _Unary
reciprocal: _Unary
remainder: _Binary
right_shift: _Binary
rint: _Unary
rsqrt: _Unary
sigmoid: _Unary
sign: _Unary
signbit: _UnaryOther
sin: _Unary
sinh: _Unary
softplus: _Unary
sqrt: _Unary
square: _Unary
std: _Spread
subtract: _Binary
sum: _Sum
tan: _Unary
tanh: _Unary
true_divide: _Binary
trunc: _Unary
var: _Spread
