"""Dask: gpuinterop arrays as chunks. Dask calls `register` when it is imported, by the entry point ``dask.sizeof``."""

from __future__ import annotations

import math
from abc import ABC
from typing import Any

from gpuinterop.exchange.import_hook import after_import


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
    _add_lazily(sizeof, memory_of)
    for name, function in _LATER.items():
        after_import(name, function)


def _register_chunks() -> None:
    from dask.array.chunk_types import register_chunk_type
    from dask.array.dispatch import numel_lookup, percentile_lookup, to_numpy_dispatch

    register_chunk_type(_Chunk)
    _add_lazily(numel_lookup, numel)
    _add_lazily(percentile_lookup, percentile)
    _add_lazily(to_numpy_dispatch, to_numpy)


def _register_transfer() -> None:
    from distributed.protocol.cuda import cuda_deserialize, cuda_serialize
    from distributed.protocol.serialize import dask_deserialize, dask_serialize

    for table in (dask_serialize, dask_deserialize, cuda_serialize, cuda_deserialize):
        table.register_lazy("gpuinterop")(_add_transfer)


def _add_transfer() -> None:
    from .transfer import register

    register()


# What is registered once Dask has imported a module: it reads the entry point before, and has no hook afterwards.
_LATER = {
    "dask.array.chunk_types": _register_chunks,
    "distributed.protocol.cuda": _register_transfer,
}


def _add_lazily(table: Any, function: Any) -> None:
    def add() -> None:
        from gpuinterop import _core

        table.register(_core.Array)(function)

    table.register_lazy("gpuinterop")(add)


def memory_of(x: Any) -> int:
    """Return the bytes of an array's elements. A broadcast axis repeats one."""
    lengths = [
        length for length, step in zip(x.shape, x.strides, strict=True) if step or not length
    ]
    return int(math.prod(lengths) * x.itemsize)


def numel(x: Any, **kwargs: Any) -> Any:
    """Return what Dask counts for NumPy, on the device of the chunk, because Dask divides sums by it."""
    import numpy
    from dask.array.dispatch import numel_lookup

    from gpuinterop import _core
    from gpuinterop.creation import full
    from gpuinterop.ndarray import GpuArray

    counts = numpy.asarray(numel_lookup.dispatch(numpy.ndarray)(x, **kwargs))
    value = counts.flat[0] if counts.size else 0
    made = full(counts.shape, value, dtype=counts.dtype, device=x.device)
    return _core.view(GpuArray, made)  # so that the class of a quotient is that of the sum


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
