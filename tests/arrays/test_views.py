"""Views against NumPy: any chain of indexing, transposing, reshaping and broadcasting."""

import numpy as np
import pytest
from array_strategies import (
    assert_same,
    numbers,
    shapes,
    view_chains,
)
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st

import gpuinterop as gi


@examples(500)
@given(data=st.data(), shape=shapes)
def test_chains_of_views(device, data, shape):
    whole = numbers(shape)
    root = gi.CudaNdarray(whole, device=device)
    host, array = data.draw(view_chains((whole, root), steps=5))
    assert_same(array, host)
    assert array is root or array.base is root
    if np.shares_memory(host, whole):
        assert array.ptr - root.ptr == host.ctypes.data - whole.ctypes.data


def target_shapes(size: int):
    """Shapes with `size` elements, one extent perhaps given as -1."""

    @st.composite
    def draw_shape(draw):
        if size == 0:
            shape = list(
                draw(st.permutations([0, draw(st.integers(0, 3)), draw(st.integers(1, 3))]))
            )
        else:
            shape, rest = [], size
            while rest > 1 or draw(st.booleans()):
                divisors = [d for d in range(1, rest + 1) if rest % d == 0]
                shape.append(draw(st.sampled_from(divisors)))
                rest //= shape[-1]
                if len(shape) > 6:
                    shape.append(rest)
                    break
        if size and shape and draw(st.booleans()):
            shape[draw(st.integers(0, len(shape) - 1))] = -1
        return tuple(shape)

    return draw_shape()


@examples(500)
@given(data=st.data(), shape=shapes)
def test_reshape_shares_exactly_when_numpy_does(device, data, shape):
    host = numbers(shape)
    array = gi.CudaNdarray(host, device=device)
    host, array = data.draw(view_chains((host, array)))
    wanted = data.draw(target_shapes(host.size))
    expected = host.reshape(wanted)
    result = array.reshape(*wanted) if data.draw(st.booleans()) else array.reshape(list(wanted))
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result.get(), expected)
    columns = array.reshape(expected.shape, order="F").get()
    np.testing.assert_array_equal(columns, host.reshape(expected.shape, order="F"))
    if host.size:
        shared = np.shares_memory(host, expected)
        assert (result.base is array or result.base is array.base) == shared
        if not shared:
            with pytest.raises(ValueError, match="copy"):
                array.reshape(wanted, copy=False)
    assert array.reshape(wanted, copy=True).base is not (
        array if array.base is None else array.base
    )


@pytest.mark.parametrize("wanted", [(-1, -1), (-1, 2, -1), (2, -2), (-1, 0), (-1, 4)], ids=str)
def test_a_shape_that_decides_nothing_is_refused(device, wanted):
    x = gi.GpuArray(numbers((2, 3)), device=device)
    with pytest.raises(gi.ShapeError, match=r"at most one -1|divide the 6 elements"):
        x.reshape(wanted)
    with pytest.raises(gi.ShapeError, match=r"at most one -1|divide the 6 elements"):
        x.shape = wanted
    assert x.shape == (2, 3)


@examples(300)
@given(data=st.data(), shape=shapes)
def test_orders_of_memory(device, data, shape):
    """'A' and 'K' depend on the layout, including negative strides, gaps and broadcast axes."""
    host = numbers(shape)
    array = gi.CudaNdarray(host, device=device)
    if data.draw(st.booleans()):
        lead = data.draw(st.lists(st.integers(1, 3), max_size=2))
        wanted = (*lead, *(data.draw(st.integers(1, 3)) if n == 1 else n for n in shape))
        host, array = np.broadcast_to(host, wanted), array.broadcast_to(wanted)
    host, array = data.draw(view_chains((host, array)))
    for order in "CFAK":
        expected = host.flatten(order)
        for got in (array.flatten(order), array.ravel(order), np.ravel(array, order=order)):
            np.testing.assert_array_equal(got.get(), expected)
        assert not gi.may_share_memory(array.flatten(order), array)
    expected = host.reshape(-1, order="A")
    np.testing.assert_array_equal(array.reshape(-1, order="A").get(), expected)
    np.testing.assert_array_equal(np.reshape(array, -1, order="A").get(), expected)


def test_orders_of_memory_share(device):
    x = gi.CudaNdarray(numbers((2, 3)), device=device)
    assert x.T.ravel("K").base is x
    assert x.T.reshape((2, 3), order="A").base is x
    assert x.T.reshape((3, 2), order="C", copy=None).base is x


@examples(200)
@given(data=st.data(), shape=shapes)
def test_broadcast_to(device, data, shape):
    host = numbers(shape)
    lead = data.draw(st.lists(st.integers(0, 3), max_size=2))
    wanted = (*lead, *(data.draw(st.integers(0, 4)) if n == 1 else n for n in shape))
    view = gi.CudaNdarray(host, device=device).broadcast_to(wanted)
    np.testing.assert_array_equal(view.get(), np.broadcast_to(host, wanted))
    assert view.readonly
    with pytest.raises(ValueError, match="read-only"):
        view[...] = 0


@examples(200)
@given(data=st.data(), shape=st.lists(st.integers(0, 4), min_size=2, max_size=4))
def test_diagonal(device, data, shape):
    host = numbers(tuple(shape))
    array = gi.CudaNdarray(host, device=device)
    axes = st.integers(-host.ndim, host.ndim - 1)
    a, b, offset = data.draw(axes), data.draw(axes), data.draw(st.integers(-5, 5))
    if a % host.ndim == b % host.ndim:
        with pytest.raises(ValueError, match="axes"):
            array.diagonal(offset, a, b)
        return
    np.testing.assert_array_equal(array.diagonal(offset, a, b).get(), host.diagonal(offset, a, b))


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3, 1), (1,), ()])
def test_squeeze_and_friends_match_numpy(device, shape):
    host = numbers(shape)
    array = gi.CudaNdarray(host, device=device)
    assert_same(array.squeeze(), host.squeeze())
    assert_same(array.T, host.T)
    assert_same(array.expand_dims((0, -1)), np.expand_dims(host, (0, -1)))
    assert_same(array.transpose(), host.transpose())


def test_views_beyond_the_dimension_limit_are_refused():
    x = gi.empty((1,) * 64, device="cpu")
    assert x.ndim == 64
    assert x[(0,) * 64].shape == ()
    assert x[(None,) * 4 + (0,) * 4].ndim == 64
    with pytest.raises(IndexError, match="64"):
        x[None]
    with pytest.raises(ValueError, match="64"):
        gi.empty((1,) * 65, device="cpu")
    with pytest.raises(IndexError):
        x[(0,) * 65]
    np.testing.assert_array_equal(x.transpose(*range(63, -1, -1)).shape, x.shape)


def test_iteration_and_length(device):
    host = numbers((3, 2))
    array = gi.CudaNdarray(host, device=device)
    assert len(array) == 3
    assert [row.tolist() for row in array] == host.tolist()
    assert all(row.base is array for row in array)
    with pytest.raises(TypeError, match="0-d"):
        len(array[0, 0])


@pytest.mark.parametrize("kind", [tuple, list, np.array, lambda n: gi.asarray(n, "int32"),
                                  lambda n: tuple(map(np.int64, n))])  # fmt: skip
def test_shapes_and_axes_mean_the_same_in_every_kind_of_sequence(device, kind):
    numpy_array = np.arange(24, dtype="f4").reshape(2, 3, 4)
    x = gi.CudaNdarray(numpy_array, device=device)
    for order in "CF":
        np.testing.assert_array_equal(
            x.reshape(kind([3, 8]), order=order).get(), numpy_array.reshape((3, 8), order=order)
        )
    by_columns = gi.CudaNdarray(numpy_array, device=device).copy("F")
    np.testing.assert_array_equal(
        by_columns.reshape(kind([8, -1]), order="A").get(), numpy_array.reshape((8, 3), order="F")
    )
    assert x.transpose(kind([2, 0, 1])).shape == (4, 2, 3)
    assert x.dimshuffle(kind([2, -1, 0, 1])).shape == (4, 1, 2, 3)
    assert x[:1].broadcast_to(kind([5, 3, 4])).shape == (5, 3, 4)
    assert gi.zeros(kind([4, 3]), device=device).shape == (4, 3)


def test_stride_of_an_axis_of_size_1_continues_the_next_axis():
    assert gi.zeros((4, 6), device="cpu")[:1, :4:2].strides == (16, 8)
