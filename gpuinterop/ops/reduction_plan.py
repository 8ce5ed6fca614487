"""The launch configuration of a reduction on a GPU: kernel, threads and loads.

Pure functions of shapes, strides and alignment. The core keeps one plan for each layout. The plan
alone determines the order of additions, so equal layouts give equal bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuinterop import _core
from gpuinterop.ops.reduction_geometry import Geometry, Operand, simplify

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class Tuning:
    """Tuning parameters; the defaults were the fastest in benchmarks.

    Parameters
    ----------
    threads : of a block.
    blocks_per_sm : the target of a split. Several times the blocks that fit, so that the others do not
        wait for a slow multiprocessor; few enough that merging their parts is fast.
    loads : 16-byte loads that a thread has in flight.
    side : for columns, the most threads with 16-byte loads side by side; the others share the rows.
    """

    threads: int
    blocks_per_sm: int
    loads: int
    side: int = 256


TUNING = {"rows": Tuning(512, 8, 4), "columns": Tuning(256, 4, 4, 32)}
# Rows longer than this many loads a thread are split into parts that are merged afterwards.
LOADS_BEFORE_SPLIT = 32
# The last block of a launch merges the parts if each of its threads reads at most so many. For more
# (tall and narrow matrices: 4,000 parts of 64 columns) a second launch of several blocks is faster.
ONE_LAUNCH_PARTS = 32
MAX_SPLITS = 65535
_NARROWEST = 8  # threads side by side: 128 bytes of 16 each, a cache line
_BUSY = 8  # with so many blocks for each multiprocessor no row is split into parts
_FEW_ROWS = 1024  # a thread then reads at most a few dozen of them
_VECTOR_BYTES = 16
_SECTOR_BYTES = 32  # of memory, read at once
_RAGGED_BYTES = 8  # columns of a thread where rows are not aligned
# Up to so many elements of a column, results are a large part of the bytes: neighbouring threads write
# neighbouring results, and a thread has so many loads and bytes in flight.
_FEW, _FEW_LOADS, _FEW_BYTES = 8, 16, 40
# One thread reduces a row of so many loads and bytes, and as many such rows as have those bytes together.
_SHORT_LOADS, _SHORT_BYTES = 8, 64
_MOST_SHORT_ROWS = 8
_MAX_VECTOR = 8


@dataclass(frozen=True)
class Plan:
    """The data on which the kernel's text, its parameters and its launch depend."""

    geometry: Geometry
    mode: str  # "rows" or "columns"
    vector: int
    steps: tuple[int, ...]  # per input: 1 unit stride, 0 broadcast, 2 any
    peel: bool  # rows are not aligned: vectors begin at the first aligned element of each
    unroll: int
    team: int
    threads: int  # of a block
    splits: int
    chunk: int  # reduced elements per split
    tiles: int  # columns: blocks side by side
    apart: bool  # columns: those of a thread are `team` apart, not one vector
    rows: int  # rows: the short rows that a thread reduces alone; 0 for longer rows
    grid: tuple[int, int]
    finish_grid: int  # blocks of the second phase, 0 without one
    finish_team: int  # columns: results that a block of the second phase shares
    wide: bool  # 64-bit indices
    one_launch: bool  # the last block of the first launch joins the parts

    @property
    def ragged(self) -> bool:
        """Columns: whether some threads own fewer than `vector`."""
        of_all = self.vector * (self.team if self.apart else 1)
        return self.geometry.kept[-1] % of_all > 0


def _vector(
    g: Geometry, inputs: Sequence[Operand], along_rows: bool
) -> tuple[int, list[int], bool]:
    """Return the elements per load, each input's step along the vector's dimension, and whether rows are peeled."""
    walk = g.red if along_rows else g.kept
    here = g.red_strides if along_rows else g.kept_strides
    steps = [1 if s[-1] == 1 else 0 if s[-1] == 0 else 2 for s in here]
    unit = [i for i, step in enumerate(steps) if step == 1]
    if not unit or 2 in steps:
        return 1, [0 if step == 0 else 2 for step in steps], False
    widest = max(inputs[i].itemsize for i in unit)
    most = max(1, min(_VECTOR_BYTES // widest, _MAX_VECTOR, power_down(walk[-1])))
    vector = most
    while vector > 1:
        whole = walk[-1] % vector == 0 or (along_rows and len(walk) == 1)
        if whole and all(_is_aligned(g, inputs, i, vector, along_rows) for i in unit):
            return vector, steps, False
        vector //= 2
    if along_rows and len(walk) == 1 and len(unit) == 1 and most > 1:
        return most, steps, True
    if not along_rows:
        # Neighbouring columns in accesses of one element, which share sectors.
        vector = min(max(1, _RAGGED_BYTES // widest), power_down(walk[-1]))
    return vector, [0 if step == 0 else 2 for step in steps], False


def _narrowed(g: Geometry, vector: int, itemsize: int, sms: int) -> int:
    """Return narrower loads for columns that would occupy few multiprocessors; threads side by side read a sector."""
    width = g.kept[-1]
    while vector > 1 and vector * itemsize * _NARROWEST > _SECTOR_BYTES:
        if g.n_out // width * -(-width // (vector * _NARROWEST)) >= sms:
            break
        vector //= 2
    return vector


def _is_aligned(g: Geometry, inputs: Sequence[Operand], i: int, vector: int, rows: bool) -> bool:
    others = [*g.kept_strides[i], *g.red_strides[i][:-1]]
    if not rows:
        others = [*g.kept_strides[i][:-1], *g.red_strides[i]]
    item = inputs[i].itemsize
    if (g.in_shifts[i] * item) % (vector * item) or inputs[i].alignment % (vector * item):
        return False
    return all(stride % vector == 0 for stride in others)


def power_up(n: int) -> int:
    """Return the smallest power of two that is not below n."""
    return 1 << max(0, (n - 1).bit_length())


def power_down(n: int) -> int:
    """Return the largest power of two that is not above n."""
    return 1 << (max(1, n).bit_length() - 1)


def plan_reduction(
    shape: Sequence[int],
    axes: Sequence[int],
    inputs: Sequence[Operand],
    outputs: Sequence[Sequence[int]],
    *,
    ordered: bool = False,
    multiprocessors: int = 132,
) -> Plan:
    """Choose kernel, vector width, threads and splits for one layout."""
    g = simplify(shape, axes, inputs, outputs, ordered=ordered)
    along_rows = g.prefers_rows
    vector, steps, peel = _vector(g, inputs, along_rows)
    if along_rows and peel and g.n_red <= _SHORT_LOADS:
        vector, steps, peel = 1, [min(2, 2 * step) for step in steps], False
    few = not along_rows and 0 < g.n_red <= _FEW
    if few:
        loads = min(_FEW_LOADS, _FEW_BYTES // max(o.itemsize for o in inputs))
        most = min(g.kept[-1], loads // g.n_red, g.n_out // (multiprocessors * 1024))
        vector = min(power_down(most), _MAX_VECTOR)
    elif not along_rows and g.n_red <= _FEW_ROWS:
        vector = _narrowed(g, vector, max(o.itemsize for o in inputs), multiprocessors)
    apart = few and vector > 1
    if apart:
        steps = [min(2, 2 * step) for step in steps]
    tuning = TUNING["rows" if along_rows else "columns"]
    access = vector * max(o.itemsize for o in inputs)
    unroll = tuning.loads * 2 if access < 8 else tuning.loads
    if few:
        unroll = g.n_red
    # With narrower accesses more threads are side by side, so that they read as many bytes.
    side = min(tuning.side * max(1, _VECTOR_BYTES // access), tuning.threads)
    tuning = replace(tuning, side=side)
    reach = 0
    for i in range(len(inputs)):
        spans = zip((*g.kept, *g.red), (*g.kept_strides[i], *g.red_strides[i]), strict=True)
        reach = max(reach, sum(max(0, e - 1) * abs(s) for e, s in spans))
    for strides in g.out_strides:
        reach = max(
            reach, sum(max(0, e - 1) * abs(s) for e, s in zip(g.kept, strides, strict=True))
        )
    chooser = _plan_rows if along_rows else _plan_columns
    team, splits, chunk, tiles, grid = chooser(g, vector, unroll, multiprocessors, tuning)
    rows, loads = 0, 0
    if along_rows and not peel:
        rows, loads = _short_rows(g, vector, access, multiprocessors)
    if rows:
        team, unroll, grid = 1, loads, (-(-g.n_out // (tuning.threads * rows)), 1)
    # A loop passes its end by at most one round of loads before it stops, and the last part's end
    # is first computed as if the part were complete.
    margin = tuning.threads * _MAX_VECTOR * unroll * 2
    wide = max(reach, g.n_out, splits * chunk) + margin >= 1 << 31
    # The number of results whose parts one block would join.
    joined = 1 if along_rows else team * vector
    one_launch = (
        1 < splits <= ONE_LAUNCH_PARTS * tuning.threads // joined and grid[0] <= _core.MAX_COUNTERS
    )
    finish_team = 1
    if not along_rows and not one_launch:
        finish_team = _finish_team(g.n_out, splits, multiprocessors, tuning.threads)
    return Plan(
        geometry=g,
        mode="rows" if along_rows else "columns",
        vector=vector,
        steps=tuple(steps),
        peel=peel,
        unroll=unroll,
        team=team,
        splits=splits,
        chunk=chunk,
        tiles=tiles,
        apart=apart,
        rows=rows,
        grid=grid,
        threads=tuning.threads,
        finish_grid=-(-g.n_out // finish_team) if splits > 1 and not one_launch else 0,
        finish_team=finish_team,
        wide=wide,
        one_launch=one_launch,
    )


_Threads = tuple[int, int, int, int, tuple[int, int]]


def _finish_team(n_out: int, splits: int, sms: int, threads: int) -> int:
    """Return the results per block of the second launch.

    There are fewer if each result has many parts, which one thread would otherwise read one after another.
    """
    team = 32
    while team > 1 and splits > threads // team * 8 and -(-n_out // team) < sms:
        team //= 2
    return team


def _plan_rows(g: Geometry, vector: int, unroll: int, sms: int, tuning: Tuning) -> _Threads:
    loads = -(-g.n_red // vector)
    block = tuning.threads
    team = min(block, power_up(-(-loads // 4)))
    while team < block and team < loads and g.n_out * team < sms * 1024:
        team *= 2
    blocks = -(-g.n_out * team // block)
    splits, chunk = 1, g.n_red
    wanted = sms * tuning.blocks_per_sm
    if team == block and loads > block * LOADS_BEFORE_SPLIT and 0 < blocks < sms * _BUSY:
        splits = min(-(-wanted // blocks), loads // (block * unroll), MAX_SPLITS)
    if splits > 1:
        chunk = -(-g.n_red // splits)
        chunk += -chunk % (vector * 32)  # whole vectors, whole cache lines
        splits = -(-g.n_red // chunk)
    return team, splits, chunk, 1, (blocks, splits)


def _short_rows(g: Geometry, vector: int, access: int, sms: int) -> tuple[int, int]:
    """The rows that a thread reduces, with all loads first, and the loads of a row; no rows for longer ones."""
    loads, rest = divmod(g.n_red, vector)
    if rest or not 0 < loads <= _SHORT_LOADS or loads * access > _SHORT_BYTES:
        return 0, loads
    rows = min(_SHORT_BYTES // (loads * access), _MOST_SHORT_ROWS, g.n_out // (sms * 1024))
    return rows and power_down(rows), loads


def _plan_columns(g: Geometry, vector: int, unroll: int, sms: int, tuning: Tuning) -> _Threads:
    width = g.kept[-1]
    block = tuning.threads
    stripes = -(-width // vector)
    rows = min(block // min(tuning.side, block), power_down(g.n_red // unroll))
    team = min(block // rows, power_up(stripes))
    batches = g.n_out // max(width, 1)
    # For few rows use narrower blocks instead of parts, which cost more to join than they save.
    while (
        team > _NARROWEST
        and g.n_red <= _FEW_ROWS
        and batches * -(-stripes // team) < sms
        and block // team < g.n_red
    ):
        team //= 2
    rows = block // team
    tiles = -(-stripes // team)
    blocks = batches * tiles
    splits, chunk = 1, g.n_red
    wanted = sms * tuning.blocks_per_sm
    if 0 < blocks < sms * _BUSY and g.n_red > max(rows * unroll * 4, _FEW_ROWS):
        # A few blocks more than run at once would wait for all the others.
        splits = wanted // blocks
        splits += splits * blocks * 5 < wanted * 4
        splits = min(splits, -(-g.n_red // (rows * unroll * 2)), MAX_SPLITS)
    if splits > 1:
        chunk = -(-g.n_red // splits)
        chunk += -chunk % (rows * unroll)
        splits = -(-g.n_red // chunk)
    return team, splits, chunk, tiles, (blocks, splits)
