"""Dask: gpuinterop arrays as chunks. Dask calls `register` when it is imported, by the entry point ``dask.sizeof``."""

from __future__ import annotations

import math
from abc import ABC
from typing import Any


class _Chunk(ABC):  # noqa: B024 - it answers issubclass only
    """Stands for the array classes among Dask's chunk types, so that Dask's import does not load the core."""

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        if not any(base.__module__.startswith("gpuinterop.") for base in other.__mro__):
            return NotImplemented
        from gpuinterop import _core

        return issubclass(other, _core.Array)


def register(sizeof: Any) -> None:
    """Register gpuinterop arrays in Dask's tables; the functions are loaded when an array first meets them."""
    from dask.array.chunk_types import register_chunk_type
    from dask.array.dispatch import percentile_lookup, to_numpy_dispatch

    register_chunk_type(_Chunk)
    tables = {sizeof: memory_of, percentile_lookup: percentile, to_numpy_dispatch: to_numpy}
    for table, function in tables.items():
        table.register_lazy("gpuinterop")(
            lambda table=table, function=function: _add(table, function)
        )


def _add(table: Any, function: Any) -> None:
    from gpuinterop import _core

    table.register(_core.Array)(function)


def memory_of(x: Any) -> int:
    """Return the bytes of an array's elements. A broadcast axis repeats one."""
    lengths = [
        length for length, step in zip(x.shape, x.strides, strict=True) if step or not length
    ]
    return int(math.prod(lengths) * x.itemsize)


def percentile(a: Any, q: Any, method: Any = "linear") -> Any:
    """Return percentiles of a chunk and the number of its elements, as Dask merges them."""
    import numpy

    if not a.size:
        return None, 0
    return numpy.percentile(a, q, method=method), len(a)


def to_numpy(x: Any, **kwargs: Any) -> Any:
    """Return a chunk as a NumPy array: shared on "cpu", downloaded from a GPU."""
    from gpuinterop.converters import to

    return to(x, "numpy", copyif=True)
