"""A backend for PyTensor: functions run on the devices of gpuinterop."""

from .mode import GPU, HOST, unuse, use
from .transfers import (
    GpuContiguous,
    GpuFromHost,
    HostFromGpu,
    as_device_variable,
    gpu_contiguous,
    gpu_from_host,
    host_from_gpu,
)
from .types import CudaNdarrayType, GpuArrayType

__all__ = [
    "GPU", "HOST", "CudaNdarrayType", "GpuArrayType", "GpuContiguous", "GpuFromHost", "HostFromGpu",
    "as_device_variable", "gpu_contiguous", "gpu_from_host", "host_from_gpu", "unuse", "use",
]  # fmt: skip
