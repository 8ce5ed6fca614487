"""The other libraries on a real GPU: the compatibility suite with each, and their known hazards."""

import gc
import importlib
import sys

import numpy as np
import pytest
from doubles import driver, internals
from helpers.cases import MULTIPLY, agree, load, ready_pycuda
from helpers.process_memory import resident_bytes

import gpuinterop as gi
from gpuinterop import converters
from gpuinterop.testing import LAYOUTS, matrix

pytestmark = [
    pytest.mark.gpu,
    # The libraries' own deprecations are not what is tested here.
    pytest.mark.filterwarnings("default"),
]

MODULES = {"numba": "numba.cuda", "cuda_core": "cuda.core"}
LIBRARIES = ["torch", "cupy", "numba", "jax", "pycuda", "tvm_ffi", "cuda_core"]


@pytest.fixture(params=LIBRARIES)
def bridge(request):
    """The suite's bridge to a library that has arrays on the GPU."""
    name = request.param
    load(name, MODULES.get(name))
    found = internals.bridge(name)
    if "cuda" not in found.devices:
        pytest.skip("jax has no GPU" if name == "jax" else f"could not import '{name}': no CUDA")
    return found


def base(*shape):
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


@pytest.mark.lifetime  # the suite checks that memory is released
def test_suite_finds_no_fault(bridge):
    found = matrix([bridge], ["cuda:0"], dtypes=["float32", "int8", "float64", "complex64", "bool"])
    assert found.ok, str(found)


def test_ten_thousand_conversions_leave_memory_flat(bridge):
    x = gi.array(base(3, 4), device="cuda")
    foreign = bridge.make(base(12), LAYOUTS["C"], "cuda:0")

    def measured(n):
        for _ in range(n):
            gi.to(x, bridge.name)
            gi.from_any(foreign)
        gc.collect()
        gi.synchronize()
        own = gi.memory_stats("cuda")
        counts = own["live_bytes"], sys.getrefcount(x), sys.getrefcount(foreign)
        return counts, own["pool_bytes"], resident_bytes()

    before, pool, host = measured(200)
    after, pool_after, host_after = measured(10_000)
    assert after == before
    assert pool_after - pool < 64 << 20
    assert host_after - host < 16 << 20


def test_managed_memory(bridge):
    """Shared, or refused as explain says; never another memory unasked."""
    cupy = load("cupy")
    with cupy.cuda.using_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc):
        a = cupy.arange(64, dtype="float32")
    x = gi.from_any(a)
    assert x.memory == "managed"
    _, made, error = agree(x, bridge.name)
    if error is None:
        assert bridge.address(made) == x.ptr
        np.testing.assert_array_equal(gi.from_any(made).get(), base(64))


def test_host_memory_of_other_libraries():
    torch = load("torch")
    assert gi.from_any(torch.ones(3).pin_memory()).device == "cpu"
    load("numba", "numba.cuda")
    mapped = importlib.import_module("numba.cuda").mapped_array(8, np.float32)
    mapped[:] = 3
    x = gi.from_any(mapped)
    assert gi.explain(mapped).shared
    assert x.tolist() == [3] * 8
    x.fill(4)
    gi.synchronize()
    assert mapped.tolist() == [4] * 8


# ---- streams and lifetimes ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_one_stream_for_all(name):
    lib = load(name)
    s = gi.Stream()

    def current():
        if name == "torch":
            return lib.cuda.current_stream().cuda_stream
        return lib.cuda.get_current_stream().ptr

    before = current()
    with gi.stream(s):
        assert current() == s.handle == gi.devices.current_stream("cuda").handle
        with gi.stream(gi.devices.legacy_stream("cuda")):
            assert current() in (0, 1)
        assert current() == s.handle
    assert current() == before


N = 1 << 16


def test_copies_made_for_a_kernel_are_kept_until_it_has_finished():
    cupy = load("cupy")
    safe = converters.cupy.kernel(cupy.RawKernel(MULTIPLY, "multiply_them"), copyif=True)
    a, b = gi.array(base(2 * N), device="cuda"), gi.full(2 * N, 2, device="cuda")
    dest = gi.zeros(2 * N, device="cuda")
    safe((N // 256,), (256,), (dest[::2], a[::2], b[::2], np.int32(N)))  # compiled now
    dest.fill(0)
    gi.synchronize()
    with cupy.cuda.Stream(non_blocking=True) as side:
        internals.slow(side.ptr, 0)
        safe((N // 256,), (256,), (dest[::2], a[::2], b[::2], np.int32(N)))
    for _ in range(8):  # takes whatever memory was given back, and writes to it
        gi.full(N, -1, device="cuda")
    expected = np.zeros(2 * N, np.float32)
    expected[::2] = 2 * base(2 * N)[::2]
    np.testing.assert_array_equal(dest.get(), expected)


def test_temporaries_of_a_triton_kernel_are_kept_until_it_has_finished():
    torch = load("torch")
    load("triton")
    import triton_kernel

    dest = gi.zeros(128, device="cuda")

    def launch():
        triton_kernel.multiply[(1,)](
            dest, gi.array(base(128), device="cuda"), gi.full(128, 2, device="cuda"), 128, BLOCK=128
        )

    launch()
    dest.fill(0)
    gi.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        internals.slow(side.cuda_stream, 0)
        launch()
    for _ in range(16):
        gi.full(128, -1, device="cuda")
    np.testing.assert_array_equal(dest.get(), 2 * base(128))


def test_a_pool_of_pycuda_keeps_what_is_shared():
    gpuarray = ready_pycuda()
    pool = importlib.import_module("pycuda.tools").DeviceMemoryPool()
    g = gpuarray.to_gpu(base(N), allocator=pool.allocate)
    x = gi.from_any(g)
    assert x.ptr == int(g.gpudata)
    del g
    gc.collect()
    later = [gpuarray.to_gpu(np.full(N, -1, np.float32), allocator=pool.allocate) for _ in range(4)]
    assert x.ptr not in [int(other.gpudata) for other in later]
    result = gi.empty(N, device="cuda")
    gi.synchronize()
    side = gi.Stream()
    with gi.stream(side):
        internals.slow(side.handle, 0)
        result[...] = x
    del x, later
    gc.collect()
    for _ in range(4):
        gpuarray.to_gpu(np.full(N, -2, np.float32), allocator=pool.allocate)
    np.testing.assert_array_equal(result.get(), base(N))


PROGRAMS = {
    "a context of its own is refused": """
import numpy, gpuinterop as gi
x = gi.array(numpy.ones(4, "float32"), device="cuda")
import pycuda.autoinit
from pycuda import gpuarray
g = gpuarray.to_gpu(numpy.ones(4, "float32"))
for convert in (lambda: gi.to_gpuarray(x), lambda: gi.to_cudandarray(g)):
    try:
        convert()
    except gi.ContextError as e:
        assert "pycuda.autoprimaryctx" in str(e) and "pycuda.autoinit" in str(e), e
    else:
        raise SystemExit("not refused")
assert gi.explain(x, "pycuda").code == "context"
""",
    "a process that mixes them exits cleanly": """
import numpy, gpuinterop as gi
keep = []
x = gi.array(numpy.ones((3, 4), "float32"), device="cuda")
gi.converters.pycuda.init()
for name in ("torch", "cupy", "numba", "jax", "pycuda", "tvm_ffi", "cuda_core"):
    if gi.explain(x, name).shared:
        out = gi.to(x, name)
        keep.append((out, gi.from_any(out), x.__dlpack__(stream=1)))
""",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_in_a_process_of_its_own(program):
    load("pycuda")
    run = driver.python("-c", PROGRAMS[program] + "print('done')")
    assert (run.returncode, run.stdout.splitlines()[-1:]) == (0, ["done"]), run.stderr[-3000:]
    assert "terminate" not in run.stderr
    assert "Traceback" not in run.stderr, run.stderr[-3000:]


# ---- dtypes and devices -------------------------------------------------------------------------


@pytest.mark.multi_gpu
def test_arrays_of_another_device_than_the_current_one():
    torch = load("torch")
    x = gi.from_any(torch.arange(8, dtype=torch.float32, device="cuda:1"))
    assert x.device == "cuda:1"
    assert x.get().tolist() == list(range(8))
    y = gi.array(np.ones(3, "float32"), device="cuda:1")
    assert converters.to_torch(y).device.index == 1
    cupy = load("cupy")
    assert converters.to_cupy(y).device.id == 1
    with cupy.cuda.Device(0):
        assert gi.from_any(converters.to_cupy(y)).device == "cuda:1"


def test_an_ordinary_cupy_array_is_read_without_its_dlpack():
    cupy = load("cupy")
    c = cupy.arange(24, dtype="float32").reshape(4, 6)
    for view in (c, c.T, c[::-1], c[4:]):
        x = internals.share_ordinary(view)
        assert (type(x), x.shape, x.base) == (gi.CudaNdarray, view.shape, view)
        np.testing.assert_array_equal(np.asarray(x), view.get())
    side = cupy.cuda.Stream(non_blocking=True)
    with side:  # whose order only the capsule keeps
        assert internals.share_ordinary(c) is None
        np.testing.assert_array_equal(np.asarray(gi.from_any(c)), c.get())
