"""Conversions read the core's layout, not attributes that a subclass overrides, and refuse an incomplete one."""

import pickle

import numpy as np
import pytest
from helpers.cases import Liar, agree

import gpuinterop as gi

LIBRARIES = {
    "numpy": "numpy", "torch": "torch", "jax": "jax", "tvm_ffi": "tvm_ffi",
    "cuda_core": "cuda.core.utils", "array_api": "array_api_strict", "buffer": "builtins",
}  # fmt: skip


def honest():
    return gi.array(np.arange(12, dtype=np.float32).reshape(3, 4), device="cpu")


def lying():
    return gi.from_dlpack(honest(), cls=Liar)


def incomplete():
    x = honest().view()
    x._set_shape_i(0, 100)
    return x


def options(library):
    return {"xp": pytest.importorskip("array_api_strict")} if library == "array_api" else {}


@pytest.fixture(params=LIBRARIES)
def library(request):
    pytest.importorskip(LIBRARIES[request.param])
    return request.param


@pytest.mark.parametrize("copyif", [False, True])
@pytest.mark.parametrize("key", [np.s_[:], np.s_[:, ::-1], np.s_[::2]])
def test_conversions_do_not_read_overridden_attributes(library, key, copyif):
    x = honest()[key]
    liar = gi.from_dlpack(x, cls=Liar)
    plan, made, error = agree(liar, library, copyif, **options(library))
    assert str(plan) == str(gi.explain(x, library, copyif, **options(library)))
    if error is not None:
        return
    assert tuple(made.shape) == x.shape
    assert gi.shares_memory(made, x) == plan.shared
    assert np.array_equal(np.asarray(gi.from_any(made)), x.get())


def test_an_incomplete_layout_is_refused_by_all(library):
    x = incomplete()
    plan = gi.explain(x, library, True, **options(library))
    assert plan.refused
    with pytest.raises(plan.error) as raised:
        gi.to(x, library, True, **options(library))
    assert (raised.value.reason, raised.value.fix) == (plan.code, plan.fix)
    x._set_shape_i(0, 3)
    assert not gi.explain(x, library, True, **options(library)).refused


VIEWS = {
    "diagonal": lambda x: x.diagonal(1),
    "transpose": lambda x: x.transpose(1, 0),
    "dimshuffle": lambda x: x.dimshuffle(1, "x", 0),
    "reshape in order F": lambda x: x.reshape((4, 3), order="F"),
    "broadcast_to": lambda x: x.broadcast_to(2, 3, 4),
    "copy": lambda x: x.copy("F"),
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "zeros_like": lambda x: gi.zeros_like(x) + 1,
    "asarray": lambda x: gi.asarray(x, "float64"),
    "GpuArray": lambda x: gi.GpuArray(x, "int32"),
    "from_dlpack": lambda x: gi.from_dlpack(x, copy=True),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_and_copies_do_not_read_overridden_attributes(name):
    make = VIEWS[name]
    expected, found = make(honest()), make(lying())
    plain = gi.from_dlpack(found, cls=gi.GpuArray)
    assert (plain.shape, plain.strides, plain.dtype) == (
        expected.shape,
        expected.strides,
        expected.dtype,
    )
    assert np.array_equal(np.asarray(plain), np.asarray(expected))


def test_values_do_not_depend_on_overridden_attributes():
    x, liar = honest(), lying()
    assert np.array_equal(np.asarray(liar), x.get())
    assert np.array_equal(liar.get(), x.get())
    assert liar.item(5) == 5
    assert liar.item(1, 2) == 6
    assert liar.tolist() == x.tolist()
    assert liar.flags == x.view().flags
    assert not bool(liar[0, 0])
    target = gi.zeros((3, 4), device="cpu")
    target[...] = liar
    assert target.tolist() == x.tolist()


class OddHost(np.ndarray):
    """Shows another layout than it has, as a subclass of NumPy's array."""

    shape = property(lambda self: (10**6,))
    strides = property(lambda self: (8,))
    dtype = property(lambda self: np.dtype("f8"))
    size = property(lambda self: 10**9)
    itemsize = property(lambda self: 8)
    flags = property(lambda self: None)
    ctypes = property(lambda self: None)


@pytest.mark.parametrize("make", [gi.from_any, gi.converters.from_numpy])
@pytest.mark.parametrize("dtype", ["u1", "f4", ">f4"])
def test_a_subclass_of_numpys_array_is_read_past_its_attributes(make, dtype):
    host = np.arange(6, dtype=dtype).reshape(2, 3)
    x = make(host.view(OddHost), copyif=True)
    assert (x.shape, x.dtype, x.nbytes) == ((2, 3), host.dtype.newbyteorder("="), host.nbytes)
    assert np.array_equal(x.get(), host)
    assert gi.explain(host.view(OddHost)).shared == host.dtype.isnative
