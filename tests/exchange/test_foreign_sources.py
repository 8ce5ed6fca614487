"""Arrays of other libraries as sources: misaligned ones are copied, each is read once, none is leaked."""

import weakref

import numpy as np
import pytest

import gpuinterop as gi

VALUES = np.arange(8, dtype="float32")


class Interface:
    """An object of no known library, with NumPy's protocol."""

    def __init__(self, array):
        self.array = array
        self.dtype, self.shape = array.dtype, array.shape

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


def _unaligned_tensor(buffer):
    torch = pytest.importorskip("torch")
    return torch.frombuffer(buffer, dtype=torch.float32, offset=1, count=8)


def _capsule(buffer):
    return _unaligned_tensor(buffer).__dlpack__()


class Namespaced(Interface):
    """An array of the array API, of no library that has a converter of its own."""

    __array_interface__ = None

    def __array_namespace__(self, *, api_version=None):
        return np

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return 1, 0


UNALIGNED = {
    "array API": lambda buffer: Namespaced(np.frombuffer(buffer, "float32", 8, 1)),
    "buffer": lambda buffer: memoryview(buffer)[1:].cast("f"),
    "interface": lambda buffer: Interface(np.frombuffer(buffer, "float32", 8, 1)),
    "torch": _unaligned_tensor,
    "capsule": _capsule,
}


@pytest.fixture(params=UNALIGNED)
def unaligned(request):
    buffer = bytearray(33)
    np.frombuffer(buffer, "float32", 8, 1)[:] = VALUES
    return UNALIGNED[request.param](buffer)


def _assigned(source):
    x = gi.zeros(8, device="cpu")
    x[...] = source
    return x


COPIES = {
    "asarray": lambda source: gi.asarray(source),
    "asarray, cast": lambda source: gi.asarray(source, "float64", device="cpu"),
    "array": lambda source: gi.array(source, device="cpu"),
    "CudaNdarray": lambda source: gi.CudaNdarray(source, device="cpu"),
    "assignment": _assigned,
    "from_dlpack, copy": lambda source: gi.from_dlpack(source, copy=True),
    "from_any, copyif": lambda source: gi.from_any(source, copyif=True),
}


@pytest.mark.parametrize("way", COPIES)
def test_misaligned_memory_is_copied(unaligned, way):
    with gi.count_copies() as made:
        found = COPIES[way](unaligned)
    assert made.count
    assert found.tolist() == VALUES.tolist()
    assert found.ptr % 4 == 0


def test_misaligned_memory_is_not_copied_without_permission(unaligned):
    with pytest.raises(gi.CopyForbiddenError):
        gi.asarray(unaligned, copy=False, device="cpu")
    for refuse in (gi.from_dlpack, gi.from_any):
        with pytest.raises((ValueError, BufferError)) as caught:
            refuse(unaligned)
        assert "copy" in caught.value.fix


@pytest.mark.parametrize("make", UNALIGNED.values(), ids=UNALIGNED)
def test_misaligned_memory_is_distinguished_from_aligned_memory(make):
    buffer = bytearray(33)
    source = make(buffer)
    for other, shared in ((buffer, True), (memoryview(buffer)[:1], False), (bytes(33), False)):
        assert gi.shares_memory(source, other) is shared
        assert gi.may_share_memory(other, source) is shared


# ---- each source is read once ------------------------------------------------------------------


class Once:
    """Has other contents the second time."""

    def __init__(self):
        self.asked = 0

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **keywords):
        self.asked += 1
        return np.full(3, self.asked, "int32").__dlpack__(**keywords)


def _set_in_floats(source):
    x = gi.zeros(3, "float64", device="cpu")
    x[...] = source
    return x


CASTS = {
    "asarray": lambda source: gi.asarray(source, "float64", device="cpu"),
    "asarray, copy": lambda source: gi.asarray(source, "float64", device="cpu", copy=True),
    "GpuArray": lambda source: gi.GpuArray(source, "float64", device="cpu"),
    "assignment": _set_in_floats,
}


@pytest.mark.parametrize("way", CASTS)
def test_cast_reads_its_source_once(way):
    for source, value in ((Once(), 1), (np.full(3, 5, "int32").__dlpack__(), 5)):
        found = CASTS[way](source)
        assert (found.dtype, found.tolist()) == (np.float64, [value] * 3)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_temporary_memory_of_a_scalar_is_not_shared(kind):
    value = np.dtype(gi.ones(1, kind, device="cpu").dtype).type(1)
    for copy in (None, False):
        with pytest.raises(gi.ConversionTypeError, match="memory") as caught:
            gi.from_dlpack(value, copy=copy)
        assert "copy=True" in caught.value.fix
    x = gi.from_dlpack(value, copy=True)
    assert (x.dtype, x.shape) == (kind, ())
    assert x.base is None
    # NumPy's temporary array of a scalar is freed at once, and these arrays reuse its memory.
    others = [np.full((), 3, x.dtype) for _ in range(50)]
    assert x.item() == 1
    assert len(others) == 50


def test_a_weak_proxy_keeps_no_memory_alive_and_is_refused():
    owner = Interface(VALUES)
    with pytest.raises(gi.ConversionTypeError, match="weak"):
        gi.from_dlpack(weakref.proxy(owner))


class Wrapper:
    """A number or an array with a unit, whose array protocols are those of what NumPy makes of it."""

    def __init__(self, value):
        self.value = value

    def __getattr__(self, name):
        if name.startswith("__array_"):
            return getattr(np.asarray(self.value), name)
        raise AttributeError(name)


@pytest.mark.parametrize("value", [5.0, [1.0, 2.0, 3.0] * 100])
@pytest.mark.parametrize(
    "call",
    [gi.from_dlpack, gi.from_any, gi.asarray, gi.array, gi.GpuArray],
    ids=lambda call: call.__name__,
)
def test_array_made_at_each_read_is_not_shared(call, value):
    with pytest.raises(gi.ConversionTypeError, match=r"numpy\.asarray") as caught:
        call(Wrapper(value))
    assert "each time" in caught.value.got


def test_a_wrapper_of_an_array_shares_it():
    host = np.arange(6.0)[::-2]
    x = gi.from_any(Wrapper(host))
    assert x.ptr == host.ctypes.data
    assert x.tolist() == host.tolist()
    assert gi.from_any(Wrapper(np.empty((0, 3)))).shape == (0, 3)
