"""The memory of a strided view as cells in memory order: which element lies in which cell, and the steps of the axes.

A picture is rows of cells. Memory of more than `ROWS` rows is drawn in part: the first `PART` rows, which begin at
the first byte of the view. Rows longer than the picture is wide are cut at its right edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuinterop.arrays.core_view import byte_range, c_strides

ROWS, PART = 8, 4
LONGEST_LABEL = 9  # letters; a longer index gives way to the place of the element in C order


class Cell(NamedTuple):
    """A cell that elements lie in: the first of them, in C order, and how many there are."""

    number: int
    elements: int


class Step(NamedTuple):
    """A step of 1 along an axis, from a cell to a cell, each by row and column."""

    axis: int
    start: tuple[int, int]
    end: tuple[int, int]


@dataclass
class Layout:
    """The shape and byte strides of a view, and where it lies in the memory of its owner.

    `start` is the byte of element [0, ..., 0] in that memory, which has `extent` bytes. `pitches` are the byte strides
    of the owner, by which rows are cut; () if they are not known.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    start: int
    extent: int
    pitches: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def moving(self) -> Iterator[tuple[int, int, int]]:
        """Yield each axis with more than one element, its length and its byte stride."""
        for axis, (length, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            if length > 1:
                yield axis, length, stride

    @property
    def unit(self) -> int:
        """The bytes of a cell: one element, or less where elements do not begin at multiples of their size."""
        return math.gcd(self.itemsize, self.start, *(stride for _, _, stride in self.moving()))

    def index(self, number: int) -> tuple[int, ...]:
        """Return the index of an element by its place in C order."""
        found: list[int] = []
        for length in reversed(self.shape):
            number, rest = divmod(number, length)
            found.append(rest)
        return tuple(reversed(found))

    @property
    def numbered(self) -> bool:
        """Whether labels are places in C order, because the longest index is too long."""
        return len(_written(tuple(n - 1 for n in self.shape))) > LONGEST_LABEL

    @property
    def width_of_label(self) -> int:
        """The letters of the longest label."""
        return len(self.label(self.size - 1)) if self.size else 0

    def label(self, number: int) -> str:
        """Return the index of an element, as in "1,5", or its place in C order."""
        return str(number) if self.numbered else _written(self.index(number))


def _written(index: tuple[int, ...]) -> str:
    return ",".join(map(str, index)) or "()"


@dataclass
class Picture:
    """Rows of cells; None is a cell without an element of the view."""

    rows: list[list[Cell | None]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)  # of each row in the owner's memory, in bytes
    steps: list[Step] = field(default_factory=list)
    cut: list[bool] = field(default_factory=list)  # whether each row has more cells
    notes: list[str] = field(default_factory=list)  # what the picture leaves out

    @property
    def drawn(self) -> list[int]:
        """The elements in the picture, in C order; of several in one cell, the first."""
        return sorted({cell.number for row in self.rows for cell in row if cell is not None})

    @property
    def gaps(self) -> bool:
        return any(cell is None for row in self.rows for cell in row)


def draw_cells(layout: Layout, columns: int) -> Picture:
    """Return the picture of a layout, at most `columns` cells wide."""
    if not layout.size:
        return Picture()
    unit = layout.unit
    first = byte_range(layout.start, layout.shape, layout.strides, layout.itemsize)[0] // unit
    own = byte_range(0, layout.shape, layout.strides, layout.itemsize)
    total = layout.extent // unit
    line = _cells_in_a_row(layout, total, columns)
    if -(-total // line) > ROWS:  # of the memory of the owner, draw what the view spans
        total, begin = (own[1] - own[0]) // unit, first
        line = _cells_in_a_row(layout, total, columns)
    else:
        begin = 0
    pitch = _pitch_beyond(layout, columns) if -(-total // line) > ROWS else 0
    rows = -(-total // (pitch or line))
    shown = rows if rows <= ROWS else PART
    width = columns if pitch else line
    elements = _elements(
        layout, max((shown - 1) * (pitch or line) + width, 1) + begin - first, pitch, width
    )
    picture = Picture()
    places: dict[int, tuple[int, int]] = {}
    for row in range(shown):
        start = row * (pitch or line)
        cells = range(start, min(start + width, total))
        picture.cut.append(start + width < min(start + (pitch or line), total))
        places |= {begin + cell: (row, column) for column, cell in enumerate(cells)}
        picture.rows.append([elements.get(begin + cell - first) for cell in cells])
        picture.offsets.append((begin + cells.start) * unit)
    if shown < rows:
        picture.notes.append(f"drawn: the first {shown} of {rows} rows")
    if pitch > width:
        picture.notes.append(f"drawn: the first {width} of {pitch} cells in each row")
    if layout.numbered:
        picture.notes.append("cells are numbered in C order, because indices are long")
    picture.steps = list(_steps(layout, picture, places))
    return picture


def _cells_in_a_row(layout: Layout, total: int, columns: int) -> int:
    """Return a stride of the owner or of the view that fits, or multiples of it that give few rows.

    What fits in one row is in several only if a row holds whole steps of an axis, with the shorter steps within.
    """
    unit, short = layout.unit, total <= columns
    own = [abs(stride) for _, _, stride in layout.moving()]
    for strides in (layout.pitches, own):
        if short and len(strides) < 2:
            continue
        fitting = [s // unit for s in strides if s % unit == 0 and 1 < s // unit <= columns]
        if fitting:
            pitch = max(fitting)
            if short and (total > pitch * ROWS or _cut_by(pitch, layout)):
                break
            return pitch * max(1, min(columns // pitch, -(-total // (pitch * ROWS))))
    return min(total, columns)


def _cut_by(pitch: int, layout: Layout) -> bool:
    """Return whether rows of `pitch` cells cut the steps that are shorter than a row."""
    unit = layout.unit
    low = byte_range(layout.start, layout.shape, layout.strides, layout.itemsize)[0] // unit
    within = sum(
        abs(stride) * (n - 1) for _, n, stride in layout.moving() if abs(stride) < pitch * unit
    )
    return low % pitch + (within + layout.itemsize) // unit > pitch


def _pitch_beyond(layout: Layout, columns: int) -> int:
    """Return the largest stride, in cells, if it is longer than a row and the other axes fit between its steps."""
    spans = sorted((abs(stride), abs(stride) * (n - 1)) for _, n, stride in layout.moving())
    if not spans:
        return 0
    pitch, rest = spans[-1][0], sum(span for _, span in spans[:-1]) + layout.itemsize
    return pitch // layout.unit if pitch // layout.unit > columns and rest <= pitch else 0


def _elements(layout: Layout, count: int, pitch: int, width: int) -> dict[int, Cell]:
    """Return the cells with elements among the first `count`, counted from the first byte of the view.

    With a `pitch`, only the first `width` cells after each multiple of it.
    """
    weights = c_strides(layout.shape, 1)
    # Cells of the lowest address first: along an axis of negative stride, memory order begins at the last index.
    number = sum((n - 1) * weights[axis] for axis, n, stride in layout.moving() if stride < 0)
    axes = [
        (n, abs(s) // layout.unit, -weights[axis] if s < 0 else weights[axis])
        for axis, n, s in layout.moving()
    ]
    axes.append((layout.itemsize // layout.unit, 1, 0))  # the cells of one element
    found = {0: Cell(number, 1)}
    for length, step, weight in sorted(axes, key=lambda axis: axis[1]):
        if not step:
            found = {
                place: Cell(cell.number, cell.elements * length) for place, cell in found.items()
            }
            continue
        most = width if pitch and step != pitch else count
        longer: dict[int, Cell] = {}
        for place, cell in found.items():
            for k in range(min(length, -(-(most - place) // step))):
                other = longer.get(place + k * step)
                least = cell.number + k * weight
                longer[place + k * step] = (
                    Cell(least, cell.elements) if other is None
                    else Cell(min(least, other.number), cell.elements + other.elements)
                )  # fmt: skip
        found = longer
    return found


def _steps(layout: Layout, picture: Picture, places: dict[int, tuple[int, int]]) -> Iterator[Step]:
    """Yield a step of each axis whose two ends are in the picture, from the first element that has one."""
    unit = layout.unit
    drawn = picture.drawn
    for axis, length, stride in layout.moving():
        for number in drawn:
            index = layout.index(number)
            start = layout.start + sum(i * s for i, s in zip(index, layout.strides, strict=True))
            ends = places.get(start // unit), places.get((start + stride) // unit)
            if index[axis] < length - 1 and ends[0] is not None and ends[1] is not None:
                yield Step(axis, ends[0], ends[1])
                break


def counted(number: int, noun: str) -> str:
    """Return "1 cell", "2 cells"."""
    return f"{number} {noun}" if abs(number) == 1 else f"{number} {noun}s"


def words_of_axes(layout: Layout, drawn: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield each axis with a line about its steps; `drawn` are the axes whose step is in the picture."""
    for axis, (length, stride) in enumerate(zip(layout.shape, layout.strides, strict=True)):
        if length < 2 or not layout.size:
            words = f"length {length}, no step"
        elif not stride:
            words = f"length {length}, step 0: all in the same cells"
        else:
            way = "forward" if stride > 0 else "back"
            step = counted(stride, "byte") if stride < 0 else f"+{counted(stride, 'byte')}"
            cells = counted(abs(stride) // layout.unit, "cell")
            words = f"length {length}, step {step}, {cells} {way}"
            words += "" if axis in drawn else ", out of the picture"
        yield axis, f"axis {axis}: {words}"
