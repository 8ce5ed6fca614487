"""Linear algebra against NumPy in float64, on both devices, and by the equations that factors must fulfil."""

import numpy as np
import pytest
from doubles import driver
from helpers.numbers import numbers

import gpuinterop as gi

DTYPES = ["float32", "float64", "complex64", "complex128"]
# Square shapes: one matrix, a large one, small ones that run as a batch, none, and matrices without elements.
SQUARE = [(1, 1), (5, 5), (40, 40), (130, 130), (3, 4, 4), (2, 3, 7, 7), (3, 33, 33), (0, 4, 4), (2, 0, 0)]  # fmt: skip
RECTANGLES = [
    (5, 3), (3, 5), (140, 133), (2, 4, 3), (6, 4, 3), (2, 2, 3, 4), (40, 40, 33), (0, 3), (3, 0), (2, 0, 3),
]  # fmt: skip


def adjoint(a):
    return np.conj(np.swapaxes(a, -1, -2))


def positive(shape, dtype):
    a = numbers(shape, dtype)
    return (a @ adjoint(a) / max(shape[-1], 1) + np.eye(shape[-1])).astype(dtype)


def close(got, expected, dtype, factor=1.0):
    got = np.asarray(got)
    assert got.shape == np.shape(expected)
    tolerance = (
        2e-4 if np.dtype(dtype).itemsize // (1 + (np.dtype(dtype).kind == "c")) == 4 else 1e-9
    )
    scale = max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * factor * scale)


def wide(a):
    return a.astype(np.result_type(a.dtype, np.float64))


@pytest.fixture(params=DTYPES)
def dtype(request):
    return request.param


@pytest.mark.parametrize("shape", SQUARE)
class TestSquare:
    def test_solve(self, device, dtype, shape):
        a = positive(shape, dtype) + numbers(shape, dtype, 1) / 9
        for columns in (1, 3):
            b = numbers((*shape[:-1], columns), dtype, 2)
            x = gi.linalg.solve(gi.asarray(a, device=device), gi.asarray(b, device=device))
            assert x.dtype == dtype
            close(x, np.linalg.solve(wide(a), wide(b)), dtype, 10)

    def test_inv_and_det(self, device, dtype, shape):
        a = positive(shape, dtype) + numbers(shape, dtype, 1) / 9
        x = gi.asarray(a, device=device)
        close(gi.linalg.inv(x), np.linalg.inv(wide(a)), dtype, 10)
        sign, logarithm = gi.linalg.slogdet(x)
        expected = np.linalg.slogdet(wide(a))
        close(sign, expected.sign, dtype, 10)
        close(logarithm, expected.logabsdet, dtype, 10)
        if shape[-1] < 100:
            close(gi.linalg.det(x), np.linalg.det(wide(a)), dtype, 10)

    def test_cholesky(self, device, dtype, shape):
        a = positive(shape, dtype)
        # The other triangle is not read.
        lower = np.tril(a) + np.triu(np.full(shape, 7, dtype), 1)
        upper = np.triu(a) + np.tril(np.full(shape, 7, dtype), -1)
        factor = gi.linalg.cholesky(gi.asarray(lower, device=device))
        close(factor, np.linalg.cholesky(wide(a)), dtype)
        factor = gi.linalg.cholesky(gi.asarray(upper, device=device), upper=True)
        close(factor, adjoint(np.linalg.cholesky(wide(a))), dtype)

    def test_eigh(self, device, dtype, shape):
        a = positive(shape, dtype)
        for letter, part in (("L", np.tril), ("U", np.triu)):
            x = gi.asarray(part(a), device=device)
            values, vectors = gi.linalg.eigh(x, letter)
            close(values, np.linalg.eigvalsh(wide(a)), dtype)
            v, w = np.asarray(vectors), np.asarray(values)
            close(v * w[..., None, :] @ adjoint(v), a, dtype, 10)
            close(gi.linalg.eigvalsh(x, letter), w, dtype)

    def test_eig(self, device, dtype, shape):
        a = numbers(shape, dtype)
        values, vectors = gi.linalg.eig(gi.asarray(a, device=device))
        v, w = np.asarray(vectors), np.asarray(values)
        assert v.dtype == w.dtype
        close(a @ v, v * w[..., None, :], dtype, 10)
        close(np.linalg.norm(v, axis=-2), np.ones(w.shape), dtype)
        found = np.sort_complex(np.asarray(gi.linalg.eigvals(gi.asarray(a, device=device))))
        close(found.sum(-1), np.trace(wide(a), axis1=-2, axis2=-1), dtype, 10)

    def test_powers(self, device, dtype, shape):
        a = positive(shape, dtype)
        for n in (-2, 0, 1, 5):
            found = gi.linalg.matrix_power(gi.asarray(a, device=device), n)
            close(found, np.linalg.matrix_power(wide(a), n), dtype, 100)


@pytest.mark.parametrize("shape", [(3, 33, 33), (2, 200, 200)])
def test_cholesky_of_stacks_leaves_nothing_above_the_diagonal(device, dtype, shape):
    a = positive(shape, dtype)
    x = gi.asarray(a, device=device)
    for upper in (False, True):
        expected = np.linalg.cholesky(wide(a), upper=upper)
        factor = np.asarray(gi.linalg.cholesky(x, upper=upper))
        close(factor, expected, dtype)
        assert not (np.tril(factor, -1) if upper else np.triu(factor, 1)).any()


@pytest.mark.parametrize("scale", [1, 1e-36, 1e36])
def test_rows_are_exchanged(device, dtype, scale):
    a = numbers((3, 12, 12), dtype)
    a[:, range(12), range(12)] = 0  # no row may stay in place
    a[0, :, 0], a[0, 9, 0] = 1e-7, 1
    a[1] = np.eye(12)[::-1]
    for one in (a * scale).astype(dtype):
        x = gi.asarray(one, device=device)
        close(gi.linalg.solve(x, x[:, :4]), np.eye(12)[:, :4], dtype, 100)


@pytest.mark.parametrize(
    ("name", "n"), [("eigh", 4), ("eigh", 40), ("eigvalsh", 40), ("cholesky", 40)]
)
def test_nan_in_a_stack_raises(device, name, n):
    a = np.broadcast_to(np.eye(n), (3, n, n)).copy()
    a[1, 1, 1] = np.nan
    x = gi.asarray(a, device=device)
    if device == "cpu" and not _raises(getattr(np.linalg, name), a):
        return  # NumPy's has NaN
    with pytest.raises(np.linalg.LinAlgError, match=r"matrix \(1,\)|stack"):
        getattr(gi.linalg, name)(x)


def test_nan_spreads_to_the_solution(device):
    a = np.eye(5)
    a[2, 2] = np.nan
    x = gi.asarray(a, device=device)
    assert np.isnan(np.asarray(gi.linalg.solve(x, gi.ones(5, "float64", device=device)))).any()


@pytest.mark.driver
def test_singular_values_alone_allocate_no_vectors():
    x = gi.asarray(numbers((2000, 3), "float64"), device="cuda")
    gi.linalg.svd(x, compute_uv=False)
    gi.devices.reset_peak_memory("cuda")
    before = gi.devices.memory_stats("cuda")["peak_bytes"]
    gi.linalg.svd(x, compute_uv=False)
    assert gi.devices.memory_stats("cuda")["peak_bytes"] - before < 1 << 24  # a square U has 32 MB


@pytest.mark.parametrize("p", [None, 2, -2, 1, -1, np.inf, "fro"])
def test_cond_of_singular_matrices_is_infinite(device, p):
    stack = np.stack([np.diag([2.0, 1.0, 4.0]), np.diag([1.0, 0.0, 1.0]), np.zeros((3, 3))])
    for a in (stack, stack[2]):
        found = np.asarray(gi.linalg.cond(gi.asarray(a, device=device), p))
        np.testing.assert_allclose(found, np.linalg.cond(a, p), rtol=1e-9, atol=1e-12)
    stack[0, 0, 0] = np.nan
    if p not in (None, 2, -2):  # they need singular values
        found = np.asarray(gi.linalg.cond(gi.asarray(stack, device=device), p))
        np.testing.assert_array_equal(np.isnan(found), [True, False, False])
    empty = gi.linalg.cond(gi.zeros((0, 3, 3), dtype="float64", device=device), p)
    assert empty.shape == (0,)


@pytest.mark.parametrize("rcond", [None, -1, 0, 1e-3, 0.7, 2])
def test_cutoffs_of_least_squares(device, rcond):
    a = np.diag([1.0, 0.5, 1e-2, 1e-6, 1e-20])
    b = np.ones(5)
    expected = np.linalg.lstsq(a, b, rcond)
    x, y = (gi.asarray(value, device=device) for value in (a, b))
    found = gi.linalg.lstsq(x, y, rcond)
    assert found[2].item() == expected[2]
    np.testing.assert_allclose(np.asarray(found[0]), expected[0], rtol=1e-9)


def test_norms_of_one_number(device):
    for value in map(np.asarray, (3.0, 0.0, 2 - 1j)):
        x = gi.asarray(value, device=device)
        for order in (0, 1, 2, np.inf):
            found = gi.linalg.vector_norm(x, ord=order)
            expected = np.linalg.vector_norm(np.asarray(x), ord=order)
            np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)
            assert found.dtype == expected.dtype


@pytest.mark.parametrize("order", ["fro", "nuc", 1, 2, np.inf])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 0)])
def test_norms_of_empty_matrices_are_0(device, shape, order):
    x = gi.zeros(shape, "float64", device=device)
    assert not gi.linalg.matrix_norm(x, ord=order).get().any()
    assert gi.linalg.norm(x, order, (-2, -1)).shape == shape[:-2]


@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (-1, -2), (2, 0)])
@pytest.mark.parametrize("order", [1, -1, np.inf, -np.inf, "fro"])
def test_norms_along_axes_in_the_order_of_the_caller(device, axes, order):
    a = np.arange(24.0).reshape(2, 3, 4) - 9
    for keepdims in (False, True):
        found = gi.linalg.norm(gi.GpuArray(a, device=device), order, axes, keepdims)
        np.testing.assert_allclose(found.get(), np.linalg.norm(a, order, axes, keepdims))


@pytest.mark.parametrize("order", [2, -2, "nuc"])
def test_norms_of_unknown_dtypes_name_their_function(device, order):
    x = gi.zeros((2, 2), dtype="float16", device=device)
    for name in ("matrix_norm", "norm"):
        with pytest.raises(gi.DTypeError) as raised:
            getattr(gi.linalg, name)(x, ord=order)
        assert raised.value.where == f"linalg.{name}"


@pytest.mark.parametrize("shape", [*SQUARE, *RECTANGLES])
class TestRectangles:
    @pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
    def test_qr(self, device, dtype, shape, mode):
        a = numbers(shape, dtype)
        found = gi.linalg.qr(gi.asarray(a, device=device), mode)
        expected = np.linalg.qr(wide(a), mode)
        if mode == "r":
            r = np.asarray(found)
            close(np.abs(r), np.abs(expected), dtype, 10)
            return
        q, r = map(np.asarray, found)
        assert q.shape == expected.Q.shape
        assert r.shape == expected.R.shape
        assert not np.tril(r, -1).any()
        close(q @ r, a, dtype, 10)
        close(
            adjoint(q) @ q,
            np.broadcast_to(np.eye(q.shape[-1]), r.shape[:-2] + 2 * q.shape[-1:]),
            dtype,
            10,
        )

    @pytest.mark.parametrize("full", [False, True])
    def test_svd(self, device, dtype, shape, full):
        a = numbers(shape, dtype)
        x = gi.asarray(a, device=device)
        u, s, vh = map(np.asarray, gi.linalg.svd(x, full_matrices=full))
        expected = np.linalg.svd(wide(a), full_matrices=full)
        assert (u.shape, vh.shape) == (expected.U.shape, expected.Vh.shape)
        close(s, expected.S, dtype)
        close(gi.linalg.svdvals(x), expected.S, dtype)
        k = s.shape[-1]
        close(u[..., :k] * s[..., None, :] @ vh[..., :k, :], a, dtype, 10)
        for q in (u, adjoint(vh)):
            eye = np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], *2 * q.shape[-1:]))
            close(adjoint(q) @ q, eye, dtype, 10)

    def test_pinv_and_rank(self, device, dtype, shape):
        a = numbers(shape, dtype)
        x = gi.asarray(a, device=device)
        close(gi.linalg.pinv(x), np.linalg.pinv(wide(a)), dtype, 1000)
        assert np.asarray(gi.linalg.matrix_rank(x)).tolist() == np.linalg.matrix_rank(a).tolist()


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 4)])
def test_norms_of_matrices(device, dtype, shape, ord):
    a = numbers(shape, dtype)
    x = gi.asarray(a, device=device)
    for keepdims in (False, True):
        expected = np.linalg.matrix_norm(wide(a), ord=ord, keepdims=keepdims)
        close(gi.linalg.matrix_norm(x, ord=ord, keepdims=keepdims), expected, dtype, 10)


@pytest.mark.parametrize("shape", [(6, 4), (150, 140), (4, 6)])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_matrices_without_full_rank(device, dtype, shape, rank):
    a = (numbers((shape[0], rank), dtype) @ numbers((rank, shape[1]), dtype, 1)).astype(dtype)
    x = gi.asarray(a, device=device)
    assert gi.linalg.matrix_rank(x).item() == rank
    u, s, vh = map(np.asarray, gi.linalg.svd(x, full_matrices=False))
    close(u * s @ vh, a, dtype, 10)
    close(adjoint(u) @ u, np.eye(len(s)), dtype, 10)
    close(vh @ adjoint(vh), np.eye(len(s)), dtype, 10)
    b = numbers(shape[:1], dtype, 2)
    expected = np.linalg.lstsq(wide(a), wide(b), rcond=1e-5)
    found = gi.linalg.lstsq(x, gi.asarray(b, device=device), rcond=1e-5)
    close(found[0], expected[0], dtype, 100)
    assert found[2].item() == rank
    assert found[1].shape == expected[1].shape


@pytest.mark.parametrize("name", ["solve", "inv"])
def test_singular_matrices_raise(device, name):
    stack = np.stack([np.eye(3), np.ones((3, 3)), np.zeros((3, 3))])
    for a in (stack, np.ones((3, 3)), np.zeros((200, 200)), np.full((2, 2), 0.0, "float32")):
        x = gi.asarray(a, device=device)
        with pytest.raises(np.linalg.LinAlgError) as raised:
            gi.linalg.solve(x, x) if name == "solve" else gi.linalg.inv(x)
        assert isinstance(raised.value, gi.GpuInteropError)
    x = gi.asarray(stack, device=device)
    assert np.asarray(gi.linalg.det(x)).tolist() == [1, 0, 0]
    assert np.asarray(gi.linalg.slogdet(x).logabsdet).tolist() == [0, -np.inf, -np.inf]
    assert np.asarray(gi.linalg.slogdet(x).sign).tolist() == [1, 0, 0]


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3), (200, 200)])
def test_cholesky_of_other_matrices_raises(device, dtype, shape):
    a = np.broadcast_to(-np.eye(shape[-1]), shape).astype(dtype)
    with pytest.raises(np.linalg.LinAlgError):
        gi.linalg.cholesky(gi.asarray(a, device=device))


@pytest.mark.parametrize("name", ["svd", "svdvals", "eigh", "eigvalsh", "eig", "eigvals"])
@pytest.mark.parametrize("n", [4, 150])
def test_nan_raises(device, name, n):
    a = np.eye(n)
    a[1, 1] = np.nan
    x = gi.asarray(a, device=device)
    if device == "cpu" and name == "eigh" and not _raises(np.linalg.eigh, a):
        assert np.isnan(np.asarray(gi.linalg.eigh(x).eigenvalues)).any()  # as NumPy's
        return
    with pytest.raises(np.linalg.LinAlgError):
        getattr(gi.linalg, name)(x)


def _raises(function, a):
    try:
        function(a)
    except np.linalg.LinAlgError:
        return True
    return False


@pytest.mark.parametrize("view", ["transposed", "reversed", "sliced", "broadcast", "readonly"])
def test_layouts_of_operands(device, view):
    a = positive((8, 8), "float64") + np.arange(8.0)
    views = {
        "transposed": lambda x: x.T, "reversed": lambda x: x[::-1, ::-1], "sliced": lambda x: x[1::2, ::2],
        "broadcast": lambda x: np.broadcast_to(x, (3, 8, 8)),
        "readonly": lambda x: x,
    }  # fmt: skip
    host = a.copy()
    host.flags.writeable = view != "readonly"
    x = gi.asarray(host, device=device)
    got, expected = views[view](x), views[view](a)
    before = np.array(got)
    close(gi.linalg.inv(got), np.linalg.inv(expected), "float64", 10)
    close(gi.linalg.svdvals(got), np.linalg.svdvals(expected), "float64", 10)
    close(
        gi.linalg.solve(got, got),
        np.broadcast_to(np.eye(expected.shape[-1]), expected.shape),
        "float64",
        10,
    )
    close(abs(gi.linalg.qr(got, "r")), np.abs(np.linalg.qr(expected, "r")), "float64", 10)
    np.testing.assert_array_equal(np.array(got), before)  # operands are only read


@pytest.mark.parametrize("vectors", [False, True])
def test_solve_broadcasts(device, vectors):
    a, b = positive((2, 1, 3, 3), "float64"), numbers((4, 3, 2), "float64")
    if vectors:
        a, b = a[0, 0], b[0, :, 0]
    found = gi.linalg.solve(gi.asarray(a, device=device), gi.asarray(b, device=device))
    close(found, np.linalg.solve(a, b), "float64")


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint16"])
def test_integers_count_as_float64(device, dtype):
    a = np.array([[1, 0], [1, 1]], dtype)
    x = gi.asarray(a, device=device)
    for name in ("inv", "det", "eigvalsh", "svdvals"):
        found = getattr(gi.linalg, name)(x)
        expected = getattr(np.linalg, name)(a)
        assert found.dtype == expected.dtype == np.float64
        close(found, expected, "float64")


def test_unknown_dtypes_are_refused(device):
    for dtype in ("float16", "bfloat16"):
        x = gi.zeros((2, 2), dtype=dtype, device=device)
        with pytest.raises(gi.DTypeError):
            gi.linalg.inv(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda f, x: f.inv(x[:2]),
        lambda f, x: f.det(x[0]),
        lambda f, x: f.solve(x, x[:2]),
        lambda f, x: f.eigh(x, "M"),
        lambda f, x: f.qr(x, "half"),
        lambda f, x: f.norm(x, "nuc", 0),
        lambda f, x: f.cross(x[:, :2], x[:, 1:]),
        lambda f, x: f.tensordot(x, x[:2], axes=1),
        lambda f, x: f.multi_dot([x]),
        lambda f, x: f.multi_dot([]),
    ],
)
def test_wrong_arguments(device, call):
    with pytest.raises(ValueError, match="expected"):
        call(gi.linalg, gi.ones((3, 3), dtype="float64", device=device))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f, x: f.inv(x[:2]), r"inv: expected square matrices.*\n  got: shape \(2, 3\)"),
        (
            lambda f, x: f.svd(x[0]),
            r"svd: expected matrices: two axes or more\n  got: shape \(3,\)",
        ),
        (lambda f, x: f.solve(x, x[0, :2]), r"solve: expected b with 3 rows\n  got: shape \(2,\)"),
        (lambda f, x: f.lstsq(x, x[:2]), r"rows\n  got: shapes \(3, 3\) and \(2, 3\)"),
        (lambda f, x: f.eigh(x, UPLO="M"), r"eigh: expected UPLO='L' or 'U'"),
        (lambda f, x: f.qr(x, mode="half"), r"qr: expected mode='reduced', 'complete' or 'r'"),
        (lambda f, x: f.matrix_power(x, 1.5), r"expected an int as n\n  got: 1.5"),
        (
            lambda f, x: f.inv(x),
            r"not singular\n  got: the matrix, singular\n  fix: use linalg.lstsq",
        ),
        (lambda f, x: f.cholesky(-x), "expected matrices that are positive definite"),
    ],
)
def test_errors_have_the_same_words_on_both_devices(device, call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call(gi.linalg, gi.ones((3, 3), dtype="float64", device=device))


def test_an_error_of_numpy_shows_the_operands():
    words = (
        r"pinv: expected arguments that NumPy's function takes\n  got: float64 of shape \(2, 2\)"
    )
    with pytest.raises(TypeError, match=words):
        gi.linalg.pinv(gi.ones((2, 2), dtype="float64", device="cpu"), rcond="a")


CASES = {
    "cross": lambda f, a: f.cross(a[..., :3], a[..., 1:4]),
    "cross along an axis": lambda f, a: f.cross(a[:3], a[1:], axis=0),
    "outer": lambda f, a: f.outer(a[0], a[1]),
    "vecdot": lambda f, a: f.vecdot(a, a[1], axis=-1),
    "vecdot along an axis": lambda f, a: f.vecdot(a, a, axis=0),
    "tensordot": lambda f, a: f.tensordot(a, a),
    "tensordot of axes": lambda f, a: f.tensordot(a, a, axes=((0,), (-2,))),
    "tensordot of none": lambda f, a: f.tensordot(a, a, axes=0),
    "multi_dot": lambda f, a: f.multi_dot([a, a[:, :2], a[:2], a[:, 0]]),
    "trace": lambda f, a: f.trace(a, offset=1),
    "diagonal": lambda f, a: f.diagonal(a, offset=-1),
    "matrix_transpose": lambda f, a: f.matrix_transpose(a),
    "matmul": lambda f, a: f.matmul(a, a),
    "cond": lambda f, a: f.cond(a),
    "cond of a norm": lambda f, a: f.cond(a, 1),
    "norm": lambda f, a: f.norm(a),
    "norm of vectors": lambda f, a: f.norm(a, 3, 1, True),
    "norm 0": lambda f, a: f.norm(a, 0, 1),
    "norm of axes": lambda f, a: f.norm(a, "nuc", (1, 0)),
    "vector_norm": lambda f, a: f.vector_norm(a, axis=0, ord=1),
    "vector_norm of all": lambda f, a: f.vector_norm(a, keepdims=True),
    "tensorinv": lambda f, a: f.tensorinv(a.reshape((2, 2, 4)), 2),
    "tensorsolve": lambda f, a: f.tensorsolve(a.reshape((2, 2, 4)), a[:2, :2]),
    "pinv of a Hermitian matrix": lambda f, a: f.pinv(a @ a.T, hermitian=True),
    "matrix_rank with tol": lambda f, a: f.matrix_rank(a, tol=0.5),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_others(device, dtype, name):
    a = numbers((4, 4), dtype) + np.eye(4, dtype=dtype)
    found = CASES[name](gi.linalg, gi.asarray(a, device=device))
    expected = CASES[name](np.linalg, wide(a))
    assert found.dtype == (dtype if expected.dtype.kind == "f" else expected.dtype)
    close(found, expected, dtype, 10)
    called = CASES[name](np.linalg, gi.asarray(a, device=device))
    assert isinstance(called, (gi.GpuArray, gi.CudaNdarray))
    close(called, expected, dtype, 10)


def test_results_have_the_class_of_the_operand(device):
    x = gi.CudaNdarray(np.eye(3, dtype="float32"), device=device)
    assert type(gi.linalg.inv(x)) is gi.CudaNdarray
    assert type(gi.linalg.eigh(x).eigenvectors) is gi.CudaNdarray
    assert type(np.linalg.inv(x)) is gi.CudaNdarray
    assert type(gi.linalg.eig(x.astype("complex64")).eigenvalues) is gi.GpuArray


def test_operands_are_not_copied_between_memories(device):
    x = gi.asarray(positive((5, 5), "float64"), device=device)
    with gi.no_copies():
        gi.linalg.inv(x)
        gi.linalg.svd(x)
        gi.linalg.eigh(x)
        gi.linalg.qr(x)
        gi.linalg.cholesky(x)


def test_a_capture_refuses_factorizations(device):
    x = gi.asarray(np.eye(4), device=device)
    gi.linalg.inv(x)
    with pytest.raises(gi.CaptureError), gi.capture(device=device):
        gi.linalg.inv(x)


@pytest.mark.fake_driver
@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [("linalg.inv", "CUSOLVER", "linalg-cu13"), ("fft.fft", "CUFFT", "fft-cu13")],
)
def test_without_the_library(name, library, extra, tmp_path):
    missing = str(tmp_path / "missing.so")
    driver.run(
        f"""
import gpuinterop as gi

x = gi.zeros((2, 2), dtype="complex64", device="cuda")
try:
    gi.{name}(x)
except gi.LibraryNotFoundError as error:
    assert error.where == "{name}", error
    assert "gpuinterop[{extra}]" in error.fix, error
    assert {missing!r} in error.got, error
else:
    raise AssertionError("nothing was raised")
""",
        **{f"GPUINTEROP_LIB{library}": missing},
    )
