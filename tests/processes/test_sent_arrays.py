"""Arrays in pickles: values, strides, read-only memory, devices, and what is copied on the way."""

import pickle
import zlib

import numpy as np
import pytest
from helpers.layouts import pair, recipes, shapes, values
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st

import gpuinterop as gi

DTYPES = ("float32", "int8", "complex128", "bool")
PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


def arrays(device):
    """Return views without large gaps; of one with larger gaps only the elements are sent."""
    for dtype in DTYPES:
        whole = gi.asarray(values(dtype, (3, 4, 6)), device=device)
        yield from views_of(whole)


def views_of(x):
    yield from (x, x.T, x[::-1, :, ::-1], x.transpose(1, 0, 2), x[0, 0, 0], x[:0], x[:, None])
    yield from (
        x[1:, ::-1],
        x[..., ::-2],
        x[:1, :1].broadcast_to(x.shape),
        x[0, 0].broadcast_to(9, 4, 6),
    )
    yield from (x.ravel()[1:], x[1:2, 2:3])


def same(x, y):
    return (type(x), x.dtype, x.shape, x._strides, x.readonly, x.device) == (
        type(y), y.dtype, y.shape, y._strides, y.readonly, y.device
    ) and np.array_equal(x.get(), y.get())  # fmt: skip


def out_of_band(x):
    buffers = []
    text = pickle.dumps(x, 5, buffer_callback=buffers.append)
    return text, buffers


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pickle_keeps_values_strides_and_readonly(device, protocol):
    for x in arrays(device):
        assert same(pickle.loads(pickle.dumps(x, protocol)), x)


def test_host_memory_travels_out_of_band_without_a_copy():
    for x in arrays("cpu"):
        with gi.no_copies():
            text, buffers = out_of_band(x)
            y = pickle.loads(text, buffers=buffers)
        assert same(x, y)
        assert len(text) < 400
        assert not x.size or (y.ptr == x.ptr and gi.shares_memory(x, y))


def test_memory_that_a_worker_receives_as_bytes_is_writable_unless_the_array_is_not():
    x = gi.arange(6, device="cpu").reshape(2, 3)
    text, buffers = out_of_band(x.T)
    received = bytes(buffers[0].raw())
    y = pickle.loads(text, buffers=[received])
    y[...] = 7
    assert received == x.tobytes()
    x.readonly = True
    text, buffers = out_of_band(x)
    with gi.no_copies():
        y = pickle.loads(text, buffers=[bytes(buffers[0].raw())])
    with pytest.raises(gi.ReadOnlyError):
        y[...] = 7


def test_large_gaps_are_left_behind_and_axes_keep_order_and_direction(device):
    x = gi.asarray(np.arange(10000.0).reshape(100, 100), device=device)
    for y in (
        x[:, 7],
        x[::-10, ::5].T,
        x[::50, ::-50],
        x[:, :1].broadcast_to(100, 100),
        x[::25, :1].broadcast_to(4, 9),
    ):
        z = pickle.loads(pickle.dumps(y))
        assert np.array_equal(y.get(), z.get())
        assert [np.sign(s) for s in z._strides] == [np.sign(s) for s in y._strides]
        assert z._memory_order() == y._memory_order()
        assert len(pickle.dumps(y)) < 2000


def test_pickles_count_the_copies_that_are_made(device):
    x = gi.zeros((4, 4), device=device)
    for protocol in (4, 5):
        with gi.count_copies() as copies:
            pickle.dumps(x, protocol)
        assert (copies.count, copies.bytes) == (
            (0, 0) if (device, protocol) == ("cpu", 5) else (1, 64)
        )
    if device != "cpu":
        with gi.no_copies(), pytest.raises(gi.CopyForbiddenError):
            pickle.dumps(x, 5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_dtypes_of_ml_dtypes_travel_too(dtype):
    pytest.importorskip("ml_dtypes")
    x = gi.asarray([[1.0, 2.0], [3.0, 4.0]], "float32", device="cpu").astype(dtype).T
    text, buffers = out_of_band(x)
    with gi.no_copies():
        y = pickle.loads(text, buffers=buffers)
    assert same(x, y)
    assert y.ptr == x.ptr


class Sub(gi.CudaNdarray):
    """A user's subclass that pickles itself by `__reduce__`."""

    def __reduce__(self):
        made, arguments, _ = super().__reduce__()
        return made, arguments, ({"note": "from reduce"}, {})


def test_a_subclass_may_extend_reduce():
    x = Sub(np.ones(3, "float32"), device="cpu")
    y = pickle.loads(pickle.dumps(x[::-1], 5))
    assert (type(y), y.note, y._strides) == (Sub, "from reduce", (-1,))


def test_a_forged_layout_reads_no_memory_outside_of_the_buffer():
    x = gi.arange(8, dtype="int64", device="cpu")
    load, (cls, host, place, layout), _ = x.__reduce_ex__(5)
    for wrong in (
        (layout[0], (9,), (1,), 0, False), (layout[0], (8,), (2,), 0, False), (layout[0], (8,), (1,), 1, False),
        (layout[0], (8,), (-1,), 0, False), (layout[0], (1 << 62, 4), (1, 1), 0, False),
        (layout[0], (8,), (1,), -1, False), (layout[0], (-8,), (1,), 0, False),
        (np.dtype("float64"), (2, 2, 2), (4, 2), 0, False), (np.dtype(object), (8,), (1,), 0, False),
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError)):
            load(cls, host, place, wrong)
    with pytest.raises((ValueError, TypeError)):
        load(gi.CudaNdarray, host, place, layout)


def test_a_large_array_arrives_whole():
    x = gi.asarray(np.random.default_rng(1).integers(0, 255, 1 << 20, dtype="uint8"), device="cpu")
    y = pickle.loads(pickle.dumps(x[::-1]))
    assert zlib.crc32(y.tobytes()) == zlib.crc32(x.tobytes()[::-1])


def test_the_error_of_a_missing_device_names_the_variable_that_helps(monkeypatch):
    load, arguments, _ = gi.zeros((2, 2), device="cpu").T.__reduce_ex__(5)
    cls, host, _, layout = arguments
    with pytest.raises(gi.DeviceError) as error:
        load(cls, host, "cuda:63", layout)
    assert "GPUINTEROP_UNPICKLE_DEVICE=cpu" in error.value.fix
    monkeypatch.setenv("GPUINTEROP_UNPICKLE_DEVICE", "cpu")
    assert load(cls, host, "cuda:63", layout).strides == (4, 8)


@given(
    shapes(300).flatmap(recipes),
    st.sampled_from([*DTYPES, "float16"]),
    st.sampled_from(PROTOCOLS),
    st.data(),
)
@examples(200)
def test_any_view_arrives_with_its_values_and_strides(device, recipe, dtype, protocol, data):
    _, host, _, x = pair(recipe, dtype, data.draw(st.integers(0, 9)), device)
    found = pickle.loads(pickle.dumps(x, protocol=protocol))
    np.testing.assert_array_equal(found.get(), host, strict=True)
    assert (type(found), found.readonly, found.device) == (type(x), x.readonly, x.device)
    # The axes have the order and the directions that they had, also where gaps are left out.
    assert [s > 0 for s in found.strides] == [s > 0 for s in x.strides]
