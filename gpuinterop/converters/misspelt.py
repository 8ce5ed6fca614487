"""The answer to a name that no library has: the nearest names first."""

from __future__ import annotations

import difflib
from typing import Any

from gpuinterop.errors import ConversionTypeError, shown

__all__ = ["no_library"]


def no_library(
    name: Any, names: list[str], aliases: dict[str, str], where: str
) -> ConversionTypeError:
    """The error for `name`, raised by `where`: a function, or an option of the command line."""
    word = name.lower() if isinstance(name, str) else ""
    close = difflib.get_close_matches(word, [*names, *aliases])
    near = [aliases.get(found, found) for found in close]
    return ConversionTypeError(
        where=where,
        expected=f"the name of a library: {', '.join(dict.fromkeys([*near, *names]))}",
        got=shown(name),
        fix=f"write {near[0]!r}" if near
        else "pick one of these, or add a converter by the entry-point group gpuinterop.converters",
    )  # fmt: skip
