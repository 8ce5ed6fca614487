"""Dask computes with gpuinterop chunks what NumPy computes, and needs no line of registration."""

import importlib
import importlib.util
import json
import sys
from contextlib import nullcontext

import numpy as np
import pytest
from doubles import driver

import gpuinterop as gi

pytest.importorskip("dask.array")
import dask
import dask.array as da

HOST = np.random.RandomState(0).rand(12, 8).astype("float32") - 0.5
TALL = {"qr", "svd"}  # need chunks that hold whole rows
CASES = {
    "add": lambda xp, a: a + a,
    "numbers": lambda xp, a: 2 * a - 1,
    "exp": lambda xp, a: xp.exp(a),
    "where": lambda xp, a: xp.where(a > 0, a, 0 * a),
    "maximum": lambda xp, a: xp.maximum(a, 0.1),
    "clip": lambda xp, a: xp.clip(a, -0.1, 0.1),
    "astype": lambda xp, a: a.astype("float64"),
    "round": lambda xp, a: xp.round(a, 1),
    "isnan": lambda xp, a: xp.isnan(a),
    "sum": lambda xp, a: a.sum(axis=0),
    "mean": lambda xp, a: a.mean(axis=1),
    "std": lambda xp, a: a.std(),
    "var": lambda xp, a: a.var(axis=0),
    "max": lambda xp, a: a.max(axis=1),
    "min": lambda xp, a: a.min(),
    "prod": lambda xp, a: a.prod(axis=1),
    "any": lambda xp, a: (a > 0).any(axis=0),
    "all": lambda xp, a: (a > 0).all(),
    "argmax": lambda xp, a: a.argmax(axis=0),
    "argmin": lambda xp, a: a.argmin(axis=1),
    "nansum": lambda xp, a: xp.nansum(a, axis=0),
    "cumsum": lambda xp, a: xp.cumsum(a, axis=0),
    "diff": lambda xp, a: xp.diff(a, axis=0),
    "average": lambda xp, a: xp.average(a, axis=0),
    "median": lambda xp, a: xp.median(a, axis=0),
    "norm": lambda xp, a: xp.linalg.norm(a),
    "count_nonzero": lambda xp, a: xp.count_nonzero(a > 0),
    "histogram": lambda xp, a: xp.histogram(a, bins=5, range=(-0.5, 0.5))[0],
    "bincount": lambda xp, a: xp.bincount((a[:, 0] * 10 + 5).astype("int64"), minlength=12),
    "unique": lambda xp, a: xp.unique(xp.round(a, 1)),
    "matmul": lambda xp, a: a @ a.T,
    "tensordot": lambda xp, a: xp.tensordot(a, a.T, axes=1),
    "einsum": lambda xp, a: xp.einsum("ij,kj->ik", a, a),
    "outer": lambda xp, a: xp.outer(a[0], a[1]),
    "qr": lambda xp, a: abs(xp.linalg.qr(a)[1]),
    "svd": lambda xp, a: xp.linalg.svd(a, **({} if xp is da else {"full_matrices": False}))[1],
    "transpose": lambda xp, a: a.T + a.T,
    "reshape": lambda xp, a: a.reshape(96),
    "concatenate": lambda xp, a: xp.concatenate([a, a]),
    "stack": lambda xp, a: xp.stack([a, a]),
    "block": lambda xp, a: xp.block([[a, a], [a, a]]),
    "slices": lambda xp, a: a[1:9:2, ::-1],
    "indices": lambda xp, a: a[[3, 1, 7]],
    "mask": lambda xp, a: a[a > 0],
    "take": lambda xp, a: xp.take(a, [1, 2], axis=1),
    "flip": lambda xp, a: xp.flip(a, 0),
    "roll": lambda xp, a: xp.roll(a, 3, axis=0),
    "pad": lambda xp, a: xp.pad(a, 1, mode="constant"),
    "repeat": lambda xp, a: xp.repeat(a, 2, axis=0),
    "tile": lambda xp, a: xp.tile(a, (2, 1)),
    "broadcast_to": lambda xp, a: xp.broadcast_to(a, (2, 12, 8)),
    "tril": lambda xp, a: xp.tril(a[:8]),
}


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


def chunked(x, chunks=((5, 7), (3, 5))):
    return da.from_array(x, chunks=chunks, asarray=False)


def mine(host=HOST):
    return gi.GpuArray(host, device="cpu")


@pytest.mark.parametrize("name", CASES)
def test_functions_give_what_numpy_gives(name):
    x = chunked(mine(), (6, 8) if name in TALL else ((5, 7), (3, 5)))
    found = CASES[name](da, x).compute()
    assert isinstance(found, gi.GpuArray)
    np.testing.assert_allclose(found.get(), CASES[name](np, HOST), rtol=1e-4, atol=1e-5)


def test_percentiles_are_those_of_dask_with_numpy():
    chunks = 4
    expected = da.percentile(
        da.from_array(HOST[:, 0].copy(), chunks=chunks), [25, 50, 75]
    ).compute()
    found = da.percentile(
        da.from_array(mine(HOST[:, 0].copy()), chunks=chunks, asarray=False), [25, 50, 75]
    )
    np.testing.assert_allclose(np.asarray(found.compute()), expected, rtol=1e-6)


def test_arrays_are_chunks_beside_dask_arrays():
    x, ones = mine(), da.ones((12, 8), chunks=5, dtype="float32")
    for total in (ones + x, x + ones):
        assert isinstance(total, da.Array)
        np.testing.assert_allclose(np.asarray(total.compute()), HOST + 1)


def test_sizeof_counts_the_bytes_of_the_elements():
    from dask.sizeof import sizeof

    x = mine()
    assert sizeof(x) == sizeof(x.T) == HOST.nbytes
    assert sizeof(x[::2]) == HOST.nbytes // 2
    assert sizeof(gi.broadcast_to(x[:1], (12, 8))) == 32
    assert sizeof(x[:0]) == 0


MADE = {
    "ones": lambda: da.ones((3, 4), chunks=2),
    "zeros": lambda: da.zeros(5, chunks=2, dtype="int32"),
    "full": lambda: da.full((2, 2), 7.0),
    "arange": lambda: da.arange(10, chunks=3),
    "empty": lambda: da.empty((3, 2), chunks=2),
}


@pytest.mark.parametrize("name", MADE)
def test_the_backend_makes_gpuinterop_chunks(name):
    expected = MADE[name]()
    with dask.config.set({"array.backend": "gpuinterop"}):
        made = MADE[name]()
    found = made.compute()
    assert isinstance(made._meta, gi.GpuArray)
    assert isinstance(found, gi.GpuArray)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if name != "empty":
        assert found.tolist() == expected.compute().tolist()


def test_collections_change_their_backend():
    x = da.ones((4, 4), chunks=2).to_backend("gpuinterop")
    assert isinstance(x.compute(), gi.GpuArray)
    assert x.to_backend("gpuinterop") is x
    assert type(x.to_backend("numpy").compute()) is np.ndarray


def test_dask_imports_no_core_before_an_array_meets_it():
    program = "import sys, json, dask.array; print(json.dumps('gpuinterop._core' in sys.modules))"
    assert json.loads(driver.python("-c", program).stdout) is False


@pytest.mark.timeout(240)
def test_a_cluster_of_two_processes_computes_with_views():
    distributed = pytest.importorskip("distributed")
    with (
        dask.config.set({"distributed.worker.daemon": False}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
        dask.config.set(scheduler=client),
    ):
        x = chunked(mine()[:, ::-1])
        found = (x.T @ x).compute()
        assert isinstance(found, gi.GpuArray)
        np.testing.assert_allclose(
            found.get(), HOST[:, ::-1].T @ HOST[:, ::-1], rtol=1e-4, atol=1e-5
        )
        moved = client.submit(lambda a: (a.strides, gi.exp(a).sum().item()), mine().T)
        strides, total = moved.result()
        assert strides == mine().T.strides
        assert abs(total - np.exp(HOST).sum()) < 1e-3


def test_the_hook_waits_for_an_import_that_succeeds(tmp_path, monkeypatch):
    from gpuinterop.dask import _AfterImport

    name, calls = "a_module_that_comes_later", []
    finder = _AfterImport(name, lambda: calls.append(name in sys.modules))
    monkeypatch.syspath_prepend(tmp_path)
    sys.meta_path.insert(0, finder)
    for text, error in ((None, ModuleNotFoundError), ("1 / 0", ZeroDivisionError), ("", None)):
        if text is not None:
            (tmp_path / f"{name}.py").write_text(text)
            importlib.invalidate_caches()
        assert bool(importlib.util.find_spec(name)) == (text is not None)  # a look is no import
        assert finder in sys.meta_path
        with pytest.raises(error) if error else nullcontext():
            importlib.import_module(name)
    assert calls == [True]
    assert finder not in sys.meta_path
    del sys.modules[name]
