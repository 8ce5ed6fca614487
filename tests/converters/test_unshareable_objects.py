"""An object without plain memory of its own is refused alike at every entry point, with a fix that works."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import converters

# torch warns of its own quantized, nested, sparse and half complex tensors.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def assign(obj) -> None:
    gi.zeros(3, device="cpu")[...] = obj


def raise_plan(obj) -> None:
    raise gi.explain(obj).exception()


STRICT = {
    "from_any": gi.from_any,
    "from_dlpack": gi.from_dlpack,
    "explain": raise_plan,
}
ENTRY_POINTS = {
    **STRICT,
    "asarray": gi.asarray,
    "array": gi.array,
    "CudaNdarray": gi.CudaNdarray,
    "GpuArray": gi.GpuArray,
    "x + obj": lambda obj: gi.ones(3, device="cpu") + obj,
    "x[...] = obj": assign,
    "to": lambda obj: gi.to(obj, "numpy"),
}


def refusal(obj, library="", entry_points=ENTRY_POINTS) -> gi.GpuInteropError:
    """The error of every entry point for `obj`: the same class, words and fix."""
    calls = dict(entry_points)
    if library:
        calls["from_library"] = getattr(converters, f"from_{library}")
    found, error = {}, None
    for name, call in calls.items():
        with pytest.raises(gi.GpuInteropError) as caught:
            call(obj)
        error = caught.value
        assert all((error.where, error.expected, error.got, error.fix)), name
        # Where there is such an option, and in the words of an assignment.
        fix = error.fix.removeprefix("pass copyif=True, or ").replace("value.astype", "x.astype")
        found[name] = (type(error), error.reason, error.expected, error.got, fix)
    assert set(found.values()) == {found["from_any"]}, found
    return error


# ---- torch --------------------------------------------------------------------------------------


def fake(torch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


def released(torch):
    t = torch.ones(3)
    t.untyped_storage().resize_(0)
    return t


def nested(torch, **options):
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], **options)


def wrapper_class(torch):
    class Local(torch.Tensor):
        """As DTensor is: a tensor with a shape, whose memory is that of a tensor inside."""

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise AssertionError("was called")

        def to_local(self):
            return torch.ones(3)

    return Local


def part_byte(torch, name):
    """A tensor of integers of a few bits; torch stores a byte for each."""
    return torch.arange(3, dtype=torch.uint8).view(getattr(torch, name))


# What makes the tensor, the class of the error, words of it, and the tensor that its fix makes, if any.
TENSORS = {
    "nested": (nested, gi.ExportError, "to_padded_tensor", lambda t, _: t.to_padded_tensor(0.0)),
    "jagged": (lambda t: nested(t, layout=t.jagged), gi.ConversionTypeError, "unbind()", lambda t, _: t.unbind()[0]),
    "sparse coo": (lambda t: t.eye(3).to_sparse(), gi.ExportError, "to_dense()", lambda t, _: t.to_dense()),
    "sparse csr": (lambda t: t.eye(3).to_sparse_csr(), gi.ExportError, "to_dense()", lambda t, _: t.to_dense()),
    "sparse bsr": (lambda t: t.eye(4).to_sparse_bsr((2, 2)), gi.ExportError, "to_dense()", lambda t, _: t.to_dense()),
    "mkldnn": (lambda t: t.ones(3).to_mkldnn(), gi.ExportError, "to_dense()", lambda t, _: t.to_dense()),
    "meta": (lambda t: t.ones(3, device="meta"), gi.DeviceMismatchError, "torch.empty_like",
             lambda t, torch: torch.empty_like(t, device="cpu")),
    "quantized": (lambda t: t.quantize_per_tensor(t.ones(3), 0.1, 0, t.qint8), gi.ExportError, "dequantize()",
                  lambda t, _: t.dequantize()),
    "fake": (fake, gi.ConversionTypeError, "FakeTensorMode", None),
    "released": (released, gi.ExchangeError, "while its storage is allocated", None),
    "zero": (lambda t: t._efficientzerotensor((3,)), gi.ExchangeError, "without storage", None),
    "uninitialized": (lambda t: t.nn.UninitializedParameter(), gi.ExchangeError, "materialize", None),
    "requires grad": (lambda t: t.ones(3, requires_grad=True), gi.ExportError, "detach()", lambda t, _: t.detach()),
    "computed with grad": (lambda t: t.ones(3, requires_grad=True) * 2, gi.ExportError, "detach()",
                           lambda t, _: t.detach()),
    "parameter": (lambda t: t.nn.Parameter(t.ones(3)), gi.ExportError, "detach()", lambda t, _: t.detach()),
    "wrapper": (lambda t: t.Tensor._make_wrapper_subclass(wrapper_class(t), (3,)), gi.ConversionTypeError,
                "to_local()", lambda t, _: t.to_local()),
    "wrapper with memory": (lambda t: t.Tensor._make_subclass(wrapper_class(t), t.ones(3)), gi.ConversionTypeError,
                            "to_local()", lambda t, _: t.to_local()),
    **{name: (lambda t, name=name: part_byte(t, name), gi.DTypeError, f"torch.{name}",
              lambda t, torch: t.view(torch.uint8))
       for name in ("uint1", "uint4", "uint7", "int1", "int4", "int7")},
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("name", TENSORS)
def test_tensor_without_plain_memory_is_refused_alike(name):
    torch = pytest.importorskip("torch")
    make, error, word, mend = TENSORS[name]
    t = make(torch)
    refused = refusal(t, "torch")
    assert type(refused) is error
    assert word in str(refused)
    plan = gi.explain(t, copyif=True)
    assert (plan.refused, plan.error) == (True, error)
    if mend is not None:
        mended = mend(t, torch)
        assert gi.from_any(mended).ptr == mended.data_ptr()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("make", "word", "values"),
    [
        (lambda z: z.conj(), "resolve_conj", [1 - 2j]),
        (lambda z: z.conj().imag, "resolve_neg", [-2]),
    ],
)
def test_pending_sign_is_refused_or_copied(make, word, values):
    torch = pytest.importorskip("torch")
    t = make(torch.tensor([1 + 2j], dtype=torch.complex64))
    refused = refusal(t, "torch")
    assert (type(refused), refused.reason) == (gi.ExportError, "lazy")
    assert word in refused.fix
    assert gi.explain(t, copyif=True).copied
    assert gi.from_any(t, copyif=True).tolist() == values


@pytest.mark.torch
def test_pending_conjugation_is_not_copied_where_torch_only_pretends():
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    conjugate = torch.ones(3, dtype=torch.complex64).conj()
    with FakeTensorMode():
        plan = gi.explain(conjugate, copyif=True)
        assert plan.refused
        with pytest.raises(gi.ConversionTypeError, match="outside FakeTensorMode") as raised:
            gi.from_any(conjugate, copyif=True)
    assert plan.got == raised.value.got


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own jvp
@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp", "functionalize"])
def test_tensor_inside_a_transform_is_refused(transform):
    torch = pytest.importorskip("torch")
    seen = []

    def inside(x):
        seen.append(x)
        for call in (gi.asarray, gi.from_dlpack):
            with pytest.raises(gi.GpuInteropError):
                call(x)
        for call in (gi.from_any, converters.from_torch):
            with pytest.raises(gi.ConversionTypeError, match="outside the transformed function"):
                call(x)
        return x.sum()

    one = torch.ones(2, 3)
    {
        "vmap": lambda: torch.vmap(inside)(one),
        "grad": lambda: torch.func.grad(inside)(one),
        "jvp": lambda: torch.func.jvp(inside, (one,), (one,)),
        "functionalize": lambda: torch.func.functionalize(inside)(one),
    }[transform]()
    assert seen


@pytest.mark.torch
def test_tensor_of_another_class_with_plain_memory_is_shared():
    torch = pytest.importorskip("torch")

    class Mine(torch.Tensor):
        pass

    base = torch.ones(3)
    buffer = getattr(torch.nn, "Buffer", torch.nn.Parameter)
    kinds = [torch.nn.Parameter(base, requires_grad=False), base.as_subclass(Mine)]
    if buffer is not torch.nn.Parameter:
        kinds.append(buffer(base))
    for t in kinds:
        assert gi.explain(t).shared
        for call in (gi.from_any, gi.from_dlpack, gi.asarray, converters.from_torch):
            assert call(t).ptr == base.data_ptr(), type(t)


# ---- jax ----------------------------------------------------------------------------------------


def deleted(jax):
    made = jax.numpy.ones(3)
    made.delete()
    return made


JAX = {
    "deleted": (deleted, gi.ExchangeError, "donated", None),
    "random key": (lambda jax: jax.random.key(0), gi.DTypeError, "key_data", lambda x, jax: jax.random.key_data(x)),
    **{dtype: (lambda jax, dtype=dtype: jax.numpy.ones(3, getattr(jax.numpy, dtype)), gi.DTypeError, dtype,
               lambda x, _: x.astype("int8"))
       for dtype in ("int2", "uint2", "int4", "uint4", "float4_e2m1fn")},
}  # fmt: skip


@pytest.mark.jax
@pytest.mark.parametrize("name", JAX)
def test_jax_array_without_plain_memory_is_refused_alike(name):
    jax = pytest.importorskip("jax")
    make, error, word, mend = JAX[name]
    x = make(jax)
    refused = refusal(x, "jax")
    assert type(refused) is error
    assert word in str(refused)
    if mend is not None:
        mended = mend(x, jax)
        assert gi.from_any(mended).shape == mended.shape


@pytest.mark.jax
@pytest.mark.parametrize("transform", ["jit", "grad", "vmap", "make_jaxpr"])
def test_jax_tracer_is_refused_alike(transform):
    jax = pytest.importorskip("jax")
    found = []

    def traced(tracer):
        found.append(refusal(tracer, "jax"))
        return tracer.sum()

    getattr(jax, transform)(traced)(jax.numpy.ones((2, 3) if transform == "vmap" else 3))
    assert type(found[0]) is gi.ConversionTypeError
    assert "jit" in str(found[0])


# ---- numpy --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("odd", "error"),
    [
        (np.ma.masked_array(np.ones(2, "f4"), [0, 1]), gi.UnsupportedError),
        (np.array([None, 1]), gi.DTypeError),
        (np.array(["x"]), gi.DTypeError),
        (np.zeros(2, "M8[s]"), gi.DTypeError),
        (np.zeros(2, "f4,i4"), gi.DTypeError),
    ],
    ids=["masked", "objects", "texts", "dates", "records"],
)
def test_numpy_array_that_nothing_mends_is_refused_alike(odd, error):
    refused = refusal(odd, "numpy", STRICT)
    assert type(refused) is error
    assert gi.explain(odd, copyif=True).error is error
    assert "astype" not in refused.fix or error is not gi.DTypeError


def test_masked_array_without_a_masked_element_is_shared():
    with pytest.raises(gi.UnsupportedError, match="1 masked element"):
        gi.CudaNdarray(np.ma.masked_array(np.ones(3, "f4"), [0, 1, 0]))
    assert gi.from_dlpack(np.ma.masked_array(np.ones(3, "f4"))).tolist() == [1, 1, 1]


def test_numpy_scalar_needs_a_copy():
    for call in (gi.from_dlpack, converters.from_numpy):
        with pytest.raises(gi.ConversionTypeError):
            call(np.float32(1))
    assert gi.from_dlpack(np.float32(1), copy=True).tolist() == 1
    assert converters.from_numpy(np.float32(3), copyif=True).item() == 3


def test_class_named_like_numpys_is_not_shared_as_one():
    class Named:
        def __init__(self, host):
            self.host = host

        @property
        def __array_interface__(self):
            return self.host.__array_interface__

    Named.__module__, Named.__name__, Named.__qualname__ = "numpy", "ndarray", "ndarray"
    named = Named(np.ones(3, np.float32))
    assert gi._core.share_plain(named) is None
    assert gi._core.share_plain(named.host) is not None
    assert gi.explain(named).shared
    assert gi.from_any(named).tolist() == [1, 1, 1]
