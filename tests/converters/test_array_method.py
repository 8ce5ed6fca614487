"""Objects with NumPy's method `__array__` alone, such as the series of pandas and polars."""

import numpy as np
import pytest

import gpuinterop as gi

HOST = np.arange(3.0)


class Column:
    """Shares its memory, as a series without missing values."""

    values = HOST

    def __array__(self, dtype=None, copy=None):
        return self.values


class Chunks(Column):
    """Can only be copied, as a series in several pieces."""

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise RuntimeError("several chunks")
        return self.values.copy()


class Old(Column):
    """Of the time before `copy`: whether it copies is unknown."""

    def __array__(self, dtype=None):
        return self.values


def converted(obj, device):
    return [
        gi.asarray(obj, device=device), gi.array(obj, device=device), gi.GpuArray(obj, device=device),
        gi.from_any(obj, copyif=True),
    ]  # fmt: skip


@pytest.mark.parametrize("cls", [Column, Chunks, Old])
def test_values_arrive_at_every_entrance(device, cls):
    x = gi.zeros(3, "float64", device=device)
    x[...] = cls()
    for found in (*converted(cls(), device), x, gi.asarray(gi.to(cls(), "numpy", copyif=True))):
        np.testing.assert_array_equal(found.get(), HOST, strict=True)
    assert gi.asarray(cls(), "float32", device=device).dtype == "float32"


def test_memory_is_shared_where_the_method_shares_it():
    with gi.no_copies():
        for x in (gi.asarray(Column(), device="cpu", copy=False), gi.from_any(Column())):
            assert x.ptr == HOST.ctypes.data
    assert gi.explain(Column()).shared
    frozen = HOST.view()
    frozen.flags.writeable = False
    column = Column()
    column.values = frozen
    assert gi.from_any(column).readonly


@pytest.mark.parametrize("cls", [Chunks, Old])
def test_a_copy_is_counted_and_needs_permission(cls):
    with gi.count_copies() as copies:
        x = gi.asarray(cls(), device="cpu")
    assert (copies.count, copies.bytes) == (1, HOST.nbytes)
    assert x.ptr != HOST.ctypes.data
    assert gi.explain(cls(), copyif=True).copied
    for call in (lambda: gi.from_any(cls()), lambda: gi.asarray(cls(), copy=False)):
        with pytest.raises(gi.ContiguityError, match="__array__"):
            call()
    with gi.no_copies(), pytest.raises(gi.CopyForbiddenError):
        gi.asarray(cls(), device="cpu")


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (np.array(["a"]), gi.DTypeError),
        (np.array([None]), gi.DTypeError),
        ([1.0], gi.ConversionTypeError),
    ],
)
def test_values_that_no_array_holds_are_refused(values, error):
    column = Column()
    column.values = values
    for call in (lambda: gi.asarray(column), lambda: gi.from_any(column, copyif=True)):
        with pytest.raises(error):
            call()
    with pytest.raises(TypeError):
        gi.asarray(Column)  # the class


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_series(device, library):
    make = pytest.importorskip(library).Series
    for values in ([1.5, 2, 3], [1, 2, 3], [True, False], [1.5, None]):
        series = make(values)
        expected = series.to_numpy()
        for found in converted(series, device):
            np.testing.assert_array_equal(found.get(), expected, strict=True)
    series = make([1.5, 2, 3])
    with gi.no_copies():
        assert gi.from_any(series).ptr == series.to_numpy().ctypes.data
    with pytest.raises(gi.DTypeError):
        gi.asarray(make(["a", "b"]))
