"""x[key] = value against NumPy: broadcasting, overlap, any strides, any source."""

import array as stdlib_array
import itertools

import numpy as np
import pytest
from array_strategies import keys, numbers, shapes, view_chains
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st

import gpuinterop as gi


def sources(shape: tuple[int, ...]):
    """Shapes that broadcast to `shape`, perhaps with extra leading extents of 1."""

    @st.composite
    def draw_shape(draw):
        kept = draw(st.integers(0, len(shape)))
        tail = tuple(1 if draw(st.integers(0, 3)) == 0 else n for n in shape[len(shape) - kept :])
        lead = (1,) * draw(st.integers(0, 2)) if kept == len(shape) else ()
        return lead + tail

    return draw_shape()


@examples(600)
@given(data=st.data(), shape=shapes)
def test_assignment_from_arrays(device, data, shape):
    host = numbers(shape)
    gpu_array = gi.CudaNdarray(host, device=device)
    host_view, device_view = data.draw(view_chains((host, gpu_array)))
    key = data.draw(keys(host_view.shape))
    # With an Ellipsis NumPy gives a view where it would give a scalar.
    parts = key if isinstance(key, tuple) else (key,)
    place = host_view[parts if Ellipsis in parts else (*parts, Ellipsis)]
    source = numbers(data.draw(sources(place.shape)), start=100)
    source, device_source = data.draw(
        view_chains((source, gi.CudaNdarray(source, device=device)), steps=1).filter(
            lambda pair: pair[0].ndim <= 10
        )
    )
    try:
        place[...] = source
    except ValueError:
        with pytest.raises(ValueError, match="expected"):
            device_view[key] = device_source
    else:
        device_view[key] = device_source if data.draw(st.booleans()) else source
    np.testing.assert_array_equal(gpu_array.get(), host)


@examples(400)
@given(data=st.data(), shape=st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_overlapping_views_of_one_array(device, data, shape):
    host = numbers(tuple(shape))
    gpu_array = gi.CudaNdarray(host, device=device)
    a, device_a = data.draw(view_chains((host, gpu_array)))
    b, device_b = data.draw(view_chains((host, gpu_array)))
    if a.shape != b.shape:
        common = tuple(slice(0, min(m, n)) for m, n in zip(a.shape, b.shape, strict=False))
        if a.ndim != b.ndim:
            return
        a, device_a, b, device_b = a[common], device_a[common], b[common], device_b[common]
    # A copy, because NumPy itself gets x[::2] = x[:3] wrong: it copies forwards from the same place.
    a[...] = b.copy()
    device_a[...] = device_b
    np.testing.assert_array_equal(gpu_array.get(), host)


KEYS = [..., 1, (slice(None), 1), (slice(None, None, -2), slice(1, 3)), (0, 0)]
SCALARS = [0, 0.5, -1, True, np.float32(2.5), np.array(0.1), np.array(7, ">i8")]
ARRAYS = [[1, 2, 3], [[1.5], [2.5]], (4.0, 5.0, 6.0), np.arange(3, dtype="float32")[::-1],
          stdlib_array.array("f", [1, 2, 3])]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"), [*itertools.product(KEYS, SCALARS), *((..., value) for value in ARRAYS)]
)
def test_scalars_lists_and_host_arrays(device, key, value):
    host = numbers((2, 3))
    gpu_array = gi.CudaNdarray(host, device=device)
    host[key] = value
    gpu_array[key] = value
    np.testing.assert_array_equal(gpu_array.get(), host)


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (np.zeros(3), TypeError, "astype"),
        (np.zeros(3, "int32"), TypeError, "astype"),
        (1j, TypeError, "real"),
        ([1j, 2, 3], TypeError, "real"),
        ("abc", TypeError, "str"),
        (None, TypeError, "NoneType"),
        (object(), TypeError, "object"),
        (["a", "b", "c"], TypeError, "numbers"),
        ([[1], [2, 3]], ValueError, "lists"),
        ([0, 1e39, 0], TypeError, "hold"),
        (10**400, TypeError, "hold"),
        (np.float64(1e39), TypeError, "hold"),
        (np.zeros(4, "float32"), ValueError, "broadcasts"),
        (np.zeros((3, 1), "float32"), ValueError, "broadcasts"),
    ],
)
def test_refusals_leave_the_target_alone(device, value, error, words):
    x = gi.CudaNdarray(numbers((2, 3)), device=device)
    with pytest.raises(error, match=words):
        x[...] = value
    np.testing.assert_array_equal(x.get(), numbers((2, 3)))


def cast_into(made, x):
    made[...] = x


def cast_into_a_view(made, x):
    made[::-1, ::2].T[...] = x[:, ::2].T


def cast_copy(made, x):
    return gi.GpuArray(x, dtype=made.dtype)


@pytest.mark.driver
@pytest.mark.parametrize("copy", [cast_into, cast_into_a_view, cast_copy])
def test_a_cast_in_a_copy_is_one_kernel(device, copy):
    host = np.arange(12, dtype="float16").reshape(3, 4) / 3
    x, made = gi.asarray(host, device=device), gi.GpuArray(np.zeros((3, 4)), device=device)
    copied, expected = copy(made, x), np.zeros((3, 4))
    copy(expected, host) if copy is not cast_copy else cast_into(expected, host)
    np.testing.assert_array_equal((made if copied is None else copied).get(), expected)
    assert gi.capture(copy, made, x).nodes == 1
    with gi.count_copies() as copies:
        copy(made, x)
    assert copies.count == 1


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("offset", [0, 8, 40])
def test_a_cast_of_elements_that_the_target_shares(device, step, offset):
    host = np.arange(40, dtype="int32")
    memory = gi.asarray(host.copy(), device=device)
    target = gi.GpuArray.from_pointer(memory.ptr + offset, 10, "float64", base=memory)[::step]
    target[...] = memory[10:20]
    host.view(np.uint8)[offset : offset + 80].view("float64")[::step] = host[10:20].copy()
    np.testing.assert_array_equal(memory.get(), host)
