"""Functions that are one plan on a GPU, also those whose results are counted there: `unique`, `isin`, masks, sorts."""

import itertools

import numpy as np
import pytest
from helpers.profile import PACKAGE, functions_of
from test_sort import values_of

import gpuinterop as gi
from gpuinterop.sorting import distinct


def equal(found, expected):
    np.testing.assert_array_equal(found.get(), expected, strict=True)


# Places counted by threads, sorted by a block and by sweeps; several tiles of heads.
@pytest.mark.parametrize("n", [1, 31, 5000, 9000])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float32", "complex64"])
def test_unique_of_every_form(device, dtype, n):
    host = values_of(dtype, (n,))
    x = gi.GpuArray(host, device=device)
    for equal_nan in (True, False):
        # With indices NumPy's sort is stable too, so that distinct NaN have one order.
        expected = np.unique(host, True, True, True, equal_nan=equal_nan)
        for which in itertools.product((False, True), repeat=3):
            found = gi.unique(x, *which, equal_nan=equal_nan)
            if not any(which):
                equal(found, np.unique(host, equal_nan=equal_nan))
                continue
            parts = [expected[0], *itertools.compress(expected[1:], which)]
            for one, part in zip(found, parts, strict=True):
                equal(one, part)


@pytest.mark.parametrize("n", [100, 9000])
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_few_different_digits(device, dtype, n):
    host = np.random.default_rng(0).integers(0, 9, n).astype(dtype)
    x = gi.GpuArray(host, device=device)
    equal(gi.sort(x), np.sort(host))
    equal(gi.argsort(x), np.argsort(host, kind="stable"))
    for one, part in zip(gi.unique_all(x), np.unique_all(host), strict=True):
        equal(one, part)


def test_inverse_that_is_written_in_order_of_memory(device, monkeypatch):
    monkeypatch.setattr(distinct, "FAR", 8500)
    for n in (8600, 20_001, 1_100_000):  # the last one by two sweeps
        host = values_of("float32", (n,))
        found = gi.unique_inverse(gi.GpuArray(host, device=device))
        equal(found.inverse_indices, np.unique_all(host).inverse_indices)


@pytest.mark.parametrize("shape", [(9000,), (3, 4000), (2,) * 12])
def test_places_of_masks(device, shape):
    mask = np.random.default_rng(0).random(shape) > 0.9
    m, values = gi.GpuArray(mask, device=device), np.arange(mask.size, dtype="f4").reshape(shape)
    for found, expected in zip(gi.nonzero(m), np.nonzero(mask), strict=True):
        equal(found, expected)
    equal(gi.argwhere(m), np.argwhere(mask))
    equal(gi.flatnonzero(m), np.flatnonzero(mask))
    x = gi.GpuArray(values, device=device)
    equal(x[m], values[mask])
    values[mask] = np.arange(mask.sum())
    x[m] = np.arange(mask.sum(), dtype="f4")
    equal(x, values)


def test_axes_beyond_the_most_results_of_a_plan(device):
    mask = np.zeros((2,) * 17, bool)
    mask[1, 0, ..., 1] = True
    found = gi.nonzero(gi.GpuArray(mask, device=device))
    for one, expected in zip(found, np.nonzero(mask), strict=True):
        equal(one, expected)


@pytest.mark.parametrize("n", [1, 100, 9000])
@pytest.mark.parametrize("dtype", ["float32", "int64", "complex64"])
def test_isin_of_every_form(device, dtype, n):
    host, tests = values_of(dtype, (20, 30)), values_of(dtype, (n,), 1)
    x, t = gi.GpuArray(host, device=device), gi.GpuArray(tests, device=device)
    for invert in (True, False):
        equal(gi.isin(x, t, invert=invert), np.isin(host, tests, invert=invert))
        equal(gi.isin(x.T, t[::2], invert=invert), np.isin(host.T, tests[::2], invert=invert))


CALLS = {
    "nonzero": lambda x, m: gi.nonzero(m),
    "compress": lambda x, m: gi.compress(m, x),
    "argwhere": lambda x, m: gi.argwhere(m),
    "flatnonzero": lambda x, m: gi.flatnonzero(m),
    "unique": lambda x, m: gi.unique(x),
    "unique_values": lambda x, m: gi.unique_values(x),
    "isin": lambda x, m: gi.isin(x, x),
    "sort": lambda x, m: gi.sort(x),
    "argsort": lambda x, m: gi.argsort(x),
    "stable argsort": lambda x, m: gi.argsort(x, kind="stable"),
    "sort with options": lambda x, m: gi.sort(x, stable=True, descending=True),
    "repeat": lambda x, m: gi.repeat(x, 2),
    "norm": lambda x, m: gi.norm(x),
    "norm over two axes": lambda x, m: gi.norm(x.reshape(1, -1), None, (0, 1)),
    "linalg.norm": lambda x, m: gi.linalg.norm(x.T, axis=0),
    "linalg.vector_norm": lambda x, m: gi.linalg.vector_norm(x),
}


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_compressed_vectors(device, dtype):
    host, mask = values_of(dtype, (9000,)), np.random.default_rng(0).random(9000) > 0.9
    m = gi.GpuArray(mask, device=device)
    for cls in (gi.GpuArray, gi.CudaNdarray)[: 1 + (dtype == "float32")]:
        x = cls(host, device=device)
        for axis in (None, 0, -1):
            found = gi.compress(m, x, axis)
            equal(found, np.compress(mask, host, axis))
            assert type(found) is cls
        equal(gi.compress(m, x[::-1]), host[::-1][mask])
        equal(gi.compress(m[:4000], x), host[:4000][mask[:4000]])


@pytest.mark.parametrize(
    "name", ["norm", "norm over two axes", "linalg.norm", "linalg.vector_norm"]
)
def test_cached_norms_on_each_device_run_no_function_of_the_package(device, name):
    x = gi.GpuArray(np.arange(12, dtype="f4").reshape(3, 4), device=device)
    assert not functions_of(lambda: CALLS[name](x, None), PACKAGE)


def test_a_capture_records_plans_whose_shapes_are_known(device):
    host = values_of("int64", (9000,))
    x, tests = gi.GpuArray(host, device=device), gi.GpuArray(host[::3].copy(), device=device)
    with gi.capture(device=device) as graph:
        found = gi.sort(x), gi.argsort(x), gi.isin(x, tests), gi.repeat(x, 2)
        for call in (gi.unique, gi.unique_all, gi.nonzero):
            with pytest.raises(gi.CaptureError):
                call(x)
    other = host[::-1].copy()
    x[...] = gi.GpuArray(other, device=device)
    graph.replay()
    equal(found[0], np.sort(other))
    equal(found[1], np.argsort(other, kind="stable"))
    equal(found[2], np.isin(other, host[::3]))
    equal(found[3], np.repeat(other, 2))


NAMED = {
    "unique_all": lambda x, m: gi.unique_all(x),
    "unique_counts": lambda x, m: gi.unique_counts(x),
    "unique_inverse": lambda x, m: gi.unique_inverse(x),
}


@pytest.mark.driver
@pytest.mark.parametrize("call", [*CALLS, *NAMED])
@pytest.mark.parametrize("n", [100, 9000])
def test_a_cached_call_on_a_gpu_runs_no_function_of_the_package(call, n):
    x = gi.GpuArray(np.arange(n, dtype="f4") % 7, device="cuda:0")
    mask = x > 3
    assert not functions_of(lambda: (CALLS | NAMED)[call](x, mask), PACKAGE)


def test_an_axis_of_nested_tuples_is_refused(device):
    axis = ()
    for _ in range(100_000):
        axis = (axis,)
    with pytest.raises((TypeError, RecursionError)):
        gi.norm(gi.ones((2, 2), device=device), None, axis)
