"""PyOpenCL on PoCL: the same memory both ways, kernels that read strides, and copies for other devices."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
from helpers import opencl

import gpuinterop as gi
from gpuinterop import converters

# PoCL 3.0 crashes when it frees shared virtual memory on a queue, so the tests allocate it without one.
pytestmark = pytest.mark.filterwarnings("ignore:Array has different queue from backing SVM")
SCALE = """
__kernel void scale(__global char *bytes, long offset, long step0, long step1, float by) {
    __global float *p = (__global float *)(bytes + offset + get_global_id(0) * step0 + get_global_id(1) * step1);
    *p *= by;
}"""
VIEWS = {
    "C": lambda x: x,
    "transposed": lambda x: x.T,
    "stepped": lambda x: x[::2, ::3],
    "mirrored": lambda x: x[:, ::-1],
    "mirrored in both axes": lambda x: x[::-1, ::-2],
    "offset": lambda x: x[1:, 2:],
    "one element": lambda x: x[3:4, 4:5],
}


@pytest.fixture(scope="module")
def cl():
    return pytest.importorskip("pyopencl")


@pytest.fixture(scope="module")
def arrays(cl):
    return pytest.importorskip("pyopencl.array")


@pytest.fixture(scope="module")
def queue(cl):
    try:
        devices = [d for p in cl.get_platforms() for d in p.get_devices(cl.device_type.CPU)]
    except cl.LogicError:  # there is no platform
        devices = []
    if not devices:
        pytest.skip("no OpenCL device is a CPU")
    return cl.CommandQueue(cl.Context(devices[:1]))


@pytest.fixture(scope="module")
def compiler(queue):
    opencl.require_compiler()


@pytest.fixture(scope="module")
def scale(cl, queue, compiler):
    kernel = cl.Kernel(cl.Program(queue.context, SCALE).build(), "scale")

    def run(a, by):
        steps = (np.int64(n) for n in (a.offset, *a.strides))
        return kernel(queue, a.shape, None, a.base_data, *steps, np.float32(by))

    return run


@pytest.fixture
def other_memory(monkeypatch, cl):
    """Let every device be a GPU, with memory of its own. PoCL executes the copies."""
    monkeypatch.setattr(cl.Device, "type", cl.device_type.GPU)


def matrix(cls=gi.CudaNdarray):
    return cls(np.arange(48, dtype="float32").reshape(6, 8), device="cpu")


@pytest.mark.parametrize("name", VIEWS)
def test_a_kernel_computes_on_a_strided_array_in_place(name, queue, scale):
    x = matrix()
    expected = x.get()
    VIEWS[name](expected)[...] *= 3
    view = VIEWS[name](x)
    a = gi.to(view, "pyopencl", queue=queue)
    assert (a.shape, a.strides) == (view.shape, view.strides)
    scale(a, 3)
    back = gi.from_any(a)
    assert type(back) is gi.CudaNdarray
    assert (back.ptr, back.strides) == (view.ptr, view.strides)
    assert x.tolist() == expected.tolist()


@pytest.mark.parametrize("allocator", ["buffer", "svm", "pool", "svm pool"])
@pytest.mark.parametrize("name", VIEWS)
def test_memory_of_opencl_is_shared(allocator, name, cl, arrays, queue, scale):
    tools = pytest.importorskip("pyopencl.tools")
    svm = tools.SVMAllocator(queue.context, 0)
    allocate = {
        "buffer": None, "svm": svm, "pool": tools.MemoryPool(tools.ImmediateAllocator(queue)),
        "svm pool": tools.SVMPool(svm),
    }[allocator]  # fmt: skip
    host = np.arange(48, dtype="float32").reshape(6, 8)
    whole = arrays.to_device(queue, host, allocator=allocate)
    shaped = VIEWS[name](np.empty_like(host))
    window = VIEWS[name](host)
    offset = window.ctypes.data - host.ctypes.data
    a = arrays.Array(
        queue, shaped.shape, host.dtype, data=whole.base_data, offset=offset, strides=window.strides
    )
    x = converters.from_pyopencl(a)
    assert x.tolist() == window.tolist()
    assert gi.shares_memory(x, a)
    x += 1
    window += 1
    scale(a, 2)
    queue.finish()
    window *= 2
    assert x.tolist() == window.tolist()
    del x
    gc.collect()
    assert whole.get().tolist() == host.tolist()


@pytest.mark.parametrize("dtype", ["float64", "complex64", "int8", "uint16", "bool", "float16"])
def test_every_dtype_of_numpy_is_shared(dtype, queue):
    x = gi.GpuArray(np.ones((2, 3), dtype), device="cpu")
    back = gi.from_any(gi.to(x.T, "opencl", queue=queue))
    assert (back.dtype, back.ptr, back.strides) == (x.dtype, x.ptr, x.T.strides)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (), (1, 1)])
def test_empty_and_0d_arrays(shape, queue):
    x = gi.zeros(shape, device="cpu")
    a = converters.to_pyopencl(x, queue=queue)
    assert a.shape == shape
    back = gi.from_any(a)
    assert back.shape == shape
    assert back.size == 0 or back.ptr == x.ptr


def test_a_broadcast_array_is_shared(queue):
    x = gi.broadcast_to(gi.ones(3, device="cpu"), (4, 3))
    a = converters.to_pyopencl(x, queue=queue, allow_readonly=True)
    assert a.strides == (0, 4)
    assert converters.from_pyopencl(a).strides == (0, 4)


def test_read_only_memory_is_refused(queue):
    x = gi.zeros(4, device="cpu")
    x.flags.writeable = False
    assert gi.explain(x, "pyopencl", copyif=True, queue=queue).copied
    with pytest.raises(gi.ReadOnlyError, match="allow_readonly"):
        gi.to(x, "pyopencl", queue=queue)
    copied = gi.to(x, "pyopencl", copyif=True, queue=queue)
    assert not gi.shares_memory(copied, x)
    shared = gi.to(x, "pyopencl", queue=queue, allow_readonly=True)
    assert gi.shares_memory(shared, x)


def test_memory_that_the_host_only_reads_is_read_only(cl, arrays, queue):
    flags = cl.mem_flags
    data = cl.Buffer(queue.context, flags.READ_WRITE | flags.HOST_READ_ONLY, 16)
    x = gi.from_any(arrays.Array(queue, (4,), "float32", data=data))
    with pytest.raises(gi.ReadOnlyError):
        x[0] = 1


@pytest.mark.parametrize("flag", ["HOST_NO_ACCESS", "HOST_WRITE_ONLY"])
def test_memory_that_the_host_may_not_read_is_refused(flag, cl, arrays, queue):
    data = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE | getattr(cl.mem_flags, flag), 16)
    a = arrays.Array(queue, (4,), "float32", data=data)
    assert gi.explain(a, "gpuinterop").refused
    with pytest.raises(gi.ExchangeError, match="host can read"):
        gi.from_any(a)


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [((5,), (4,), 0), ((4,), (4,), 4), ((4,), (-4,), 8), ((2,), (4,), -4), ((2,), (1 << 40,), 0)],
)
def test_an_array_outside_its_buffer_is_refused(shape, strides, offset, cl, arrays, queue):
    data = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 16)
    a = arrays.Array(queue, shape, "float32", data=data, offset=offset, strides=strides)
    with pytest.raises(gi.BoundsError, match="16 bytes"):
        gi.from_any(a)


@pytest.mark.parametrize("dtype", [">f4", [("x", "f4"), ("y", "f4")]])
def test_dtypes_that_cannot_be_shared_are_refused(dtype, arrays, queue, request):
    a = arrays.Array(queue, (4,), np.dtype(dtype))
    for place in (None, "other_memory"):
        if place:
            request.getfixturevalue(place)
        with pytest.raises(gi.DTypeError):
            gi.from_any(a, copyif=True)


def test_an_array_without_a_queue_is_shared(arrays, queue):
    a = arrays.zeros(queue, 3, np.float32).with_queue(None)
    x = gi.from_any(a)
    x += 1
    assert a.with_queue(queue).get().tolist() == [1, 1, 1]


@pytest.mark.parametrize("queue_", [None, "cpu", 3])
def test_a_queue_is_required(queue_, cl):
    x = gi.zeros(3, device="cpu")
    assert gi.explain(x, "pyopencl", queue=queue_).refused
    with pytest.raises(gi.ArgumentTypeError, match=r"queue=pyopencl.CommandQueue\(context\)"):
        converters.to_pyopencl(x, queue=queue_)


def test_arrays_of_other_libraries_are_shared(queue):
    host = np.arange(6.0)
    a = gi.to(host[::-2], "pyopencl", queue=queue)
    assert gi.from_any(a).ptr == host.ctypes.data + 40
    assert np.shares_memory(gi.to(a, "numpy"), host)


def test_each_side_keeps_the_memory_alive(arrays, queue, compiler):
    x = gi.ones(1000, device="cpu")
    alive = weakref.ref(x)
    a = gi.to(x, "pyopencl", queue=queue)
    part = a[10:20]
    del x, a
    gc.collect()
    assert alive() is not None
    assert float(arrays.sum(part).get()) == 10
    del part
    gc.collect()
    assert alive() is None
    theirs = arrays.zeros(queue, 1000, np.float32) + 2
    mine = gi.from_any(theirs)[::2]
    del theirs
    gc.collect()
    assert mine.sum().item() == 1000


def test_a_queued_kernel_keeps_the_memory_alive(cl, queue, compiler):
    code = "__kernel void slow(__global float *p) { for (int i = 0; i < 3000000; i++) p[i % 64] += 1; }"
    kernel = cl.Kernel(cl.Program(queue.context, code).build(), "slow")
    x = gi.zeros(64, device="cpu")
    alive = weakref.ref(x)
    a = gi.to(x, "pyopencl", queue=queue)
    event = kernel(queue, (1,), None, a.base_data)
    del a, x  # the last view of the memory is destroyed only when the queue is idle
    gc.collect()
    assert event.command_execution_status == cl.command_execution_status.COMPLETE
    assert alive() is None


# ---- devices with memory of their own -----------------------------------------------------------


@pytest.mark.usefixtures("other_memory")
@pytest.mark.parametrize("name", VIEWS)
def test_other_devices_get_a_copy(name, queue):
    view = VIEWS[name](matrix())
    plan = gi.explain(view, "pyopencl", copyif=True, queue=queue)
    assert plan.copied
    assert "in place" in plan.reason
    with pytest.raises(gi.DeviceMismatchError, match="copyif=True"):
        gi.to(view, "pyopencl", queue=queue)
    with gi.count_copies() as counted:
        a = gi.to(view, "pyopencl", copyif=True, queue=queue)
    assert counted.bytes == plan.bytes
    assert not np.shares_memory(a.get(), view.get())
    assert a.get().tolist() == view.tolist()


@pytest.mark.usefixtures("other_memory")
@pytest.mark.parametrize("svm", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_memory_of_other_devices_comes_as_a_copy(name, svm, arrays, queue):
    tools = pytest.importorskip("pyopencl.tools")
    allocator = tools.SVMAllocator(queue.context, 0) if svm else None
    host = np.arange(48, dtype="float32").reshape(6, 8)
    whole = arrays.to_device(queue, host, allocator=allocator)
    window = VIEWS[name](host)
    a = arrays.Array(
        queue, window.shape, host.dtype, data=whole.base_data,
        offset=window.ctypes.data - host.ctypes.data, strides=window.strides,
    )  # fmt: skip
    plan = gi.explain(a, "gpuinterop", copyif=True)
    assert plan.copied
    assert queue.device.name in str(plan)
    with pytest.raises(gi.DeviceMismatchError, match="copyif=True to download it"):
        gi.from_any(a)
    with gi.count_copies() as counted:
        x = gi.from_any(a, copyif=True)
    assert counted.bytes == plan.bytes == window.nbytes
    assert x.tolist() == window.tolist()
    x += 1
    queue.finish()
    assert whole.get().tolist() == host.tolist()
    with gi.no_copies(), pytest.raises(gi.CopyForbiddenError):
        gi.from_any(a, copyif=True)


def test_a_converted_array_alive_at_exit_does_no_harm(cl):
    program = """
import gpuinterop as gi, pyopencl as cl
queue = cl.CommandQueue(cl.create_some_context(interactive=False))
a = gi.to(gi.ones(5, device="cpu"), "pyopencl", queue=queue)
b = gi.from_any(a)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
