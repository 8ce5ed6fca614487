"""Where the lazy names of the package live. Written by `make stub`."""

from typing import Any

from gpuinterop._version import __version__ as __version__
from gpuinterop.ndarray import (
    CudaNdarray as CudaNdarray,
    GpuArray as GpuArray,
)
from gpuinterop.creation import (
    arange as arange,
    array as array,
    asarray as asarray,
    dimshuffle as dimshuffle,
    empty as empty,
    empty_like as empty_like,
    from_gpu_pointer as from_gpu_pointer,
    full as full,
    full_like as full_like,
    ones as ones,
    ones_like as ones_like,
    zeros as zeros,
    zeros_like as zeros_like,
)
from gpuinterop.converters.protocols import (
    from_dlpack as from_dlpack,
)
from gpuinterop.devices import (
    Device as Device,
    Event as Event,
    Stream as Stream,
    default_device as default_device,
    device as device,
    empty_cache as empty_cache,
    mem_info as mem_info,
    memory_stats as memory_stats,
    show_config as show_config,
    stream as stream,
    synchronize as synchronize,
)
from gpuinterop.errors import (
    ArgumentTypeError as ArgumentTypeError,
    ArrayIndexError as ArrayIndexError,
    BoundsError as BoundsError,
    CaptureError as CaptureError,
    CompileError as CompileError,
    ContextError as ContextError,
    ContiguityError as ContiguityError,
    ConversionTypeError as ConversionTypeError,
    CopyForbiddenError as CopyForbiddenError,
    CudaError as CudaError,
    DTypeError as DTypeError,
    DeviceError as DeviceError,
    DeviceMismatchError as DeviceMismatchError,
    ExchangeError as ExchangeError,
    ExportError as ExportError,
    GpuInteropError as GpuInteropError,
    IndexKindError as IndexKindError,
    LibraryNotFoundError as LibraryNotFoundError,
    MissingLibraryError as MissingLibraryError,
    OutOfMemoryError as OutOfMemoryError,
    ProtocolError as ProtocolError,
    ReadOnlyError as ReadOnlyError,
    ScalarIndexError as ScalarIndexError,
    ShapeError as ShapeError,
    StreamError as StreamError,
)
from gpuinterop.sharing import (
    shares_memory as shares_memory,
)
from gpuinterop.copies import (
    count_copies as count_copies,
    log_transfers as log_transfers,
    no_copies as no_copies,
)
from gpuinterop.converters import (
    cudamat_to_cudandarray as cudamat_to_cudandarray,
    cudandarray_to_cudamat as cudandarray_to_cudamat,
    cudandarray_to_garray as cudandarray_to_garray,
    from_any as from_any,
    garray_to_cudandarray as garray_to_cudandarray,
    to as to,
    to_cudandarray as to_cudandarray,
    to_gpuarray as to_gpuarray,
)

__all__: list[str]

def __getattr__(name: str) -> Any: ...
