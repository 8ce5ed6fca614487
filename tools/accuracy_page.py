"""Build docs/reference/accuracy.md from benchmarks/results/accuracy-*.json and the bounds in benchmarks/accuracy.py."""

from __future__ import annotations

from typing import Any

import accuracy
from page_parts import recorded, table

HEAD = """\
# Accuracy of the operations

<!-- Written by tools/make_docs.py from benchmarks/results: change benchmarks/accuracy.py or tools/accuracy_page.py. -->

The table gives the largest error that we measured, in units of the last place, and the largest error that gpuinterop
guarantees on every device. Tests check the guarantee. A correctly rounded result has an error of at most 0.5.

- gpuinterop computes float16 and bfloat16 in float32, and rounds at the end.
- Operations that are not in the table are exact or round once, such as comparisons, `floor`, `minimum` and casts.
- Four operations round more often and are not in the table. `float_power` computes as `power` does. `round` to
  decimals multiplies and divides. The others are `erfinv` and `digamma`.

"""
KEPT = accuracy.WITHOUT_ORACLE
TAIL = f"""
The row of `logaddexp` is for arguments above zero. Near the zero of its result the error is relative to the terms that
cancel. The same holds for `lgamma` and `digamma` near their roots below zero. In float64 and from 0.001 upwards, the
error of `digamma` is at most {KEPT["digamma"]} units. There the error of `lgamma` on "cpu" is at most {KEPT["lgamma"]}.

[Sums are compensated](../understand/sums.md). To repeat the measurement:

```sh
python benchmarks/accuracy.py --device cpu --count 400000 --json benchmarks/results/accuracy-cpu.json
python benchmarks/accuracy.py --device cuda --json benchmarks/results/accuracy-cuda.json
```
"""


COMPLEX = """
## Complex numbers

The error of a complex result is its distance from the exact result, in units of the last place of its absolute value. A
small part beside a large one may have fewer correct digits. A fifth of the arguments lie near 1, -1, i and -i, where
results are small.

"""


def complex_table(found: dict[str, Any]) -> list[str]:
    """Return the table of complex functions, with a column for each type on each device that was measured."""
    key = "ulps of complex numbers"
    measured = {d: record[key] for d, record in found.items() if key in record}
    places = [f"{t} on {d}" for t in accuracy.COMPLEX_TYPES for d in measured]
    rows = []
    for name, row in accuracy.COMPLEX_ROWS.items():
        cells = [f"{measured[d][name][t]:.2f}" for t in accuracy.COMPLEX_TYPES for d in measured]
        rows.append(
            [f"`{name}`", *cells, *(f"{getattr(row, t):g}" for t in accuracy.COMPLEX_TYPES)]
        )
    return table(["", *places, "guaranteed, complex64", "complex128"], rows)


def page() -> str:
    found = {d: record for d in ("cpu", "cuda") if (record := recorded(f"accuracy-{d}"))}
    places = [f"{t} on {d}" for t in ("float32", "float64") for d in found]
    counts = " and ".join(
        f"{record['arguments']:,} arguments on {d}" for d, record in found.items()
    )
    lines = [
        f"We measured each operation with {counts}, from the ranges in `benchmarks/accuracy.py`.",
        "",
    ]
    rows = []
    for name, row in accuracy.ROWS.items():
        cells = [
            f"{found[d]['ulps'][name][t]:.2f}" if t in found[d]["ulps"].get(name, {}) else ""
            for t in ("float32", "float64") for d in found
        ]  # fmt: skip
        promised = [f"{v:g}" if v is not None else "" for v in (row.float32, row.float64)]
        rows.append([f"`{name}`", *cells, *promised])
    lines += table(["", *places, "guaranteed, float32", "float64"], rows)
    return HEAD + "\n".join(lines) + "\n" + COMPLEX + "\n".join(complex_table(found)) + "\n" + TAIL
