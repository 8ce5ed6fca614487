"""What no_copies() refuses and count_copies() counts: one rule for both devices."""

import contextlib
import io
import pickle
from functools import partial

import numpy as np
import pytest
from doubles.placed import placed

import gpuinterop as gi


def counted(call):
    with gi.count_copies() as copies:
        call()
    return copies.count, copies.bytes


CROOKED = {
    "of foreign byte order": lambda: np.arange(3, dtype=">f4"),
    "misaligned": lambda: placed(np.zeros(3, "float32")),
    "a field of records": lambda: np.zeros(3, [("tag", "u1"), ("value", "f4")])["value"],
}


@pytest.mark.parametrize("make", CROOKED.values(), ids=CROOKED)
def test_realigning_a_numpy_array_counts_as_a_copy(make, device):
    host = make()
    np.testing.assert_array_equal(gi.array(host, "float64", device=device).get(), host)
    np.testing.assert_array_equal(gi.asarray(host, "int8", device=device).get(), host)
    upload = int(device != "cpu")
    assert counted(lambda: gi.asarray(host, device=device)) == (1 + upload, 12 * (1 + upload))
    assert counted(lambda: gi.array(host, device=device)) == (1 + upload, 12 * (1 + upload))
    with gi.no_copies():
        for call in (
            lambda: gi.asarray(host, device=device),
            lambda: gi.asarray(host, device=device, copy=False),
            lambda: gi.GpuArray(host, device=device),
        ):
            with pytest.raises(gi.CopyForbiddenError):
                call()


def _at(x, key, value):
    x[key] = value


ASSIGNMENTS = {
    "x[...] = n": lambda x, n: _at(x, ..., n),
    "x[ints] = n": lambda x, n: _at(x, [2, 0, 1], n),
    "x[mask] = n": lambda x, n: _at(x, np.array([True] * 3), n),
    "x.set(n)": lambda x, n: x.set(n),
    "put": lambda x, n: gi.put(x, [0, 1, 2], n),
    "add.at": lambda x, n: gi.add.at(x, [0, 1, 2], n),
    "copyto": lambda x, n: np.copyto(x, n),
}


@pytest.mark.parametrize("assign", ASSIGNMENTS.values(), ids=ASSIGNMENTS)
@pytest.mark.parametrize("make", CROOKED.values(), ids=CROOKED)
def test_assignment_realigns_its_source_by_one_more_copy(make, assign, device):
    host = make()
    x, y = gi.zeros(3, device=device), gi.zeros(3, device=device)
    plain = counted(lambda: assign(y, host.astype("float32")))
    assert counted(lambda: assign(x, host)) == (plain[0] + 1, plain[1] + 12)
    assert x.tolist() == y.tolist()
    with gi.no_copies(), pytest.raises(gi.CopyForbiddenError):
        assign(x, host)


@pytest.mark.parametrize("make", CROOKED.values(), ids=CROOKED)
def test_refused_source_is_not_realigned_by_a_copy(make):
    host = make()
    with gi.count_copies() as copies, pytest.raises(gi.CopyForbiddenError) as caught:
        gi.asarray(host, device="cpu", copy=False)
    assert copies.count == 0
    assert caught.value.expected == gi.explain(host).reason
    # The shape alone is not a reason either.
    assert counted(lambda: gi.zeros_like(host)) == (0, 0)
    assert gi.zeros_like(host).dtype == "float32"


def test_results_and_casts_are_not_copies(device):
    x = gi.asarray([1.0, 2.0, 3.0], device=device)
    n = gi.asarray(np.arange(3, dtype="float32"), device=device)
    out = gi.zeros(6, device=device)
    with gi.no_copies():
        assert gi.asarray(x) is x
        assert x.astype("float64").dtype == "float64"
        wide = gi.asarray(x, dtype="float64")
        assert wide.dtype == "float64"
        assert gi.asarray(wide, dtype="float32").dtype == "float32"
        joined = gi.concatenate([x, n]), gi.stack([x, x]), gi.concatenate([x, x], out=out)
    assert type(wide) is gi.GpuArray
    assert wide.base is None
    assert not gi.shares_memory(wide, x)
    assert joined[0].tolist() == [1, 2, 3, 0, 1, 2]
    assert joined[1].tolist() == [[1, 2, 3]] * 2
    assert counted(lambda: x.astype("float32")) == (1, 12)  # the same dtype: nothing is computed


def test_arrays_of_python_numbers_are_not_copies(device):
    x = gi.zeros((2, 2), device=device)
    whole = gi.zeros(3, dtype="int32", device=device)
    with gi.no_copies():
        made = [
            gi.asarray([1.0, 2.0], device=device),
            gi.array([1.0, 2.0], device=device),
            gi.CudaNdarray([1.0, 2.0], device=device),
            gi.GpuArray([1.0, 2.0], "float64", device=device),
            gi.arange(1, 3, device=device),
            gi.linspace(1, 2, 2, device=device),
            gi.asarray([np.array([1, 2], "float32")], device=device)[0],
        ]
        x[...] = [[1, 2], [3, 4]]
        whole[...] = 5
        whole[0] = np.int32(4)
        whole[1] = np.float64(6)
        taken = gi.take(x, [0], axis=0)
        gi.eye(2, dtype="int8", device=device)
        gi.full(3, 2, dtype="complex64", device=device)
    assert all(m.tolist() == [1, 2] for m in made)
    assert x.tolist() == [[1, 2], [3, 4]]
    assert whole.tolist() == [4, 6, 5]
    assert taken.tolist() == [[1, 2]]
    assert counted(lambda: whole.__setitem__(..., np.zeros(3, "int32")))[0] == 1
    assert counted(lambda: whole.__setitem__(..., np.array(7, "int32")))[0] == 1


def test_reading_memory_is_a_copy_but_reading_numbers_is_not(device):
    x = gi.asarray([[1.0, 2.0], [3.0, 4.0]], device=device)
    with gi.no_copies():
        assert "CudaNdarray([[1., 2.]" in repr(x)
        with contextlib.redirect_stdout(io.StringIO()) as text:
            print(x)
        assert x[0, 0].item() == x.item(0) == 1
        assert float(x[1, 1]) == 4
        assert f"{x[1, 0]:.1f}" == "3.0"
        assert x.tolist() == [[1, 2], [3, 4]]
        for call in (
            x.get, x.tobytes, x.copy, lambda: pickle.dumps(x, 4), lambda: x.T.reshape(4)
        ):  # fmt: skip
            with pytest.raises(gi.CopyForbiddenError):
                call()
    assert text.getvalue() == "[[1. 2.]\n [3. 4.]]\n"
    for call in (x.get, x.tobytes, x.copy, lambda: bytes(x)):
        assert counted(call) == (1, 16)


@pytest.mark.gpu
def test_numbers_that_cross_are_transfers_all_the_same():
    x = gi.zeros(3, device="cuda")
    with gi.count_copies() as copies, gi.log_transfers() as log:
        gi.asarray([1.0, 2.0], device="cuda")
        x.item(0)
    assert copies.count == 0
    assert [(t.kind, t.bytes) for t in log] == [("host_to_device", 8), ("device_to_host", 4)]


class Described:
    """An object with one number in memory that only the array interface exports."""

    def __init__(self, value):
        self.host = np.array(value, "float32")
        self.__array_interface__ = self.host.__array_interface__


@pytest.mark.parametrize("make", [
    lambda: np.array(2, "float32"), lambda: Described(2), lambda: np.array(2, "float32").__dlpack__()
], ids=["an array", "an array interface", "a capsule"])  # fmt: skip
def test_assigning_one_element_of_memory_counts_and_a_number_does_not(make, device):
    x = gi.zeros(3, device=device)
    assert counted(lambda: x.__setitem__(..., make()))[0] == 1
    assert x.tolist() == [2, 2, 2]
    assert counted(lambda: x.__setitem__(..., np.float64(3)))[0] == 0
    assert x.tolist() == [3, 3, 3]


@pytest.mark.parametrize(("target", "copies"), [((4, 8), 1), ((3, 7), 2)])
def test_parts_that_touch_are_copied_at_once_and_parts_that_overlap_twice(device, target, copies):
    begin, end = target
    for to, source in ((slice(begin, end), slice(0, 4)), (slice(0, 4), slice(begin, end))):
        x = gi.CudaNdarray(np.arange(8, dtype="float32"), device=device)
        expected = x.get()
        expected[to] = expected[source].copy()
        assert counted(partial(x.__setitem__, to, x[source])) == (copies, 16 * copies)
        np.testing.assert_array_equal(x.get(), expected)
