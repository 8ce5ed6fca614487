"""``gpuinterop explain``: what a conversion of an array of this shape and layout would do, and why.

Exit code 0 when it shares, 1 when it refuses, 0 when it copies and that was allowed, 3 when the
converter cannot tell.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np

import gpuinterop as gi
from gpuinterop import _core
from gpuinterop.converters import registry
from gpuinterop.dtypes import known
from gpuinterop.errors import ArgumentTypeError, ShapeError

LAYOUTS = ("C", "F", "sliced", "reversed", "mirrored", "broadcast", "offset", "readonly")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The array, and where it goes."""
    parser.add_argument("--shape", default="3,4", metavar="N,...", help="extents; '' for 0-d [3,4]")
    parser.add_argument(
        "--layout", default="C", metavar="NAME",
        help=f"{', '.join(LAYOUTS)}; or byte strides, as in 4,-16 [C]",
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
        if registry.own_name(arguments.to) is None:
            registry.backend(arguments.to, "--to")
        plan = gi.explain(x, arguments.to, arguments.copyif)
    except MemoryError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.json:
        words = ("library", "outcome", "reason", "code", "axis", "bytes", "fix", "where", "got")
        print(json.dumps({word: getattr(plan, word) for word in words}, indent=1))
    else:
        print(plan)
    return 3 if plan.unknown else int(plan.refused)


def array_of(shape: str, layout: str, dtype: str, device: str | None) -> Any:
    """An array as the options describe it; the memory is real, so that its address counts too."""
    extents = _numbers(shape, "--shape")
    if any(n < 0 for n in extents):
        raise ShapeError(
            where="--shape", expected="extents of 0 or more", got=shape, fix="write it like 3,4"
        )
    element = known(dtype)
    offset, strides = 0, _c_strides(extents)
    if layout == "F":
        strides = _c_strides(extents[::-1])[::-1]
    elif layout == "sliced":
        strides = tuple(2 * s * (2 if i == 0 else 1) for i, s in enumerate(strides))
    elif layout in ("reversed", "mirrored") and extents:
        axis = 0 if layout == "reversed" else len(extents) - 1
        strides = tuple(-s if i == axis else s for i, s in enumerate(strides))
    elif layout == "broadcast" and extents:
        strides = (0, *strides[1:])
    elif layout == "offset":
        offset = 1
    elif layout not in LAYOUTS:
        strides = _element_strides(layout, extents, element)
    return _window(extents, strides, offset, element, device, layout == "readonly")


def _numbers(text: str, where: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise ArgumentTypeError(
            where=where, expected="whole numbers with commas between", got=text, fix="write 3,4"
        ) from None


def _c_strides(extents: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(extents):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def _element_strides(text: str, extents: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    wrong = f"one of {', '.join(LAYOUTS)}, or a byte stride for each of the {len(extents)} axes"
    try:
        strides = tuple(int(word) for word in text.split(","))
    except ValueError:
        strides = ()
    if len(strides) != len(extents) or any(s % dtype.itemsize for s in strides):
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
    place = gi.default_device() if device is None else gi.device(device)
    cls = gi.CudaNdarray if dtype == np.float32 else gi.GpuArray
    base = _core.empty(cls, (high - low + 1 + offset,), dtype, place.type_code, place.index)
    return _core.from_pointer(
        cls, base.ptr + (offset - low) * dtype.itemsize, extents,
        tuple(s * dtype.itemsize for s in strides), dtype, place.type_code, place.index, base,
        readonly=readonly,
    )  # fmt: skip
