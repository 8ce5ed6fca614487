"""The launch configuration of a reduction on a GPU: kernel, threads and loads.

Pure functions of shapes, strides and alignment. The core keeps one plan for each layout. The plan
alone determines the order of additions, so equal layouts give equal bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuinterop import _core

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Operand:
    """Strides in elements over the full shape; `alignment` is a power of two dividing the address."""

    strides: tuple[int, ...]
    itemsize: int
    alignment: int = 16

    @classmethod
    def of(cls, x: Any, strides: Sequence[int] | None = None) -> Operand:
        """Return the planner's description of an array."""
        alignment = min(x.ptr & -x.ptr, 16) or 16
        return cls(tuple(x._strides if strides is None else strides), x.itemsize, alignment)


@dataclass(frozen=True)
class Geometry:
    """Dimensions after dropping, sorting and merging; innermost last; at least one of each kind."""

    kept: tuple[int, ...]
    red: tuple[int, ...]
    kept_strides: tuple[tuple[int, ...], ...]  # [input][dimension], elements
    red_strides: tuple[tuple[int, ...], ...]
    out_strides: tuple[tuple[int, ...], ...]  # [output][dimension]
    in_shifts: tuple[int, ...]  # elements from the array's first one to the first that is read
    out_shifts: tuple[int, ...]
    prefers_rows: bool  # the reduced elements are closer together than the results

    @property
    def n_out(self) -> int:
        return math.prod(self.kept)

    @property
    def n_red(self) -> int:
        return math.prod(self.red)


# ---- the launch ---------------------------------------------------------------------------------


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

    def unroll(self, access: int) -> int:
        """Return the loads of `access` bytes that a thread has in flight."""
        return self.loads * (2 if access < 8 else 1)


TUNING = {"rows": Tuning(512, 8, 4), "columns": Tuning(256, 4, 4, 32)}
# Rows longer than this many loads a thread are split into parts that are merged afterwards.
LOADS_BEFORE_SPLIT = 32
# The last block of a launch merges the parts if each of its threads reads at most this many. For more
# (tall and narrow matrices: 4,000 parts of 64 columns) a second launch of several blocks is faster.
ONE_LAUNCH_PARTS = 32
MAX_SPLITS = 65535
_NARROWEST = 8  # threads side by side: 128 bytes of 16 each, a cache line
_BUSY = 8  # rows are not split with this many blocks for each multiprocessor
_FEW_ROWS = 1024  # a thread then reads at most a few dozen of them
_VECTOR_BYTES = 16
_SECTOR_BYTES = 32  # of memory, read at once
_RAGGED_BYTES = 8  # columns of a thread where rows are not aligned
# In columns of at most this many elements, results are a large part of the bytes. Neighbouring threads then write
# neighbouring results, and each thread has this many loads and bytes in flight.
_FEW, _FEW_LOADS, _FEW_BYTES = 8, 16, 40
# The most loads and bytes of a row that one thread reduces alone. It reduces several rows of fewer bytes.
_SHORT_LOADS, _SHORT_BYTES = 8, 64
_MOST_SHORT_ROWS = 8
_MAX_VECTOR = 8


@dataclass(frozen=True)
class _Loads:
    """How a thread reads the inputs."""

    vector: int
    steps: tuple[int, ...]  # per input: 1 unit stride, 0 broadcast, 2 any
    peel: bool  # rows are not aligned: vectors begin at the first aligned element of each
    apart: bool  # columns: those of a thread are `team` apart, not one vector
    access: int  # bytes of the widest load


@dataclass(frozen=True)
class _Work:
    """How blocks and threads share the elements."""

    team: int
    unroll: int
    grid: tuple[int, int]
    chunk: int  # reduced elements per split
    splits: int = 1
    tiles: int = 1  # columns: blocks side by side
    rows: int = 0  # rows: the short rows that a thread reduces alone; 0 for longer rows


@dataclass(frozen=True, kw_only=True)
class Launch(_Work, _Loads):
    """The data on which the kernel's text, its parameters and its launch depend."""

    geometry: Geometry
    mode: str  # "rows" or "columns"
    threads: int  # of a block
    finish_grid: int  # blocks of the second phase, 0 without one
    finish_team: int  # columns: results that a block of the second phase shares
    wide: bool  # 64-bit indices
    one_launch: bool  # the last block of the first launch joins the parts

    @property
    def ragged(self) -> bool:
        """Columns: whether some threads own fewer than `vector`."""
        of_all = self.vector * (self.team if self.apart else 1)
        return self.geometry.kept[-1] % of_all > 0


def _choose_loads(g: Geometry, inputs: Sequence[Operand], sms: int) -> _Loads:
    widest = max(o.itemsize for o in inputs)
    few = not g.prefers_rows and 0 < g.n_red <= _FEW
    vector, steps, peel = _vector(g, inputs)
    if peel and g.n_red <= _SHORT_LOADS:
        vector, steps, peel = 1, _steps_of_one(steps), False
    if few:
        loads = min(_FEW_LOADS, _FEW_BYTES // widest)
        most = min(g.kept[-1], loads // g.n_red, g.n_out // (sms * 1024))
        vector = min(power_down(most), _MAX_VECTOR)
    elif not g.prefers_rows and g.n_red <= _FEW_ROWS:
        vector = _narrow(g, vector, widest, sms)
    apart = few and vector > 1
    if apart:
        steps = _steps_of_one(steps)
    return _Loads(vector, steps, peel, apart, vector * widest)


def _steps_of_one(steps: Sequence[int]) -> tuple[int, ...]:
    """Return the steps for loads of one element, which take any stride."""
    return tuple(2 if step else 0 for step in steps)


def _vector(g: Geometry, inputs: Sequence[Operand]) -> tuple[int, tuple[int, ...], bool]:
    """Return the elements per load, each input's step along the vector's dimension, and whether rows are peeled."""
    along_rows = g.prefers_rows
    dims, strides = (g.red, g.red_strides) if along_rows else (g.kept, g.kept_strides)
    length = dims[-1]
    steps = tuple(1 if s[-1] == 1 else 0 if s[-1] == 0 else 2 for s in strides)
    unit = [i for i, step in enumerate(steps) if step == 1]
    if not unit or 2 in steps:
        return 1, _steps_of_one(steps), False
    widest = max(inputs[i].itemsize for i in unit)
    most = max(1, min(_VECTOR_BYTES // widest, _MAX_VECTOR, power_down(length)))
    one_row = along_rows and len(dims) == 1
    vector = most
    while vector > 1:
        whole = length % vector == 0 or one_row
        if whole and all(_is_aligned(g, inputs, i, vector) for i in unit):
            return vector, steps, False
        vector //= 2
    if one_row and len(unit) == 1 and most > 1:
        return most, steps, True
    if not along_rows:
        # Neighbouring columns in accesses of one element, which share sectors.
        vector = min(max(1, _RAGGED_BYTES // widest), power_down(length))
    return vector, _steps_of_one(steps), False


def _narrow(g: Geometry, vector: int, itemsize: int, sms: int) -> int:
    """Return narrower loads for columns that would occupy few multiprocessors; threads side by side read a sector."""
    width = g.kept[-1]
    while vector > 1 and vector * itemsize * _NARROWEST > _SECTOR_BYTES:
        if g.n_out // width * -(-width // (vector * _NARROWEST)) >= sms:
            break
        vector //= 2
    return vector


def _is_aligned(g: Geometry, inputs: Sequence[Operand], i: int, vector: int) -> bool:
    kept, red, item = g.kept_strides[i], g.red_strides[i], inputs[i].itemsize
    others = [*kept, *red[:-1]] if g.prefers_rows else [*kept[:-1], *red]
    if (g.in_shifts[i] * item) % (vector * item) or inputs[i].alignment % (vector * item):
        return False
    return all(stride % vector == 0 for stride in others)


def power_up(n: int) -> int:
    """Return the smallest power of two that is not below n."""
    return 1 << max(0, (n - 1).bit_length())


def power_down(n: int) -> int:
    """Return the largest power of two that is not above n."""
    return 1 << (max(1, n).bit_length() - 1)


def choose_launch(
    shape: Sequence[int],
    axes: Sequence[int],
    inputs: Sequence[Operand],
    outputs: Sequence[Sequence[int]],
    *,
    ordered: bool = False,
    multiprocessors: int = 132,
) -> Launch:
    """Choose kernel, vector width, threads and splits for one layout.

    `outputs` are strides over the full shape; those along reduced axes are ignored. `ordered` keeps
    the reduced elements in C order, for reductions that return positions.
    """
    strides = [*(operand.strides for operand in inputs), *outputs]
    itemsizes, bits = [operand.itemsize for operand in inputs], sum(1 << axis for axis in axes)
    g = Geometry(**_core._reduced_dimensions(shape, bits, strides, itemsizes, ordered))
    mode, divide = ("rows", _divide_rows) if g.prefers_rows else ("columns", _divide_columns)
    loads, threads = _choose_loads(g, inputs, multiprocessors), TUNING[mode].threads
    work = divide(g, loads, multiprocessors, TUNING[mode])
    # A loop passes its end by at most one round of loads before it stops, and the last part's end
    # is first computed as if the part were complete.
    margin = threads * _MAX_VECTOR * work.unroll * 2
    # The number of results whose parts one block would join.
    joined = 1 if g.prefers_rows else work.team * loads.vector
    one_launch = (
        1 < work.splits <= ONE_LAUNCH_PARTS * threads // joined
        and work.grid[0] <= _core.MAX_COUNTERS
    )
    finish_team = 1
    if not g.prefers_rows and not one_launch:
        finish_team = _finish_team(g.n_out, work.splits, multiprocessors, threads)
    return Launch(
        geometry=g,
        mode=mode,
        threads=threads,
        finish_grid=-(-g.n_out // finish_team) if work.splits > 1 and not one_launch else 0,
        finish_team=finish_team,
        wide=max(_reach(g), g.n_out, work.splits * work.chunk) + margin >= 1 << 31,
        one_launch=one_launch,
        **vars(loads),
        **vars(work),
    )


def _reach(g: Geometry) -> int:
    """Return the largest distance in elements between the first element of an operand and another one."""
    strides = [[*kept, *red] for kept, red in zip(g.kept_strides, g.red_strides, strict=True)]
    return max(
        # Results have no reduced dimensions.
        sum(max(0, n - 1) * abs(s) for n, s in zip((*g.kept, *g.red), steps, strict=False))
        for steps in (*strides, *g.out_strides)
    )


def _finish_team(n_out: int, splits: int, sms: int, threads: int) -> int:
    """Return the results per block of the second launch.

    There are fewer if each result has many parts, which one thread would otherwise read one after another.
    """
    team = 32
    while team > 1 and splits > threads // team * 8 and -(-n_out // team) < sms:
        team //= 2
    return team


def _divide_rows(g: Geometry, loads: _Loads, sms: int, tuning: Tuning) -> _Work:
    block, vector, unroll = tuning.threads, loads.vector, tuning.unroll(loads.access)
    rows = 0 if loads.peel else _short_rows(g, vector, loads.access, sms)
    if rows:
        grid = -(-g.n_out // (block * rows)), 1
        return _Work(1, g.n_red // vector, grid, g.n_red, rows=rows)
    count = -(-g.n_red // vector)
    team = min(block, power_up(-(-count // 4)))
    while team < block and team < count and g.n_out * team < sms * 1024:
        team *= 2
    blocks = -(-g.n_out * team // block)
    splits, chunk = 1, g.n_red
    most_blocks = sms * tuning.blocks_per_sm
    if team == block and count > block * LOADS_BEFORE_SPLIT and 0 < blocks < sms * _BUSY:
        splits = min(-(-most_blocks // blocks), count // (block * unroll), MAX_SPLITS)
    if splits > 1:
        chunk = -(-g.n_red // splits)
        chunk += -chunk % (vector * 32)  # whole vectors, whole cache lines
        splits = -(-g.n_red // chunk)
    return _Work(team, unroll, (blocks, splits), chunk, splits)


def _short_rows(g: Geometry, vector: int, access: int, sms: int) -> int:
    """Return the rows that a thread reduces, with all loads first; 0 for longer rows."""
    loads, rest = divmod(g.n_red, vector)
    if rest or not 0 < loads <= _SHORT_LOADS or loads * access > _SHORT_BYTES:
        return 0
    rows = min(_SHORT_BYTES // (loads * access), _MOST_SHORT_ROWS, g.n_out // (sms * 1024))
    return rows and power_down(rows)


def _divide_columns(g: Geometry, loads: _Loads, sms: int, tuning: Tuning) -> _Work:
    width, block = g.kept[-1], tuning.threads
    unroll = g.n_red if 0 < g.n_red <= _FEW else tuning.unroll(loads.access)
    stripes = -(-width // loads.vector)
    # With narrower accesses more threads are side by side, so that they read as many bytes.
    side = min(tuning.side * max(1, _VECTOR_BYTES // loads.access), block)
    rows = min(block // side, power_down(g.n_red // unroll))
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
    most_blocks = sms * tuning.blocks_per_sm
    if 0 < blocks < sms * _BUSY and g.n_red > max(rows * unroll * 4, _FEW_ROWS):
        # A few blocks more than run at once would wait for all the others.
        splits = most_blocks // blocks
        splits += splits * blocks * 5 < most_blocks * 4
        splits = min(splits, -(-g.n_red // (rows * unroll * 2)), MAX_SPLITS)
    if splits > 1:
        chunk = -(-g.n_red // splits)
        chunk += -chunk % (rows * unroll)
        splits = -(-g.n_red // chunk)
    return _Work(team, unroll, (blocks, splits), chunk, splits, tiles)
