"""Build docs/reference/compatibility.md from recorded runs of the compatibility suite in benchmarks/results.

And docs/reference/layouts.md, with a picture of each of its layouts.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from page_parts import RESULTS, table

from gpuinterop import Drawing, draw
from gpuinterop.testing.layouts import LAYOUTS, Layout
from gpuinterop.testing.matrix_table import Cell, Matrix

PLACES = {"cpu": "On the host", "gpu": "On a GPU"}
LETTERS = {"shared": "S", "copied": "C", "refused": "R", "wrong": "**W**", "none": "-", "": ""}
WORST = ("wrong", "refused", "copied", "shared", "none")

HEAD = """\
# Compatibility

<!-- Written by tools/make_docs.py from benchmarks/results/matrix-*.json: change it there. -->

The tables give the tested outcome of every conversion. The tests compare addresses, check that a write on one side
shows on the other, and drop the owners. `python -m gpuinterop matrix` runs the same
[tests](../how-to/test-conversions.md) with your libraries.

| | meaning |
| --- | --- |
| S | shared: both sides use the same memory |
| C | raises, and copies with `copyif=True` |
| R | raises with and without `copyif` |
| - | not applicable, usually because the library has no such array |

`gi.explain(x, "torch")` predicts the outcome for one array, with the reason and a fix.

- `buffer` is Python's `memoryview`. `array_api` is any library of the array API, tested with array-api-strict.
- "Objects of its style" are test doubles with the attributes of the library's arrays. The suite on your machine tries
  installed libraries only.
- `--device cpu --output benchmarks/results/matrix-cpu.json` records the tables of the host again. For the tables of
  a GPU write `cuda` and `matrix-gpu.json`.

## Layouts

| | as a NumPy array |
| --- | --- |
{layouts}

*broadcast* is writable memory of stride 0. A result of `broadcast_to` is read-only, so see *readonly*. In *size-1* the
stride of the axis of length 1 is an arbitrary number.
"""

# The pages below this one in the site's list.
TREE = """
```{toctree}
:hidden:

layouts
order-with-libraries
transfers
familiar-names
collectives
array-api
conformance
torch-and-jax-functions
missing-functions
compatibility-suite
converter-module
```
"""
LAYOUTS_HEAD = """\
# Layouts in pictures

<!-- Written by tools/make_docs.py from gpuinterop/testing/layouts.py: change it there. -->

The [compatibility suite](compatibility-suite.md) tries conversions with these layouts. Each picture shows the cells
of the memory in order, with the byte at which a row begins. The number in a cell is the index of its element, and the
colour follows the order of the elements. Arrows are the steps of the axes. `gi.draw(x)` draws a picture of any array.
"""


def outcome(cells: list[Cell]) -> str:
    found = {cell.outcome for cell in cells}
    return next((o for o in WORST if o in found), "")


def outcomes(matrix: Matrix, device: str, by: str, cells: list[Cell]) -> list[str]:
    """Return a table with libraries and directions as rows, and layouts or dtypes as columns."""
    tried = [library.name for library in matrix.libraries if not library.why]
    columns = list(dict.fromkeys(getattr(cell, by) for cell in cells))
    rows = []
    for name in tried:
        for direction in ("to", "from"):
            row = [c for c in cells if c.library == name and c.direction == direction]
            if not row:
                continue
            letters = (LETTERS[outcome([c for c in row if getattr(c, by) == x])] for x in columns)
            rows.append([f"{direction} `{name}`", *letters])
    return table(["", *columns], rows)


def reasons(cells: list[Cell]) -> list[str]:
    """Return a table of refusals: a line for each library and reason, with its layouts or dtypes."""
    found: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        if cell.outcome in ("copied", "refused") and cell.reason:
            found.setdefault((cell.library, cell.direction, cell.reason), []).append(cell)
    rows = []
    for (name, direction, reason), struck in found.items():
        row = [c for c in cells if (c.library, c.direction) == (name, direction)]
        dtypes, layouts = (among(by, struck, row) for by in ("dtype", "layout"))
        what = layouts or dtypes or "everything"
        if layouts and dtypes and dtypes.count(",") < 3:
            what = f"{dtypes}: {layouts}"
        elif layouts:
            # Many dtypes are affected, so name the shared ones as exceptions.
            hit = {c.layout for c in struck}
            spared = dict.fromkeys(
                c.dtype for c in row if c.layout in hit and c.outcome == "shared"
            )
            what += f" (but not {', '.join(spared)})" if spared else ""
        rows.append([f"{direction} `{name}`", what, reason.replace("|", "\\|")])
    return table(["", "layouts or dtypes", "needed to share"], rows)


def among(by: str, struck: list[Cell], row: list[Cell]) -> str:
    """Return the layouts or dtypes of `struck`; "" for all of the row, "all but" for all except one."""
    every = dict.fromkeys(getattr(c, by) for c in row)
    some = dict.fromkeys(getattr(c, by) for c in struck)
    rest = [x for x in every if x not in some]
    if not rest:
        return ""
    return f"all but {rest[0]}" if len(rest) == 1 and len(some) > 1 else ", ".join(some)


def untried(matrix: Matrix) -> list[str]:
    """Return a line that names the libraries that were not tested, and why."""
    left_out = [f"{library.name} ({library.why})" for library in matrix.libraries if library.why]
    return [f"Not tried: {', '.join(left_out)}."] if left_out else []


def section(place: str, matrix: Matrix) -> list[str]:
    device = next((d for d in matrix.devices if d.startswith("cuda") == (place == "gpu")), "")
    here = [cell for cell in matrix.cells if cell.device == device]
    about = matrix.about
    versions = ", ".join(
        f"{library.name} {library.version}" for library in matrix.libraries if not library.why
    )
    counts = Counter(cell.outcome for cell in here)
    text = ", ".join(f"{counts[o]} {o}" for o in ("shared", "copied", "refused", "wrong"))
    if counts["none"]:
        text += f", {counts['none']} not applicable"
    streams = sum(1 for cell in here if cell.stream == "side" and cell.outcome != "none")
    order = (
        f" In {streams} of the cases a slow producer was still running on a side stream."
        if streams
        else ""
    )
    return [
        f"## {PLACES[place]}",
        "",
        f"{versions}; Python {about['python']}, {about['date'][:10]}.",
        f"{len(here)} cases: {text}.{order}",
        *untried(matrix),
        "",
        "Layouts of float32:",
        "",
        *outcomes(matrix, device, "layout", [c for c in here if c.dtype == "float32"]),
        "",
        "Element types, in C order:",
        "",
        *outcomes(matrix, device, "dtype", [c for c in here if c.layout == "C"]),
        "",
        "Arrays that are not shared, and why:",
        "",
        *reasons(here),
        "",
    ]


def drawing_of(layout: Layout) -> Drawing:
    """Draw the NumPy array that the table of layouts describes."""
    return draw(eval(layout.made_by, {"np": np, "as_strided": np.lib.stride_tricks.as_strided}))


def layout_picture(layout: Layout) -> str:
    return drawing_of(layout).svg


def layouts_page() -> str:
    parts = [LAYOUTS_HEAD]
    for layout in LAYOUTS.values():
        about = f"Memory of {layout.made_by}: {drawing_of(layout).title}"
        parts.append(
            f"## {layout.name}\n\n`{layout.made_by}`\n\n![{about}](../images/layouts/{layout.name}.svg)\n"
        )
    return "\n".join(parts)


def page() -> str:
    rows = "\n".join(
        f"| [{layout.name}](layouts.md#{layout.name.lower()}) | `{layout.made_by}` |"
        for layout in LAYOUTS.values()
    )
    lines = [HEAD.format(layouts=rows)]
    for place in PLACES:
        file = RESULTS / f"matrix-{place}.json"
        if file.is_file():
            lines += section(place, Matrix.from_json(file.read_text(encoding="utf-8")))
    return "\n".join([*lines, TREE])
