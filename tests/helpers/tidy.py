"""A fixture that checks that a test leaves the driver as it found it."""

import gc

import pytest
from doubles import driver, fake_driver

import gpuinterop as gi
from gpuinterop import devices


@pytest.fixture(autouse=True)
def tidy(request):
    """Each test of the driver leaves the thread's streams and contexts as they were, and no fault."""
    if not any(request.node.get_closest_marker(name) for name in ("driver", "fake_driver")):
        yield
        return
    driver.primary()  # starts the driver
    before = driver.current_context()
    fake = request.config.getoption("--driver") == "fake"
    yield
    driver.Capture.end_all()
    gc.collect()
    gi.synchronize()
    # Where torch or CuPy enters our stream too, the library makes the primary context current.
    assert driver.current_context() in ([before] if fake else [before, driver.primary()])
    assert devices.current_stream("cuda:0").handle == driver.LEGACY
    if fake:
        assert fake_driver.faults() == ""
