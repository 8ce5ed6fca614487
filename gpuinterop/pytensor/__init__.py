"""A backend for PyTensor: functions run on the devices of gpuinterop.

``use("cuda")`` makes it the default; ``pytensor.function(..., mode="GPU")`` uses it for one function.
"""

from . import requirements  # noqa: F401, first: it refuses a Python without PyTensor
from .device_op import GpuOp
from .device_variables import (
    CudaNdarrayType,
    GpuArrayType,
    GpuContiguous,
    GpuFromHost,
    HostFromGpu,
    as_device_variable,
    gpu_contiguous,
    gpu_from_host,
    host_from_gpu,
)
from .kernel_op import KernelOp
from .lowering import device_inputs, has_lowering, lower, recordable
from .mode import GPU, HOST, unuse, use
from .profile import ProfileRow, ProfileSummary, profile_summary
from .report import Replay, Transfer, replays, transfers

__all__ = [
    "GPU", "HOST", "CudaNdarrayType", "GpuArrayType", "GpuContiguous", "GpuFromHost", "GpuOp", "HostFromGpu",
    "KernelOp", "ProfileRow", "ProfileSummary", "Replay", "Transfer", "as_device_variable", "device_inputs",
    "gpu_contiguous", "gpu_from_host", "has_lowering", "host_from_gpu", "lower", "profile_summary",
    "recordable", "replays", "transfers", "unuse", "use",
]  # fmt: skip
