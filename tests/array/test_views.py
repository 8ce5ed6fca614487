"""Views against NumPy: any chain of indexing, transposing, reshaping and broadcasting."""

from __future__ import annotations

import numpy as np
import pytest
from array_strategies import (
    assert_same,
    examples,
    filled_shapes,
    keys,
    numbers,
    shapes,
    view_chains,
)
from hypothesis import given
from hypothesis import strategies as st

import gpuinterop as gi


@examples(600)
@given(data=st.data(), shape=shapes)
def test_indexing(device, data, shape):
    theirs = numbers(shape)
    ours = gi.CudaNdarray(theirs, device=device)
    key = data.draw(keys(shape))
    expected = np.asarray(theirs[key])
    view = ours[key]
    assert_same(view, expected)
    assert view.base is ours
    if np.shares_memory(expected, theirs):
        assert view.ptr - ours.ptr == expected.ctypes.data - theirs.ctypes.data


@examples(500)
@given(data=st.data(), shape=shapes)
def test_chains_of_views(device, data, shape):
    theirs = numbers(shape)
    ours = gi.CudaNdarray(theirs, device=device)
    root = ours
    theirs, ours = data.draw(view_chains((theirs, ours), steps=5))
    assert_same(ours, theirs)
    assert ours is root or ours.base is root


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
    theirs = numbers(shape)
    ours = gi.CudaNdarray(theirs, device=device)
    theirs, ours = data.draw(view_chains((theirs, ours)))
    wanted = data.draw(target_shapes(theirs.size))
    expected = theirs.reshape(wanted)
    result = ours.reshape(*wanted) if data.draw(st.booleans()) else ours.reshape(list(wanted))
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result.get(), expected)
    if theirs.size:
        shared = np.shares_memory(theirs, expected)
        assert (result.base is ours or result.base is ours.base) == shared
        if not shared:
            with pytest.raises(ValueError, match="copy"):
                ours.reshape(wanted, copy=False)
    assert ours.reshape(wanted, copy=True).base is not (ours if ours.base is None else ours.base)


@examples(150)
@given(data=st.data(), shape=filled_shapes)
def test_column_order_reshape_and_ravel(device, data, shape):
    theirs = numbers(shape)
    ours = gi.CudaNdarray(theirs, device=device)
    theirs, ours = data.draw(view_chains((theirs, ours)))
    wanted = data.draw(target_shapes(theirs.size).filter(lambda s: -1 not in s))
    np.testing.assert_array_equal(
        ours.reshape(wanted, order="F").get(), theirs.reshape(wanted, order="F")
    )
    np.testing.assert_array_equal(ours.ravel().get(), theirs.ravel())
    np.testing.assert_array_equal(ours.ravel("F").get(), theirs.ravel("F"))
    np.testing.assert_array_equal(ours.flatten().get(), theirs.flatten())


@examples(300)
@given(data=st.data(), shape=shapes)
def test_orders_of_memory(device, data, shape):
    """'A' and 'K' look at how the elements lie: negative steps, gaps and repeated axes included."""
    theirs = numbers(shape)
    ours = gi.CudaNdarray(theirs, device=device)
    if data.draw(st.booleans()):
        lead = data.draw(st.lists(st.integers(1, 3), max_size=2))
        wanted = (*lead, *(data.draw(st.integers(1, 3)) if n == 1 else n for n in shape))
        theirs, ours = np.broadcast_to(theirs, wanted), ours.broadcast_to(wanted)
    theirs, ours = data.draw(view_chains((theirs, ours)))
    for order in "CFAK":
        expected = theirs.flatten(order)
        for got in (ours.flatten(order), ours.ravel(order), np.ravel(ours, order=order)):
            np.testing.assert_array_equal(got.get(), expected)
        assert not gi.may_share_memory(ours.flatten(order), ours)
    expected = theirs.reshape(-1, order="A")
    np.testing.assert_array_equal(ours.reshape(-1, order="A").get(), expected)
    np.testing.assert_array_equal(np.reshape(ours, -1, order="A").get(), expected)


def test_orders_of_memory_share(device):
    x = gi.CudaNdarray(numbers((2, 3)), device=device)
    assert x.T.ravel("K").base is x
    assert x.T.reshape((2, 3), order="A").base is x
    assert x.T.reshape((3, 2), order="C", copy=None).base is x
    with pytest.raises(gi.ShapeError, match="'C', 'F' or 'A'"):
        x.reshape(-1, order="K")  # as NumPy
    with pytest.raises(gi.ShapeError, match=r"flatten.*'C', 'F', 'A' or 'K'"):
        x.flatten("B")


@examples(200)
@given(data=st.data(), shape=shapes)
def test_broadcast_to(device, data, shape):
    theirs = numbers(shape)
    lead = data.draw(st.lists(st.integers(0, 3), max_size=2))
    wanted = (*lead, *(data.draw(st.integers(0, 4)) if n == 1 else n for n in shape))
    view = gi.CudaNdarray(theirs, device=device).broadcast_to(wanted)
    np.testing.assert_array_equal(view.get(), np.broadcast_to(theirs, wanted))
    assert view.readonly
    with pytest.raises(ValueError, match="read-only"):
        view[...] = 0


@examples(200)
@given(data=st.data(), shape=st.lists(st.integers(0, 4), min_size=2, max_size=4))
def test_diagonal(device, data, shape):
    theirs = numbers(tuple(shape))
    ours = gi.CudaNdarray(theirs, device=device)
    axes = st.integers(-theirs.ndim, theirs.ndim - 1)
    a, b, offset = data.draw(axes), data.draw(axes), data.draw(st.integers(-5, 5))
    if a % theirs.ndim == b % theirs.ndim:
        with pytest.raises(ValueError, match="axes"):
            ours.diagonal(offset, a, b)
        return
    np.testing.assert_array_equal(ours.diagonal(offset, a, b).get(), theirs.diagonal(offset, a, b))


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3, 1), (1,), ()])
def test_squeeze_and_friends_match_numpy(device, shape):
    theirs = numbers(shape)
    ours = gi.CudaNdarray(theirs, device=device)
    assert_same(ours.squeeze(), theirs.squeeze())
    assert_same(ours.T, theirs.T)
    assert_same(ours.expand_dims((0, -1)), np.expand_dims(theirs, (0, -1)))
    assert_same(ours.transpose(), theirs.transpose())


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
    with pytest.raises(IndexError):
        x[..., ...]
    np.testing.assert_array_equal(x.transpose(*range(63, -1, -1)).shape, x.shape)


@examples(300)
@given(st.data())
def test_copies_in_every_order_match_numpy(data):
    theirs = numbers(data.draw(filled_shapes))
    pair = theirs, gi.asarray(theirs, device="cpu")
    theirs, ours = data.draw(view_chains(pair))
    for order in "CFAK":
        copied = ours.copy(order)
        assert_same(copied, theirs.copy(order))
        assert_same(ours.astype("int32", order=order), theirs.astype("int32", order=order))
        assert not gi.shares_memory(copied, ours)


def test_iteration_and_length(device):
    theirs = numbers((3, 2))
    ours = gi.CudaNdarray(theirs, device=device)
    assert len(ours) == 3
    assert [row.tolist() for row in ours] == theirs.tolist()
    assert all(row.base is ours for row in ours)
    with pytest.raises(TypeError, match="0-d"):
        len(ours[0, 0])
    with pytest.raises(TypeError, match="0-d"):
        iter(ours[0, 0])


@pytest.mark.parametrize("kind", [tuple, list, np.array, lambda n: gi.asarray(n, "int32")])
def test_shapes_and_axes_mean_the_same_in_every_kind_of_sequence(device, kind):
    host = np.arange(24, dtype="f4").reshape(2, 3, 4)
    x = gi.CudaNdarray(host, device=device)
    for order in "CF":
        np.testing.assert_array_equal(
            x.reshape(kind([3, 8]), order=order).get(), host.reshape((3, 8), order=order)
        )
    by_columns = gi.CudaNdarray(host, device=device).copy("F")
    np.testing.assert_array_equal(
        by_columns.reshape(kind([8, -1]), order="A").get(), host.reshape((8, 3), order="F")
    )
    assert x.transpose(kind([2, 0, 1])).shape == (4, 2, 3)
    assert x.dimshuffle(kind([2, -1, 0, 1])).shape == (4, 1, 2, 3)
    assert x[:1].broadcast_to(kind([5, 3, 4])).shape == (5, 3, 4)


def test_stride_of_an_axis_of_size_1_continues_the_next_axis():
    assert gi.zeros((4, 6), device="cpu")[:1, :4:2].strides == (16, 8)
