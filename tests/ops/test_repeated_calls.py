"""Repeated calls: what is kept for one call decides no other one."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref

import numpy as np
import pytest

import gpuinterop as gi

HOST = np.arange(20, dtype="float32").reshape(4, 5) / 8


def arrays(device, *dtypes):
    return [gi.GpuArray(HOST.astype(d), dtype=d, device=device) for d in dtypes]


def same(found, expected):
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.get(), expected)


def test_clip_of_integers_looks_at_its_bounds(device):
    (x,) = arrays(device, "int8")
    host = x.get()
    for low, high in [(1, 2), (0, 1), (-128, 1), (-(10**30), 1), (1, 127), (1, 10**30), (2, 2)] * 2:
        same(x.clip(low, high), np.clip(host, max(low, -128), min(high, 127)))
    with pytest.raises(OverflowError):
        x.clip(1000)


def test_round_and_astype_look_at_their_arguments(device):
    x, n = arrays(device, "float64", "int32")
    for decimals in (1, 2, 0, -1, 1):
        same(x.round(decimals), np.round(HOST.astype("float64"), decimals))
        same(gi.round(n, decimals), np.round(n.get(), decimals))
    for dtype in ("int16", np.float32, np.dtype("bool"), float, "int16", "float64"):
        same(x.astype(dtype), x.get().astype(dtype))
        assert (x.astype(dtype, copy=False) is x) == (np.dtype(dtype) == x.dtype)
        assert x.astype(dtype, "F").flags.f_contiguous
    with pytest.raises(gi.ShapeError):
        x.astype("float64", "Z", copy=False)


def test_kinds_of_operands_are_told_apart(device):
    x, n = arrays(device, "float32", "int16")
    for a in (x, n, gi.CudaNdarray(HOST, device=device)) * 2:
        host = a.get()
        for b in (1, 1.5, True, a[0], n[1]):
            value = b.get() if isinstance(b, gi.GpuArray | gi.CudaNdarray) else b
            found = gi.where(a > 1, a, b)
            expected = np.where(host > 1, host, value)
            np.testing.assert_array_equal(found.get(), expected.astype(found.dtype))
            assert found.dtype == (np.float32 if type(a) is gi.CudaNdarray else expected.dtype)
            same(np.maximum(a, b), np.maximum(host, value).astype(np.maximum(a, b).dtype))


def test_take_follows_layouts_axes_and_modes(device):
    x, i = arrays(device, "float32")[0], gi.GpuArray([[7, -1]], dtype="int64", device=device)
    host, places = x.get(), i.get()
    for mode in ("clip", "wrap", "clip"):
        for axis in (0, 1, None, -1):
            for view, seen in [(x, host), (x[::-1], host[::-1]), (x.T, host.T), (x[1:], host[1:])]:
                same(view.take(i, axis, mode=mode), np.take(seen, places, axis, mode=mode))
    for dtype in ("int8", "uint64", "int64"):
        same(x.take(i.astype(dtype), 0, mode="wrap"),
             np.take(host, places.astype(dtype).astype("int64"), 0, mode="wrap"))  # fmt: skip
    out = gi.GpuArray(np.zeros((4, 1, 2), "float32"), device=device)
    for _ in range(2):
        assert x.take(i, 1, out, "clip") is out
        same(out, np.take(host, places, 1, mode="clip"))
        with pytest.raises(gi.ShapeError, match="take"):
            x.take(i, 0, out[:, :, :1], "clip")


def test_concatenate_follows_shapes_and_dtypes(device):
    x, n = arrays(device, "float32", "int16")
    for _ in range(2):
        for parts in ([x, x], [x, n], (n, n), [x[:1], x], [x[::-1], n[:, ::-1]], [n]):
            hosts = [p.get() for p in parts]
            same(gi.concatenate(parts), np.concatenate(hosts))
            same(gi.join(0, *parts), np.concatenate(hosts))
        same(gi.concatenate([x, n], -1), np.concatenate([x.get(), n.get()], 1))
        with pytest.raises(gi.ShapeError, match=r"^concatenate"):
            gi.concatenate([x, x.T])
        with pytest.raises(gi.ShapeError, match=r"^join"):
            gi.join(0, x, x.T)


def test_fill_speaks_for_itself_also_when_warm(device):
    x, n = arrays(device, "float32", "int8")
    for _ in range(2):
        x.fill(2.5)
        n.fill(-3)
        same(x, np.full(x.shape, 2.5, "float32"))
        same(n, np.full(n.shape, -3, "int8"))
        for array, value in [(x, 1e300), (n, 200), (n, -129), (n, 2**70)]:
            with pytest.raises(gi.DTypeError, match=r"^fill"):
                array.fill(value)
        with pytest.raises(gi.ReadOnlyError, match=r"^fill"):
            gi.GpuArray.broadcast_to(x[:1], x.shape).fill(1.0)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
def test_integers_are_assigned_up_to_their_ends(device, dtype):
    info = np.iinfo(dtype)
    x = gi.GpuArray(np.zeros(3), dtype=dtype, device=device)
    for value in (info.min, info.max, 1):
        x[...] = value
        assert x.tolist() == [value] * 3
    for value in (info.min - 1, info.max + 1):
        with pytest.raises(gi.DTypeError):
            x[...] = value


def test_a_kernel_looks_at_its_numbers_and_goes_with_its_name(device):
    scale = gi.ElementwiseKernel(
        "float32 a, int8 n, float32 x", "float32 z", "z = a * x + n", "scale",
        host=lambda a, n, x: (a * x + n).astype("float32"),
    )  # fmt: skip
    (x,) = arrays(device, "float32")
    for a, n in [(2.0, 3), (0.5, -4), (3, 100)]:
        same(scale(a, n, x), (a * HOST + n).astype("float32"))
        out = gi.GpuArray(np.zeros(HOST.shape, "float32"), device=device)
        assert scale(a, n, x, out=out) is out
        for bad in [(1e39, 3), (2.0, 300)]:
            with pytest.raises(gi.DTypeError, match="scale, parameter"):
                scale(*bad, x)
    with pytest.raises(gi.ArgumentTypeError, match="scale"):
        scale(1.0, x)
    copied = copy.deepcopy(scale)
    same(copied(2.0, 1, x), (2 * HOST + 1).astype("float32"))
    gone = weakref.ref(scale)
    del scale, copied
    gc.collect()
    assert gone() is None


def test_subclasses_and_their_methods(device):
    class Mine(gi.GpuArray):
        def copy(self, order="C"):
            return super().copy(order)

    x = Mine(HOST, device=device)
    for _ in range(2):
        for found in (x.copy(), x.clip(0, 1), x.astype("int32"), gi.concatenate([x, x])):
            assert type(found) is Mine


def test_copies_are_told_when_warm(device):
    (x,) = arrays(device, "float32")
    for _ in range(3):
        with gi.count_copies() as seen:
            x.copy()
        assert seen.count == 1
        with gi.no_copies():
            x.astype("float64")
            gi.concatenate([x, x])
            with pytest.raises(gi.CopyForbiddenError, match="copy"):
                x.copy()


def test_results_in_between_are_let_go_of(device):
    x, y = arrays(device, "float32", "float64")
    size = y.nbytes

    def peak(call):
        gi.devices.reset_peak_memory(device)
        before = gi.devices.memory_stats(device)["live_bytes"]
        kept = call()
        assert kept is not None
        return gi.devices.memory_stats(device)["peak_bytes"] - before

    for _ in range(2):
        one = peak(lambda: gi.concatenate([x, y])) - 2 * size
        assert peak(lambda: gi.concatenate([x] * 9 + [y])) == 10 * size + one
        assert peak(lambda: gi.join(0, x, y, x, x)) == 4 * size + one
        assert peak(lambda: y.round(2)) == peak(lambda: gi.rint(y * 100.0))


@pytest.mark.parametrize("count", [1, 2, 4, 31, 32, 40])
def test_wrong_number_of_operands_is_refused(device, count):
    (x,) = arrays(device, "float32")
    scale = gi.ElementwiseKernel("float32 a, int8 n, T x", "T z", "z = a * x + n", "scale")
    for _ in range(2):
        with pytest.raises(gi.ArgumentTypeError, match=f"got: {count}\\n"):
            scale(*[x] * count)


def test_an_empty_tuple_of_outs_is_refused(device):
    (x,) = arrays(device, "float32")
    for _ in range(2):
        with pytest.raises(gi.ShapeError, match="one for each result"):
            x.__array_ufunc__(np.add, "__call__", x, x, out=())


def test_wrong_calls_are_worded_as_of_any_function(device):
    (x,) = arrays(device, "float32")
    for _ in range(2):
        gi.where(x, x, x)
        for wrong in (lambda: gi.where(x), lambda: gi.where(x, x, x, y=x), lambda: gi.clip(x, mni=1),
                      lambda: x.clip(1, 2, None, 4), lambda: x.copy("C", "F"),
                      lambda: x.exp(1)):  # fmt: skip
            with pytest.raises(TypeError):
                wrong()


def test_methods_are_bound():
    x = gi.zeros(2, device="cpu")
    assert x.copy.__self__ is x
    assert str(inspect.signature(x.copy)).startswith("(order")
    assert pickle.loads(pickle.dumps(x.copy))().tolist() == [0, 0]
