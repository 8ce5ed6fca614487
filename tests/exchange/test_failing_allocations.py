"""No exchange frees memory twice, or loses it, when Python cannot allocate an object on the way."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from peers import environment, freed, has_compiler, library, start_counting, with_table

import gpuinterop as gi
from gpuinterop import _core

testcapi = pytest.importorskip("_testcapi")
pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


def round_trip_by_table(x):
    return _core.import_any(None, _core.export_via(x, gi.GpuArray))


def round_trip_by_capsule(x):
    return _core.import_any(None, x.__dlpack__(max_version=(1, 3)))


def round_trip_by_numpy(x):
    return _core.import_any(None, np.from_dlpack(x))


def round_trip_by_torch(x):
    import torch

    return _core.import_any(None, _core.export_via(x, torch.Tensor))


def fail_every_allocation(body) -> int:
    """Run `body` with one allocation failing, the first, the second and so on."""
    x = _core.import_any(None, with_table(0))
    start_counting()
    failed, step = 0, 0
    while step < failed + 3:  # until three calls in a row have not needed as many allocations
        testcapi.set_nomemory(step, step + 1)
        try:
            body(x)
        except BaseException:
            failed = step + 1
        finally:
            testcapi.remove_mem_hooks()
        step += 1
    assert failed
    assert freed() == 0
    assert np.from_dlpack(body(x)).tolist() == [[0, 1, 2], [3, 4, 5]]
    del x
    gc.collect()
    assert freed() == 1
    return failed


BODIES = {
    "table": round_trip_by_table,
    "capsule": round_trip_by_capsule,
    "numpy": round_trip_by_numpy,
    "torch": round_trip_by_torch,
}


@pytest.mark.parametrize(
    "name", ["table", "capsule", "numpy", pytest.param("torch", marks=pytest.mark.torch)]
)
def test_every_allocation_fails_once(name):
    program = [sys.executable, str(Path(__file__).resolve()), name]
    run = subprocess.run(program, env=environment(), capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]


TEXTS = """
import gpuinterop as gi
from gpuinterop import _core
from peers import peer

x = gi.zeros(3, device="cpu")
failed = 0
for n in range(8):
    peer().peer_fail_new(n)
    try:
        _core._require_values("a text that std::string allocates for", x)
    except MemoryError:
        failed += 1
    finally:
        peer().peer_fail_new(-1)
assert failed
"""


@pytest.mark.skipif(
    "GPUINTEROP_SANITIZED" in os.environ,
    reason="not under AddressSanitizer: it brings an operator new of its own",
)
def test_a_text_without_memory_for_it_is_an_error():
    program, env = [sys.executable, "-c", TEXTS], environment(LD_PRELOAD=str(library()))
    run = subprocess.run(program, env=env, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]


if __name__ == "__main__":
    BODIES[sys.argv[1]](_core.import_any(None, with_table(0)))  # what the first use makes
    fail_every_allocation(BODIES[sys.argv[1]])
