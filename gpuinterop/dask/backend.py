"""The array backend "gpuinterop" of Dask: ``dask.config.set({"array.backend": "gpuinterop"})``."""

from __future__ import annotations

from typing import Any

import dask.array
import numpy
from dask import config
from dask.array.backends import ArrayBackendEntrypoint

from gpuinterop import _core
from gpuinterop.creation import asarray, empty


class Backend(ArrayBackendEntrypoint):  # type: ignore[misc]
    """Makes Dask arrays whose chunks are gpuinterop arrays on the default device of the worker."""

    @classmethod
    def to_backend_dispatch(cls) -> Any:
        """Return the function that converts a chunk."""
        return asarray

    @classmethod
    def to_backend(cls, data: Any, **kwargs: Any) -> Any:
        """Return a Dask array with gpuinterop chunks."""
        if isinstance(data._meta, _core.Array):
            return data
        return data.map_blocks(
            asarray, dtype=data.dtype, meta=_meta(data.ndim, data.dtype), **kwargs
        )

    @property
    def RandomState(self) -> Any:
        """NumPy's generator: random chunks are on the host, and ``to_backend("gpuinterop")`` converts them."""
        return numpy.random.RandomState

    @property
    def default_bit_generator(self) -> Any:
        """NumPy's generator, as for `RandomState`."""
        return numpy.random.PCG64


def _meta(ndim: int, dtype: Any) -> Any:
    return empty((0,) * ndim, dtype=dtype)


def _made(name: str, keyword: str) -> Any:
    def make(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get(keyword) is None:
            kwargs[keyword] = empty(())
        with config.set({"array.backend": "numpy"}):
            return getattr(dask.array, name)(*args, **kwargs)

    return staticmethod(make)


for _name in ("ones", "zeros", "empty", "full"):
    setattr(Backend, _name, _made(_name, "meta"))
Backend.arange = _made("arange", "like")
