"""Attributes that kernels of Triton and PyCUDA read from their arguments."""

from __future__ import annotations

import sys
from typing import Any

from gpuinterop import _core
from gpuinterop.devices.foreign_handles import never_destroyed

from .core_view import core_view

_THREADS = 256


class ArgumentMethods(_core.Array):
    """Names that Triton and PyCUDA read when an array is passed to a kernel."""

    __slots__ = ()

    def data_ptr(self) -> int:
        """Return the address of the first element, for a kernel on torch's current stream.

        Triton calls this at every launch. The stream waits for the work that is queued on the array,
        and later work of gpuinterop waits for the kernel.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.ones((2, 3), device="cpu")
        >>> x[1].data_ptr() - x.data_ptr()  # one row of three float32
        12
        """
        torch = sys.modules.get("torch")
        # Triton launches on torch's current stream, so without torch there is no launch.
        place = core_view(self).device
        if torch is not None and place.type == "cuda" and torch.cuda.is_initialized():
            stream = torch.cuda.current_stream(place.index)
            _core.used_on(self, stream.cuda_stream, "data_ptr", never_destroyed(stream))
        return core_view(self).ptr

    @property
    def _block(self) -> tuple[int, int, int]:
        """The block of PyCUDA's ElementwiseKernel."""
        return (_THREADS, 1, 1)

    @property
    def _grid(self) -> tuple[int, int]:
        """The grid for `_block`; the kernel loops over further elements."""
        return (max(1, min(-(-core_view(self).size // _THREADS), 65535)), 1)

    @property
    def allocator(self) -> Any:
        """The allocator of PyCUDA's ReductionKernel; exists once PyCUDA is loaded."""
        driver = sys.modules.get("pycuda.driver")
        if driver is None:
            raise AttributeError("allocator: exists once PyCUDA is loaded")
        return driver.mem_alloc
