"""NumPy's functions of shape and equality on arrays of this library: NumPy's results, on their device."""

import itertools
import sys

import numpy as np
import pytest

import gpuinterop as gi

MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
VECTOR = np.array([3, -1, 2, 8], np.float32)
CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

CALLS = {
    "zeros_like": lambda m, v, c: np.zeros_like(m),
    "ones_like of a shape": lambda m, v, c: np.ones_like(m, "int16", shape=(2, 5)),
    "full_like": lambda m, v, c: np.full_like(m[:, ::2], 7, dtype=None),
    "stack": lambda m, v, c: np.stack([m, m * 2], axis=1),
    "vstack": lambda m, v, c: np.vstack([m, v]),
    "hstack": lambda m, v, c: np.hstack([m, m[:, :1]]),
    "hstack of vectors": lambda m, v, c: np.hstack((v, v[::-1])),
    "dstack": lambda m, v, c: np.dstack([v, v[::-1]]),
    "dstack of matrices": lambda m, v, c: np.dstack([m, m]),
    "column_stack": lambda m, v, c: np.column_stack([v, v, m.T]),
    "append": lambda m, v, c: np.append(m, v),
    "append an axis": lambda m, v, c: np.append(m, m, axis=0),
    "array_split": lambda m, v, c: np.array_split(m, 3, axis=1)[1],
    "array_split at": lambda m, v, c: np.array_split(v, [1, 3])[2],
    "array_split at an array": lambda m, v, c: np.array_split(v, np.array([1, 3]))[1],
    "array_split in an array's number": lambda m, v, c: np.array_split(v, np.array(3))[0],
    "split at an array": lambda m, v, c: np.split(v, np.array([1, 3]))[2],
    "split at one": lambda m, v, c: np.split(m, np.array([1]))[1],
    "hsplit at an array": lambda m, v, c: np.hsplit(m, np.uint8([1, 2]))[1],
    "tile by an array": lambda m, v, c: np.tile(m, np.array([2, 1])),
    "zeros_like of an array's shape": lambda m, v, c: np.zeros_like(m, shape=np.array([2])),
    "flip a number": lambda m, v, c: np.flip(np.max(m)),
    "flip an array": lambda m, v, c: np.flip(c, np.array([0, 2])),
    "moveaxis by arrays": lambda m, v, c: np.moveaxis(c, np.array([0]), np.array([2])),
    "vsplit": lambda m, v, c: np.vsplit(m, 3)[2],
    "hsplit": lambda m, v, c: np.hsplit(v, 2)[1],
    "unstack": lambda m, v, c: np.unstack(m, axis=1)[3],
    "stack along True": lambda m, v, c: np.stack([m, m], axis=True),
    "unstack along True": lambda m, v, c: np.unstack(m, axis=True)[3],
    "expand_dims at True": lambda m, v, c: np.expand_dims(m, True),
    "expand_dims at True and 0": lambda m, v, c: np.expand_dims(m, (True, 0)),
    "diff along False": lambda m, v, c: np.diff(m, axis=False),
    "split by names": lambda m, v, c: np.split(ary=m, indices_or_sections=3, axis=0)[1],
    "array_split by names": lambda m, v, c: np.array_split(ary=m, indices_or_sections=np.array([1, 2]))[1],
    "tile": lambda m, v, c: np.tile(v, 3),
    "tile by many": lambda m, v, c: np.tile(m.T, (2, 1, 3)),
    "tile by few": lambda m, v, c: np.tile(c, (2, 1)),
    "repeat": lambda m, v, c: np.repeat(m, 3),
    "clip in another dtype": lambda m, v, c: np.clip(m, 2, 5, dtype="float64"),
    "roll": lambda m, v, c: np.roll(m, 5),
    "roll along": lambda m, v, c: np.roll(m, -1, axis=1),
    "roll two axes": lambda m, v, c: np.roll(m, (1, -2), axis=(0, 1)),
    "roll two axes alike": lambda m, v, c: np.roll(m, 1, axis=(1, 0)),
    "roll one axis twice": lambda m, v, c: np.roll(m, np.array([1, 1]), axis=-1),
    "roll named twice": lambda m, v, c: np.roll(m, (2, 3), axis=(-1, 1)),
    "roll by several, all": lambda m, v, c: np.roll(m, (1, 3)),
    "roll around": lambda m, v, c: np.roll(m, 10**20, axis=0),
    "roll no axis": lambda m, v, c: np.roll(m, (), ()),
    "roll of nothing": lambda m, v, c: np.roll(m[:0], (1, 1), (0, 1)),
    "shape as an array": lambda m, v, c: np.reshape(m, np.array([m.shape[1], -1])),
    "broadcast to an array": lambda m, v, c: np.broadcast_to(v, np.array([2, len(v)])),
    "flip": lambda m, v, c: np.flip(c, (0, 2)),
    "fliplr": lambda m, v, c: np.fliplr(m),
    "flipud": lambda m, v, c: np.flipud(v),
    **{f"rot90, {k} times": lambda m, v, c, k=k: np.rot90(m, k) for k in (0, 1, 2, 3, -1, np.int8(6))},
    "rot90 in a plane": lambda m, v, c: np.rot90(c, axes=(-1, 0)),
    "rot90 thrice in a plane": lambda m, v, c: np.rot90(c, 3, np.array([1, 2])),
    "moveaxis": lambda m, v, c: np.moveaxis(c, (0, -1), (-1, 0)),
    "matrix_transpose": lambda m, v, c: np.matrix_transpose(c),
    "linalg.matrix_transpose": lambda m, v, c: np.linalg.matrix_transpose(c),
    "linalg.matmul": lambda m, v, c: np.linalg.matmul(m, c[0].T),
    "dot": lambda m, v, c: np.dot(m, c[0].T),
    "dot of stacks": lambda m, v, c: np.dot(c, c.transpose(0, 2, 1)),
    "matmul": lambda m, v, c: np.matmul(m, v),
    "sum": lambda m, v, c: np.sum(m, axis=0),
    "add.reduce": lambda m, v, c: np.add.reduce(m),
    "reshape": lambda m, v, c: np.reshape(m, (4, 3), order="F"),
    "broadcast_arrays": lambda m, v, c: np.broadcast_arrays(m, v)[1],
    "atleast_1d": lambda m, v, c: np.atleast_1d(v[0]),
    "atleast_2d": lambda m, v, c: np.atleast_2d(v),
    "atleast_3d of a vector": lambda m, v, c: np.atleast_3d(v),
    "atleast_3d": lambda m, v, c: np.atleast_3d(m),
    "diagonal": lambda m, v, c: np.diagonal(m, 1),
    "trace": lambda m, v, c: np.trace(m),
    "copy": lambda m, v, c: np.copy(m[:, ::-1]),
    "astype": lambda m, v, c: np.astype(m, np.int64),
    "around": lambda m, v, c: np.around(m / 3, 1),
    "ptp": lambda m, v, c: np.ptp(m, axis=0),
    "outer": lambda m, v, c: np.outer(v, m),
    "outer with a list": lambda m, v, c: np.outer(v, np.float32([1, 2])),
    "add.outer": lambda m, v, c: np.add.outer(m, v),
    "less.outer": lambda m, v, c: np.less.outer(v, v),
    "inner": lambda m, v, c: np.inner(m, v),
    "vdot": lambda m, v, c: np.vdot(v, v),
    "norm": lambda m, v, c: np.linalg.norm(m, axis=1),
    "diff": lambda m, v, c: np.diff(m**2, 2),
    "diff of bools": lambda m, v, c: np.diff(m > 0, axis=0),
    "where": lambda m, v, c: np.where(m > 0, m, v),
}  # fmt: skip
if np.lib.NumpyVersion(np.__version__) >= "2.4.0":  # older ones refuse it themselves
    CALLS |= {
        "reshape to None": lambda m, v, c: np.reshape(m.T, None),
        "reshape to None by columns": lambda m, v, c: np.reshape(m, None, order="F"),
    }


def arrays_on(device: str) -> tuple[gi.CudaNdarray, ...]:
    return tuple(gi.CudaNdarray(x, device=device) for x in (MATRIX, VECTOR, CUBE))


@pytest.mark.parametrize("name", CALLS)
def test_functions(device, name):
    call = CALLS[name]
    got, expected = call(*arrays_on(device)), np.asarray(call(MATRIX, VECTOR, CUBE))
    assert isinstance(got, gi.CudaNdarray | gi.GpuArray)
    assert str(got.device).startswith(device)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    assert isinstance(got, gi.CudaNdarray) == (expected.dtype == np.float32)
    np.testing.assert_allclose(got.get(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "function", [np.broadcast_arrays, np.atleast_1d, np.atleast_2d, np.atleast_3d]
)
def test_each_operand_of_either_library_is_viewed(device, function):
    text, masked = np.array("text"), np.ma.masked_less(VECTOR, 0)
    hosts = (MATRIX, VECTOR, 0.5, None, text, masked)
    x = gi.CudaNdarray(MATRIX, device=device)
    with gi.no_copies():
        first, last = function(x, *hosts[1:]), function(*hosts[1:], x)
    for got, order in ((first, hosts), (last, (*hosts[1:], MATRIX))):
        expected = function(*order)
        assert type(got) is type(expected)
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(one), other, strict=True)
    assert isinstance(first[0], gi.CudaNdarray)
    assert gi.shares_memory(first[0], x)
    assert [type(one) for one in first[1:]] == [type(one) for one in function(*hosts)[1:]]
    assert np.shares_memory(first[1], VECTOR)
    with pytest.raises(
        gi.ShapeError, match=r"numpy\.broadcast_arrays: expected shapes that broadcast"
    ):
        np.broadcast_arrays(x, VECTOR[:3])


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
def test_nan_is_ignored(device, dtype):
    host = np.array([[3, np.nan, -1], [np.nan] * 3, [np.inf, -np.inf, np.nan], [0, 1, 2]])
    host = (
        host.astype(dtype)
        if "float" in dtype
        else np.clip(np.nan_to_num(host), -9, 9).astype(dtype)
    )
    x = gi.GpuArray(host, device=device)
    for function in (np.nanmax, np.nanmin):
        for options in ({}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": (0, 1)}):
            got, expected = function(x, **options), function(host, **options)
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got.get(), expected)
        out = gi.empty((4,), dtype, device=device)
        assert function(x, axis=1, out=out) is out
        np.testing.assert_array_equal(out.get(), function(host, axis=1))
        assert function(host, axis=1, out=out) is out
        with pytest.raises(ValueError):
            function(x[:0])


def test_where_of_a_condition_alone_returns_indices(device):
    for got, expected in zip(np.where(arrays_on(device)[0]), np.where(MATRIX), strict=True):
        assert isinstance(got, gi.GpuArray)
        np.testing.assert_array_equal(got.get(), expected, strict=True)


def test_questions_answer_with_python_values(device):
    m, v, _ = arrays_on(device)
    ends = np.array([np.inf, -np.inf, np.nan, 1e-9, 1, 1], np.float64)
    other = np.array([np.inf, np.inf, np.nan, 0, 1, 1.1], np.float64)
    x, y = (gi.GpuArray(e, device=device) for e in (ends, other))
    for equal_nan in (False, True):
        got = np.isclose(x, y, equal_nan=equal_nan).get()
        np.testing.assert_array_equal(got, np.isclose(ends, other, equal_nan=equal_nan))
        assert np.array_equal(x, ends, equal_nan=equal_nan) is equal_nan
    for answer, expected in [
        (np.allclose(m, m), True), (np.allclose(m, MATRIX.astype(float) + 1), False),
        (np.allclose(m, m * np.float32(1 + 1e-6)), True), (np.array_equal(m, m), True),
        (np.array_equal(m, v), False), (np.array_equal(m, MATRIX), True),
        (np.array_equiv(v, np.stack([VECTOR, VECTOR])), True), (np.array_equiv(m, v[:3]), False),
        (np.iscomplexobj(m), False), (np.isrealobj(m), True), (np.may_share_memory(m, m[1:]), True),
        (np.may_share_memory(m, v), False), (np.result_type(m, np.float64), np.float64),
        (np.allclose(gi.GpuArray(np.uint8([0]), device=device), np.uint8([255])), False),
    ]:  # fmt: skip
        assert answer == expected
        assert not isinstance(answer, gi.CudaNdarray | gi.GpuArray)


@pytest.mark.parametrize("k", range(4))
def test_rot90_is_a_view(device, k):
    x = arrays_on(device)[0]
    turned = np.rot90(x, k)
    assert gi.shares_memory(turned, x)
    assert turned.strides == np.rot90(MATRIX, k).strides


def test_isclose_takes_numbers_as_numbers(device):
    tenths = np.float32([0.1, 0.2, np.nan, np.inf])
    whole, unsigned = np.array([1, 2**53 + 1, -3, 0]), np.uint8([0, 255, 1, 2])
    hosts = tenths, whole, unsigned, unsigned > 0, tenths.astype("float16")
    numbers = 0.1, 1, True, 255, np.nan, np.inf, np.float64(0.1), np.float32(0.1), [1, 0.1, 2, 2]
    every = {"rtol": 0, "atol": 0}, {"equal_nan": True}, {"atol": np.float32(0.1)}
    for (i, host), (j, other) in itertools.product(enumerate(hosts), enumerate(numbers)):
        x, options = gi.asarray(host, device=device), every[(i + j) % 3]  # each with each in turn
        for own, hosts in (((x, other), (host, other)), ((other, x), (other, host))):
            got, expected = np.isclose(*own, **options), np.isclose(*hosts, **options)
            np.testing.assert_array_equal(got.get(), expected)
            allclose = (np.allclose, gi.allclose)[(i + j) % 2]
            assert allclose(*own, **options) is np.allclose(*hosts, **options)


def test_a_tolerance_that_is_an_array_has_the_device_of_the_result(device):
    """Assertions of NumPy compare host arrays, and a program may compute the tolerance on a GPU."""
    host, tolerance = np.array([1.0, 2.0]), gi.asarray(0.5, dtype="float64", device=device)
    for options in ({"atol": tolerance}, {"rtol": tolerance}):
        close = np.isclose(host, host + 0.75, **options)
        assert close.device == tolerance.device
        np.testing.assert_array_equal(
            close.get(), np.isclose(host, host + 0.75, **{name: 0.5 for name in options})
        )


def test_non_array_is_not_equal_to_an_array(device):
    x = gi.asarray(VECTOR, device=device)
    for same in (np.array_equal, np.array_equiv):
        for other in ("abc", None, ["a"] * 4, [[1], [1, 2]], np.datetime64("2020-01-01"), {}):
            assert same(x, other) is same(other, x) is same(VECTOR, other) is False
            assert same(x[0], other) is False
        assert same(x, VECTOR.tolist()) is True


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.diff(x, -1), lambda x: np.diff(x[0, 0]), lambda x: np.vsplit(x[0], 2),
        lambda x: np.hsplit(x[0, 0], 1), lambda x: np.flip(x, (0, -2)),
        lambda x: np.rot90(x, 1, (0, -2)), lambda x: np.rot90(x, 1, (0, 2)),
        lambda x: np.size(x, 2), lambda x: np.size(x, (0, 0)),
    ],
)  # fmt: skip
def test_a_shape_that_numpy_refuses(device, call):
    with pytest.raises((ValueError, IndexError, TypeError)):
        call(MATRIX)
    with pytest.raises(gi.ShapeError):
        call(arrays_on(device)[0])


LARGE = np.array([2**60 + 1, -(2**60) - 1, 3])
CHOSEN = np.array([False, True, False])


@pytest.mark.parametrize(
    ("src", "casting"),
    [(7, "same_kind"), (True, "safe"), (LARGE[::-1].copy(), "no"), (np.int32([[5, 6, 7]]), "safe"),
     (np.array([1.5, 2.5, 3]), "unsafe"), (np.int8(-4), "safe"), ([4, 5, 6], "same_kind"), (2.5, "unsafe")],
)  # fmt: skip
def test_copyto_changes_what_the_mask_selects(device, src, casting):
    for where in (CHOSEN, CHOSEN[:1], True, np.False_, CHOSEN.tolist()):
        expected, x = LARGE.copy(), gi.GpuArray(LARGE, device=device)
        np.copyto(expected, src, casting, where)
        np.copyto(x, src, casting, where)
        np.testing.assert_array_equal(x.get(), expected)
        if isinstance(src, np.ndarray):
            x[...] = LARGE
            np.copyto(x, gi.GpuArray(src, device=device), casting, where)
            np.testing.assert_array_equal(x.get(), expected)
    if casting == "no":  # into memory of NumPy
        host, mask = LARGE.copy(), gi.GpuArray(CHOSEN, device=device)
        np.copyto(host, gi.GpuArray(src, device=device), where=mask)
        np.testing.assert_array_equal(host, np.where(CHOSEN, src, LARGE))


def test_copyto_refuses_what_numpy_refuses(device):
    x = gi.GpuArray(LARGE, device=device)
    for src, options in [
        (1.5, {}), (np.float64(1.5), {}), (LARGE / 2, {}), ([0.5, 1, 2], {}), (1j, {}),
        (np.uint64(1), {"casting": "safe"}), (7, {"where": CHOSEN.astype(int)}),
    ]:  # fmt: skip
        with pytest.raises(TypeError):
            np.copyto(LARGE.copy(), src, **options)
        with pytest.raises(gi.DTypeError):
            np.copyto(x, src, **options)
    for src, where in [(LARGE, np.ones((2, 3), bool)), (LARGE[:2], CHOSEN), (1, np.ones(2, bool))]:
        with pytest.raises(gi.ShapeError):
            np.copyto(x, src, where=where)
    np.testing.assert_array_equal(x.get(), LARGE)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.repeat(x, [1, 2]),
        lambda x: np.repeat(x, np.array([[2]])),
        lambda x: np.repeat(x, np.array([1.5])),
        lambda x: np.roll(x, (1, 2), (0, 0, 0)),
        lambda x: np.roll(x, 1.5, 0),
        lambda x: np.roll(x, [[1, 2]], 0),
        lambda x: np.roll(x, [[1], [1]], (0, 1)),
        lambda x: np.roll(x, 1, [[0]]),
        lambda x: np.rot90(x, 1, 0),
        lambda x: np.flip(x, 0.5),
        lambda x: np.zeros_like(x, order="F"),
        lambda x: np.moveaxis(x, (0, 0), (0, 1)),
        lambda x: np.vstack([x, "text"]),
        lambda x: np.subtract.accumulate(x),
        lambda x: np.arange(3, like=x),
        lambda x: np.array_split(x, 0),
        lambda x: np.diff(x, 1.5),
    ],
)
def test_rare_arguments(device, call, monkeypatch):
    """NumPy computes, or refuses, what gpuinterop's own function does not; on a GPU CuPy is needed."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    x = arrays_on(device)[0]
    try:
        expected = call(MATRIX)
    except (TypeError, ValueError, IndexError):
        expected = None
    if expected is None or device != "cpu":
        with pytest.raises((TypeError, ValueError, IndexError)):
            call(x)
    else:
        np.testing.assert_array_equal(np.asarray(call(x)), expected)


def test_memory_may_be_shared_with_arrays_of_numpy():
    host = np.arange(6.0)
    x = gi.asarray(host, device="cpu", copy=False)
    for a, b in ((x, host), (host, x), (x[3:], host), (x, x[1:])):
        assert np.may_share_memory(a, b) is True
    for a, b in ((x, np.arange(6.0)), (x[:3], host[3:]), (np.ones((2, 2)), x)):
        assert np.may_share_memory(a, b) is False


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int64", "float16", "float32", "float64", "complex64"]
)
def test_count_nonzero(device, dtype, axis):
    values = np.random.default_rng(3).integers(0, 3, (37, 65)) * 0.4
    values[3, 4], values[5, 6] = np.nan, -0.0
    with np.errstate(invalid="ignore"):
        host = values.astype(dtype)
    for part in (host, host[::-2, 1:], host[:0], host.T):
        got = np.count_nonzero(gi.GpuArray(part, device=device), axis, keepdims=True)
        expected = np.count_nonzero(part, axis, keepdims=True)
        assert got.dtype == np.int64
        np.testing.assert_array_equal(np.asarray(got), expected)


@pytest.mark.parametrize("function", [np.array, np.asarray, np.asanyarray])
@pytest.mark.parametrize("value", [[1, 2], (), 2.5, np.arange(6).reshape(2, 3)[:, ::-1], True])
def test_values_with_like_are_on_the_device_of_the_array(function, value, device):
    like = gi.zeros(3, device=device)
    for options in ({}, {"dtype": "float64"}):
        found, expected = function(value, like=like, **options), function(value, **options)
        assert isinstance(found, gi.GpuArray)
        assert (found.device, found.dtype) == (gi.device(device), expected.dtype)
        np.testing.assert_array_equal(found.get(), expected)


@pytest.mark.parametrize("function", [np.array, np.asarray])
def test_arrays_with_like_stay_and_array_copies(function, device):
    x = gi.asarray(np.arange(6, dtype="float32").reshape(2, 3), device=device).T
    with gi.log_transfers() as log:
        same, cast = function(x, like=x), function(x, "float64", like=x)
    assert not log
    assert (same.device, same.tolist(), same.ptr == x.ptr) == (
        x.device,
        x.tolist(),
        function is np.asarray,
    )
    assert (cast.dtype, cast.tolist()) == ("float64", x.tolist())


@pytest.mark.parametrize(
    ("name", "others"),
    [("cumsum", {"axis": 0}), ("cumprod", {"axis": 0}), ("argwhere", {}), ("flatnonzero", {}), ("nonzero", {}),
     ("take", {"indices": [1]}), ("swapaxes", {"axis1": 0, "axis2": 1}), ("transpose", {"axes": (1, 0)}),
     ("diagonal", {"offset": 1})],
)  # fmt: skip
def test_arguments_have_numpys_names(device, name, others):
    host = np.array([[1, 0, 2], [3, 4, 0]], "float32")
    function = getattr(np, name)
    found = function(a=gi.asarray(host, device=device), **others)
    np.testing.assert_array_equal(np.asarray([x.get() for x in found] if name == "nonzero" else found.get()),
                                  function(a=host, **others))  # fmt: skip
