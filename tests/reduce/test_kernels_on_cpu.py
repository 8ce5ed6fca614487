"""The reductions' kernel text, run on the CPU by fibers, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from doubles import host_kernels

from gpuinterop.ops import reduction_plan
from gpuinterop.ops.reduction_codegen import ACCUMULATOR_BYTES, pack_params, render
from gpuinterop.ops.reduction_plan import Operand, plan_reduction
from gpuinterop.ops.reduction_table import REDUCTIONS, recipe_for

pytestmark = pytest.mark.text


def elements(array: np.ndarray) -> tuple[int, ...]:
    return tuple(s // array.itemsize for s in array.strides)


def operand(array: np.ndarray) -> Operand:
    address = array.__array_interface__["data"][0]
    return Operand(elements(array), array.itemsize, min(address & -address, 16))


def run(
    op: str, x: np.ndarray, axes: tuple[int, ...], *, sms: int = 1, ddof: int = 0, last: int = -1,
    dtype: Any = None,
) -> np.ndarray:  # fmt: skip
    """`op` through the same plan, text and parameters as on a GPU.

    The block that comes last is that of the last part, or with `last=0` that of the first.
    """
    row = REDUCTIONS[op]
    kept = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    out = np.full(kept, 77, row.result(x.dtype) if dtype is None else dtype)
    inputs = [x]
    if row.shifted:
        first = x[tuple(slice(0, 1) if i in axes else slice(None) for i in range(x.ndim))]
        inputs.append(np.broadcast_to(first, x.shape))
    recipe = recipe_for(op, x.dtype, out.dtype, shift=x.dtype if row.shifted else None)
    strides = iter(elements(out))
    full = [0 if i in axes else next(strides) for i in range(x.ndim)]
    plan = plan_reduction(
        x.shape,
        axes,
        [operand(a) for a in inputs],
        [full],
        ordered=recipe.ordered,
        multiprocessors=sms,
    )
    library = host_kernels.load(render(recipe, plan))
    params = bytearray(pack_params(recipe, plan, ddof))
    assert len(params) == library.sizes(1)
    assert library.sizes(0) <= ACCUMULATOR_BYTES
    scratch = np.full(plan.geometry.n_out * plan.splits * library.sizes(0) + 1, 255, np.uint8)

    def put(at: int, address: int) -> None:
        params[at : at + 8] = address.to_bytes(8, "little")

    shifts = (*plan.geometry.in_shifts, *plan.geometry.out_shifts)
    for i, (a, shift) in enumerate(zip((*inputs, out), shifts, strict=True)):
        put(8 * i, a.__array_interface__["data"][0] + shift * a.itemsize)
    scratch_at = 8 * len(shifts)
    put(scratch_at, scratch.ctypes.data)
    tickets = np.zeros(plan.grid[0], np.uint32)
    put(scratch_at + 8, tickets.ctypes.data)
    library.host_order(int(last == 0))
    first = library[f"gi_reduce_{plan.mode}"]
    host_kernels.launch(first, plan.grid, plan.threads, bytes(params))
    assert not tickets.any()  # as the next launch wants them
    if plan.finish_grid:
        second = library[f"gi_finish_{plan.mode}"]
        host_kernels.launch(second, (plan.finish_grid,), plan.threads, bytes(params))
    return out


def layouts() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    base = rng.standard_normal((9, 14, 24)).astype(np.float32)
    return {
        "c": base,
        "f": np.asfortranarray(base),
        "transposed": base.transpose(1, 2, 0),
        "stepped": base[:, ::2, ::3],
        "reversed": base[::-1, :, ::-1],
        "broadcast": np.broadcast_to(base[:, :1], (9, 5, 24)),
        "odd": base[:, :, 1:],
        "aligned slice": base[1:, :, 4:20],
        "size 1": base[:, :1, :1],
        "empty": base[:, :0],
    }


AXES = [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]


def spread(first, second):
    """Every pair; each value of both is in a pair of the quick suite, the other pairs are slow."""
    turns = max(len(first), len(second))
    quick = {(first[i % len(first)], second[i % len(second)]) for i in range(turns)}
    return [
        pytest.param(a, b, marks=[] if (a, b) in quick else pytest.mark.slow)
        for a in first
        for b in second
    ]


@pytest.mark.parametrize(("layout", "axes"), spread(sorted(layouts()), AXES))
def test_sum_over_layouts_and_axes(layout: str, axes: tuple[int, ...]) -> None:
    x = layouts()[layout]
    expected = x.astype(np.float64).sum(axis=axes)
    bound = np.abs(x.astype(np.float64)).sum(axis=axes)
    got = run("sum", x, axes)
    assert got.shape == expected.shape
    assert np.all(np.abs(got - expected) <= 6e-8 * np.abs(expected) + 2e-7 * bound)


@pytest.mark.parametrize(
    ("op", "axes"),
    spread(
        ["prod", "mean", "min", "max", "any", "all", "var", "std"],
        [(0,), (2,), (0, 2), (0, 1, 2)],
    ),
)
def test_operations(op: str, axes: tuple[int, ...]) -> None:
    x = layouts()["reversed"]
    if op in ("any", "all"):
        x = np.where(np.abs(x) > 1.5, 0, x).astype(np.float32)
    expected = getattr(np, op)(x.astype(np.float64), axis=axes)
    np.testing.assert_allclose(run(op, x, axes), expected, rtol=3e-6, atol=1e-30)


@pytest.mark.parametrize("op", ["argmin", "argmax"])
@pytest.mark.parametrize(
    ("layout", "axes"),
    spread(["c", "f", "reversed", "odd", "stepped"], [(0,), (1,), (2,), (0, 1, 2)]),
)
def test_positions_are_the_first_of_equals(op: str, layout: str, axes: tuple[int, ...]) -> None:
    x = np.round(layouts()[layout] * 2).astype(np.float32)
    expected = getattr(np, op)(x, axis=None if len(axes) == 3 else axes[0])
    np.testing.assert_array_equal(run(op, x, axes), expected)
    y = x.copy()
    y[4, 3 % y.shape[1], 2] = y[7, 1, 5] = np.nan
    np.testing.assert_array_equal(
        run(op, y, axes), getattr(np, op)(y, axis=None if len(axes) == 3 else axes[0])
    )


@pytest.mark.parametrize("launches", [1, 2])
@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_parts_are_joined(mode: str, launches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long enough to be cut into parts even for one multiprocessor.
    monkeypatch.setattr(reduction_plan, "ONE_LAUNCH_PARTS", 1000 if launches == 1 else 0)
    rng = np.random.default_rng(1)
    x = rng.standard_normal(140_003).astype(np.float32)
    axes: tuple[int, ...] = (0,)
    if mode == "columns":
        x = x[:140_000].reshape(20_000, 7)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(run("sum", x, axes), exact.sum(axis=0), rtol=1e-6, atol=1e-4)
    np.testing.assert_array_equal(run("argmax", x, axes), np.argmax(x, axis=0))
    np.testing.assert_allclose(run("var", x, axes, ddof=1), exact.var(axis=0, ddof=1), rtol=1e-6)


@pytest.mark.parametrize("shape", [(150_000,), (20_000, 9), (40_000, 3)], ids=str)
@pytest.mark.parametrize("axis", [0])
def test_bits_do_not_depend_on_which_block_is_last(shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    axes = (axis % len(shape),)
    first, second = (run("sum", x, axes, sms=2, last=last) for last in (0, -1))
    assert first.tobytes() == second.tobytes()
    np.testing.assert_allclose(first, x.astype(np.float64).sum(axis), rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("kind", ["rows", "columns"])
@pytest.mark.parametrize(("threads", "loads"), [(128, 1), (512, 8)])
def test_what_the_benchmark_turns(
    kind: str, threads: int, loads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = reduction_plan.Tuning(threads, 4, loads, side=64)
    monkeypatch.setitem(reduction_plan.TUNING, kind, tuned)
    x = np.random.default_rng(6).standard_normal((20_000, 12)).astype(np.float32)
    for case in (x, x[:333], x.ravel())[slice(2) if kind == "columns" else slice(2, 3)]:
        got = run("sum", case, (0,), sms=2)
        np.testing.assert_allclose(got, case.astype(np.float64).sum(0), rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("team", [1, 4, 16])
def test_parts_are_joined_by_any_number_of_threads(
    team: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(3).standard_normal((10_000, 7)).astype(np.float32)
    monkeypatch.setattr(reduction_plan, "ONE_LAUNCH_PARTS", 0)
    monkeypatch.setattr(reduction_plan, "_finish_team", lambda *sizes: team)
    np.testing.assert_allclose(
        run("sum", x, (0,), sms=4), x.astype(np.float64).sum(axis=0), rtol=1e-6, atol=1e-4
    )
    np.testing.assert_array_equal(run("argmin", x, (0,), sms=4), np.argmin(x, axis=0))


def test_one_launch_unless_one_block_had_too_much_to_join() -> None:
    tall = plan_reduction((1 << 22, 64), (0,), [Operand((64, 1), 4)], [(0, 1)])
    assert tall.mode == "columns"
    assert tall.splits > 500
    assert (tall.one_launch, tall.finish_team, tall.finish_grid) == (False, 2, 32)
    side = 1 << 14
    for axes, strides in (((0,), (0, 1)), ((0, 1), (0, 0))):
        square = plan_reduction((side, side), axes, [Operand((side, 1), 4)], [strides])
        assert square.splits > 1
        assert (square.one_launch, square.finish_grid) == (True, 0)
        assert square.grid[0] * square.grid[1] >= 132 * 4


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
@pytest.mark.parametrize("stride", [0, 1])
def test_narrow_indices_hold_the_end_of_the_last_part(itemsize: int, stride: int) -> None:
    narrow = 0
    for n in range((1 << 31) - 400_000, (1 << 31) + 20_000, 1009):
        plan = plan_reduction((n,), (0,), [Operand((stride,), itemsize)], [(0,)])
        assert plan.splits > 1
        assert plan.wide or plan.splits * plan.chunk < 1 << 31
        narrow += not plan.wide
    assert narrow


@pytest.mark.parametrize(
    ("strides", "mode", "vector"),
    [((1, 8192), "columns", 4), ((8192, 1), "rows", 4), ((-1, 8192), "columns", 1)],
)
def test_the_matrix_says_how_it_is_walked_not_the_vector(
    strides: tuple[int, int], mode: str, vector: int
) -> None:
    inputs = [Operand(strides, 4), Operand((0, 1), 4)]
    for order in (inputs, inputs[::-1]):
        plan = plan_reduction((8192, 8192), (1,), order, [(1, 0)])
        assert (plan.mode, plan.vector) == (mode, vector)
        assert plan.grid[0] * plan.grid[1] >= 132 * 4  # every multiprocessor is busy


def test_a_sum_of_floats_does_not_lose_small_terms() -> None:
    # 1 followed by 65,536 terms that a running float32 sum would drop one and all.
    x = np.full(65_537, 2.0**-25, np.float32)
    x[0] = 1
    exact = x.astype(np.float64).sum()
    for shape, axes in [((65_537,), (0,)), ((65_537, 1), (0,))]:
        got = run("sum", x.reshape(shape), axes)
        assert abs(float(np.ravel(got)[0]) - exact) <= np.spacing(np.float32(exact))


def test_infinities_and_nans_survive_compensation() -> None:
    x = np.ones((6, 40), np.float32)
    x[0, 3] = np.inf
    x[1, 3] = -np.inf
    x[2, 3], x[2, 9] = np.inf, -np.inf
    x[3, 7] = np.nan
    x[4, :2] = 3e38
    with np.errstate(all="ignore"):
        for axes in ((1,), (0,)):
            np.testing.assert_array_equal(run("sum", x, axes), x.sum(axis=axes))


SUMMED = ["bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float64", "complex64"]


@pytest.mark.parametrize(("dtype", "axes"), spread(SUMMED, [(0, 1), (0,), (1,)]))
def test_dtypes(dtype: str, axes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    x = (rng.integers(-50, 50, (13, 32))).astype(dtype)
    if dtype == "complex64":
        x = (x + 1j * rng.integers(-9, 9, x.shape)).astype(dtype)
    np.testing.assert_array_equal(run("sum", x, axes), x.sum(axis=axes))
    np.testing.assert_array_equal(run("any", x, axes), x.any(axis=axes))
    np.testing.assert_allclose(run("mean", x, axes), x.mean(axis=axes), rtol=1e-6, atol=1e-6)
    if dtype != "complex64":
        np.testing.assert_array_equal(run("max", x, axes), x.max(axis=axes))
