"""Pictures of benchmark records: ``pictures.py RECORD.json PICTURE.png`` redraws one.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish, and every contender has its
own marker, so that the pictures do not depend on colour.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

GPUINTEROP = "gpuinterop"
STYLES = {
    GPUINTEROP: ("#0072B2", "o"),
    "torch": ("#D55E00", "s"),
    "cupy": ("#009E73", "^"),
    "jax": ("#CC79A7", "D"),
    "numpy": ("#E69F00", "v"),
    "torch graph": ("#56B4E9", "P"),
    "torch.compile": ("#8C6D1F", "X"),
    f"{GPUINTEROP}, 1 thread": ("#A6C8E0", "1"),
    f"{GPUINTEROP}, 2 threads": ("#7FB2D6", "2"),
    f"{GPUINTEROP}, 4 threads": ("#4C97C8", "3"),
    f"{GPUINTEROP}, 8 threads": ("#2A84BE", "4"),
    f"{GPUINTEROP}, pinned": ("#555555", "x"),
    "floor": ("#555555", "|"),
}
# gpuinterop's other ways to run a row. The tables have no columns for them.
VARIANTS = {
    f"{GPUINTEROP} plain": ("#999999", "p"),
    f"{GPUINTEROP} plain graph": ("#999999", "X"),
    f"{GPUINTEROP} fused graph": ("#999999", "d"),
    f"{GPUINTEROP} without graphs": ("#999999", "<"),
}
OTHER = ("#999999", "*")
DIGEST = "gpuinterop-record"  # the PNG text field with a digest of the drawn numbers


def digest(record: dict[str, Any]) -> str:
    """Return a digest of a record's numbers, which shows whether a picture is drawn from them."""
    text = json.dumps(
        [record[k] for k in ("name", "unit", "picture", "rows", "marks")] + [_mark(record)]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def draw(record: dict[str, Any], path: Path) -> bool:
    """Draw a record in the record's style; print a line if matplotlib is missing."""
    try:
        import matplotlib  # noqa: PLC0415
    except ImportError:
        print('no picture: matplotlib is missing (pip install "gpuinterop[viz]")')
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with pyplot.style.context(["default", style]):
        figure = {"points": points, "ratio": ratio, "lines": lines, "routes": routes, "grid": grid}[
            record["picture"]
        ](pyplot, record)
        _save(figure, path, digest(record))
        pyplot.close(figure)
    print(f"drawn: {path}")
    return True


def _save(figure: Any, path: Path, named: str) -> None:
    """Save a figure as a PNG of 256 colours, which has half the size and looks the same."""
    from PIL import Image, PngImagePlugin  # noqa: PLC0415

    raw = io.BytesIO()
    figure.savefig(raw, dpi=110, bbox_inches="tight", facecolor="white")
    texts = PngImagePlugin.PngInfo()
    texts.add_text(DIGEST, named)
    small = (
        Image.open(raw)
        .convert("RGB")
        .quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    )
    small.save(path, optimize=True, pnginfo=texts)


def _mark(record: dict[str, Any]) -> str:
    """Return the name of the targets: in a picture of docs/ they are scaled by the other libraries' figures."""
    return str(record.get("mark", "mark"))


def contenders(record: dict[str, Any]) -> list[str]:
    """Return the contenders in the order of STYLES, then any others."""
    found = list(dict.fromkeys(who for row in record["rows"].values() for who in row))
    return sorted(found, key=lambda who: list(STYLES).index(who) if who in STYLES else 99)


def _title(record: dict[str, Any]) -> str:
    gpu = record["gpu"].partition(",")[0] or record["device"]
    return f"{record['name']}, {gpu}, {record['date']}"


def _scatter(axes: Any, who: str, x: list[float], y: list[float]) -> None:
    colour, marker = (STYLES | VARIANTS).get(who, OTHER)
    size = {GPUINTEROP: 62, "floor": 110, "torch graph": 52, "torch.compile": 46}.get(who, 34)
    edge = {"linewidths": 2} if marker == "|" else {"linewidths": 0.5, "edgecolors": "white"}
    # Do not clip the marker of a rate near zero at the edge.
    axes.scatter(x, y, s=size, c=colour, marker=marker, label=who, zorder=3, clip_on=False, **edge)


def _dots(axes: Any, record: dict[str, Any], value: Any) -> None:
    """Draw a band for each row with a line for each contender, so that equal figures do not overlap."""
    names, who = list(record["rows"]), contenders(record)
    spread = min(0.74, 0.26 * (len(who) - 1))
    step = spread / max(1, len(who) - 1)
    for j, library in enumerate(who):
        x, y = [], []
        for i, name in enumerate(names):
            if library in record["rows"][name]:
                x.append(value(name, record["rows"][name][library]))
                y.append(i - spread / 2 + j * step)
        _scatter(axes, library, x, y)
    for i in range(0, len(names), 2):
        axes.axhspan(i - 0.5, i + 0.5, color="#F1F3F5", zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#D0D5DA", linewidth=0.6, zorder=1)
    axes.set_axisbelow(True)


def _legend(axes: Any, below: float) -> None:
    columns = 9 if len(axes.get_legend_handles_labels()[1]) < 10 else 5
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, below), ncols=columns, frameon=False,
                handletextpad=0.1, columnspacing=1.1)  # fmt: skip


def _height(record: dict[str, Any]) -> float:
    return 1.3 + len(record["rows"]) * (0.12 + 0.085 * len(contenders(record)))


def _marks(axes: Any, record: dict[str, Any], value: Any) -> None:
    label = _mark(record)
    for i, name in enumerate(record["rows"]):
        if name in record["marks"]:
            at = value(name, record["marks"][name])
            axes.plot([at, at], [i - 0.5, i + 0.5], color="black", linestyle=":", linewidth=1.4,
                      label=label, zorder=2)  # fmt: skip
            label = "_"


def points(pyplot: Any, record: dict[str, Any]) -> Any:
    """Draw the figures themselves: rates from zero, times on a logarithmic axis."""
    height = _height(record)
    figure, axes = pyplot.subplots(figsize=(8, height))
    same = lambda name, value: value  # noqa: E731
    _dots(axes, record, same)
    _marks(axes, record, same)
    rate = "/s" in record["unit"]
    if rate:
        axes.set_xlim(left=0)
    else:
        _log(axes, [v for row in record["rows"].values() for v in row.values()])
    axes.set_xlabel(f"{_spelt(record['unit'])}, {'more' if rate else 'less'} is better")
    axes.set_title(_title(record), loc="left")
    _legend(axes, -0.5 / (height - 0.6))
    return figure


def ratio(pyplot: Any, record: dict[str, Any]) -> Any:
    """Draw times as multiples of gpuinterop's: right of the line gpuinterop is faster."""
    height = _height(record)
    figure, axes = pyplot.subplots(figsize=(8, height))
    alone = all(len(row) == 1 for row in record["rows"].values())  # no other library is installed
    rows = {
        n: row for n, row in record["rows"].items() if GPUINTEROP in row and (alone or len(row) > 1)
    }
    shown = {**record, "rows": rows, "marks": {}}
    _dots(axes, shown, lambda name, value: value / rows[name][GPUINTEROP])
    _log(axes, [v / row[GPUINTEROP] for row in rows.values() for v in row.values()])
    axes.axvline(1, color=STYLES[GPUINTEROP][0], linewidth=1, zorder=1)
    axes.set_xlabel("time as a multiple of gpuinterop's: right of 1 is slower than gpuinterop")
    axes.set_title(_title(record), loc="left")
    _legend(axes, -0.5 / (height - 0.6))
    return figure


def lines(pyplot: Any, record: dict[str, Any]) -> Any:
    """Draw a panel for each operation with rows "operation, 2^k": time, or a rate, against size."""
    rate = "/s" in record["unit"]
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name, row in record["rows"].items():
        found = re.fullmatch(r"(.*), (?:2\^(\d+)|(\d+))", name)
        if found:
            size = 2.0 ** int(found[2]) if found[2] else float(found[3])
            for who, value in row.items():
                panels.setdefault(found[1], {}).setdefault(who, []).append((size, value))
    figure, axes = pyplot.subplots(1, len(panels), figsize=(3.1 * len(panels), 3.4), sharey=True)
    handles: dict[str, Any] = {}
    empty = None
    every = [value for panel in panels.values() for line in panel.values() for _, value in line]
    for ax, (name, found) in zip(axes, panels.items(), strict=True):
        for who in sorted(found, key=list(STYLES).index):
            colour, marker = STYLES[who]
            x, y = zip(*sorted(found[who]), strict=True)
            label = who.removeprefix(f"{GPUINTEROP}, ")
            handles[label] = ax.plot(x, y, color=colour, marker=marker, markersize=4, linewidth=1.3,
                                   zorder=4 if who == GPUINTEROP else 3)[0]  # fmt: skip
        floor = record["rows"].get("empty kernel", {}).get("floor")
        if floor:
            empty = ax.axhline(floor, color="#555555", linestyle=":")
        ax.set_xscale("log", base=2)
        if rate:
            ax.set_ylim(bottom=0)
            _sizes_in_bytes(ax, [size for line in found.values() for size, _ in line])
        else:
            _log(ax, every, "y")
            ax.set_xlabel("elements")
        ax.set_title(name, fontsize=9)
        ax.grid(color="#D0D5DA", linewidth=0.6)
    axes[0].set_ylabel(
        f"{record['unit']}, more is better" if rate else f"{_spelt(record['unit'])} a call"
    )
    figure.suptitle(_title(record), x=0.06, y=1.0, ha="left", fontsize=10)
    if empty is not None:
        handles["an empty kernel"] = empty
    figure.legend(handles.values(), handles.keys(), loc="upper center", bbox_to_anchor=(0.5, 0.0),
                  ncols=len(handles), frameon=False)  # fmt: skip
    return figure


def routes(pyplot: Any, record: dict[str, Any]) -> Any:
    """Draw bars under a heading for each row, every bar with its name and figure."""
    entries: list[tuple[str, str, float | None]] = []
    for name, row in record["rows"].items():
        entries.append((name, "", None))
        entries += [(name, who, value) for who, value in row.items()]
    figure, axes = pyplot.subplots(figsize=(8, 0.7 + 0.17 * len(entries)))
    shown: dict[str, float | None] = {}
    every = [value for _, _, value in entries if value is not None]
    decade = 10.0 ** math.floor(math.log10(min(every) * 0.6))
    low = max(step * decade for step in (1, 2, 5) if step * decade <= min(every) * 0.6)
    for y, (name, who, value) in enumerate(entries):
        if value is None:
            axes.text(-0.012, y + 0.12, name, transform=axes.get_yaxis_transform(), ha="right",
                      va="center", fontsize=8, fontweight="bold")  # fmt: skip
            continue
        colour = STYLES[GPUINTEROP][0] if who.startswith(GPUINTEROP) else "#B4BCC4"
        axes.barh(y, value - low, left=low, height=0.74, color=colour, zorder=3)
        mark = (
            record["marks"].get(name)
            if who.startswith(GPUINTEROP) and not shown.get(name)
            else None
        )
        shown[name] = shown.get(name) or mark
        # Write the figure behind the target's line if the line would cross it.
        after = max(value, mark) if mark and mark < 1.7 * value else value
        axes.text(after * 1.05, y, f"{value:.3g}", va="center", fontsize=7, zorder=4)
        axes.text(-0.012, y, who, transform=axes.get_yaxis_transform(), ha="right", va="center",
                  fontsize=7.5)  # fmt: skip
        if mark:
            axes.plot([mark, mark], [y - 0.45, y + 0.45], color="black", linewidth=1.6, zorder=5)
    axes.set_yticks([])
    axes.set_ylim(len(entries) - 0.3, -0.7)
    _log(axes, every)
    axes.set_xlim(left=low, right=max(every) * 1.5)  # room for the longest bar's figure
    axes.grid(axis="x", color="#D0D5DA", linewidth=0.6)
    axes.set_axisbelow(True)
    note = f"; black line: the {_mark(record)}" if record["marks"] else ""
    axes.set_xlabel(f"{_spelt(record['unit'])}, less is better{note}")
    axes.set_title(_title(record), loc="left")
    return figure


def grid(pyplot: Any, record: dict[str, Any]) -> Any:
    """Draw a cell for each row "operation, dtype, size": the rate divided by that of the fastest other library."""
    cells: dict[tuple[str, str], float] = {}
    for name, row in record["rows"].items():
        operation, _, column = name.rpartition(", ")[0].rpartition(", ")
        others = [rate for who, rate in row.items() if who != GPUINTEROP] or [row[GPUINTEROP]]
        cells[operation, f"{column}\n{name.rpartition(', ')[2]}"] = row[GPUINTEROP] / max(others)
    names, columns = (list(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))
    figure, axes = pyplot.subplots(figsize=(1.6 + 0.72 * len(columns), 0.9 + 0.27 * len(names)))
    table = [[cells.get((n, c), math.nan) for c in columns] for n in names]
    # White: equal; blue: gpuinterop is faster; orange: slower.
    shades = [[math.log2(value) for value in line] for line in table]
    axes.imshow(shades, cmap="PuOr", vmin=-1.5, vmax=1.5, aspect="auto")
    for y, line in enumerate(table):
        for x, value in enumerate(line):
            if value == value:  # NaN: not measured
                axes.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=7,
                          color="white" if abs(math.log2(value)) > 1 else "black",
                          fontweight="bold" if value < 0.95 else "normal")  # fmt: skip
    axes.set_xticks(range(len(columns)), columns, fontsize=7, rotation=90)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.tick_params(length=0)
    axes.set_title(
        f"{_title(record)}: bandwidth over that of the faster of PyTorch and CuPy", loc="left"
    )
    return figure


def _sizes_in_bytes(axes: Any, sizes: list[float]) -> None:
    """Set ticks such as 64 KiB, at every sixth power of two."""
    first, last = (round(math.log2(edge(sizes))) for edge in (min, max))
    powers = range(first, last + 1, 6)
    names = [f"{2 ** (k % 10)} {('B', 'KiB', 'MiB', 'GiB')[k // 10]}" for k in powers]
    axes.set_xticks([2.0**k for k in powers], names)
    axes.minorticks_off()


def _log(axes: Any, values: list[float], which: str = "x") -> None:
    """Set a logarithmic axis with plain numbers."""
    from matplotlib import ticker  # noqa: PLC0415

    getattr(axes, f"set_{which}scale")("log")
    axis = getattr(axes, f"{which}axis")
    span = max(values) / max(min(values), 1e-12)
    subs = (
        (1, 1.5, 2, 3, 4, 5, 7)
        if span < 12
        else (1, 2, 5)
        if span < 5000 and which == "x"
        else (1,)
    )
    axis.set_major_locator(ticker.LogLocator(subs=subs))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def _spelt(unit: str) -> str:
    return {"us": "microseconds", "ms": "milliseconds"}.get(unit, unit)


if __name__ == "__main__":
    made = draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2]))
    sys.exit(not made)
