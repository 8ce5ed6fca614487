"""Keywords beyond the array and `copyif`: which of them a converter takes."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from gpuinterop.errors import ArgumentTypeError
from gpuinterop.option_values import refuse_copy_keyword, require_bool

__all__ = ["check_options", "accepted_options", "drop_common_option"]


def check_options(
    function: Callable[..., Any] | None, options: dict[str, Any], where: str, common: bool = True
) -> None:
    """Refuse keywords that a converter does not take; None takes none.

    `common` is whether the caller takes the option that `to` takes for every library.
    """
    if not options:
        return
    parameters = inspect.signature(function).parameters if function is not None else {}
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    # The first two are the array and copyif; names with an underscore are the library's own.
    known = [name for name in list(parameters)[2:] if not name.startswith("_")]
    for name in options:
        if name not in known:
            refuse_copy_keyword({name: options[name]}, "copyif", where)
            everything = dict.fromkeys(["copyif", *known, *[COMMON] * common])
            # An option about copies must not lead to the one that shares read-only memory.
            near = (
                ["copyif"]
                if "copy" in name.lower()
                else difflib.get_close_matches(name, everything)
            )
            ordered = dict.fromkeys([*near, *everything])
            raise ArgumentTypeError(
                where=where,
                expected=f"options among {', '.join(ordered)}",
                got=f"{name}=...",
                fix=f"write {near[0]}=..., or leave it out" if near
                else "pass one of these, or leave it out",
            )  # fmt: skip


COMMON = "allow_readonly"  # the one option that `to` takes for every library


def drop_common_option(
    function: Callable[..., Any] | None, options: dict[str, Any], where: str
) -> dict[str, Any]:
    """`options` without the common one, where a converter has no use for it."""
    if COMMON not in options:
        return options
    require_bool(options[COMMON], COMMON, where)
    if function is not None:
        parameters = inspect.signature(function).parameters
        if COMMON in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return options
    return {name: value for name, value in options.items() if name != COMMON}


def accepted_options(
    function: Callable[..., Any] | None, options: dict[str, Any]
) -> dict[str, Any]:
    """The options that a function takes: a plan does not depend on all that a conversion does."""
    if not options or function is None:
        return {}
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return options
    return {name: value for name, value in options.items() if name in parameters}
