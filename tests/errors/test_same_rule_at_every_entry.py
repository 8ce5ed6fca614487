"""One rule at every entry point: alignment, shapes, axes, orders, masks, the dtype of a class."""

import copy
import pickle
import sys

import ml_dtypes
import numpy as np
import pytest
from doubles import driver, internals
from doubles.placed import placed
from helpers.public_tables import ML_NAMES, NUMPY_NAMES

import gpuinterop as gi

# In a process of its own: the collector's thresholds are the interpreter's.
FINALISER = """
import gc
import gpuinterop as gi

x = gi.zeros((2,) * 12, dtype="uint8", device="cpu")
full = x.shape
expected = [getattr(x, name), getattr(x.reshape(-1), name)]

class Finaliser:
    def __del__(self):
        x.shape = (x.size,)
        self.kept = [bytes([255]) * 192 for _ in range(50)]  # what was freed, overwritten

gc.disable()
gc.collect()
gc.set_threshold(1, 1000, 1000)
for _ in range(50):
    x.shape = full
    cycle = Finaliser()
    cycle.me = cycle
    del cycle
    gc.enable()
    found = getattr(x, name)
    gc.disable()
    assert found in expected, found
    gc.collect()
"""


@pytest.mark.parametrize("name", ["shape", "strides", "_strides", "__array_interface__"])
def test_a_finaliser_may_change_what_is_being_read(name):
    """On Python 3.10 and 3.11, making the tuple runs the collector, which then freed the extents."""
    driver.run(f"name = {name!r}\n{FINALISER}", timeout=120)


# ---- alignment -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "offset"), [("complex64", 4), ("complex128", 8)])
def test_complex_alignment_is_that_of_the_parts_at_every_entry_point(dtype, offset):
    host = placed(np.arange(4, dtype=dtype), offset)
    assert host.flags.aligned
    shared = gi.asarray(host, device="cpu", copy=False)
    assert gi.from_any(host).ptr == gi.from_dlpack(host).ptr == shared.ptr == host.ctypes.data
    assert shared.flags.aligned
    values = list(range(4))
    x = gi.zeros(4, dtype=dtype, device="cpu")
    x[...] = host
    out = np.zeros_like(placed(np.arange(4, dtype=dtype), offset))
    for found in (
        x, gi.array(host, device="cpu"), gi.GpuArray(host, device="cpu"),
        gi.concatenate([shared, x])[:4], (x * 0 + host), shared.copy(),
    ):  # fmt: skip
        assert found.tolist() == values
    out = placed(np.arange(4, dtype=dtype), offset)
    out[...] = 0
    assert x.get(out).tolist() == values


# ---- dtypes ----------------------------------------------------------------------------------------


def test_the_dtypes_are_those_of_numpy_and_ml_dtypes_but_a_few():
    numpy_names = {
        np.dtype(t).name for t in ("?", *np.typecodes["AllInteger"], *np.typecodes["AllFloat"])
    }
    numpy_names = {n for n in numpy_names if np.dtype(n).itemsize <= 16}
    extended = {"float128", "complex256", "longdouble", "clongdouble", "float96", "complex192"}
    assert set(NUMPY_NAMES) == numpy_names - extended
    public = {n for n in dir(ml_dtypes) if not n.startswith("_")}
    named = {n for n in public if isinstance(getattr(ml_dtypes, n), type)}
    named -= {"finfo", "iinfo"}
    assert named - set(ML_NAMES) <= {"bcomplex32", "float8_e5m3fnu"}  # for which DLPack has no code


@pytest.mark.parametrize("name", ["bcomplex32", "float8_e5m3fnu"])
def test_a_dtype_without_a_code_in_dlpack_is_refused(name):
    dtype = getattr(ml_dtypes, name, None)
    if dtype is None:  # an older ml_dtypes
        with pytest.raises(gi.DTypeError, match="expected a dtype of bools"):
            gi.zeros(1, name, device="cpu")
        return
    for make in (
        lambda: gi.zeros(1, dtype, device="cpu"), lambda: gi.asarray(np.zeros(1, dtype), device="cpu"),
        lambda: gi.from_any(np.zeros(1, dtype)), lambda: gi.ones(1, device="cpu").astype(dtype),
        lambda: gi.ones(1, device="cpu") + np.zeros(1, dtype), lambda: gi.result_type(dtype, "float32"),
    ):  # fmt: skip
        with pytest.raises(gi.DTypeError, match=r"DLPack has a code|numeric dtype") as caught:
            make()
        assert name in caught.value.got


@pytest.mark.parametrize("name", ["int1", "complex32", "int2"])
def test_error_for_an_older_ml_dtypes_names_its_version(name, monkeypatch):
    monkeypatch.delattr(ml_dtypes, name, raising=False)
    with pytest.raises(gi.DTypeError, match=ml_dtypes.__version__) as caught:
        internals.forget_dtypes()
        gi.zeros(1, name, device="cpu")
    assert caught.value.fix == f"pip install 'ml_dtypes>={'0.5' if name == 'int2' else '0.6'}'"


# ---- shapes, axes, orders --------------------------------------------------------------------------

NO_SHAPES = [{4, 3}, {3: 1}, b"ab", bytearray(b"a"), "ab", (2.5, 2), 2.5, (True, 2), True, None, [[2], 3],
             (n for n in (2, 3))]  # fmt: skip


@pytest.mark.parametrize("shape", NO_SHAPES, ids=lambda shape: type(shape).__name__)
def test_invalid_shape_is_refused_at_every_entry_point(shape):
    x = gi.zeros((4, 3), device="cpu")
    for call in (
        lambda: gi.zeros(shape, device="cpu"),
        lambda: gi.empty(shape, device="cpu"),
        lambda: gi.CudaNdarray.zeros(shape, device="cpu"),
        lambda: x.reshape(shape),
        lambda: x.broadcast_to(shape),
        lambda: gi.from_gpu_pointer(x.ptr, shape, base=x, device="cpu"),
        lambda: gi.pinned_empty(shape),
    ):
        with pytest.raises(gi.ArgumentTypeError, match="int"):
            call()


def test_orders_are_read_in_one_way():
    x = gi.zeros((2, 3), device="cpu")
    for order in ("Q", "", "CF", 5, None, ["C"], b"C"):
        for call in (
            lambda order=order: gi.empty(3, order=order, device="cpu"),
            lambda order=order: x.copy(order),
            lambda order=order: x.reshape(6, order=order),
            lambda order=order: x.ravel(order),
            lambda order=order: x.flatten(order),
            lambda order=order: x.astype("int32", order=order),
        ):
            with pytest.raises(gi.ShapeError, match="order='C'"):
                call()


# ---- names of dtypes ------------------------------------------------------------------------------

DTYPE_DOORS = {
    "sum": lambda x, wrong: x.sum(0, wrong),
    "var": lambda x, wrong: gi.var(x, dtype=wrong),
    "CudaNdarray": lambda x, wrong: gi.CudaNdarray(x, dtype=wrong),
    "GpuArray": lambda x, wrong: gi.GpuArray(x, wrong),
    "GpuArray.from_pointer": lambda x, wrong: gi.GpuArray.from_pointer(x.ptr, (3,), wrong, None, x),
    "view": lambda x, wrong: x.view(wrong),
    "arange": lambda x, wrong: gi.arange(3, dtype=wrong),
    "linspace": lambda x, wrong: gi.linspace(0, 1, 3, dtype=wrong),
}


@pytest.mark.parametrize("where", DTYPE_DOORS)
@pytest.mark.parametrize("wrong", ["float33", 1, "bfloat16"])
def test_refusals_of_dtypes_name_the_call(where, wrong, monkeypatch):
    if wrong == "bfloat16":  # without ml_dtypes
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
        internals.forget_dtypes()
    with pytest.raises(gi.DTypeError) as caught:
        DTYPE_DOORS[where](gi.zeros((3, 4), device="cpu"), wrong)
    assert caught.value.where == where
    assert ("pip install" in caught.value.fix) == (wrong == "bfloat16")


# ---- copies of objects -----------------------------------------------------------------------------


class Slotted(gi.CudaNdarray):
    __slots__ = ("__secret", "note", "unset")

    def hide(self, value):
        self.__secret = value

    def shown(self):
        return self.__secret


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
}


@pytest.mark.parametrize("again", COPIES)
def test_copies_keep_what_a_subclass_carries(again):
    x = Slotted([1.0, 2.0], device="cpu")
    x.note = ["a"]
    x.hide(3)
    y = COPIES[again](x)
    assert (type(y), y.tolist()) == (Slotted, [1, 2])
    assert (y.note, y.shown(), hasattr(y, "unset")) == (["a"], 3, False)
    assert (y.note is x.note) == (again == "copy")
