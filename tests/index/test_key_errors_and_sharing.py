"""Indices out of range, indices of other libraries, shared memory, classes, copies: what keys have in common."""

import numpy as np
import pytest

import gpuinterop as gi

HOST = np.arange(12, dtype="f4").reshape(3, 4)


def on(device, host=HOST):
    return gi.GpuArray(host, device=device)


WRITES = {
    "x[i] = v": lambda x, i: x.__setitem__(i, 7),
    "x[i] = array": lambda x, i: x.__setitem__(i, np.full(4, 7, "f4")),
    "x[:, i] = v": lambda x, i: x.__setitem__((slice(None), i), 7),
    "x[i, i] = v": lambda x, i: x.__setitem__((i, i), 7),
    "x[i] += v": lambda x, i: x.__setitem__(i, x[i] + 1),
    "add.at": lambda x, i: gi.add.at(x, i, 1),
    "put": lambda x, i: gi.put(x, i * 4, 7),
    "put_along_axis": lambda x, i: gi.put_along_axis(x, i[:, None], 7, 0),
    "take out": lambda x, i: gi.take(x * 2, i[:3], axis=0, out=x),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("wrong", [4, -5, 100])
def test_an_index_out_of_range_leaves_everything_as_it_is(device, write, wrong):
    for form in (np.array, lambda i: on(device, np.array(i))):
        x = on(device)
        with pytest.raises(gi.ArrayIndexError, match=r"-\d+ to \d+"):
            write(
                x,
                form([0, wrong, 1, 2], "i4")
                if form is np.array
                else form(np.array([0, wrong, 1, 2], "i4")),
            )
        np.testing.assert_array_equal(x.get(), HOST)
        write(x, form(np.array([0, 1, 2, 0], "i4")))


def test_only_functions_with_a_mode_suggest_one(device):
    x, i = on(device), on(device, np.array([[99]]))
    for call in (lambda: x.take(i), lambda: gi.put(x, i, 0)):
        with pytest.raises(gi.ArrayIndexError) as error:
            call()
        assert "pass mode=" in error.value.fix
        assert error.value.where in ("take", "put")
    for call in (
        lambda: gi.take_along_axis(x, i, 0),
        lambda: gi.put_along_axis(x, i, 0, 0),
        lambda: gi.compress([True] * 9, x, axis=0),
        lambda: gi.add.at(x, i, 0),
        lambda: x.__setitem__(i, 0),
        lambda: x.__setitem__(99, 0),
    ):
        with pytest.raises(gi.ArrayIndexError) as error:
            call()
        assert "pass mode=" not in error.value.fix


@pytest.mark.parametrize("on_device", [False, True])
def test_indices_beside_an_empty_index_array_are_not_checked(device, on_device):
    indices = [np.array([[9]]), np.zeros((1, 0), "i8")]
    key = tuple(on(device, i) if on_device else i for i in indices)
    assert on(device)[key].shape == on(device)[key[::-1]].shape == HOST[tuple(indices)].shape
    x = on(device)
    x[key] = 1
    np.testing.assert_array_equal(x.get(), HOST)
    none = on(device, HOST[:0])
    for k in (key, key[::-1]):
        assert none[k].shape == HOST[:0][tuple(indices)].shape
        none[k] = 1
        gi.add.at(none, k, 1)
    with pytest.raises(gi.ArrayIndexError, match="the axis is empty"):
        none[key[0]]


@pytest.mark.parametrize("key", [
    [[0, 1], [2]], 1.5, "a", np.array([0.5]), [0.5], {0}, (0, "a"), np.array(["a"]), np.array([1j]), b"a",
], ids=repr)  # fmt: skip
def test_a_key_that_is_not_an_index(device, key):
    x = on(device)
    for call in (lambda: x[key], lambda: x.__setitem__(key, 0), lambda: gi.add.at(x, key, 0)):
        with pytest.raises(gi.IndexKindError) as error:
            call()
        assert isinstance(error.value, IndexError)
    np.testing.assert_array_equal(x.get(), HOST)


@pytest.mark.parametrize("key", [
    np.ones((2, 4), bool), np.ones(4, bool), (slice(None), np.ones(3, bool)), np.ones((3, 4, 1), bool),
    ([0, 1], [0, 1, 2]), (0, 0, [0]), ([0], [0], [0]), (Ellipsis, [0], Ellipsis), ([0, 1], np.ones(4, bool)),
], ids=repr)  # fmt: skip
def test_a_key_that_does_not_fit(device, key):
    x = on(device)
    with pytest.raises(IndexError):
        HOST[key]
    for call in (lambda: x[key], lambda: x.__setitem__(key, 0)):
        with pytest.raises(gi.ArrayIndexError):
            call()


def test_values_that_do_not_fit(device):
    x = on(device)
    mask = HOST > 5
    for key, value in (
        ([0, 1], np.zeros(3, "f4")), ([0, 1], np.zeros((3, 4), "f4")), (mask, np.zeros(5, "f4")),
        (mask, np.zeros((2, 1), "f4")), (([0, 1], [0, 1]), np.zeros(3, "f4")), (mask, np.zeros(0, "f4")),
        (np.array([True, False, True]), np.zeros((3, 4), "f4")),
    ):  # fmt: skip
        for given in (value, on(device, value)):
            with pytest.raises(gi.ShapeError):
                x[key] = given
    np.testing.assert_array_equal(x.get(), HOST)
    x[np.zeros((3, 4), bool)] = np.zeros(0, "f4")
    x[np.array([True, False, True])] = np.array([[[1], [2]]], "f4")
    assert x[:, 0].tolist() == [1, 4, 2]


def test_too_many_index_arrays(device):
    x = on(device, np.zeros((1,) * 9, "f4"))
    key = tuple(on(device, np.zeros(2, "i8")) for _ in range(9))
    with pytest.raises(gi.UnsupportedError, match="8 index arrays"):
        x[key]
    assert x[key[:8]].shape == (2, 1)
    assert x[x == 0].shape == (1,)


def test_classes_and_dtypes(device):
    class Own(gi.CudaNdarray):
        pass

    i = on(device, np.array([0]))
    for x in (gi.CudaNdarray(HOST, device=device), Own(HOST, device=device)):
        for found in (
            x[i],
            x[x > 3],
            x[[0], [1]],
            x.take(i),
            gi.take_along_axis(x, i[:, None], 1),
            x[:, None][i],
        ):
            assert type(found) is type(x)
            assert not gi.shares_memory(found, x)
        with pytest.raises(gi.DTypeError):
            x[i] = np.zeros(4)
        with pytest.raises(gi.DTypeError):
            x[x > 3] = on(device, np.zeros((3, 4)))
        x[i] = 2
    y = on(device, np.zeros(3, "i8"))
    y[[0, 1]] = on(device, np.array([1.9, -1.9]))
    y[on(device, np.array([2]))] = np.float32(2.9)
    assert y.tolist() == [1, -1, 2]


def test_a_key_reads_memory_that_the_assignment_writes(device):
    i = on(device, np.array([3, 2, 1, 0]))
    i[i] = on(device, np.array([10, 20, 30, 40]))
    assert i.tolist() == [40, 30, 20, 10]
    x = on(device)
    x[[0, 1, 2]] = x[::-1]
    np.testing.assert_array_equal(x.get(), HOST[::-1])
    x = on(device)
    x[x > 5] = x[::-1][HOST[::-1] > 5][::-1]
    m = on(device, np.array([True, False, True]))
    m[m] = on(device, np.array([False, True]))
    assert m.tolist() == [False, False, True]
    m[m] = False
    assert not m.any()
    j = on(device, np.array([1, 0]))
    gi.take(j, j, out=j)
    assert j.tolist() == [0, 1]
    rows = on(device)
    assert gi.take(rows, [2, 1, 0], axis=0, out=rows) is rows
    np.testing.assert_array_equal(rows.get(), HOST[::-1])
    numpy_view = np.asarray(i) if device == "cpu" else i.get()
    i[...] = np.array([1, 2, 3, 0])
    i[numpy_view if device == "cpu" else i] = np.array([5, 6, 7, 8])
    assert i.tolist() == [8, 5, 6, 7]


def test_counted_copies(device):
    x, i, v = on(device), on(device, np.array([0, 1])), on(device, np.zeros(4, "f4"))
    mask = x > 3
    with gi.no_copies():
        x[i], x[mask], x[[0, 1]], x.take(i), x[:, [True] * 4], gi.nonzero(x)
        x[i] = v
        x[mask] = 1
        x[[0], [1]] = 5
        gi.add.at(x, i, v)
    with gi.count_copies() as copies:
        x[np.array([0, 1])]
        x[np.array([0, 1])] = 0
    assert copies.count == (0 if device == "cpu" else 2)


def test_indices_on_another_device(device):
    x = on(device)
    np.testing.assert_array_equal(x[on("cpu", np.array([2, 0]))].get(), HOST[[2, 0]])
    if device == "cpu":
        return
    host, there = on("cpu"), on(device, np.array([0]))
    for call in (lambda: host[there], lambda: host.__setitem__(there, 0), lambda: host.take(there)):
        with pytest.raises(gi.DeviceMismatchError):
            call()


def test_zero_dimensions(device):
    x = on(device, np.array(5.0))
    host = np.array(5.0)
    for key in (
        True,
        False,
        np.True_,
        (True, None),
        (Ellipsis, False),
        np.array(True),
        (True, False),
    ):
        np.testing.assert_array_equal(x[key].get(), host[key], strict=True)
    x[True] = 6
    x[False] = 7
    x[on(device, np.array(True))] += 1
    assert x.item() == 7
    with pytest.raises(IndexError):
        x[[0]]
    assert x.take(0).item() == x.take([0, 0]).tolist()[0] == 7
    y = on(device)
    for index in (np.array(1), on(device, np.array(1)), on(device, HOST)[:, 0].argmax() - 1):
        assert y[index].tolist() == HOST[1].tolist()
        assert gi.shares_memory(y[index], y)
    assert y[on(device, np.array(True))].shape == (1, 3, 4)


def test_arrays_of_torch(device):
    torch = pytest.importorskip("torch")
    x = on(device)
    places = ["cpu", "cuda"] if device != "cpu" and torch.cuda.is_available() else ["cpu"]
    for at in places:
        i, m = torch.tensor([2, 0], device=at), torch.tensor([True, False, True], device=at)
        np.testing.assert_array_equal(x[i].get(), HOST[[2, 0]])
        np.testing.assert_array_equal(x[i, 1].get(), HOST[[2, 0], 1])
        np.testing.assert_array_equal(x[m].get(), HOST[[0, 2]])
        np.testing.assert_array_equal(x.take(i, 0).get(), HOST[[2, 0]])
        x[i] = torch.zeros(4, device=at)
        x[m] = torch.tensor(5.0, device=at)
        x[...] = HOST
