"""Kernels of other libraries accept a CudaNdarray directly, on a real GPU."""

import ctypes
import importlib

import numpy as np
import pytest
from doubles import internals
from helpers.cases import MULTIPLY, load, ready_pycuda
from helpers.mpi import load_mpi

import gpuinterop as gi
from gpuinterop import converters

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


def operands(n=100):
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=n).astype(np.float32) for _ in range(2))
    return a, b, gi.array(a, device="cuda"), gi.array(b, device="cuda")


def result(n=100):
    return gi.zeros(n, device="cuda")


def wait_for_fill(launch, x):
    """Launch while a side stream still has to fill `x` with 2: the launch must wait for it."""
    gi.synchronize()
    side = gi.Stream()
    with gi.stream(side):
        internals.slow(side.handle, 0)
        x.fill(2)
    launch()


def cubin(source):
    """`source` compiled by NVRTC: the machine may have no nvcc."""
    core = load("cuda.core", "cuda.core")
    core.Device(0).set_current()
    options = core.ProgramOptions(std="c++17", arch=f"sm_{core.Device(0).arch}")
    return core.Program(source, "c++", options).compile("cubin")


def test_cupy_raw_kernel_itself_takes_no_foreign_array():
    """Why there is a wrapper. A CuPy that takes them makes this fail, and the wrapper optional."""
    cupy = load("cupy")
    _, _, ga, gb = operands()
    kernel = cupy.RawKernel(MULTIPLY, "multiply_them")
    with pytest.raises(TypeError, match=r"Unsupported type .*CudaNdarray"):
        kernel((1,), (128,), (result(), ga, gb, np.int32(100)))


def test_cupy_raw_kernel():
    cupy = load("cupy")
    a, b, ga, gb = operands()
    dest = result()
    kernel = converters.cupy.kernel(cupy.RawKernel(MULTIPLY, "multiply_them"))
    kernel((1,), (128,), (dest, ga, gb, np.int32(100)))
    np.testing.assert_array_equal(dest.get(), a * b)
    wait_for_fill(lambda: kernel((1,), (128,), (dest, ga, gb, np.int32(100))), gb)
    np.testing.assert_array_equal(dest.get(), a * 2)


def test_cupy_raw_kernel_with_strided_arguments():
    cupy = load("cupy")
    a, b, ga, gb = operands(200)
    dest = gi.zeros(200, device="cuda")
    raw = cupy.RawKernel(MULTIPLY, "multiply_them")
    strided = (dest[::2], ga[::2], converters.to_cupy(gb)[::2], np.int32(100))
    with pytest.raises(gi.ContiguityError, match="argument 0"):
        converters.cupy.kernel(raw)((1,), (128,), strided)
    assert not dest.get().any()
    converters.cupy.kernel(raw, copyif=True)((1,), (128,), strided)
    expected = np.zeros(200, np.float32)
    expected[::2] = (a * b)[::2]
    np.testing.assert_array_equal(dest.get(), expected)


@pytest.mark.parametrize("key", [np.s_[:], np.s_[::2], np.s_[::-1]])
def test_cupy_elementwise_kernel(key):
    cupy = load("cupy")
    a, b, ga, gb = operands()
    multiply = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x * y", "product")
    np.testing.assert_array_equal(multiply(ga[key], gb[key]).get(), (a * b)[key])
    out = cupy.empty_like(cupy.asarray(ga[key]))
    wait_for_fill(lambda: multiply(ga[key], gb[key], out), gb)
    np.testing.assert_array_equal(out.get(), (a * 2)[key])


@pytest.mark.numba
@pytest.mark.parametrize("key", [np.s_[:], np.s_[::2], np.s_[::-1]])
def test_numba_kernel(key):
    load("numba", "numba.cuda")
    cuda = importlib.import_module("numba.cuda")

    @cuda.jit
    def multiply(dest, a, b):
        i = cuda.grid(1)
        if i < dest.size:
            dest[i] = a[i] * b[i]

    a, b, ga, gb = operands()
    dest = result()
    multiply[1, 128](dest[key], ga[key], gb[key])
    cuda.synchronize()
    expected = np.zeros(100, np.float32)
    expected[key] = (a * b)[key]
    np.testing.assert_array_equal(dest.get(), expected)


@pytest.mark.numba
def test_numba_kernel_takes_a_converted_array():
    load("numba", "numba.cuda")
    cuda = importlib.import_module("numba.cuda")

    @cuda.jit
    def double(x):
        i, j = cuda.grid(2)
        if i < x.shape[0] and j < x.shape[1]:
            x[i, j] *= 2

    x = gi.array(np.arange(24, dtype=np.float32).reshape(4, 6), device="cuda")
    double[(1, 1), (8, 8)](converters.to_numba(x[::-1, ::2]))
    cuda.synchronize()
    expected = np.arange(24, dtype=np.float32).reshape(4, 6)
    expected[:, ::2] *= 2
    np.testing.assert_array_equal(x.get(), expected)


def test_triton_kernel():
    load("triton")
    torch = load("torch")
    import triton_kernel

    a, b, ga, gb = operands()
    dest = result()
    triton_kernel.multiply[(1,)](dest, ga, gb, 100, BLOCK=128)
    torch.cuda.synchronize()
    np.testing.assert_array_equal(dest.get(), a * b)
    wait_for_fill(lambda: triton_kernel.multiply[(1,)](dest, ga, gb, 100, BLOCK=128), gb)
    np.testing.assert_array_equal(dest.get(), a * 2)


def test_cuda_core_launch():
    core = load("cuda.core", "cuda.core")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    kernel = cubin(MULTIPLY).get_kernel("multiply_them")
    a, _, ga, gb = operands()
    dest = result()

    def launch():
        views = [converters.to_cuda_core(x, stream=stream) for x in (dest, ga, gb)]
        config = core.LaunchConfig(grid=1, block=128)
        core.launch(stream, config, kernel, *(v.ptr for v in views), np.int32(100))
        stream.sync()

    wait_for_fill(launch, gb)
    np.testing.assert_array_equal(dest.get(), a * 2)


# ---- PyCUDA -------------------------------------------------------------------------------------


@pytest.fixture
def pycuda(monkeypatch):
    """PyCUDA on the primary context, its compiler replaced by NVRTC."""
    ready_pycuda()
    compiler = importlib.import_module("pycuda.compiler")

    def compile_by_nvrtc(
        source, nvcc="nvcc", options=None, keep=False, no_extern_c=False, *args, **more
    ):
        # PyCUDA's helper header wants the toolkit's host headers; float kernels do not need it.
        text = "\n".join(line for line in source.splitlines() if "#include" not in line)
        return bytes(cubin(text if no_extern_c else f'extern "C" {{\n{text}\n}}').code)

    monkeypatch.setattr(compiler, "compile", compile_by_nvrtc)
    return importlib.import_module("pycuda")


def test_pycuda_source_module(pycuda):
    compiler = importlib.import_module("pycuda.compiler")
    mod = compiler.SourceModule(MULTIPLY.replace('extern "C" ', ""))
    multiply_them = mod.get_function("multiply_them")
    a, b, ga, gb = operands()
    dest = gi.CudaNdarray.zeros(a.shape, device="cuda")
    multiply_them(dest, ga, gb, np.int32(100), block=(128, 1, 1), grid=(1, 1))
    np.testing.assert_array_equal(np.asarray(dest), a * b)
    safe = converters.pycuda.kernel(multiply_them)
    with pytest.raises(ValueError, match="argument 1"):
        safe(dest, ga[::-1], gb, np.int32(100), block=(128, 1, 1))
    copying = converters.pycuda.kernel(multiply_them, copyif=True)
    copying(dest, ga[::-1], gb, np.int32(100), block=(128, 1, 1))
    np.testing.assert_array_equal(np.asarray(dest), a[::-1] * b)
    wait_for_fill(lambda: safe(dest, ga, gb, np.int32(100), block=(128, 1, 1)), gb)
    np.testing.assert_array_equal(dest.get(), a * 2)


def test_pycuda_elementwise_kernel(pycuda):
    elementwise = importlib.import_module("pycuda.elementwise")
    kernel = elementwise.ElementwiseKernel(
        "float *dest, float *a, float *b", "dest[i] = a[i] + 2 * b[i]", "combine"
    )
    for n in (1, 100, 100_000):
        a, b, ga, gb = operands(n)
        dest = gi.zeros(n, device="cuda")
        kernel(dest, ga, gb)
        np.testing.assert_allclose(dest.get(), a + 2 * b, rtol=1e-6)
    with pytest.raises(RuntimeError, match="non-contiguous"):
        kernel(dest[::2], ga[::2], gb[::2])


def test_pycuda_reduction_kernel(pycuda):
    reduction = importlib.import_module("pycuda.reduction")
    kernel = reduction.ReductionKernel(
        np.float32, neutral="0", reduce_expr="a + b", map_expr="x[i] * y[i]",
        arguments="float *x, float *y",
    )  # fmt: skip
    a, b, ga, gb = operands(10_000)
    found = float(kernel(ga, gb).get())
    np.testing.assert_allclose(found, np.dot(a.astype(float), b), rtol=1e-4)


def test_mpi4py_takes_the_buffer():
    mpi = load_mpi()
    x = gi.array(np.arange(8, dtype=np.float32), device="cuda")
    x.sync()
    seen = mpi.memory.frombuffer(x)
    assert (seen.address, seen.nbytes) == (x.ptr, 32)


def test_mpi4py_sends_gpu_memory_to_itself():
    mpi = load_mpi()
    # Open MPI's own word; another MPI would read the address as one of the host, and crash.
    query = getattr(ctypes.CDLL(None), "MPIX_Query_cuda_support", None)
    if query is None or query() != 1:
        pytest.skip("an MPI that is not said to read GPU memory")
    x = gi.array(np.arange(8, dtype=np.float32), device="cuda")
    y = gi.zeros(8, device="cuda")
    gi.synchronize()
    mpi.COMM_SELF.Sendrecv(x, dest=0, recvbuf=y, source=0)
    assert y.get().tolist() == list(range(8))
