"""Conversions between gpuinterop arrays and those of other libraries: share memory, or raise.

``to(x, "library")`` and ``from_any(obj)`` for every library; ``to_<library>(x, copyif=False)`` and
``from_<library>(obj, copyif=False)`` for each. Modules and libraries are loaded on first use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

import gpuinterop.ndarray  # noqa: F401  (gives the core the classes of imported arrays)
from gpuinterop import _core
from gpuinterop.devices import resolve_device
from gpuinterop.errors import ConversionTypeError, GpuInteropError, type_name
from gpuinterop.errors.arguments import checks_arguments, read_copy, require_bool
from gpuinterop.exchange import engine, registry
from gpuinterop.exchange.kernel_pointers import pointer_arguments
from gpuinterop.exchange.library_functions import (
    check_options,
    generated,
    read_target,
    writer,
)
from gpuinterop.exchange.registry import Backend, backends, names, register, require_type
from gpuinterop.ndarray import CudaNdarray, GpuArray

__all__ = [
    "Backend",
    "backends",
    "cudamat_to_cudandarray",
    "cudandarray_to_cudamat",
    "cudandarray_to_garray",
    "from_any",
    "from_dlpack",
    "garray_to_cudandarray",
    "names",
    "pointer_arguments",
    "register",
    "to",
    "to_cudandarray",
    "to_gpuarray",
]

if TYPE_CHECKING:  # those functions, generated on first use, whose result has a class of its own
    to_numpy: Callable[..., np.ndarray[Any, Any]]
    to_buffer: Callable[..., memoryview]

# Theano's names: the direction, the library, and the options that have other defaults.
_THEANO: dict[str, tuple[str, str, dict[str, Any]]] = {
    "to_gpuarray": ("to", "pycuda", {}),
    "cudandarray_to_cudamat": ("to", "cudamat", {"layout": "memory"}),
    "cudandarray_to_garray": ("to", "gnumpy", {}),
    "cudamat_to_cudandarray": ("from", "cudamat", {"layout": "memory"}),
    "garray_to_cudandarray": ("from", "gnumpy", {}),
}


def __getattr__(name: str) -> Any:
    direction, _, library = name.partition("_")
    defaults: dict[str, Any] = {}
    try:
        if name in _THEANO:
            direction, library, defaults = _THEANO[name]
        if direction in ("to", "from") and library in registry.names():
            entry = registry.backend(library, f"gpuinterop.converters.{name}")
            value = (to_function if direction == "to" else from_function)(entry, name, **defaults)
        else:
            return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as e:
        if e.name != f"{__name__}.{name}":
            raise
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        ) from None
    except GpuInteropError as e:  # an attribute that does not exist, for hasattr()
        raise AttributeError(str(e)) from e
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    own = {name for name in globals() if name.startswith("__")}
    known = {f"{direction}_{entry.name}" for entry in backends() for direction in ("to", "from")}
    return sorted(own | {*__all__} | known)


@_core.exports()
def to(x: Any, library: Any = None, copyif: bool = False, **options: Any) -> Any:
    """Return `x` as an array of a library, by name: ``to(x, "torch")``.

    Shares memory if layout and dtype allow it and raises otherwise; ``copyif=True`` copies if
    necessary, and copies nothing if the conversion fails. `x` may be an array of any known library.
    ``allow_readonly=True`` is accepted for every library. It shares read-only memory with libraries that
    cannot mark it, if you do not write to the result. Further options are those of ``to_<library>``.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.from_any(numpy.ones((2, 3), "float32"))
    >>> gpuinterop.to(x, "numpy").shape
    (2, 3)
    """
    copyif = copyif if type(copyif) is bool else require_bool(copyif, "copyif", "to")  # type: ignore[redundant-expr]
    entry, dtype, options = read_target(x, library, options, "to")
    if entry is None:
        return engine.import_array(x, copyif, options, dtype=dtype)
    return engine.convert(x, entry, copyif, options)


@_core.imports()
def from_any(obj: Any, copyif: bool = False, **options: Any) -> Any:
    """Return an array over the memory of an array of any known library, or of one that implements a protocol.

    A float32 array becomes a `CudaNdarray`, another dtype a `GpuArray`. Shares memory, or raises;
    with ``copyif=True`` it copies memory that cannot be shared. A gpuinterop array is returned unchanged.

    Raises
    ------
    ConversionTypeError
        `obj` is not an array; the message lists the accepted objects.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> n = numpy.zeros(2, "float32")
    >>> gpuinterop.from_any(n).fill(1)
    >>> n.tolist()
    [1.0, 1.0]
    """
    copyif = require_bool(copyif, "copyif", "from_any")
    if options:
        entry = registry.find_backend(obj)
        options = check_options(entry, "from", options, "from_any", common=False)
    return engine.import_array(obj, copyif, options)


@_core.imports(_core.ANY_PROTOCOL)
@checks_arguments("copy")
def from_dlpack(
    x: Any,
    /,
    *,
    device: Any = None,
    copy: bool | None = None,
    cls: type[CudaNdarray | GpuArray] | None = None,
) -> Any:
    """Return an array that shares the memory of `x`, keeps it alive, and is ready on the current stream.

    `x` is any object with DLPack's methods, a DLPack capsule (which is consumed), or an object with
    one of the older protocols. Float32 gives a `CudaNdarray`, any other dtype a `GpuArray`, unless
    `cls` is given; read-only memory stays read-only. Nothing is copied unless ``copy=True``, or
    `device` is not the device of `x`.

    Raises
    ------
    ConversionTypeError
        `x` implements no protocol, or its memory does not hold its values (meta tensors, tracers), or it
        is a NumPy scalar, which can only be copied.
    ExportError
        The library of `x` cannot export it: a tensor with requires_grad, a sharded array.
    ExchangeError
        The description of the memory is malformed, consumed, or impossible on this machine; the message names
        the protocols that were tried, with the error of each.
    CopyForbiddenError
        ``copy=False`` and `device` is another device.
    DTypeError
        `cls` is `CudaNdarray` and the dtype is not float32.

    Examples
    --------
    >>> import numpy
    >>> import gpuinterop as gi
    >>> n = numpy.arange(6, dtype="float32").reshape(2, 3)
    >>> x = gi.from_dlpack(n.T)
    >>> x.shape, x.strides, x.ptr == n.ctypes.data
    ((3, 2), (4, 12), True)
    """
    copy = read_copy(copy, "from_dlpack")
    target = None if device is None else resolve_device(device, "from_dlpack")
    copies = copy or (copy is None and target is not None and target.type == "cuda")
    if copies and isinstance(x, np.generic):
        x = np.asarray(x)  # a scalar has no memory to share, but its value can be copied
    pair = None if target is None else (target.type_code, target.index or 0)
    return _core.import_any(cls, x, pair, copy)


# ---- generated functions, and Theano's functions ------------------------------------------------


def to_function(entry: Backend, name: str = "", **defaults: Any) -> Any:
    """Return the function ``to_<library>`` of an entry, or one of another name and other defaults."""
    own = writer(entry)
    if own is not None:
        return own
    own_name = name if name in _THEANO else ""
    where = own_name or entry.module.RULES.where

    def call(x: Any, copyif: Any = False, **options: Any) -> Any:
        copyif = require_bool(copyif, "copyif", where)
        options = check_options(entry, "to", {**defaults, **options}, where)
        engine.require_array(x, where)
        return engine.convert(x, entry, copyif, options, own_name)

    return generated(call, entry, "to", name or f"to_{entry.name}", defaults)


def from_function(entry: Backend, name: str = "", **defaults: Any) -> Any:
    """Return the function ``from_<library>`` of an entry, or Theano's, which returns a CudaNdarray."""
    where = name or f"from_{entry.name}"
    dtype = "float32" if name in _THEANO else None

    def call(obj: Any, copyif: Any = False, **options: Any) -> Any:
        options = {**defaults, **check_options(entry, "from", options, where, common=False)}
        copyif = require_bool(copyif, "copyif", where)
        if registry.library_of(obj) != entry.name:
            raise ConversionTypeError(
                where=where,
                expected=entry.module.ARRAY,
                got=type_name(obj),
                fix="use gpuinterop.from_any, which accepts every known array",
            )
        return engine.import_array(obj, copyif, options, where, dtype)

    def theano_call(x: Any, copyif: Any = False, **options: Any) -> Any:
        return call(x, copyif, **options)

    function = call if dtype is None else theano_call
    own = entry.reader
    if own is None and not hasattr(entry.module, "ARRAY"):  # another package's module
        require_type(own, _core.Array, "a gpuinterop array", where, entry)
    return own or generated(function, entry, "from", where, defaults)


@checks_arguments("copyif")
def to_cudandarray(x: Any, copyif: bool = False) -> Any:
    """Return a CudaNdarray over the memory of `x`: a GPUArray, or an array of any known library.

    Shares every layout. With ``copyif=True`` it copies memory that cannot be shared, such as that of a tensor
    with a pending conjugation. A CudaNdarray holds only float32, and nothing is cast: other dtypes raise
    ValueError. The result sees the work that is queued on the library's current or default stream. It
    keeps `x` alive, as ``result.base``. Writes on either side are visible on the other; read-only memory
    stays read-only.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> n = numpy.zeros(2, "float32")
    >>> type(gpuinterop.to_cudandarray(n)).__name__
    'CudaNdarray'
    """
    copyif = require_bool(copyif, "copyif", "to_cudandarray")
    array = _core.share_ordinary(x)
    if type(array) is CudaNdarray:
        return array
    return engine.import_array(x, copyif, {}, dtype="float32")
