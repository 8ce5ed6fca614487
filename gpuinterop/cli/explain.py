"""``gpuinterop explain``: predicts the conversion of an array of a shape and layout, with the reason.

Exit code 0: it shares, or copies with permission. 1: it refuses. 2: an argument is wrong. 3: the
converter cannot predict the outcome.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import gpuinterop as gi
from gpuinterop.cli import STRICT, layouts_in_help
from gpuinterop.converters import registry
from gpuinterop.converters.plan import c_strides
from gpuinterop.dtypes import as_supported_dtype
from gpuinterop.errors import ArgumentTypeError, ShapeError
from gpuinterop.testing.layouts import LAYOUTS, Layout

EPILOG = """\
exit code: 0 it shares, or copies with --copyif; 1 it refuses; 2 an argument is wrong; 3 not predictable

example: gpuinterop explain --shape 3,4 --layout reversed --to torch
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the array and the library."""
    parser.epilog = f"{layouts_in_help()}\n{EPILOG}"
    parser.add_argument(
        "--shape", metavar="N,...", help="axis lengths; '' for 0-d [those of the layout below]"
    )
    parser.add_argument(
        "--layout", default="C", metavar="NAME",
        help="a layout by its name below, or byte strides, as in -16,4 [C]",
    )  # fmt: skip
    parser.add_argument("--dtype", default="float32", help="element type [float32]")
    parser.add_argument("--device", help="instead of the default device")
    parser.add_argument("--to", required=True, metavar="LIBRARY", help="the library to convert to")
    parser.add_argument("--copyif", action="store_true", help="allow a copy")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    try:
        x = array_of(arguments.shape, arguments.layout, arguments.dtype, arguments.device)
        target = arguments.to
        if registry.own_name(target) is None:
            row = registry.backend(target, "--to")
            if row.name == "array_api" and target.lower() not in registry.NAMESPACES:
                target = STRICT  # one of the libraries that it serves
        plan = gi.explain(x, target, arguments.copyif)
    except MemoryError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.json:
        words = ("library", "outcome", "reason", "code", "axis", "bytes", "fix", "where", "got")
        print(json.dumps({word: getattr(plan, word) for word in words}, indent=1))
    else:
        print(plan)
    return 3 if plan.unknown else int(plan.refused)


def array_of(shape: str | None, layout: str, dtype: str, device: str | None) -> Any:
    """Return an array as the options describe it; it has memory, because some libraries check the address."""
    named = LAYOUTS.get(layout)
    extents = (named or LAYOUTS["C"]).shape if shape is None else _numbers(shape, "--shape")
    if any(n < 0 for n in extents):
        raise ShapeError(
            where="--shape",
            expected="axis lengths of 0 or more",
            got=str(shape),
            fix="write it like 3,4",
        )
    element = as_supported_dtype(dtype, "--dtype")
    if named is None:
        strides = _element_strides(layout, extents, element)
    else:
        _check_shape(layout, extents)
        strides = _strides(layout, extents)
    offset = named.offset if layout == "offset" and named is not None else 0
    return _window(extents, strides, offset, element, device, layout == "readonly")


# The shapes that three of the layouts require.
_SHAPES: dict[str, tuple[str, Callable[[tuple[int, ...]], bool]]] = {
    "size-1": ("an axis of one element", lambda extents: 1 in extents),
    "empty": ("an axis without elements", lambda extents: 0 in extents),
    "0-d": ("no axis, which is --shape ''", lambda extents: not extents),
}


def _check_shape(layout: str, extents: tuple[int, ...]) -> None:
    needs, fits = _SHAPES.get(layout, ("", bool))
    if needs and not fits(extents):
        raise ShapeError(
            where=f"--layout {layout}", expected=needs, got=f"the shape {extents}",
            fix="omit --shape, or pass one that has it",
        )  # fmt: skip


def _strides(layout: str, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a named layout, in elements, for any shape."""
    strides = c_strides(extents, 1)
    if layout == "F":
        return c_strides(extents[::-1], 1)[::-1]
    if layout == "permuted" and extents:
        outer = c_strides((*extents[1:], extents[0]), 1)
        return (outer[-1], *outer[:-1])
    if layout == "sliced":
        return tuple(2 * s * (2 if i == 0 else 1) for i, s in enumerate(strides))
    if layout == "every-other":
        return tuple(2 * s for s in strides)
    if layout in ("reversed", "mirrored") and extents:
        axis = 0 if layout == "reversed" else len(extents) - 1
        return tuple(-s if i == axis else s for i, s in enumerate(strides))
    if layout == "broadcast" and extents:
        return (0, *strides[1:])
    if layout == "size-1":  # whose stride has no meaning
        return tuple(777 if n == 1 else s for n, s in zip(extents, strides, strict=True))
    return strides


def _numbers(text: str, where: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise ArgumentTypeError(
            where=where, expected="integers separated by commas", got=text, fix="write 3,4"
        ) from None


def _element_strides(text: str, extents: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    wrong = f"one of {', '.join(LAYOUTS)}, or a byte stride for each of the {len(extents)} axes"
    strides: tuple[int, ...] | None
    try:
        strides = tuple(int(word) for word in text.split(","))
    except ValueError:
        strides = None
    if strides is None or len(strides) != len(extents) or any(s % dtype.itemsize for s in strides):
        raise ShapeError(
            where="--layout", expected=f"{wrong}, in whole elements of {dtype.itemsize} bytes",
            got=text, fix="write --layout reversed, or --layout=-16,4",
        )  # fmt: skip
    return tuple(s // dtype.itemsize for s in strides)


def _window(
    extents: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    dtype: np.dtype[Any],
    device: str | None,
    readonly: bool,
) -> Any:
    steps = [(n - 1) * s for n, s in zip(extents, strides, strict=True) if n > 1]
    low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    base = gi.empty(high - low + 1 + offset, dtype, device=device)
    window = Layout("", base.size, extents, strides, offset - low, readonly)
    return window.over(base.ptr, dtype, (base.device.type, base.device.index), base)
