"""Reduction and product methods of the array classes; sum, max and the like are the core's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from gpuinterop import _core
from gpuinterop.error_context import with_where
from gpuinterop.errors import GpuInteropError
from gpuinterop.ops import norms, reduction_dispatch

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ReductionMethods"]

Self = TypeVar("Self", bound="ReductionMethods")


class ReductionMethods(_core.Array):
    """What reduces an array. `sum`, `prod`, `mean`, `min`, `max`, `argmin`,
    `argmax`, `any`, `all`, `var` and `std` are in the core and take NumPy's arguments.
    """

    __slots__ = ()

    def reduce_sum(self: Self, mask: Sequence[int]) -> Self:
        """Return the sum over the axes whose entry in `mask` is true, without those axes."""
        summed: Self = reduction_dispatch.reduce_sum(self, mask)
        return summed

    def norm(self: Self, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Self:
        """Return the vector norm over `axis`; see `gpuinterop.norm`."""
        length: Self = norms.norm(self, ord, axis, keepdims)
        return length

    def ptp(self: Self, axis: Any = None, keepdims: bool = False) -> Self:
        """Return the difference of the maximum and the minimum over `axis`."""
        try:  # not by reraise_from, which would be six Python functions more in a warm call
            between: Self = self.max(axis, keepdims=keepdims) - self.min(axis, keepdims=keepdims)
        except GpuInteropError as error:
            raise with_where(error, "ptp") from None
        return between
