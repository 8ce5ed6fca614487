"""What makes an array an argument of other libraries' kernels, beside the exchange protocols.

These libraries look for names on the object and launch on a stream of their own choice.
"""

from __future__ import annotations

import sys
from typing import Any

from gpuinterop import _core
from gpuinterop.foreign_handles import never_destroyed
from gpuinterop.layout import core_view

__all__ = ["ArgumentMethods"]

_THREADS = 256


class ArgumentMethods(_core.Array):
    """Names that Triton and PyCUDA read when an array is passed to a kernel."""

    __slots__ = ()

    def data_ptr(self) -> int:
        """Return the address of the first element, for a kernel that torch's current stream will run.

        Triton asks this at every launch. The stream waits for what is queued on the array, and later
        work here waits for the kernel.
        """
        torch = sys.modules.get("torch")
        # Triton launches on torch's current stream; without a loaded torch nobody launches.
        place = core_view(self).device
        if torch is not None and place.type == "cuda" and torch.cuda.is_initialized():
            stream = torch.cuda.current_stream(place.index)
            _core.used_on(self, stream.cuda_stream, "data_ptr", never_destroyed(stream))
        return core_view(self).ptr

    @property
    def _block(self) -> tuple[int, int, int]:
        """The block that PyCUDA's ElementwiseKernel launches with."""
        return (_THREADS, 1, 1)

    @property
    def _grid(self) -> tuple[int, int]:
        """The grid that goes with `_block`; the kernel loops over what it does not cover."""
        return (max(1, min(-(-core_view(self).size // _THREADS), 65535)), 1)

    @property
    def allocator(self) -> Any:
        """What PyCUDA's ReductionKernel allocates its result with; there once PyCUDA is loaded."""
        driver = sys.modules.get("pycuda.driver")
        if driver is None:
            raise AttributeError("allocator: there is one once PyCUDA is loaded")
        return driver.mem_alloc
