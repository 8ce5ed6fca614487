"""Dask computes with gpuinterop chunks what NumPy computes, and needs no line of registration."""

import json
import time

import numpy as np
import pytest
from doubles import driver, host_kernels
from doubles.on_fake import FAKE

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


def graph(name, device="cpu"):
    """The case as a collection of Dask."""
    x = gi.GpuArray(HOST, device=device)
    return CASES[name](da, chunked(x, (6, 8) if name in TALL else ((5, 7), (3, 5))))


def check(name, found):
    assert isinstance(found, gi.GpuArray)
    np.testing.assert_allclose(found.get(), CASES[name](np, HOST), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_functions_give_what_numpy_gives(name):
    check(name, graph(name).compute())


# gpuinterop borrows these from CuPy on a GPU, and the fake driver has no CuPy.
BORROWED = {"nansum", "median", "histogram", "bincount", "tril"}
# Dask's own indices, and numbers on which a shape or a decision depends. A chunk has 60 bytes or more.
NUMBERS = {"indices", "take", "argmax", "argmin", "mask", "unique", "svd", "std"}


@pytest.mark.driver
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES.keys() - BORROWED))
def test_chunks_on_a_gpu_stay_there(name):
    made = graph(name, "cuda:0")
    with gi.log_transfers() as log:
        found = made.compute()
    assert found.device == "cuda:0"
    assert all(transfer.bytes < 60 for transfer in log) if name in NUMBERS else not log, str(log)
    check(name, found)


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


@pytest.fixture(scope="module")
def cluster():
    """A client of two processes, and their addresses."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        dask.config.set({"distributed.worker.daemon": False}),
        distributed.LocalCluster(processes=True, **options) as made,
        distributed.Client(made, set_as_default=False) as client,
    ):
        if FAKE:
            client.run(host_kernels.install)
        yield client, sorted(client.scheduler_info()["workers"])


def make(shape, shareable, device="cpu"):
    new = gi.shared_empty if shareable else gi.empty
    x = new(shape, device=device)
    x[...] = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    return x


def look(x):
    return type(x).__name__, x.strides, x.readonly, x[0, 0].item()


def write(x):
    x[0, 0] = -5


def leases():
    from gpuinterop.processes import service

    return [entry.leases for entry in service._owner.entries.values()] if service._owner else []


@pytest.mark.timeout(600)
def test_a_cluster_of_two_processes_computes_what_numpy_computes(cluster, device):
    client, _ = cluster
    names = [name for name in CASES if device == "cpu" or name not in BORROWED]
    assert len(names) >= 40
    made = client.compute([graph(name, device) for name in names])
    for name, found in zip(names, client.gather(made), strict=True):
        check(name, found)
        assert found.device == device


@pytest.mark.timeout(240)
@pytest.mark.parametrize("shareable", [True, False])
def test_workers_of_one_machine_have_one_memory_if_it_can_be_shared(shareable, cluster, device):
    """On a GPU both workers use the same one."""
    client, (first, second) = cluster
    x = client.submit(
        lambda: make((200, 300), shareable, device)[:, ::-1], workers=first, pure=False
    )
    expected = ("CudaNdarray", (1200, -4), False, 299.0)
    assert client.submit(look, x, workers=second).result() == expected
    assert client.run(leases)[first] == [1] * shareable
    client.submit(write, x, workers=second, pure=False).result()
    there = client.submit(look, x, workers=first, pure=False).result()
    assert (there != expected) == shareable
    assert look(x.result())[:3] == expected[:3]  # by way of the scheduler
    del x
    for _ in range(200):
        if not client.run(leases)[first]:
            return
        time.sleep(0.05)
    raise AssertionError("the owner keeps the memory")


@pytest.mark.timeout(240)
def test_sharing_between_workers_can_be_switched_off(cluster):
    client, (first, second) = cluster
    client.run(lambda: dask.config.set({"gpuinterop.share": False}).__enter__() and None)
    try:
        x = client.submit(make, (200, 300), True, workers=first, pure=False)
        client.submit(look, x, workers=second).result()
        assert client.run(leases)[first] == []
    finally:
        client.run(lambda: dask.config.set({"gpuinterop.share": True}).__enter__() and None)


HERE = {
    "pickle-protocol": 5,
    "sender": {"address": "tcp://10.0.0.1:1"},
    "recipient": {"address": "tcp://10.0.0.1:2"},
}
ELSEWHERE = {
    "another machine": HERE | {"recipient": {"address": "tcp://10.0.0.2:2"}},
    "the scheduler, which passes it on": HERE | {"pickle-protocol": 4},
    "no address": HERE | {"sender": {}}, "a file": None,
}  # fmt: skip


def sent(x, context, serializers=None):
    serialize = pytest.importorskip("distributed.protocol").serialize
    return serialize(x, serializers, context=context, on_error="raise")


def received(header, frames):
    from distributed.protocol import deserialize

    return deserialize(header, frames)


def test_what_is_sent_as_a_handle(tmp_path):
    x = make((200, 300), True)
    header, frames = sent(x.T, HERE)
    assert (header["serializer"], frames) == ("dask", [])
    y = received(header, frames)
    assert (y.ptr, y.strides) == (x.ptr, x.T.strides)
    with pytest.raises(gi.ExchangeError, match="released"):
        received(header, frames)  # it can be opened once
    for context in ELSEWHERE.values():
        assert sent(x, context)[0]["serializer"] == "pickle"
    # Anybody may shorten a file with a name, which ends its readers.
    named = gi.from_any(np.memmap(tmp_path / "file", "f8", "w+", shape=60000))
    for other in (x[:2], make((200, 300), False), gi.zeros((0, 5), device="cpu"), named):
        assert sent(other, HERE)[0]["serializer"] == "pickle"


def test_a_handle_that_nobody_opens_is_withdrawn_after_a_while(monkeypatch):
    from gpuinterop.processes import service

    x = make((200, 300), True)
    monkeypatch.setattr(service, "ONCE_SECONDS", -1.0)
    header, frames = sent(x, HERE)
    live = len(service.owner().entries)
    sent(x, HERE)
    assert len(service.owner().entries) == live
    with pytest.raises(gi.ExchangeError, match="released"):
        received(header, frames)


@pytest.mark.driver
@pytest.mark.parametrize("name", ["whole", "transposed", "reversed", "gaps", "read-only"])
def test_memory_of_a_gpu_is_a_frame_for_ucx(name):
    x = gi.GpuArray(np.arange(24.0).reshape(4, 6), device="cuda:0")
    x = {"transposed": x.T, "reversed": x[::-1, ::-1], "gaps": x[:, 1]}.get(name, x)
    x.readonly = name == "read-only"
    with gi.log_transfers() as log:
        header, frames = sent(x, HERE, ["cuda"])
        y = received(header, [frame.copy() for frame in frames])  # as a transport does
    assert (header["serializer"], len(frames), len(log)) == ("cuda", 1, 0)
    assert (type(y), y.device, y.readonly, y.tolist()) == (
        type(x),
        x.device,
        x.readonly,
        x.tolist(),
    )
    assert [s > 0 for s in y.strides] == [s > 0 for s in x.strides]


@pytest.mark.driver
def test_shared_memory_of_a_gpu_is_sent_as_a_handle():
    x = make((200, 300), True, "cuda:0")
    with gi.log_transfers() as log:
        header, frames = sent(x, HERE)
        y = received(header, frames)
    assert (header["serializer"], y.ptr, len(log)) == ("dask", x.ptr, 0)
    assert sent(make((200, 300), False, "cuda:0"), HERE)[0]["serializer"] == "pickle"
