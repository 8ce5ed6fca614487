"""The known libraries, one `Backend` each, and the search for the library of an object.

Other packages add entries through the entry-point group ``gpuinterop.converters`` or by `register`. A look-up
imports no library, because the class of an object comes from a module that is already loaded.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from gpuinterop import _core
from gpuinterop.devices.foreign_handles import is_being_imported, module_of
from gpuinterop.errors import (
    ArgumentTypeError,
    ConversionTypeError,
    GpuInteropError,
    MissingLibraryError,
    short_repr,
    type_name,
)

from . import package_versions

GROUP = "gpuinterop.converters"  # of entry points, and the package of the built-in converters

# Names for "a gpuinterop array" in to() and explain(), and its only dtype, if there is one.
OWN_NAMES = {"gpuinterop": None, "any": None, "cudandarray": "float32"}


# ---- what can be imported, and why the rest cannot ----------------------------------------------


failures: dict[str, str] = {}  # package that is installed: why its last import failed
broken_converters: dict[str, str] = {}  # name: why the converter is disabled


installed = package_versions.installed


def import_library(entry: Backend, device: str, where: str) -> Any:
    """Import the module that a conversion on a device needs; None for a converter without one."""
    name = getattr(entry.module, "IMPORTS", None) or entry.package
    name = name[device] if isinstance(name, dict) else name
    return import_package(entry, name, where) if name else None


def import_package(entry: Backend, name: str, where: str) -> Any:
    """Import a module of a library, or raise an error that says how to install or repair it."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        return module  # no thread is still importing it
    # A converter may need another package than its library's: CUDAMat's needs npmat on the host.
    own = name.partition(".")[0] == entry.package.partition(".")[0]
    package = entry.package if own else name
    try:
        if installed(package):
            module = importlib.import_module(name)
            failures.pop(package, None)
            return module
    except Exception as e:  # a broken library may raise anything
        failures[package] = f"{type(e).__name__}: {e}"
        raise MissingLibraryError(
            where=where,
            expected=f"an importable package {package}, because it is installed",
            got=f"its import fails: {failures[package]}",
            fix=package_versions.how_to_repair(package, entry.install if own else ""),
        ) from e
    raise MissingLibraryError(
        where=where,
        expected=f"the package {package}, which is imported on the first conversion",
        got=f"{package} is not installed",
        fix=package_versions.BY_HAND.get(package)
        or f"pip install {(own and entry.install) or package}",
    )


def disable_converter(name: str, why: str) -> None:
    """Continue without another package's converter that does not work, and warn once."""
    if name not in broken_converters:
        broken_converters[name] = why
        warnings.warn(f"the converter {name!r} is disabled: {why}", RuntimeWarning, stacklevel=2)


# Libraries whose own functions read arrays.
_TABLES = {
    "pandas": "pandas.DataFrame(x)", "polars": 'polars.Series("x", x)', "pyarrow": "pyarrow.array(x)",
}  # fmt: skip


def unknown_name_error(
    name: Any, names: list[str], aliases: dict[str, str], where: str
) -> ConversionTypeError:
    """Return the error for a name that no library has; the closest names come first."""
    word = name
    if not isinstance(name, str):  # a library's module or class, passed in place of its name
        module = name.__module__ if isinstance(name, type) else getattr(name, "__name__", "")
        word = str(module).partition(".")[0]
    close = difflib.get_close_matches(word.lower(), aliases, cutoff=0.7)
    near = [aliases[alias] for alias in close]
    fix = "pass one of these, or add a converter by the entry-point group gpuinterop.converters"
    if word in _TABLES:
        fix = f"write {_TABLES[word]}, which reads gpuinterop arrays; gpuinterop.from_any(column) goes back"
    if hasattr(type(name), "__dlpack__"):
        fix = "swap the arguments, the array first: gpuinterop.to(x, 'torch')"
    return ConversionTypeError(
        where=where,
        expected=f"the name of a library: {', '.join(dict.fromkeys([*near, *names]))}",
        got=short_repr(name),
        fix=f"pass {near[0]!r}" if near else fix,
    )  # fmt: skip


def unknown_object_error(obj: Any, names: list[str], where: str) -> ConversionTypeError:
    """Return the error for an object that belongs to no known library and implements no protocol."""
    libraries = [name for name in names if name not in ("buffer", "array_api")]
    return ConversionTypeError(
        where=where,
        expected=f"an array of {', '.join(libraries)}, or an object that implements DLPack, "
        "__cuda_array_interface__, __array_interface__ or the buffer protocol",
        got=f"{type_name(obj)}, which is none of these",
        fix="pass an array (gpuinterop.asarray makes one of numbers, lists and ranges), or register the "
        "library: gpuinterop.converters.register",
    )


def require_type(result: Any, kind: type, description: str, function: str, entry: Backend) -> Any:
    """Return the result of a function of another package's converter, or raise if it has the wrong type."""
    if isinstance(result, kind) and result is not None:
        return result
    raise ArgumentTypeError(
        where=f"gpuinterop.converters ({entry.name})",
        expected=f"{description} from {function} of the converter of {entry.name!r}",
        got=short_repr(result),
        fix=f"define {function} in the converter so that it returns {description}",
    )


# ---- one library --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Backend:
    """One library.

    Parameters
    ----------
    name : the name in ``to(x, name)`` and ``to_<name>``.
    package : the package that must be importable; the root of the classes' modules.
    types : class names, ``"Arr"`` or ``"mylib.Arr"``, matched along ``type(obj).__mro__``.
    roots : further roots that those classes may report as their module.
    converter : the module with the functions, or its name.
    install : the name that messages recommend to install if the package is missing.
    aliases : further names for ``to()`` and ``explain()``.
    devices : types of devices on which the library has arrays; for tables.
    matches : whether an object is an array of the library; by default the converter module's
        function of that name, if it has one.
    """

    name: str
    package: str
    types: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
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
        name = self.converter or f"{GROUP}.{self.name}"
        try:
            return importlib.import_module(name)
        except Exception as e:  # another package's module may raise anything
            raise MissingLibraryError(
                where=f"gpuinterop.converters ({self.name})",
                expected=f"the converter's module, {name}",
                got=f"{type(e).__name__}: {e}",
                fix=f"pass a module that can be imported: Backend({self.name!r}, "
                f"{self.package!r}, converter='mylib.interop')",
            ) from e

    @cached_property
    def reader(self) -> Callable[..., Any] | None:
        """The converter's own function that imports arrays, None if the engine imports them."""
        function: Callable[..., Any] | None = getattr(self.module, f"from_{self.name}", None)
        return function or getattr(self.module, "from_", None)

    def claims(self, obj: Any) -> bool:
        """Return whether `matches`, or that of the converter's module, recognises `obj`."""
        test = self.matches
        if test is None and self.converter:
            # A module given by name is imported only when its library is loaded.
            if isinstance(self.converter, str) and self.package not in sys.modules:
                return False
            test = getattr(self.module, "matches", None)
        return test is not None and bool(test(obj))


# ---- the entries --------------------------------------------------------------------------------

# Libraries of the array API that have a name in to(), and the distributions that install them.
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
        "pycuda", "pycuda", ("GPUArray",), install="pycuda", aliases=("gpuarray",), devices=("cuda",)
    ),
    Backend(
        "cudamat", "cudamat", ("CUDAMatrix", "TransposedCUDAMatrix"), ("npmat",),
        install="git+https://github.com/cudamat/cudamat",
    ),
    Backend("gnumpy", "gnumpy", ("garray",), aliases=("garray",)),
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
        "pyopencl", "pyopencl", ("Array",), install="pyopencl pocl-binary-distribution",
        aliases=("opencl", "cl"), devices=("cpu",),
    ),
    Backend(
        "buffer", "builtins", ("memoryview", "bytes", "bytearray", "array", "mmap"),
        ("array", "mmap"), aliases=("memoryview",), devices=("cpu",),
    ),
    # This entry comes last: it stands for many libraries, recognised by their methods instead of their class.
    Backend(
        "array_api", "", aliases=("array-api", *NAMESPACES),
        matches=lambda obj: all(hasattr(type(obj), n) for n in ("__array_namespace__", "__dlpack__")),
    ),
)  # fmt: skip
entries: dict[str, Backend] = {}
canonical_names: dict[str, str] = {}  # name or alias in lower case: the entry's name


def _add(entry: Backend) -> None:
    entries[entry.name] = entry
    for alias in (entry.name, *entry.aliases):
        canonical_names[alias.lower()] = entry.name


for _built_in in _BUILT_IN:
    _add(_built_in)


def register(entry: Backend) -> None:
    """Add a library, or replace the one of the same name."""
    value: Any = entry
    name = value.name if isinstance(value, Backend) else None
    good = isinstance(name, str) and name != ""
    for words in (value.types, value.roots, value.aliases, value.devices) if good else ():
        good &= isinstance(words, tuple) and all(isinstance(word, str) for word in words)
    if not good:
        raise ArgumentTypeError(
            where="gpuinterop.converters.register",
            expected="a gpuinterop.converters.Backend with a name and tuples of names",
            got=short_repr(value),
            fix="call register(Backend('mylib', 'mylib', types=('Array',), converter='mylib.interop'))"
            " with a module that has to_mylib and from_mylib",
        )
    broken_converters.pop(entry.name, None)
    # The package keeps to_<name> and from_<name> after their first use; from_any belongs to no library.
    package = sys.modules.get(GROUP)
    for function in {f"to_{entry.name}", f"from_{entry.name}"} if package else ():
        if function not in vars(package).get("__all__", (function,)):
            vars(package).pop(function, None)
    for word in (entry.name, *entry.aliases):
        _core._set_exporter(word)
    _add(entry)
    _of_classes.clear()
    _core._set_converters_changed(any(entries[known.name] is not known for known in _BUILT_IN))


@cache
def _plugins() -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}


def _load_plugin(name: str) -> Backend:
    point = _plugins()[name]
    try:
        value = point.load()
    except Exception as e:
        raise MissingLibraryError(
            where=f"gpuinterop.converters ({name})",
            expected="a converter that can be imported from the package that provides it",
            got=f"{point.name} = {point.value!r}: {type(e).__name__}: {e}",
            fix="repair or uninstall the package that provides this converter",
        ) from e
    entry = value if isinstance(value, Backend) else Backend(name, name, converter=value)
    register(entry)
    return entry


def names() -> list[str]:
    """Return the libraries that ``to()`` accepts, plugins included, without loading them."""
    return [*entries, *(n for n in _plugins() if n not in entries)]


def built_in(name: str) -> Any:
    """Import the converter's module that this package has for a library, whatever is registered under its name."""
    return importlib.import_module(f"{GROUP}.{name}")


def backends() -> list[Backend]:
    """Return the loaded entries; plugins are loaded with their library."""
    return list(entries.values())


def backend(name: str, where: str = "gpuinterop.to", packages: Iterable[str] = ()) -> Backend:
    """Return the entry of a library, by name or alias, in any case. An error lists `packages` among the names."""
    value: Any = name
    word = value.lower() if isinstance(value, str) else None
    if word in canonical_names:
        return entries[canonical_names[word]]
    for plugin in _plugins():
        if plugin.lower() == word:
            return _load_plugin(plugin)
    aliases = {**canonical_names, **{own: own for own in (*OWN_NAMES, *_plugins(), *packages)}}
    raise unknown_name_error(name, [*names(), *packages], aliases, where)


def own_name(name: Any) -> str | None:
    """Return the name in `OWN_NAMES` that `name` is, in any case; None for any other value."""
    word = name.lower() if isinstance(name, str) else None
    return word if word in OWN_NAMES else None


def load(name: str, where: str, module: str = "") -> Any:
    """Import a library, or raise an error that says how to install or repair it."""
    entry = entries[name]
    return import_package(entry, module or entry.package, where)


def load_or_none(name: str) -> Any:
    """Import a library to plan with it; None if it is missing or broken, which the conversion then reports."""
    try:
        return load(name, "")
    except MissingLibraryError:
        return None


# ---- the entry of an object ---------------------------------------------------------------------


def find_backend(obj: Any) -> Backend | None:
    """Return the entry to which `obj` belongs, or None. Imports nothing.

    An entry found by class is cached. One found by attributes is not, because the next object of the class
    may have others.
    """
    cls: Any = type(obj)
    entry, named = of_class(cls)
    if not named and _load_plugins_in_use():
        entry, named = of_class(cls)
    if named or isinstance(obj, type):  # a class has its arrays' attributes but no memory
        return entry
    return _claiming(obj, True) or entry or _claiming(obj, False)


def owner_of(module: str) -> Backend | None:
    """Return the loaded entry of the library to which a module belongs, by the module's name."""
    for entry in entries.values():
        for root in (entry.package, *entry.roots):
            if root and f"{module}.".startswith(f"{root}."):
                return entry
    return None


def library_of(obj: Any) -> str:
    """Return the name of the library to which `obj` belongs, "" if it is unknown."""
    if _core.is_array(obj):
        return "gpuinterop"
    entry = find_backend(obj)
    return "" if entry is None else entry.name


_of_classes: WeakKeyDictionary[type, tuple[Backend | None, bool]] = WeakKeyDictionary()


def of_class(cls: type) -> tuple[Backend | None, bool]:
    """Return the entry that names the class or the nearest of its bases, and whether it names the class itself."""
    result = _of_classes.get(cls)
    if result is None:
        result = _of_classes[cls] = _search(cls)
    return result


def _search(cls: type) -> tuple[Backend | None, bool]:
    if issubclass(cls, _core.Array):
        return None, True
    for base in cls.__mro__:
        module = module_of(base)
        for entry in entries.values():
            if _names_class(entry, base, module):
                return entry, base is cls
    return None, False


def _names_class(entry: Backend, cls: type, module: str) -> bool:
    """Return whether the entry names this class of a module, and not only a base of it."""
    name = cls.__qualname__
    root = module.partition(".")[0]
    if root != entry.package.partition(".")[0] and root not in entry.roots:
        return False
    if not {name, f"{root}.{name}", f"{module}.{name}"}.intersection(entry.types):
        return False
    # Another class may have the name, but it is not the attribute of the loaded module.
    return getattr(sys.modules.get(module), name, cls) is cls


def _claiming(obj: Any, of_others: bool) -> Backend | None:
    # Entries of this package name no converter. Those of other packages go before a class's base.
    for entry in list(entries.values()):
        try:
            if bool(entry.converter) is of_others and entry.claims(obj):
                return entry
        except Exception as e:
            disable_converter(entry.name, f"matches() raised {type(e).__name__}: {e}")
    return None


def _load_plugins_in_use() -> bool:
    # Whether there were plugins to load. Only a loaded library can have made an object.
    found = False
    for name in _plugins():
        known = name in entries or name in broken_converters or name not in sys.modules
        if known or is_being_imported(name):  # then a later conversion tries again
            continue
        try:
            _load_plugin(name)
            found = True
        except GpuInteropError as e:
            disable_converter(name, e.got)
    return found
