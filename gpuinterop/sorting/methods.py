"""The methods of arrays that sort, scan and search, with NumPy's names and arguments."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from gpuinterop import _core

from .host_lines import FEW

Self = TypeVar("Self", bound="SortingMethods")


def _module(name: str) -> Any:
    """Return a module of this folder, which the first call of a method imports, because few programs sort."""
    return import_module(f"{__package__}.{name}")


class SortingMethods(_core.Array):
    """Sorting, running sums and products, and searching."""

    __slots__ = ()

    @_core.served
    @_core.by_numpy(np.ndarray.sort, "self axis", fixed={"kind": "stable"}, in_place=True, most=FEW)
    def sort(
        self, axis: int = -1, kind: str | None = None, order: None = None, *,
        stable: bool | None = None, descending: bool = False,
    ) -> None:  # fmt: skip
        """Sort the array itself along `axis`; see `gpuinterop.sort`.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([3, 1, 2], device="cpu")
        >>> x.sort()
        >>> x.tolist()
        [1.0, 2.0, 3.0]
        """
        _module("sort").sort_in_place(self, axis, kind, order, stable=stable, descending=descending)

    @_core.by_numpy(np.ndarray.argsort, "self axis", fixed={"kind": "stable"}, most=FEW)
    def argsort(
        self, axis: int | None = -1, kind: str | None = None, order: None = None, *,
        stable: bool | None = None, descending: bool = False,
    ) -> Any:  # fmt: skip
        """Return the indices that sort along `axis`; see `gpuinterop.argsort`.

        Examples
        --------
        >>> import gpuinterop
        >>> gpuinterop.asarray([3, 1, 2], device="cpu").argsort().tolist()
        [1, 2, 0]
        """
        return _module("sort").argsort(
            self, axis, kind, order, stable=stable, descending=descending
        )

    @_core.by_numpy(np.ndarray.partition, "self kth axis", in_place=True)
    def partition(self, kth: Any, axis: int = -1) -> None:
        """Partition the array itself so that the element at `kth` is in its place; see `gpuinterop.partition`.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([3, 1, 2], device="cpu")
        >>> x.partition(1)
        >>> x.tolist()
        [1.0, 2.0, 3.0]
        """
        _module("sort").partition_in_place(self, kth, axis)

    @_core.by_numpy(np.ndarray.argpartition, "self kth axis")
    def argpartition(self, kth: Any, axis: int | None = -1) -> Any:
        """Return the indices of `partition`; see `gpuinterop.argpartition`.

        Examples
        --------
        >>> import gpuinterop
        >>> gpuinterop.asarray([3, 1, 2], device="cpu").argpartition(1).tolist()
        [1, 2, 0]
        """
        return _module("sort").argpartition(self, kth, axis)

    @_core.planned(lambda x, **o: _module("scan").plan_of("sum", x, **o), "self axis dtype")
    @_core.by_numpy(np.add.accumulate, "self axis dtype")
    @_core.by_numpy(np.ndarray.cumsum, "self axis dtype")  # which flattens too
    def cumsum(self: Self, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
        """Return the running sums along `axis`; see `gpuinterop.cumsum`.

        Examples
        --------
        >>> import gpuinterop
        >>> gpuinterop.asarray([1, 2, 3], device="cpu").cumsum().tolist()
        [1.0, 3.0, 6.0]
        """
        return _module("scan").cumsum(self, axis, dtype, out)

    @_core.planned(lambda x, **o: _module("scan").plan_of("prod", x, **o), "self axis dtype")
    @_core.by_numpy(np.multiply.accumulate, "self axis dtype")
    @_core.by_numpy(np.ndarray.cumprod, "self axis dtype")  # which flattens too
    def cumprod(self: Self, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
        """Return the running products along `axis`; see `gpuinterop.cumprod`.

        Examples
        --------
        >>> import gpuinterop
        >>> gpuinterop.asarray([1, 2, 3], device="cpu").cumprod().tolist()
        [1.0, 2.0, 6.0]
        """
        return _module("scan").cumprod(self, axis, dtype, out)

    @_core.planned(lambda *xs, **o: _module("search").plan_of(*xs, **o), "self v side", 2)
    @_core.by_numpy(np.ndarray.searchsorted, "self v side", 2)
    def searchsorted(self, v: Any, side: str = "left", sorter: Any = None) -> Any:
        """Return where to insert the elements of `v` into this sorted array; see `gpuinterop.searchsorted`.

        Examples
        --------
        >>> import gpuinterop
        >>> gpuinterop.asarray([1, 2, 4], device="cpu").searchsorted([3]).tolist()
        [2]
        """
        return _module("search").searchsorted(self, v, side, sorter)
