"""Whatever the launch geometry, the numbers stay the same."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import _core

GEOMETRIES = (
    {"threads": 128, "flat_bytes": 64, "small": 0},
    {"threads": 512, "small": 0},
    {"threads": 1024, "flat_bytes": 16, "rows_unroll": 1, "small": 0},
    {"blocks": 3, "small": 0},
    {"blocks": 1, "threads": 64, "flat_bytes": 128, "small": 0},
    {"stream": 3, "stream_bytes": 0, "small": 0},
    {"stream": 2, "stream_bytes": 0, "blocks": 2, "threads": 128},
)


@pytest.fixture(params=GEOMETRIES, ids=lambda g: ",".join(f"{k}={v}" for k, v in g.items()))
def geometry(request):
    for knob, value in request.param.items():
        _core._tune(knob, value)
    yield request.param
    _core._tune("defaults")


@pytest.mark.driver
def test_every_geometry_gives_the_same_numbers(device, geometry):
    rng = np.random.default_rng(0)
    host = rng.integers(-99, 99, (37, 263)).astype(np.float32)
    flat = host.ravel()
    x, y = gi.GpuArray(host, device=device), gi.GpuArray(flat, device=device)
    for ours, expected in [
        (gi.negative(y), -flat),
        (gi.add(y, y[::-1]), flat + flat[::-1]),
        (gi.square(y[3::2]), np.square(flat[3::2])),
        (gi.add(y[1:], y[:-1]), flat[1:] + flat[:-1]),
        (x + x[0], host + host[0]),
        (x[:, :1] + x, host[:, :1] + host),
        (x[:, 1:-1] * 2, host[:, 1:-1] * 2),
        (x[:, ::-1] + 1, host[:, ::-1] + 1),
        (gi.add(x, x[::-1].copy()), host + host[::-1]),
        (y.astype("int8"), flat.astype("int8")),
        (y.astype("complex128"), flat.astype("complex128")),
    ]:
        np.testing.assert_array_equal(ours.get(), expected)


def test_a_knob_refuses_what_no_kernel_can_have():
    for value in (0, 48, 2048):
        with pytest.raises(ValueError, match="cannot take"):
            _core._tune("threads", value)
    with pytest.raises(ValueError, match="unknown knob"):
        _core._tune("colour", 1)
