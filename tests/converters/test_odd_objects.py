"""Objects that look like arrays and are none: each is shared, or refused by every door with what mends it."""

from __future__ import annotations

import weakref
from unittest import mock

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import converters

# torch warns of its own quantized, nested, sparse and half complex tensors.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

DOORS = {
    "from_any": gi.from_any,
    "from_any with copyif": lambda x: gi.from_any(x, True),
    "from_dlpack": gi.from_dlpack,
    "asarray": gi.asarray,
}


def refused_everywhere(x, words, doors=DOORS):
    """Every door refuses in full sentences, one of them says `words`, and explain() foretells it."""
    for name, door in doors.items():
        with pytest.raises(gi.GpuInteropError) as raised:
            door(x)
        error = raised.value
        assert all((error.where, error.expected, error.got, error.fix)), name
        assert words in str(error), f"{name}: {error}"
    with pytest.raises(gi.GpuInteropError) as raised:
        gi.from_any(x)
    for copyif in (False, True):
        plan = gi.explain(x, copyif=copyif)
        assert plan.refused
        assert type(raised.value) is plan.error


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


def wrapper(torch):
    class Local(torch.Tensor):
        """As DTensor is: a tensor with a shape, whose memory is that of a tensor inside."""

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise AssertionError("was called")

        def to_local(self):
            return torch.ones(3)

    return torch.Tensor._make_wrapper_subclass(Local, (3,))


# What makes the tensor, words that every door says, and the mended tensor as the message tells.
TENSORS = {
    "nested": (nested, "to_padded_tensor", lambda t, _: t.to_padded_tensor(0.0)),
    "sparse coo": (lambda t: t.eye(3).to_sparse(), "to_dense()", lambda t, _: t.to_dense()),
    "sparse csr": (lambda t: t.eye(3).to_sparse_csr(), "to_dense()", lambda t, _: t.to_dense()),
    "sparse bsr": (
        lambda t: t.eye(4).to_sparse_bsr((2, 2)),
        "to_dense()",
        lambda t, _: t.to_dense(),
    ),
    "mkldnn": (lambda t: t.ones(3).to_mkldnn(), "to_dense()", lambda t, _: t.to_dense()),
    "meta": (
        lambda t: t.ones(3, device="meta"),
        "torch.empty_like",
        lambda t, torch: torch.empty_like(t, device="cpu"),
    ),
    "quantized": (
        lambda t: t.quantize_per_tensor(t.ones(3), 0.1, 0, t.qint8),
        "dequantize()",
        lambda t, _: t.dequantize(),
    ),
    "fake": (fake, "FakeTensor", None),
    "released": (released, "while its storage is allocated", None),
    "zero": (lambda t: t._efficientzerotensor((3,)), "without storage", None),
    "requires grad": (
        lambda t: t.ones(3, requires_grad=True),
        "detach()",
        lambda t, _: t.detach(),
    ),
    "parameter": (
        lambda t: t.nn.Parameter(t.ones(3)),
        "detach()",
        lambda t, _: t.detach(),
    ),
    "wrapper": (wrapper, "to_local()", lambda t, _: t.to_local()),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", TENSORS)
def test_tensors_without_plain_memory(name):
    torch = pytest.importorskip("torch")
    make, words, mend = TENSORS[name]
    t = make(torch)
    refused_everywhere(t, words, {**DOORS, "from_torch": converters.from_torch})
    if mend is not None:
        mended = mend(t, torch)
        assert gi.from_any(mended).ptr == mended.data_ptr()


@pytest.mark.torch
def test_a_jagged_tensor_names_its_parts():
    torch = pytest.importorskip("torch")
    t = nested(torch, layout=torch.jagged)
    with pytest.raises(gi.ConversionTypeError, match=r"unbind\(\)"):
        gi.from_any(t)
    assert [gi.from_any(part).shape for part in t.unbind()] == [(2,), (3,)]


@pytest.mark.torch
def test_an_uninitialized_parameter_has_no_memory():
    torch = pytest.importorskip("torch")
    parameter = torch.nn.parameter.UninitializedParameter(requires_grad=False)
    with pytest.raises(gi.ExchangeError, match="materialize"):
        gi.from_any(parameter)
    parameter.materialize((3,))
    assert gi.from_any(parameter).ptr == parameter.data_ptr()


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own jvp
@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp", "functionalize"])
def test_tensors_inside_a_transform(transform):
    torch = pytest.importorskip("torch")
    seen = []

    def inside(x):
        seen.append(x)
        for door in (*DOORS.values(), converters.from_torch):
            with pytest.raises(gi.GpuInteropError):
                door(x)
        for door in (gi.from_any, converters.from_torch):
            with pytest.raises(gi.ConversionTypeError, match="outside the transformed function"):
                door(x)
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
def test_tensors_of_other_classes_with_plain_memory_are_shared():
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
        for door in (*DOORS.values(), converters.from_torch):
            assert door(t).ptr == base.data_ptr(), type(t)


@pytest.mark.torch
@pytest.mark.parametrize("bits", range(1, 8))
@pytest.mark.parametrize("sign", ["int", "uint"])
def test_dtypes_of_part_bytes_in_torch(sign, bits):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, f"{sign}{bits}", None)
    if dtype is None:
        pytest.skip("this torch has no such dtype")
    doors = {**DOORS, "from_torch": converters.from_torch}
    refused_everywhere(torch.empty((2, 3), dtype=dtype), f"torch.{sign}{bits}", doors)
    for whole in (torch.int8, torch.uint8):
        t = torch.arange(6).to(whole)
        for door in doors.values():
            assert door(t).ptr == t.data_ptr()
    t = torch.empty((2, 3), dtype=dtype)
    for door in doors.values():
        with pytest.raises(gi.DTypeError):
            door(t)
    assert gi.from_any(t.view(torch.uint8)).ptr == t.data_ptr()  # as the message says


# ---- jax ----------------------------------------------------------------------------------------

SMALL = ["int1", "int2", "uint2", "int4", "uint4", "float4_e2m1fn"]


@pytest.mark.jax
def test_dtypes_of_part_bytes_in_jax():
    jax = pytest.importorskip("jax")
    found = [dtype for dtype in SMALL if hasattr(jax.numpy, dtype)]
    assert "int4" in found
    for dtype in found:
        x = jax.numpy.ones((2, 3), getattr(jax.numpy, dtype))
        refused_everywhere(x, dtype, {**DOORS, "from_jax": converters.from_jax})
        assert gi.from_any(x.astype("int8")).shape == (2, 3)


@pytest.mark.jax
def test_a_random_key_of_jax_tells_how_to_get_its_bits():
    jax = pytest.importorskip("jax")
    key = jax.random.key(0)
    refused_everywhere(key, "key_data", {**DOORS, "from_jax": converters.from_jax})
    assert gi.from_any(jax.random.key_data(key)).dtype == np.uint32


@pytest.mark.jax
def test_bool_arrays_of_jax_are_bool():
    jax = pytest.importorskip("jax")
    x = jax.numpy.array([True, False])
    assert gi.from_any(x).tolist() == [True, False]
    assert gi.from_dlpack(x).dtype == np.bool_


# ---- numpy --------------------------------------------------------------------------------------


def test_a_class_that_calls_itself_numpys_is_not_shared_as_one():
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


@pytest.mark.parametrize("module", [property(lambda self: "torch"), 5, None])
def test_the_module_of_a_class_may_be_anything(module):
    class Shown:
        def __init__(self, host):
            self.__dlpack__, self.__dlpack_device__ = host.__dlpack__, host.__dlpack_device__

    Shown.__module__ = module  # the classes of object proxies have a property there
    host = np.ones(3, np.float32)
    shown = Shown(host)
    for door in (gi.from_any, gi.to_cudandarray, lambda x: gi.to(x, "numpy")):
        assert gi.shares_memory(door(shown), host)
    assert gi.explain(shown).shared
    assert gi.ones(2, device=shown).device.type == "cpu"


@pytest.mark.parametrize("door", [gi.from_any, gi.to_cudandarray, lambda x: gi.to(x, "numpy")])
def test_a_class_that_calls_itself_pycudas_is_told_so(door):
    named = type("GPUArray", (), {"__module__": "pycuda.gpuarray"})()
    with pytest.raises(gi.ConversionTypeError, match="another class by that name"):
        door(named)
    assert gi.explain(named, "cudandarray").refused


# ---- anything else ------------------------------------------------------------------------------


class Nothing:
    pass


@pytest.mark.parametrize(
    "obj", [Nothing(), {"a": 1}, None, "text", 3, {1}, object, [1.0], range(3)]
)
def test_what_nobody_recognises_is_told_what_is(obj):
    with pytest.raises(gi.ConversionTypeError) as raised:
        gi.from_any(obj)
    error = raised.value
    for row in converters.backends():
        if row.package not in ("", "builtins"):
            assert row.name in error.expected
    for protocol in (
        "DLPack",
        "__cuda_array_interface__",
        "__array_interface__",
        "buffer protocol",
    ):
        assert protocol in error.expected
    assert type(obj).__qualname__ in error.got
    assert "asarray" in error.fix
    assert "register" in error.fix
    plan = gi.explain(obj)
    assert plan.refused
    assert (plan.reason, plan.fix) == (error.expected, error.fix)
    with pytest.raises(gi.ConversionTypeError, match="torch"):
        gi.to(obj, "numpy")


def test_a_protocol_that_fails_is_still_told_by_itself():
    class Half:
        def __dlpack__(self):
            raise BufferError("not today")

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(gi.ExchangeError, match="not today"):
        gi.from_any(Half())


@pytest.mark.parametrize("cls", [gi.CudaNdarray, gi.GpuArray, np.ndarray])
def test_classes_are_no_arrays(cls):
    with pytest.raises(gi.ConversionTypeError, match="the class itself"):
        gi.from_any(cls)
    assert gi.explain(cls).refused
    with pytest.raises(gi.ConversionTypeError, match="the class itself"):
        gi.shares_memory(cls, np.zeros(3))


def test_a_pending_conjugation_is_not_copied_where_torch_only_pretends():
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    conjugate = torch.ones(3, dtype=torch.complex64).conj()
    with FakeTensorMode():
        plan = gi.explain(conjugate, copyif=True)
        assert plan.refused
        with pytest.raises(gi.ConversionTypeError, match="outside FakeTensorMode") as raised:
            gi.from_any(conjugate, copyif=True)
    assert plan.got == raised.value.got
    assert gi.from_any(conjugate, copyif=True).tolist() == [1 - 0j] * 3


def test_remedies_of_an_assignment_speak_of_what_is_assigned():
    x = gi.zeros(4, device="cpu")
    with pytest.raises(gi.DTypeError, match=r"value\.astype\('float32'\)"):
        x[...] = np.zeros(4)
    torch = pytest.importorskip("torch")
    with pytest.raises(gi.ExportError, match=r"pass t\.detach\(\)"):
        x[0] = torch.nn.Parameter(torch.ones(()))


# ---- another object's class ---------------------------------------------------------------------


@pytest.mark.parametrize("library", ["gpuinterop", "cudandarray", "numpy", "torch", "buffer"])
def test_a_weak_proxy_is_shared_as_what_it_stands_for(library):
    if library == "torch":
        pytest.importorskip(library)
    x = gi.ones((2, 3), device="cpu")
    proxy = weakref.proxy(x)
    assert gi.explain(proxy, library).shared
    made = gi.to(proxy, library)
    assert type(made) is not type(proxy)
    assert gi.shares_memory(made, x)
    assert gi.shares_memory(proxy, x)


def test_a_weak_proxy_is_taken_wherever_an_array_is_made():
    x = gi.ones((2, 3), device="cpu")
    proxy = weakref.proxy(x)
    for make in (
        gi.from_any,
        gi.to_cudandarray,
        lambda y: gi.asarray(y, device="cpu"),
        gi.CudaNdarray,
    ):
        assert type(make(proxy)) is gi.CudaNdarray
    other = gi.zeros((2, 3), device="cpu") + 2
    x[...] = weakref.proxy(other)
    assert x.tolist() == [[2, 2, 2]] * 2
    with pytest.raises(gi.DeviceMismatchError), converters.pointer_arguments((proxy,)):
        pass


def test_what_shows_the_class_of_an_array_is_not_taken_for_one():
    for odd in (mock.Mock(spec=gi.CudaNdarray), mock.MagicMock(spec=gi.zeros(3, device="cpu"))):
        for door in (*DOORS.values(), gi.to_cudandarray, lambda x: gi.to(x, "numpy")):
            with pytest.raises(gi.GpuInteropError):
                door(odd)
        assert gi.explain(odd, "numpy").refused
