"""Converters of other packages that do not work: conversions go on without them."""

from __future__ import annotations

import warnings

__all__ = ["broken", "disable_converter"]

broken: dict[str, str] = {}  # by name, and why


def disable_converter(name: str, why: str) -> None:
    """Go on without a converter, and say so once."""
    if name not in broken:
        broken[name] = why
        warnings.warn(f"the converter {name!r} is left out: {why}", RuntimeWarning, stacklevel=2)
