"""The page on conformance, from the records of tools/conformance.py in benchmarks/results."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from page_parts import NAMES, RESULTS, spelt, table

HEAD = """\
# Conformance

<!-- Written by tools/make_docs.py from benchmarks/results/conformance-*.json, which tools/conformance.py writes. -->

Other projects have tests that run with any namespace of the [array API standard](array-api.md). We run these tests
unchanged with `gpuinterop.array_api`, and with other libraries by the same command. This page shows how many pass, and
which ones gpuinterop fails.
"""
TEXTS = {
    "array-api-tests": "These are the tests of the standard, version 2025.12. They draw random arguments.",
    "scipy": "These are the tests of SciPy {version} that take a namespace. They are in 20 files.",
    "scikit-learn": "These are the tests of scikit-learn {version} that take a namespace. They are in 25 files.",
}
OUTCOMES = ("passed", "failed", "skipped")


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
    names = {name: name if name == "gpuinterop" else NAMES.get(name, name) for name in who}
    heads = [f"{names[n]} {rows[n]['version']}" if n != "gpuinterop" else n for n in who]
    counts = [[outcome, *(str(rows[n][outcome]) for n in who)] for outcome in OUTCOMES]
    text = TEXTS[suite].format(version=record.get("version", ""))
    options = f" The options are `{' '.join(record['arguments'])}`." if record["arguments"] else ""
    lines = [
        f"\n## {spelt(suite)} on {_device(record)}\n",
        f"{text}{options} Python is {record['python']}.\n",
        *table(["", *heads], counts),
    ]
    return "\n".join([*lines, *_failures(rows)]) + "\n"


def _failures(rows: dict[str, Any]) -> list[str]:
    """Return a table of the failures of gpuinterop by test, and who fails the same."""
    failures = rows["gpuinterop"]["failures"]
    if not failures:
        return ["", "gpuinterop fails no test."]
    counts = Counter(_short(name) for name in failures)
    others = [name for name in rows if name != "gpuinterop"]
    lines = []
    for test, count in sorted(counts.items()):
        same = [
            NAMES.get(name, name)
            for name in others
            if {f for f in failures if _short(f) == test} <= {*rows[name]["failures"]}
        ]
        lines.append([f"`{test}`", str(count), ", ".join(sorted(same)) or "none"])
    return [
        "",
        *table(
            ["test that gpuinterop fails", "cases", "libraries that fail all these cases too"],
            lines,
        ),
    ]


def _short(name: str) -> str:
    """Return the file and the function of a test's name, without its parameters."""
    path, _, rest = name.partition("::")
    return (
        f"{path.rpartition('/')[2].removesuffix('.py')}.{rest.partition('[')[0].replace('::', '.')}"
    )
