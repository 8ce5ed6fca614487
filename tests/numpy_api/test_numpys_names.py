"""The functions with NumPy's names: NumPy's values, on the device of the arrays, and of their classes."""

import warnings

import numpy as np
import pytest
from doubles import driver

import gpuinterop as gi

rng = np.random.default_rng(3)
M = rng.integers(-4, 5, (3, 4)).astype("float64")
S = rng.standard_normal((3, 3))
V = np.array([3.0, -1, 2, 8])
C = rng.standard_normal((2, 3, 4))
Z = rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4))
ODD = np.array([[np.nan, np.inf, -np.inf], [1.0, -0.0, 2.0]])
K = M.astype("int32")
SMALL = np.array([100, 27, 100], "int8")  # products do not fit in int8
E = np.zeros((0, 3))

TRIANGLES = [lambda f: f(M, -9), lambda f: f(ODD), lambda f: f(M, 9)]
# Each call with the module's function, and the arrays M, S, ... as arrays of the device or of NumPy.
CALLS = {
    "einsum": [
        lambda f: f("ij,kj->ik", M, M),
        lambda f: f("ij,jk", M, M.T),
        lambda f: f("ii", S),
        lambda f: f("ii->i", S),
        lambda f: f("ij->j", M),
        lambda f: f("ij->ji", M),
        lambda f: f("i,j", V, V),
        lambda f: f("i,i", V, V),
        lambda f: f("...j,jk->...k", C, M.T),
        lambda f: f("bij,bij->b", C, C),
        lambda f: f("bij,bkj->bik", C, C),
        lambda f: f("i...->...", C),
        lambda f: f("ij,ij,ij->", M, M, M),
        lambda f: f("ij,jk,kl,lm->im", M, M.T, M, M.T),
        lambda f: f("ij,jk,kl", K, K.T, K),
        lambda f: f("ij,kj->ik", Z, M),
        lambda f: f(M, [0, 1], M, [2, 1], [0, 2]),
        lambda f: f(M, [0, 1]),
        lambda f: f("ij,jk->ik", E, S),
        lambda f: f("ij,ik->jk", E, E),
        lambda f: f("iij->j", S[:, :, None] + V),
        lambda f: f("ij,jk->ik", M[:1], M.T),
        lambda f: f("ij,ij->ij", M[:1], M),
        lambda f: f("ij,j->", M[:, ::-1], V[::-1]),
        lambda f: f("i,ij,j->i", V[:3], M, V),
        lambda f: f("...,...", C, 2.0),
        lambda f: f("a,b,c,d->dcba", V, V, V, V),
        lambda f: f("ij,kj->ik", M, M, dtype="complex128"),
        lambda f: f("i,i,i->i", V, V, V, optimize=True),
        lambda f: f("i,i,j->", SMALL, SMALL, K[0]),
        lambda f: f("i,j->j", SMALL, K[0]),
    ],
    "tensordot": [
        lambda f: f(M, M.T, 1),
        lambda f: f(C, C, ([1, 2], [1, 2])),
        lambda f: f(M, V, 0),
        lambda f: f(M, M),
        lambda f: f(C, M, ((2, 1), (1, 0))),
        lambda f: f(K, K.T, 1),
        lambda f: f(E, E, ([0], [0])),
        lambda f: f(C, M, (-1, 1)),
    ],
    "vecdot": [
        lambda f: f(M, V),
        lambda f: f(Z, Z),
        lambda f: f(C, M),
        lambda f: f(M, M, axis=0),
        lambda f: f(K, K),
        lambda f: f(V, V),
        lambda f: f(E, E),
        lambda f: f(E.T, E.T),
        lambda f: f(M > 0, M < 2),
        lambda f: f(E > 0, E > 0),
        lambda f: f(SMALL, SMALL, dtype="int32"),
    ],
    "matvec": [lambda f: f(M, V), lambda f: f(C, V), lambda f: f(Z, V)],
    "vecmat": [lambda f: f(V, M.T), lambda f: f(V, C.swapaxes(1, 2)), lambda f: f(Z, M.T)],
    "kron": [
        lambda f: f(M, S),
        lambda f: f(V, M),
        lambda f: f(M, 2.0),
        lambda f: f(C, V),
        lambda f: f(E, S),
    ],
    "cross": [
        lambda f: f(S, S[::-1]),
        lambda f: f(S[0], S),
        lambda f: f(M, S[0], axisa=0, axisb=0, axisc=-1),
        lambda f: f(S, S.T, axis=0),
        lambda f: f(C.swapaxes(1, 2), S[1]),
        lambda f: f(K[:, :3], K[:, 1:]),
        lambda f: f(E, E),
    ],
    "outer": [lambda f: f(V, V), lambda f: f(M, Z), lambda f: f(V, 2.0), lambda f: f(E, V)],
    "meshgrid": [
        lambda f: f(V, S[0]),
        lambda f: f(V, S[0], indexing="ij"),
        lambda f: f(V, S[0], V, sparse=True),
        lambda f: f(V),
        lambda f: f(V, E.ravel()),
        lambda f: f(V, S[0], M[0], copy=False, indexing="xy"),
    ],
    "tril": TRIANGLES,
    "triu": TRIANGLES,
    "pad": [
        lambda f: f(M, 1),
        lambda f: f(M, (1, 2)),
        lambda f: f(M, ((0, 1), (2, 0)), constant_values=((1, 2), (3, 4))),
        lambda f: f(M, 2, "edge"),
        lambda f: f(M, 2, "reflect"),
        lambda f: f(M, (0, 5), "symmetric"),
        lambda f: f(C, 3, "wrap"),
        lambda f: f(V, 0),
        lambda f: f(K, 1, constant_values=7),
        lambda f: f(E, 1),
        lambda f: f(V[::-2], 1, "edge"),
        lambda f: f(Z, 1, constant_values=1j),
    ],
    "diff": [
        lambda f: f(V),
        lambda f: f(M, 2, 0),
        lambda f: f(V, prepend=0.0),
        lambda f: f(M, append=M[:, :1]),
        lambda f: f(M, prepend=0.0, append=1.0, axis=0),
        lambda f: f(M > 0),
        lambda f: f(K, n=0),
    ],
    "nan_to_num": [
        lambda f: f(ODD),
        lambda f: f(ODD, nan=7.0, posinf=8.0, neginf=-8.0),
        lambda f: f(K),
        lambda f: f(E),
    ],
    "average": [
        lambda f: f(M),
        lambda f: f(SMALL, weights=SMALL[::-1]),
        lambda f: f(M, 0),
        lambda f: f(M, 1, V),
        lambda f: f(M, None, np.abs(M) + 1),
        lambda f: f(K, 0),
    ],
    "trace": [lambda f: f(M), lambda f: f(C, 1, 0, 2), lambda f: f(K)],
    "count_nonzero": [lambda f: f(M), lambda f: f(M, 0), lambda f: f(M > 0, axis=(0, 1))],
    "roll": [lambda f: f(C, (1, 2), (0, 2))],
    "append": [lambda f: f(V, V), lambda f: f(M, M, 0)],
    "concat": [lambda f: f([M, M]), lambda f: f((V, V), axis=0)],
    "reshape": [
        lambda f: f(M, (4, -1)),
        lambda f: f(M, 12, order="F"),
        lambda f: f(M, shape=(2, 6)),
    ],
    "unstack": [lambda f: f(C, axis=1)],
    "broadcast_arrays": [lambda f: f(V, M)],
    "isclose": [lambda f: f(V, V + 1e-9), lambda f: f(ODD, ODD, equal_nan=True)],
}
CALLS = {name: calls for name, calls in CALLS.items() if hasattr(np, name)}  # NumPy 2.1 lacks two
# NumPy computes these on "cpu", CuPy on a GPU.
BORROWED = {
    "nextafter": [lambda f: f(M, -V), lambda f: f(ODD, ODD[:, ::-1]), lambda f: f(V, 0.0)],
    "interp": [lambda f: f(M, V[[1, 0, 3]], V[:3]), lambda f: f(V, V[[1, 2]], V[:2], left=-7.0)],
    "choose": [
        lambda f: f(np.abs(K) % 3, [M, M * 2, V]),
        lambda f: f(K, [K, V], mode="clip"),
    ],
}
FLAT = [(name, i) for name, calls in CALLS.items() for i in range(len(calls))]


def flat(value):
    return (
        [x for item in value for x in flat(item)] if isinstance(value, (tuple, list)) else [value]
    )


@pytest.mark.parametrize(("name", "i"), FLAT, ids=[f"{n}-{i}" for n, i in FLAT])
def test_calls_give_numpys_values(device, monkeypatch, name, i):
    check(device, monkeypatch, name, CALLS[name][i])


@pytest.mark.parametrize("name", BORROWED)
def test_borrowed_calls_give_numpys_values(monkeypatch, name):
    for call in BORROWED[name]:
        check("cpu", monkeypatch, name, call)


def check(device, monkeypatch, name, call):
    expected = [np.asarray(x) for x in flat(call(getattr(np, name)))]
    given = {
        key: gi.GpuArray(globals()[key], device=device) for key in "M S V C Z ODD K E SMALL".split()
    }
    with monkeypatch.context() as patched:
        for key, x in given.items():
            patched.setitem(call.__globals__, key, x)
        got = flat(call(getattr(gi, name)))
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert isinstance(a, gi.GpuArray)
        assert (a.device, a.dtype, tuple(a.shape)) == (gi.device(device), b.dtype, b.shape)
        np.testing.assert_allclose(a.get(), b, rtol=1e-5, atol=1e-6)


def test_weights_that_sum_to_0(device):
    weights = np.array([[1.0, -1, 0, 0], [1, 1, 1, 1], [0] * 4])
    x, given = (gi.GpuArray(a, device=device) for a in (M, weights))
    if device == "cpu":
        for axis in (1, 0):
            with pytest.raises(ZeroDivisionError, match="weights"):
                gi.average(x, axis, given)
    else:  # which does not wait
        assert np.isfinite(gi.average(x, 1, given).get()).tolist() == [False, True, False]


def test_lists_and_arrays_of_other_libraries_are_operands():
    n = np.arange(6.0).reshape(2, 3)
    assert gi.tril(n).tolist() == np.tril(n).tolist()
    assert gi.reshape(n, shape=(3, 2)).tolist() == n.reshape(3, 2).tolist()
    assert gi.einsum("ij,j", n, [1, 1, 1]).tolist() == n.sum(1).tolist()
    assert gi.concat([gi.ones(1, device="cpu"), [2]]).tolist() == [1, 2]
    with pytest.raises(TypeError):
        gi.reshape("text", 3)


def test_results_have_the_class_of_the_operands():
    x = gi.asarray([[1.0, 2.0], [3.0, 4.0]], device="cpu")
    for found in (
        gi.tril(x),
        gi.reshape(x, 4),
        gi.einsum("ij->ji", x),
        gi.pad(x, 1),
        gi.softmax(x),
        gi.kron(x, x),
    ):
        assert type(found) is gi.CudaNdarray
    assert type(gi.diff(x, prepend=0)) is gi.CudaNdarray


def test_views_share_memory():
    x = gi.asarray(np.arange(24, dtype="float32").reshape(2, 3, 4), device="cpu")
    for found in (gi.reshape(x, -1), gi.transpose(x), gi.flip(x), gi.einsum("ijk->kji", x), gi.unstack(x)[1],
                  gi.diagonal(x), gi.expand_dims(x, 0), gi.broadcast_arrays(x, x[0])[1]):  # fmt: skip
        assert gi.shares_memory(found, x)
    same = gi.broadcast_arrays(x, x[0])[0]
    same[0, 0, 0] = 5
    assert x[0, 0, 0].item() == 5


def test_trace_adds_in_float64_as_sums_do():
    x = gi.CudaNdarray(np.diag(np.array([1e8, 1, -1e8], "float32")), device="cpu")
    assert gi.trace(x).item() == x.trace().item() == np.trace(x).item() == 1


def test_trace_is_a_method_too(device):
    x = gi.GpuArray(M, device=device)
    assert x.trace(1).item() == M.trace(1)
    out = gi.GpuArray(0.0, "float64", device=device)
    assert x.trace(out=out) is out
    with pytest.raises(gi.AxisError, match=r"^diagonal: expected"):
        x.trace(axis1=5)


def test_errors_name_the_function():
    x = gi.ones((2, 3), device="cpu")
    for call, error in [
        (lambda: gi.reshape(x, 5), gi.ShapeError), (lambda: gi.moveaxis(x, 5, 0), gi.AxisError),
        (lambda: gi.einsum("ij,jk", x, x), gi.ShapeError), (lambda: gi.einsum("ijk", x), gi.ShapeError),
        (lambda: gi.einsum("ij->kk", x), gi.ShapeError), (lambda: gi.einsum("ij,j", x), gi.ShapeError),
        (lambda: gi.tensordot(x, x, 1), gi.ShapeError), (lambda: gi.vecdot(x, x[:, :2]), gi.ShapeError),
        (lambda: gi.matvec(x[0], x[0]), gi.ShapeError), (lambda: gi.tril(x[0, 0]), gi.ShapeError),
        (lambda: gi.meshgrid(x, indexing="no"), gi.ShapeError), (lambda: gi.softmax(x, 4), gi.AxisError),
        (lambda: gi.einsum("...->", x), gi.ShapeError),
        (lambda: gi.pad(x, 1, "foo"), gi.ShapeError), (lambda: gi.cross(x, x[:, :1]), gi.ShapeError),
        (lambda: gi.choose(gi.asarray([2], "int32", device="cpu"), [x, x]), gi.ShapeError),
        (lambda: gi.interp(x, [1, 2], [1]), gi.ShapeError),
        (lambda: gi.nextafter(gi.ones(2, "complex64", device="cpu"), 1), gi.ArgumentTypeError),
        (lambda: gi.pad(x, -1), gi.ShapeError), (lambda: gi.unstack(x, axis=3), gi.AxisError),
    ]:  # fmt: skip
        with pytest.raises(error, match=r"^\w+: expected") as caught:
            call()
        assert caught.value.fix
    assert issubclass(gi.AxisError, IndexError)
    assert issubclass(gi.AxisError, ValueError)


def test_softmax(device):
    n = rng.standard_normal((3, 4, 5)).astype("float32") * 30
    x = gi.asarray(n, device=device)
    for axis in (-1, 0, (0, 2), None):
        axes = tuple(range(3)) if axis is None else axis
        wide = np.exp(n.astype("float64") - n.max(axes, keepdims=True))
        expected = wide / wide.sum(axes, keepdims=True)
        np.testing.assert_allclose(gi.softmax(x, axis).get(), expected, rtol=2e-5, atol=1e-30)
        np.testing.assert_allclose(
            gi.log_softmax(x, axis).get(), np.log(expected), rtol=2e-5, atol=2e-5
        )
    assert gi.softmax(x[:0]).shape == (0, 4, 5)
    assert gi.softmax(gi.GpuArray([1, 1], "int64", device=device)).dtype == "float64"


def test_the_standards_keywords(device):
    assert gi.full(2, fill_value=3, device=device).tolist() == [3, 3]
    x = gi.asarray([1.0, 3.0], device=device)
    assert gi.full_like(x, fill_value=4).tolist() == [4, 4]
    assert (
        gi.var(x, correction=1).item()
        == x.var(correction=1).item()
        == np.var(x, correction=1).item()
        == 2
    )
    assert gi.std(x, correction=0).item() == 1
    moved = gi.astype(x, "float64", device="cpu")
    assert (moved.dtype, moved.device.type) == ("float64", "cpu")
    with pytest.raises(gi.ArgumentTypeError, match="both"):
        x.var(ddof=1, correction=1)


def test_every_name_is_numpys():
    same = {n for n in {*gi.__all__} & {*np.__all__} if callable(getattr(gi, n))}
    assert {*CALLS, *BORROWED} <= same
    of_table = [n for n in same if getattr(gi, n).__module__ == "gpuinterop.numpy_api.names"]
    assert len(of_table) > 50
    for name in of_table:
        x = gi.zeros((2, 2), device="cpu")
        with pytest.raises((TypeError, ValueError, IndexError)):
            getattr(gi, name)(x, no_such_argument=1)


def test_numpys_matmul_takes_the_dtype_of_its_loop(device):
    k, m = gi.GpuArray(K, device=device), gi.GpuArray(M, device=device)
    for x, host, dtype in ((k, K, "float64"), (m, M, "complex128")):
        got = np.matmul(x, x.T, dtype=dtype)
        assert got.dtype == dtype
        np.testing.assert_allclose(got.get(), np.matmul(host, host.T, dtype=dtype))
    for x, dtype in ((m.astype("complex64"), "float64"), (k.astype("float32"), "int64")):
        with pytest.raises(gi.DTypeError, match="same_kind casting"):
            np.matmul(x, x.T, dtype=dtype)


def test_no_call_warns_on_the_host():
    x = gi.asarray(np.array([1e308, 1e308, np.inf]), device="cpu")
    calls = [gi.cumsum, gi.diff, gi.fft.fft, np.cumsum, lambda x: x.cumprod(), lambda x: gi.outer(x, x),
             lambda x: gi.cumsum(x[::-1])]  # fmt: skip
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for call in calls:
            call(x)


def test_a_numpy_without_its_private_names_is_as_quiet():
    code = """
        import warnings
        import gpuinterop as gi, numpy as np

        x = gi.asarray([1e308, 1e308, np.inf], "float64", device="cpu")
        for name in ("_make_extobj", "_extobj_contextvar"):
            delattr(np._core.umath, name)
        warnings.simplefilter("error")
        assert gi.cumsum(x).tolist() == [1e308, np.inf, np.inf]
    """
    driver.run(code)


def test_a_cast_of_joined_arrays_keeps_the_class(device):
    x, whole = gi.ones(2, device=device), gi.GpuArray([1, 2], "int8", device=device)
    joined = gi.concatenate([x, whole], casting="safe")
    assert (type(joined), joined.dtype) == (gi.CudaNdarray, np.float32)
    for call in (gi.concatenate, gi.stack):
        for casting in ("bad", 3):
            with pytest.raises(gi.ArgumentTypeError, match="'same_kind'"):
                call([whole, whole], casting=casting)


def test_methods_that_numpy_carries_out_are_named_by_the_class():
    assert gi.GpuArray.sort.__qualname__ == "GpuArray.sort"


def test_shapes_that_only_numpy_tells_apart(device):
    x, y = gi.zeros(0, device=device), gi.ones(1, device=device)
    assert gi.einsum("i,i", x, y).item() == np.einsum("i,i", x.get(), y.get())
    assert gi.einsum("i,i", y, x).item() == 0
    with pytest.raises(gi.ShapeError, match="vectors of 2 and of 1 elements"):
        np.vecdot([1.0, 2.0], y)
