"""CuPy's and Numba's converters without their GPU: CuPy's own arrays, and Numba's documented shape."""

import sys

import numpy as np
import pytest
from doubles import driver, fake_driver
from doubles.fake_numba import DeviceNDArray, MemoryPointer
from helpers.cases import host

import gpuinterop as gi
from gpuinterop import converters

# ---- CuPy ---------------------------------------------------------------------------------------


def test_from_cupy_detects_managed_memory_every_time(cupy):
    page = 1 << 21  # a whole one, as on a GPU, where no other kind of memory shares it
    pointer = driver.allocate_managed(2 * page)
    inside = -(-pointer // page) * page
    memory = cupy.cuda.UnownedMemory(inside, 64, None, 0)
    a = cupy.ndarray((4,), "float32", cupy.cuda.MemoryPointer(memory, 0))
    assert [converters.from_cupy(a).memory for _ in range(3)] == ["managed"] * 3
    driver.free(pointer)


def test_every_entry_point_reads_an_ordinary_array_by_its_attributes(cupy, gpu):
    # CuPy's own __dlpack__ would call the runtime library, which fails on the fake driver.
    a = converters.to_cupy(gpu(host(3, 4)))
    first = gi.from_any(a)
    for convert in (
        gi.from_any,
        gi.asarray,
        gi.from_dlpack,
        converters.from_cupy,
        lambda c: gi.from_dlpack(c, cls=gi.CudaNdarray),
    ):
        for seen in (a, a.T, a[::-1, ::2], a[:0]):
            x = convert(seen)
            assert type(x) is gi.CudaNdarray
            assert (x.shape, x.base) == (seen.shape, seen)
            assert x.strides == seen.strides or x.size == 0
            assert x.ptr == (seen.data.ptr if x.size else 0)
    with pytest.raises(gi.DTypeError, match="float32"):
        gi.from_dlpack(a.view("int32"), cls=gi.CudaNdarray)
    assert first.ptr == a.data.ptr


def test_cupy_receives_the_bounds_of_the_memory(cupy, gpu):
    for x in (gpu(host(4, 6))[1:3, ::-2], gpu(host(4, 6)).T[:5], gpu(host(5))[2:]):
        known = converters.to_cupy(x).data.mem
        steps = [(n - 1) * step for n, step in zip(x.shape, x.strides, strict=True)]
        assert known.ptr == x.ptr + sum(min(step, 0) for step in steps)
        assert known.size == sum(abs(step) for step in steps) + x.itemsize


def test_import_and_release_make_no_driver_call(cupy, gpu):
    a = converters.to_cupy(gpu(host(3, 4)))
    converters.from_cupy(a)
    asked = ("cuPointerGetAttributes", "cuStreamQuery", "cuEventRecord", "cuStreamWaitEvent")
    before = [fake_driver.calls(name) for name in asked]
    for _ in range(10):
        converters.from_cupy(a)
        gi.from_dlpack(a, cls=gi.CudaNdarray)
    assert [fake_driver.calls(name) for name in asked] == before


@pytest.mark.parametrize("dtype", ["int8", "complex128", "float16", "bool"])
def test_cupy_dtypes(cupy, dtype):
    a = converters.to_cupy(gi.array(host(3).astype(dtype), device="cuda"))
    back = converters.from_cupy(a)
    assert (a.dtype, type(back), back.dtype) == (dtype, gi.GpuArray, dtype)


def bfloat16(*shape):
    return host(*shape).astype(pytest.importorskip("ml_dtypes").bfloat16)


def test_cupy_has_bfloat16(cupy, gpu):
    x = gi.array(bfloat16(3, 4), device="cuda")
    for part in (x, x.T, x[::-1, ::2], x[:0]):
        assert gi.explain(part, "cupy").shared
        a = converters.to_cupy(part)
        assert (a.dtype, a.shape) == (x.dtype, part.shape)
        back = converters.from_cupy(a)
        assert gi.explain(a).shared
        assert (back.dtype, back.shape) == (x.dtype, part.shape)
        if part.size:
            assert (a.data.ptr, a.strides) == (part.ptr, tuple(part.strides))
            assert (back.ptr, back.strides) == (part.ptr, part.strides)
            assert back.base is a
    x.readonly = True
    with pytest.raises(gi.ReadOnlyError):
        converters.to_cupy(x)
    with pytest.raises(gi.DTypeError, match="float8_e5m2"):
        converters.to_cupy(x.astype("float8_e5m2"))


def test_an_older_cupy_has_no_bfloat16(cupy, monkeypatch):
    x = gi.array(bfloat16(3), device="cuda")
    monkeypatch.setattr(cupy, "__version__", "13.6.0")
    assert gi.explain(x, "cupy").refused
    with pytest.raises(gi.DTypeError, match="bfloat16"):
        converters.to_cupy(x)


class RawKernel:
    """Takes what CuPy's own takes, and shows what it was given."""

    def __call__(self, grid, block, args, **options):
        cupy = sys.modules["cupy"]
        for arg in args:
            if not isinstance(arg, cupy.ndarray | np.generic | int | float | None):
                raise TypeError(f"Unsupported type {type(arg)}")
        self.args, self.options = args, options


@pytest.fixture
def raw(cupy, monkeypatch):
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: 0)
    return RawKernel()


def test_cupy_kernels_get_addresses(cupy, gpu, raw):
    x, y = gpu(host(4)), gpu(host(4) + 1)
    kernel = converters.cupy.kernel(raw)
    assert kernel.__wrapped__ is raw
    kernel((1,), (4,), (x, converters.to_cupy(y), np.int32(4), None), shared_mem=8)
    assert raw.args == (x.ptr, y.ptr, 4, None)
    assert type(raw.args[0]) is np.uintp
    assert raw.options == {"shared_mem": 8}
    with pytest.raises(TypeError, match=r"Unsupported type .*CudaNdarray"):
        raw((1,), (4,), (x,))


def test_cupy_kernels_never_get_the_wrong_elements(cupy, gpu, raw):
    x = gpu(host(8))
    for strided in (x[::2], x[::-1], converters.to_cupy(x)[::2]):
        with pytest.raises(gi.ContiguityError, match=r"cupy.kernel, argument 1"):
            converters.cupy.kernel(raw)((1,), (4,), (x, strided))
    with pytest.raises(gi.DeviceMismatchError, match="argument 0"):
        converters.cupy.kernel(raw)((1,), (4,), (converters.from_numpy(host(4)),))
    other = gi.array(host(4), device="cuda:1")
    with pytest.raises(gi.DeviceMismatchError, match="cuda:0"):
        converters.cupy.kernel(raw)((1,), (4,), (other,))
    x.readonly = True
    with pytest.raises(gi.ReadOnlyError):
        converters.cupy.kernel(raw)((1,), (4,), (x,))
    converters.cupy.kernel(raw, allow_readonly=True)((1,), (4,), (x,))
    assert raw.args == (x.ptr,)


# ---- Numba --------------------------------------------------------------------------------------


def test_numba_without_the_inner_classes(numba, gpu):
    made = []
    del numba.cudadrv
    numba.as_cuda_array = lambda obj, sync: made.append((obj, sync))
    x = gpu(host(4, 6))[::2]
    converters.to_numba(x)
    assert made == [(x, False)]  # ordered by an event already: the host must not wait


def test_records_of_numba_are_refused(numba):
    records = DeviceNDArray(
        (2,), (8,), [("a", "f4"), ("b", "f4")], gpu_data=MemoryPointer(None, 0, 0)
    )
    with pytest.raises(gi.DTypeError):
        gi.from_any(records)


def test_numbas_bound_stream_is_waited_for(numba, gpu):
    s = gi.Stream()
    a = converters.to_numba(gpu(host(4)))

    class Stream:
        def __int__(self):
            return s.handle

    a.stream = Stream()
    fake_driver.set_delay(50_000)
    try:
        with s:
            gi.empty((4,), device="cuda").fill(1.0)
        assert not s.query()
        gi.from_any(a).sync()
        assert s.query()
    finally:
        fake_driver.set_delay(0)
    assert "numba.cuda" in sys.modules
