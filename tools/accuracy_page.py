"""Build docs/reference/accuracy.md from benchmarks/results/accuracy-*.json and the bounds in benchmarks/accuracy.py."""

from __future__ import annotations

import accuracy
from page_parts import recorded, table

HEAD = """\
# Accuracy of the operations

<!-- Written by tools/make_docs.py from benchmarks/results: change benchmarks/accuracy.py or tools/accuracy_page.py. -->

The table gives the largest measured error, in units of the last place of the exact result, and the largest error that
is guaranteed on every device. Tests check the guarantee. The error of a correctly rounded result is at most 0.5.
float16 and bfloat16 are computed in float32 and rounded at the end.

Other operations on real numbers are exact or round once: comparisons, `floor`, `minimum`, casts and so on. The
exceptions are `erfinv` and `digamma`; `float_power`, which computes as `power` does; and `round` to decimals, which
multiplies and divides.

"""
KEPT = accuracy.WITHOUT_ORACLE
TAIL = f"""
`logaddexp` is listed for arguments above zero; near the zero of its result the error is relative to the terms that
cancel. The same holds for `lgamma` and `digamma` below zero, near their roots. In float64, for arguments from 0.001
upwards, including those next to the roots, the error of `digamma` is at most {KEPT["digamma"]} units, and that of
`lgamma` on "cpu" at most {KEPT["lgamma"]}.

Sums are compensated: see [reductions](../understand/sums.md). To repeat the measurement:

```sh
python benchmarks/accuracy.py --device cpu --count 400000 --json benchmarks/results/accuracy-cpu.json
python benchmarks/accuracy.py --device cuda --json benchmarks/results/accuracy-cuda.json
```
"""


def page() -> str:
    found = {d: record for d in ("cpu", "cuda") if (record := recorded(f"accuracy-{d}"))}
    places = [f"{t} on {d}" for t in ("float32", "float64") for d in found]
    counts = " and ".join(f"{record['arguments']:,} on {d}" for d, record in found.items())
    lines = [
        "Each operation is measured with arguments from the ranges in `benchmarks/accuracy.py`:",
        f"{counts}.",
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
    return HEAD + "\n".join(lines) + "\n" + TAIL
