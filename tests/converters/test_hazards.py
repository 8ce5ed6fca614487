"""Known hazards of the libraries on the host, one by one: none of them reaches whoever converts here."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import numpy as np
import pytest
from cases import aligned

import gpuinterop as gi
from gpuinterop import converters


def ours(*shape, dtype="float32"):
    return converters.from_numpy(aligned(int(np.prod(shape)), dtype).reshape(shape))


# ---- the read-only mark -------------------------------------------------------------------------


def test_jax_memory_is_read_only_by_every_way_in():
    jax = pytest.importorskip("jax")
    j = jax.numpy.arange(16, dtype="float32")
    for take in (gi.from_any, gi.from_dlpack, gi.to_cudandarray,
                 lambda obj: gi.asarray(obj, device="cpu")):  # fmt: skip
        x = take(j)
        assert x.ptr == j.unsafe_buffer_pointer(), take
        assert x.readonly, take
        with pytest.raises(gi.ReadOnlyError):
            x[0] = 1
    assert j.tolist() == list(range(16))


def test_a_read_only_view_of_cuda_core_stays_so_by_every_way_in():
    view = pytest.importorskip("cuda.core.utils").StridedMemoryView
    host = np.arange(4, dtype=np.float32)
    host.flags.writeable = False
    v = view.from_dlpack(host, stream_ptr=-1)
    assert v.readonly
    for take in (gi.from_any, gi.from_dlpack, gi.asarray):
        x = take(v)
        assert x.readonly or x.ptr != host.ctypes.data, take


def test_no_writer_gets_read_only_memory_unasked():
    x = ours(3, 4)
    x.readonly = True
    for library, package in (("torch", "torch"), ("tvm_ffi", "tvm_ffi")):
        pytest.importorskip(package)
        plan = gi.explain(x, library)
        assert (plan.refused, plan.code) == (True, "readonly")
        with pytest.raises(gi.ReadOnlyError, match="allow_readonly"):
            gi.to(x, library)
        assert not gi.shares_memory(gi.to(x, library, copyif=True), x)
        assert gi.shares_memory(gi.to(x, library, allow_readonly=True), x)
    # Broadcast memory is one element under many names.
    wide = ours(4).broadcast_to(3, 4)
    assert gi.explain(wide, "torch").refused


# ---- torch --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "take", [gi.from_any, gi.from_dlpack, gi.asarray, gi.CudaNdarray, gi.array]
)
def test_torchs_unfinished_values_are_refused_by_every_way_in(take):
    torch = pytest.importorskip("torch")
    z = torch.tensor([1 + 2j], dtype=torch.complex64)
    for tensor in (torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3)),
                   z.conj(), z.conj().imag):  # fmt: skip
        with pytest.raises(gi.GpuInteropError) as raised:
            take(tensor)
        assert raised.value.fix
    assert take(torch.ones(3)).tolist() == [1, 1, 1]


def test_a_copy_of_torchs_pending_signs_is_one_dense_copy():
    torch = pytest.importorskip("torch")
    z = (torch.arange(6) + 1j).to(torch.complex64).reshape(2, 3)
    for tensor in (z.T.conj(), z.conj(), z.conj().imag, z.T.conj().imag, z[:, ::2].conj()):
        plan = gi.explain(tensor, copyif=True)
        with gi.count_copies() as counted:
            x = gi.from_any(tensor, copyif=True)
        assert (counted.count, counted.bytes) == (1, plan.bytes)
        assert x.is_c_contiguous()
        assert np.array_equal(x.get(), tensor.resolve_conj().resolve_neg().numpy())
        # What the next library does is told of the copy, not of the tensor.
        assert gi.explain(tensor, "buffer", copyif=True).bytes == plan.bytes
        with gi.count_copies() as counted:
            gi.to(tensor, "buffer", copyif=True)
        assert counted.bytes == plan.bytes


def test_torch_memory_between_elements():
    torch = pytest.importorskip("torch")
    off = torch.frombuffer(bytearray(range(20)), dtype=torch.float32, offset=1, count=4)
    assert gi.explain(off).refused
    with pytest.raises(gi.GpuInteropError, match="copyif"):
        gi.from_any(off)
    plan = gi.explain(off, copyif=True)
    with gi.count_copies() as counted:
        x = gi.from_any(off, copyif=True)
    assert (counted.count, counted.bytes) == (1, 16) == (1, plan.bytes)
    assert x.get().tobytes() == off.numpy().tobytes()


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch calls its own layouts a beta
def test_tensors_of_other_layouts():
    torch = pytest.importorskip("torch")
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    compressed = torch.eye(3).to_sparse_csr()
    for tensor in (jagged, compressed, torch.eye(3).to_mkldnn()):
        plan = gi.explain(tensor, copyif=True)
        assert plan.refused
        assert plan.fix
        with pytest.raises(plan.error):
            gi.from_any(tensor, copyif=True)


# ---- JAX ----------------------------------------------------------------------------------------


def test_several_devices_of_jax():
    """On two host devices, in a process of its own: the number is fixed when JAX starts."""
    pytest.importorskip("jax")
    program = """
import jax, numpy as np, gpuinterop as gi
from jax.sharding import Mesh, NamedSharding, PartitionSpec
one, two = jax.devices()
j = jax.device_put(jax.numpy.arange(32, dtype="float32"), two)
x = gi.from_any(j)
assert x.ptr == j.unsafe_buffer_pointer() and str(x.device) == "cpu" and gi.explain(j).shared
assert gi.shares_memory(x, j)
place = NamedSharding(Mesh(np.array([one, two]), "i"), PartitionSpec("i"))
spread = jax.device_put(j, place)
for copyif in (False, True):
    plan = gi.explain(spread, "torch", copyif)
    assert plan.refused and plan.code == "sharded", plan
    try:
        gi.from_any(spread, copyif)
    except gi.ExportError as e:
        assert e.reason == "sharded" and "addressable_shards" in e.fix
    else:
        raise SystemExit("not refused")
part = gi.from_any(spread.addressable_shards[1].data)
assert part.tolist() == list(range(16, 32))
print("done")
"""
    environment = {
        **os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr


def test_donated_arrays_and_small_integers():
    jax = pytest.importorskip("jax")
    add = jax.jit(lambda a: a + 1, donate_argnums=0)
    j = jax.numpy.ones(64)
    x = gi.from_any(j)
    add(j).block_until_ready()
    assert not j.is_deleted()  # XLA gives memory away only while nobody else looks at it
    assert x.get().tolist() == [1] * 64
    assert gi.from_any(j).ptr == x.ptr
    del x
    gc.collect()
    k = jax.numpy.ones(64)
    add(k).block_until_ready()
    assert k.is_deleted()
    assert gi.explain(k).refused
    with pytest.raises(gi.ExchangeError, match="donated"):
        gi.from_any(k)
    for dtype in ("int4", "uint4"):
        small = jax.numpy.ones(3, dtype)
        assert gi.explain(small, copyif=True).refused
        with pytest.raises(gi.DTypeError):
            gi.from_any(small, copyif=True)


def test_tracers_in_every_transformation():
    jax = pytest.importorskip("jax")

    def inside(a):
        for take in (gi.from_any, gi.from_dlpack, gi.asarray, gi.CudaNdarray):
            with pytest.raises(gi.GpuInteropError):
                take(a)
        assert gi.explain(a, "torch").refused
        return a.sum()

    ones = jax.numpy.ones(3)
    jax.grad(inside)(ones)
    jax.vmap(inside)(jax.numpy.ones((2, 3)))
    jax.jit(inside)(ones)
    jax.make_jaxpr(inside)(ones)


def test_jax_never_copies_behind_our_back():
    """Whatever the alignment: shared means the same address, and else it is refused or counted."""
    pytest.importorskip("jax")
    for offset in range(0, 132, 4):
        x = converters.from_numpy(aligned(16, "float32", offset))
        plan = gi.explain(x, "jax")
        assert plan.shared == (offset % 64 == 0)
        with gi.count_copies() as counted:
            j = gi.to(x, "jax", copyif=True)
        j.block_until_ready()
        assert counted.bytes == (0 if plan.shared else 64)
        assert (j.unsafe_buffer_pointer() == x.ptr) == plan.shared


# ---- Warp ---------------------------------------------------------------------------------------


def test_warp_gradients_are_left_alone():
    warp = pytest.importorskip("warp")
    warp.config.quiet = True
    warp.init()
    a = warp.zeros(4, dtype=warp.float32, requires_grad=True)
    x = gi.from_any(a)
    assert x.ptr == a.ptr
    assert a.grad.ptr != x.ptr
    assert converters.to_warp(ours(4)).grad is None


# ---- MPI ----------------------------------------------------------------------------------------


def test_mpi_reads_host_arrays():
    """mpi4py asks DLPack for version 1 without a stream, wants dense memory, and heeds the mark."""
    mpi = pytest.importorskip("mpi4py.MPI")
    x = ours(3, 4)
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
