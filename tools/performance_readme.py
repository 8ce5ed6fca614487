"""Build the README's picture and tables of key figures from the records of docs/reference/performance.md."""

from __future__ import annotations

from page_parts import GPUINTEROP, NAMES, spelt, table
from performance_page import own_figure, picture, records

from gpuinterop.drawing.chart import figure

PLAIN = f"{GPUINTEROP} plain"
BY_HAND = "[two kernels written by hand](examples/logistic_regression.py)"
# Record, row, contender of gpuinterop, title. Other libraries are compared only with a program written like theirs.
KEY = (
    ("documents", "exp, out given", "", "`exp` of 230,400 floats, out given"),
    ("documents", "y = m.x + b, 1000 x 1000", "", "y = m.x + b, 1000 x 1000"),
    (
        "documents", "logistic regression, a step", PLAIN,
        "a training step of logistic regression, in plain array code",
    ),
    (
        "documents", "logistic regression, a step", f"{GPUINTEROP} fused graph",
        "the same lines as a function of `gi.fuse`, captured",
    ),
    (
        "documents", "logistic regression, a step", "",
        f"the same step as {BY_HAND}, captured",
    ),
    ("bandwidth", "exp(x)", "", "`exp(x, out=y)`"),
    ("bandwidth", "X + Y.T", "", "`X + Y.T`, without a copy"),
    ("reductions", "sum axis 0", "", "`X.sum(axis=0)`"),
)  # fmt: skip


CONVERTED = (
    ("CudaNdarray -> torch", "array to tensor"),
    ("torch -> CudaNdarray", "tensor to array"),
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
        if who and who not in values:
            continue
        by_hand = who != PLAIN and PLAIN in values
        if BY_HAND in title and not by_hand:
            title = (
                f"a training step of logistic regression: gpuinterop {BY_HAND}, captured; the others "
                "plain array code"
            )
        cells = ("-" if by_hand else readme_cell(values, c) for c in columns)
        own = readme_cell(values, who) if who else figure(own_figure(values))
        rows.append([title, found[record]["unit"], own, *cells])
    lines = [picture(found, "bandwidth", "docs/images"), ""]
    lines += table([f"{gpu}, float32", "", GPUINTEROP, *(NAMES[c] for c in columns)], rows)
    rows = []
    for row, title in CONVERTED:
        values = found["converters"]["rows"][row]
        others = ", ".join(
            f"{spelt(who)} {figure(v)}"
            for who, v in values.items()
            if not who.startswith(GPUINTEROP)
        )
        rows.append([title, "us", figure(own_figure(values)), others])
    lines += ["", *table(["a conversion, 64 x 64", "", GPUINTEROP, "others"], rows)]
    return "\n".join(lines) + "\n"
