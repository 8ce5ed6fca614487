"""Machine code that the driver does not take."""

import pytest
from doubles import driver, fake_driver

# One for each place that loads code.
WAYS = {
    "elementwise": "gi.exp(x)",
    "reduction": "gi.sum(x)",
    "raw kernel": "gi.RawKernel('extern \"C\" __global__ void k(float* x) {}', 'k')((1,), (1,), x)",
}
# The others take seconds to compile.
QUICK = [pytest.param(way, marks=[] if way == "elementwise" else pytest.mark.slow) for way in WAYS]

PROGRAM = """
import gpuinterop as gi
from doubles import fake_driver

x = gi.zeros((4, 4), device="cuda:0")
for code in (209, 200, 2):  # NO_BINARY_FOR_GPU, INVALID_IMAGE, OUT_OF_MEMORY
    fake_driver.fail("cuModuleLoadDataEx", code)
    try:
        {way}
    except gi.GpuInteropError as error:
        print(type(error).__name__, "cuModuleLoadDataEx" in str(error), "update the driver" in str(error))
{way}
"""


@pytest.mark.parametrize("way", QUICK)
def test_refused_code_is_an_error_and_a_later_call_loads_it(way, tmp_path, nvrtc):
    text = PROGRAM.format(way=WAYS[way])
    answer = driver.run(text, fake_driver.library(), GPUINTEROP_CACHE_DIR=str(tmp_path))
    assert answer.splitlines() == [
        "CudaError True True", "CudaError True True", "OutOfMemoryError True False",
    ]  # fmt: skip
