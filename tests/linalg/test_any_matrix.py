"""Any stack of matrices, of any sizes, layout and dtype, gives NumPy's values, or parts whose product is the matrix."""

import numpy as np
import pytest
from helpers.layouts import pair, recipes
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st

import gpuinterop as gi

DTYPES = ["float32", "float64", "complex64", "complex128", "int64", "bool"]
STACKS = [(), (0,), (1,), (3,), (2, 1)]


def drawn(data, device, rows, columns, dtypes=DTYPES, dominant=True):
    """A matrix on the host and its copy on the device, in one layout, and how far results may be off."""
    shape = (*data.draw(st.sampled_from(STACKS)), rows, columns)
    recipe = data.draw(recipes(shape, may_repeat=False))
    dtype = data.draw(st.sampled_from(dtypes))
    _, host, _, x = pair(recipe, dtype, data.draw(st.integers(0, 9)), device)
    if dominant and rows == columns:  # far from singular
        host[...] = np.eye(rows) if dtype == "bool" else host + 200 * np.eye(rows).astype(dtype)
        x[...] = gi.GpuArray(host.copy(), device=device)
    return host, x, 1e-3 if dtype in ("float32", "complex64") else 1e-9


def close(found, expected, tolerance):
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    size = np.abs(expected).max(initial=1)
    np.testing.assert_allclose(found, expected, 0, tolerance * size)


def like(parts, matrix, tolerance):
    """The product of host arrays is the matrix."""
    np.testing.assert_allclose(parts, matrix, 0, tolerance * np.abs(matrix).max(initial=1))


ONE_VALUE = {
    "det": lambda m, x: m.linalg.det(x),
    "slogdet": lambda m, x: m.linalg.slogdet(x)[1],
    "inv": lambda m, x: m.linalg.inv(x),
    "pinv": lambda m, x: m.linalg.pinv(x),
    "solve": lambda m, x: m.linalg.solve(x, x[..., :2]),
    "matrix_power": lambda m, x: m.linalg.matrix_power(x, 3),
    "matrix_power of the inverse": lambda m, x: m.linalg.matrix_power(x, -2),
    "matrix_rank": lambda m, x: m.linalg.matrix_rank(x),
    "svdvals": lambda m, x: m.linalg.svd(x, compute_uv=False),
    "cond": lambda m, x: m.linalg.cond(x, 1),
}


@pytest.mark.parametrize("name", ONE_VALUE)
@given(st.data())
@examples(60)
def test_functions_with_one_value(device, name, data):
    n = data.draw(st.integers(1 if name in ("pinv", "cond", "matrix_rank") else 0, 6))
    host, x, tolerance = drawn(data, device, n, n)
    if host.dtype == bool and name.startswith("matrix_power"):
        return  # a product of bools is a bool
    before = host.copy()
    close(ONE_VALUE[name](gi, x), ONE_VALUE[name](np, host), tolerance)
    np.testing.assert_array_equal(x.get(), before)


@given(st.data())
@examples(100)
def test_parts_of_symmetric_matrices(device, data):
    n = data.draw(st.integers(0, 6))
    _, x, tolerance = drawn(data, device, n, n, DTYPES[:4])
    x = x + x.mT.conj()
    host = x.get()
    lower = gi.linalg.cholesky(x).get()
    like(lower @ lower.swapaxes(-1, -2).conj(), host, tolerance)
    assert (np.triu(lower, 1) == 0).all()
    values, vectors = (part.get() for part in gi.linalg.eigh(x))
    like(vectors * values[..., None, :] @ vectors.swapaxes(-1, -2).conj(), host, tolerance)
    close(gi.linalg.eigvalsh(x), np.linalg.eigvalsh(host), tolerance)


@given(st.data())
@examples(150)
def test_parts_of_any_matrices(device, data):
    rows, columns = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 6))
    host, x, tolerance = drawn(data, device, rows, columns, DTYPES[:4], dominant=False)
    q, r = (part.get() for part in gi.linalg.qr(x))
    like(q @ r, host, tolerance)
    like(
        q.swapaxes(-1, -2).conj() @ q,
        np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], *2 * q.shape[-1:])),
        tolerance,
    )
    u, s, vh = (part.get() for part in gi.linalg.svd(x, full_matrices=False))
    like(u * s[..., None, :] @ vh, host, tolerance)
    assert (np.diff(s) <= 0).all()
    if rows == columns:
        values, vectors = (part.get() for part in gi.linalg.eig(x))
        like(
            host @ vectors,
            vectors * values[..., None, :] + 0 * host.sum(),
            10 * tolerance * np.abs(host).max(initial=1),
        )
