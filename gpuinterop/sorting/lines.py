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
from gpuinterop.reduce.codegen import INPUT, OUTPUT, SCRATCH, KernelLaunch, Output, Patch


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
    8: (Form(256, 4, 3), Form(512, 8, 2)),
}
SWEEP_FORMS = {4: Form(512, 16, 2), 8: Form(384, 12, 2)}
WIDE_FORM = Form(512, 8)  # where counts and places need 64 bits
_COUNTED = 2048  # elements that a block counts at once
# The bits of infinity.
INFINITIES = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF << 52}
_KINDS = {"u": 0, "i": 1, "f": 2, "b": 3}


# Where an address of a plan's parameters comes from: a slot, the number of the operand, and a shift in bytes.
Address = tuple[_core.Slot, int, int]
FIRST_INPUT, SECOND_INPUT, FIRST_OUTPUT = (INPUT, 0, 0), (INPUT, 1, 0), (OUTPUT, 0, 0)


class Pieces:
    """Pieces of one memory, in a slot of a plan from byte `begin` on."""

    def __init__(self, slot: _core.Slot, operand: int = 0, begin: int = 0) -> None:
        self.slot, self.operand, self.end = slot, operand, begin

    def take(self, nbytes: int) -> Address:
        """Return the address of a further piece."""
        begin = self.end
        self.end += nbytes + -nbytes % 16
        return self.slot, self.operand, begin


def patches(*addresses: Address | None) -> list[Patch]:
    """Return the patches of parameters that begin with these addresses; None stays null."""
    return [Patch(8 * i, *address) for i, address in enumerate(addresses) if address is not None]


def text(
    file: str, dtype: str, indices: int, descending: bool, form: Form, wide: bool = False
) -> str:
    """Return the program of the kernels in a file. `indices`: 0 elements, 1 indices, 2 both, by sweeps only."""
    size = np.dtype(dtype).itemsize if dtype != "bfloat16" else 2
    values = {
        "KIND": _KINDS[LETTERS[dtype]], "INFINITY": f"{INFINITIES.get(dtype, 0)}ull", "INDICES": int(indices),
        "DESCENDING": int(descending), "THREADS": form.threads, "ITEMS": form.items, "BLOCKS": form.blocks,
    }  # fmt: skip
    types = f"typedef u{8 * size} Stored;\ntypedef u{max(32, 8 * size)} Key;\ntypedef u{8 * place_bytes(wide)} Place;"
    files = ("keys", *(("ranks",) if file != "short_lines" else ()), file)
    return program(values, types, *(kernel_text(f"sorting/{name}.cuh") for name in files))


def place_bytes(wide: bool) -> int:
    """Return the bytes of a place that sweeps write; `wide`: of a long line."""
    return 8 if wide else 4


def is_wide(n: int) -> bool:
    """Return whether sweeps over a line of n elements count in 64 bits."""
    return n >= 1 << 30


def needs_keys(dtype: np.dtype[Any]) -> bool:
    """Return whether the elements are sorted by indices of several keys, or by those of floats that hold them."""
    return LETTERS[name_of(dtype)] in "fc" and name_of(dtype) not in INFINITIES


def in_block(dtype: np.dtype[Any], n: int) -> bool:
    """Return whether a block sorts a line of n elements; they need no keys."""
    return n <= BLOCK_FORMS[max(4, dtype.itemsize)][-1].tile


def fits_block(x: Any) -> bool:
    """Return whether a block sorts each line: it reads all elements before it writes, so in place too."""
    fits = x.size and not needs_keys(x.dtype) and in_block(x.dtype, x.shape[-1])
    return bool(fits and x.is_c_contiguous())


def sorted_lines(x: Any, indices: bool, descending: bool, where: str, out: Any = None) -> Any:
    """Return the elements of x in order along the last axis, or their indices: `out`, or a new C-contiguous array."""
    if x.size and needs_keys(x.dtype):
        places = _places_by_keys(_keys_of(x), descending, where)
        return places if indices else take_along_axis(x, places, -1)
    if not x.size:
        return results.new_like(x, x.shape, np.int64 if indices else x.dtype, where)
    lines = x if x.is_c_contiguous() else x._copied(where)
    plan = plan_of_lines(x.device.index, x.dtype, x.shape, indices, descending)
    return plan.run((lines,), None if out is None else (out,))


@lru_cache(maxsize=1024)
def plan_of_lines(
    device: int, dtype: np.dtype[Any], shape: tuple[int, ...], indices: bool, descending: bool
) -> Any:
    """Return the plan that sorts the lines of a C-contiguous array, whose elements need no keys."""
    scratch = Pieces(SCRATCH)
    order = int(indices), descending
    launches = sort_launches(device, dtype, shape, order, FIRST_INPUT, FIRST_OUTPUT, scratch)
    result = dtype_id(np.dtype(np.int64) if indices else dtype)
    return _core.make_plan(device, launches, scratch.end, [Output(None, result, shape)])


def sort_launches(
    device: int, dtype: np.dtype[Any], shape: tuple[int, ...], order: tuple[int, bool], source: Address,
    target: Address | None, scratch: Pieces, places: Address | None = None,
) -> list[KernelLaunch]:  # fmt: skip
    """Return the launches that sort the lines of elements at `source`; `order` is (indices, descending), as in `text`.

    They write elements or int64 indices to `target`, or elements there and indices of `place_bytes` to `places`.
    """
    n, of_text = shape[-1], (name_of(dtype), *order)
    count = math.prod(shape) // n
    if not in_block(dtype, n):
        return _sweeps(device, dtype, (count, n), order, (source, target, places), scratch)
    if n <= SHORT:
        form, width, file = Form(256, 1), 1 << (n - 1).bit_length(), "short_lines"
        blocks, params = -(-count * width // form.threads), struct.pack("<3q", count, n, width)
    else:
        form = next(form for form in BLOCK_FORMS[max(4, dtype.itemsize)] if n <= form.tile)
        blocks, params, file = count, struct.pack("<2q", count, n), "block_lines"
    (kernel,) = kernels_of(device, (f"gi_sort_{file}",), text, file, *of_text, form)
    at = patches(source, target)
    return [KernelLaunch(kernel, (blocks, 1), form.threads, bytes(16) + params, at)]


_SWEEPS = ("gi_sort_clear", "gi_sort_count", "gi_sort_starts", "gi_sort_sweep")


def _sweeps(
    device: int, dtype: np.dtype[Any], lines: tuple[int, int], order: tuple[int, bool],
    addresses: tuple[Address, Address | None, Address | None], scratch: Pieces,
) -> list[KernelLaunch]:  # fmt: skip
    """Sort with one sweep for each byte of an element. Keys and places alternate between two pieces of memory."""
    (count, n), (read, target, places), digits = lines, addresses, dtype.itemsize
    source: Address | None = read
    wide, size, indices = is_wide(n), count * n, order[0]
    form, place = WIDE_FORM if wide else SWEEP_FORMS[max(4, digits)], place_bytes(wide)
    kernels = kernels_of(device, _SWEEPS, text, "sweeps", name_of(dtype), *order, form, wide)
    tiles = -(-n // form.tile)
    parts = max(1, min(-(-n // _COUNTED), 6 * multiprocessors(device) // count))
    starts = scratch.take((count + 1) * digits * 256 * place)
    words = [scratch.take(count * tiles * 256 * place) for _ in range(2)]
    # Memory of keys and places by the parity of the sweep that writes it; of several sweeps the last one is odd.
    keys: list[Address | None] = [target, target]
    moved: list[Address | None] = [None, None]
    if digits > 1:
        keys[0] = scratch.take(size * digits)
    if indices:
        moved[0] = scratch.take(size * place) if digits > 1 else None
        moved[1] = target if indices == 1 else places
    if indices == 1 and digits > 2:
        keys[1] = scratch.take(size * digits)
    launches = []
    for sweep in range(digits):
        now, before = sweep % 2, 1 - sweep % 2
        last = sweep == digits - 1
        numbers = count, n, tiles, parts, 8 * sweep, sweep == 0, last, 0
        params = bytes(64) + struct.pack("<4q4i", *numbers)
        turn = starts[0], starts[1], starts[2] + (count * digits * 256 + sweep) * place
        outputs = keys[now], moved[before], moved[1] if last else moved[now]
        if sweep == 0:  # which counts into the words of this sweep
            at = patches(source, *outputs, words[0], words[0], starts, turn)
            grids = (count + 1) * digits, count * parts, count * digits
            for kernel, blocks in zip(kernels, grids, strict=False):
                launches.append(KernelLaunch(kernel, (blocks, 1), 256, params, at))
        at = patches(source, *outputs, words[now], words[before], starts, turn)
        launches.append(KernelLaunch(kernels[-1], (count * tiles, 1), form.threads, params, at))
        source = keys[now]
    return launches


_INVERSE_TILE = 4096  # elements of a block of inverse.cuh


def inverse_launches(
    device: int,
    n: int,
    places: Address | None,
    ranks: Address,
    target: Address | None,
    scratch: Pieces,
) -> list[KernelLaunch]:
    """Return the launches that write n ranks of 4 bytes to their places, also of 4 bytes, in the int64 `target`.

    They write to the memory of the ranks too.
    """
    bits = (n - 1).bit_length()
    sweeps = max(0, -(-(bits - _INVERSE_TILE.bit_length() + 1) // 8))
    form, low = SWEEP_FORMS[4], bits - 8 * sweeps
    tiles = -(-n // form.tile)
    words = [scratch.take(tiles * 1024) for _ in range(2)]
    starts = scratch.take(4 * (1024 + sweeps))
    # Memory of places and ranks by the parity of the sweep that writes it; the first one has read the ranks.
    moved = [(scratch.take(4 * n), scratch.take(4 * n)), (scratch.take(4 * n), ranks)]
    (sweep,) = kernels_of(device, _SWEEPS[-1:], text, "sweeps", "uint32", 1, False, form)
    clear, write = kernels_of(device, ("gi_inverse_clear", "gi_inverse_write"), inverse_text)
    read: tuple[Address | None, Address] = (places, ranks)
    launches = []
    for i in range(sweeps):
        params = bytes(64) + struct.pack("<4q4i", 1, n, tiles, 1, low + 8 * i, 0, 0, 0)
        turn = (*starts[:2], starts[2] + 4 * (1024 + i))
        (keys, values), (keys_out, values_out) = read, moved[i % 2]
        at = patches(
            keys, keys_out, values, values_out, words[i % 2], words[1 - i % 2], starts, turn
        )
        launches.append(KernelLaunch(sweep, (tiles, 1), form.threads, params, at))
        read = moved[i % 2]
    params = bytes(40) + struct.pack("<q2i", n, low, sweeps)
    at = patches(words[0], starts, *read, target)
    return [
        KernelLaunch(clear, (tiles, 1), 256, params, at), *launches,
        KernelLaunch(write, (-(-n // _INVERSE_TILE), 1), 256, params, at),
    ]  # fmt: skip


def inverse_text() -> str:
    """Return the program of the kernels of `inverse_launches`."""
    return program({}, kernel_text("sorting/inverse.cuh"))


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
