"""Subclasses: the class of a result is the most derived one, and overridden attributes are not believed."""

import gc
import weakref

import numpy as np
import pytest

import gpuinterop as gi


class Sub(gi.CudaNdarray):
    pass


class SubSub(Sub):
    pass


class Other(gi.GpuArray):
    pass


CALLS = {
    "x + y": lambda x, y: x + y,
    "maximum": lambda x, y: gi.maximum(x, y),
    "numpy.add": lambda x, y: np.add(x, y),
    "where": lambda x, y: gi.where(x > 0, x, y),
    "concatenate": lambda x, y: gi.concatenate([x, y]),
    "stack": lambda x, y: gi.stack([x, y]),
    "divmod": lambda x, y: divmod(x, y)[1],
    "fused": lambda x, y: gi.fuse(lambda a, b: a * b + 1)(x, y),
}
PRODUCTS = {
    "x @ y": lambda x, y: x @ y,
    "dot": lambda x, y: gi.dot(x, y),
    "vector": lambda x, y: gi.dot(x, y[0]),
    "inner": lambda x, y: gi.inner(x, y),
    "addmm": lambda x, y: gi.addmm(x, y, x),
    "fused sum": lambda x, y: gi.fuse(lambda a, b: (a * b).sum(axis=-1))(x, y),
}  # fmt: skip


def check(call, make, plain, *derived):
    x = make(plain)
    for cls in derived:
        y = make(cls)
        assert type(call(x, y)) is type(call(y, x)) is type(call(y, y)) is cls
    assert type(call(x, x)) is plain
    if len(derived) == 2:
        assert type(call(make(derived[0]), make(derived[1]))) is derived[1]
        assert type(call(make(derived[1]), make(derived[0]))) is derived[1]


@pytest.mark.parametrize("name", [*CALLS, *PRODUCTS])
def test_the_most_derived_class_wins(device, name):
    host, call = np.array([[1, 2], [3, 4]], "float32"), {**CALLS, **PRODUCTS}[name]
    check(call, lambda cls: cls(host, device=device), gi.CudaNdarray, Sub, SubSub)
    if name in CALLS:
        check(call, lambda cls: cls(host, device=device, dtype="int32"), gi.GpuArray, Other)


def test_class_made_at_run_time_is_destroyed_with_its_arrays(device):
    """The cache of calls must not keep it, nor find its entries for a class at the same address."""
    for _ in range(3):
        for family in (gi.CudaNdarray, gi.GpuArray):
            made = type("Made", (family,), {})
            x = made(np.ones((2, 3), "float32"), device=device)
            assert type(x + x) is type(x.sum(0)) is type(x @ x.T) is made
            assert type(x.argmax()) is (made if family is gi.GpuArray else gi.GpuArray)
            alive = weakref.ref(made)
            del x, made
            gc.collect()
            assert alive() is None


class Liar(gi.GpuArray):
    """Overrides whatever would lead a kernel out of its memory."""

    shape = property(lambda self: (1 << 40, 1 << 40))
    strides = property(lambda self: (8000, 1 << 50))
    _strides = property(lambda self: (0, 0))
    ndim = property(lambda self: 7)
    size = property(lambda self: 1 << 60)
    nbytes = property(lambda self: 1 << 60)
    itemsize = property(lambda self: 1)
    dtype = property(lambda self: np.dtype("complex128"))
    ptr = gpudata = property(lambda self: 64)
    device = property(lambda self: gi.device("cpu"))
    readonly = property(lambda self: False)

    def is_c_contiguous(self):
        return True

    def copy(self, order="C"):
        return self


A = np.arange(6, dtype=np.float32).reshape(2, 3)
BELIEVED = {
    "take": (lambda a, x: a.take([5, 0]), A.take([5, 0])),
    "take rows": (lambda a, x: a.take([1], axis=0), A[1:]),
    "concatenate": (lambda a, x: gi.concatenate([a, x]), np.concatenate([A, A])),
    "concatenate flat": (lambda a, x: gi.concatenate([x, a], axis=None), np.tile(A.ravel(), 2)),
    "concatenate, out": (lambda a, x: gi.concatenate([x[:1], x[1:]], out=a), A),
    "stack": (lambda a, x: gi.stack([a, x]), np.stack([A, A])),
    "split": (lambda a, x: gi.split(a, 3, axis=1)[2], A[:, 2:]),
    "diagonal": (lambda a, x: a.diagonal(1), A.diagonal(1)),
    "where": (lambda a, x: gi.where(a, a, x), A),
    "clip": (lambda a, x: gi.clip(a, 1, 2), A.clip(1, 2)),
    "+": (lambda a, x: a + x, A + A),
    "astype": (lambda a, x: gi.astype(a, "int32"), A.astype("int32")),
    "exp, out": (lambda a, x: gi.exp(x, out=a), np.exp(A)),
    **{name: (lambda a, x, n=name: getattr(a, n)(axis=1), getattr(np, name)(A, axis=1))
       for name in ("sum", "max", "argmin", "var", "any")},
    "sum of all": (lambda a, x: a.sum(), A.sum()),
    "norm": (lambda a, x: gi.norm(a, axis=1), np.linalg.norm(A, axis=1)),
    "@": (lambda a, x: a @ x.T, A @ A.T),
    "dot of a vector": (lambda a, x: gi.dot(a, x[0]), A @ A[0]),
    "inner": (lambda a, x: gi.inner(a, a), np.inner(A, A)),
    "vdot": (lambda a, x: gi.vdot(a, a), np.vdot(A, A)),
    "gemm": (lambda a, x: gi.gemm(a, x.T, x[:, :2], beta=2), A @ A.T + 2 * A[:, :2]),
    "gemv": (lambda a, x: gi.gemv(a, x[0], alpha=2), 2 * (A @ A[0])),
    "ger": (lambda a, x: gi.ger(x[:, 0], x[0], a), np.outer(A[:, 0], A[0]) + A),
}  # fmt: skip


@pytest.mark.parametrize("name", BELIEVED)
def test_overridden_attributes_are_not_believed(device, name):
    call, expected = BELIEVED[name]
    found = call(Liar(A, device=device), gi.GpuArray(A, device=device))
    np.testing.assert_allclose(gi.GpuArray.get(found), expected, rtol=1e-6)


def test_indices_and_outs_are_checked_against_the_real_shape(device):
    liar, x = Liar(A, device=device), gi.GpuArray(A, device=device)
    with pytest.raises(IndexError):
        liar.take([6])
    for call in (lambda: x.sum(axis=0, out=liar), lambda: gi.matmul(x, x.T, out=liar)):
        with pytest.raises(gi.ShapeError):
            call()
    fixed = Liar(A, device=device)
    gi.GpuArray.readonly.__set__(fixed, True)
    with pytest.raises(gi.ReadOnlyError):
        gi.add(x, x, out=fixed)


CALLS_WITH_CACHES = {
    "add": lambda x: x + x,
    "exp": lambda x: gi.exp(x, out=x),
    "round": lambda x: np.round(x, 1),
    "clip in a dtype": lambda x: np.clip(x, 1, 2, dtype="float64"),
    "nan_to_num": np.nan_to_num,
    "a fused function": gi.fuse(lambda x: x * 2 + 1),
    "sum": lambda x: x.sum(0),
    "sum from a start": lambda x: x.sum(0, initial=1),
    "max of some": lambda x: x.max(0, initial=0, where=x > 2),
    "softmax": gi.softmax,
    "softmax of columns": lambda x: gi.softmax(x, 0),
    "log_softmax": gi.log_softmax,
    "cumsum": lambda x: gi.cumsum(x, 1),
    "cumulative_sum": lambda x: gi.cumulative_sum(x, axis=0, include_initial=True),
    "sort": gi.sort,
    "searchsorted": lambda x: gi.searchsorted(x[0], x),
    "meshgrid": lambda x: gi.meshgrid(x[0], x[1]),
    "isin": lambda x: gi.isin(x, x[0]),
    "matmul": lambda x: x @ x.T,
    "vecdot": lambda x: np.vecdot(x, x),
    "cross": lambda x: np.cross(x[:, :3], x[:, 1:]),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "concatenate": lambda x: gi.concatenate([x, x]),
    "take": lambda x: x[[0, 1]],
    "where": lambda x: gi.where(x > 2, x, 0),
    "the namespace": lambda x: gi.array_api.exp(x),
}


@pytest.mark.parametrize("base", [gi.CudaNdarray, gi.GpuArray])
@pytest.mark.parametrize("name", CALLS_WITH_CACHES)
def test_caches_keep_no_class_alive(device, name, base):
    cls = type("Sub", (base,), {})
    x = cls(np.arange(1, 13, dtype="float32").reshape(3, 4), device=device)
    for _ in range(3):
        CALLS_WITH_CACHES[name](x)
    destroyed = weakref.ref(cls)
    del cls, x
    gc.collect()
    assert destroyed() is None


def test_a_fused_function_serves_classes_one_after_the_other(device):
    function = gi.fuse(lambda x: x * 2 + 1)
    for i in range(20):  # some get the address of an earlier one
        cls = type("Sub", (gi.GpuArray if i % 2 else gi.CudaNdarray,), {})
        for _ in range(2):
            found = function(cls(np.float32([i, 2]), device=device))
            assert type(found) is cls
            assert found.tolist() == [2 * i + 1, 5]
        del cls, found
        gc.collect()
