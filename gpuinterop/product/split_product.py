"""Products of matrices with few rows and columns and a long inner dimension, split over that dimension.

cuBLAS uses few blocks for such a product, each of which reads a long part of the inner dimension. In this
kernel every multiprocessor multiplies some parts, and a reduction adds the parts, always in the same order.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import STORAGE, dtype_id
from gpuinterop.jit import kernel_text
from gpuinterop.jit.compiler import loaded_kernels, multiprocessors
from gpuinterop.jit.texts import program
from gpuinterop.reduce.codegen import (
    INPUT,
    OUTPUT,
    SCRATCH,
    KernelLaunch,
    Output,
    Patch,
    launches_for,
)
from gpuinterop.reduce.launch import Operand, power_down, power_up
from gpuinterop.reduce.table import recipe_for

_THREADS = 256
_SMALLEST, _LARGEST = 4, 64  # edges of a tile
_OWN = 4  # results of a thread in each direction
_ELEMENTS = 2048  # that a block loads at once, of both operands


class Panel(NamedTuple):
    """How a block loads its part of one operand.

    Attributes
    ----------
    lines : rows of a, or columns of b, of a tile.
    inner : neighbours in memory are neighbours along the inner dimension.
    vector : elements of one access.
    strides : across and along the inner dimension.
    """

    lines: int
    inner: bool
    vector: int
    strides: tuple[int, int]


def _tile(lines: int) -> int:
    return min(_LARGEST, max(_SMALLEST, power_up(lines)))


def _panel(x: Any, axis: int, steps: int) -> Panel:
    """Return the panel of an operand whose rows or columns are along `axis`."""
    lines, across, along = _tile(x.shape[axis]), x._strides[axis], x._strides[1 - axis]
    inner = along == 1
    vector = min(16 // x.itemsize, lines * steps // _THREADS)
    while vector > 1 and (x.ptr // x.itemsize % vector or (across if inner else along) % vector):
        vector //= 2
    return Panel(lines, inner, vector if inner or across == 1 else 1, (across, along))


def _blocks(total: str) -> int:
    """Return the number of blocks for each multiprocessor, as many as its registers allow."""
    return 4 if total == "float" else 2


def split_plan(a: Any, b: Any, out: Any) -> Any:
    """Return the `_core.Plan` of a @ b, for matrices of one floating dtype on a GPU."""
    (m, k), n, dtype, device = a.shape, b.shape[1], a.dtype, a.device.index
    rows, columns, total = _tile(m), _tile(n), "double" if dtype.itemsize == 8 else "float"
    groups = _THREADS * _OWN * _OWN // (rows * columns)
    # Every thread loads elements of both operands, and every group has a step.
    steps = max(groups, _THREADS // min(rows, columns), _ELEMENTS // power_down(rows + columns))
    panels = _panel(a, 0, steps), _panel(b, 1, steps)
    tiles = -(-m // rows), -(-n // columns)
    parts = multiprocessors(device) * _blocks(total) // (tiles[0] * tiles[1])
    parts = max(1, min(parts, -(-k // steps)))
    chunk = -(-k // parts)
    chunk += -chunk % steps
    parts = -(-k // chunk)
    kernel = loaded_kernels(device, text(dtype.name, total, panels, steps), ["gi_split_product"])[0]
    params = struct.pack(
        "<3q5q4q", 0, 0, 0, m, n, k, chunk, tiles[1], *panels[0].strides, *panels[1].strides
    )
    patches = [Patch(0, INPUT), Patch(8, INPUT, 1), Patch(16, SCRATCH)]
    first = KernelLaunch(kernel, (parts, tiles[0] * tiles[1]), _THREADS, params, patches)
    partial = np.dtype(np.float64 if total == "double" else np.float32)
    scratch = parts * m * n * partial.itemsize
    scratch += -scratch % 16
    strides = (n, 1) if out is None else out._strides
    rest, more_scratch = launches_for(
        device, recipe_for("sum", partial, dtype), (parts, m, n), (0,),
        [(SCRATCH, 0, Operand((m * n, n, 1), partial.itemsize))],
        [(OUTPUT, 0, Operand((0, *strides), dtype.itemsize))], scratch_at=scratch,
    )  # fmt: skip
    results = [Output(type(a), dtype_id(dtype), (m, n))]
    return _core.make_plan(device, [first, *rest], scratch + more_scratch, results)


def text(dtype: str, total: str, panels: tuple[Panel, Panel], steps: int) -> str:
    """Return the program of one kernel."""
    a, b = panels
    values = {
        "M": a.lines, "N": b.lines, "STEPS": steps, "OWN": _OWN, "BLOCKS": _blocks(total), "A_INNER": int(a.inner),
        "B_INNER": int(b.inner), "A_VEC": a.vector, "B_VEC": b.vector,
    }  # fmt: skip
    types = f"typedef {STORAGE[dtype]} Element;\ntypedef {total} Sum;"
    return program(values, types, kernel_text("product/split_product.cuh"))
