"""The page on conformance, from the records of tools/conformance.py in benchmarks/results."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from conformance import may_fail, reasons_to_fail
from page_parts import NAMES, RESULTS, spelt, table

HEAD = """\
# Conformance

<!-- Written by tools/make_docs.py from benchmarks/results/conformance-*.json, which tools/conformance.py writes. -->

Other projects have tests that run with any namespace of the [array API standard](array-api.md). We run these tests
with `gpuinterop.array_api`, and change none of them. This page shows how many pass, and why the others fail. Some
tables also have other libraries, with which we ran the same tests.

The column "downloads refused" has a run with
[`gi.downloads("refuse")`](../how-to/avoid-transfers.md#refuse-hidden-downloads) on a GPU. Only the functions that
compare results may download. A test is refused if the project itself calls `numpy.asarray` with an array on the GPU.
The project read the bytes in the last line with `float(x)`, `bool(x)` and similar calls.
"""
TEXTS = {
    "array-api-tests": "These are the tests of the standard, version 2025.12. They draw random arguments.",
    "array-api-extra": "These are the tests of array-api-extra, whose functions use the standard.",
    "scipy": "These are the tests of SciPy {version} that take a namespace, in its folders {folders}.",
    "scikit-learn": "These are the tests of scikit-learn {version} that take a namespace.",
    "xarray": "These are the tests of xarray {version} that take an array of another library.",
    "einops": "These are the tests of einops {version}, with [a backend](../how-to/use-einops-and-xarray.md).",
}
OUTCOMES = ("passed", "failed", "refused", "skipped", "downloaded")
WORDS = {"downloaded": "bytes read by the project"}


def records() -> list[dict[str, Any]]:
    """Return the records of all suites, the standard's own first."""
    order = [*TEXTS]
    found = [json.loads(f.read_text(encoding="utf-8")) for f in RESULTS.glob("conformance-*.json")]
    return sorted(found, key=lambda record: (order.index(record["suite"]), _device(record)))


def _device(record: dict[str, Any]) -> str:
    return str(record["rows"]["gpuinterop"]["device"])


def page() -> str:
    return HEAD + "".join(_section(record) for record in records())


def _section(record: dict[str, Any]) -> str:
    rows, suite = record["rows"], record["suite"]
    who = sorted(rows, key=lambda name: (name != "gpuinterop", name != "numpy", name))
    own = [name for name in who if name.startswith("gpuinterop")]
    heads = [n if n in own else f"{NAMES.get(n, n)} {rows[n]['version']}" for n in who]
    counts = [
        [WORDS.get(outcome, outcome), *(str(rows[n].get(outcome, "")) for n in who)]
        for outcome in OUTCOMES
        if any(outcome in rows[n] for n in who)
    ]
    folders = [part.partition("/")[2] for part in rows["gpuinterop"].get("parts", ())]
    text = TEXTS[suite].format(version=record.get("version", ""), folders=", ".join(folders))
    if "examples" in rows["gpuinterop"]:
        counts.insert(0, ["examples a test", *(str(rows[n]["examples"]) for n in who)])
    lines = [
        f"\n## {spelt(suite)} on {_device(record)}\n",
        f"{text} Python is {record['python']}.\n",
        *table(["", *heads], counts),
        *_by_folder(rows, who, heads),
    ]
    return "\n".join([*lines, *_failures(suite, _device(record), rows)]) + "\n"


def _by_folder(rows: dict[str, Any], who: list[str], heads: list[str]) -> list[str]:
    """Return a table of the tests that pass in each folder of a package, if several libraries ran."""
    folders = sorted({part for n in who for part in rows[n].get("parts", ())})
    if len(who) == 1 or len(folders) == 1 or folders[0].endswith(".py"):
        return []
    cells = [
        [str(rows[n]["parts"].get(f, {}).get("passed", "not run")) for n in who] for f in folders
    ]
    lines = [[f.partition("/")[2], *row] for f, row in zip(folders, cells, strict=True)]
    return ["", *table(["passed in", *heads], lines)]


def _failures(suite: str, device: str, rows: dict[str, Any]) -> list[str]:
    """Return a table of the failures of gpuinterop by test and reason, and which other libraries fail the same."""
    others = [n for n in rows if not n.startswith("gpuinterop")]
    failures = sorted({name for n in rows.keys() - {*others} for name in rows[n]["failures"]})
    failed = {n: {_case(name) for name in rows[n]["failures"]} for n in others}
    if not failures:
        return ["", "gpuinterop fails no test."]
    kinds = {name: (_short(name), _reason(suite, device, name)) for name in failures}
    lines = []
    for (test, reason), count in sorted(Counter(kinds.values()).items()):
        cases = {_case(name) for name in failures if kinds[name] == (test, reason)}
        same = [NAMES.get(n, n) for n in others if cases <= failed[n]]
        lines.append([f"`{test}`", str(count), reason, ", ".join(sorted(same)) or "none"])
    heads = [
        "test that gpuinterop fails",
        "cases",
        "reason",
        "libraries that fail all these cases too",
    ]
    columns = len(heads) if others else -1
    return ["", *table(heads[:columns], [line[:columns] for line in lines])]


def _case(name: str) -> str:
    """Return a test's name without that of the library among its parameters."""
    return re.sub(
        r"(?<=[\[-])(gpuinterop|numpy|array_api_strict|torch|jax\.numpy|cupy)(?=[\]-])", "xp", name
    )


def _reason(suite: str, device: str, name: str) -> str:
    rows = reasons_to_fail(suite, device).items()
    found = (reason for end, reason in rows if may_fail(name, end))
    return next(found, "not known")


def _short(name: str) -> str:
    """Return the file and the function of a test's name, without its parameters."""
    path, _, rest = name.partition("::")
    return (
        f"{path.rpartition('/')[2].removesuffix('.py')}.{rest.partition('[')[0].replace('::', '.')}"
    )
