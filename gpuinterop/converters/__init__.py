"""Converters between our arrays and those of other libraries: share memory, or say why not.

``to_<library>(x, copyif=False)`` and ``from_<library>(obj, copyif=False)`` for each library,
``to(x, "library")`` and ``from_any(obj)`` for any. Files and libraries are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import gpuinterop.ndarray  # noqa: F401  (tells the core the classes of what comes in)
from gpuinterop import _core
from gpuinterop.converters import registry
from gpuinterop.converters.asking import plan_conversion, reader_of, to_gpuinterop_array
from gpuinterop.converters.incoming import from_any
from gpuinterop.converters.options import check_options, drop_common_option
from gpuinterop.converters.registry import Backend, backends, names, register
from gpuinterop.errors import GpuInteropError
from gpuinterop.layout import is_array
from gpuinterop.option_values import require_bool

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
    from gpuinterop.converters.kernel_pointers import pointer_arguments as pointer_arguments
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
    "pointer_arguments": "kernel_pointers",
}


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


@_core.exports()
def to(x: Any, library: str, copyif: bool = False, **options: Any) -> Any:
    """Return `x` as an array of a library, by name: ``to(x, "torch")``.

    Shares memory where the two layouts allow it and raises otherwise; ``copyif=True`` copies where
    it must, and nothing when the conversion then fails. `x` may be an array of any known library.
    ``allow_readonly=True`` is taken for every library, and shares read-only memory with those that
    cannot mark it, on your word not to write; further options are those of ``to_<library>``.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.from_any(numpy.ones((2, 3), "float32"))
    >>> gpuinterop.to(x, "numpy").shape
    (2, 3)
    """
    copyif = require_bool(copyif, "copyif", "to")
    own = registry.own_name(library)
    if own is not None:
        return _to_ours(x, library, own, copyif, options)
    row = registry.backend(library)
    if row.name == "array_api" and "xp" not in options:
        xp = registry.namespace(library, "to_array_api")
        options = options if xp is None else {**options, "xp": xp}
    if options:
        label = f"to(x, {library!r})"
        options = drop_common_option(row.to, options, label)
        check_options(row.to, options, label)
    if is_array(x):
        return row.give(x, copyif, **options)
    ours = to_gpuinterop_array(x, library, copyif, options)
    try:
        return row.give(ours, copyif, **options)
    except GpuInteropError as e:
        if type(x).__name__ == "PyCapsule":  # used up
            raise
        plan = plan_conversion(x, library, copyif, options)  # in words for what was passed
        raise plan.exception() if plan.error is type(e) and plan.refused else e from None


def _to_ours(x: Any, library: str, own: str, copyif: bool, options: dict[str, Any]) -> Any:
    label = f"to(x, {library!r})"
    if registry.OURS[own] is None:
        return from_any(x, copyif, **drop_common_option(reader_of(x), options, label))
    check_options(None, drop_common_option(None, options, label), label)
    from gpuinterop.converters.pycuda import to_cudandarray  # ours, whosever the row is

    return to_cudandarray(x, copyif)
