"""Launches of a RawKernel on the fake driver, which copies its arguments as the real one does."""

import subprocess

import pytest
from doubles import driver, fake_driver

# What stands for machine code: `scale` multiplies by a double, `by_value` takes an array with its strides,
# a bool and a short, `none` takes nothing, and of `undescribed` the driver reports no parameters.
HOST = """
#define KERNEL(name) extern "C" void name(const unsigned*, const unsigned*, unsigned, void** a)
#define SIZES(name) extern "C" const unsigned name##_parameters[]
KERNEL(scale) { **(float**)a[0] *= *(double*)a[1]; }
SIZES(scale) = {8, 8, 0};
KERNEL(by_value) {}
SIZES(by_value) = {40, 1, 2, 0};
KERNEL(none) {}
SIZES(none) = {0};
KERNEL(undescribed) {}
"""

START = """
import gc
import numpy as np
import gpuinterop as gi
from doubles.fake_driver import calls, clear_log
from gpuinterop.jit import raw_kernel

raw_kernel.compile_source = lambda *_, **__: b"FAKECUDA:{library}"
scale, by_value, none, undescribed = (
    gi.RawKernel("", name) for name in ("scale", "by_value", "none", "undescribed"))
x = gi.ones(4, device="cuda:0")

def outcome(function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except gi.GpuInteropError as error:
        return f"{{type(error).__name__}}: {{error}}"
    return "launched"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    source, library = folder / "kernels.cpp", folder / "kernels.so"
    source.write_text(HOST)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)

    def run(program: str, **environment: str) -> str:
        text = START.format(library=library) + program
        return driver.run(
            text, fake_driver.library(), GPUINTEROP_CACHE_DIR=str(folder), **environment
        )

    return run


def test_arguments_of_the_declared_number_and_size(run):
    output = run("""
scale((1,), (1,), x, np.float64(3))
print(x[0].item())
before = calls("cuLaunchKernel")
for arguments in [(x,), (x, np.float32(4)), (x, np.float64(4), x), (x, x, np.int8(1))]:
    print(outcome(scale, (1,), (1,), *arguments))
print(outcome(none, (1,), (1,), x))
print(x[0].item(), calls("cuLaunchKernel") - before)
others = np.bool_(True), np.int16(2)
print(outcome(by_value, (1,), (1,), gi.strided(x), *others))
by_value((1,), (1,), gi.strided(x.reshape(2, 2)), *others)
none((1,), (1,))
undescribed((1,), (1,), x, np.float32(1))
""")
    lines = output.splitlines()
    assert lines[0] == "3.0"
    assert "3.0 0" in lines
    assert output.count("ArgumentTypeError: scale: expected 2") == 4
    assert output.count("ArgumentTypeError: none: expected 0") == 1
    assert "40 1 2" in output.partition("ArgumentTypeError: by_value: ")[2]
    for got in ("bytes: 8\n", "8 4\n", "8 8 8\n", "8 8 1\n"):
        assert got in output


def test_warm_launches_ask_the_driver_nothing(run):
    output = run("""
scale((1,), (1,), x, np.float64(2))
gi.synchronize()
clear_log()
for _ in range(5):
    scale((1,), (1,), x, np.float64(2))
print(calls("cuLaunchKernel"), calls("cuFuncGetParamInfo"), calls("cuFuncGetAttribute"))
gi.synchronize()
""")
    assert output == "5 0 0\n"


def test_grid_or_block_beyond_the_device_limits_is_refused(run):
    output = run("""
for grid, block in [((1,), 2000), (1, (32, 32, 2)), (1, (1, 1, 65)), ((1, 65536), 1),
                    ((1, 1, 65536), 1), (1, (2**31 - 1,) * 3)]:
    print(outcome(scale, grid, block, x, np.float64(1)))
for grid in (0,), (-1,), (-(2**70),), (2**31,), (2**70,), (1, 1, 1, 1):
    try:
        scale(grid, (1,), x, np.float64(1))
    except ValueError as error:
        assert "grid" in str(error)
    else:
        raise AssertionError(grid)
print(calls("cuLaunchKernel"))
scale((2**31 - 1,), (1024,), x, np.float64(1))
""")
    assert output.count("ShapeError: scale: expected a block") == 4
    assert output.count("ShapeError: scale: expected a grid") == 2


def test_a_raw_kernel_in_pycudas_wrapper(run):
    output = run("""
copying = gi.converters.pycuda.kernel(scale, copyif=True)
copying(x[::2], np.float64(3), block=(1, 1, 1))
before = calls("cuLaunchKernel")
copying(x[::2], np.float64(3), block=(1, 1, 1))
print("launches:", calls("cuLaunchKernel") - before)
""")
    assert output == "launches: 3\n"  # a copy in, the kernel, a copy back


def test_a_module_is_unloaded_with_its_kernel(run):
    output = run("""
scale((1,), (1,), x, np.float64(2))
del scale
gc.collect()
print(calls("cuModuleUnload"))
""")
    assert output == "1\n"


@pytest.mark.parametrize("foreign", [False, True])
def test_a_module_stays_for_the_graph_that_launches_it(run, foreign):
    record = """
with gi.capture(device="cuda:0") as graph:
    scale((1,), (1,), x, np.float64(2))
"""
    if foreign:  # a capture that another library began on the current stream
        record = """
from doubles.driver import Capture
stream = gi.Stream("cuda:0")
with stream:
    graph = Capture(stream.handle)
    scale((1,), (1,), x, np.float64(2))
    graph.end()
    graph.replay = lambda: graph.launch(stream.handle)
"""
    output = run(f"""
scale((1,), (1,), x, np.float64(1))
{record}
del scale
gc.collect()
print(calls("cuModuleUnload"))
graph.replay()
gi.synchronize()
print(x[0].item(), calls("cuModuleUnload"))
""")
    assert output == "0\n2.0 0\n"


def test_a_kernel_without_extern_c(run, nvrtc):
    output = run('''
raw_kernel.compile_source = gi.jit.compile_source
text = """
__global__ void multiply_them(float *dest, float *a, float *b) { dest[0] = a[0] * b[0]; }
"""
print(outcome(gi.RawKernel(text, "multiply_them"), (1,), (4,), x, x, x))
print(outcome(gi.RawKernel(text, "multiply"), (1,), (4,), x, x, x))
from gpuinterop import _core
code = gi.jit.compile_source(text, 90)
try:  # the fake driver knows the symbols of a cubin
    _core._load_kernel(0, code, "multiply_them", "multiply_them")
except gi.CudaError:
    print("not by this name")
''')
    assert output.startswith("launched\nCompileError: compiling multiply.cu: ")
    assert "got: _Z13multiply_them" in output
    assert output.endswith("not by this name\n")
