"""A row of the table of libraries: what is known of one, and its converter's functions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

from gpuinterop.converters.presence import installed
from gpuinterop.errors import (
    ArgumentTypeError,
    ConversionTypeError,
    MissingLibraryError,
    short_repr,
)
from gpuinterop.layout import is_array

__all__ = ["EXAMPLE", "Backend", "check_row", "promised"]


@dataclass(frozen=True)
class Backend:
    """One library.

    Parameters
    ----------
    name : the name in ``to(x, name)`` and ``to_<name>``.
    package : what must be importable; the root of the classes' modules.
    types : class names, ``"Arr"`` or ``"mylib.Arr"``, matched along ``type(obj).__mro__``.
    roots : further roots that those classes may report as their module.
    like : tells objects of the same structure but another class; it reads attributes, nothing more.
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
        except Exception as e:  # whatever somebody's module raises
            raise MissingLibraryError(
                where=f"gpuinterop.converters ({self.name})",
                expected=f"the converter's module, {self.converter or 'which its row does not name'}",
                got=f"{type(e).__name__}: {e}",
                fix=f"name a module that can be imported: Backend({self.name!r}, "
                f"{self.package!r}, converter='mylib.interop')",
            ) from e

    @cached_property
    def to(self) -> Callable[..., Any]:
        return self._function(f"to_{self.name}", "to")

    @cached_property
    def from_(self) -> Callable[..., Any]:
        return self._function(f"from_{self.name}", "from_")

    def _function(self, *candidates: str) -> Callable[..., Any]:
        for candidate in candidates:
            found = getattr(self.module, candidate, None)
            if found is not None:
                return found  # type: ignore[no-any-return]
        raise ConversionTypeError(
            where=f"gpuinterop.converters ({self.name})",
            expected=f"a converter module with {' or '.join(candidates)}",
            got=f"module {self.module.__name__}"
            if isinstance(self.module, ModuleType)
            else short_repr(self.module),
            fix="define that function in the converter",
        )

    def take(self, obj: Any, copyif: bool = False, **options: Any) -> Any:
        """What `from_` makes of `obj`; a converter that makes no array of ours is told so."""
        made = self.from_(obj, copyif, **options)
        if not is_array(made):
            raise ConversionTypeError(
                where=f"from_{self.name}",
                expected=f"a CudaNdarray or GpuArray from the converter of {self.name!r}",
                got=short_repr(made) if made is None else f"an object of type {_name_of(made)}",
                fix="return the array that the converter makes, for example "
                "gpuinterop.from_dlpack(obj)",
            )
        return made

    def give(self, x: Any, copyif: bool = False, **options: Any) -> Any:
        """What `to` makes of `x`, an array of ours; a converter that makes nothing is told so."""
        made = self.to(x, copyif, **options)
        if made is None:
            raise ConversionTypeError(
                where=f"to_{self.name}",
                expected=f"an array of the library from the converter of {self.name!r}",
                got="None",
                fix="return the array that the converter makes, for example "
                f"{self.name}.from_dlpack(x)",
            )
        return made

    def claims(self, obj: Any) -> bool:
        """Whether `matches`, or that of the converter's module, takes `obj` for the library's own."""
        test = self.matches
        if test is None and self.converter:
            # A module by name is imported when its library is there, whose objects it knows.
            if isinstance(self.converter, str) and self.package not in sys.modules:
                return False
            test = getattr(self.module, "matches", None)
        return test is not None and bool(test(obj))

    def installed(self) -> bool:
        """Whether the package can be imported; nothing is imported to know."""
        return installed(self.package)


def promised(made: Any, kind: type, name: str, function: str) -> Any:
    """`made` when it is what a function of the converter `name` is to return; an error otherwise."""
    if isinstance(made, kind):
        return made
    raise ArgumentTypeError(
        where=f"gpuinterop.converters ({name})",
        expected=f"a gpuinterop.converters.plan.{kind.__name__} from {function}",
        got=short_repr(made),
        fix=f"return one from {function}, or leave that function out of the converter",
    )


def _name_of(obj: Any) -> str:
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


EXAMPLE = (
    "write register(Backend('mylib', 'mylib', types=('Array',), converter='mylib.interop')); "
    "the module has to_mylib and from_mylib"
)


def check_row(row: Backend) -> None:
    """Refuse a row of which no conversion could make anything."""
    fault = ""
    name: Any = row.name
    converter: Any = row.converter
    if not isinstance(name, str) or not name:
        fault = f"the name {name!r}"
    elif converter is None or isinstance(converter, (int, float)):
        fault = f"the converter {converter!r}"
    for of in ("types", "roots", "aliases", "devices"):
        words = getattr(row, of)
        if isinstance(words, str) or not all(isinstance(word, str) for word in words):
            fault = f"{of}={words!r}"
    if fault:
        raise ArgumentTypeError(
            where="gpuinterop.converters.register",
            expected="a name, a converter's module, and tuples of names",
            got=fault,
            fix=EXAMPLE,
        )
