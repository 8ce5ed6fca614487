"""Elements that a mask selects, by the kernels that compact it: tails of tiles, and many tiles."""

import numpy as np
import pytest

import gpuinterop as gi


def on(device, host):
    return gi.GpuArray(host, device=device)


def test_long_masks(device):
    """Beyond one tile of the compaction, with tails and misaligned starts."""
    random = np.random.default_rng(0)
    for n in (1, 15, 16, 17, 4095, 4097, 8191, 8193, 40_003):
        for share in (0, 0.02, 0.5, 1):
            host = random.random(n, np.float32)
            chosen = random.random(n) < share
            x, mask = on(device, host), on(device, chosen)
            np.testing.assert_array_equal(x[mask].get(), host[chosen])
            for start in (1, 3):
                np.testing.assert_array_equal(
                    x[start:][mask[start:]].get(), host[start:][chosen[start:]]
                )
            np.testing.assert_array_equal(x[::-1][mask].get(), host[::-1][chosen])
            values = random.random(chosen.sum(), np.float32)
            host[chosen] = values
            x[mask] = on(device, values)
            np.testing.assert_array_equal(x.get(), host)
            np.testing.assert_array_equal(gi.flatnonzero(mask).get(), np.flatnonzero(chosen))


@pytest.mark.gpu
def test_many_tiles():
    """More tiles than one step of the scan has."""
    n = (1 << 25) + 12345
    x = gi.arange(n, dtype="int32", device="cuda")
    mask = (x & 1023) == 5
    found = x[mask]
    assert found.size == np.count_nonzero(np.arange(n) % 1024 == 5)
    np.testing.assert_array_equal(found.get(), np.arange(5, n, 1024))
    x[mask] = -found
    assert int((x < 0).sum()) == found.size
    np.testing.assert_array_equal(x[5::1024].get(), -np.arange(5, n, 1024))
