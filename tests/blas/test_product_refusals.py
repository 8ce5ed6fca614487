"""What products refuse, with which words; and what nobody can talk them into."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from test_products import close, values

import gpuinterop
from gpuinterop import CudaNdarray, GpuArray, _core
from gpuinterop.ops import blas

TEMPLATE = re.compile(r"^\w+: expected .+\n  got: .+\n  fix: .+", re.DOTALL)


def refused(
    error: type[BaseException], call, *arguments, match: str | None = None, **named
) -> None:
    with pytest.raises(error, match=match) as caught:
        call(*arguments, **named)
    assert TEMPLATE.match(str(caught.value)), str(caught.value)
    assert "NotImplementedType" not in str(caught.value)


PRODUCTS = [
    gpuinterop.matmul,
    gpuinterop.dot,
    gpuinterop.inner,
    gpuinterop.gemm,
    gpuinterop.ger,
    gpuinterop.gemv,
    gpuinterop.vdot,
    blas.dot22,
]


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: p.__name__)
@pytest.mark.parametrize(
    "strange", [None, "a", [[1.0]], object()], ids=["None", "text", "list", "object"]
)
def test_what_is_no_array(device: str, product, strange) -> None:
    x = CudaNdarray(values(2, 2), device=device)
    refused(TypeError, product, x, strange)
    refused(TypeError, product, strange, x)


def test_the_operator(device: str) -> None:
    x = CudaNdarray(values(2, 2), device=device)
    refused(TypeError, lambda: x @ "a", match="matmul: expected gpuinterop arrays")
    refused(TypeError, lambda: "a" @ x, match="of type str")
    refused(ValueError, lambda: x @ 3, match="one axis or more")

    class Other:
        def __rmatmul__(self, other: object) -> str:
            return "its own"

    assert x @ Other() == "its own"
    close(x @ values(2, 2), values(2, 2).astype(float) @ values(2, 2))
    close(values(2, 2) @ x, values(2, 2).astype(float) @ values(2, 2))


def test_arguments(device: str) -> None:
    x = CudaNdarray(values(2, 2), device=device)
    refused(TypeError, gpuinterop.gemm, x, match="without b")
    refused(TypeError, gpuinterop.gemm, x, x, x, x, match="4 arguments without a name")
    refused(TypeError, gpuinterop.gemm, x, x, gamma=1, match="gamma")
    refused(TypeError, gpuinterop.dot, x, x, a=x, match="a twice")
    refused(TypeError, gpuinterop.matmul, a=x, b=x)
    for number in ("a", x, [1], object()):
        refused(TypeError, gpuinterop.gemm, x, x, alpha=number, match="a number as alpha")
        refused(TypeError, gpuinterop.gemv, x, x[0], x[0], beta=number, match="a number as beta")
    refused(OverflowError, gpuinterop.gemm, x, x, alpha=10**400, match="float64 holds as alpha")
    refused(TypeError, gpuinterop.addmm, 2.0, x, x, match=r"addend\n.*float\n  fix: .* with \+$")
    refused(ValueError, gpuinterop.gemm, 2.0, x, match=r"fix: use \*")
    for wrong in ("a", 1, x):
        refused(TypeError, gpuinterop.matmul, x, x, tf32=wrong, match="True or False")
        refused(TypeError, gpuinterop.allow_tf32, wrong, match="True or False")
    with gpuinterop.allow_tf32(), gpuinterop.allow_tf32(False):
        assert _core._allow_tf32(True) is False
    assert _core._allow_tf32(False) is False
    for alpha in (np.float32(2), np.int64(2), 2, 2.0, np.float64(2)):
        close(gpuinterop.gemm(x, x, alpha=alpha), 2 * (values(2, 2).astype(float) @ values(2, 2)))


def test_beta_multiplies_an_addend(device: str) -> None:
    a, v = CudaNdarray(values(2, 2), device=device), CudaNdarray(values(2), device=device)
    out, sink = (CudaNdarray(np.full(shape, 7, "f4"), device=device) for shape in ((2, 2), 2))
    for beta in (1, 0.5, 1j, float("nan")):
        refused(TypeError, gpuinterop.gemm, a, a, beta=beta, out=out, match="pass c=out")
        refused(TypeError, gpuinterop.gemv, a, v, beta=beta, out=sink, match="pass y=out")
        refused(
            TypeError, gpuinterop.gemm, a, a, None, beta=beta, match="pass c, or leave beta out"
        )
    assert (out.tolist(), sink.tolist()) == ([[7, 7], [7, 7]], [7, 7])
    product = values(2, 2).astype(float) @ values(2, 2)
    close(gpuinterop.gemm(a, a, beta=0, out=out), product)  # nothing is added
    close(gpuinterop.gemm(a, a, beta=None), product)
    close(gpuinterop.gemm(a, a, out, beta=1, out=out), 2 * product)


def test_numbers_that_the_dtype_has_not(device: str) -> None:
    x = CudaNdarray(values(2, 2), device=device)
    refused(TypeError, gpuinterop.gemm, x, x, alpha=1j, match="real alpha")
    refused(TypeError, gpuinterop.gemv, x, x[0], alpha=1j, match="real alpha")
    n = GpuArray(np.ones((2, 2), np.int32), device=device)
    refused(TypeError, gpuinterop.gemm, n, n, alpha=2, match="alpha and beta of 1 for integers")
    refused(TypeError, gpuinterop.gemm, n, n, n, beta=0.5, match="alpha and beta of 1")


def test_dtypes(device: str) -> None:
    x = CudaNdarray(values(2, 2), device=device)
    wide = GpuArray(values(2, 2).astype("float64"), device=device)
    for product in (lambda: x @ wide, lambda: gpuinterop.dot(wide, x)):
        refused(TypeError, product, match="float32 holds exactly")
    small = GpuArray(np.ones((2, 2), np.int8), device=device)
    assert type(x @ small) is CudaNdarray
    close(x @ small, values(2, 2).astype(float) @ np.ones((2, 2)))
    refused(
        TypeError,
        gpuinterop.matmul,
        x,
        x,
        out=wide,
        match="out= with a dtype that float32 casts to",
    )


@pytest.mark.parametrize("product", ["matrices", "vector", "gemv", "ger", "integers"])
def test_outs(device: str, product: str) -> None:
    dtype = "int32" if product == "integers" else "float32"
    x = GpuArray(np.ones((3, 3), dtype), device=device)
    v = x[0]
    call, shape = {
        "matrices": (lambda out: gpuinterop.matmul(x, x, out=out), (3, 3)),
        "integers": (lambda out: gpuinterop.matmul(x, x, out=out), (3, 3)),
        "vector": (lambda out: gpuinterop.dot(x, v, out=out), (3,)),
        "gemv": (lambda out: gpuinterop.gemv(x, v, out=out), (3,)),
        "ger": (lambda out: gpuinterop.ger(v, v, out=out), (3, 3)),
    }[product]
    empty = lambda shape, dtype=dtype: GpuArray(np.zeros(shape, dtype), device=device)  # noqa: E731
    refused(ValueError, call, empty((4,)), match="out= with shape")
    refused(
        TypeError, call, empty(shape, "float64"), match=f"out= with a dtype that {dtype} casts to"
    )
    refused(TypeError, call, np.zeros(shape, dtype), match="a gpuinterop array as out=")
    fixed = empty(shape)
    fixed.readonly = True
    refused(ValueError, call, fixed, match="read-only")
    place = (v.dtype, v.device.type_code, v.device.index, x)
    for step in (0, v.itemsize)[: len(shape)]:  # all in one place, or each row on the one before
        spread = _core.from_pointer(GpuArray, x.ptr, shape, (step,) * len(shape), *place)
        refused(ValueError, call, spread, match="do not overlap")
    assert call(empty(shape)).shape == shape


def test_addends_that_do_not_fit(device: str) -> None:
    x = CudaNdarray(values(2, 2), device=device)
    for shape in [(3, 2), (2, 2, 2), (3,)]:
        refused(ValueError, gpuinterop.gemm, x, x, CudaNdarray(values(*shape), device=device))
        refused(ValueError, gpuinterop.ger, x[0], x[0], CudaNdarray(values(*shape), device=device))
    refused(ValueError, gpuinterop.gemv, x, x[0], CudaNdarray(values(1), device=device))
    refused(ValueError, gpuinterop.gemm, x[0], x, match="two axes or more")
    refused(ValueError, gpuinterop.gemv, x[0], x, match="a matrix and a vector")
    refused(ValueError, gpuinterop.ger, x, x, match="two vectors")
    with pytest.raises(ValueError, match=r"\(3, 2, 2\) and \(2, 2, 2\)"):
        gpuinterop.matmul(
            CudaNdarray(values(3, 2, 2), device=device), CudaNdarray(values(2, 2, 2), device=device)
        )


class Liar(CudaNdarray):
    """Shows what is not so, to whoever asks in Python."""

    shape = property(lambda self: (1 << 40, 1 << 40))
    strides = property(lambda self: (8, 1 << 50))
    _strides = property(lambda self: (0, 0))
    ndim = property(lambda self: 7)
    size = property(lambda self: 1 << 60)
    ptr = property(lambda self: 16)
    dtype = property(lambda self: np.dtype("complex128"))
    device = property(lambda self: None)
    readonly = property(lambda self: False)
    itemsize = property(lambda self: 1)


def test_attributes_of_a_subclass_are_not_believed(device: str) -> None:
    hosts = values(4, 4), values(4, 4) + 1, values(4)
    a, b, v = (_core.view(Liar, CudaNdarray(h, device=device)) for h in hosts)
    real = [h.astype(float) for h in hosts]
    seen = lambda x: np.asarray(_core.view(CudaNdarray, x))  # noqa: E731
    for got, expected in [
        (a @ b, real[0] @ real[1]),
        (gpuinterop.dot(a, v), real[0] @ real[2]),
        (v @ b, real[2] @ real[1]),
        (gpuinterop.inner(a, b), np.inner(real[0], real[1])),
        (gpuinterop.vdot(a, b), np.vdot(real[0], real[1])),
        (gpuinterop.gemm(a, b, b, beta=2), real[0] @ real[1] + 2 * real[1]),
        (gpuinterop.gemm(a, b, v), real[0] @ real[1] + real[2]),
        (gpuinterop.gemv(a, v, v, alpha=2), 2 * (real[0] @ real[2]) + real[2]),
        (gpuinterop.ger(v, v, b), np.outer(real[2], real[2]) + real[1]),
    ]:
        assert type(got) is Liar
        close(seen(got), expected)
    fixed = _core.view(CudaNdarray, b)
    fixed.readonly = True
    refused(ValueError, gpuinterop.matmul, a, b, out=_core.view(Liar, fixed), match="read-only")
    gpuinterop.matmul(a, b, out=a)
    close(seen(a), real[0] @ real[1])


def test_lying_stacks(device: str) -> None:
    p, q = values(2, 3, 4), values(5, 4, 6)
    x, y = (_core.view(Liar, CudaNdarray(h, device=device)) for h in (p, q))
    close(_core.view(CudaNdarray, gpuinterop.dot(x, y)), np.dot(p.astype(float), q))
    close(_core.view(CudaNdarray, gpuinterop.inner(x, x)), np.inner(p.astype(float), p))


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX process")
def test_calls_before_cublas_is_open() -> None:
    if _core.blas_is_open():
        return  # nothing is left to see in this process
    with pytest.raises((OSError, RuntimeError)):
        _core.blas_version(0)


def test_a_scale_as_dot(device: str) -> None:
    x = CudaNdarray(values(3), device=device)
    close(gpuinterop.dot(x, 2), values(3).astype(float) * 2)
    close(gpuinterop.dot(x[0], x), values(3).astype(float) * values(3)[0])
    out = CudaNdarray(np.zeros(3, np.float32), device=device)
    assert gpuinterop.dot(2.0, x, out=out) is out
    close(out, values(3).astype(float) * 2)
    refused(TypeError, gpuinterop.dot, x, None)


@pytest.mark.parametrize(
    ("dtype", "wide"), [("float8_e4m3fn", "float32"), ("float8_e5m2", "float32"), ("int4", "int32")]
)
def test_small_types_name_the_cast(device: str, dtype: str, wide: str) -> None:
    a = np.arange(4)
    x, m = (GpuArray(v.astype("int32"), device=device).astype(dtype) for v in (a, np.diag(a)))
    for product, operands in [
        (gpuinterop.ger, (x, x)),
        (gpuinterop.dot, (x, x)),
        (gpuinterop.inner, (x, x)),
        (gpuinterop.vdot, (x, x)),
        (gpuinterop.matmul, (m, x)),
        (gpuinterop.matmul, (m, m)),
        (gpuinterop.gemv, (m, x)),
        (gpuinterop.gemm, (m, m)),
    ]:
        refused(TypeError, product, *operands, match=rf"{dtype}, {dtype}\n.*x.astype\('{wide}'\)")
        assert product(*(v.astype(wide) for v in operands)).dtype == wide


def test_float8_beside_wider_floats(device: str) -> None:
    """The operators' rule: both are float32, on either device."""
    a, b = np.array([1, -2, 0.5], "float32"), np.array([[3, 1, 2], [0, 4, -8]], "float32")
    x, m = (GpuArray(v, device=device) for v in (a, b))
    small = x.astype("float8_e4m3fn")
    close(gpuinterop.dot(x, small), a @ a)
    close(m @ small, b @ a)
    close(small @ m.T, b @ a)
    close(gpuinterop.dot(small, x.astype("float8_e5m2")), a @ a)
    close(gpuinterop.gemv(m, small), b @ a)
    close(gpuinterop.gemv(m, x, small[:2], alpha=2.0), 2 * (b @ a) + a[:2])
    close(gpuinterop.gemm(m, small.reshape((3, 1))), (b @ a)[:, None])
    refused(
        TypeError,
        gpuinterop.matmul,
        m.astype("int32"),
        x.astype("int32").astype("int4"),
        match="int32",
    )
