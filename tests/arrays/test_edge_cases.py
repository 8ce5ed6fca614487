"""Empty arrays, 2**31 elements, sizes of more than 63 bits, every dtype, incomplete layouts, long chains of owners."""

import sys
import threading

import numpy as np
import pytest
from doubles import driver
from helpers.public_tables import NAMES, NUMPY_NAMES

import gpuinterop as gi

ml_dtypes = pytest.importorskip("ml_dtypes")


@pytest.mark.slow
def test_more_than_2_to_the_31_elements(device):
    n = 2**31 + 8
    x = gi.empty(n, "int8", device=device)
    x[...] = 1
    x[2**31 :] = np.arange(8, dtype="int8")
    x[:4] = [4, 3, 2, 1]
    assert x[2**31 + 3].item() == 3
    assert x[-1].item() == 7
    assert x[::-1][:2].tolist() == [7, 6]
    assert x[:: 2**30].tolist() == [4, 1, 0]
    pairs = x.reshape(-1, 2).T
    assert pairs.shape == (2, n // 2)
    assert pairs[1, -1].item() == 7
    assert pairs[:, : 2**29 : 2**28].copy().tolist() == [[4, 1], [3, 1]]
    wide = x[:64].broadcast_to(2**31, 64)
    assert wide.size == 2**37
    assert wide[2**31 - 1, 0].item() == 4


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_travels(device, name):
    if name not in NUMPY_NAMES and not hasattr(ml_dtypes, name):
        pytest.skip("needs ml_dtypes 0.6")
    dtype = np.dtype(name if name in NUMPY_NAMES else getattr(ml_dtypes, name))
    host = np.arange(6).astype(dtype).reshape(2, 3)
    x = gi.GpuArray(host, device=device)
    assert x.dtype == dtype
    assert x.itemsize == host.itemsize
    assert x.strides == host.strides
    # Compared byte by byte: some of these types have no equality in NumPy.
    assert x[:, ::-1].get().tobytes() == host[:, ::-1].tobytes()
    x[0] = host[1]
    x[1, 0] = host[0, 1]
    host[0] = host[1].copy()
    host[1, 0] = np.arange(6).astype(dtype)[1]
    assert x.get().tobytes() == host.tobytes()
    assert x.copy("F").get().tobytes() == host.tobytes()


def test_moving_between_devices(device):
    x = gi.CudaNdarray(np.arange(6, dtype="float32").reshape(2, 3), device=device)
    assert x.to_device(device) is x
    assert x.cpu().device == "cpu"
    away = x[:, ::-1].to_device("cpu", copy=True)
    assert away.base is None
    np.testing.assert_array_equal(away.get(), x.get()[:, ::-1])
    x.sync()
    assert x.transfer("cpu").tolist() == x.tolist()


# ---- sizes and steps ------------------------------------------------------------------------------


def test_shape_whose_bytes_do_not_fit_is_refused_however_it_is_made(device):
    one, none = gi.ones(1, device=device), gi.empty((0, 4), device=device)
    for make in (
        lambda: gi.empty((2**62, 4), device=device),
        lambda: gi.empty((0, 2**62), device=device),
        lambda: one.broadcast_to((2**62,)),
        lambda: one[:0].reshape((1, 0)).broadcast_to((2**61, 0)),
        lambda: gi.from_gpu_pointer(one.ptr, (2**61, 0), base=one, device=device),
        lambda: none._set_shape_i(1, 2**62),
    ):
        with pytest.raises(gi.ShapeError, match="63"):
            make()
    assert one.broadcast_to((2**60,)).nbytes == 2**62
    empty = gi.empty((0, 2**60), device=device)
    assert (empty.strides, empty.tolist()) == ((2**62, 4), [])


@pytest.mark.parametrize("step", [2**63 - 1, -(2**63), 2**62])
def test_longest_steps_stay_outside(step):
    x = gi.full(2, 7, device="cpu")
    for use in (
        lambda: setattr(x, "_strides", (step,)),
        lambda: setattr(x, "strides", (step // 4 * 4,)),
        lambda: x._restrided((3, 2), (1, step), 0),
        lambda: gi.from_gpu_pointer(x.ptr, (3, 2), (1, step), x, device="cpu"),
    ):
        with pytest.raises(gi.BoundsError):
            use()
    x._set_stride(0, step)
    with pytest.raises(gi.BoundsError):
        x.tolist()


# ---- layouts that are incomplete, or change -------------------------------------------------------


def test_incomplete_layout_is_refused_for_use_and_ended_by_strides(device):
    x = gi.CudaNdarray(np.arange(12, dtype="float32"), device=device)
    x._set_stride(0, 2)  # reaches 22 elements far in 12
    target = gi.zeros(12, device=device)
    with pytest.raises(gi.BoundsError, match="inside"):
        target[...] = x
    assert not target.get().any()
    x._set_shape_i(0, 8)  # 14 elements: still too far
    assert (x.shape, x.size, x.ndim, x.nbytes, len(x)) == ((8,), 8, 1, 32, 8)
    with pytest.raises(gi.BoundsError):
        x.strides = (8,)
    x.strides = (4,)
    assert x.tolist() == list(range(8))


def test_key_may_change_the_array_while_it_is_read():
    x = gi.GpuArray(np.arange(200, dtype="int32").reshape(100, 2), device="cpu")

    class Turn:
        def __index__(self):
            x.shape = (2, 100)
            return 99

    # The key is read against the shape at the beginning.
    with pytest.raises(IndexError, match="axis 1"):
        x[Turn(), 99]
    x.shape = (100, 2)
    assert x[Turn(), 1].item() == 199
    assert x.shape == (2, 100)


@pytest.mark.parametrize("error", [KeyboardInterrupt, LookupError])
def test_exceptions_of_index_and_sequence_methods_reach_the_caller(error):
    class Raises(list):
        def __index__(self):
            raise error("from within")

        def __iter__(self):
            raise error("from within")

    x, index, extents = gi.zeros((2, 2), device="cpu"), Raises(), Raises((2, 2))
    for call in (
        lambda: x[index:],
        lambda: x[::index],
        lambda: x.reshape((index,)),
        lambda: x._permuted((index, 0)),
        lambda: setattr(x, "strides", (index, 4)),
        lambda: gi.zeros(extents),
        lambda: x.reshape(extents),
        lambda: x.broadcast_to(extents),
    ):
        with pytest.raises(error, match="from within"):
            call()


def test_interrupts_reach_the_caller_while_an_error_is_worded(monkeypatch):
    def interrupted(*_, **parts):
        raise KeyboardInterrupt

    class Unprintable:
        __repr__ = interrupted

    x = gi.zeros(3, device="cpu")
    for call in (lambda: x.var(ddof=Unprintable()), lambda: x.copy(Unprintable())):
        with pytest.raises(KeyboardInterrupt):
            call()
    # The error of the addition is made first, and then that of the statement.
    makers = iter((gi.ShapeError.__init__, interrupted))
    monkeypatch.setattr(gi.ShapeError, "__init__", lambda *a, **parts: next(makers)(*a, **parts))
    with pytest.raises(KeyboardInterrupt):
        x += gi.zeros(4, device="cpu")


def test_reading_while_another_thread_reshapes():
    x = gi.GpuArray(np.arange(64, dtype="float32").reshape((2,) * 6), device="cpu")
    stop = threading.Event()
    surprises = []

    def reshape():
        while not stop.is_set():
            x.shape = (64,)
            x.shape = (2,) * 6
            x.shape = (8, 8)

    def read():
        for _ in range(2000):
            view, copied = x.view(), x.copy()
            if view.size != 64 or copied.get().sum() != 2016 or x[...].get().sum() != 2016:
                surprises.append((view, copied))
            x.view().__dlpack__()

    writers = [threading.Thread(target=reshape) for _ in range(2)]
    readers = [threading.Thread(target=read) for _ in range(4)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in writers + readers:
            thread.start()
        for thread in readers:
            thread.join()
    finally:
        stop.set()
        sys.setswitchinterval(switch)
        for thread in writers:
            thread.join()
    assert not surprises


# ---- owners and subclasses ------------------------------------------------------------------------


CHAINS = {
    "subclass": "x = gi.from_gpu_pointer(first.ptr, (4,), base=x, device='cpu')",
    "numpy": "x = gi.from_dlpack(np.from_dlpack(x))",
    "capsules": "x = gi.from_dlpack(x.__dlpack__(max_version=(1, 0)))",
}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_long_chain_of_owners_is_released_without_deep_recursion(chain):
    code = f"""
import gc, threading
import numpy as np, gpuinterop as gi
from gpuinterop.devices import memory_stats
gi.from_dlpack(np.ones(3))  # the engine of conversions keeps an empty array
before = memory_stats("cpu")
first = x = gi.ones(4, device="cpu")
for _ in range(100_000):
    {CHAINS[chain]}
del first, x
gc.collect()
after = memory_stats("cpu")
assert after["live_arrays"] == before["live_arrays"], (before, after)
assert after["live_bytes"] == before["live_bytes"], (before, after)
"""
    driver.run(code, timeout=120)
