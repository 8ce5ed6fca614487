"""Find out which libraries and converters can be used, and why others cannot.

`installed` imports nothing. `import_package` imports a library on the first conversion that needs it.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinterop import installed_libraries
from gpuinterop.converters.plan import Plan, plan_from_error
from gpuinterop.errors import (
    ArgumentTypeError,
    ConversionTypeError,
    MissingLibraryError,
    short_repr,
)

if TYPE_CHECKING:
    from gpuinterop.converters.registry import Backend

__all__ = [
    "EXAMPLE",
    "broken_converters",
    "check_entry",
    "disable_converter",
    "failures",
    "how_to_install",
    "import_library",
    "import_package",
    "installed",
    "not_installed_error",
    "unknown_name_error",
    "unknown_object_error",
    "with_need",
]


# ---- without an import --------------------------------------------------------------------------

# A search through sys.path takes longer than a refusal should. A package that was found stays found; an
# absent one may be installed by the next cell of a notebook, which changes one of the folders.
_found: set[str] = set()
_absent: dict[str, tuple[Any, ...]] = {}
# Seconds for which the state of the folders is reused: as long as a loop of refusals, shorter than any cell.
_AT_ONCE = 0.05
_LIB = Path(os.__file__).parent
_ZIP = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
_STANDARD = {str(_LIB), str(_LIB / "lib-dynload"), str(_LIB.parent / _ZIP)}
_seen: tuple[float, tuple[Any, ...]] = (-1.0, ())


def installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    if package in sys.modules:
        return sys.modules[package] is not None
    if package in _found:
        return True
    folders = _folder_state()
    if _absent.get(package) == folders:
        return False
    try:
        spec = importlib.util.find_spec(package)
        # Without an origin it is a bare folder of that name.
        found = spec is not None and spec.origin is not None
    except (ImportError, ValueError):
        # A parent package is missing, or a stub module has no spec.
        found = False
    if found:
        _found.add(package)
    else:
        _absent[package] = folders
    return found


def _folder_state() -> tuple[Any, ...]:
    """Return the folders of sys.path with their times, by which importlib itself notices new packages."""
    global _seen
    now = time.monotonic()
    when, before = _seen
    if when <= now < when + _AT_ONCE and before[: len(sys.path)] == tuple(sys.path):
        return before
    marks: list[Any] = [*sys.path, *map(id, sys.meta_path)]
    for entry in sys.path:
        if entry in _STANDARD:
            continue
        try:
            seen = os.stat(entry or ".")  # noqa: PTH116 - a Path costs more than the call
        except (OSError, TypeError, ValueError):  # it does not exist, or is for another finder
            continue
        marks.append((entry, seen.st_mtime_ns, seen.st_ino))
    _seen = now, tuple(marks)
    return _seen[1]


# ---- imports ------------------------------------------------------------------------------------

_failures: dict[str, str] = {}  # package: why its last import failed


def failures() -> dict[str, str]:
    """Return the packages that are installed and could not be imported, each with its error."""
    return dict(_failures)


def import_library(entry: Backend, device: str, where: str) -> Any:
    """Import the module that a conversion on a device needs; None for a converter without one."""
    name = module_for(entry, device)
    return import_package(entry, name, where) if name else None


def module_for(entry: Backend, device: str) -> str:
    """Return the name of the module that a conversion on a device imports, "" if it imports none."""
    found = getattr(entry.module, "IMPORTS", None) or entry.package
    return found[device] if isinstance(found, dict) else found


def import_package(entry: Backend, name: str, where: str) -> Any:
    """Import a package of a library, or raise an error that says how to install or repair it."""
    found = sys.modules.get(name)
    if getattr(getattr(found, "__spec__", None), "_initializing", False):  # by another thread
        found = importlib.import_module(name)
    if found is not None:
        _refuse_namesake(entry, name, found, where)
        return found
    package = "" if name.partition(".")[0] == entry.package.partition(".")[0] else name
    if not installed(package or entry.package):
        raise not_installed_error(entry, where, package=package)
    try:
        found = importlib.import_module(name)
    except Exception as e:  # a broken library may raise anything
        if isinstance(e, ModuleNotFoundError) and e.name == name:
            raise not_installed_error(entry, where, str(e), package) from e
        raise _import_failed_error(entry, where, e, package) from e
    _refuse_namesake(entry, name, found, where)
    _failures.pop(package or entry.package, None)
    return found


def _refuse_namesake(entry: Backend, name: str, found: Any, where: str) -> None:
    """Refuse a file of the library's name that hides it, as ``torch.py`` in the current folder does."""
    file = getattr(found, "__file__", None)
    if name != entry.package or entry.converter or not entry.types or not file:
        return
    if hasattr(found, "__path__") or any(hasattr(found, kind) for kind in entry.types):
        return
    raise MissingLibraryError(
        where=where,
        expected=f"the package {name}, which has {' or '.join(entry.types)}",
        got=f"the file {file}, which is imported in its place and has none of these",
        fix="rename that file, or keep its folder out of sys.path, and start anew",
    )


def not_installed_error(
    entry: Backend, where: str, why: str = "it is not installed", package: str = ""
) -> MissingLibraryError:
    """Return the error of a conversion whose package is not installed."""
    return MissingLibraryError(
        where=where,
        expected=f"the package {package or entry.package}, which is imported on the first conversion",
        got=why,
        fix=how_to_install(entry, package),
    )


def _import_failed_error(
    entry: Backend, where: str, why: Exception, package: str
) -> MissingLibraryError:
    name = package or entry.package
    _failures[name] = f"{type(why).__name__}: {why}"
    return MissingLibraryError(
        where=where,
        expected=f"the package {name}, which is installed, to be imported",
        got=f"its import fails: {_failures[name]}",
        fix=installed_libraries.how_to_repair(name, entry.install if name == entry.package else ""),
    )


def how_to_install(entry: Backend, package: str = "") -> str:
    """Return the command that installs a library, or a package that its converter needs."""
    name = package or entry.package
    wanted = (entry.install if name == entry.package else name) or name
    return installed_libraries.BY_HAND.get(name) or f"pip install {wanted}"


def with_need(plan: Plan, entry: Backend, device: str) -> Plan:
    """Return `plan`, with the command that installs the library if it is missing."""
    name = module_for(entry, device)
    package = "" if name.partition(".")[0] == entry.package.partition(".")[0] else name
    if not name or installed(package or entry.package):
        return plan
    error = not_installed_error(entry, plan.where, package=package)
    if plan.outcome != "refused":
        return plan_from_error(error, plan.library, plan.where)
    need = f"{package or entry.package} is not installed: {error.fix}"
    return replace(plan, fix=f"{plan.fix}; and {need}")


# ---- converters of other packages ---------------------------------------------------------------

broken_converters: dict[str, str] = {}  # name: why the converter is disabled


def disable_converter(name: str, why: str) -> None:
    """Continue without a converter that does not work, and warn once."""
    if name not in broken_converters:
        broken_converters[name] = why
        warnings.warn(f"the converter {name!r} is disabled: {why}", RuntimeWarning, stacklevel=2)


EXAMPLE = (
    "write register(Backend('mylib', 'mylib', types=('Array',), converter='mylib.interop')); "
    "the module has to_mylib and from_mylib"
)


def check_entry(entry: Backend) -> None:
    """Refuse an entry that no conversion could use."""
    fault = ""
    name: Any = entry.name
    converter: Any = entry.converter
    if not isinstance(name, str) or not name:
        fault = f"the name {name!r}"
    elif converter is None or isinstance(converter, (int, float)):
        fault = f"the converter {converter!r}"
    for of in ("types", "roots", "aliases", "devices"):
        words = getattr(entry, of)
        if isinstance(words, str) or not all(isinstance(word, str) for word in words):
            fault = f"{of}={words!r}"
    if fault:
        raise ArgumentTypeError(
            where="gpuinterop.converters.register",
            expected="a name, a converter's module, and tuples of names",
            got=fault,
            fix=EXAMPLE,
        )


def unknown_name_error(
    name: Any, known: list[str], aliases: dict[str, str], where: str
) -> ConversionTypeError:
    """Return the error for a name that no library has; the closest names come first."""
    candidates = [*known, *aliases]
    word: str = name if isinstance(name, str) else ""
    if not word:  # a library's module or class, passed in place of its name
        module = name.__module__ if isinstance(name, type) else getattr(name, "__name__", "")
        parts = module.split(".") if isinstance(module, str) else []
        word = next((part for part in (".".join(parts), *parts) if part in candidates), "")
    close = difflib.get_close_matches(word.lower(), candidates)
    near = [aliases.get(found, found) for found in close]
    return ConversionTypeError(
        where=where,
        expected=f"the name of a library: {', '.join(dict.fromkeys([*near, *known]))}",
        got=short_repr(name),
        fix=f"write {near[0]!r}" if near
        else "pick one of these, or add a converter by the entry-point group gpuinterop.converters",
    )  # fmt: skip


def unknown_object_error(obj: Any, names: list[str], where: str) -> ConversionTypeError:
    """Return the error for an object that belongs to no known library and implements no protocol."""
    known = [name for name in names if name not in ("buffer", "array_api")]
    return ConversionTypeError(
        where=where,
        expected=f"an array of {', '.join(known)}, or an object that implements DLPack, "
        "__cuda_array_interface__, __array_interface__ or the buffer protocol",
        got=f"{type(obj).__module__}.{type(obj).__qualname__}, which is none of these",
        fix="pass an array (gpuinterop.asarray makes one of numbers and lists), or register the "
        "library: gpuinterop.converters.register",
    )
