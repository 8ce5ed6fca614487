"""Collectives over a communicator of nccl4py, on the fake driver; nccl4py itself where it is installed."""

import importlib
import inspect

import every_layout
import pytest
from doubles import driver, fake_nccl
from helpers.threads import in_threads

import gpuinterop as gi
from gpuinterop import collectives

pytestmark = pytest.mark.fake_driver


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_every_layout_over_nccl(dtype):
    ranks = fake_nccl.communicators(2)
    results = in_threads(lambda c: every_layout.main(c, c.rank, 2, "cuda:0", [dtype]), ranks)
    assert results == [([], 208)] * 2
    assert in_threads(lambda c: every_layout.in_place(c, 2, "cuda:0"), ranks) == [[], []]


@pytest.fixture
def alone():
    return fake_nccl.communicators(1)[0]


def test_the_transfer_follows_work_on_other_streams(alone):
    first, second = gi.Stream("cuda"), gi.Stream("cuda")
    x, out = gi.zeros(1000, device="cuda"), gi.zeros((1, 1000), device="cuda")
    gi.synchronize("cuda")
    with first:
        driver.slow(first.handle)
        x.fill(5)
    with second:
        collectives.all_gather(x, out, group=alone)
    assert set(out[0].tolist()) == {5.0}


def test_packing_is_counted_and_forbidden(alone):
    x, out = gi.zeros((3, 4), device="cuda"), gi.zeros((1, 4, 3), device="cuda")
    with gi.count_copies() as counted:
        collectives.all_gather(x.T, out, group=alone)
    assert (counted.count, counted.bytes) == (1, 48)
    with gi.no_copies(), pytest.raises(gi.CopyForbiddenError):
        collectives.all_gather(x.T, out, group=alone)
    with gi.no_copies():
        collectives.all_gather(x, out.reshape(1, 3, 4), group=alone)


def test_an_array_elsewhere_is_refused(alone):
    with pytest.raises(gi.DeviceMismatchError, match="communicator"):
        collectives.all_reduce(gi.zeros(2, device="cpu"), group=alone)


def test_an_error_of_nccl_is_worded(alone, monkeypatch):
    def fails(*arguments, **options):
        raise RuntimeError("unhandled system error")

    monkeypatch.setattr(fake_nccl.Communicator, "allreduce", fails)
    with pytest.raises(gi.ExchangeError, match="unhandled system error"):
        collectives.all_reduce(gi.zeros(2, device="cuda"), group=alone)
    with pytest.raises(gi.DTypeError):
        collectives.all_reduce(gi.zeros(2, "complex64", device="cuda"), group=alone)


METHODS = "send recv broadcast allreduce reduce_scatter allgather gather scatter alltoall".split()


def test_the_double_has_the_signatures_of_nccl4py():
    real = pytest.importorskip("nccl.core").Communicator
    for name in METHODS:
        wanted, found = (
            inspect.signature(getattr(c, name)) for c in (real, fake_nccl.Communicator)
        )
        assert [(p.name, p.kind, p.default) for p in wanted.parameters.values()] == [
            (p.name, p.kind, p.default) for p in found.parameters.values()
        ], name


def test_nccl4py_reads_what_it_is_given():
    buffers = pytest.importorskip("nccl.core.buffer")
    x = gi.zeros((3, 4), device="cuda")
    x.readonly = True
    own = importlib.import_module("gpuinterop.collectives.nccl")
    read = buffers.NcclBuffer(own._bytes(x))
    assert (read.ptr, read.count, read.dtype.name, read.device_id) == (x.ptr, 48, "UINT8", 0)
