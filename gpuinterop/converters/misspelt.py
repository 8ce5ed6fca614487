"""The answer to a name that no library has: the nearest names first."""

from __future__ import annotations

import difflib
from typing import Any

from gpuinterop.errors import ConversionTypeError, short_repr

__all__ = ["no_library"]


def _of_module(given: Any, names: list[str], aliases: dict[str, str]) -> str:
    """The library's name for its module or a class of it, which people pass in the name's place."""
    module = given.__module__ if isinstance(given, type) else getattr(given, "__name__", "")
    known = {*names, *aliases}
    parts = module.split(".") if isinstance(module, str) else []
    return next((p for p in (".".join(parts), *parts) if p in known), "")


def no_library(
    name: Any, names: list[str], aliases: dict[str, str], where: str
) -> ConversionTypeError:
    """The error for `name`, raised by `where`: a function, or an option of the command line."""
    word = name if isinstance(name, str) else _of_module(name, names, aliases)
    word = word.lower()
    close = difflib.get_close_matches(word, [*names, *aliases])
    near = [aliases.get(found, found) for found in close]
    return ConversionTypeError(
        where=where,
        expected=f"the name of a library: {', '.join(dict.fromkeys([*near, *names]))}",
        got=short_repr(name),
        fix=f"write {near[0]!r}" if near
        else "pick one of these, or add a converter by the entry-point group gpuinterop.converters",
    )  # fmt: skip
