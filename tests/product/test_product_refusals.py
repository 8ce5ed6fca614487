"""What products refuse, and what they compute at the edge of it."""

import numpy as np
import pytest
from helpers.products import close, values

import gpuinterop as gi
from gpuinterop import ArgumentTypeError, CudaNdarray, DTypeError, GpuArray, ShapeError

PRODUCTS = [gi.matmul, gi.dot, gi.inner, gi.gemm, gi.ger, gi.gemv, gi.vdot]


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: p.__name__)
def test_operand_that_is_not_an_array_is_refused(device: str, product) -> None:
    x = CudaNdarray(values(2, 2), device=device)
    for strange in (None, "a", ["a"], object()):
        for operands in ((x, strange), (strange, x)):
            with pytest.raises(gi.ConversionTypeError):
                product(*operands)


def integers(x):
    return GpuArray(np.ones((2, 2), np.int32), device=x.device)


# Of a float32 matrix of 2 x 2.
WRONG = {
    "a text": (gi.ConversionTypeError, "expected", lambda x: x @ "a"),
    "text first": (gi.ConversionTypeError, "str", lambda x: "a" @ x),
    "a number": (ShapeError, "one axis or more", lambda x: x @ 3),
    "a reduced value": (ShapeError, "one axis or more", lambda x: x @ x.sum()),
    "stacks": (ShapeError, "expected", lambda x: gi.ones((3, 2, 2), device=x.device) @ x[None].broadcast_to((2, 2, 2))),
    "no b": (ArgumentTypeError, "without b", lambda x: gi.gemm(x)),
    "four operands": (ArgumentTypeError, "4 positional arguments", lambda x: gi.gemm(x, x, x, x)),
    "a keyword": (ArgumentTypeError, "gamma", lambda x: gi.gemm(x, x, gamma=1)),
    "an operand twice": (ArgumentTypeError, "twice", lambda x: gi.dot(x, x, a=x)),
    "operands by name": (ArgumentTypeError, "expected", lambda x: gi.matmul(a=x, b=x)),
    "a text as alpha": (ArgumentTypeError, "alpha", lambda x: gi.gemm(x, x, alpha="a")),
    "an array as beta": (ArgumentTypeError, "beta", lambda x: gi.gemv(x, x[0], x[0], beta=x)),
    "a large alpha": (OverflowError, "alpha", lambda x: gi.gemm(x, x, alpha=10**400)),
    "a complex alpha": (DTypeError, "real alpha", lambda x: gi.gemm(x, x, alpha=1j)),
    "a complex alpha of gemv": (DTypeError, "real alpha", lambda x: gi.gemv(x, x[0], alpha=1j)),
    "beta of integers": (DTypeError, "expected", lambda x: gi.gemm(*[integers(x)] * 3, beta=0.5)),
    "a number as addend": (ArgumentTypeError, "addend", lambda x: gi.addmm(2.0, x, x)),
    "a number as factor": (ValueError, r"\*", lambda x: gi.gemm(2.0, x)),
    "tf32": (ArgumentTypeError, "True or False", lambda x: gi.matmul(x, x, tf32=1)),
    "float64 beside": (DTypeError, "float32", lambda x: x @ GpuArray(np.ones((2, 2)), device=x.device)),
    "vectors of gemm": (ShapeError, "two axes", lambda x: gi.gemm(x[0], x)),
    "matrices of ger": (ShapeError, "two vectors", lambda x: gi.ger(x, x)),
    "an addend of gemv": (ShapeError, "expected", lambda x: gi.gemv(x, x[0], x[0, :1])),
    **{f"an addend of gemm, {shape}": (
        ShapeError, "expected", lambda x, s=shape: gi.gemm(x, x, gi.ones(s, device=x.device)))
       for shape in [(3, 2), (2, 2, 2), (3,)]},
    **{f"an addend of ger, {shape}": (
        ShapeError, "expected", lambda x, s=shape: gi.ger(x[0], x[0], gi.ones(s, device=x.device)))
       for shape in [(3, 2), (2, 2, 2), (3,)]},
    # What beta multiplies is the addend; out alone is overwritten.
    **{f"beta={beta} without an addend": (
        ArgumentTypeError, "c=out", lambda x, b=beta: gi.gemm(x, x, beta=b, out=x.copy()))
       for beta in (1, 0.5, 1j, float("nan"))},
    "beta of gemv without an addend": (ArgumentTypeError, "y=out", lambda x: gi.gemv(x, x[0], beta=1, out=x[1])),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(device: str, name: str) -> None:
    kind, word, call = WRONG[name]
    x = CudaNdarray(values(2, 2), device=device)
    with pytest.raises(kind, match=word):
        call(x)
    close(x, values(2, 2))


def test_calls_that_are_nearly_wrong(device: str) -> None:
    x = CudaNdarray(values(2, 2), device=device)
    product = values(2, 2).astype(float) @ values(2, 2)

    class Other:
        def __rmatmul__(self, other: object) -> str:
            return "its own"

    assert x @ Other() == "its own"
    close(x @ values(2, 2), product)
    close(values(2, 2) @ x, product)
    for alpha in (np.float32(2), np.int64(2), 2, 2.0, np.float64(2)):
        close(gi.gemm(x, x, alpha=alpha), 2 * product)
    out = x.copy()
    close(gi.gemm(x, x, beta=0, out=out), product)  # nothing is added
    close(gi.gemm(x, x, beta=None), product)
    close(gi.gemm(x, x, out, beta=1, out=out), 2 * product)
    before = same = out
    out = CudaNdarray(values(2, 2), device=device)
    same @= out
    assert same is before
    out @= out
    close(same, 2 * product @ values(2, 2))
    close(out, product)
    with pytest.raises(ShapeError):
        out @= gi.ones((2, 3), device=device)
    with pytest.raises(ShapeError):
        out @= 3
    small = GpuArray(np.ones((2, 2), np.int8), device=device)
    assert type(x @ small) is CudaNdarray
    close(x @ small, values(2, 2).astype(float) @ np.ones((2, 2)))
    row = x[0]
    close(gi.dot(row, 2), values(2, 2)[0].astype(float) * 2)
    assert gi.dot(2.0, row, out=row) is row
    close(row, values(2, 2)[0].astype(float) * 2)


OUTS = {
    "matrices": ("float32", 2, lambda x, out: gi.matmul(x, x, out=out)),
    "integers": ("int32", 2, lambda x, out: gi.matmul(x, x, out=out)),
    "vector": ("float32", 1, lambda x, out: gi.dot(x, x[0], out=out)),
    "gemv": ("float32", 1, lambda x, out: gi.gemv(x, x[0], out=out)),
    "ger": ("float32", 2, lambda x, out: gi.ger(x[0], x[0], out=out)),
}


@pytest.mark.parametrize("product", OUTS)
def test_outs(device: str, product: str) -> None:
    dtype, ndim, call = OUTS[product]
    x, shape = GpuArray(np.ones((3, 3), dtype), device=device), (3,) * ndim
    fixed = gi.zeros(shape, dtype, device=device)
    fixed.readonly = True
    store = gi.zeros(9, dtype, device=device)
    for kind, out in [
        (ShapeError, gi.zeros((4,), dtype, device=device)),
        (DTypeError, gi.zeros(shape, "float64", device=device)),
        (ArgumentTypeError, np.zeros(shape, dtype)),
        (gi.ReadOnlyError, fixed),
        *((gi.ContiguityError, store._restrided(shape, (step,) * ndim, 0)) for step in range(ndim)),
    ]:
        with pytest.raises(kind):
            call(x, out)
    assert call(x, gi.zeros(shape, dtype, device=device)).shape == shape


@pytest.mark.parametrize(
    ("dtype", "wide"), [("float8_e4m3fn", "float32"), ("float8_e5m2", "float32"), ("int4", "int32")]
)
def test_small_types_name_the_cast(device: str, dtype: str, wide: str) -> None:
    a = np.arange(4)
    x, m = (GpuArray(v.astype("int32"), device=device).astype(dtype) for v in (a, np.diag(a)))
    for product, operands in [
        (gi.ger, (x, x)), (gi.dot, (x, x)), (gi.inner, (x, x)), (gi.vdot, (x, x)), (gi.matmul, (m, x)),
        (gi.matmul, (m, m)), (gi.gemv, (m, x)), (gi.gemm, (m, m)),
    ]:  # fmt: skip
        with pytest.raises(DTypeError) as caught:
            product(*operands)
        assert f"x.astype('{wide}')" in caught.value.fix
        assert product(*(v.astype(wide) for v in operands)).dtype == wide


def test_float8_beside_wider_floats(device: str) -> None:
    """The operators' rule: both are float32, on either device."""
    a, b = np.array([1, -2, 0.5], "float32"), np.array([[3, 1, 2], [0, 4, -8]], "float32")
    x, m = (GpuArray(v, device=device) for v in (a, b))
    small = x.astype("float8_e4m3fn")
    close(gi.dot(x, small), a @ a)
    close(m @ small, b @ a)
    close(small @ m.T, b @ a)
    close(gi.dot(small, x.astype("float8_e5m2")), a @ a)
    close(gi.gemv(m, x, small[:2], alpha=2.0), 2 * (b @ a) + a[:2])
    close(gi.gemm(m, small.reshape((3, 1))), (b @ a)[:, None])
