"""`explain` against what really happens while a stream is captured: every library, here and there."""

from __future__ import annotations

import contextlib
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


@contextlib.contextmanager
def outside(stream):
    yield


@contextlib.contextmanager
def inside(stream):
    with gi.capture(device="cuda"):
        yield


@contextlib.contextmanager
def beside(stream):
    """Another stream is captured than the current one."""
    with gi.capture(device="cuda"), gi.stream(stream):
        yield


STATES = (outside, inside, beside)


@pytest.fixture
def libraries(pycuda, numba, cudamat, gnumpy, cupy, monkeypatch):
    monkeypatch.setattr(
        converters.library_streams, "ENTERS", {}
    )  # CuPy's scope needs a runtime library
    x = gi.array(_host(), device="cuda")
    for to in LIBRARIES:  # what is loaded at a first use is no concern of a capture
        gi.to(x, to, True)
    return LIBRARIES


@pytest.mark.parametrize("used_before", [False, True])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_from_ours(libraries, layout, state, used_before):
    errors = []
    stream = gi.Stream()
    for to in (*libraries, "numpy"):
        for copyif in (False, True):
            for written_inside in (False, True):
                x = gi.array(_host(), device="cuda")
                if used_before:
                    with gi.stream(stream):
                        x.fill(2)
                with state(stream):
                    if written_inside and state is not beside:
                        x += 1
                    errors.append(agree(LAYOUTS[layout](x), to, copyif)[2])
    refused = any(isinstance(e, gi.CaptureError) for e in errors)
    assert refused == (state is inside and layout != "empty")


# CuPy itself hands over inside a capture, by its runtime library.
PAIRS = [(a, b) for a in LIBRARIES for b in STATES if (a, b) != ("cupy", inside)]


@pytest.mark.parametrize(("source", "state"), PAIRS)
def test_from_another_library(libraries, source, state):
    errors = []
    stream = gi.Stream()
    for to in (*libraries, "numpy", "gpuinterop", "cudandarray"):
        for copyif in (False, True):
            x = gi.to(gi.array(_host(), device="cuda"), source, True)
            with state(stream):
                errors.append(agree(x, to, copyif)[2])
    refused = any(isinstance(e, gi.CaptureError) for e in errors)
    assert refused == (state is inside)


def test_what_a_capture_recorded_reaches_nobody_beside_it(libraries):
    x, stream = gi.array(_host(), device="cuda"), gi.Stream()
    with gi.stream(stream), gi.capture(device="cuda"):
        x += 1
        with gi.stream(gi.Stream()):
            for to in (*libraries, "numpy"):
                assert type(agree(x, to, True)[2]) is gi.CaptureError


def test_a_capture_of_a_blocking_stream_bars_the_legacy_one(libraries, driver):
    g = gi.to_gpuarray(gi.array(_host(), device="cuda"))
    stream, graph = gi.Stream(blocking=True), ctypes.c_void_p()
    driver.check("cuStreamBeginCapture_v2", ctypes.c_void_p(stream.handle), 2)
    try:
        with gi.stream(stream):
            assert type(agree(g, "gpuinterop", False)[2]) is gi.CaptureError
    finally:
        driver.check("cuStreamEndCapture", ctypes.c_void_p(stream.handle), ctypes.byref(graph))


def test_a_host_capture_gives_no_array_to_others(libraries):
    with gi.capture(device="cpu"):
        for x in (_host(), gi.zeros((2, 3), device="cpu")):
            for to in ("numpy", "buffer"):
                assert type(agree(x, to, False)[2]) is gi.CaptureError
