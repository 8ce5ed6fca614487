"""How a reduction is cut into blocks and parts: what no result shows."""

import pytest

from gpuinterop.reduce.launch import Operand, choose_launch


def test_one_launch_unless_one_block_had_too_much_to_join() -> None:
    tall = choose_launch((1 << 22, 64), (0,), [Operand((64, 1), 4)], [(0, 1)])
    assert tall.mode == "columns"
    assert tall.splits > 500
    assert (tall.one_launch, tall.finish_team, tall.finish_grid) == (False, 2, 32)
    less = choose_launch((1 << 20, 64), (0,), [Operand((64, 1), 4)], [(0, 1)], multiprocessors=50)
    assert (less.splits, less.one_launch) == (200, False)  # 64 results of that many parts each
    side = 1 << 14
    for axes, strides in (((0,), (0, 1)), ((0, 1), (0, 0))):
        square = choose_launch((side, side), axes, [Operand((side, 1), 4)], [strides])
        assert square.splits > 1
        assert (square.one_launch, square.finish_grid) == (True, 0)
        assert square.grid[0] * square.grid[1] >= 132 * 3


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
@pytest.mark.parametrize("stride", [0, 1])
def test_narrow_indices_hold_the_end_of_the_last_part(itemsize: int, stride: int) -> None:
    narrow = 0
    for n in range((1 << 31) - 400_000, (1 << 31) + 20_000, 1009):
        plan = choose_launch((n,), (0,), [Operand((stride,), itemsize)], [(0,)])
        assert plan.splits > 1
        assert plan.wide or plan.splits * plan.chunk < 1 << 31
        narrow += not plan.wide
    assert narrow
    for n, wide in ((2048, False), (2049, True)):
        assert choose_launch((n, 1), (0,), [Operand((1 << 20, 1), 4)], [(0, 0)]).wide is wide


@pytest.mark.parametrize(
    ("strides", "mode", "vector"),
    [((1, 8192), "columns", 4), ((8192, 1), "rows", 4), ((-1, 8192), "columns", 2)],
)
def test_strides_of_the_matrix_decide_the_plan(
    strides: tuple[int, int], mode: str, vector: int
) -> None:
    inputs = [Operand(strides, 4), Operand((0, 1), 4)]
    for order in (inputs, inputs[::-1]):
        plan = choose_launch((8192, 8192), (1,), order, [(1, 0)])
        assert (plan.mode, plan.vector) == (mode, vector)
        assert plan.grid[0] * plan.grid[1] >= 132 * 3  # every multiprocessor is busy


@pytest.mark.parametrize(
    ("operands", "vector", "steps"),
    [([Operand((8192, 1), 4)], 4, [1]), ([Operand((8192, 1), 4, 8)], 2, [1]),
     # Not aligned: one operand is read in vectors after its first elements, two are not.
     ([Operand((8192, 1), 4, 4)], 4, [1]), ([Operand((8191, 1), 4)], 4, [1]),
     ([Operand((8191, 1), 4), Operand((0, 1), 4)], 1, [2, 2]),
     # The widest operand decides; one that repeats an element along the rows does not count.
     ([Operand((8192, 1), 4), Operand((8192, 1), 1)], 4, [1, 1]),
     ([Operand((8192, 1), 1), Operand((1, 0), 4)], 8, [1, 0])],
)  # fmt: skip
def test_vectors_are_as_wide_as_all_operands_allow(operands, vector: int, steps: list[int]) -> None:
    plan = choose_launch((8192, 8192), (1,), operands, [(1, 0)])
    assert (plan.mode, plan.vector, list(plan.steps)) == ("rows", vector, steps)
    aligned = all(o.alignment == 16 and o.strides[0] % vector == 0 for o in operands)
    assert plan.peel is (not aligned and vector == 4)


@pytest.mark.parametrize(
    ("shape", "axis", "team"), [((100, 4), 1, 1), ((8192, 64), 1, 16), ((4096, 32), 0, 8)]
)
def test_no_more_threads_share_a_row_than_have_a_load(shape, axis: int, team: int) -> None:
    assert choose_launch(shape, (axis,), [Operand((shape[1], 1), 4)], [(0, 0)]).team == team


@pytest.mark.parametrize(
    ("width", "itemsize", "vector", "steps", "team"),
    [(16384, 4, 4, 1, 32), (16382, 4, 2, 1, 64), (16383, 4, 2, 2, 64), (16383, 2, 4, 2, 64),
     (16383, 8, 1, 2, 64), (16382, 8, 2, 1, 32), (16383, 1, 8, 2, 64), (16384, 2, 8, 1, 32)],
)  # fmt: skip
def test_columns_of_rows_that_are_not_aligned(width, itemsize, vector, steps, team) -> None:
    """A block reads 512 bytes of a row, whatever a thread reads at once."""
    plan = choose_launch((16385, width), (0,), [Operand((width, 1), itemsize)], [(0, 1)])
    assert (plan.mode, plan.vector, plan.steps, plan.team) == ("columns", vector, (steps,), team)
    assert plan.tiles * plan.team * plan.vector >= width


@pytest.mark.parametrize(
    ("short", "itemsize", "vector", "rows", "loads"),
    [(2, 4, 2, 8, 1), (3, 4, 1, 4, 3), (16, 4, 4, 1, 4), (17, 4, 1, 0, 4), (2, 1, 2, 8, 1), (9, 8, 1, 0, 4)],
)  # fmt: skip
def test_a_thread_reduces_several_short_rows(short, itemsize, vector, rows, loads) -> None:
    plan = choose_launch((1 << 22, short), (1,), [Operand((short, 1), itemsize)], [(1, 0)])
    assert (plan.mode, plan.rows, plan.unroll) == ("rows", rows, loads)
    if rows:
        assert (plan.vector, plan.team) == (vector, 1)
        assert plan.grid[0] * plan.threads * rows >= 1 << 22
    else:
        assert plan.team > 1
    few = choose_launch((5000, short), (1,), [Operand((short, 1), itemsize)], [(1, 0)])
    assert few.rows == 0  # every row its own thread, so that all multiprocessors have some


@pytest.mark.parametrize(
    ("shape", "itemsize", "vector"),
    [((400, 784), 4, 1), ((400, 5000), 4, 4), ((400, 2400), 4, 2), ((400, 784), 2, 2)],
)
def test_columns_of_small_arrays_occupy_many_multiprocessors(shape, itemsize, vector) -> None:
    plan = choose_launch(shape, (0,), [Operand((shape[1], 1), itemsize)], [(0, 1)])
    assert (plan.mode, plan.vector, plan.team) == ("columns", vector, 8)
    assert plan.tiles * plan.team * plan.vector >= shape[1]


@pytest.mark.parametrize(
    ("short", "vector", "apart"), [(2, 4, True), (3, 2, True), (8, 1, False), (9, 4, False)]
)
def test_columns_of_few_elements_are_written_by_neighbouring_threads(short, vector, apart) -> None:
    plan = choose_launch((short, 1 << 22), (0,), [Operand((1 << 22, 1), 4)], [(0, 1)])
    assert (plan.mode, plan.vector, plan.apart) == ("columns", vector, apart)
    assert plan.tiles * plan.team * plan.vector >= 1 << 22


def test_parts_of_columns_run_at_once() -> None:
    plan = choose_launch((1 << 14, 1 << 14), (0,), [Operand((1 << 14, 1), 4)], [(0, 1)])
    assert plan.grid == (128, 4)  # 512 of the 528 blocks that run at once
