"""Products with vectors in fused functions, and what joins the kernel of a reduction."""

import re

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import DTypeError, ShapeError

N, FEATURES, RATE = 40, 78, 0.1


def made(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@gi.fuse
def step(x, y, w, b):
    """A training step of a logistic regression: prediction, cross-entropy, new weights and bias."""
    z = x @ w + b
    p = 1 / (1 + gi.exp(-z))
    xent = gi.maximum(z, 0) - y * z + gi.log1p(gi.exp(-abs(z)))
    error = (p - y) / len(y)
    return p > 0.5, xent, w - RATE * (error @ x + 0.02 * w), b - RATE * error.sum()


def step_in_float64(x, y, w, b):
    x, y, w, b = (np.asarray(v, np.float64) for v in (x, y, w, b))
    z = x @ w + b
    p = 1 / (1 + np.exp(-z))
    xent = np.maximum(z, 0) - y * z + np.log1p(np.exp(-abs(z)))
    error = (p - y) / len(y)
    return p > 0.5, xent, w - RATE * (error @ x + 0.02 * w), b - RATE * error.sum()


def training_data() -> tuple[np.ndarray, ...]:
    y = (np.arange(N) % 3 == 0).astype(np.float32)
    return made(N, FEATURES), y, made(FEATURES, seed=1), np.asarray(0.25, np.float32)


@pytest.mark.parametrize("cls", [gi.CudaNdarray, gi.GpuArray])
def test_training_step(device: str, cls: type) -> None:
    host = training_data()
    arrays = [cls(v, device=device) for v in host]
    for result, expected in zip(step(*arrays), step_in_float64(*host), strict=True):
        np.testing.assert_allclose(result.get(), expected, rtol=2e-5, atol=2e-6)
    classes = [type(v) for v in step(*arrays)]
    assert classes == [gi.GpuArray, cls, cls, cls]


@pytest.mark.driver
def test_number_of_kernels() -> None:
    arrays = [gi.CudaNdarray(v, device="cuda:0") for v in training_data()]
    step(*arrays)
    assert gi.capture(step, *arrays).nodes == 2
    summed = gi.fuse(lambda x, w: gi.tanh(x @ w) * 2 + w[:, None].sum())
    assert gi.capture(summed, *arrays[::2]).nodes == 2
    softmax = gi.fuse(lambda x: gi.exp(x - x.max(axis=1, keepdims=True)))
    assert gi.capture(softmax, arrays[0]).nodes == 2


def test_training_in_place(device: str) -> None:
    x, y, w, b = training_data()
    arrays = [gi.CudaNdarray(v, device=device) for v in (x, y, w, b)]
    outs = gi.empty(N, dtype=bool, device=device), gi.empty(N, device=device), *arrays[2:]
    with gi.capture(device=device) as graph:
        step(*arrays, out=outs)
    for _ in range(3):
        _, xent, w, b = step_in_float64(x, y, w, b)
        graph.replay()
    np.testing.assert_allclose(outs[1].get(), xent, rtol=1e-4)
    np.testing.assert_allclose(outs[2].get(), w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outs[3].get(), b, rtol=1e-4)
    if device != "cpu":
        assert graph.nodes == 2  # no copies: no later kernel reads what an earlier one writes


PRODUCTS = {
    "matrix @ vector": (lambda x, v, w: x @ v, lambda x, v, w: x @ v),
    "vector @ matrix": (lambda x, v, w: w @ x, lambda x, v, w: w @ x),
    "transposed": (lambda x, v, w: x.T @ w, lambda x, v, w: x.T @ w),
    "dot": (lambda x, v, w: gi.dot(x, v), lambda x, v, w: x @ v),
    "method": (lambda x, v, w: x.dot(v) + 1, lambda x, v, w: x @ v + 1),
    "numpy.dot": (lambda x, v, w: np.dot(w, x), lambda x, v, w: w @ x),
    "numpy.matmul": (lambda x, v, w: np.matmul(x, v), lambda x, v, w: x @ v),
    "matmul": (lambda x, v, w: gi.matmul(v, v), lambda x, v, w: v @ v),
    "of computed values": (
        lambda x, v, w: (x * 2 + w[:, None]) @ gi.sin(v), lambda x, v, w: (x * 2 + w[:, None]) @ np.sin(v),
    ),
    "of a transposed computed matrix": (
        lambda x, v, w: (x + v).T @ (w - 1), lambda x, v, w: (x + v).T @ (w - 1),
    ),
    "of a product": (lambda x, v, w: (x @ v) @ x, lambda x, v, w: (x @ v) @ x),
    "of a reduced matrix": (
        lambda x, v, w: x.T @ (x / x.sum(axis=1, keepdims=True)).max(axis=1),
        lambda x, v, w: x.T @ (x / x.sum(axis=1, keepdims=True)).max(axis=1),
    ),
    "0-d dot": (lambda x, v, w: gi.dot(v, 2), lambda x, v, w: v * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("reverse", [False, True])
def test_products(device: str, name: str, reverse: bool) -> None:
    function, oracle = PRODUCTS[name]
    host = [made(5, 8) + 3, made(8, seed=1), made(5, seed=2)]
    arrays = [gi.GpuArray(v, device=device) for v in host]
    if reverse:
        host, arrays = [v[::-1] for v in host], [v[::-1] for v in arrays]
    expected = oracle(*(v.astype(np.float64) for v in host))
    np.testing.assert_allclose(gi.fuse(function)(*arrays).get(), expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("left", "right", "error"),
    [((3, 4), (3,), ShapeError), ((3, 1), (4,), ShapeError), ((4,), (1,), ShapeError),
     ((3, 4), (4, 2), gi.ArgumentTypeError), ((), (4,), gi.ArgumentTypeError)],
)  # fmt: skip
def test_products_of_other_shapes_are_refused(device: str, left, right, error) -> None:
    product = gi.fuse(lambda x, y: x @ y)
    product(gi.zeros((3, 4), device=device), gi.zeros(4, device=device))
    for _ in range(2):
        with pytest.raises(error):
            product(gi.zeros(left, device=device), gi.zeros(right, device=device))


def test_products_of_other_dtypes_are_refused(device: str) -> None:
    x = gi.zeros((2, 2), "int32", device=device)
    with pytest.raises(DTypeError, match="float32 or float64"):
        gi.fuse(lambda x, y: x @ y)(x, x[0])


VIEWS = {
    "T": lambda x: x.T, "transpose": lambda x: x.transpose(1, 0), "numpy": lambda x: np.transpose(x),
    "axes": lambda x: x.transpose((1, 0)), "swapaxes": lambda x: x.swapaxes(0, -1),
    "new axis": lambda x: x[:, None], "ellipsis": lambda x: x[..., None], "both": lambda x: x[None, ..., None, :],
    "expand_dims": lambda x: np.expand_dims(x, (0, 2)), "twice": lambda x: x.T[None].T,
    "computed": lambda x: (x + x.max(axis=1, keepdims=True)).T * 2,
    "reduced": lambda x: x.sum(axis=0)[:, None] + x.T,
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_views_inside(device: str, name: str) -> None:
    host, view = made(2, 3), VIEWS[name]
    got = gi.fuse(lambda x: view(x) * 1)(gi.GpuArray(host, device=device))
    np.testing.assert_allclose(got.get(), view(host) * 1, rtol=1e-6)


def test_elements_are_not_selected_inside(device: str) -> None:
    x = gi.zeros((2, 3), device=device)
    for key in (0, slice(1), slice(0, 2), (slice(None), 1), (None, 0)):
        with pytest.raises(gi.ArgumentTypeError, match=r"x\[index\]"):
            gi.fuse(lambda x, key=key: x[key] + 1, static_argnames="key")(x)


WRONG_VIEWS = {
    "two ellipses": lambda x: x[..., ...], "too many": lambda x: x[:, :, :], "axes": lambda x: x.transpose(0),
    "an axis": lambda x: x.swapaxes(0, 2), "twice": lambda x: x.expand_dims((0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_VIEWS)
def test_wrong_views_raise_as_those_of_arrays(device: str, name: str) -> None:
    view, x = WRONG_VIEWS[name], gi.zeros((2, 3), device=device)
    with pytest.raises(gi.GpuInteropError) as of_array:
        view(x)
    with pytest.raises(type(of_array.value), match=re.escape(of_array.value.where)) as inside:
        gi.fuse(lambda x: view(x) + 1)(x)
    assert inside.value.expected == of_array.value.expected
