"""A full GPU: MemoryError with figures, nothing lost, and the next allocation works."""

import fcntl
import gc
import tempfile
from pathlib import Path

import pytest

import gpuinterop as gi
from gpuinterop.devices import memory_stats

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def the_only_hoarder():
    """Tests of one run share the GPU among processes; two that fill it would see each other."""
    with (Path(tempfile.gettempdir()) / "gpuinterop-tests-memory.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_allocation_failure_and_recovery():
    gi.empty_cache()
    free, total = gi.mem_info("cuda")
    pool = memory_stats("cuda")["pool_bytes"]
    kept = gi.ones((1 << 20,), device="cuda")
    hoard = []
    chunk = max(free // 16, 1 << 20) // 4 * 4

    def take_everything():
        for _ in range(2 * total // chunk):
            hoard.append(gi.empty(chunk // 4, device="cuda"))

    with pytest.raises(MemoryError, match="bytes free of") as caught:
        take_everything()
    assert str(chunk) in str(caught.value)
    assert len(hoard) >= free // chunk - 1
    # What existed before is intact, and small requests still work or fail cleanly.
    assert kept[-1].item() == 1
    hoard.clear()
    gc.collect()
    again = gi.empty(chunk // 4, device="cuda")
    again[-1] = 3.0
    assert again[-1].item() == 3
    del again
    # More than there is in one request, over and over, holds nothing back.
    before = memory_stats("cuda")["live_bytes"]
    for _ in range(100):
        with pytest.raises(MemoryError):
            gi.empty(total, device="cuda")
    assert memory_stats("cuda")["live_bytes"] == before
    # The driver has the memory back: its pool of this process is as small as before. Other processes may fill the GPU.
    gi.empty_cache()
    assert memory_stats("cuda")["pool_bytes"] < pool + (1 << 30)


def test_cached_memory_is_given_back_under_pressure():
    torch = pytest.importorskip("torch")
    gi.empty_cache()
    torch.cuda.empty_cache()
    # Two of these do not fit into memory together, whatever else the process holds.
    big = gi.mem_info("cuda")[0] * 6 // 10 // 4 * 4
    x = gi.empty(big // 4, device="cuda")
    del x
    # Beyond half of the GPU the driver takes freed memory back at the next synchronisation.
    gi.synchronize()
    y = torch.empty(big // 4, device="cuda")
    del y
    torch.cuda.empty_cache()
    for _ in range(3):
        z = gi.empty(big // 4, device="cuda")
        z[-1] = 1
        assert z[-1].item() == 1
        del z
