"""Converters between our arrays and those of other libraries: share memory, or say why not.

``to_<library>(x, copyif=False)`` and ``from_<library>(obj, copyif=False)`` for each library,
``to(x, "library")`` and ``from_any(obj)`` for any. Files and libraries are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import gpuinterop.ndarray  # noqa: F401  (tells the core the classes of what comes in)
from gpuinterop import _core
from gpuinterop.converters import protocols, registry
from gpuinterop.converters.likeness import disguised
from gpuinterop.converters.options import check_options
from gpuinterop.converters.registry import Backend, backends, names, register
from gpuinterop.errors import GpuInteropError
from gpuinterop.switches import as_switch

if TYPE_CHECKING:  # a type checker knows these names only; in truth they are loaded on first use
    from gpuinterop.converters.array_api import from_array_api as from_array_api
    from gpuinterop.converters.array_api import to_array_api as to_array_api
    from gpuinterop.converters.buffer import from_buffer as from_buffer
    from gpuinterop.converters.buffer import to_buffer as to_buffer
    from gpuinterop.converters.cuda_core import from_cuda_core as from_cuda_core
    from gpuinterop.converters.cuda_core import to_cuda_core as to_cuda_core
    from gpuinterop.converters.cudamat import cudamat_to_cudandarray as cudamat_to_cudandarray
    from gpuinterop.converters.cudamat import cudandarray_to_cudamat as cudandarray_to_cudamat
    from gpuinterop.converters.cudamat import from_cudamat as from_cudamat
    from gpuinterop.converters.cudamat import to_cudamat as to_cudamat
    from gpuinterop.converters.cupy import from_cupy as from_cupy
    from gpuinterop.converters.cupy import to_cupy as to_cupy
    from gpuinterop.converters.gnumpy import cudandarray_to_garray as cudandarray_to_garray
    from gpuinterop.converters.gnumpy import from_gnumpy as from_gnumpy
    from gpuinterop.converters.gnumpy import garray_to_cudandarray as garray_to_cudandarray
    from gpuinterop.converters.gnumpy import to_gnumpy as to_gnumpy
    from gpuinterop.converters.jax import from_jax as from_jax
    from gpuinterop.converters.jax import to_jax as to_jax
    from gpuinterop.converters.kernel_args import pointer_arguments as pointer_arguments
    from gpuinterop.converters.numba import from_numba as from_numba
    from gpuinterop.converters.numba import to_numba as to_numba
    from gpuinterop.converters.numpy import from_numpy as from_numpy
    from gpuinterop.converters.numpy import to_numpy as to_numpy
    from gpuinterop.converters.pycuda import from_pycuda as from_pycuda
    from gpuinterop.converters.pycuda import to_cudandarray as to_cudandarray
    from gpuinterop.converters.pycuda import to_gpuarray as to_gpuarray
    from gpuinterop.converters.pycuda import to_pycuda as to_pycuda
    from gpuinterop.converters.tensorflow import from_tensorflow as from_tensorflow
    from gpuinterop.converters.tensorflow import to_tensorflow as to_tensorflow
    from gpuinterop.converters.torch import from_torch as from_torch
    from gpuinterop.converters.torch import to_torch as to_torch
    from gpuinterop.converters.tvm_ffi import from_tvm_ffi as from_tvm_ffi
    from gpuinterop.converters.tvm_ffi import to_tvm_ffi as to_tvm_ffi
    from gpuinterop.converters.warp import from_warp as from_warp
    from gpuinterop.converters.warp import to_warp as to_warp

__all__ = [
    "Backend",
    "backends",
    "cudamat_to_cudandarray",
    "cudandarray_to_cudamat",
    "cudandarray_to_garray",
    "from_any",
    "garray_to_cudandarray",
    "names",
    "pointer_arguments",
    "register",
    "to",
    "to_cudandarray",
    "to_gpuarray",
]

_HOMES = {
    "to_gpuarray": "pycuda",
    "to_cudandarray": "pycuda",
    "cudandarray_to_cudamat": "cudamat",
    "cudamat_to_cudandarray": "cudamat",
    "cudandarray_to_garray": "gnumpy",
    "garray_to_cudandarray": "gnumpy",
    "pointer_arguments": "kernel_args",
}

# Names for "an array of ours" in to() and explain(), and the one dtype that it has.
OURS = {"gpuinterop": None, "any": None, "cudandarray": "float32", "CudaNdarray": "float32"}


def _loaded(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        direction, _, library = name.partition("_")
        if direction in ("to", "from") and library in registry.names():
            try:
                row = registry.backend(library, f"gpuinterop.converters.{name}")
                value = row.to if direction == "to" else row.from_
            except (GpuInteropError, ImportError) as e:  # a name that cannot be had, for hasattr()
                raise AttributeError(str(e)) from e
            globals()[name] = value
            if registry.backend(library) is not row:  # replaced while it was asked for
                globals().pop(name, None)
            return value
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as e:
            if e.name != f"{__name__}.{name}":
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # else every misspelt name would have a type
    __getattr__ = _loaded


def __dir__() -> list[str]:
    own = {name for name in globals() if name.startswith("__")}
    known = {f"{direction}_{row.name}" for row in backends() for direction in ("to", "from")}
    return sorted(own | {*__all__} | known)


@_core.quick
def to(x: Any, library: str, copyif: bool = False, **options: Any) -> Any:
    """Return `x` as an array of a library, by name: ``to(x, "torch")``.

    Shares memory where the two layouts allow it and raises otherwise; ``copyif=True`` copies where
    it must. `x` may be an array of any known library. Further options are those of ``to_<library>``.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.from_any(numpy.ones((2, 3), "float32"))
    >>> gpuinterop.to(x, "numpy").shape
    (2, 3)
    """
    copyif = as_switch(copyif, "copyif", "to")
    name: Any = library  # in truth it may be anything, also what has no hash
    if isinstance(name, str) and name in OURS:
        if OURS[name] is None:
            return from_any(x, copyif, **options)
        check_options(None, options, f"to(x, {library!r})")
        return registry.backend("pycuda").module.to_cudandarray(x, copyif)
    row = registry.backend(library)
    if row.name == "array_api" and "xp" not in options:
        xp = registry.namespace(library, "to_array_api")
        options = options if xp is None else {**options, "xp": xp}
    if options:
        check_options(row.to, options, f"to(x, {library!r})")
    if not isinstance(x, _core.Array):
        x = from_any(x, copyif)
    return row.to(x, copyif, **options)


@_core.quick
def from_any(obj: Any, copyif: bool = False, **options: Any) -> Any:
    """Return an array over the memory of any array that is known, or that speaks a protocol.

    A float32 array becomes a `CudaNdarray`, another dtype a `GpuArray`. Shares memory, or raises;
    with ``copyif=True`` it copies what cannot be shared. An array of ours comes back as it is.

    Raises
    ------
    ConversionTypeError
        `obj` is no array: the message lists what is recognised.
    """
    copyif = as_switch(copyif, "copyif", "from_any")
    if isinstance(obj, _core.Array):
        check_options(None, options, "from_any")
        return obj
    row = registry.recognise(obj)
    if options:
        check_options(row.from_ if row else None, options, "from_any")
    if row is None:
        return protocols.share_unknown(obj, "from_any", copyif)
    try:
        return row.take(obj, copyif, **options)
    except (AttributeError, KeyError) as e:
        if isinstance(e, GpuInteropError):
            raise
        raise disguised(obj, "from_any", e) from e
