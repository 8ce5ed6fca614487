"""Parts of the generated pages: records, tables, figures, names of libraries, and the machine of a record."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
GPUINTEROP = "gpuinterop"
NAMES = {
    "torch": "PyTorch",
    "torch graph": "PyTorch graph",
    "cupy": "CuPy",
    "jax": "JAX",
    "numpy": "NumPy",
    "floor": "baseline",
}


def percent(off: float) -> str:
    if off < 0.001:
        return "less than 0.1%"
    return f"{off:.0%}" if off >= 0.1 else f"{off:.1%}"


def recorded(name: str) -> dict[str, Any] | None:
    """Return a record of benchmarks/results, or None if there is none."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def is_rate(record: dict[str, Any]) -> bool:
    return "/s" in record["unit"]


def table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of a table."""
    names = "".join(f" {name} |" if name else " |" for name in head)
    return [f"|{names}", "| --- " * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def spelt(who: str) -> str:
    """Return the name of a contender for readers; for bench_exchange, names the libraries of the variables."""
    if who == "c.view()":  # beside a slice of the same array
        return "CuPy's plain `view()`"
    for letter, library in (("c", "CuPy"), ("t", "PyTorch"), ("n", "NumPy")):
        if who.startswith((f"{letter}.", f"{letter}[")):
            return f"the same on {library}'s array"
        who = who.replace(f"({letter})", f"({library.lower().replace('pytorch', 'torch')})")
    who = who.replace("tvm_from_dlpack", "tvm_ffi.from_dlpack").replace("np.", "numpy.")
    return NAMES.get(who, f"`{who}`" if "(" in who else who)


def machine(found: dict[str, dict[str, Any]]) -> str:
    """Return two sentences: the GPU, the driver, the processor and the days; the versions."""
    record = found["documents"]
    gpu, _, driver = record["gpu"].partition(", ")
    versions: dict[str, str] = {}
    for name, each in found.items():
        versions.update(each["versions"] if name != "cpu" else {})
    names = {
        "python": "Python",
        "CUDA of torch": "CUDA",
        "gpuinterop": "",
        "numba": "Numba",
        "pycuda": "PyCUDA",
    }
    text = [
        f"{names.get(who, NAMES.get(who, who))} {version}"
        for who, version in versions.items()
        if names.get(who, "x")
    ]
    processor = f" and an {record['processor']}" if record["processor"] else ""
    days = sorted(each["date"] for each in found.values())
    when = f"on {days[0]}" if days[0] == days[-1] else f"from {days[0]} to {days[-1]}"
    return f"We measured {when}, on one {gpu} with driver {driver}{processor}. The versions are {', '.join(text)}."


def processor(record: dict[str, Any]) -> str:
    """Return the processor and the library versions of a record without a GPU."""
    found = record["versions"]
    libraries = (f"{NAMES[name]} {found[name]}" for name in ("numpy", "torch") if name in found)
    return ", ".join([record["processor"], *libraries])


def wrapped(text: str) -> str:
    """Wrap paragraphs and list items at 120 columns; tables stay as they are."""
    lines = []
    for line in text.split("\n"):
        after = "  " if line.startswith("- ") else ""
        folded = textwrap.wrap(line, 120, subsequent_indent=after, break_on_hyphens=False) or [""]
        lines += [line] if line.startswith("|") else folded
    return "\n".join(lines)


def sources(found: dict[str, dict[str, Any]]) -> str:
    """Return a sentence: the measured commits."""
    commits = sorted({str(record["commit"]) for record in found.values()})
    return f"The sources are of {', '.join(commits)}."
