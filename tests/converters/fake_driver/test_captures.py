"""What another library may not be given while a stream is captured."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cases import agree

import gpuinterop as gi
from gpuinterop import converters

LIBRARIES = ("pycuda", "numba", "cudamat", "gnumpy", "cupy")


def _host():
    return np.arange(24, dtype="float32").reshape(4, 6)


LAYOUTS = {
    "plain": lambda x: x,
    "transposed": lambda x: x.T,
    "strided": lambda x: x[::2, ::-1],
    "empty": lambda x: x[:0],
}


@pytest.fixture
def libraries(pycuda, numba, cudamat, gnumpy, cupy, monkeypatch):
    monkeypatch.setattr(
        converters.library_streams, "ENTERS", {}
    )  # CuPy's scope needs a runtime library
    x = gi.array(_host(), device="cuda")
    for to in LIBRARIES:  # what is loaded at a first use is no concern of a capture
        gi.to(x, to, True)
    return LIBRARIES


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_capture_recorded_goes_to_no_library_on_another_stream(libraries, layout):
    x = gi.array(_host(), device="cuda")
    with gi.capture(device="cuda"):
        x += 1
        for to in (*libraries, "numpy"):
            if layout == "empty":
                gi.to(LAYOUTS[layout](x), to, True)
                continue
            with pytest.raises(gi.CaptureError):
                gi.to(LAYOUTS[layout](x), to, True)


def test_a_capture_of_a_blocking_stream_bars_the_legacy_one(libraries, driver):
    g = gi.to_gpuarray(gi.array(_host(), device="cuda"))
    stream, graph = gi.Stream(blocking=True), ctypes.c_void_p()
    driver.check("cuStreamBeginCapture_v2", ctypes.c_void_p(stream.handle), 2)
    try:
        with gi.stream(stream), pytest.raises(gi.CaptureError):
            gi.from_any(g)
    finally:
        driver.check("cuStreamEndCapture", ctypes.c_void_p(stream.handle), ctypes.byref(graph))


def test_a_host_capture_gives_no_array_to_others(libraries):
    with gi.capture(device="cpu"):
        for x in (_host(), gi.zeros((2, 3), device="cpu")):
            for to in ("numpy", "buffer"):
                assert type(agree(x, to, False)[2]) is gi.CaptureError
