"""The pictures of docs/reference/performance.md. Each has one message, its title, which its figures must bear out."""

from __future__ import annotations

import statistics
import sys
from typing import Any

import pictures
from page_parts import GPUINTEROP, spelt
from performance_targets import CONVERSIONS

from gpuinterop.drawing.chart import bars

LIBRARIES = (GPUINTEROP, "torch", "cupy", "jax")
Rows = dict[str, dict[str, float]]
Records = dict[str, dict[str, Any]]

# The rows of a record that its picture shows, with their names for readers.
STEPS = {
    "gpuinterop": "gpuinterop, two kernels by hand, captured",
    "gpuinterop fused graph": "gpuinterop, plain code in gi.fuse, captured",
    "gpuinterop plain graph": "gpuinterop, plain code, captured",
    "torch graph": "PyTorch, captured",
    "numpy": "NumPy",
    "jax": "JAX, jax.jit",
    "torch.compile": "PyTorch, torch.compile",
    "gpuinterop plain": "gpuinterop, plain code",
    "torch": "PyTorch",
    "cupy": "CuPy",
}
LAYOUTS = {
    "x + y": "x + y, contiguous",
    "X + Y.T": "X + Y.T",
    "copy of X.T": "copy of X.T",
    "X + row": "X + row",
    "X + column": "X + column",
    "exp(x[::-1])": "exp(x[::-1])",
}
REDUCED = {
    "sum all": "sum of all",
    "sum axis 0": "sum along axis 0",
    "sum axis 1": "sum along axis 1",
    "argmax axis 0": "argmax along axis 0",
    "argmax axis 1": "argmax along axis 1",
    "sum rows of 64": "sum of rows of 64",
    "sum 64 columns": "sum of 64 columns",
}
INDEXED = {
    "rows X[idx]": "read rows, X[idx]",
    "rows X[idx] = V": "write rows, X[idx] = V",
    "columns X[:, idx]": "read columns, X[:, idx]",
    "x[mask]": "read by a mask, x[mask]",
    "x[mask] = v": "write by a mask, x[mask] = v",
    "nonzero": "nonzero(x)",
    "take": "read single elements at random, x[idx]",
    "x[idx] = v": "write single elements at random, x[idx] = v",
}
MULTIPLIED = {
    "4096x4096 @ 4096x4096": "4096 x 4096 @ 4096 x 4096",
    "8192x4096 @ 4096x64": "8192 x 4096 @ 4096 x 64",
    "2048x2048 @ 2048x2048, x[::2, ::2]": "2048 x 2048 @ 2048 x 2048, every other row and column",
    "8192x4096 @ 4096x64 + row": "8192 x 4096 @ 4096 x 64, plus a row",
    "16x262144 @ 262144x16": "16 x 262144 @ 262144 x 16",
    "8192x8192 @ vector": "8192 x 8192 @ vector",
    "400x784 @ vector": "400 x 784 @ vector",
    "256x256 @ 256x256, a call": "256 x 256 @ 256 x 256",
}
GRID = "4097 x 4095"  # odd numbers: no row begins at a multiple of 4 elements


def shown(record: dict[str, Any], names: dict[str, str], who: tuple[str, ...] = LIBRARIES) -> Rows:
    """Return rows of a record for readers."""
    return {
        title: {spelt(w): record["rows"][name][w] for w in who if w in record["rows"][name]}
        for name, title in names.items()
    }


def about(record: dict[str, Any]) -> str:
    return pictures.note_of(record["unit"], f" on one {record['gpu'].partition(',')[0]}")


def claim(holds: bool, title: str) -> str:
    """Return the title if the figures bear it out."""
    if not holds:
        sys.exit(
            f"tools/performance_pictures.py: the records no longer show {title!r}: write another title"
        )
    return title


def documents(found: Records) -> str:
    record = found["documents"]
    row = record["rows"]["logistic regression, a step"]
    steps = {STEPS[who]: value for who, value in sorted(row.items(), key=lambda item: item[1])}
    fused, others = row[f"{GPUINTEROP} fused graph"], [row[w] for w in row if GPUINTEROP not in w]
    title = (
        f"One training step of logistic regression takes {fused:.2g} microseconds fused and captured, "
        f"{min(others):.2g} in the fastest other library"
    )
    return bars(claim(fused < min(others), title), about(record), {"one step, 400 x 784": steps})


def bandwidth(found: Records) -> str:
    record = found["bandwidth"]
    rows = shown(record, LAYOUTS)
    own = [row[GPUINTEROP] for row in rows.values()]
    title = "Transposed, reversed and broadcast operands run at the speed of contiguous ones"
    return bars(claim(min(own) > 0.93 * own[0], title), about(record), rows)


def reductions(found: Records) -> str:
    record = found["reductions"]
    rows = shown(record, REDUCED)
    own = [row[GPUINTEROP] for row in rows.values()]
    title = "Reductions run at the same speed along every axis"
    return bars(claim(min(own) > 0.9 * max(own), title), about(record), rows)


def indexing(found: Records) -> str:
    record = found["indexing"]
    rows = shown(record, INDEXED)
    gain = [
        row[GPUINTEROP] / max(v for w, v in row.items() if w != GPUINTEROP) for row in rows.values()
    ]
    title = "Rows, columns and masks are read and written faster, single elements at random as fast"
    return bars(claim(min(gain[:6]) > 1.2 and min(gain[6:]) > 0.95, title), about(record), rows)


def gemm(found: Records) -> str:
    record = found["gemm"]
    rows = {
        title: {who: time / row[GPUINTEROP] for who, time in row.items()}
        for title, row in shown(record, MULTIPLIED).items()
    }
    best = [min(v for who, v in row.items() if who != GPUINTEROP) for row in rows.values()]
    title = (
        "Large products take as long as in the fastest other library, narrow and small ones less"
    )
    holds = all(0.97 < ratio < 1.03 for ratio in best[:3]) and min(best[3:]) > 1.05
    note = f"time as a multiple of gpuinterop's on one {record['gpu'].partition(',')[0]}, less is better"
    return bars(claim(holds, title), note, rows)


def converters(found: Records) -> str:
    rows = {
        mark.title.replace("`", ""): {
            spelt(who).replace("`", ""): value
            for who, value in found[mark.record]["rows"][mark.row].items()
            if "(gpuinterop)" not in who
        }
        for mark in CONVERSIONS
        if mark.record == "converters"
    }
    own = [row[GPUINTEROP] for row in rows.values()]
    title = f"A conversion takes {min(own):.2g} to {max(own):.2g} microseconds and copies nothing"
    return bars(claim(max(own) < 5, title), about(found["converters"]), rows)


def launch(found: Records) -> str:
    record = found["launch"]
    panel = readers(pictures.panels(record)["exp, fresh"], LIBRARIES)
    small = [time for size, time in panel[GPUINTEROP] if size <= 2**19]
    title = (
        f"Up to half a million elements a call takes {min(small):.2g} to {max(small):.2g} microseconds, "
        "less than in the other libraries"
    )
    ahead = all(
        min(small) < min(t for _, t in line) for who, line in panel.items() if who != GPUINTEROP
    )
    panels = {"exp(x), by the number of float32 elements": panel}
    return pictures.lines(claim(ahead, title), about(record), panels, rate=False)


def transfers(found: Records) -> str:
    record = found["transfers"]
    every = pictures.panels(record)
    who = (GPUINTEROP, f"{GPUINTEROP}, pinned", "torch", "cupy")
    panels = {f"{name}, by size": readers(every[name], who) for name in ("upload", "download")}
    last = {
        (name, w): dict(line)[2.0**30]
        for name, panel in panels.items()
        for w, line in panel.items()
    }
    gain = [
        last[name, GPUINTEROP] / max(last[name, w] for w in ("PyTorch", "CuPy")) for name in panels
    ]
    title = "Copies of 1 GiB between host and GPU run more than three times as fast as in PyTorch and CuPy"
    return pictures.lines(claim(min(gain) > 3, title), about(record), panels, rate=True)


def readers(panel: dict[str, Any], who: tuple[str, ...]) -> dict[str, Any]:
    return {spelt(w): panel[w] for w in who if w in panel}


def grid(found: Records) -> str:
    record = found["grid"]
    every = pictures.ratios(record)
    dtypes = list(dict.fromkeys(dtype for _, dtype, _ in every))
    cells = {(name, dtype): value for (name, dtype, size), value in every.items() if size == GRID}
    whole = [name for name, _ in cells if all((name, dtype) in cells for dtype in dtypes)]
    cells = {key: value for key, value in cells.items() if key[0] in whole}
    middle, least = statistics.median(cells.values()), min(cells.values())
    title = (
        f"Half of the operations on matrices of odd sizes run more than {middle - 0.05:.1f} times as fast as in "
        f"PyTorch and CuPy, none more than {1 - least:.0%} slower"
    )
    note = f"gpuinterop's rate divided by that of the faster one, {GRID}; dark blue: 2 and more"
    return pictures.grid(claim(least > 0.95, title), note, cells)


PICTURES = {
    draw.__name__: draw
    for draw in (
        documents,
        bandwidth,
        reductions,
        grid,
        indexing,
        transfers,
        converters,
        launch,
        gemm,
    )
}
