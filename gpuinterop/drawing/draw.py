"""`draw`: the memory of an array of any library as a picture, and the picture of an array in a notebook."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html import escape
from itertools import chain
from textwrap import wrap
from typing import Any

from gpuinterop import _core
from gpuinterop.arrays.core_view import byte_range, core_view
from gpuinterop.errors.context import reraise_from
from gpuinterop.exchange.foreign_memory import OwnerGroup
from gpuinterop.exchange.sharing import describe, explain

from . import svg, text
from .cells import Layout, counted, words_of_axes

LONGEST_CHAIN = 16  # of bases
SHORT = ("builtins", "gpuinterop.ndarray")  # modules whose classes need no module's name


@dataclass(repr=False)
class Drawing:
    """The picture of an array's memory: text for a terminal, and SVG, which notebooks show.

    Examples
    --------
    >>> import gpuinterop
    >>> drawing = gpuinterop.zeros(3, device="cpu").draw()
    >>> print(str(drawing).splitlines()[-1])
    axis 0: length 3, step +4 bytes, 1 cell forward
    >>> drawing.svg[:4]
    '<svg'
    """

    title: str
    facts: list[str]
    layout: Layout
    verdict: list[str] = field(default_factory=list)  # what a conversion would do, and why
    shared: bool = True  # by that conversion
    axis: int | None = None  # at fault

    def __str__(self) -> str:
        picture, rows = text.draw_rows(self.layout)
        marks = {self.axis: "  <-- at fault"}
        axes = words_of_axes(self.layout, [step.axis for step in picture.steps])
        notes = [line + marks.get(axis, "") for axis, line in axes] + picture.notes
        notes += ["'.': no element of the array"] if picture.gaps else []
        head = [self.title, *self.facts, "", *(rows or ["no cells: the array is empty"]), ""]
        return "\n".join([*head, *notes, *self.verdict]).rstrip()

    __repr__ = __str__

    @property
    def svg(self) -> str:
        """The picture as an SVG document, with a title and a description for those who do not see it."""
        return svg.draw_memory(
            self.title, self.facts, self.layout, self.verdict, self.axis, self.shared
        )

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the SVG to a file; to a file whose name ends in ``.txt`` the text.

        Raises
        ------
        ArgumentTypeError
            The name has another suffix than ``.svg`` and ``.txt``.
        """
        path = svg.picture_file(
            file, "Drawing.save", "a name that ends in .svg, or .txt for the text", also=".txt"
        )
        words = f"{self}\n" if path.suffix.lower() == ".txt" else self.svg
        path.write_text(words, encoding="utf-8")


def draw(x: Any, to: str | None = None) -> Drawing:
    """Draw the memory of an array of any library: its elements as cells in memory order, gaps, steps and owner.

    The picture names the owner of the memory, and counts the other arrays and exports that keep it. With `to`, it says
    what the conversion to that library would do, as `explain` predicts it, and marks the axis at fault. Nothing is
    converted and no value is read, so arrays on a GPU are not downloaded. Of large memory the beginning is drawn.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.from_any(numpy.zeros((4, 6), "float32"))
    >>> gpuinterop.draw(x[::2, ::-1])
    float32, shape (2, 6), strides (48, -4) bytes, on cpu
    shares 96 bytes owned by a numpy.ndarray of shape (4, 6)
    element 0,0 is at byte 20
    shared with 1 other array or export
    <BLANKLINE>
                         <---| axis 1
     +0 0,5 0,4 0,3 0,2 0,1 0,0
    +24   .   .   .   .   .   .
    +48 1,5 1,4 1,3 1,2 1,1 1,0
    +72   .   .   .   .   .   .
    <BLANKLINE>
    axis 0: length 2, step +48 bytes, 12 cells forward
    axis 1: length 6, step -4 bytes, 1 cell back
    '.': no element of the array
    """
    info, _ = describe(x, "draw")
    title = f"{info.dtype}, shape {info.shape}, strides {info.strides} bytes, on {info.device_name}"
    low, high = byte_range(info.ptr, info.shape, info.strides, info.itemsize)
    owner = _owner(x)
    if owner is None:
        known = _core.is_array(x) or hasattr(x, "base")
        facts, pitches = (
            [f"{'owns' if known else 'spans'} {counted(high - low, 'byte')}"],
            info.strides,
        )
    else:
        begin, end, name, pitches = owner
        if begin <= low and high <= end:
            low, high = begin, end
        facts = [f"shares {counted(high - low, 'byte')} owned by {name}"]
    layout = Layout(info.shape, info.strides, info.itemsize, info.ptr - low, high - low, pitches)
    if info.size and layout.start:
        facts.append(f"element {layout.label(0)} is at byte {layout.start}")
    if info.readonly:
        facts.append("read-only")
    facts += _sharers(x)
    title, *facts = chain(*(wrap(line, text.WIDTH) for line in (title, *facts)))
    drawing = Drawing(title, facts, layout)
    if to is None:
        return drawing
    with reraise_from("gpuinterop.draw"):
        predicted = explain(x, to)
    lines = [
        wrap(line, text.WIDTH, subsequent_indent="    ") for line in str(predicted).split("\n")
    ]
    return replace(drawing, verdict=[*chain(*lines)], shared=predicted.shared, axis=predicted.axis)


def _sharers(x: Any) -> Iterator[str]:
    """Yield what gpuinterop knows of others that share the memory, beside the owner."""
    if not _core.is_array(x):
        return
    if others := _core._others_over(x):
        yield f"shared with {others} other {'array or export' if others == 1 else 'arrays or exports'}"
    if _core._is_lent(x):
        yield "shared with a library that reads it later, as JAX does"


def _owner(x: Any) -> tuple[int, int, str, tuple[int, ...]] | None:
    """Return the address range of the object that owns the memory of an array, its name and its strides.

    None for an array that owns its memory. The range is (0, 0) if gpuinterop cannot find it out.
    """
    owner = _core.Array.base.__get__(x) if _core.is_array(x) else getattr(x, "base", None)
    for _ in range(LONGEST_CHAIN):  # views of NumPy have bases of their own
        owner = owner.owner if isinstance(owner, OwnerGroup) else owner
        base = None if _core.is_array(owner) else getattr(owner, "base", None)
        if base is None:
            break
        owner = base
    if owner is None:
        return None
    kind = type(owner)
    name = (
        kind.__qualname__ if kind.__module__ in SHORT else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        info, _ = describe(owner, "draw")
    except Exception:  # an owner need not be an array
        return 0, 0, f"a {name}", ()
    return (
        *byte_range(info.ptr, info.shape, info.strides, info.itemsize),
        f"a {name} of shape {info.shape}",
        info.strides,
    )


def html(x: Any) -> str:
    """Return an array for a notebook: its picture, and its values if they are in host memory. Never raises."""
    try:
        drawing = draw(x)
        parts = [drawing.svg]
        if core_view(x).device.type == "cpu":
            parts.append(f"<pre>{escape(repr(x))}</pre>")
        return "".join(parts)
    # An incomplete layout, or values that a capture has not computed yet.
    except Exception as error:
        return f"<pre>{escape(type(x).__name__)}: {escape(str(error))}</pre>"
