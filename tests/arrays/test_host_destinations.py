"""NumPy arrays that `get`, `copy_async` and unpickling read and fill; page-locked memory without a GPU."""

import numpy as np
import pytest

import gpuinterop as gi

BIG = 10**6


class Boaster(np.ndarray):
    """Four elements that report a shape of a million."""

    shape = property(lambda self: (BIG,))
    strides = property(lambda self: (4,))
    size = property(lambda self: BIG)


class Misnamed(np.ndarray):
    """Integers that report a dtype of floats."""

    dtype = property(lambda self: np.dtype(np.float32))


def boaster():
    return np.zeros(4, np.float32).view(Boaster)


def frozen():
    host = np.zeros(2, np.float32)
    host.flags.writeable = False
    return host


def repeated(shape=(3,), strides=(0,)):
    return np.lib.stride_tricks.as_strided(np.zeros(3, np.float32), shape, strides)


def get(x, out):
    x.get(out=out)


def copy_async(x, out):
    gi.copy_async(out, x)


both = pytest.mark.parametrize("fill", [get, copy_async])

# What cannot be filled: how many elements are copied there, the destination, the error and its words.
UNFIT = {
    "a shape that is not the memory's": (BIG, boaster, gi.ShapeError, ""),
    "a dtype that is not the memory's":
        (2, lambda: np.zeros(2, np.int8).view(Misnamed), gi.DTypeError, ""),
    "read-only memory": (2, frozen, gi.ReadOnlyError, ""),
    "a dtype": (3, lambda: np.zeros(3), gi.DTypeError, "float64"),
    "a shape": (4, lambda: np.zeros(3, np.float32), gi.ShapeError, ""),
    "a mask": (3, lambda: np.ma.masked_array(np.zeros(3, np.float32), [1, 0, 0]),
               gi.UnsupportedError, "mask"),
    "a stride of 0": (3, repeated, gi.ContiguityError, "overlap"),
    "rows that overlap": ((2, 2), lambda: repeated((2, 2), (4, 4)), gi.ContiguityError, "overlap"),
    "misaligned memory": (1, lambda: np.zeros(5, np.uint8)[1:].view(np.float32),
                          gi.ContiguityError, "aligned"),
    "a field of records": (3, lambda: np.zeros(3, [("a", "f4"), ("b", "i2")])["a"],
                           gi.ContiguityError, "aligned"),
}  # fmt: skip


@both
@pytest.mark.parametrize("name", UNFIT)
def test_unfit_destination_is_refused_and_left_alone(fill, name):
    count, make, error, words = UNFIT[name]
    out = make()
    with pytest.raises(error, match=rf"^{fill.__name__}: [\s\S]*{words}"):
        fill(gi.ones(count, device="cpu"), out)
    assert not np.ndarray.tobytes(out).strip(b"\0")


@both
def test_destination_is_filled_by_its_memory(fill):
    host = boaster()
    fill(gi.ones(4, device="cpu"), host)
    assert np.asarray(host).tolist() == [1, 1, 1, 1]
    # Axes of length 0 or 1 repeat no element, whatever their stride; no element is masked.
    one = repeated((1,))
    fill(gi.full(1, 2, device="cpu"), one)
    fill(gi.zeros((2, 0), device="cpu"), repeated((2, 0), (0, 4)))
    assert one.tolist() == [2]
    unmasked = np.ma.masked_array(np.zeros(3, np.float32))
    fill(gi.ones(3, device="cpu"), unmasked)
    assert unmasked.tolist() == [1, 1, 1]


def test_source_of_a_copy_is_read_by_its_memory():
    x = gi.zeros(3, device="cpu")
    for source, error in ((boaster(), gi.ShapeError),
                          (np.ma.masked_array(np.ones(3, "f4"), [0, 1, 0]), gi.UnsupportedError)):  # fmt: skip
        with pytest.raises(error, match="copy_async"):
            gi.copy_async(x, source)
    assert x.tolist() == [0, 0, 0]
    gi.copy_async(x, repeated() + 1)
    assert x.tolist() == [1, 1, 1]
    gi.copy_async(x, repeated())
    assert x.tolist() == [0, 0, 0]
    with pytest.raises(gi.ContiguityError, match="overlap"):
        gi.copy_async(gi.from_any(repeated()), x)


def test_unpickling_reads_the_memory():
    load = gi.zeros(1, device="cpu").__reduce_ex__(5)[0]
    assert load(gi.CudaNdarray, boaster(), "cpu").tolist() == [0, 0, 0, 0]
    floats = np.arange(4, dtype="float32")
    assert load(gi.CudaNdarray, floats, "cpu").tolist() == [0, 1, 2, 3]
    with pytest.raises(gi.DTypeError, match="float32"):
        load(gi.CudaNdarray, floats.astype("float64"), "cpu")
    for cls, host in ((int, floats), (gi.CudaNdarray, None), (gi.CudaNdarray, [1, 2])):
        with pytest.raises(gi.GpuInteropError):
            load(cls, host, "cpu")


# ---- pinned_empty on "cpu" ------------------------------------------------------------------------


def test_pinned_memory_of_the_cpu_is_ordinary_memory():
    host = gi.pinned_empty((2, 3), device="cpu")
    assert (type(host), host.shape, host.dtype) == (np.ndarray, (2, 3), np.float32)
    assert gi.pinned_empty(4, "int8", device="cpu").nbytes == 4
    assert gi.pinned_empty((), bool, device="cpu").shape == ()
    if gi.default_device().type == "cpu":
        assert gi.pinned_empty((2, 3)).flags.owndata


def test_copies_of_the_cpu_are_done_at_once():
    host = gi.pinned_empty((2, 3), device="cpu")
    x = gi.full((2, 3), 7, device="cpu")
    gi.copy_async(host, x)
    assert host.min() == 7
    host[...] = 8
    gi.copy_async(x.T[::-1], host.T[::-1])
    assert x.tolist() == host.tolist()
