"""Arrays in host memory have Python's buffer protocol; NumPy's buffers of the same memory are the oracle."""

import array
import ctypes
import gc
import hashlib
import io
import weakref

import numpy as np
import pytest

import gpuinterop as gi

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
          "float32", "float64", "complex64", "complex128"]  # fmt: skip
VIEWS = {
    "whole": lambda x: x,
    "reversed": lambda x: x[::-1, ::-2],
    "transposed": lambda x: x.T,
    "gaps": lambda x: x[:, 1:3],
    "0-d": lambda x: x[1, 1, ...],
    "empty": lambda x: x[:, :0],
}
PyObject_GetBuffer = ctypes.pythonapi.PyObject_GetBuffer
PyObject_GetBuffer.argtypes = [ctypes.py_object, ctypes.c_char_p, ctypes.c_int]
FLAGS = {"SIMPLE": 0, "WRITABLE": 1, "FORMAT": 4, "ND": 8, "STRIDES": 0x18, "C": 0x38, "F": 0x58, "ANY": 0x98,
         "FULL": 0x11D}  # fmt: skip


def gets_buffer(x, flags) -> bool:
    """Whether the object has a buffer for a consumer with these flags."""
    view = ctypes.create_string_buffer(256)
    try:
        PyObject_GetBuffer(x, view, flags)
    except BufferError:
        return False
    except ValueError:  # as NumPy's errors are
        return False
    ctypes.pythonapi.PyBuffer_Release(view)
    return True


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", VIEWS)
def test_buffers_are_those_of_numpy(dtype, name):
    n = np.arange(12).reshape(3, 4).astype(dtype)
    wanted, x = VIEWS[name](n), VIEWS[name](gi.from_any(n))
    seen, expected = memoryview(x), memoryview(wanted)
    for what in "shape ndim format itemsize nbytes readonly c_contiguous f_contiguous".split():
        assert getattr(seen, what) == getattr(expected, what), what
    if wanted.size:
        assert seen.strides == expected.strides
    assert seen.tobytes() == expected.tobytes()
    for flags in FLAGS.values():
        # NumPy describes an axis of length 0 or 1 with any stride.
        assert gets_buffer(x, flags) == gets_buffer(wanted, flags), flags


def test_writes_reach_the_array_unless_it_is_read_only():
    x = gi.zeros(4, device="cpu")
    memoryview(x)[1] = 5.0
    assert x.tolist() == [0, 5, 0, 0]
    assert memoryview(x.broadcast_to(2, 4)).strides == (0, 4)
    for fixed in (x.broadcast_to(2, 4), gi.from_any(np.frombuffer(bytes(8), "float32"))):
        assert memoryview(fixed).readonly
        with pytest.raises(TypeError, match="read-only"):
            memoryview(fixed)[..., 0] = 1
        with pytest.raises(BufferError, match="read-only"):
            PyObject_GetBuffer(fixed, ctypes.create_string_buffer(256), FLAGS["WRITABLE"])


def test_a_buffer_keeps_the_memory_and_the_layout_of_its_time():
    x = gi.GpuArray(np.arange(6).reshape(2, 3), device="cpu")
    ref, view = weakref.ref(x), memoryview(x)
    x.shape = (3, 2)
    x._set_stride(0, -1)  # an incomplete layout, which has no buffer
    with pytest.raises(gi.BoundsError):
        memoryview(x)
    del x
    gc.collect()
    assert ref() is view.obj
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]]
    view.release()
    assert ref() is None


def test_a_cycle_through_a_buffer_is_collected():
    class Sub(gi.CudaNdarray):
        pass

    x = Sub(np.ones(3, "float32"), device="cpu")
    x.view_of_itself = memoryview(x)
    ref = weakref.ref(x)
    del x
    gc.collect()
    assert ref() is None


def test_refusals(device):
    x = gi.zeros((2, 3), device=device)
    if x.device.type != "cpu":
        with pytest.raises(BufferError, match=r'got: an array on cuda:0\n.*to_device\("cpu"\)'):
            memoryview(x)
        np.testing.assert_array_equal(np.asarray(x), np.zeros((2, 3), "float32"), strict=True)
        return
    with pytest.raises(gi.ContiguityError, match=r"x\.copy\(\)"):
        hashlib.sha1(x.T)
    pytest.importorskip("ml_dtypes")
    small = x.astype("bfloat16")
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(small)
    assert memoryview(np.asarray(small).view("uint8")).nbytes == 12
    assert np.asarray(small).dtype == "bfloat16"


def test_captures_refuse_as_for_numpy():
    x = gi.ones(3, device="cpu")
    with gi.capture() as step:
        y = x + 1
        with pytest.raises(gi.CaptureError):
            memoryview(y)
    with pytest.raises(gi.CaptureError, match="replay"):
        memoryview(y)
    step.replay()
    assert memoryview(y).tolist() == [2, 2, 2]


def test_readers_of_bytes(tmp_path):
    x = gi.asarray(np.arange(6, dtype="float32"), device="cpu")
    data = np.asarray(x).tobytes()
    assert bytearray(x) == b"".join([x]) == data
    for same in (x, x.reshape(2, 3), x.reshape(1, 2, 3)):
        assert hashlib.sha1(same).digest() == hashlib.sha1(data).digest()
    assert hashlib.sha1(x[0]).digest() == hashlib.sha1(data[:4]).digest()  # no axes
    (tmp_path / "file").write_bytes(x)
    y = gi.zeros(6, device="cpu")
    io.BytesIO(data).readinto(y)
    assert y.tolist() == x.tolist()
    assert array.array("f", memoryview(x)).tolist() == x.tolist()
    assert np.frombuffer(x, "float32").ctypes.data == x.ptr


def test_pillow_makes_pictures_of_arrays():
    image = pytest.importorskip("PIL.Image")
    n = np.arange(48, dtype="uint8").reshape(4, 4, 3)
    for x in (gi.asarray(n, device="cpu"), gi.asarray(n, device="cpu")[::-1]):
        np.testing.assert_array_equal(np.asarray(image.fromarray(x)), np.asarray(x))
    assert gi.asarray(image.fromarray(n), device="cpu").tolist() == n.tolist()
