"""Oddities of NumPy, tvm-ffi, cuda.core, Warp and TensorFlow on the host."""

import sys
import types

import numpy as np
import pytest
from helpers.cases import agree, aligned
from helpers.mpi import load_mpi

import gpuinterop as gi
from gpuinterop import converters


def make_array(*shape, dtype="float32"):
    return converters.from_numpy(aligned(int(np.prod(shape)), dtype).reshape(shape))


# ---- tvm-ffi, cuda.core -------------------------------------------------------------------------


def test_a_read_only_view_of_cuda_core_stays_so_by_every_way_in():
    view = pytest.importorskip("cuda.core.utils").StridedMemoryView
    host = np.arange(4, dtype=np.float32)
    host.flags.writeable = False
    v = view.from_dlpack(host, stream_ptr=-1)
    assert v.readonly
    for take in (gi.from_any, gi.from_dlpack, gi.asarray):
        x = take(v)
        assert x.readonly or x.ptr != host.ctypes.data, take


class NamelessView:
    """A StridedMemoryView of a dtype without a name in cuda.core: reading its dtype raises."""

    __module__, __qualname__ = "cuda.core", "StridedMemoryView"
    ptr, shape, strides, device_id, readonly = 64, (3,), None, -1, False

    @property
    def dtype(self):
        raise TypeError("Unsupported dtype. dtype code: 12")


def test_a_view_that_cannot_tell_its_dtype_is_refused():
    for to in ("gpuinterop", "numpy"):
        assert gi.explain(NamelessView(), to).error is gi.DTypeError


# ---- Warp ---------------------------------------------------------------------------------------


@pytest.fixture
def warp():
    warp = pytest.importorskip("warp")
    warp.config.quiet = True
    warp.init()
    return warp


def test_warp_arrays_of_other_shapes(warp):
    assert gi.from_any(warp.zeros(3, dtype=warp.vec3)).shape == (3, 3)
    with pytest.raises(ValueError, match="dimensions"):
        converters.to_warp(make_array(1, 2, 1, 2, 1))
    indexed = warp.indexedarray(
        warp.zeros(3, dtype=warp.float32), [warp.array([0, 1], dtype=warp.int32)]
    )
    with pytest.raises(gi.ConversionTypeError):
        gi.from_any(indexed)


# ---- TensorFlow ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


def test_tensorflow_objects_without_plain_memory(tf):
    with pytest.raises(gi.ContiguityError, match="aligned"):
        converters.to_tensorflow(converters.from_numpy(aligned(8, "float32", 4)))
    with pytest.raises(gi.ConversionTypeError, match="variable"):
        gi.from_any(tf.Variable([1.0]))
    with pytest.raises(gi.DTypeError):
        gi.from_any(tf.constant(["text"]))

    @tf.function
    def inside(t):
        with pytest.raises(gi.ConversionTypeError, match="symbolic"):
            gi.from_any(t)
        return t

    inside(tf.constant([1.0]))
    assert gi.from_any(tf.zeros((0, 3))).shape == (0, 3)


def stand_in_for_tensorflow():
    """An eager tensor over a NumPy array, and the function that exports it, writable as TensorFlow's."""

    class Shape(tuple):
        def as_list(self):
            return list(self)

    class EagerTensor:
        device = "/job:localhost/replica:0/task:0/device:CPU:0"

        def __init__(self, values):
            self.values, self.shape = values, Shape(values.shape)
            self.dtype = types.SimpleNamespace(name=values.dtype.name)

        def numpy(self):
            return self.values

    EagerTensor.__module__, EagerTensor.__qualname__ = (
        "tensorflow.python.framework.ops",
        "EagerTensor",
    )
    exported = types.SimpleNamespace(to_dlpack=lambda t: t.values.__dlpack__())
    module = types.ModuleType("tensorflow")
    module.experimental = types.SimpleNamespace(dlpack=exported)
    return module, EagerTensor


def test_explain_reports_that_tensorflow_memory_is_read_only(monkeypatch):
    module, EagerTensor = stand_in_for_tensorflow()
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    monkeypatch.delitem(sys.modules, EagerTensor.__module__, raising=False)
    t = EagerTensor(np.ones((2, 3), np.float32))
    assert gi.from_any(t).readonly
    assert gi.explain(t, "numpy").shared
    for library in ("torch", "tvm_ffi"):
        pytest.importorskip(library)
        assert type(agree(t, library)[2]) is gi.ReadOnlyError
        assert gi.explain(t, library, allow_readonly=True).shared


# ---- sharing across libraries -------------------------------------------------------------------


def test_shares_memory_across_libraries():
    pytest.importorskip("jax")
    torch = pytest.importorskip("torch")
    a = aligned(24, "float32").reshape(4, 6)
    x = converters.from_numpy(a)
    t = torch.from_numpy(a)
    j = converters.to_jax(x)
    everyone = [a, x, t, j]
    for one in everyone:
        for other in everyone:
            assert gi.shares_memory(one, other)
    assert not gi.shares_memory(a[::2], t[1::2])
    assert gi.shares_memory(a[::2], t[:, 3:])
    assert gi.may_share_memory(a[::2], t[1::2])
    assert not gi.may_share_memory(a[:2], t[2:])
    assert not gi.shares_memory(a, a.copy())
    assert gi.shares_memory(t.requires_grad_(), a)
    with pytest.raises(gi.ConversionTypeError):
        gi.shares_memory(a, object())
    with pytest.raises(gi.GpuInteropError):
        gi.shares_memory(a, torch.eye(3).to_sparse())


# ---- MPI ----------------------------------------------------------------------------------------


def test_mpi_reads_host_arrays():
    """mpi4py requests DLPack version 1 without a stream, requires dense memory, and respects the read-only flag."""
    mpi = load_mpi()
    x = make_array(3, 4)
    for dense in (x, x.T):
        assert mpi.memory.frombuffer(dense).address == x.ptr
        assert mpi.memory.frombuffer(dense).nbytes == 48
    with pytest.raises(BufferError, match="contiguous"):
        mpi.memory.frombuffer(x[:, ::2])
    y = gi.zeros((3, 4), device="cpu")
    mpi.COMM_SELF.Sendrecv(x, dest=0, recvbuf=y, source=0)
    assert y.tolist() == x.tolist() == np.arange(12).reshape(3, 4).tolist()
    x.readonly = True
    assert mpi.memory.frombuffer(x, readonly=True).readonly
    with pytest.raises(BufferError, match="writable"):
        mpi.memory.frombuffer(x)
