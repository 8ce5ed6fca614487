"""Handles to GPU memory: each library's memory, its mechanism, the order of work, lifetimes; on one GPU."""

import gc
import pickle
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
from helpers.opener import Opener, open_in_cycles

import gpuinterop as gi

pytestmark = pytest.mark.gpu

ROWS, COLUMNS = 40, 50
VALUES = np.arange(ROWS * COLUMNS, dtype="float32").reshape(ROWS, COLUMNS)


def of_ours():
    x = gi.shared_empty(VALUES.shape, device="cuda")
    x[...] = VALUES
    return x


def of_torch():
    return pytest.importorskip("torch").tensor(VALUES, device="cuda")


def of_cupy():
    return pytest.importorskip("cupy").asarray(VALUES)


def of_jax():
    return pytest.importorskip("jax").device_put(VALUES)


def of_numba():
    pytest.importorskip("numba")
    return import_module("numba.cuda").to_device(VALUES)


def of_cuda_core():
    core = pytest.importorskip("cuda.core")
    if not hasattr(core, "DeviceMemoryResourceOptions"):
        core = pytest.importorskip("cuda.core.experimental")
    device = core.Device(0)
    device.set_current()
    options = core.DeviceMemoryResourceOptions(ipc_enabled=True, max_size=1 << 26)
    pool = core.DeviceMemoryResource(device, options)
    buffer = pool.allocate(VALUES.nbytes, stream=device.default_stream)
    x = gi.CudaNdarray.from_pointer(int(buffer.handle), VALUES.shape, None, (pool, buffer))
    x[...] = VALUES
    return x


OWNERS = {
    "ours": (of_ours, ("vmm",)), "torch": (of_torch, ("legacy", "vmm")), "cupy": (of_cupy, ("legacy",)),
    "jax": (of_jax, ("legacy", "vmm")), "numba": (of_numba, ("legacy",)), "cuda.core": (of_cuda_core, ("pool",)),
}  # fmt: skip
# The code with which another library of the opener sums an array over the memory.
SUMS = {
    "ours": "y.sum().item()",
    "torch": "gi.to(y, 'torch', allow_readonly=True).sum(dtype=__import__('torch').float64).item()",
    "cupy": "float(gi.to(y, 'cupy', allow_readonly=True).sum(dtype='float64'))",
    "jax": "float(__import__('numpy').asarray(gi.to(y, 'jax')).sum(dtype='float64'))",
    "numba": "float(gi.to(y, 'numba', allow_readonly=True).copy_to_host().sum(dtype='float64'))",
}  # fmt: skip


@pytest.mark.parametrize("reader", SUMS)
@pytest.mark.parametrize("owner", OWNERS)
def test_every_library_owns_and_opens(owner, reader, opener):
    make, mechanisms = OWNERS[owner]
    if reader != "ours":
        pytest.importorskip(reader)
    x = make()
    with gi.no_copies():
        handle = gi.share(x)
    assert handle.mechanism in mechanisms
    assert gi.explain(x, "process").shared
    code = f"with gi.no_copies():\n    y = h.open()\nr = y.shape, y.strides, float({SUMS[reader]})"
    # A library may still read when it frees its array. Then a later call of gpuinterop returns the memory.
    code += "\ndel y; gi.synchronize()"
    total = float(VALUES.sum(dtype="float64"))
    assert opener.run(handle, code) == repr(((ROWS, COLUMNS), (COLUMNS * 4, 4), total))
    assert handle.wait(20)


@pytest.mark.parametrize("owner", ["ours", "torch", "cuda.core"])
def test_views_keep_their_layout_and_both_sides_see_writes(owner, opener):
    x = gi.from_any(OWNERS[owner][0]())
    view = x[::-2, 3::4].T
    handle, expected = gi.share(view), (view.shape, view.strides, view.get().sum().item())
    code = "kept['y'] = y = h.open(); r = y.shape, y.strides, y.sum().item(); y[0] = -1; gi.synchronize()"
    assert opener.run(handle, code) == repr(expected)
    assert view[0].tolist() == [-1] * view.shape[1]
    assert x[0, 0].item() == 0
    x[...] = 2
    gi.synchronize()
    assert opener.run(handle, "r = kept['y'].sum().item(); kept.clear()") == str(2.0 * view.size)
    assert handle.wait(20)


@pytest.mark.torch
def test_the_opener_waits_for_work_that_was_queued_before():
    torch = pytest.importorskip("torch")
    other = Opener()
    warm = gi.share(of_ours())
    other.run(warm, "h.open().sum().item()")
    for make in (of_torch, lambda: torch.from_dlpack(of_ours())):
        t = make()
        torch.cuda.synchronize()
        torch.cuda._sleep(1_000_000_000)  # about half a second
        t.fill_(3)
        handle = gi.share(t)
        assert other.run(handle, "r = h.open().sum().item()") == str(3.0 * t.numel())
    other.end()


def test_own_memory_of_the_default_pool_is_refused_or_copied(opener):
    x = gi.asarray(VALUES, device="cuda")
    with pytest.raises(gi.ExchangeError, match="pool"):
        gi.share(x)
    assert gi.explain(x, "process").refused
    with gi.count_copies() as copies:
        handle = gi.share(x.T, copyif=True)
    assert (copies.count, handle.mechanism) == (1, "vmm")
    assert opener.run(handle, "r = h.open().shape") == repr((COLUMNS, ROWS))


@pytest.mark.parametrize("owner", ["ours", "cupy", "cuda.core"])
def test_an_allocation_is_opened_twice_and_each_array_ends_alone(owner, opener):
    x = gi.from_any(OWNERS[owner][0]())
    first, second = gi.share(x), gi.share(x[1:])
    opener.run(first, "kept['a'] = h.open(); kept['b'] = h.open()")
    opener.run(second, "kept['c'] = h.open()")
    assert (first.openers, second.openers) == (2, 1)
    assert opener.run(
        first, "del kept['a']; r = kept['b'].sum().item() - kept['c'].sum().item()"
    ) == str(float(VALUES[0].sum()))
    opener.run(first, "kept.pop('b')")
    assert first.wait(20)
    assert opener.run(second, "r = kept.pop('c')[0, 0].item(), h.open()[0, 1].item()") == repr(
        (50.0, 51.0)
    )
    assert second.wait(20)


OWNER = """
import sys, pickle, cupy
import gpuinterop as gi
x = cupy.full(1000, 6, "float32")
handle = gi.share(x)
print(pickle.dumps(handle).hex(), flush=True)
sys.stdin.read()
"""


def test_the_owner_of_a_legacy_handle_waits_for_its_openers():
    pytest.importorskip("cupy")
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    handle = pickle.loads(bytes.fromhex(owner.stdout.readline().decode()))
    owner.stdout.close()
    assert handle.mechanism == "legacy"
    y = handle.open()
    owner.stdin.close()
    with pytest.raises(subprocess.TimeoutExpired):
        owner.wait(3)
    with pytest.raises(gi.ExchangeError):
        handle.open()
    assert y.sum().item() == 6000
    y.fill(1)
    assert y.sum().item() == 1000
    del y
    gc.collect()
    assert owner.wait(60) == 0
    with pytest.raises(gi.ExchangeError):
        handle.open()


def test_memory_comes_back_when_handles_and_arrays_are_gone(opener):
    for _ in range(24):  # together more than the GPU has
        x = gi.shared_empty(8 << 30, "uint8", device="cuda")
        handle = gi.share(x)
        assert opener.run(handle, "y = h.open(); y[:9].fill(1); gi.synchronize(); del y") == "None"
        assert handle.wait(20)
        del x, handle
        gc.collect()


@pytest.mark.torch
def test_an_allocator_never_reuses_memory_that_is_open(opener):
    torch = pytest.importorskip("torch")
    t = of_torch()
    place, handle = t.data_ptr(), gi.share(t)
    opener.run(handle, "kept['y'] = h.open()")
    del t, handle
    gc.collect()
    others = [torch.zeros(ROWS, COLUMNS, device="cuda") for _ in range(20)]
    assert place not in [other.data_ptr() for other in others]
    assert opener.run(b"\x80\x04N.", "r = kept.pop('y').sum().item()") == str(float(VALUES.sum()))


def test_an_array_that_ends_inside_a_capture_is_closed_later(opener):
    handle = gi.share(of_ours())
    code = """
x = gi.ones(8, device="cuda")
double = gi.capture(lambda a: a + a, x)
y = h.open()
with gi.Stream("cuda"):
    with gi.capture() as graph:
        z = x + x
        del y
graph.replay()
r = z.tolist()
h.open()
"""
    assert opener.run(handle, code) == repr([2.0] * 8)
    assert handle.wait(20)


def test_a_read_only_view_is_opened_read_only(opener):
    x = of_ours()[:2]
    x.readonly = True
    handle = gi.share(x)
    assert opener.run(handle, "h.open()[0] = 1").startswith("ReadOnlyError")
    assert x[0, 1].item() == 1


def test_a_process_without_the_gpu_is_told(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    other = Opener()
    assert other.run(gi.share(of_ours()), "h.open()").startswith("DeviceError")
    other.end()


def test_a_new_array_in_shared_memory_goes_to_every_library():
    x = of_ours()
    for library in ("torch", "cupy", "jax", "numba"):
        pytest.importorskip(library)
        y = gi.to(x, library)
        assert gi.shares_memory(x, y)
    assert (gi.sum(x + x).item(), x.T.copy().shape) == (float(2 * VALUES.sum()), (COLUMNS, ROWS))
    assert gi.matmul(x, x.T).shape == (ROWS, ROWS)


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("owner", ["ours", "cupy", "cuda.core"])
def test_cycles_leave_descriptors_mappings_and_memory_flat(owner, count, opener):
    open_in_cycles(opener, gi.share(OWNERS[owner][0]()), count)
