"""Conversions while a stream is captured: what a graph cannot hold raises, and reaches no library."""

import numpy as np
import pytest
from doubles import driver, internals
from helpers.cases import agree

import gpuinterop as gi

LIBRARIES = ("pycuda", "numba", "cudamat", "gnumpy", "cupy")
HOST = np.arange(24, dtype="float32").reshape(4, 6)


@pytest.fixture
def libraries(pycuda, numba, cudamat, gnumpy, cupy, monkeypatch):
    internals.enter_streams_by(monkeypatch)  # CuPy's needs a runtime library
    x = gi.array(HOST, device="cuda")
    for to in LIBRARIES:  # so that the capture includes no first use
        gi.to(x, to, True)
    return LIBRARIES


def test_conversion_of_a_captured_array_is_refused_in_the_capture(libraries):
    x, view = gi.array(HOST, device="cuda"), gi.array(HOST, device="cuda")[::2, ::-1]
    with gi.capture(device="cuda"):
        x += 1
        view += 1
        for to in (*libraries, "numpy"):
            for y in (x, x.T, view):
                with pytest.raises(gi.CaptureError):
                    gi.to(y, to, True)
            assert gi.to(x[:0], to, True).shape[1:] == (6,)


@pytest.mark.parametrize("source", [name for name in LIBRARIES if name != "cupy"])
def test_inside_a_capture_arrays_of_other_libraries_can_be_read(libraries, source):
    foreign = gi.to(gi.array(HOST, device="cuda"), source, True)
    with gi.capture(device="cuda"):
        for own in ("gpuinterop", "cudandarray"):
            assert gi.to(foreign, own).shape == (4, 6)
        with pytest.raises(gi.CaptureError):
            gi.to(foreign, "numpy", True)


def test_beside_a_capture_conversions_go_on(libraries):
    stream = gi.Stream()
    for to in (*libraries, "numpy", "gpuinterop"):
        x = gi.array(HOST, device="cuda")
        with gi.capture(device="cuda"), gi.stream(stream):
            for copyif in (False, True):
                agree(x, to, copyif)


def test_conversion_of_a_captured_array_is_refused_on_another_stream(libraries):
    x, stream = gi.array(HOST, device="cuda"), gi.Stream()
    with gi.stream(stream), gi.capture(device="cuda"):
        x += 1
        with gi.stream(gi.Stream()):
            for to in (*libraries, "numpy"):
                with pytest.raises(gi.CaptureError):
                    gi.to(x, to, True)


def test_a_capture_of_a_blocking_stream_bars_the_legacy_one(libraries):
    g = gi.to_gpuarray(gi.array(HOST, device="cuda"))
    stream = gi.Stream(blocking=True)
    capture = driver.Capture(stream.handle, driver.Capture.RELAXED)
    with gi.stream(stream), pytest.raises(gi.CaptureError):
        gi.from_any(g).copy()
    capture.finish()


def test_a_host_capture_gives_no_array_to_other_libraries(libraries):
    with gi.capture(device="cpu"):
        for x in (HOST, gi.zeros((2, 3), device="cpu")):
            for to in ("numpy", "buffer"):
                assert type(agree(x, to)[2]) is gi.CaptureError
