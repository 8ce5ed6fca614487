"""Numbers that are assigned while a graph is captured: filled, and not uploaded."""

import numpy as np
import pytest

import gpuinterop as gi

NUMBERS = {
    "bool": True, "int8": -3, "uint16": 7, "int64": 2**40 + 1, "uint64": 2**64 - 1, "float16": 0.1,
    "float32": 0.1, "float64": 0.1, "complex64": 1 + 2j, "complex128": 0.1 - 2j,
}  # fmt: skip


# The others compile more kernels of the same three sizes of elements.
QUICK = ("bool", "int64", "float32", "complex128")
DTYPES = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in NUMBERS]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_assigned_in_a_capture(device, dtype):
    number, t = NUMBERS[dtype], np.dtype(dtype).type
    whole, parts, one = (gi.zeros((3, 4), dtype=dtype, device=device) for _ in range(3))
    with gi.count_copies() as copies, gi.capture(device=device) as graph:
        whole.fill(number)
        parts[1:, ::-2] = t(number)
        one[2] = [number]
    assert copies.count == 0
    assert not whole.any()
    graph.replay()
    expected = np.zeros((3, 4), dtype)
    expected[1:, ::-2] = number
    np.testing.assert_array_equal(parts.get(), expected)
    np.testing.assert_array_equal(whole.get(), np.full((3, 4), number, dtype))
    np.testing.assert_array_equal(one.get()[2], np.full(4, number, dtype))


@pytest.mark.parametrize("dtype", ["float32", "int32", "complex128", "bfloat16"])
def test_copyto_of_a_number(device, dtype):
    x = gi.GpuArray(np.arange(4), dtype=dtype, device=device)
    with gi.capture(device=device) as graph:
        np.copyto(x, 7, where=gi.equal(x, 2))
        np.copyto(x[:1], np.float32(5), casting="unsafe")
        x[3:] = 6
    graph.replay()
    assert x.astype("complex64").tolist() == [5, 1, 7, 6]


@pytest.mark.parametrize("dtype", ["float32", "int64", "complex128"])
def test_a_0d_array_of_numpy_is_a_number(device, dtype):
    """As for the operators: of the capture, and not of its replays."""
    number = np.array(3, dtype)
    x = gi.GpuArray(np.zeros(4, dtype), device=device)
    with gi.capture(device=device) as graph:
        x[0] = number
        x[2:] = number
        y = x + number
    number[...] = 5
    graph.replay()
    assert x.tolist() == [3, 0, 3, 3]
    assert y.tolist() == [6, 3, 6, 6]
    with gi.count_copies() as copies:  # of memory, for all that
        x[1] = number
    assert (copies.count, copies.bytes) == (1, number.nbytes)
    with pytest.raises(gi.CopyForbiddenError), gi.no_copies():
        x[0] = number
    assert x.tolist() == [3, 5, 3, 3]


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_a_number_are_made_in_a_capture(device, dtype):
    x = gi.GpuArray(np.zeros(3, dtype), device=device)
    with gi.capture(device=device) as graph:
        one = gi.asarray(1, dtype, device=device)
        copied = gi.array(np.dtype(dtype).type(1), device=device)
        total = x.sum(where=True, initial=one)
    graph.replay()
    for made in (one, copied):
        assert (made.shape, made.dtype, made.tolist()) == ((), np.dtype(dtype), 1)
    assert total.tolist() == 1


@pytest.mark.gpu
def test_operations_on_numbers_alone_in_a_capture():
    with gi.capture() as graph:  # on the default device
        power, total = gi.exp(1.0), gi.add(np.float64(2), 3)
    graph.replay()
    np.testing.assert_allclose(power.get(), np.e, rtol=1e-15)
    assert (power.dtype, total.tolist()) == (np.float64, 5)


@pytest.mark.gpu
def test_spaced_numbers_in_a_capture():
    with gi.capture() as graph:
        counted, spaced = gi.arange(4), gi.linspace(0, 1, 5)
    graph.replay()
    np.testing.assert_array_equal(counted.get(), np.arange(4))
    np.testing.assert_array_equal(spaced.get(), np.linspace(0, 1, 5, dtype="float32"))
