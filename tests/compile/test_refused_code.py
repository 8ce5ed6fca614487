"""Kept machine code that the driver at hand does not take: of another driver, of another GPU."""

from pathlib import Path

import pytest
from doubles import driver, fake_driver

from gpuinterop import jit
from gpuinterop.jit.cache import DiskCache

NO_BINARY_FOR_GPU, INVALID_IMAGE, OUT_OF_MEMORY = 209, 200, 2

# One for each place that loads code.
WAYS = {
    "elementwise": "gi.exp(x)",
    "reduction": "gi.sum(x)",
    "raw kernel": "gi.RawKernel('extern \"C\" __global__ void k(float* x) {}', 'k')((1,), (1,), x)",
}
# The others take seconds to compile.
QUICK = [pytest.param(way, marks=[] if way == "elementwise" else pytest.mark.slow) for way in WAYS]

PROGRAM = """
import ctypes, os
import gpuinterop as gi
from gpuinterop import CudaError

driver = ctypes.CDLL(os.environ["GPUINTEROP_LIBCUDA"])
x = gi.zeros((4, 4), device="cuda:0")
driver.fakecuda_fail(b"cuModuleLoadDataEx", {code}, 0, {times})
try:
    {way}
except gi.GpuInteropError as error:
    print(type(error).__name__, error)
print("loads", driver.fakecuda_calls(b"cuModuleLoadDataEx"))
"""


class Folder:
    """A folder of kernels and programs that use it, each in a process of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kernels = path / "gpuinterop"

    def run(self, way: str, code: int = 0, times: int = 0) -> str:
        text = PROGRAM.format(way=WAYS[way], code=code, times=times)
        return driver.run(text, fake_driver.library(), GPUINTEROP_CACHE_DIR=str(self.path))

    def kept(self) -> dict[str, bytes]:
        keys = [p.stem.removeprefix("gpuinterop-") for p in self.kernels.glob("*.cubin")]
        return {key: DiskCache(self.kernels).get(key) or b"" for key in keys}

    def spoil(self) -> None:
        """Entries from another machine: intact, but not usable on this one."""
        for key in self.kept():
            DiskCache(self.kernels).put(key, b"\x7fELF of another driver")


@pytest.fixture
def folder(tmp_path, nvrtc):
    return Folder(tmp_path)


@pytest.mark.parametrize("way", QUICK)
def test_refused_code_is_compiled_anew_and_replaced(folder, way):
    loads = folder.run(way)
    good = folder.kept()
    assert len(good) == 1
    folder.spoil()
    assert folder.kept() != good
    answer = folder.run(way, NO_BINARY_FOR_GPU, 1)
    assert "Error" not in answer
    assert int(answer.split()[-1]) == int(loads.split()[-1]) + 1
    assert folder.kept() == good
    assert folder.run(way) == loads


@pytest.mark.parametrize("way", QUICK)
def test_fresh_code_that_is_refused_too_is_an_error(folder, way):
    for code in (NO_BINARY_FOR_GPU, INVALID_IMAGE):
        answer = folder.run(way, code, 2)
        assert answer.startswith("CudaError")
        assert "cuModuleLoadDataEx" in answer
        assert "update the driver" in answer
        assert answer.split()[-1] == "2"


def test_other_failures_are_not_the_entrys_fault(folder):
    answer = folder.run("elementwise", OUT_OF_MEMORY, 1)
    assert answer.startswith("OutOfMemoryError")
    assert answer.split()[-1] == "1"


@pytest.mark.gpu
@pytest.mark.parametrize("way", QUICK)
def test_code_for_another_gpu_is_replaced(folder, way):
    """Cubins of an architecture that the device cannot run, under the names of those that it can."""
    program = f"import gpuinterop as gi\nx = gi.zeros((4, 4), device='cuda:0')\n{WAYS[way]}\ngi.synchronize()"
    driver.run(program, GPUINTEROP_CACHE_DIR=str(folder.path))
    good = folder.kept()
    other = jit.compile_source(
        'extern "C" __global__ void k(float* x) {}', min(jit.supported_archs()), use_cache=False
    )
    for key in good:
        DiskCache(folder.kernels).put(key, other)
    driver.run(program, GPUINTEROP_CACHE_DIR=str(folder.path))
    assert folder.kept() == good
