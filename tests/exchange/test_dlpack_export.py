"""What __dlpack__, its C interface and the dictionaries hand out, read from the structs themselves."""

import ctypes

import numpy as np
import pytest
from peers import TO_OBJECT, TO_STRUCT, VERSIONED, Tensor, content, entries_of, name_of, struct

import gpuinterop as gi


def arange(*shape, dtype="float32"):
    n = int(np.prod(shape, dtype=int))
    return gi.from_dlpack(np.arange(n).astype(dtype).reshape(shape))


def strides_of(cap):
    tensor = content(cap).tensor
    return tuple(tensor.strides[: tensor.ndim])


VIEWS = {
    "plain": lambda x: x,
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1, ::-1],
    "stepped": lambda x: x[1:, ::2],
    "one row": lambda x: x[1:2],
    "one": lambda x: x[1:2, 2:3],
    "0-d": lambda x: x[1:2, 2:3].reshape(()),
    "empty": lambda x: x[4:],
    "new axes": lambda x: x[None, :, None, ::-1],
    "broadcast": lambda x: x[:1].broadcast_to((5, 6)),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 7), (2, 0)])
def test_struct_keeps_the_rules(view, version):
    x = VIEWS[view](arange(4, 6))
    versioned = version is not None and version[0] >= 1
    if x.readonly and not versioned:
        with pytest.raises(BufferError, match="read-only"):
            x.__dlpack__(max_version=version)
        return
    cap = x.__dlpack__(max_version=version)
    managed = content(cap)
    t = managed.tensor
    assert (name_of(cap) == VERSIONED) == versioned
    if versioned:
        assert (managed.version.major, managed.version.minor) == (1, 0 if version == (1, 0) else 3)
        assert managed.flags == (1 if x.readonly else 0)
    assert (t.device_type, t.device_id) == x.__dlpack_device__() == (1, 0)
    assert (t.code, t.bits, t.lanes, t.byte_offset) == (2, 32, 1, 0)
    assert t.data == (x.ptr or None)
    assert tuple(t.shape[: t.ndim]) == x.shape
    # An extent of 1 shows the stride that a compact array would have, or its neighbour implies.
    for i, (n, stride) in enumerate(zip(x.shape, strides_of(cap), strict=True)):
        if n == 1 and x.is_c_contiguous():
            assert stride == int(np.prod(x.shape[i + 1 :], dtype=int))
        elif n > 1:
            assert stride * 4 == x.strides[i]
        assert stride != 0 or n > 1


@pytest.mark.parametrize(
    ("dtype", "triple"),
    [
        ("bool", (6, 8, 1)),
        ("int8", (0, 8, 1)),
        ("uint64", (1, 64, 1)),
        ("float16", (2, 16, 1)),
        ("complex128", (5, 128, 1)),
        ("bfloat16", (4, 16, 1)),
    ],
)
def test_dtypes(dtype, triple):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    x = arange(3, dtype=dtype)
    t = content(x.__dlpack__()).tensor
    assert (t.code, t.bits, t.lanes) == triple
    assert np.asarray(x).dtype == dtype
    if triple[0] == 4:  # for which NumPy has no typestr
        assert not hasattr(x, "__array_interface__")
    else:
        assert x.__array_interface__["typestr"] == np.dtype(dtype).str


@pytest.mark.parametrize("dtype", ["int4", "int1", "uint1"])
def test_subbyte_dtype_is_marked_padded(dtype):
    if not hasattr(pytest.importorskip("ml_dtypes"), dtype):
        pytest.skip("needs ml_dtypes 0.6")
    x = gi.from_dlpack(np.array([1, 0, 1]).astype(dtype))
    for aware in ((1, 1), (1, 3)):
        cap = x.__dlpack__(max_version=aware)
        assert content(cap).flags == 4
        back = gi.from_dlpack(cap)
        assert (back.dtype, back.ptr) == (dtype, x.ptr)
    for unaware in (None, (1, 0)):
        with pytest.raises(BufferError, match="bytes"):
            x.__dlpack__(max_version=unaware)
        with (
            gi.no_copies(),
            pytest.raises(gi.ExportError),
        ):  # before anything is done for the consumer
            x.__dlpack__(max_version=unaware, copy=True)


def test_copies():
    x = arange(4, 6)
    for copy in (None, False):
        for place in (None, (1, 0)):
            cap = x.__dlpack__(copy=copy, dl_device=place, stream=None)
            assert content(cap).tensor.data == x.ptr
    x.readonly = True
    cap = x.T.__dlpack__(copy=True, max_version=(1, 3))
    assert content(cap).flags == 2  # the consumer's own, so it may be written to
    assert content(cap).tensor.data != x.ptr
    assert gi.from_dlpack(cap).is_c_contiguous()


# What __dlpack__ refuses on the host, and a word of the message.
REFUSED = [
    *[({"stream": stream}, ValueError) for stream in (0, -2, 2**64, -(2**70), 1, -1)],
    *[({"stream": stream}, TypeError) for stream in (True, "1", 1.0)],
    *[
        ({"dl_device": place}, BufferError)
        for place in ((2, 0), (3, 0), (13, 0), (10, 0), (1, 1), (99, 0), (2**40, 0), (2, 2**32))
    ],
    *[({"dl_device": place}, TypeError) for place in (1, "cpu", (1, 0, 0))],
    *[({"max_version": version}, TypeError) for version in (1, (1,), ("1", 0))],
    *[({"copy": copy}, TypeError) for copy in ("no", 0, 1.0, [])],
    ({"dl_device": (2, 0), "copy": False}, BufferError),
    ({"strem": None}, TypeError),
]


@pytest.mark.parametrize(("keywords", "error"), REFUSED)
def test_wrong_arguments_are_refused(keywords, error):
    with pytest.raises(error, match="copy=False" if len(keywords) > 1 else next(iter(keywords))):
        arange(3).__dlpack__(**keywords)


def test_arguments_are_keywords_only():
    with pytest.raises(TypeError):
        arange(3).__dlpack__(None)
    # Names that are equal, not identical, are still the names.
    assert name_of(arange(3).__dlpack__(**{"".join(["max_", "version"]): (1, 0)})) == VERSIONED


def test_cuda_dictionary_is_not_for_the_host():
    with pytest.raises(AttributeError, match='device "cpu"'):
        _ = arange(3).__cuda_array_interface__
    assert not hasattr(arange(3), "__cuda_array_interface__")


# ---- the table's functions ----------------------------------------------------------------------

POINTER = ctypes.POINTER


def table():
    return entries_of(gi.GpuArray)


def test_exchange_table_is_whole_and_on_every_type():
    for cls in (gi.CudaNdarray, gi.GpuArray, type("Mine", (gi.CudaNdarray,), {})):
        assert cls.__dlpack_c_exchange_api__ is cls.__c_dlpack_exchange_api__
        entries = entries_of(cls)
        assert (entries[0], entries[1]) == (1 | 3 << 32, None)
        assert all(entries[2:])


def test_borrowing_shows_the_layout_itself():
    borrow = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, POINTER(Tensor))(table()[5])
    x = arange(4, 6)[1:, ::2]
    t = Tensor()
    assert borrow(x, ctypes.byref(t)) == 0
    assert (t.data, t.shape[: t.ndim], t.strides[: t.ndim]) == (x.ptr, [3, 3], [6, 2])
    with pytest.raises(TypeError):
        borrow(np.zeros(3), ctypes.byref(t))
    x.readonly = True
    with pytest.raises(BufferError):
        borrow(x, ctypes.byref(t))


def test_new_shape_keeps_the_memory_that_a_borrowed_struct_points_into():
    borrow = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, POINTER(Tensor))(table()[5])
    x = arange(2, 3, 2, 2, 2, 2, dtype="int64")
    t, again = Tensor(), Tensor()
    assert borrow(x, ctypes.byref(t)) == 0
    for shape in ((96,), (3, 2, 2, 2, 2, 2)):
        x.shape = shape
        assert borrow(x, ctypes.byref(again)) == 0
        assert ctypes.addressof(again.shape.contents) == ctypes.addressof(t.shape.contents)
        assert t.shape[: x.ndim] == list(shape)
        assert gi.GpuArray(x, device="cpu").shape == x.copy().shape == shape
    x.strides = x.strides[::-1]
    assert [8 * step for step in t.strides[:6]] == list(x.strides)


def test_owned_structs_go_out_and_in():
    take, give = TO_STRUCT(table()[3]), TO_OBJECT(table()[4])
    for dtype, cls in (("float32", gi.CudaNdarray), ("int64", gi.GpuArray)):
        x = arange(2, 3, dtype=dtype)
        managed, made = ctypes.c_void_p(), ctypes.py_object()
        assert take(x, ctypes.byref(managed)) == 0
        assert give(managed, ctypes.cast(ctypes.byref(made), POINTER(ctypes.c_void_p))) == 0
        y, address = made.value, x.ptr
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(y))  # ctypes took a reference of its own
        del x
        assert (type(y), y.ptr, y.tolist()) == (cls, address, [[0, 1, 2], [3, 4, 5]])


def test_struct_that_is_refused_stays_with_its_owner(freed):
    give, made = TO_OBJECT(table()[4]), ctypes.c_void_p()
    for wrong in (struct(version=(2, 0)), struct(shape=(-1, 3)), struct(dtype=(3, 64, 1)), None):
        with pytest.raises(BufferError):
            give(wrong and ctypes.addressof(wrong), ctypes.byref(made))
    assert freed() == 0


def test_host_has_no_stream():
    stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, POINTER(ctypes.c_void_p))
    out = ctypes.c_void_p(7)
    assert stream(table()[6])(1, 0, ctypes.byref(out)) == 0
    assert out.value is None


def allocate(shape, dtype=(2, 32, 1), device=1):
    """What the allocator returns, and the kind of error that it reports."""
    # CFUNCTYPE releases the GIL, because the allocator may be called without it.
    report = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    allocator = ctypes.CFUNCTYPE(
        ctypes.c_int, POINTER(Tensor), POINTER(ctypes.c_void_p), ctypes.c_void_p, report
    )(table()[2])
    prototype, out, errors = Tensor(None, device, 0, len(shape), *dtype), ctypes.c_void_p(), []
    prototype.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    callback = report(
        lambda context, kind, message: errors.append((kind.decode(), message.decode()))
    )
    status = allocator(ctypes.byref(prototype), ctypes.byref(out), None, callback)
    return status, out.value, errors


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3), (1, 1), (2, 1, 3)])
def test_allocator_makes_memory(shape):
    status, managed, errors = allocate(shape)
    assert (status, errors) == (0, [])
    made = ctypes.c_void_p()
    assert TO_OBJECT(table()[4])(managed, ctypes.byref(made)) == 0
    x = ctypes.cast(ctypes.addressof(made), POINTER(ctypes.py_object)).contents.value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(x))
    assert (x.shape, x.is_c_contiguous(), x.dtype) == (shape, True, np.float32)
    x[...] = 1
    assert np.asarray(x).all()


@pytest.mark.parametrize(
    ("shape", "dtype", "device", "kinds"),
    [
        ((-1,), (2, 32, 1), 1, {"BufferError"}),
        ((2**62, 2**62), (2, 32, 1), 1, {"BufferError"}),
        ((2**61,), (2, 32, 1), 1, {"ValueError", "MemoryError"}),
        ((2**50,), (2, 32, 1), 1, {"MemoryError"}),
        ((3,), (2, 32, 4), 1, {"BufferError"}),
        ((3,), (77, 32, 1), 1, {"BufferError"}),
        ((3,), (2, 32, 1), 10, {"BufferError"}),
    ],
)
def test_allocator_reports_through_the_callback(shape, dtype, device, kinds):
    status, _, [(kind, message)] = allocate(shape, dtype, device)
    assert status == -1
    assert kind in kinds
    assert message
