"""Find out which libraries and converters can be used, and why others cannot.

`installed` imports nothing. `import_package` imports a library on the first conversion that needs it.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import warnings
from typing import TYPE_CHECKING, Any

from gpuinterop.errors import ConversionTypeError, MissingLibraryError, short_repr, type_name

from . import package_versions

if TYPE_CHECKING:
    from .registry import Backend


failures: dict[str, str] = {}  # package that is installed: why its last import failed
broken_converters: dict[str, str] = {}  # name: why the converter is disabled


def installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    if package in sys.modules:
        return sys.modules[package] is not None
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # a parent package is missing, or a stub module has no spec
        return False
    # Without an origin it is a bare folder of that name.
    return spec is not None and spec.origin is not None


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


def unknown_name_error(
    name: Any, names: list[str], aliases: dict[str, str], where: str
) -> ConversionTypeError:
    """Return the error for a name that no library has; the closest names come first."""
    word = name
    if not isinstance(name, str):  # a library's module or class, passed in place of its name
        module = name.__module__ if isinstance(name, type) else getattr(name, "__name__", "")
        word = str(module).partition(".")[0]
    close = difflib.get_close_matches(word.lower(), aliases)
    near = [aliases[alias] for alias in close]
    return ConversionTypeError(
        where=where,
        expected=f"the name of a library: {', '.join(dict.fromkeys([*near, *names]))}",
        got=short_repr(name),
        fix=f"pass {near[0]!r}" if near
        else "pass one of these, or add a converter through the entry-point group gpuinterop.converters",
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
