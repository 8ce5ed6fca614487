"""Operands and results with any strides; no byte outside the result is written."""

import math

import numpy as np
import pytest
from doubles import fake_driver
from doubles.on_fake import FAKE
from helpers.layouts import pair, recipes, shapes
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st

import gpuinterop as gi

QUICK = examples(60)


@QUICK
@given(data=st.data())
def test_results_land_in_any_view_and_nowhere_else(device, data):
    shape = data.draw(shapes())
    _, hx, _, x = pair(data.draw(recipes(shape)), np.float32, 1, device)
    _, hy, _, y = pair(data.draw(recipes(shape)), np.float32, 2, device)
    canvas, hz, base, z = pair(data.draw(recipes(shape, may_repeat=False)), np.float32, 3, device)
    assert gi.subtract(x, y, out=z) is z
    np.subtract(hx, hy, out=hz)
    np.testing.assert_array_equal(base.get(), canvas)


def test_several_results_with_different_alignments(device):
    host = (np.arange(201 * 201) % 113 - 50).reshape(201, 201).astype("float32")
    x = gi.GpuArray(host, device=device)
    for view in (lambda a: a[1:132, 3:200], lambda a: a.T[1:132, 2:199]):
        for begins in ((0, 7), (7, 0)):
            canvas, ours = np.zeros((2, 26_000), "f4"), gi.zeros((2, 26_000), device=device)
            for module, source, to in ((np, host, canvas), (gi, x, ours)):
                places = (
                    c[b : b + 131 * 197].reshape(131, 197) for c, b in zip(to, begins, strict=True)
                )
                module.divmod(view(source), 7, out=tuple(places))
            np.testing.assert_array_equal(ours.get(), canvas)


@QUICK
@given(
    data=st.data(), dtype=st.sampled_from(["int8", "float16", "float32", "float64", "complex128"])
)
def test_copies_of_any_view_into_any_view(device, data, dtype):
    shape = data.draw(shapes())
    _, hx, _, x = pair(data.draw(recipes(shape)), dtype, 1, device)
    canvas, hz, base, z = pair(data.draw(recipes(shape, may_repeat=False)), dtype, 3, device)
    z[...] = x
    hz[...] = hx
    np.testing.assert_array_equal(base.get(), canvas)


@QUICK
@given(data=st.data(), dtype=st.sampled_from(["bool", "int16", "float32", "float64", "complex128"]))
def test_fills_of_any_view(device, data, dtype):
    shape = data.draw(shapes())
    canvas, hz, base, z = pair(data.draw(recipes(shape, may_repeat=False)), dtype, 3, device)
    z.fill(1)
    hz[...] = 1
    np.testing.assert_array_equal(base.get(), canvas)


@QUICK
@given(data=st.data())
def test_operands_that_overlap_their_result(device, data):
    """In place, shifted, reversed and transposed over itself: as if the inputs were copied first."""
    n = data.draw(st.sampled_from([2, 5, 16, 40, 70]))
    host = np.random.default_rng(5).integers(-50, 50, (n, n)).astype(np.float32)
    base = gi.GpuArray(host, device=device)
    views = {
        "itself": lambda a: a, "transposed": lambda a: a.T, "reversed": lambda a: a[::-1],
        "mirrored": lambda a: a[:, ::-1], "first row": lambda a: a[:1], "a column": lambda a: a[:, :1],
        "turned": lambda a: a[::-1, ::-1].T,
    }  # fmt: skip
    first, second = (data.draw(st.sampled_from(sorted(views))) for _ in range(2))
    out = data.draw(st.sampled_from(["itself", "transposed", "reversed", "turned"]))
    expected = np.broadcast_to(views[first](host) + 2 * views[second](host), (n, n))
    doubled = views[second](base) * 2
    gi.add(views[first](base), doubled, out=views[out](base))
    np.testing.assert_array_equal(views[out](base).get(), expected)


@pytest.mark.parametrize("name", ["isfinite", "isinf", "isnan", "signbit"])
@pytest.mark.parametrize("step", [2, -1, -2])
@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_predicates_write_into_any_view(name, step, dtype):
    # NumPy writes 16 answers and more at once where the processor can.
    host = np.arange(40).astype(dtype) - 20
    if dtype != "int32":
        host[::3] = np.nan
        host[1::7] = np.inf
    x, canvas = gi.GpuArray(host, device="cpu"), gi.zeros(80, dtype=bool, device="cpu")
    ask, places = getattr(gi, name), range(80)[::step][:40]
    ask(x, out=canvas[::step][:40])
    expected = np.zeros(80, bool)
    expected[places] = ask(x).get()
    np.testing.assert_array_equal(canvas.get(), expected)
    single = {"isfinite": math.isfinite, "isinf": math.isinf, "isnan": math.isnan}.get(name)
    if single is not None:
        assert expected[places].tolist() == [single(v) for v in host.tolist()]


@examples(300)
@given(data=st.data())
def test_an_operand_is_copied_where_out_overlaps_it_and_nowhere_else(data):
    """Against the sets of all places."""
    n = data.draw(st.integers(1, 3))
    shape = [data.draw(st.integers(1, 4)) for _ in range(n)]
    host = np.arange(400, dtype=np.int16)
    base = gi.GpuArray(host, device="cpu")
    layouts = [
        (
            [data.draw(st.integers(-9, 9).filter(bool)) for _ in shape],
            data.draw(st.integers(100, 300)),
        )
        for _ in "xy"
    ]
    x, out = (base._restrided(shape, *layout) for layout in layouts)
    read, written = (
        at + np.einsum("i...,i->...", np.indices(shape), steps) for steps, at in layouts
    )
    with gi.count_copies() as copies:
        try:
            gi.negative(x, out=out)
        except gi.ContiguityError:  # elements of out share a place
            return
    expected = host.copy()
    expected[written] = -host[read]
    np.testing.assert_array_equal(base.get(), expected)
    overlap = bool(np.intersect1d(read, written).size) and not np.array_equal(read, written)
    assert copies.count == overlap


@pytest.fixture(scope="module")
def far(device):
    """int8 memory of two parts that are more than 2^31 elements apart; only pages that are used cost memory."""
    if FAKE:
        fake_driver.set_memory(8 << 30)
    yield gi.empty((2, 2**31 + 1009), "int8", device=device)
    if FAKE:
        gi.empty_cache()
        fake_driver.set_memory(1 << 30)


@pytest.mark.parametrize(
    "shape", [(3, 37), (3, 1001), (7, 5, 3), (70, 70), (3, 5, 33, 40)], ids=str
)
@pytest.mark.parametrize("swapped", [False, True], ids=["rows", "columns"])
def test_views_over_more_than_31_bits(far, shape, swapped):
    size = math.prod(shape)
    view = far[:, 8 : 8 + size].reshape(2, *shape, copy=False)
    host = (np.arange(2 * size) * 29 % 61).astype("int8").reshape(2, *shape)
    if swapped:
        view, host = view.swapaxes(-1, -2), host.swapaxes(-1, -2)
    view[...] = host
    np.testing.assert_array_equal(view.get(), host)
    np.testing.assert_array_equal((view + view[..., :1]).get(), host + host[..., :1])
    halves = view.astype("float16")
    np.testing.assert_array_equal((halves - view[:, ::-1]).get(), host - host[:, ::-1])
    gi.negative(view.copy()[:, ::-1], out=view)
    np.testing.assert_array_equal(view[..., :-1].get(), -host[:, ::-1][..., :-1])
    assert int(view.sum()) == -int(host.sum())
