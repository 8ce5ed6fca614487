"""Each library against ours on a real GPU: pointers, values, lifetimes, refusals, order."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases import agree
from gpu_peers import PEERS, load, peer, spin

import gpuinterop as gi
from gpuinterop import converters

pytestmark = [
    pytest.mark.gpu,
    # The libraries' own deprecations are not what is tested here.
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(params=PEERS)
def lib(request):
    return peer(request.param)


def base(dtype="float32"):
    return (np.arange(48) % 7).astype(dtype).reshape(6, 8)


VIEWS = {
    "c": np.s_[:],
    "rows": np.s_[1:4],
    "sliced": np.s_[::2, ::2],
    "reversed": np.s_[::-1],
    "reversed_columns": np.s_[:, ::-1],
    "column": np.s_[:, 2:3],
    "row": np.s_[2:3],
    "vector": np.s_[3],
    "strided_vector": np.s_[3, ::2],
    "offset": np.s_[0, 1:],
    "zero_d": np.s_[1, 1],
    "empty": np.s_[:0],
}


@pytest.mark.parametrize("copyif", [False, True])
@pytest.mark.parametrize("view", [*VIEWS, "transposed", "broadcast"])
def test_out(lib, view, copyif):
    """explain says what happens, pointers are equal exactly when it says shared, values are kept."""
    for dtype in lib.dtypes:
        whole = gi.array(base(dtype), device="cuda")
        if view == "transposed":
            x, expected = whole.T, base(dtype).T
        elif view == "broadcast":
            x = whole[0].broadcast_to((3, 8))
            expected = np.broadcast_to(base(dtype)[0], (3, 8))
        else:
            x, expected = whole[VIEWS[view]], base(dtype)[VIEWS[view]]
        plan, result, error = agree(x, lib.name, copyif)
        if error is not None:
            continue
        label = f"{lib.name} {view} {dtype} copyif={copyif}: {plan}"
        assert tuple(result.shape) == expected.shape, label
        if not x.size:
            continue
        assert (lib.ptr(result) == x.ptr) == plan.shared, label
        back = gi.from_any(result)
        np.testing.assert_array_equal(back.get(), expected, label)
        if min(x.strides, default=0) >= 0 and view != "broadcast":
            np.testing.assert_array_equal(lib.read(result), expected, label)


def test_in(lib):
    for dtype in lib.dtypes:
        a = lib.make(base(dtype))
        for foreign in (a, *lib.views(a)):
            plan = gi.explain(foreign)
            assert plan.shared, plan
            x = gi.from_any(foreign)
            expected = lib.read(foreign) if min(x.strides, default=0) >= 0 else None
            assert x.shape == tuple(foreign.shape)
            assert x.dtype == dtype
            if x.size:
                assert x.ptr == lib.ptr(foreign)
                assert gi.shares_memory(x, foreign)
            if expected is not None:
                np.testing.assert_array_equal(x.get(), expected)


def test_writes_are_seen_on_both_sides(lib):
    x = gi.array(base(), device="cuda")
    out = gi.to(x, lib.name)
    x[0, 0] = 55
    gi.synchronize()
    assert lib.read(out)[0, 0] == 55
    foreign = lib.make(base())
    y = gi.from_any(foreign)
    if not lib.mutable:
        with pytest.raises(gi.ReadOnlyError):
            y[0, 0] = 1
        return
    lib.write(out, 3)
    assert (x.get() == 3).all()
    lib.write(foreign, 4)
    assert (y.get() == 4).all()
    y[...] = 5
    gi.synchronize()
    assert (lib.read(foreign) == 5).all()


def test_owners_survive_and_are_released(lib):
    gc.collect()
    gi.synchronize()
    before = gi.memory_stats("cuda")["live_bytes"]
    x = gi.array(base(), device="cuda")
    out = gi.to(x, lib.name)
    ptr = x.ptr
    del x
    gc.collect()
    gi.array(np.zeros((6, 8), "float32"), device="cuda")  # would take freed memory over
    assert lib.ptr(out) == ptr
    np.testing.assert_array_equal(lib.read(out), base())
    del out
    for _ in range(3):
        gc.collect()
    assert gi.memory_stats("cuda")["live_bytes"] == before
    foreign = lib.make(base())
    y = gi.from_any(foreign)[::2]
    del foreign
    gc.collect()
    lib.make(np.zeros((6, 8), "float32"))
    np.testing.assert_array_equal(y.get(), base()[::2])


def test_ten_thousand_conversions_leave_memory_flat(lib):
    x = gi.array(base(), device="cuda")
    foreign = lib.make(base())

    def once(n):
        for _ in range(n):
            gi.to(x, lib.name)
            gi.from_any(foreign)

    def measured():
        # Of this process alone: other tests run beside this one on the same GPU.
        gc.collect()
        gi.synchronize()
        ours = gi.memory_stats("cuda")
        counts = ours["live_bytes"], lib.held(), sys.getrefcount(x), sys.getrefcount(foreign)
        return counts, ours["pool_bytes"], resident()

    once(200)
    before, pool, host = measured()
    once(10_000)
    after, pool_after, host_after = measured()
    assert after == before
    assert pool_after - pool < 64 << 20
    assert host_after - host < 16 << 20


def resident():
    """Bytes of host memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_capsules_that_nobody_uses_leave_memory_flat():
    x = gi.array(base(), device="cuda")
    references = sys.getrefcount(x)
    before = gi.memory_stats("cuda")["live_bytes"]
    for _ in range(10_000):
        x.__dlpack__(max_version=(1, 3), stream=1)
        x.__dlpack__(stream=1)
    gc.collect()
    assert gi.memory_stats("cuda")["live_bytes"] == before
    assert sys.getrefcount(x) == references


def test_our_slow_stream_is_waited_for(lib):
    """A late write on a side stream of ours is visible to the consumer."""
    s = gi.Stream()
    for value in (3, 4, 5):
        x = gi.array(np.zeros((6, 8), "float32"), device="cuda")
        gi.synchronize()
        with gi.stream(s):
            spin(s.handle)
            x.fill(value)
        out = gi.to(x, lib.name)
        assert (lib.read(out) == value).all(), f"{lib.name} read before the stream was done"


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_their_slow_stream_is_waited_for(name):
    lib = peer(name)
    for value in (3, 4, 5):
        foreign = lib.make(np.zeros((6, 8), "float32"))
        gi.synchronize()
        if name == "torch":
            s = lib.torch.cuda.Stream()
            with lib.torch.cuda.stream(s):
                lib.torch.cuda._sleep(100_000_000)
                foreign.fill_(value)
                x = gi.from_any(foreign)
        else:
            s = lib.cupy.cuda.Stream(non_blocking=True)
            with s:
                spin(s.ptr)
                foreign[...] = value
                x = gi.from_any(foreign)
        assert (x.get() == value).all(), f"read before {name}'s stream was done"


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_a_caching_allocator_does_not_reuse_what_we_still_read(name):
    """The producer drops its array while our slow stream still reads it; then allocates again."""
    lib = peer(name)
    s = gi.Stream()
    for value in (1, 2, 3, 4):
        foreign = lib.make(np.full((256, 256), value, "float32"))
        gi.synchronize()
        with gi.stream(s):
            x = gi.from_any(foreign)
            result = gi.empty((256, 256), device="cuda")
            spin(s.handle)
            result[...] = x
        del x, foreign
        gc.collect()
        for _ in range(8):  # one of them gets the block
            lib.make(np.full((256, 256), -1, "float32"))
        assert (result.get() == value).all(), f"{name} reused memory that was still read"


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_one_stream_for_all(name):
    lib = peer(name)
    s = gi.Stream()

    def current():
        if name == "torch":
            return lib.torch.cuda.current_stream().cuda_stream
        return lib.cupy.cuda.get_current_stream().ptr

    before = current()
    with gi.stream(s):
        assert current() == s.handle
        assert gi.devices.current_stream("cuda").handle == s.handle
        with gi.stream(gi.devices.legacy_stream("cuda")):
            assert current() in (0, 1)
        assert current() == s.handle
    assert current() == before


def test_a_context_of_its_own_is_refused():
    """In a process of its own: the context cannot be taken back."""
    load("pycuda")
    program = """
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
print("done")
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr


@pytest.mark.parametrize("first", ["gpuinterop", "pycuda", "torch"])
def test_a_process_that_mixes_all_of_them_exits_cleanly(first):
    program = f"""
import importlib, importlib.util, numpy
first = {first!r}
if first == "pycuda" and importlib.util.find_spec("pycuda"):
    import pycuda.autoprimaryctx
if first == "torch" and importlib.util.find_spec("torch"):
    import torch
    torch.ones(3).cuda()
import gpuinterop as gi
keep = []
a = numpy.arange(12, dtype="float32").reshape(3, 4)
x = gi.array(a, device="cuda")
if importlib.util.find_spec("pycuda"):
    gi.converters.pycuda.init()
for name in ("torch", "cupy", "numba", "jax", "pycuda", "tvm_ffi", "cuda_core"):
    plan = gi.explain(x, name)
    if plan.error is gi.MissingLibraryError:
        continue
    if not plan.shared:  # built for the host alone
        assert name in ("torch", "jax") and plan.code == "device", plan
        continue
    out = gi.to(x, name)
    back = gi.from_any(out)
    assert (back.get() == a).all(), name
    keep.append((out, back, x.__dlpack__(stream=1)))
    if name == "torch":
        keep.append(gi.from_any(out.clone()))
print("done")
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert (run.returncode, run.stdout.splitlines()[-1:]) == (0, ["done"]), run.stderr[-3000:]
    assert "terminate" not in run.stderr
    assert "Traceback" not in run.stderr, run.stderr[-3000:]


# ---- oddities -----------------------------------------------------------------------------------


def test_torch_tensors_without_plain_memory():
    torch = load("torch")
    t = torch.ones(3, device="cuda", requires_grad=True)
    z = torch.ones(3, dtype=torch.complex64, device="cuda") * 1j
    for tensor, word in ((t, "detach"), (z.conj(), "resolve_conj"), (z.conj().imag, "resolve_neg")):
        _, _, error = agree(tensor)
        assert type(error) is gi.ExportError
        assert word in error.fix
    assert gi.from_any(t.detach()).ptr == t.data_ptr()
    pinned = torch.ones(3).pin_memory()
    assert gi.from_any(pinned).device == "cpu"


def test_cupy_managed_memory():
    cupy = load("cupy")
    with cupy.cuda.using_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc):
        a = cupy.arange(8, dtype="float32")
    x = gi.from_any(a)
    assert x.memory == "managed"
    assert x.get().tolist() == list(range(8))
    assert converters.to_torch(x).tolist() == list(range(8))


def test_bfloat16_of_cupy():
    """Shared both ways, in values too, and CuPy computes with it."""
    cupy, ml_dtypes = load("cupy"), pytest.importorskip("ml_dtypes")
    if int(cupy.__version__.partition(".")[0]) < 14:
        pytest.skip("bfloat16 is of CuPy 14")
    host = base().astype(ml_dtypes.bfloat16)
    x = gi.array(host, device="cuda")
    for part, values in (
        (x, host),
        (x.T, host.T),
        (x[::-1, ::2], host[::-1, ::2]),
        (x[:0], host[:0]),
    ):
        assert gi.explain(part, "cupy").shared
        a = converters.to_cupy(part)
        assert a.dtype == host.dtype
        assert np.array_equal(cupy.asnumpy(a.astype("float32")), values.astype("float32"))
        assert np.array_equal(cupy.asnumpy((a + a).astype("float32")), 2 * values.astype("float32"))
        assert gi.explain(a).shared
        for back in (gi.from_any(a), converters.from_cupy(a)):
            assert (back.dtype, back.shape) == (host.dtype, values.shape)
            assert back.ptr == (part.ptr if part.size else 0)
            assert np.array_equal(back.get(), values)
    side = cupy.cuda.Stream(non_blocking=True)
    with side:
        own = cupy.asarray(base()).astype(host.dtype)
        assert np.array_equal(converters.from_cupy(own).get(), host)


@pytest.mark.multi_gpu
def test_arrays_of_another_device_than_the_current_one():
    torch = load("torch")
    t = torch.arange(8, dtype=torch.float32, device="cuda:1")
    x = gi.from_any(t)
    assert x.device == "cuda:1"
    assert x.get().tolist() == list(range(8))
    y = gi.array(np.ones(3, "float32"), device="cuda:1")
    back = converters.to_torch(y)
    assert back.device.index == 1
    cupy = load("cupy")
    assert converters.to_cupy(y).device.id == 1
    with cupy.cuda.Device(0):
        assert gi.from_any(converters.to_cupy(y)).device == "cuda:1"
