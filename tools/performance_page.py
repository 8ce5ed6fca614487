"""Build docs/reference/performance.md and its pictures from the records in benchmarks/results.

Figures come from the records only, prose from performance.md. performance_targets.py has the targets, with the figures
of other libraries when the targets were set, and explanations, which are printed where a target is missed or another
library is faster.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from html import unescape
from typing import Any, NamedTuple

from page_parts import (
    GPUINTEROP,
    NAMES,
    RESULTS,
    ROOT,
    is_rate,
    machine,
    percent,
    processor,
    recorded,
    sources,
    spelt,
    table,
    wrapped,
)
from performance_pictures import PICTURES
from performance_targets import (
    BANDWIDTH,
    CONVERSIONS,
    HOST,
    LAUNCHED,
    ON_HOST_RATIOS,
    PROCESSES,
    PRODUCTS,
    PROGRAMS,
    PROMISES,
    RATIOS,
    READS,
    TRANSFERS,
    WHY,
    Mark,
    Promise,
)
from pictures import ORDER

from gpuinterop.drawing.chart import figure

TEMPLATE = ROOT / "tools" / "performance.md"
MARKS = (
    *CONVERSIONS, *BANDWIDTH, *PROGRAMS, *HOST, *PRODUCTS,
    *(mark for mark in (*TRANSFERS, *READS, *PROCESSES) if (RESULTS / f"{mark.record}.json").is_file()),
)  # fmt: skip
HOST_SIZES = ("64", "2^12", "2^18", "2^22")  # of ON_HOST_RATIOS
AHEAD = 1.05  # another library counts as faster from 5 % on; less is run-to-run variation

RECORDS = (*PICTURES, "exchange", "import", "reads", "processes", "cpu")


def records() -> dict[str, dict[str, Any]]:
    found = {name: record for name in RECORDS if (record := recorded(name))}
    absent = [
        f"{mark.row!r} in {mark.record}.json"
        for mark in MARKS
        if mark.row not in found.get(mark.record, {"rows": ()})["rows"]
    ]
    if absent:
        sys.exit(
            f"benchmarks/results has no row {', '.join(absent)}: record it, or correct performance_targets.py"
        )
    return found


def own_figure(row: dict[str, float]) -> float:
    """Return the first figure of gpuinterop."""
    return next(value for who, value in row.items() if who.startswith(GPUINTEROP))


def better(record: dict[str, Any], a: float, b: float) -> bool:
    return a > b if is_rate(record) else a < b


def scaled(mark: Mark, row: dict[str, float], rate: bool) -> tuple[float, str] | None:
    """Return the strictest scaled target, which keeps the ratio to another library or the floor when it was set."""
    if mark.row == "CudaNdarray -> PyCUDA":  # the constructor's time, and a fixed 0.4
        return row["GPUArray's constructor"] + 0.4, "GPUArray's constructor"
    found = [(mark.value * row[who] / then, who) for who, then in mark.then.items() if who in row]
    return (max if rate else min)(found, default=None)


def verdict(record: dict[str, Any], mark: Mark) -> str:
    row = record["rows"][mark.row]
    here = scaled(mark, row, is_rate(record))
    reached = lambda aim: not better(record, aim, own_figure(row))  # noqa: E731
    if here is None:
        off = own_figure(row) / mark.value - 1
        return "met" if reached(mark.value) else f"**missed** by {percent(abs(off))}"
    if reached(mark.value) and reached(here[0]):
        return "met"
    if reached(here[0]):
        return "met as a ratio"
    off = abs(own_figure(row) / here[0] - 1)
    if reached(mark.value):
        return f"met in absolute terms; **missed** by {percent(off)} as a ratio"
    return f"**missed** by {percent(off)}"


def bold(row: dict[str, float]) -> str:
    return f"**{figure(own_figure(row))}**"


def conversions_table(found: dict[str, dict[str, Any]]) -> list[str]:
    rows = []
    for mark in CONVERSIONS:
        record = found[mark.record]
        row = record["rows"][mark.row]
        peers = "<br>".join(
            f"{spelt(who)} {figure(v)}"
            for who, v in row.items()
            if not who.startswith(GPUINTEROP) and "(gpuinterop)" not in who
        )
        rows.append([mark.title, bold(row), peers, *goal(record, mark)])
    return table(["", GPUINTEROP, "other libraries", "target", "scaled target", ""], rows)


def goal(record: dict[str, Any], mark: Mark) -> tuple[str, str, str]:
    """Return the target, the scaled target, and whether it is met."""
    here = scaled(mark, record["rows"][mark.row], is_rate(record))
    value = f"{mark.value:g}" if mark.row != "CudaNdarray -> PyCUDA" else "constructor + 0.4"
    return value, figure(here[0] if here else mark.value), verdict(record, mark)


def wide_table(found: dict[str, dict[str, Any]], marks: tuple[Mark, ...]) -> list[str]:
    """Return a table with the contenders as columns."""
    every = [who for mark in marks for who in found[mark.record]["rows"][mark.row]]
    columns = [who for who in ORDER if who in every and who != GPUINTEROP]
    rows = []
    for mark in marks:
        record = found[mark.record]
        row = record["rows"][mark.row]
        cells = (figure(row.get(c)) for c in columns)
        rows.append([mark.title, bold(row), *cells, *goal(record, mark)])
    head = ["", GPUINTEROP, *(NAMES.get(c, c) for c in columns), "target", "scaled target", ""]
    return table(head, rows)


def recorded_table(found: dict[str, dict[str, Any]], marks: tuple[Mark, ...]) -> str:
    """Return the table, or a sentence if there is no such record."""
    if marks[0].record not in found:
        return f"There is no record of `bench_{marks[0].record}`."
    return "\n".join(wide_table(found, marks))


def picture(found: dict[str, dict[str, Any]], name: str, folder: str = "../images") -> str:
    """Return the Markdown that shows a record's picture, with its message as the alternative text."""
    text = re.search("<title>(.*?)</title>", PICTURES[name](found)) if name in found else None
    return f"![{unescape(text[1])}]({folder}/{name}.svg)" if text else ""


def promises(found: dict[str, dict[str, Any]]) -> list[Promise]:
    kept = []
    for name, row, title, mark, *contender in PROMISES:
        values = found.get(name, {"rows": {}})["rows"].get(row)
        if values is None or not set(contender) <= set(values):
            continue
        value = values[contender[0]] if contender else own_figure(values)
        aim = values[mark] if isinstance(mark, str) else mark
        if row == LAUNCHED:  # the target counts only the time above the driver's own call
            value -= raw_launch(found[name])
        long = found[name]["unit"] == "us" and aim >= 1000
        scale = 1000 if long else 1
        kept.append(
            Promise(
                name,
                row,
                title,
                "ms" if long else found[name]["unit"],
                value / scale,
                aim / scale,
                *contender,
            )
        )
    return kept


def raw_launch(record: dict[str, Any]) -> float:
    """Return the microseconds of an empty kernel's launch, measured in turns with the calls of that size."""
    rows = record["rows"]
    return float(rows[LAUNCHED].get("floor") or rows["empty kernel"]["floor"])


def every_size() -> str:
    """Return the result of bench_bandwidth --ratios: every layout, from 2^10 elements up."""
    record = recorded("ratios")
    if record is None:
        return "There is no record of this comparison."
    cells = [(v, name, size) for name, row in record["ratios"].items() for size, v in row.items()]
    slow = sorted((cell for cell in cells if cell[0] > AHEAD), reverse=True)
    text = f"{len(slow)} of {len(cells)} cells are above {AHEAD:g}."
    if not slow:
        return text
    rows = [[f"`{name}`", size, f"{value:.2f}"] for value, name, size in slow]
    head = ["", "elements", "time as a multiple of the fastest other library's"]
    return "\n".join([text, "", *table(head, rows)])


def grid_cells(found: dict[str, dict[str, Any]]) -> str:
    """Return the cells of the grid in which another library is faster."""
    lost = ahead(found, ["grid"])
    text = (
        f"{len(lost)} of {len(found['grid']['rows'])} cells are more than {AHEAD - 1:.0%} behind."
    )
    if not lost:
        return text
    rows = [
        [title, figure(own), f"{spelt(who)} {figure(other)}"]
        for _, title, who, own, other in sorted(lost, key=lambda one: one[3] / one[4])
    ]
    return "\n".join([text, "", *table(["", GPUINTEROP, "fastest other library"], rows)])


def functions_table(record: dict[str, Any] | None) -> str:
    """Return the microseconds of the calls of bench_functions with small and large arrays."""
    if record is None:
        return "There is no record of `bench_functions`."
    others = ("numpy", "torch") if record["device"] == "cpu" else ("torch", "cupy")
    columns = [(size, who) for size in ("small", "large") for who in (GPUINTEROP, *others)]
    calls = dict.fromkeys(row.rpartition(", ")[0] for row in record["rows"])
    rows = []
    for call in calls:
        of = {size: record["rows"].get(f"{call}, {size}", {}) for size in ("small", "large")}
        cells = [figure(of[size].get(who)) for size, who in columns]
        rows.append(
            [f"`{call}`", *(f"**{x}**" if i % 3 == 0 and x else x for i, x in enumerate(cells))]
        )
    elements = {"small": "64", "large": "2^20"}
    names = (f"{NAMES.get(who, who)}, {elements[size]}" for size, who in columns)
    return "\n".join(table(["", *names], rows))


class Ratio(NamedTuple):
    """The time of a row over that of another library, with its target."""

    row: str
    value: float
    target: float | None

    @property
    def missed(self) -> bool:
        return self.target is not None and self.value > self.target

    def __str__(self) -> str:
        return f"**{self.value:.2f}**" if self.missed else f"{self.value:.2f}"


def ratios(name: str) -> list[Ratio]:
    """Return the time of each row of a record over that of the faster other library."""
    record = recorded(name)
    assert record
    found = []
    for row, of in record["rows"].items():
        figures = [value for who, value in of.items() if who != GPUINTEROP]
        ratio = max(figures) / of[GPUINTEROP] if is_rate(record) else of[GPUINTEROP] / min(figures)
        target = next((v for text, v in RATIOS[name].items() if re.match(text, row)), None)
        found.append(Ratio(row, round(ratio, 2), target))
    return found


def ratios_on_host(record: dict[str, Any]) -> list[Ratio]:
    """Return the time of calls on "cpu" over NumPy's."""
    found = []
    for call, targets in ON_HOST_RATIOS.items():
        for size, target in zip(HOST_SIZES, targets, strict=True):
            of = record["rows"][f"{call}, {size}"]
            ratio = round(of[GPUINTEROP] / of["numpy"], 2)
            found.append(Ratio(f"{call}, {size}", ratio, target))
    return found


def missed_count(rows: list[Ratio]) -> str:
    targets = sum(one.target is not None for one in rows)
    missed = sum(one.missed for one in rows)
    return f"{missed} of {targets} targets {'is' if missed == 1 else 'are'} missed."


def ratios_table(name: str) -> str:
    """Return the figures of a record, with the time over that of the faster other library and its target."""
    record = recorded(name)
    assert record
    others = [who for who in next(iter(record["rows"].values())) if who != GPUINTEROP]
    found = ratios(name)
    rows = []
    for one in found:
        cells = [figure(record["rows"][one.row].get(who)) for who in (GPUINTEROP, *others)]
        rows.append([one.row, *cells, str(one), "" if one.target is None else f"{one.target:g}"])
    head = ["", *(NAMES.get(who, who) for who in (GPUINTEROP, *others)), "ratio", "target"]
    return "\n".join([f"{record['unit']}. {missed_count(found)}", "", *table(head, rows)])


def host_ratios(record: dict[str, Any]) -> str:
    """Return the time of calls on "cpu" over NumPy's, with the targets; those that are missed are bold."""
    found, rows = ratios_on_host(record), []
    for i, (call, targets) in enumerate(ON_HOST_RATIOS.items()):
        cells = map(str, found[i * len(HOST_SIZES) : (i + 1) * len(HOST_SIZES)])
        shown = [f"{target:g}" for target in targets]
        rows.append([f"`{call}`", *cells, ", ".join(shown if len({*shown}) > 1 else shown[:1])])
    return "\n".join([missed_count(found), "", *table(["", *HOST_SIZES, "target"], rows)])


def every_ratio(found: dict[str, dict[str, Any]]) -> list[tuple[str, Ratio]]:
    """Return the ratios that have a target, each with its record."""
    rows = [("cpu", one) for one in ratios_on_host(found["cpu"])]
    rows += [(name, one) for name in RATIOS for one in ratios(name)]
    return [(name, one) for name, one in rows if one.target is not None]


def promises_table(found: dict[str, dict[str, Any]]) -> list[str]:
    rows = (
        [
            one.title,
            one.unit,
            figure(one.value),
            figure(one.mark),
            "met" if one.met else "**missed**",
        ]
        for one in promises(found)
    )
    return table(["", "", GPUINTEROP, "target", ""], rows)


def missed(found: dict[str, dict[str, Any]]) -> list[Mark]:
    return [mark for mark in MARKS if "missed" in verdict(found[mark.record], mark)]


def ahead(
    found: dict[str, dict[str, Any]], names: Iterable[str] = ()
) -> list[tuple[str, str, str, float, float]]:
    """Return the rows of the named records, or of all, in which another library does the same work in less time."""
    lost = []
    listed = {(mark.record, mark.row) for mark in missed(found)}
    listed |= {(name, one.row) for name, one in every_ratio(found) if one.missed}
    for name in names or found:
        record = found[name]
        for title, row in record["rows"].items():
            if not any(who.startswith(GPUINTEROP) for who in row):
                continue
            rivals = {
                who: value for who, value in row.items()
                if not who.startswith((GPUINTEROP, "floor")) and "(gpuinterop)" not in who and "(x" not in who
            }  # fmt: skip
            if not rivals:
                continue
            best = min(
                rivals, key=lambda who: rivals[who] if "/s" not in record["unit"] else -rivals[who]
            )
            own = own_figure(row)
            factor = own / rivals[best] if "/s" not in record["unit"] else rivals[best] / own
            if factor > AHEAD and (name, title) not in listed:
                lost.append((name, title, best, own, rivals[best]))
    return lost


def losses(found: dict[str, dict[str, Any]]) -> list[str]:
    lines = []
    open_marks = missed(found)
    rivals = ahead(found, [name for name in found if name != "grid"])  # which has its own list
    broken = [one for one in promises(found) if not one.met]
    behind = [(name, one) for name, one in every_ratio(found) if one.missed]
    if open_marks or broken or behind:
        lines += ["Missed targets:", ""]
        for mark in open_marks:
            row = found[mark.record]["rows"][mark.row]
            lines.append(
                f"- {mark.title}, {figure(own_figure(row))} {found[mark.record]['unit']}. {why(mark.record, mark.row)}"
            )
        lines += [
            f"- {one.title}, {figure(one.value)} {one.unit}. {why(one.record, one.contender or one.row)}"
            for one in broken
        ]
        lines += [
            f"- `{one.row}`, {one.value:.2f} times the time of {'NumPy' if name == 'cpu' else 'the faster library'}, "
            f"target {one.target:g}. {why_behind(name, one)}"
            for name, one in behind
        ]
        lines.append("")
    if rivals:
        lines += [
            f"In these other rows another library is faster by more than {AHEAD - 1:.0%}. Smaller differences are "
            "run-to-run variation. The grid, the tables of `bench_functions` and the tables of sorting, random "
            "numbers, linear algebra and Fourier transforms show their own such rows, which are not repeated. "
            "Rows of `bench_exchange` are bare statements, without the converters' checks.",
            "",
        ]
        rows, above = [], ""
        for name, title, who, own, others in rivals:
            text = f"{spelt(who)} {figure(others)}"
            shown = title.replace("->", "to").replace("|", "\\|")
            shown += " (`bench_exchange`)" if name == "exchange" else ""
            reason = why(name, title)
            again = "The same." if reason == above else reason
            above = reason
            rows.append([shown, f"{figure(own)} {found[name]['unit']}", text, again])
        lines += table(["", GPUINTEROP, "fastest other library", ""], rows)
    return lines or ["None in this run."]


def why(record: str, row: str) -> str:
    return WHY.get((record, row), "No explanation yet.")


def why_behind(record: str, one: Ratio) -> str:
    assert one.target is not None
    if (record, one.row) not in WHY and one.value <= AHEAD * one.target:
        return "Run-to-run variation."
    return why(record, one.row)


def summary(found: dict[str, dict[str, Any]]) -> str:
    made, compared = promises(found), every_ratio(found)
    lost = (
        len(missed(found)) + sum(not one.met for one in made) + sum(r.missed for _, r in compared)
    )
    every = len(MARKS) + len(made) + len(compared)
    text = f", and [{lost} are missed](#where-other-libraries-are-faster)" if lost else ""
    return f"{every - lost} of {every} targets are met{text}. {machine(found)} {sources(found)}"


def plain_regression(found: dict[str, dict[str, Any]]) -> str:
    """Return a sentence on the training step in the array code that the other libraries run."""
    row = found["documents"]["rows"]["logistic regression, a step"]
    plain, graph = (row.get(f"{GPUINTEROP} plain{end}") for end in ("", " graph"))
    if plain is None:
        return ""
    text = (
        "The training step of the logistic regression in plain array code, as the other libraries run it, takes "
        f"{figure(plain)} us with gpuinterop, and {figure(graph)} us captured by `gi.capture`."
    )
    fused = row.get(f"{GPUINTEROP} fused graph")
    return (
        f"{text} As a function of `gi.fuse`, captured, it takes {figure(fused)} us."
        if fused
        else text
    )


def page() -> str:
    found = records()
    parts = {
        "summary": wrapped(summary(found)),
        "programs": "\n".join(wide_table(found, PROGRAMS)),
        "plain": "".join(
            f"\n{line}\n" for line in wrapped(plain_regression(found)).split("\n\n") if line
        ),
        "bandwidth": "\n".join(wide_table(found, BANDWIDTH)),
        "transfers": recorded_table(found, TRANSFERS),
        "reads": recorded_table(found, READS),
        "processes": recorded_table(found, PROCESSES),
        "grid": grid_cells(found),
        "products": "\n".join(wide_table(found, PRODUCTS)),
        "conversions": "\n".join(conversions_table(found)),
        "host": "\n".join(wide_table(found, HOST)),
        "host ratios": host_ratios(found["cpu"]),
        "processor": processor(found["cpu"]),
        "functions": functions_table(recorded("functions")),
        "functions on a GPU": functions_table(recorded("functions-cuda")),
        **{name: ratios_table(name) for name in RATIOS},
        "losses": wrapped("\n".join(losses(found))),
        "promises": "\n".join(promises_table(found)),
        "sizes": every_size(),
        "names": " ".join(dict.fromkeys((*RECORDS, "transfers"))),
        **{f"picture {name}": picture(found, name) for name in PICTURES},
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, part in parts.items():
        text = text.replace("{{" + name + "}}", part)
    return text
