"""Sorted lines of elements on a GPU: the kernels, and which of them sorts a line of a length.

A thread counts for each element of a short line, a block sorts a line that fits its shared memory, and sweeps over
memory, one for each byte of an element, sort longer ones. Complex numbers and small floats are sorted by indices.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import LETTERS, dtype_id, name_of
from gpuinterop.elementwise import results
from gpuinterop.elementwise.calls import FUNCTIONS
from gpuinterop.elementwise.functions import cast
from gpuinterop.index.take_put import take_along_axis
from gpuinterop.jit import kernel_text
from gpuinterop.jit.compiler import kernels_of, multiprocessors
from gpuinterop.jit.texts import program
from gpuinterop.reduce.codegen import INPUT, OUTPUT, KernelLaunch, Output, Patch


class Form(NamedTuple):
    """Threads of a block, elements of a thread, and blocks of a multiprocessor, for which registers are left."""

    threads: int
    items: int
    blocks: int = 1

    @property
    def tile(self) -> int:
        return self.threads * self.items


SHORT = 128  # elements that threads count
# By the bytes of an element in registers: the tiles of blocks, smallest first, and those of sweeps.
BLOCK_FORMS = {
    4: (Form(256, 4), Form(512, 8, 2), Form(512, 16, 2)),
    8: (Form(256, 4, 3), Form(512, 8)),
}
SWEEP_FORMS = {4: Form(512, 16, 2), 8: Form(384, 12, 2)}
_WIDE = 1 << 30  # elements of a line whose counts and places need 64 bits
WIDE_FORM = Form(512, 8)
_COUNTED = 2048  # elements that a block counts at once
# The bits of infinity.
INFINITIES = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF << 52}
_KINDS = {"u": 0, "i": 1, "f": 2, "b": 3}


def text(
    file: str, dtype: str, indices: bool, descending: bool, form: Form, wide: bool = False
) -> str:
    """Return the program of the kernels in a file."""
    size = np.dtype(dtype).itemsize if dtype != "bfloat16" else 2
    values = {
        "KIND": _KINDS[LETTERS[dtype]], "INFINITY": f"{INFINITIES.get(dtype, 0)}ull", "INDICES": int(indices),
        "DESCENDING": int(descending), "THREADS": form.threads, "ITEMS": form.items, "BLOCKS": form.blocks,
    }  # fmt: skip
    types = f"typedef u{8 * size} Stored;\ntypedef u{max(32, 8 * size)} Key;\ntypedef u{64 if wide else 32} Place;"
    files = ("keys", *(("ranks",) if file != "short_lines" else ()), file)
    return program(values, types, *(kernel_text(f"sorting/{name}.cuh") for name in files))


def fits_block(x: Any) -> bool:
    """Return whether a block sorts each line: it reads all elements before it writes, so in place too."""
    by_keys = LETTERS[name_of(x.dtype)] in "fc" and name_of(x.dtype) not in INFINITIES
    most = BLOCK_FORMS[max(4, x.itemsize)][-1].tile if not by_keys else 0
    return bool(x.size and x.shape[-1] <= most and x.is_c_contiguous())


def sorted_lines(x: Any, indices: bool, descending: bool, where: str, out: Any = None) -> Any:
    """Return the elements of x in order along the last axis, or their indices: `out`, or a new C-contiguous array."""
    name, n = name_of(x.dtype), x.shape[-1]
    if x.size and LETTERS[name] in "fc" and name not in INFINITIES:
        places = _places_by_keys(_keys_of(x), descending, where)
        return places if indices else take_along_axis(x, places, -1)
    lines = x if x.is_c_contiguous() else x._copied(where)
    if out is None:
        out = results.new_like(x, x.shape, np.int64 if indices else x.dtype, where)
    if not x.size:
        return out
    if fits_block(lines):
        plan_of_lines(lines, indices, descending).run((lines,), (out,))
    else:
        _sweep(lines, out, n, (name, indices, descending), where)
    return out


def plan_of_lines(x: Any, indices: bool, descending: bool) -> Any:
    """Return the plan that sorts the lines of an array of which `fits_block` is true."""
    return _plan(x.device.index, x.dtype, x.shape, indices, descending)


@lru_cache(maxsize=1024)
def _plan(
    device: int, dtype: np.dtype[Any], shape: tuple[int, ...], indices: bool, descending: bool
) -> Any:
    n, of_text = shape[-1], (name_of(dtype), indices, descending)
    count = math.prod(shape) // n
    if n <= SHORT:
        form, width, file = Form(256, 1), 1 << (n - 1).bit_length(), "short_lines"
        blocks, params = -(-count * width // form.threads), struct.pack("<3q", count, n, width)
    else:
        form = next(form for form in BLOCK_FORMS[max(4, dtype.itemsize)] if n <= form.tile)
        blocks, params, file = count, struct.pack("<2q", count, n), "block_lines"
    (kernel,) = kernels_of(device, (f"gi_sort_{file}",), text, file, *of_text, form)
    patches = [Patch(0, INPUT), Patch(8, OUTPUT)]
    launch = KernelLaunch(kernel, (blocks, 1), form.threads, bytes(16) + params, patches)
    result = dtype_id(np.dtype(np.int64) if indices else dtype)
    return _core.make_plan(device, [launch], 0, [Output(None, result, shape)])


_SWEEPS = ("gi_sort_count", "gi_sort_starts", "gi_sort_sweep")


def _sweep(lines: Any, out: Any, n: int, of_text: tuple[Any, ...], where: str) -> None:
    """Sort with one sweep for each byte of an element. Keys and places alternate between two pieces of memory."""
    device, digits, count, indices = lines.device.index, lines.itemsize, lines.size // n, of_text[1]
    wide = n >= _WIDE
    form = WIDE_FORM if wide else SWEEP_FORMS[max(4, digits)]
    count_kernel, starts_kernel, sweep_kernel = kernels_of(
        device, _SWEEPS, text, "sweeps", *of_text, form, wide
    )

    def empty(size: int, dtype: Any) -> Any:
        return results.new_like(lines, (size,), dtype, where)

    place, tiles = np.dtype(np.uint64 if wide else np.uint32), -(-n // form.tile)
    parts = max(1, min(-(-n // _COUNTED), 6 * multiprocessors(device) // count))
    starts = empty((count + 1) * digits * 256, place)  # and behind them the turns of each sweep
    starts.fill(0)
    words = [empty(count * tiles * 256, place) for _ in range(2)]
    # Memory of keys and places by the parity of the sweep that writes it; of several sweeps the last one is odd.
    unsigned = np.dtype(f"u{digits}")
    keys = [empty(lines.size, unsigned) if digits > 1 else out, out]
    places = [starts, starts]
    if indices and digits > 1:
        keys[1] = empty(lines.size, unsigned) if digits > 2 else starts
        places = [empty(lines.size, place), out]
    used = [lines, out, starts, *words, *keys, *places]
    source = lines
    for sweep in range(digits):
        now, before = sweep % 2, 1 - sweep % 2
        target, last = keys[now], sweep == digits - 1
        params = struct.pack(
            "<8Q4q4i", source.ptr, target.ptr, places[before].ptr, (out if last else places[now]).ptr,
            words[now].ptr, words[before].ptr, starts.ptr, starts.ptr + (count * digits * 256 + sweep) * place.itemsize,
            count, n, tiles, parts, 8 * sweep, sweep == 0, last, 0,
        )  # fmt: skip
        if sweep == 0:  # which counts into the words of this sweep
            first = params[:40] + params[32:40] + params[48:]
            count_kernel.launch((count * parts,), (256,), 0, [first], used)
            starts_kernel.launch((count * digits,), (256,), 0, [first], used)
        sweep_kernel.launch((count * tiles,), (form.threads,), 0, [params], used)
        source = target


def _places_by_keys(keys: list[Any], descending: bool, where: str) -> Any:
    """Return the indices that sort by several keys, the last one first."""
    places = sorted_lines(keys[0], True, descending, where)
    for key in keys[1:]:
        held = take_along_axis(key, places, -1)
        places = take_along_axis(places, sorted_lines(held, True, descending, where), -1)
    return places


def _keys_of(x: Any) -> list[Any]:
    """Return real keys, the least important one first: NumPy orders complex numbers by which parts are NaN first."""
    if LETTERS[name_of(x.dtype)] != "c":
        return [cast(x, np.float32)]
    real, imaginary, isnan = x.real, x.imag, FUNCTIONS["isnan"]
    which = FUNCTIONS["add"](
        FUNCTIONS["multiply"](cast(isnan(real), np.uint8), 2), isnan(imaginary)
    )
    return [imaginary, real, which]
