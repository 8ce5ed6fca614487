"""Libraries that a conversion needs and cannot have: not installed, or installed and broken."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gpuinterop import installed_libraries
from gpuinterop.converters.presence import installed
from gpuinterop.errors import MissingLibraryError
from gpuinterop.foreign_handles import loaded_module

if TYPE_CHECKING:
    from gpuinterop.converters.rows import Backend

__all__ = ["failing", "failures", "how_to_install", "imported", "missing"]

# Package -> why its import failed when it was last tried.
_failures: dict[str, str] = {}


def failures() -> dict[str, str]:
    """The packages that are installed and could not be imported, each with its error."""
    return dict(_failures)


def failing(row: Backend, where: str, why: Exception, package: str) -> MissingLibraryError:
    """The error of a conversion whose package is installed and cannot be imported, which is remembered."""
    name = package or row.package
    _failures[name] = f"{type(why).__name__}: {why}"
    return MissingLibraryError(
        where=where,
        expected=f"the package {name}, which is installed, to be imported",
        got=f"its import fails: {_failures[name]}",
        fix=installed_libraries.how_to_repair(name, row.install if name == row.package else ""),
    )


def _works(package: str) -> None:
    """Forget that the import of a package has failed: now it was imported."""
    _failures.pop(package, None)


def imported(row: Backend, name: str, where: str) -> Any:
    """A package of a library, imported now; an error that says how to install or mend it."""
    found = loaded_module(name)
    if found is not None:
        _refuse_namesake(row, name, found, where)
        return found
    package = "" if name.partition(".")[0] == row.package.partition(".")[0] else name
    if not installed(package or row.package):
        raise missing(row, where, package=package)
    try:
        found = importlib.import_module(name)
    except Exception as e:  # whatever a broken library raises
        if isinstance(e, ModuleNotFoundError) and e.name == name:
            raise missing(row, where, str(e), package) from e
        raise failing(row, where, e, package) from e
    _refuse_namesake(row, name, found, where)
    _works(package or row.package)
    return found


def _refuse_namesake(row: Backend, name: str, found: Any, where: str) -> None:
    """Refuse a file of the library's name that hides it, as ``torch.py`` in the current folder does."""
    file = getattr(found, "__file__", None)
    if name != row.package or row.converter or not row.types or not file:
        return
    if hasattr(found, "__path__") or any(hasattr(found, kind) for kind in row.types):
        return
    raise MissingLibraryError(
        where=where,
        expected=f"the package {name}, which has {' or '.join(row.types)}",
        got=f"the file {file}, which is imported in its place and has none of these",
        fix="rename that file, or keep its folder out of sys.path, and start anew",
    )


def missing(
    row: Backend, where: str, why: str = "it is not installed", package: str = ""
) -> MissingLibraryError:
    """The error of a conversion that needs a package which is not here."""
    return MissingLibraryError(
        where=where,
        expected=f"the package {package or row.package}, which is imported on the first conversion",
        got=why,
        fix=how_to_install(row, package),
    )


def how_to_install(row: Backend, package: str = "") -> str:
    """The command that brings a library, or a package that its converter needs."""
    name = package or row.package
    wanted = (row.install if name == row.package else name) or name
    return installed_libraries.BY_HAND.get(name) or f"pip install {wanted}"
