"""Collectives of arrays on a GPU over an MPI that reads GPU memory, as if on the fake driver, whose memory it reads."""

import importlib

import numpy as np
import pytest
from doubles import driver
from helpers.mpi import load_mpi

import gpuinterop as gi
from gpuinterop import collectives

pytestmark = pytest.mark.fake_driver
HOST = np.arange(12, dtype="float32").reshape(3, 4) + 1


@pytest.fixture
def alone(monkeypatch):
    group = load_mpi().COMM_SELF
    engine = importlib.import_module("gpuinterop.collectives.mpi")
    monkeypatch.setattr(engine, "reads_gpu_memory", lambda: True)
    return group


@pytest.mark.parametrize("layout", ["in place", "packed"])
def test_mpi_follows_the_work_on_the_array_and_its_packing(layout, alone):
    """MPI has no streams, so the host waits for both."""
    with gi.Stream("cuda") as stream:
        x, out = gi.zeros((3, 4), device="cuda"), gi.zeros((4, 3), device="cuda")
        gi.synchronize("cuda")
        driver.slow(stream.handle)
        x[...] = HOST
        if layout == "in place":
            collectives.all_gather(x.T, out[None], group=alone)
        else:
            collectives.all_reduce(x.T, out, group=alone)
        assert out.tolist() == HOST.T.tolist()
