"""What __dlpack__, its C interface and the dictionaries hand out, read from the structs themselves."""

from __future__ import annotations

import ctypes
import inspect
import itertools

import numpy as np
import pytest
from peers import VERSIONED, content, has_compiler, name_of, peer

import gpuinterop as gi
from gpuinterop import _core

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


def arange(*shape, dtype="float32"):
    n = int(np.prod(shape, dtype=int))
    return gi.from_dlpack(np.arange(n).astype(dtype).reshape(shape))


def geometry(cap):
    t = content(cap).tensor
    return tuple(t.shape[i] for i in range(t.ndim)), tuple(t.strides[i] for i in range(t.ndim))


VIEWS = {
    "plain": lambda x: x,
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1, ::-1],
    "stepped": lambda x: x[1:, ::2],
    "one row": lambda x: x[1:2],
    "one column": lambda x: x[:, 2:3],
    "one element": lambda x: x[1:2, 2:3],
    "0-d": lambda x: x[1:2, 2:3].reshape(()),
    "empty": lambda x: x[4:],
    "new axes": lambda x: x[None, :, None, ::-1],
    "broadcast": lambda x: x[:1].broadcast_to((5, 6)),
}


@pytest.mark.parametrize("view", VIEWS)
def test_numpy_sees_what_the_array_holds(view):
    host = np.arange(24, dtype="float32").reshape(4, 6)
    x = VIEWS[view](gi.from_dlpack(host))
    wanted = np.broadcast_to(host[:1], (5, 6)) if view == "broadcast" else VIEWS[view](host)
    seen = np.from_dlpack(x)
    assert seen.shape == wanted.shape
    np.testing.assert_array_equal(seen, wanted)
    np.testing.assert_array_equal(np.asarray(x), wanted)
    if wanted.size:
        assert seen.ctypes.data == wanted.ctypes.data == x.ptr
        assert np.asarray(x).ctypes.data == x.ptr


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 3), (2, 7)])
def test_a_struct_keeps_the_rules(view, version):
    x = VIEWS[view](arange(4, 6))
    if x.readonly and (version is None or version[0] == 0):
        with pytest.raises(BufferError, match="read-only"):
            x.__dlpack__(max_version=version)
        return
    cap = x.__dlpack__(max_version=version)
    managed = content(cap)
    t = managed.tensor
    assert (name_of(cap) == VERSIONED) == (version is not None and version[0] >= 1)
    if name_of(cap) == VERSIONED:
        assert (managed.version.major, managed.version.minor) == (1, 0 if version == (1, 0) else 3)
        assert managed.flags == (1 if x.readonly else 0)
    assert (t.device_type, t.device_id) == x.__dlpack_device__() == (1, 0)
    assert (t.code, t.bits, t.lanes) == (2, 32, 1)
    assert t.byte_offset == 0
    assert (t.data or 0) == x.ptr
    shape, strides = geometry(cap)
    assert shape == x.shape
    if x.size == 0:
        assert t.data is None
    # An extent of 1 shows the stride that a compact array would have, or its neighbour implies.
    for i, n in enumerate(shape):
        if n == 1 and x.is_c_contiguous():
            assert strides[i] == int(np.prod(shape[i + 1 :], dtype=int))
        elif n > 1:
            assert strides[i] * 4 == x.strides[i]
        assert strides[i] != 0 or n > 1


def test_strides_of_the_documents_never_leave():
    x = arange(1, 6)
    assert x._strides == (0, 1)
    assert geometry(x.__dlpack__())[1] == (6, 1)
    assert x.__array_interface__["strides"] is None


@pytest.mark.parametrize(
    ("dtype", "triple"),
    [
        ("bool", (6, 8, 1)),
        ("int8", (0, 8, 1)),
        ("uint64", (1, 64, 1)),
        ("float16", (2, 16, 1)),
        ("float64", (2, 64, 1)),
        ("complex64", (5, 64, 1)),
        ("complex128", (5, 128, 1)),
    ],
)
def test_dtypes(dtype, triple):
    x = arange(3, dtype=dtype)
    t = content(x.__dlpack__()).tensor
    assert (t.code, t.bits, t.lanes) == triple
    assert np.from_dlpack(x).dtype == dtype
    assert x.__array_interface__["typestr"] == np.dtype(dtype).str


def test_numpy_reads_bfloat16_by_its_name():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = gi.from_dlpack(np.arange(3).astype(ml_dtypes.bfloat16))
    assert x.dtype == ml_dtypes.bfloat16
    assert not hasattr(x, "__array_interface__")
    assert np.asarray(x).dtype == ml_dtypes.bfloat16
    t = content(x.__dlpack__()).tensor
    assert (t.code, t.bits) == (4, 16)


def test_a_subbyte_dtype_is_marked_padded():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = gi.from_dlpack(np.array([1, -2, 7]).astype(ml_dtypes.int4))
    assert content(x.__dlpack__(max_version=(1, 3))).flags == 4
    assert content(x.__dlpack__(max_version=(1, 1))).flags == 4
    for unaware in (None, (0, 8), (1, 0)):
        with pytest.raises(BufferError, match="whole bytes"):
            x.__dlpack__(max_version=unaware)
    back = gi.from_dlpack(x.__dlpack__(max_version=(1, 3)))
    assert back.dtype == ml_dtypes.int4


def test_a_cpu_that_is_not_there_is_shown_as_it_was_asked_for():
    with pytest.raises(BufferError, match=r"got: \(1, 1\)"):
        arange(3).__dlpack__(dl_device=(1, 1))


def test_the_signatures_are_those_of_methods():
    assert [*inspect.signature(gi.GpuArray.__dlpack__).parameters] == [
        "self", "stream", "max_version", "dl_device", "copy",
    ]  # fmt: skip
    assert [*inspect.signature(gi.GpuArray.__dlpack_device__).parameters] == ["self"]
    assert "self" not in inspect.signature(arange(3).__dlpack__).parameters


def test_copy_true_is_a_copy():
    x = arange(4, 6)
    cap = x.T.__dlpack__(copy=True, max_version=(1, 3))
    assert content(cap).flags == 2
    assert content(cap).tensor.data != x.ptr
    copied = np.from_dlpack(x, copy=True)
    assert not np.shares_memory(copied, np.from_dlpack(x))
    np.testing.assert_array_equal(copied, np.arange(24).reshape(4, 6))
    assert gi.from_dlpack(cap).is_c_contiguous()
    # A copy is the consumer's own, so it may be written to.
    x.readonly = True
    assert content(x.__dlpack__(copy=True, max_version=(1, 3))).flags == 2
    assert content(x.__dlpack__(copy=True)).tensor.ndim == 2


@pytest.mark.parametrize("copy", [None, False])
@pytest.mark.parametrize("dl_device", [None, (1, 0)])
def test_the_own_device_is_no_copy(copy, dl_device):
    x = arange(3)
    cap = x.__dlpack__(copy=copy, dl_device=dl_device, stream=None)
    assert content(cap).tensor.data == x.ptr


@pytest.mark.parametrize("place", [(3, 0), (13, 0), (10, 0), (1, 1), (99, 0), (2**40, 0)])
def test_devices_that_cannot_be(place):
    with pytest.raises(BufferError, match="dl_device"):
        arange(3).__dlpack__(dl_device=place)


@pytest.mark.parametrize(
    "keywords",
    [
        {"max_version": 1},
        {"max_version": (1,)},
        {"max_version": ("1", 0)},
        {"dl_device": 1},
        {"dl_device": "cpu"},
        {"dl_device": (1, 0, 0)},
        {"strem": None},
    ],
)
def test_arguments_of_the_wrong_kind(keywords):
    with pytest.raises(TypeError):
        arange(3).__dlpack__(**keywords)


def test_arguments_are_keywords_only():
    with pytest.raises(TypeError, match="keyword"):
        arange(3).__dlpack__(None)
    # Names that are equal, not identical, are still the names.
    assert name_of(arange(3).__dlpack__(**{"".join(["max_", "version"]): (1, 0)})) == VERSIONED


def test_the_cuda_dictionary_is_not_for_the_host():
    with pytest.raises(AttributeError, match='device "cpu"'):
        _ = arange(3).__cuda_array_interface__
    assert not hasattr(arange(3), "__cuda_array_interface__")


def test_the_exchange_table_is_on_the_type():
    for cls in (_core.Array, gi.CudaNdarray, gi.GpuArray, type("Mine", (gi.CudaNdarray,), {})):
        assert "dlpack_exchange_api" in repr(cls.__dlpack_c_exchange_api__)
        assert cls.__dlpack_c_exchange_api__ is cls.__c_dlpack_exchange_api__


# ---- the table's functions ----------------------------------------------------------------------

API = ctypes.pythonapi
API.PyCapsule_GetPointer.restype = ctypes.c_void_p
API.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def table():
    """The struct as pointers: version, previous, allocator, from, to, borrow, stream."""
    at = API.PyCapsule_GetPointer(_core.Array.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    return at, (ctypes.c_void_p * 7).from_address(at)


def test_the_table_is_whole():
    at, entries = table()
    assert (ctypes.c_uint32 * 2).from_address(at)[:] == [1, 3]
    assert entries[1] is None
    assert all(entries[2:])


def function(index, *arguments):
    return ctypes.PYFUNCTYPE(ctypes.c_int, *arguments)(table()[1][index])


def test_borrowing_shows_the_layout_itself():
    from peers import Tensor

    borrow = function(5, ctypes.py_object, ctypes.POINTER(Tensor))
    x = arange(4, 6)[1:, ::2]
    t = Tensor()
    assert borrow(x, ctypes.byref(t)) == 0
    assert t.data == x.ptr
    assert t.shape[: t.ndim] == [3, 3]
    assert t.strides[: t.ndim] == [6, 2]
    with pytest.raises(TypeError):
        borrow(np.zeros(3), ctypes.byref(t))
    x.readonly = True
    with pytest.raises(BufferError):
        borrow(x, ctypes.byref(t))


def test_owned_structs_go_out_and_in():
    take = function(3, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
    give = function(4, ctypes.c_void_p, ctypes.POINTER(ctypes.py_object))
    for dtype, cls in (("float32", gi.CudaNdarray), ("int64", gi.GpuArray)):
        x = arange(2, 3, dtype=dtype)
        managed = ctypes.c_void_p()
        assert take(x, ctypes.byref(managed)) == 0
        made = ctypes.py_object()
        assert give(managed, ctypes.byref(made)) == 0
        y = made.value
        API.Py_DecRef(ctypes.py_object(y))  # ctypes took a reference of its own
        assert type(y) is cls
        assert y.ptr == x.ptr
        address = x.ptr
        del x
        assert np.from_dlpack(y).ravel().tolist() == list(range(6))
        assert y.ptr == address


def test_a_struct_that_cannot_be_taken_stays_with_its_owner():
    give = function(4, ctypes.c_void_p, ctypes.POINTER(ctypes.py_object))
    if not has_compiler():
        pytest.skip("no C++ compiler")
    from peers import freed, start_counting, struct

    start_counting()
    made = ctypes.py_object()
    for wrong in (struct(version=(2, 0)), struct(shape=(-1, 3)), struct(dtype=(3, 64, 1))):
        with pytest.raises(BufferError):
            give(ctypes.addressof(wrong), ctypes.byref(made))
    with pytest.raises(BufferError):
        give(None, ctypes.byref(made))
    assert freed() == 0


def test_the_host_has_no_stream():
    stream = function(6, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
    out = ctypes.c_void_p(7)
    assert stream(1, 0, ctypes.byref(out)) == 0
    assert out.value is None


@needs_compiler
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3), (1, 1), (2, 1, 3)])
def test_the_allocator_makes_our_memory(shape):
    assert allocate(shape)[0] == 0


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "dtype", "device", "kind"),
    [
        ((-1,), (2, 32, 1), 1, "BufferError"),
        ((2**62, 2**62), (2, 32, 1), 1, "BufferError"),
        ((2**61,), (2, 32, 1), 1, ("ValueError", "MemoryError")),
        ((2**50,), (2, 32, 1), 1, "MemoryError"),
        ((3,), (2, 32, 4), 1, "BufferError"),
        ((3,), (77, 32, 1), 1, "BufferError"),
        ((3,), (2, 32, 1), 10, "BufferError"),
    ],
)
def test_the_allocator_reports_through_the_callback(shape, dtype, device, kind):
    rc, got, message = allocate(shape, dtype, device)
    assert rc == -1
    assert got in ((kind,) if isinstance(kind, str) else kind)
    assert message


def allocate(shape, dtype=(2, 32, 1), device=1):
    kind, message = ctypes.create_string_buffer(64), ctypes.create_string_buffer(512)
    extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    at = ctypes.c_void_p(table()[0])
    # Through CDLL: no Python state is promised to the allocator.
    rc = peer().peer_allocate(at, len(shape), extents, *dtype, device, kind, message)
    return rc, kind.value.decode(), message.value.decode()


def test_every_view_of_every_view():
    """Three steps of slicing, as NumPy does them."""
    host = np.arange(120, dtype="float32").reshape(4, 5, 6)
    x = gi.from_dlpack(host)
    steps = [np.s_[::-1], np.s_[1:], np.s_[:, ::2], np.s_[..., None], np.s_[..., 1], np.s_[:, 2:3]]
    for keys in itertools.product(steps, repeat=3):
        h, y = host, x
        try:
            for key in keys:
                h = h[key]
        except IndexError:
            continue
        for key in keys:
            y = y[key]
        np.testing.assert_array_equal(np.from_dlpack(y), h)
