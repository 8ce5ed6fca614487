"""A capture of another library, on another thread and unknown to gpuinterop, stays valid whatever is called here.

tests/captures/test_capture.py has the call that breaks one, see docs/understand/captures.md, and captures on streams
that are in use.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from doubles import driver

import gpuinterop as gi

pytestmark = pytest.mark.driver

CALLS = {
    "allocate": lambda x: [gi.empty(1 << 20, device="cuda:0") for _ in range(4)],
    "launch": gi.exp,
    "first kernel": lambda x: gi.ElementwiseKernel(
        "float32 x", "float32 y", "y = x + 0.125f", "unseen"
    )(x),
    "upload and download": lambda x: gi.CudaNdarray(np.ones(9, "f4"), device="cuda:0").get(),
    "capture and replay": lambda x: gi.capture(lambda a: a + 1, x)(),
    "free": lambda x: [x + i for i in range(9)],
    "empty cache": lambda x: gi.empty_cache(),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_unknown_capture_on_another_thread_survives(name):
    x, stream = gi.ones(1000, device="cuda:0"), driver.new_stream()
    gi.exp(x)
    gi.synchronize("cuda:0")
    with ThreadPoolExecutor(1) as elsewhere:
        capture = elsewhere.submit(driver.Capture, stream, driver.Capture.THREAD_LOCAL).result()
        CALLS[name](x)
        assert elsewhere.submit(capture.finish).result() == 0
    driver.destroy_stream(stream)
