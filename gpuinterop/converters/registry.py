"""The libraries that are known, as rows, and how an object finds its row.

A row and a file make a converter: the file ``converters/<name>.py`` has ``to_<name>``, ``from_<name>``,
``plan_to``, ``plan_from`` and ``describe``. Other packages add theirs by the entry-point group
``gpuinterop.converters``. Finding a row imports nothing: an object's class can only come from a module
that is loaded already.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import threading
import weakref
from typing import Any

from gpuinterop import _core
from gpuinterop.converters.absence import failures, how_to_install, imported, missing
from gpuinterop.converters.left_out import broken, disable_converter
from gpuinterop.converters.likeness import has, like_cudamat, like_gnumpy, like_pycuda
from gpuinterop.converters.misspelt import no_library
from gpuinterop.converters.presence import installed
from gpuinterop.converters.rows import EXAMPLE, Backend, check_row
from gpuinterop.errors import (
    ArgumentTypeError,
    GpuInteropError,
    MissingLibraryError,
    short_repr,
)
from gpuinterop.foreign_handles import is_being_imported, module_of

__all__ = [
    "OURS",
    "Backend",
    "backend",
    "backends",
    "failures",
    "how_to_install",
    "installed",
    "load",
    "missing",
    "names",
    "namespace",
    "own_name",
    "find_backend",
    "register",
]

GROUP = "gpuinterop.converters"

# Names for "an array of ours" in to() and explain(), and the one dtype that it has.
OURS = {"gpuinterop": None, "any": None, "cudandarray": "float32"}


# Libraries of the array API that are named by their own name, and how they are installed.
_NAMESPACES = {"array_api_strict": "array-api-strict", "dpnp": "dpnp"}

_ROWS = (
    Backend("numpy", "numpy", ("ndarray", "generic"), aliases=("np",), devices=("cpu",)),
    Backend("torch", "torch", ("Tensor",), install="torch", aliases=("pytorch",)),
    Backend("cupy", "cupy", ("ndarray",), install="cupy-cuda13x", devices=("cuda",)),
    Backend(
        "jax",
        "jax",
        ("ArrayImpl", "Tracer", "Array", "PRNGKeyArray"),
        ("jaxlib",),
        install="jax",
        aliases=("jax.numpy", "jnp"),
    ),
    Backend(
        "numba",
        "numba",
        ("DeviceNDArrayBase", "DeviceNDArray", "MappedNDArray", "ManagedNDArray", "DeviceRecord"),
        ("numba_cuda",),
        install="numba-cuda",
        devices=("cuda",),
    ),
    Backend(
        "pycuda",
        "pycuda",
        ("GPUArray",),
        like=like_pycuda,
        install="pycuda",
        aliases=("gpuarray",),
        devices=("cuda",),
    ),
    Backend(
        "cudamat",
        "cudamat",
        ("CUDAMatrix", "TransposedCUDAMatrix"),
        ("npmat",),
        like=like_cudamat,
        install="git+https://github.com/cudamat/cudamat",
    ),
    Backend("gnumpy", "gnumpy", ("garray",), like=like_gnumpy, aliases=("garray",)),
    Backend(
        "cuda_core",
        "cuda.core",
        ("StridedMemoryView", "Buffer"),
        ("cuda",),
        install="cuda-core",
        aliases=("cuda.core", "cuda-core"),
    ),
    Backend(
        "tvm_ffi",
        "tvm_ffi",
        ("Tensor",),
        install="apache-tvm-ffi",
        aliases=("tvm-ffi", "tvm"),
    ),
    Backend("warp", "warp", ("array", "indexedarray"), install="warp-lang"),
    Backend(
        "tensorflow",
        "tensorflow",
        ("EagerTensor", "Tensor", "Variable", "ResourceVariable"),
        install="tensorflow",
        aliases=("tf",),
    ),
    Backend(
        "buffer",
        "builtins",
        ("memoryview", "bytes", "bytearray", "array", "mmap"),
        ("array", "mmap"),
        aliases=("memoryview",),
        devices=("cpu",),
    ),
    # Last: these are many libraries, told by what they offer instead of by their class.
    Backend(
        "array_api",
        "",
        like=has("__array_namespace__", "__dlpack__"),
        aliases=("array-api", *_NAMESPACES),
    ),
)

_lock = threading.RLock()  # a finalizer may come in between and convert
_rows: dict[str, Backend] = {row.name: row for row in _ROWS}
_aliases: dict[str, str] = {alias: row.name for row in _ROWS for alias in row.aliases}
# By the class's address, because a WeakKeyDictionary costs more than a conversion. The weak reference
# takes the entry away with the class.
_of_type: dict[int, tuple[Backend | None, bool, weakref.ref[type]]] = {}
_generation = 0  # of the rows: what was found in an older one is not remembered
_entry_points: dict[str, importlib.metadata.EntryPoint] | None = None


def register(row: Backend) -> None:
    """Add a library, or replace one of the same name."""
    global _generation
    if not isinstance(row, Backend):
        raise ArgumentTypeError(
            where="gpuinterop.converters.register",
            expected="a gpuinterop.converters.Backend",
            got=short_repr(row),
            fix=EXAMPLE,
        )
    check_row(row)
    with _lock:
        broken.pop(row.name, None)
        old = _rows.get(row.name)
        _rows[row.name] = row
        if old is not None:
            _forget_functions(old)
        for alias in row.aliases:
            _aliases[alias] = row.name
        _generation += 1
        _of_type.clear()
        _core._set_converters_changed(any(_rows[known.name] is not known for known in _ROWS))


def _forget_functions(row: Backend) -> None:
    # The package keeps to_<name> and from_<name> once they were asked for.
    kept = vars(sys.modules[__package__])
    for name, value in ((f"to_{row.name}", "to"), (f"from_{row.name}", "from_")):
        if name in kept and kept[name] is vars(row).get(value):
            del kept[name]


def _plugins() -> dict[str, importlib.metadata.EntryPoint]:
    global _entry_points
    if _entry_points is None:
        found = importlib.metadata.entry_points(group=GROUP)
        _entry_points = {point.name: point for point in found}
    return _entry_points


def _load_plugin(name: str) -> Backend | None:
    point = _plugins().get(name)
    if point is None:
        return None
    try:
        value = point.load()
        if value is None or isinstance(value, (int, float, str)):
            raise TypeError(f"{point.value!r} is neither a module nor a Backend")
    except Exception as e:
        raise MissingLibraryError(
            where=f"gpuinterop.converters ({name})",
            expected="a converter that can be imported, from the package that offers it",
            got=f"{point.name} = {point.value!r}: {type(e).__name__}: {e}",
            fix="mend or uninstall that package",
        ) from e
    row = value if isinstance(value, Backend) else getattr(value, "backend", None)
    if row is None:
        row = Backend(
            name, name, converter=value, matches=getattr(value, "matches", None), install=name
        )
    register(row)
    return row


def names() -> list[str]:
    """Every library that ``to()`` knows, plugins included (they are not loaded for it)."""
    return [*_rows, *(n for n in _plugins() if n not in _rows)]


def backends() -> list[Backend]:
    """Return the rows that are loaded; plugins join when their library is."""
    return list(_rows.values())


def backend(name: str, where: str = "gpuinterop.to") -> Backend:
    """The row of a library, by name or alias, in capitals or not."""
    row = None
    if isinstance(name, str):
        row = _named(name) or _load_plugin(name) or _in_capitals_or_not(name.lower())
    if row is None:
        raise no_library(name, names(), {**_aliases, **{own: own for own in OURS}}, where)
    return row


def _in_capitals_or_not(name: str) -> Backend | None:
    known = next((known for known in (*_rows, *_aliases) if known.lower() == name), "")
    plugin = next((known for known in _plugins() if known.lower() == name), "")
    return _named(known) or _load_plugin(plugin)


def namespace(name: Any, where: str) -> Any:
    """The array-API library that is called `name`, imported; None for any other name."""
    found = name.lower() if isinstance(name, str) else ""
    if found not in _NAMESPACES or _aliases.get(found) != "array_api":
        return None
    row = Backend(found, found, install=_NAMESPACES[found])
    return imported(row, found, where)


def _named(name: str) -> Backend | None:
    return _rows.get(name) or _rows.get(_aliases.get(name, ""))


def own_name(name: Any) -> str | None:
    """The name in `OURS` that is meant, in capitals or not; None for what is none, of whatever kind."""
    found = name.lower() if isinstance(name, str) else None
    return found if found in OURS else None


def find_backend(obj: Any) -> Backend | None:
    """The row that `obj` belongs to, or None. Imports nothing.

    What the class tells is remembered of it. What attributes tell is told of one object, and the next
    of its class may have others.
    """
    cls = type(obj)
    known = _of_type.get(id(cls))
    if known is None or (not known[1] and _load_waiting()):
        known = _of_class(cls)
    row, own, _ = known
    return row if own else _asked("matches", obj) or row or _asked("like", obj)


def _of_class(cls: type) -> tuple[Backend | None, bool, weakref.ref[type]]:
    # The row that names the class or a base, and whether there is nothing more to ask of objects.
    generation = _generation
    row, own = (None, True) if issubclass(cls, _core.Array) else _row_of_class(cls)
    if not own and _load_waiting():
        generation = _generation
        row, own = _row_of_class(cls)
    number = id(cls)
    entry = row, own, weakref.ref(cls, lambda _: _of_type.pop(number, None))
    with _lock:
        if generation == _generation:
            _of_type[number] = entry
    return entry


def _is_class_of(row: Backend, cls: type) -> bool:
    name, module = cls.__qualname__, module_of(cls)
    root = module.partition(".")[0]
    if root != row.package.partition(".")[0] and root not in row.roots:
        return False
    if not {name, f"{root}.{name}", f"{module}.{name}"}.intersection(row.types):
        return False
    # Another class may give itself the name, but not the place in a module that is loaded.
    return getattr(sys.modules.get(module), name, cls) is cls


def _row_of_class(cls: type) -> tuple[Backend | None, bool]:
    # The row that names a class or the nearest of its bases, and whether it is the class itself.
    for base in cls.__mro__:
        for row in list(_rows.values()):
            if _is_class_of(row, base):
                return row, base is cls
    return None, False


def _asked(question: str, obj: Any) -> Backend | None:
    if isinstance(obj, type):  # it has the names of its arrays, and no memory
        return None
    for row in list(_rows.values()):
        ask = row.claims if question == "matches" else row.like
        if ask is None:
            continue
        try:
            if ask(obj):
                return row
        except Exception as e:
            disable_converter(row.name, f"{question}() raised {type(e).__name__}: {e}")
    return None


def _load_waiting() -> bool:
    # Whether there were plugins to load. Only a loaded library can have made an object.
    found = False
    for name in _plugins():
        if name in _rows or name in broken or name not in sys.modules:
            continue
        if is_being_imported(name):  # its converter needs all of it; the next conversion asks again
            continue
        try:
            found |= _load_plugin(name) is not None
        except GpuInteropError as e:
            disable_converter(name, e.got)
    return found


def load(row_name: str, where: str, module: str = "") -> Any:
    """Import a foreign library, or say how to install or mend it."""
    row = _rows[row_name]
    return imported(row, module or row.package, where)
