"""An object without plain memory of its own is refused alike at every entry point, with a fix that works."""

import operator
import re
import types

import numpy as np
import pytest
from doubles import internals
from doubles.placed import placed

import gpuinterop as gi
from gpuinterop import converters

# torch warns of its own quantized, nested, sparse and half complex tensors.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def filled(write):
    """What calls write(x, obj) and returns x."""

    def call(obj):
        x = gi.zeros(3, device="cpu")
        return x if write(x, obj) is None else None

    return call


def raise_plan(obj) -> None:
    raise gi.explain(obj).exception()


def capture_sum(obj) -> None:
    with gi.capture():
        gi.ones(3, device="cpu") + obj


CREATION = {
    "asarray": gi.asarray,
    "array": gi.array,
    "CudaNdarray": gi.CudaNdarray,
    "GpuArray": gi.GpuArray,
}
ASSIGNMENTS = {
    "x[...] = obj": filled(lambda x, obj: operator.setitem(x, ..., obj)),
    "copyto": filled(np.copyto),
}
READERS = {
    **ASSIGNMENTS,
    "from_any": gi.from_any,
    "from_dlpack": gi.from_dlpack,
    "explain": raise_plan,
    "x + obj": lambda obj: gi.ones(3, device="cpu") + obj,
    "sum": gi.sum,
    "take": lambda obj: gi.take(obj, 0),
    "sum of selected elements": lambda obj: gi.ones(3, device="cpu").sum(where=obj),
    "isclose": lambda obj: np.isclose(gi.ones(3, device="cpu"), obj),
    "concatenate": lambda obj: gi.concatenate([gi.ones(3, device="cpu"), obj]),
    "a fused function": lambda obj: gi.fuse(lambda x, y: x + y)(gi.ones(3, device="cpu"), obj),
    "to": lambda obj: gi.to(obj, "numpy"),
}
ENTRY_POINTS = {**CREATION, **READERS}
# An assignment copies, and so takes what cannot be shared.
SHARERS = {name: call for name, call in READERS.items() if name not in ASSIGNMENTS}


def refusal(obj, library, entry_points=ENTRY_POINTS) -> gi.GpuInteropError:
    """The error of every entry point for `obj`: the same class, words and fix."""
    calls = dict(entry_points)
    if library is not None:
        calls["from_library"] = getattr(converters, f"from_{library}")
    found, error = {}, None
    for name, call in calls.items():
        with pytest.raises(gi.GpuInteropError) as caught:
            call(obj)
        error = caught.value
        assert error.where not in ("", "dtype"), name
        assert name != "from_library" or error.where == f"from_{library}"
        # Where there is such an option, and in the words of an assignment.
        fix = error.fix.removeprefix("pass copyif=True, or ")
        fix = fix.replace("value.astype", "x.astype").replace("asarray(value)", "asarray(x)")
        found[name] = (type(error), error.reason, error.expected, error.got, fix)
    assert set(found.values()) == {found["from_any"]}, found
    return error


# ---- torch and JAX ------------------------------------------------------------------------------


def fake(torch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


def released(torch):
    t = torch.ones(3)
    t.untyped_storage().resize_(0)
    return t


def wrapper(torch):
    class Local(torch.Tensor):
        """As DTensor is: a tensor with a shape, whose memory is that of a tensor inside."""

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise AssertionError("was called")

    return torch.Tensor._make_wrapper_subclass(Local, (3,))


def deleted(jax):
    made = jax.numpy.ones(3)
    made.delete()
    return made


# What makes the object, the class of the error, a word of it, and what its fix makes of the object, if anything.
OBJECTS = {
    "torch nested": (lambda t: t.nested.nested_tensor([t.ones(2), t.ones(3)]), gi.ExportError, "unbind()",
                     lambda x, _: x.unbind()[0]),
    "torch sparse": (lambda t: t.eye(3).to_sparse(), gi.ExportError, "to_dense()", lambda x, _: x.to_dense()),
    "torch mkldnn": (lambda t: t.ones(3).to_mkldnn(), gi.ExportError, "to_dense()", lambda x, _: x.to_dense()),
    "torch quantized": (lambda t: t.quantize_per_tensor(t.ones(3), 0.1, 0, t.qint8), gi.ExportError, "dequantize()",
                        lambda x, _: x.dequantize()),
    "torch meta": (lambda t: t.ones(3, device="meta"), gi.DeviceMismatchError, "device='cpu'",
                   lambda x, t: t.empty_like(x, device="cpu")),
    "torch fake": (fake, gi.ConversionTypeError, "FakeTensorMode", None),
    "torch wrapper": (wrapper, gi.ConversionTypeError, "Local", None),
    "torch uninitialized": (lambda t: t.nn.UninitializedParameter(), gi.ConversionTypeError, "Uninitialized", None),
    "torch released": (released, gi.ExchangeError, "while its storage is allocated", None),
    "torch parameter": (lambda t: t.nn.Parameter(t.ones(3)), gi.ExportError, "detach()", lambda x, _: x.detach()),
    "torch uint4": (lambda t: t.arange(3, dtype=t.uint8).view(t.uint4), gi.DTypeError, "torch.uint4",
                    lambda x, t: x.view(t.uint8)),
    "jax deleted": (deleted, gi.ExchangeError, "donates", None),
    "jax key": (lambda j: j.random.key(0), gi.DTypeError, "key_data", lambda x, j: j.random.key_data(x)),
    "jax int4": (lambda j: j.numpy.ones(3, "int4"), gi.DTypeError, "int4", lambda x, _: x.astype("float32")),
    "numpy objects": (lambda n: n.array([None, 1]), gi.DTypeError, "object", None),
    "numpy texts": (lambda n: n.array(["x"]), gi.DTypeError, "U1", None),
    "numpy strings": (lambda n: n.array(["x"], dtype=n.dtypes.StringDType()), gi.DTypeError, "StringDType", None),
    "numpy dates": (lambda n: n.zeros(2, "M8[s]"), gi.DTypeError, "datetime64", None),
    "numpy records": (lambda n: n.zeros(2, "f4,i4"), gi.DTypeError, "f4", None),
    "numpy long doubles": (lambda n: n.zeros(2, "g"), gi.DTypeError, "", None),
}  # fmt: skip


@pytest.mark.parametrize("name", OBJECTS)
def test_object_without_plain_memory_is_refused_alike(name):
    package = name.partition(" ")[0]
    library = pytest.importorskip(package)
    make, error, word, make_fixed = OBJECTS[name]
    obj = make(library)
    refused = refusal(obj, package)
    assert type(refused) is error
    assert word in str(refused)
    assert gi.explain(obj, copyif=True).error is error
    if package == "numpy":
        with pytest.raises(error, match="empty_like"):
            gi.empty_like(obj)
    if package != "numpy" and name not in ("torch released", "jax int4"):  # NumPy reads these
        with pytest.raises(error, match=re.escape(word)):
            gi.array([[obj], [obj]], device="cpu")
    if make_fixed is not None:
        fixed = make_fixed(obj, library)
        assert gi.from_any(fixed).shape == tuple(fixed.shape)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("make", "word", "values"),
    [
        (lambda z: z.conj(), "resolve_conj", [1 - 2j]),
        (lambda z: z.conj().imag, "resolve_neg", [-2]),
        (lambda z: z.conj().imag[:0], "resolve_neg", []),
        (lambda z: z.imag.int()._neg_view(), "resolve_neg", [-2]),
    ],
)
def test_pending_sign_is_refused_or_copied(make, word, values):
    torch = pytest.importorskip("torch")
    t = make(torch.tensor([1 + 2j], dtype=torch.complex64))
    refused = refusal(t, "torch", SHARERS)
    assert (type(refused), refused.reason) == (gi.ExportError, "lazy")
    for name, assign in ASSIGNMENTS.items():
        if t.dtype == torch.float32 and t.numel():  # what a float32 array takes
            assert assign(t).tolist() == values * 3, name
    assert word in refused.fix
    assert gi.explain(t, copyif=True).copied
    assert gi.from_any(t, copyif=True).tolist() == values
    for copies in (gi.asarray, gi.array, gi.GpuArray, lambda t: gi.asarray(t, copy=True)):
        assert copies(t).tolist() == values
    with pytest.raises(gi.CopyForbiddenError, match=word[8:]):
        gi.asarray(t, copy=False)
    if word == "resolve_neg":  # twice is not at all
        assert gi.explain(torch._neg_view(t)).shared


@pytest.mark.parametrize("transform", ["torch.vmap", "torch.func.grad", "jax.jit", "jax.vmap"])
def test_value_inside_a_transform_is_refused_alike(transform):
    name, _, function = transform.partition(".")
    library = pytest.importorskip(name)
    found = []

    def inside(x):
        found.append(refusal(x, name))
        return x.sum()

    make = library.ones if name == "torch" else library.numpy.ones
    operator.attrgetter(function)(library)(inside)(make((2, 3)))
    assert type(found[0]) is gi.ConversionTypeError
    assert "outside" in found[0].fix


@pytest.mark.torch
def test_tensor_of_another_class_with_plain_memory_is_shared():
    torch = pytest.importorskip("torch")

    class Mine(torch.Tensor):
        pass

    base = torch.ones(3)
    for t in (torch.nn.Parameter(base, requires_grad=False), base.as_subclass(Mine)):
        assert gi.explain(t).shared
        for call in (gi.from_any, gi.from_dlpack, gi.asarray, converters.from_torch):
            assert call(t).ptr == base.data_ptr(), type(t)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_dtype_error_of_cudandarray_casts_by_the_methods_of_the_library(library):
    package = pytest.importorskip(library)
    make = getattr(package, "numpy", package).zeros
    value, target = (
        make(3, dtype=package.int32 if library == "torch" else "int32"),
        gi.ones(3, device="cpu"),
    )
    calls = (gi.CudaNdarray, gi.to_cudandarray, lambda value: target.__setitem__(..., value))
    fixes = set()
    for call in calls:
        with pytest.raises(gi.DTypeError) as caught:
            call(value)
        fix = caught.value.fix.removeprefix("write the cast: ").partition(", or")[0]
        assert gi.CudaNdarray(eval(fix, {"x": value, "value": value, library: package})).shape == (
            3,
        )
        fixes.add((caught.value.expected, caught.value.got))
    assert len(fixes) == 1


# ---- protocols that raise -------------------------------------------------------------------------


def raising(error):
    def fail(*_, **__):
        raise error("broken")

    return fail


BROKEN = {
    "__dlpack__": lambda error: {"__dlpack__": raising(error), "__dlpack_device__": lambda _: (1, 0)},
    "__dlpack_device__": lambda error: {"__dlpack__": raising(error), "__dlpack_device__": raising(error)},
    "__cuda_array_interface__": lambda error: {"__cuda_array_interface__": property(raising(error))},
    "__array_interface__": lambda error: {"__array_interface__": property(raising(error))},
}  # fmt: skip


@pytest.mark.parametrize("error", [TypeError, ValueError, RuntimeError, BufferError])
@pytest.mark.parametrize("protocol", BROKEN)
def test_protocol_that_raises_is_refused_alike(protocol, error):
    refused = refusal(type("Broken", (), BROKEN[protocol](error))(), None)
    assert type(refused) is gi.ExchangeError
    assert f"{error.__name__}: broken" in refused.got


def test_fused_function_reads_the_shape_of_an_array_that_has_only_a_protocol():
    class Producer:
        def __init__(self, host):
            self.host = host

        def __dlpack__(self, **options):
            return self.host.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.host.__dlpack_device__()

    mean = gi.fuse(lambda x: x.sum(axis=0) / x.shape[0])
    for host in (np.ones((2, 3), np.float32), np.ones(4, np.float32)):
        np.testing.assert_array_equal(mean(Producer(host)).get(), host.mean(axis=0))


# ---- numpy --------------------------------------------------------------------------------------


def test_masked_array_is_shared_only_without_a_masked_element():
    odd = np.ma.masked_array(np.ones(3, "f4"), [0, 1, 0])
    assert "a masked array of shape (3,)" in str(refusal(odd, "numpy"))
    assert gi.explain(odd, copyif=True).error is gi.UnsupportedError
    assert gi.from_dlpack(np.ma.masked_array(np.ones(3, "f4"))).tolist() == [1, 1, 1]


NUMPYS = {
    **SHARERS,
    "obj + x": lambda obj: obj + gi.ones(3, device="cpu"),
    "x += obj": lambda obj: operator.iadd(gi.ones(3, device="cpu"), obj),
    "x == obj": lambda obj: gi.ones(3, device="cpu") == obj,
    "array_equal": lambda obj: np.array_equal(gi.ones(3, device="cpu"), obj),
    "dot": lambda obj: gi.dot(gi.ones(3, device="cpu"), obj),
    "capture": capture_sum,
    "ElementwiseKernel": gi.ElementwiseKernel("T x", "T y", "y = x", host=lambda x: x),
}
INDICES = {
    "x[obj]": lambda obj: gi.ones(3, device="cpu")[obj],
    "x[obj] = 1": lambda obj: operator.setitem(gi.ones(3, device="cpu"), obj, 1),
    "indices of take": lambda obj: gi.take(gi.ones(3, device="cpu"), obj),
}
TARGETS = {
    "get": lambda obj: gi.ones(3, device="cpu").get(obj),
    "copy_async": lambda obj: gi.copy_async(obj, gi.ones(3, device="cpu")),
}


@pytest.mark.parametrize("dtype", [">f4", ">i4"])
def test_array_in_foreign_byte_order_is_refused_alike(dtype):
    host = np.arange(3, dtype=dtype)
    more = INDICES if dtype == ">i4" else {"to_cudandarray": gi.to_cudandarray}
    refused = refusal(host, "numpy", NUMPYS | TARGETS | more)
    assert (type(refused), refused.expected) == (gi.DTypeError, "native byte order")
    fixed = eval(refused.fix.rpartition("byte order: ")[2], {"a": host})
    assert gi.from_any(fixed).tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["buffer", None])
def test_memory_in_foreign_byte_order_is_refused_alike(kind):
    a = memoryview(np.arange(3, dtype=">f4"))
    if kind is None:
        a = types.SimpleNamespace(__array_interface__=np.asarray(a).__array_interface__, owner=a)
    names = ["from_any", "from_dlpack", "explain", "sum", "sum of selected elements", "isclose"]
    refused = refusal(a, kind, {name: READERS[name] for name in names})
    line = refused.fix[refused.fix.index("numpy.asarray") :].partition(", or")[0]
    assert gi.from_any(eval(line, {"numpy": np, "a": a})).tolist() == [0, 1, 2]


def field_of_records(host):
    return np.rec.fromarrays([np.uint8(host), host])["f1"]


@pytest.mark.parametrize("make", [placed, field_of_records])
def test_misaligned_array_is_refused_alike(make):
    host = make(np.arange(3, dtype="int32"))
    refused = refusal(host, "numpy", NUMPYS | INDICES)
    assert (type(refused), refused.reason) == (gi.ContiguityError, "alignment")
    fixed = eval(refused.fix.rpartition("copy: ")[2], {"gpuinterop": gi, "x": host})
    assert gi.from_any(fixed).tolist() == [0, 1, 2]


@pytest.mark.parametrize("make", [lambda: np.arange(3, dtype=">f4"), lambda: placed(np.arange(3, dtype="f4")),
                                  lambda: memoryview(np.arange(3, dtype=">f4"))])  # fmt: skip
def test_array_that_cannot_be_shared_is_converted_where_one_is_made_or_assigned(make):
    more = {
        "x[list] = obj": filled(lambda x, obj: operator.setitem(x, [0, 1, 2], obj)),
        "put": filled(lambda x, obj: gi.put(x, [0, 1, 2], obj)),
        "full": lambda obj: gi.full(3, obj, device="cpu"),
    }
    for name, call in {**CREATION, **ASSIGNMENTS, **more}.items():
        assert call(make()).tolist() == [0, 1, 2], name
    with pytest.raises(gi.CopyForbiddenError, match=gi.explain(make()).reason):
        gi.asarray(make(), copy=False)


def test_class_named_like_a_numpy_class_is_not_shared():
    class Named:
        def __init__(self, host):
            self.host = host

        @property
        def __array_interface__(self):
            return self.host.__array_interface__

    Named.__module__, Named.__name__, Named.__qualname__ = "numpy", "ndarray", "ndarray"
    named = Named(np.ones(3, np.float32))
    assert internals.share_ordinary(named) is None
    assert internals.share_ordinary(named.host) is not None
    assert gi.explain(named).shared
    assert gi.from_any(named).tolist() == [1, 1, 1]
