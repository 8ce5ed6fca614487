"""NumPy's 0-d arrays are numbers: of any byte order, of a dtype that arrays have, and not masked."""

import numpy as np
import pytest

import gpuinterop as gi

HOST = np.arange(4, dtype="int8")


def kernel(x, n):
    add = gi.ElementwiseKernel(
        "T x, U y", "T z", "z = x + y", host=lambda x, y: x + y.astype(x.dtype)
    )
    return add(x, n)


# Each with an array and a number.
TAKES = {
    "operator": lambda x, n: x + n,
    "reflected": lambda x, n: gi.add(n, x),
    "in place": lambda x, n: x.copy().__iadd__(n),
    "compared": lambda x, n: x == n,
    "NumPy's function": lambda x, n: np.maximum(x, n),
    "where": lambda x, n: gi.where(x > 1, n, x),
    "clip": lambda x, n: gi.clip(x, 0, n),
    "dot": lambda x, n: gi.dot(x, n),
    "dtype=": lambda x, n: gi.add(x, n, dtype="float64"),
    "a fused function's argument": lambda x, n: gi.fuse(lambda a, b: a + b)(x, n),
    "inside a fused function": lambda x, n: gi.fuse(lambda a: a + n)(x),
    "initial": lambda x, n: x.sum(initial=n),
    "filled": lambda x, n: x.copy().fill(n) or 0,
}
FUNCTIONS = {"kernel": kernel, "alone": lambda x, n: gi.exp(n)}
MASKED = {
    "numpy.ma.masked": np.ma.masked,
    "an element": np.ma.array([2, 3], mask=[0, 1], dtype="int8")[1],
    "a 0-d array": np.ma.array(3, mask=True, dtype="int8"),
}


@pytest.mark.parametrize("name", [*TAKES, *FUNCTIONS])
@pytest.mark.parametrize("kind", MASKED)
def test_a_masked_number_is_refused(name, kind):
    take, x = {**TAKES, **FUNCTIONS}[name], gi.GpuArray(HOST, device="cpu")
    for one in (x, gi.CudaNdarray(HOST.astype("float32"), device="cpu")):
        with pytest.raises(gi.UnsupportedError, match="masked array"):
            take(one, MASKED[kind])


@pytest.mark.parametrize("take", [
    lambda x, m: x.sum(where=m), lambda x, m: np.copyto(x, 0, where=m), lambda x, m: x.take(m.astype(int)),
])  # fmt: skip
def test_masked_conditions_and_indices_are_refused(take):
    x = gi.GpuArray(HOST, device="cpu")
    condition = np.ma.array([True, False, True, True], mask=[0, 0, 1, 0])
    with pytest.raises(gi.UnsupportedError, match="masked array"):
        take(x, condition)
    take(x, np.ma.array([True, False, True, True]))


@pytest.mark.parametrize("name", TAKES)
def test_the_byte_order_does_not_matter(name):
    x = gi.GpuArray(HOST, device="cpu")
    native, swapped = (TAKES[name](x, np.array(3, order + "i2")) for order in "<>")
    assert getattr(native, "dtype", None) == getattr(swapped, "dtype", None)
    assert str(native) == str(swapped)


@pytest.mark.parametrize(
    "value", [np.longdouble(2), np.array(2, np.longdouble), np.datetime64("2026"), np.void(b"ab"),
              np.array(None)],
)  # fmt: skip
def test_a_dtype_that_no_array_has_is_named(value):
    x = gi.CudaNdarray(HOST.astype("float32"), device="cpu")
    for call in (lambda: x + value, lambda: gi.add(x, value), lambda: gi.exp(value)):
        with pytest.raises(gi.DTypeError) as error:
            call()
        assert str(np.asarray(value).dtype) in error.value.got
        assert "convert" in error.value.fix


def test_a_structured_masked_array_is_refused_for_its_dtype():
    records = np.ma.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")], mask=[(True, False)])
    x = gi.ones(1, device="cpu")
    for ask in (gi.asarray, gi.CudaNdarray, lambda n: x + n, lambda n: x.__setitem__(0, n)):
        with pytest.raises(gi.DTypeError, match="one field"):
            ask(records)
