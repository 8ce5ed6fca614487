"""Reduction and product methods of the array classes; sum, max and the like are the core's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuinterop import _core
from gpuinterop.naming import in_the_name_of
from gpuinterop.ops import norms, reductions

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ReductionMethods"]


class ReductionMethods(_core.Array):
    """What reduces an array. `sum`, `prod`, `mean`, `min`, `max`, `argmin`,
    `argmax`, `any`, `all`, `var` and `std` are in the core and take NumPy's arguments.
    """

    __slots__ = ()

    def reduce_sum(self, mask: Sequence[int]) -> Any:
        """Return the sum over the axes whose entry in `mask` is true, without those axes."""
        return reductions.reduce_sum(self, mask)

    def norm(self, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
        """Return the vector norm over `axis`; see `gpuinterop.norm`."""
        return norms.norm(self, ord, axis, keepdims)

    def ptp(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Return the difference of the maximum and the minimum over `axis`."""
        with in_the_name_of("ptp"):
            return self.max(axis, keepdims=keepdims) - self.min(axis, keepdims=keepdims)
