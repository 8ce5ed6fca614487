"""``gpuinterop explain``: predicts the conversion of an array of a shape and layout, or a view, with the reason.

Exit code 0: it shares, or copies with permission. 1: it refuses. 2: an argument is wrong. 3: the
converter cannot predict the outcome.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

import gpuinterop as gi
from gpuinterop.arrays.core_view import byte_range, c_strides
from gpuinterop.arrays.dtypes import as_supported_dtype
from gpuinterop.cli import STRICT, device_of, layouts_in_help, nearest
from gpuinterop.cli.terminal import say, show_seconds
from gpuinterop.cli.views import GRAMMAR, add_expression, parse, view_of
from gpuinterop.errors import ArgumentTypeError
from gpuinterop.errors.context import reraise_from
from gpuinterop.errors.messages import strides_of_partial_elements, wrong_number_of_strides
from gpuinterop.exchange import registry
from gpuinterop.exchange.sharing import PLANS
from gpuinterop.testing.layouts import LAYOUTS

EPILOG = """\
exit code: 0 it shares, or copies with --copyif; 1 it refuses; 2 an argument is wrong; 3 not predictable

example: gpuinterop explain --shape 3,4 --layout reversed --to torch
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the expression and the options: the array and the library."""
    parser.epilog = f"{layouts_in_help()}\n{GRAMMAR}\n{EPILOG}"
    add_expression(parser)
    parser.add_argument(
        "--shape", metavar="N,...", help="axis lengths; '' for 0-d [those of the layout below]"
    )
    parser.add_argument(
        "--layout", default="C", metavar="LAYOUT",
        help="a layout by its name below, or byte strides, as in --layout=-16,4 [C]",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", default="float32", metavar="DTYPE", help="element type [float32]"
    )
    parser.add_argument("--device", metavar="DEVICE", help="instead of the default device")
    parser.add_argument(
        "--to", metavar="LIBRARY", help="the library to convert to, or process; required"
    )
    parser.add_argument("--copyif", action="store_true", help="allow a copy")
    parser.add_argument(
        "--draw", action="store_true", help="also draw the memory and mark the axis at fault"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    if arguments.to is None:
        given = " ".join(arguments.expression)
        raise ArgumentTypeError(
            where="gpuinterop explain", expected="--to LIBRARY", got=given or "no library",
            fix=f"add --to {nearest(given, registry.names()) or 'torch'}",
        )  # fmt: skip
    target = target_of(arguments.to)
    tree = parse(arguments.expression)
    x = view_of(
        tree, array_of(arguments.shape, arguments.layout, arguments.dtype, arguments.device)
    )
    with show_seconds("gpuinterop explain"):  # importing a library may take seconds
        plan = gi.explain(x, target, arguments.copyif)
    drawing = replace(gi.draw(x), axis=plan.axis) if arguments.draw else None
    if arguments.json:
        words = ("library", "outcome", "reason", "code", "axis", "bytes", "fix", "where", "got")
        picture = {"drawing": forms_of(drawing)} if drawing else {}
        print(json.dumps({word: getattr(plan, word) for word in words} | picture, indent=1))
    else:
        say(plan)
        if drawing:
            print(f"\n{drawing}")
    return 3 if plan.unknown else int(plan.refused)


def forms_of(drawing: gi.Drawing) -> dict[str, str]:
    """Return both forms of a drawing, for JSON."""
    return {"text": str(drawing), "svg": drawing.svg}


def target_of(name: str) -> str:
    """Return the library that --to names, for `explain`."""
    if registry.own_name(name) is None and name not in PLANS:
        row = registry.backend(name, "--to")
        if row.name == "array_api" and name.lower() not in registry.NAMESPACES:
            return STRICT  # one of the libraries that this converter serves
    return name


def array_of(shape: str | None, layout: str, dtype: str, device: str | None) -> Any:
    """Return an array as the options describe it; it has memory, because some libraries check the address."""
    named = LAYOUTS.get(layout)
    element = as_supported_dtype(dtype, "--dtype")
    extents = (named or LAYOUTS["C"]).shape if shape is None else numbers_of(shape, "--shape")
    if named is not None:
        with reraise_from("--shape"):
            strides = tuple(s * element.itemsize for s in _strides(layout, extents))
    else:
        strides = numbers_of(
            layout,
            "--layout",
            f"one of {', '.join(LAYOUTS)}, or byte strides",
            'reversed, or a view of x instead: "x[::-1]"',
        )
        if len(strides) != len(extents):
            raise wrong_number_of_strides("--layout", len(extents), strides)
        if any(s % element.itemsize for s in strides):
            raise strides_of_partial_elements("--layout", element.itemsize, strides)
    place = device_of(device)
    low, high = byte_range(0, extents, strides, element.itemsize)
    offset = named.offset if layout == "offset" and named is not None else 0
    with reraise_from("--shape"):
        base = gi.empty((high - low) // element.itemsize + offset, element, device=place)
        return gi.GpuArray.from_pointer(
            base.ptr + offset * element.itemsize - low, extents, element, strides, base,
            device=base.device, readonly=layout == "readonly",
        )  # fmt: skip


def numbers_of(
    text: str, where: str, expected: str = "integers separated by commas", example: str = "3,4"
) -> tuple[int, ...]:
    """Return the integers in an option's value."""
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        near = nearest(text, LAYOUTS) if where == "--layout" else ""
        raise ArgumentTypeError(
            where=where, expected=expected, got=text,
            fix=f"pass {where}={near or example}",
        ) from None  # fmt: skip


def _part_of(extents: tuple[int, ...], *gaps: int) -> tuple[int, ...]:
    """Return the strides of a part of a C-ordered array whose last axes are longer by `gaps`."""
    longer = zip(extents, ((0,) * len(extents) + gaps)[-len(extents) :], strict=True)
    return c_strides(tuple(n + gap for n, gap in longer), 1)


def _strides(layout: str, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a named layout, in elements, for any shape."""
    strides = c_strides(extents, 1)
    if not extents:
        return strides
    if layout == "F":
        return c_strides(extents[::-1], 1)[::-1]
    if layout == "permuted":
        outer = c_strides((*extents[1:], extents[0]), 1)
        return (outer[-1], *outer[:-1])
    first, last = strides[0], strides[-1]
    pitched = _part_of(extents, 2)
    return {
        "pitch": pitched,
        "flipped": (-pitched[0], *pitched[1:]),
        "F-pitch": _part_of(extents[::-1], 2)[::-1],
        "planes": _part_of(extents, 2, 0),
        "block": _part_of(extents, 1, 2),
        "sliced": tuple(2 * s * (2 if i == 0 else 1) for i, s in enumerate(strides)),
        "every-other": tuple(2 * s for s in strides),
        "reversed": (-first, *strides[1:]),
        "mirrored": (*strides[:-1], -last),
        "broadcast": (0, *strides[1:]),
    }.get(layout, strides)
