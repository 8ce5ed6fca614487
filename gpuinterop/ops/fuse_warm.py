"""Calls of a fused function that the core serves alone: see WarmCalls in native/python/fuse_guard.cpp."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

from gpuinterop import _core

from .fuse_numbers import OPEN, Number

__all__ = ["add_warm"]

_TYPE, _EQUAL, _BITS = 0, 1, 2  # what is asked of an argument
_OBJECT, _COMPUTED = -1, -2  # operands that are no arguments


def add_warm(
    warm: Any,
    args: Sequence[Any],
    key: Sequence[tuple[type, Any]],
    fixed: frozenset[int],
    operation: Callable[..., Any],
    captured: Sequence[Any],
    rebuild: Callable[[Any], Any] | None,
) -> None:
    """Let the core serve calls with arguments like these, if it can tell them apart as a trace does."""
    expected: list[tuple[int, Any]] = []
    operands: list[tuple[int, Any]] = []
    for i, (value, (_, constant)) in enumerate(zip(args, key, strict=True)):
        if constant is None:
            if not isinstance(value, _core.Array):
                return
            operands.append((i, None))
            expected.append((_TYPE, type(value)))
        elif constant is OPEN:
            expected.append((_BITS, value) if i in fixed else (_TYPE, float))
        elif type(value) in (bool, int, str, types.NoneType):
            expected.append((_EQUAL, value))
        else:
            return
    for one in captured:
        if type(one) is not Number:
            operands.append((_OBJECT, one))
        elif type(one.key) is int:
            operands.append((one.key, None))
        else:
            operands.append((_COMPUTED, one.of))
    warm.add(expected, operands, operation, rebuild)
