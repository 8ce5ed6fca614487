"""Build docs/reference/product-precision.md and its pictures from benchmarks/results/tensor_*.json."""

from __future__ import annotations

import re
import statistics
from typing import Any

import pictures
from page_parts import recorded, table

from gpuinterop.drawing.chart import bars
from gpuinterop.product.tensor_product import LEAST_INNER, LEAST_WORK

CHOSEN = "the rule takes tf32x3"  # of bench_tensor_products
NAMES = {"exact": '"exact"', "tf32x3": '"tf32x3"', "torch": "PyTorch"}
# The beginnings of the rows of bench_tensor_claims that are no times.
CHECKS = (
    "identity",
    "normal @",
    "permutation",
    "selection",
    "integers",
    "positive",
    "a of",
    "overflow",
    "infinities",
)
SPEED = "Three products of TF32 multiply large float32 matrices twice as fast"
ERRORS = "The largest error of three products is no larger than that of float32"
EDGE = round((LEAST_WORK / 2) ** (1 / 3))  # of square matrices with as many operations
HEAD = f"""\
# The precision of products

<!-- Written by tools/make_docs.py from benchmarks/results: change tools/product_precision_page.py. -->

A *product precision* says how gpuinterop multiplies float32 matrices. By default it uses no tensor cores. They are
faster, but they read only 10 bits of each mantissa.

| precision | how a GPU multiplies | digits |
| --- | --- | --- |
| `"exact"` | The default. As float32, without tensor cores. | about 7 |
| `"tf32x3"` | On tensor cores, by three products of TF32 numbers. | as many, [other bits](#what-differs-from-exact) |
| `"tf32"` | On tensor cores, by one product of TF32 numbers. | about 3 |

A TF32 number has 10 bits of mantissa, and a float32 has 23. "tf32" rounds each float32 to one TF32 number, and "tf32x3"
splits it into two.

## Switch it on

You choose a precision for a call, for a block of code, or for the process:

```python
import gpuinterop as gi

x = gi.ones((2, 2))
gi.matmul(x, x, precision="tf32x3")

with gi.product_precision("tf32x3"):
    x @ x

before = gi.set_product_precision("tf32x3")
x @ x
gi.set_product_precision(before)
```

- `matmul`, `gemm` and `addmm` have `precision=`. Other products, such as `@` and `gi.einsum`, use the block's.
- A call overrides the block, and a block overrides the process. The block holds for its thread only.
- `gi.allow_tf32()` is short for `gi.product_precision("tf32")`.
- For a Theano program, run `gpuinterop run --product-precision tf32x3`.
- For PyTensor, call `gpuinterop.pytensor.use(product_precision="tf32x3")`.
- A captured graph keeps the precision that was set while gpuinterop recorded it.

## When it uses tensor cores

"tf32x3" uses tensor cores where they are faster. All of this must be true:

- The GPU is a Hopper GPU (compute capability 9.0). While "tf32x3" is set, `gi.doctor()` reports another one.
- Both operands are matrices, or stacks of matrices, and the result is float32.
- The inner dimension has at least {LEAST_INNER} elements. The product has at least {LEAST_WORK / 1e6:.0f} million
  operations, as that of two {EDGE} x {EDGE} matrices has.
- By an [estimate](#speed) the tensor cores take less time than "exact".

Everything else it multiplies as "exact" does, and gives the same bits. Blackwell GPUs (compute capability 10) are an
exception. cuBLAS 12.9 and later emulates float32 there by nine products of bfloat16. We could not measure that. The
figures on this page do not hold for it.

The choice depends on the GPU, the shapes and the layouts, and never on the values.

"tf32" also rounds complex64. It needs compute capability 8.0 or later. On older GPUs cuBLAS multiplies as float32.

On "cpu" all three precisions give the same bits.

## What differs from "exact"

"tf32x3" is not the default for these reasons. Keep "exact" where one of them matters:

- **Copies by a product.** A product with an identity, a permutation or a selection matrix is not exact. Three quarters
  of the elements are equal. The others differ in the last place.
- **Integers.** A product of two integers above 2^11 is rounded.
- **Small elements.** Elements below 1e-35 lose digits. They do not become zero.
- **Positive data.** All results are too small by 1.2e-7 of their size on average. The results of "exact" scatter more.
- **Overflow.** Where partial sums overflow with both signs, a result may be NaN in one precision and an infinity in the
  other.
- **Time.** gpuinterop computes rows and columns that have infinities or NaNs again, without tensor cores. So they have
  the infinities and NaNs of "exact". This takes time, as [the table](#infinities-and-nans) shows.
- **Memory.** While a product runs, it holds twice the memory of one operand, mostly the smaller one. It also holds a
  copy of the other operand if that does not start at a multiple of 16 bytes, or if its rows or matrices do not.

Equal calls give equal bits.

"""


def speed_table(record: dict[str, Any]) -> list[str]:
    """Return microseconds, and how many times as fast as "exact" three products are."""
    who = ("exact", "tf32x3", "torch", "torch, TF32")
    rows = []
    for name, row in record["rows"].items():
        cells = [f"{row[w]:.1f}" if w in row else "" for w in who]
        rows.append([name, *cells, f"{row['exact'] / row['tf32x3']:.2f}"])
    return table(
        ["shape", '"exact"', '"tf32x3"', "PyTorch", "PyTorch, TF32", "times as fast"], rows
    )


def error_table(record: dict[str, Any]) -> list[str]:
    who = ("exact", "tf32x3", "tf32")
    rows = [[name, *(f"{row[w]:.3g}" for w in who)] for name, row in record["rows"].items()]
    return table(["data", *(f'"{w}"' for w in who)], rows)


def claims_table(*starts: str, cut: str = "", end: str = "") -> list[str]:
    """Return the rows of bench_tensor_claims that begin so, without `cut` before the name and `end` after it."""
    record = recorded("tensor_claims")
    assert record
    rows = {name: row for name, row in record["rows"].items() if name.startswith(starts)}
    who = [w for w in NAMES if any(w in row for row in rows.values())]
    cells = [
        [
            name.removeprefix(cut).removesuffix(end).replace("|", "\\|"),
            *(f"{row[w]:.4g}" if w in row else "" for w in who),
        ]
        for name, row in rows.items()
    ]
    return table(["", *(NAMES[w] for w in who)], cells)


def choice() -> list[str]:
    """Say how well the rule chooses, and what the records of such shapes and of others show, if any."""
    lines = [
        'gpuinterop estimates the times of "exact" and "tf32x3", and takes the faster one. We fitted the estimates to '
        '600 measured shapes. "tf32x3" was not slower than "exact" for any of them.'
    ]
    for name, what in (("grid", "such"), ("held_out", "other")):
        if record := recorded(f"tensor_{name}"):
            rows = record["rows"].values()
            gains = [row["exact"] / row["tf32x3"] for row in rows if row[CHOSEN]]
            slower = sum(gain < 1 for gain in gains)
            lines.append(
                f'For {len(gains)} of {len(rows)} {what} shapes it takes "tf32x3". The median gain is '
                f"{statistics.median(gains):.2f}, and {slower} of them {'is' if slower == 1 else 'are'} slower."
            )
    return [" ".join(lines)]


def speed_picture() -> str:
    record = recorded("tensor_products")
    assert record
    names = {"exact": 'gpuinterop, "exact"', "tf32x3": 'gpuinterop, "tf32x3"', "torch": "PyTorch"}
    found: dict[int, dict[str, float]] = {}
    for row, figures in record["rows"].items():
        if square := re.fullmatch(r"(\d+)x\1 @ \1x\1, NN", row):
            size = int(square[1])
            found[size] = {name: 2e-6 * size**3 / figures[who] for who, name in names.items()}
    note = pictures.note_of("TFLOP/s", f" on one {record['gpu'].partition(',')[0]}")
    return bars(SPEED, note, {f"{n} x {n} @ {n} x {n}": found[n] for n in sorted(found)})


def error_picture() -> str:
    record = recorded("tensor_errors")
    assert record
    names = {"exact": 'gpuinterop, "exact"', "tf32x3": 'gpuinterop, "tf32x3"', "tf32": '"tf32"'}
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for data in ("normal", "positive"):
        panel = panels.setdefault(f"{data} numbers, by the inner dimension", {})
        for row, figures in record["rows"].items():
            kind, size, figure = row.split(", ")
            if kind == data and figure == "maximum":
                for who, name in names.items():
                    panel.setdefault(name, []).append((float(size[4:]), figures[who] * 1e-9))
    return pictures.lines(ERRORS, "parts of |A| |B|, less is better", panels, rate=False)


def page() -> str:
    speed, errors = recorded("tensor_products"), recorded("tensor_errors")
    assert speed
    assert errors
    lines = [
        "## Speed", "",
        f"The table has microseconds on one {speed['gpu'].partition(',')[0]}, for a replayed graph. They include the "
        "kernels that prepare the operands. N is an operand in C order, and T a transposed one.", "",
        *speed_table(speed), "",
        f"![{SPEED}](../images/tensor-speed.svg)", "",
        *choice(), "",
        "## Infinities and NaNs", "",
        "The table has microseconds. The operands a and b have 4,096 rows and columns, and some elements that are not "
        "finite.", "",
        *claims_table("4096^3, ", cut="4096^3, ", end=", us"), "",
        "## The time of a call", "",
        "The table has microseconds. The host's time ends when the call returns, while the GPU still works. The blog "
        "is [the third tutorial](theano-programs.md), whose last program computes y = m.x + b.", "",
        *claims_table("1000^3, ", "y = m.x + b, ", end=", us"), "",
        "## Errors", "",
        "The table has errors in units of 1e-9, divided by |A| |B|, the product of the absolute values. We compare "
        "with products in float64. The results have 1,024 rows and columns, and k is the inner dimension. For this "
        "table \"tf32x3\" used the tensor cores for every k. In your program the rule leaves those with k up to "
        "256 to \"exact\", which is faster there.", "",
        *error_table(errors), "",
        f"![{ERRORS}](../images/tensor-errors.svg)", "",
        "The next table measures [the differences](#what-differs-from-exact). An ulp is a unit in the last place. "
        "\"zeros\" counts the results that became zero.", "",
        *claims_table(*CHECKS), "",
        "To repeat the measurements:", "",
        "```sh",
        "python benchmarks/bench_tensor_products.py --json benchmarks/results/tensor_products.json",
        "python benchmarks/bench_tensor_products.py --errors --json benchmarks/results/tensor_errors.json",
        "python benchmarks/bench_tensor_claims.py --json benchmarks/results/tensor_claims.json",
        "python benchmarks/bench_tensor_products.py --grid 300 --seed 1 --json benchmarks/results/tensor_grid.json",
        "python benchmarks/bench_tensor_products.py --grid 64 --seed 2027 --json "
        "benchmarks/results/tensor_held_out.json",
        "```", "",
    ]  # fmt: skip
    return HEAD + "\n".join(lines)
