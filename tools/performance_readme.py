"""Build the README's picture and table of key figures from the records of docs/reference/performance.md."""

from __future__ import annotations

from page_parts import GPUINTEROP, NAMES, table
from performance_page import own_figure, picture, records

from gpuinterop.drawing.chart import figure

PLAIN = f"{GPUINTEROP} plain"
# Record, row, contender of gpuinterop, title. Other libraries are compared only with a program written like theirs.
KEY = (
    ("documents", "exp, out given", "", "`exp` of 230,400 floats, out given"),
    ("documents", "logistic regression, a step", PLAIN, "a training step of logistic regression"),
    ("bandwidth", "exp(x)", "", "`exp(x, out=y)`"),
    ("bandwidth", "X + Y.T", "", "`X + Y.T`, without a copy"),
    ("reductions", "sum axis 0", "", "`X.sum(axis=0)`"),
)


def readme_cell(values: dict[str, float], who: str) -> str:
    captured = values.get(f"{who} graph")
    return (figure(values.get(who)) or "-") + (f", captured {figure(captured)}" if captured else "")


def readme_table() -> str:
    """Return the key figures of the README."""
    found = records()
    gpu = found["documents"]["gpu"].partition(",")[0]
    columns = ("torch", "cupy", "jax")
    rows = []
    for record, row, who, title in KEY:
        values = found[record]["rows"][row]
        own = readme_cell(values, who) if who else figure(own_figure(values))
        cells = (readme_cell(values, column) for column in columns)
        rows.append([title, found[record]["unit"], own, *cells])
    lines = [picture(found, "bandwidth", "docs/images"), ""]
    lines += table([f"{gpu}, float32", "", GPUINTEROP, *(NAMES[c] for c in columns)], rows)
    return "\n".join(lines) + "\n"
