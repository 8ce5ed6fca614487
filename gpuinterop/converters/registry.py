"""The known libraries, one `Backend` each, and which of them an object belongs to.

Other packages add theirs by the entry-point group
``gpuinterop.converters`` or by `register`. A look-up imports no library: the class of an object comes from
a module that is loaded already.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

from gpuinterop import _core
from gpuinterop.converters.availability import (
    EXAMPLE,
    broken_converters,
    check_entry,
    disable_converter,
    import_package,
    installed,
    unknown_name_error,
)
from gpuinterop.converters.foreign_layout import (
    has_attributes,
    like_cudamat,
    like_gnumpy,
    like_pycuda,
)
from gpuinterop.errors import ArgumentTypeError, GpuInteropError, MissingLibraryError, short_repr
from gpuinterop.foreign_handles import is_being_imported, module_of

__all__ = [
    "OWN_NAMES",
    "Backend",
    "backend",
    "backends",
    "built_in",
    "find_backend",
    "installed",
    "library_of",
    "load",
    "load_or_none",
    "names",
    "names_class",
    "namespace",
    "own_name",
    "register",
]

GROUP = "gpuinterop.converters"

# Names for "a gpuinterop array" in to() and explain(), and the one dtype that it has.
OWN_NAMES = {"gpuinterop": None, "any": None, "cudandarray": "float32"}


@dataclass(frozen=True)
class Backend:
    """One library.

    Parameters
    ----------
    name : the name in ``to(x, name)`` and ``to_<name>``.
    package : what must be importable; the root of the classes' modules.
    types : class names, ``"Arr"`` or ``"mylib.Arr"``, matched along ``type(obj).__mro__``.
    roots : further roots that those classes may report as their module.
    like : recognises objects of the same structure but another class, by their attributes alone.
    converter : the module with the functions, or its name.
    install : what a message recommends when the package is missing.
    aliases : further names for ``to()`` and ``explain()``.
    devices : where the library has arrays; for tables.
    matches : whether an object is an array of the library; by default the converter module's
        function of that name, if it has one.
    """

    name: str
    package: str
    types: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    like: Callable[[Any], bool] | None = None
    converter: str | ModuleType = ""
    install: str = ""
    aliases: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu", "cuda")
    matches: Callable[[Any], bool] | None = field(default=None, compare=False)

    @cached_property
    def module(self) -> Any:
        """The converter's module, imported on first use."""
        if not isinstance(self.converter, str):
            return self.converter
        try:
            return importlib.import_module(self.converter or f"{__package__}.{self.name}")
        except Exception as e:  # another package's module may raise anything
            raise MissingLibraryError(
                where=f"gpuinterop.converters ({self.name})",
                expected=f"the converter's module, {self.converter or 'which its entry does not name'}",
                got=f"{type(e).__name__}: {e}",
                fix=f"name a module that can be imported: Backend({self.name!r}, "
                f"{self.package!r}, converter='mylib.interop')",
            ) from e

    def claims(self, obj: Any) -> bool:
        """Return whether `matches`, or that of the converter's module, recognises `obj`."""
        test = self.matches
        if test is None and self.converter:
            # A module given by name is imported only when its library is loaded.
            if isinstance(self.converter, str) and self.package not in sys.modules:
                return False
            test = getattr(self.module, "matches", None)
        return test is not None and bool(test(obj))

    def installed(self) -> bool:
        """Return whether the package can be imported, without importing it."""
        return installed(self.package)


# Libraries of the array API that are addressed by their own name, and how they are installed.
NAMESPACES = {"array_api_strict": "array-api-strict", "dpnp": "dpnp"}

_BUILT_IN = (
    Backend("numpy", "numpy", ("ndarray", "generic"), aliases=("np",), devices=("cpu",)),
    Backend("torch", "torch", ("Tensor",), install="torch", aliases=("pytorch",)),
    Backend("cupy", "cupy", ("ndarray",), install="cupy-cuda13x", devices=("cuda",)),
    Backend(
        "jax", "jax", ("ArrayImpl", "Tracer", "Array", "PRNGKeyArray"), ("jaxlib",), install="jax",
        aliases=("jax.numpy", "jnp"),
    ),
    Backend(
        "numba", "numba",
        ("DeviceNDArrayBase", "DeviceNDArray", "MappedNDArray", "ManagedNDArray", "DeviceRecord"),
        ("numba_cuda",), install="numba-cuda", devices=("cuda",),
    ),
    Backend(
        "pycuda", "pycuda", ("GPUArray",), like=like_pycuda, install="pycuda", aliases=("gpuarray",),
        devices=("cuda",),
    ),
    Backend(
        "cudamat", "cudamat", ("CUDAMatrix", "TransposedCUDAMatrix"), ("npmat",), like=like_cudamat,
        install="git+https://github.com/cudamat/cudamat",
    ),
    Backend("gnumpy", "gnumpy", ("garray",), like=like_gnumpy, aliases=("garray",)),
    Backend(
        "cuda_core", "cuda.core", ("StridedMemoryView", "Buffer"), ("cuda",), install="cuda-core",
        aliases=("cuda.core", "cuda-core"),
    ),
    Backend(
        "tvm_ffi", "tvm_ffi", ("Tensor",), install="apache-tvm-ffi", aliases=("tvm-ffi", "tvm")
    ),
    Backend("warp", "warp", ("array", "indexedarray"), install="warp-lang"),
    Backend(
        "tensorflow", "tensorflow", ("EagerTensor", "Tensor", "Variable", "ResourceVariable"),
        install="tensorflow", aliases=("tf",),
    ),
    Backend(
        "buffer", "builtins", ("memoryview", "bytes", "bytearray", "array", "mmap"),
        ("array", "mmap"), aliases=("memoryview",), devices=("cpu",),
    ),
    # Last: these are many libraries, recognised by their methods instead of by their class.
    Backend(
        "array_api", "", like=has_attributes("__array_namespace__", "__dlpack__"),
        aliases=("array-api", *NAMESPACES),
    ),
)  # fmt: skip
_lock = threading.RLock()  # a finalizer may run in between and convert
_entries: dict[str, Backend] = {entry.name: entry for entry in _BUILT_IN}
_aliases: dict[str, str] = {alias: entry.name for entry in _BUILT_IN for alias in entry.aliases}
# By the class's address, because a WeakKeyDictionary costs more than a conversion. The weak reference
# removes the item with the class.
_of_type: dict[int, tuple[Backend | None, bool, weakref.ref[type]]] = {}
_entry_points: dict[str, importlib.metadata.EntryPoint] | None = None


def register(entry: Backend) -> None:
    """Add a library, or replace the one of the same name."""
    if not isinstance(entry, Backend):
        raise ArgumentTypeError(
            where="gpuinterop.converters.register",
            expected="a gpuinterop.converters.Backend",
            got=short_repr(entry),
            fix=EXAMPLE,
        )
    check_entry(entry)
    with _lock:
        broken_converters.pop(entry.name, None)
        if entry.name in _entries:
            _forget_functions(entry.name)
        for name in (entry.name, *entry.aliases):
            _core._set_exporter(name)
        _entries[entry.name] = entry
        for alias in entry.aliases:
            _aliases[alias] = entry.name
        _of_type.clear()
        _core._set_converters_changed(any(_entries[known.name] is not known for known in _BUILT_IN))


def _forget_functions(name: str) -> None:
    # The package keeps to_<name> and from_<name> after their first use; from_any is a function of its own.
    kept = vars(sys.modules[__package__])
    for function in (f"to_{name}", f"from_{name}"):
        if function not in kept["__all__"]:
            kept.pop(function, None)


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
            fix="repair or uninstall the package that provides this converter",
        ) from e
    entry = value if isinstance(value, Backend) else getattr(value, "backend", None)
    if entry is None:
        entry = Backend(name, name, converter=value, install=name)
    register(entry)
    return entry


def built_in(name: str) -> Backend:
    """Return the entry of this package for a library, also if another package has replaced it."""
    return next(entry for entry in _BUILT_IN if entry.name == name)


def names() -> list[str]:
    """Return the libraries that ``to()`` accepts, plugins included, without loading them."""
    return [*_entries, *(n for n in _plugins() if n not in _entries)]


def backends() -> list[Backend]:
    """Return the entries that are loaded; plugins join when their library is."""
    return list(_entries.values())


def backend(name: str, where: str = "gpuinterop.to") -> Backend:
    """Return the entry of a library, by name or alias, in any case."""
    entry = None
    if isinstance(name, str):
        entry = _named(name) or _load_plugin(name) or _in_any_case(name.lower())
    if entry is None:
        aliases = {**_aliases, **{own: own for own in OWN_NAMES}}
        raise unknown_name_error(name, names(), aliases, where)
    return entry


def _in_any_case(name: str) -> Backend | None:
    known = next((known for known in (*_entries, *_aliases) if known.lower() == name), "")
    plugin = next((known for known in _plugins() if known.lower() == name), "")
    return _named(known) or _load_plugin(plugin)


def _named(name: str) -> Backend | None:
    return _entries.get(name) or _entries.get(_aliases.get(name, ""))


def namespace(name: Any, where: str) -> Any:
    """Import the array-API library that is called `name`; None for any other name."""
    found = name.lower() if isinstance(name, str) else ""
    if found not in NAMESPACES or _aliases.get(found) != "array_api":
        return None
    return import_package(Backend(found, found, install=NAMESPACES[found]), found, where)


def own_name(name: Any) -> str | None:
    """Return the name in `OWN_NAMES` that `name` is, in any case; None for any other value."""
    found = name.lower() if isinstance(name, str) else None
    return found if found in OWN_NAMES else None


def load(name: str, where: str, module: str = "") -> Any:
    """Import a library, or raise an error that says how to install or repair it."""
    entry = _entries[name]
    return import_package(entry, module or entry.package, where)


def load_or_none(name: str, module: str = "") -> Any:
    """Import a library to plan with it; None if it is missing or broken, which the conversion then reports."""
    try:
        return load(name, "", module)
    except MissingLibraryError:
        return None


# ---- which entry an object belongs to -----------------------------------------------------------


def find_backend(obj: Any) -> Backend | None:
    """Return the entry that `obj` belongs to, or None. Imports nothing.

    An entry found by class is cached. One found by attributes is not, because the next object of the class
    may have others.
    """
    cls = type(obj)
    known = _of_type.get(id(cls))
    if known is None or (not known[1] and _load_waiting()):
        known = _of_class(cls)
    entry, own, _ = known
    return entry if own else _asked("matches", obj) or entry or _asked("like", obj)


def library_of(obj: Any) -> str:
    """Return the name of the library that `obj` belongs to, "" if it is unknown."""
    if issubclass(type(obj), _core.Array):
        return "gpuinterop"
    entry = find_backend(obj)
    return "" if entry is None else entry.name


def _of_class(cls: type) -> tuple[Backend | None, bool, weakref.ref[type]]:
    # The entry that names the class or a base, and whether objects of the class need no further test.
    entry, own = (None, True) if issubclass(cls, _core.Array) else _entry_of_class(cls)
    if not own and _load_waiting():
        entry, own = _entry_of_class(cls)
    number = id(cls)
    found = entry, own, weakref.ref(cls, lambda _: _of_type.pop(number, None))
    _of_type[number] = found
    return found


def names_class(entry: Backend, cls: type) -> bool:
    """Return whether the entry names this class, and not only a base of it."""
    name, module = cls.__qualname__, module_of(cls)
    root = module.partition(".")[0]
    if root != entry.package.partition(".")[0] and root not in entry.roots:
        return False
    if not {name, f"{root}.{name}", f"{module}.{name}"}.intersection(entry.types):
        return False
    # Another class may give itself the name, but not the place in a module that is loaded.
    return getattr(sys.modules.get(module), name, cls) is cls


def _entry_of_class(cls: type) -> tuple[Backend | None, bool]:
    # The entry that names a class or the nearest of its bases, and whether it is the class itself.
    for base in cls.__mro__:
        for entry in list(_entries.values()):
            if names_class(entry, base):
                return entry, base is cls
    return None, False


def _asked(question: str, obj: Any) -> Backend | None:
    if isinstance(obj, type):  # it has the names of its arrays, and no memory
        return None
    for entry in list(_entries.values()):
        ask = entry.claims if question == "matches" else entry.like
        if ask is None:
            continue
        try:
            if ask(obj):
                return entry
        except Exception as e:
            disable_converter(entry.name, f"{question}() raised {type(e).__name__}: {e}")
    return None


def _load_waiting() -> bool:
    # Whether there were plugins to load. Only a loaded library can have made an object.
    found = False
    for name in _plugins():
        if name in _entries or name in broken_converters or name not in sys.modules:
            continue
        if is_being_imported(
            name
        ):  # its converter needs all of it; the next conversion tries again
            continue
        try:
            found |= _load_plugin(name) is not None
        except GpuInteropError as e:
            disable_converter(name, e.got)
    return found
