"""`explain` against what really happens while a stream is captured: every library, here and there."""

from __future__ import annotations

import contextlib
import ctypes

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import _core, converters

LIBRARIES = ("pycuda", "numba", "cudamat", "gnumpy", "cupy")


def _host():
    return np.arange(24, dtype="float32").reshape(4, 6)


LAYOUTS = {
    "plain": lambda x: x,
    "transposed": lambda x: x.T,
    "strided": lambda x: x[::2, ::-1],
    "empty": lambda x: x[:0],
    "readonly": lambda x: _readonly(x),
}


def _readonly(x):
    x = x[:]
    x.readonly = True
    return x


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


def used_before(x, stream):
    return x


def used_on_another_stream(x, stream):
    with gi.stream(stream):
        x.fill(2)
    return x


STATES = (outside, inside, beside)


def _outcome(x, to, copyif):
    """The plan, and the error of the conversion that comes after it."""
    plan = gi.explain(x, to, copyif)
    try:
        gi.to(x, to, copyif)
    except gi.GpuInteropError as error:
        return plan, error
    return plan, None


def _compare(x, to, copyif, label):
    plan, error = _outcome(x, to, copyif)
    label = f"{label} to {to} copyif={copyif}: {plan}; the conversion said: {error!r}"
    assert plan.refused == (error is not None), label
    if error is not None:
        assert type(error) is plan.error, label
        assert (error.reason, error.expected, error.got, error.fix) == (
            plan.code, plan.reason, plan.got, plan.fix,
        ), label  # fmt: skip
    return error


@pytest.fixture
def libraries(pycuda, numba, cudamat, gnumpy, cupy, monkeypatch):
    monkeypatch.setattr(
        converters.library_streams, "ENTERS", {}
    )  # CuPy's scope needs a runtime library
    x = gi.array(_host(), device="cuda")
    for to in LIBRARIES:  # what is loaded at a first use is no concern of a capture
        gi.to(x, to, True)
    return LIBRARIES


@pytest.mark.parametrize("used", [used_before, used_on_another_stream])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_from_ours(libraries, layout, state, used):
    errors = []
    stream = gi.Stream()
    for to in (*libraries, "numpy"):
        for copyif in (False, True):
            for written_inside in (False, True):
                x = used(gi.array(_host(), device="cuda"), stream)
                label = f"{layout} {state.__name__} {used.__name__} {written_inside}"
                with state(stream):
                    if written_inside and state is not beside:
                        x += 1
                    errors.append(_compare(LAYOUTS[layout](x), to, copyif, label))
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
                errors.append(_compare(x, to, copyif, f"{source} {state.__name__}"))
    refused = any(isinstance(e, gi.CaptureError) for e in errors)
    assert refused == (state is inside)


def test_what_a_capture_recorded_reaches_nobody_beside_it(libraries):
    x, stream = gi.array(_host(), device="cuda"), gi.Stream()
    with gi.stream(stream), gi.capture(device="cuda"):
        x += 1
        with gi.stream(gi.Stream()):
            for to in (*libraries, "numpy"):
                assert type(_compare(x, to, True, "recorded")) is gi.CaptureError


def test_a_capture_of_a_blocking_stream_bars_the_legacy_one(libraries, driver):
    g = gi.to_gpuarray(gi.array(_host(), device="cuda"))
    stream, graph = gi.Stream(blocking=True), ctypes.c_void_p()
    driver.check("cuStreamBeginCapture_v2", ctypes.c_void_p(stream.handle), 2)
    try:
        with gi.stream(stream):
            assert type(_compare(g, "gpuinterop", False, "blocking")) is gi.CaptureError
    finally:
        driver.check("cuStreamEndCapture", ctypes.c_void_p(stream.handle), ctypes.byref(graph))


def test_a_host_capture_gives_no_array_to_others(libraries):
    with gi.capture(device="cpu"):
        for x in (_host(), gi.zeros((2, 3), device="cpu")):
            for to in ("numpy", "buffer"):
                assert type(_compare(x, to, False, "host")) is gi.CaptureError


def test_asking_leaves_no_trace_in_the_graph(libraries):
    x = gi.array(_host(), device="cuda")
    with gi.stream(gi.Stream()):
        x.fill(1)
    gi.synchronize()  # else the graph has a node that waits for the fill
    with gi.capture(device="cuda") as graph:
        x += 1
        for to in (*libraries, "numpy"):
            assert gi.explain(x, to, True).refused
        last = x._stream
        assert x._stream == last
    assert graph.nodes == 1


def test_the_rules_alone():
    x = gi.array(_host(), device="cuda")
    s = gi.Stream()
    _core.require_hand_over(x, s.handle, "test")
    _core.require_wait(0, s.handle, 1, "test")
    _core.require_copies(0, True, "test")
    with gi.capture(device="cuda"):
        x += 1
        for ask in (
            lambda: _core.require_hand_over(x, 1, "test"),
            lambda: _core.require_wait(0, 1, _core.current_stream_handle(0), "test"),
            lambda: _core.require_copies(0, True, "test"),
        ):
            with pytest.raises(gi.CaptureError) as raised:
                ask()
            assert raised.value.where == "test"
