"""How many Python functions a cached call runs: no more than docs/understand/cost.md states."""

import inspect
from functools import partial
from types import BuiltinFunctionType

import numpy as np
import pytest
from doubles.on_fake import FAKE
from helpers.profile import PACKAGE, functions_of

import gpuinterop as gi

HOST = np.arange(20, dtype="float32").reshape(4, 5)
SCALE = 2.0


class Model:
    rate = 0.5

    @gi.fuse
    def step(self, x, y):
        return x - y * self.rate


FUSED = gi.fuse(lambda x, y, n=1, up=True: x * y * SCALE + n if up else y)
STATIC = gi.fuse(lambda x, rate: x if rate > 1 else x * rate, static_argnames="rate")
SEVERAL = gi.fuse(lambda x, y: (x + y, x - y))
AXPY = gi.ElementwiseKernel("float32 a, T x", "T z", "z = a * x", "axpy", host=lambda a, x: a * x)


class Operands:
    def __init__(self, device):
        self.x, self.y = (gi.CudaNdarray(HOST, device=device) for _ in "xy")
        self.out, self.more = (gi.CudaNdarray(HOST, device=device) for _ in "xy")
        self.wide = gi.GpuArray(HOST, dtype="float64", device=device)
        self.whole = gi.GpuArray(HOST, dtype="int32", device=device)
        self.half = gi.GpuArray(HOST, dtype="float16", device=device)
        self.small = gi.GpuArray(HOST, dtype="bfloat16", device=device)
        self.logical = gi.GpuArray(HOST, dtype="bool", device=device)
        self.complex = gi.GpuArray(HOST, dtype="complex64", device=device)
        self.places = gi.GpuArray([2, 0], dtype="int64", device=device)
        self.a, self.b, self.c = (gi.CudaNdarray(HOST[:, :4], device=device) for _ in "abc")
        self.v, self.w = (gi.CudaNdarray(HOST[0, :4], device=device) for _ in "vw")
        self.stack = gi.CudaNdarray(np.ones((2, 4, 4), "float32"), device=device)
        self.rows, self.total = gi.empty(4, device=device), gi.empty((), device=device)


CALLS = {
    "x + y": lambda o: o.x + o.y,
    "x + 1": lambda o: o.x + 1,
    "x > y": lambda o: o.x > o.y,
    "x ** 2": lambda o: o.x**2,
    "x[::-1] * x[0]": lambda o: o.x[::-1] * o.x[0],
    "wide * 2": lambda o: o.wide * 2,
    "divmod": lambda o: divmod(o.x, o.y),
    "exp, out": lambda o: gi.exp(o.x, out=o.out),
    "digamma of float16": lambda o: gi.digamma(o.half),
    "x.exp()": lambda o: o.x.exp(),
    "x.conj()": lambda o: o.x.conj(),
    "where, out": lambda o: gi.where(o.x, 1.0, o.y, out=o.out),
    "astype": lambda o: o.x.astype("float64"),
    "astype of a view, a type": lambda o: o.wide[::-2].astype(np.int32),
    "astype, a dtype": lambda o: o.whole.astype(o.half.dtype),
    "copy": lambda o: o.x.copy(),
    "copy in memory order": lambda o: o.x.copy(order="K"),
    "copy, columns": lambda o: o.x.copy(order="F"),
    "fill": lambda o: o.out.fill(1),
    "fill, integers": lambda o: o.whole.fill(-1),
    "assignment": lambda o: o.out.__setitem__(Ellipsis, o.x),
    "assignment of an integer": lambda o: o.whole.__setitem__(0, 3),
    "assignment that casts": lambda o: o.wide.__setitem__(..., o.x),
    "assignment that casts, a part": lambda o: o.half.__setitem__(slice(1, 3), o.wide[::-1][:2]),
    "a number into float16": lambda o: o.half.fill(1),
    "a number into bfloat16": lambda o: o.small.fill(1.5),
    "a number into complex": lambda o: o.complex.__setitem__(..., 1),
    "a complex number": lambda o: o.complex.fill(1j),
    "a number into bool": lambda o: o.logical.__setitem__(..., 1),
    "a float into integers": lambda o: o.whole.__setitem__(..., 1.0),
    "float16 + 1": lambda o: o.half + 1,
    "bfloat16 + 1": lambda o: o.small + 1,
    "complex * 1j": lambda o: o.complex * 1j,
    "numpy.exp": lambda o: np.exp(o.x),
    "numpy.add": lambda o: np.add(o.x, 1),
    "numpy.add, out": lambda o: np.add(o.x, o.y, out=o.out),
    "numpy.divmod": lambda o: np.divmod(o.x, o.y),
    "x.sum()": lambda o: o.x.sum(),
    "sum, out": lambda o: gi.sum(o.x, out=o.total),
    "max, keepdims": lambda o: o.x.max((0, 1), keepdims=True),
    "x.mean()": lambda o: o.x.mean(1, out=o.rows),
    "x.argmax()": lambda o: o.x.argmax(axis=1),
    "x.var()": lambda o: o.x.var(ddof=1, keepdims=True),
    "x.sum(dtype=)": lambda o: o.x.sum(axis=0, dtype="float32"),
    "clip": lambda o: gi.clip(o.x, 0, 1),
    "clip, a minimum": lambda o: o.x.clip(o.y),
    "clip of integers": lambda o: o.whole.clip(2, max=5),
    "round": lambda o: o.x.round(2),
    "round, out": lambda o: gi.round(o.wide, -1, out=o.wide),
    "astype, the same": lambda o: o.x.astype("float32", copy=False),
    "astype, columns": lambda o: o.x.astype("float64", "F"),
    "take": lambda o: o.x.take(o.places, axis=0, mode="clip"),
    "take, out": lambda o: gi.take(o.x, o.places, 0, o.out[:2], "wrap"),
    "take of a number": lambda o: o.x[:, ::-1].take(-1, axis=1),
    "take, flat": lambda o: o.x.take(o.places, mode="wrap"),
    "fuse": lambda o: FUSED(o.x, o.y),
    "fuse, numbers and constants": lambda o: FUSED(o.x, o.y, 300, True),
    "fuse, a static number": lambda o: STATIC(o.x, 0.5),
    "fuse, several results": lambda o: SEVERAL(o.x, o.y),
    "fuse, outs": lambda o: SEVERAL(o.x, o.y, out=(o.out, o.more)),
    "fuse, a method": lambda o: MODEL.step(o.x, o.y),
}
MODEL = Model()
PRODUCTS = {
    "a @ b": lambda o: o.a @ o.b,
    "a @ b.T": lambda o: o.a @ o.b.T[::-1],
    "matmul": lambda o: gi.matmul(o.a, o.b, out=o.c.T),
    "matmul, tf32": lambda o: gi.matmul(o.a, o.b, tf32=True),
    "matmul onto itself": lambda o: gi.matmul(o.a, o.b, out=o.a),
    "a.dot": lambda o: o.a.dot(o.b),
    "gemm": lambda o: gi.gemm(o.a, o.b, o.c, alpha=2, beta=0.5),
    "gemm, out": lambda o: gi.gemm(o.a, o.b, o.c, out=o.c),
    "gemm, a row": lambda o: gi.gemm(o.a, o.b, o.v),
    "gemm, nothing": lambda o: gi.gemm(o.a, o.b, o.c, alpha=0),
    "a @ v": lambda o: o.a @ o.v[::-1],
    "v @ a": lambda o: o.v @ o.a,
    "v @ w": lambda o: o.v @ o.w,
    "dot, out": lambda o: gi.dot(o.a, o.v, out=o.w),
    "gemv": lambda o: gi.gemv(o.a, o.v, o.w, alpha=2.0, beta=0.5, out=o.w),
    "ger": lambda o: gi.ger(o.v, o.w, o.a, alpha=0.5, out=o.c),
    "stack @ a": lambda o: o.stack @ o.a,
    "a @ stack": lambda o: o.a @ o.stack,
    "integers": lambda o: o.whole[:, :4] @ o.whole[:, :4],
    "mixed": lambda o: o.whole[:, :4] @ o.wide[:, :4],
}
# Calls that run Python, for the reasons in docs/understand/cost.md.
SLOWER = {
    "clip of integers": (8, lambda o: o.whole.clip(2, max=2**40)),
    "round of integers": (10, lambda o: gi.round(o.whole, -1)),
    "set": (1, lambda o: o.out.set(o.x)),
    "x.item(i)": (1, lambda o: o.x.item(3)),
    "x.item(i, j)": (1, lambda o: o.x.item(3, -1)),
    "float(x)": (2, lambda o: float(o.total)),
    "x.get()": (2, lambda o: o.x.get()),
    "concatenate, dtypes": (24, lambda o: gi.concatenate((o.wide, o.whole), axis=1)),
    "join": (8, lambda o: gi.join(0, o.x, o.y)),
    "ptp": (1, lambda o: o.x.ptp()),
    "norm": (5, lambda o: o.x.norm()),
}


# Index arrays beside slices, on one device: without ints, lists and other libraries' arrays.
AT_INDICES = {
    "x[i]": lambda o: o.x[o.places],
    "x[i, j]": lambda o: o.x[o.places, o.places[::-1]],
    "x[:, i]": lambda o: o.x[:, o.places],
    "x[i, None, 1:]": lambda o: o.x[o.places, None, 1:],
    "x[i] = 1": lambda o: o.out.__setitem__(o.places, 1),
    "x[:, i] = y": lambda o: o.out.__setitem__((slice(None), o.places), o.x[:, :2]),
    "x[mask] = 1": lambda o: o.out.__setitem__(o.logical, 1),
}
EVERYWHERE = {**CALLS, **PRODUCTS, **AT_INDICES}
ONLY_ON_THE_HOST = {
    "v[i]": lambda o: o.v[o.places],
    "x[mask]": lambda o: o.x[o.logical],
    "x[mask] = y": lambda o: o.out.__setitem__(o.logical, o.x[o.logical]),
    "halves": lambda o: gi.gemm(o.half[:, :4], o.half[:, :4], o.half[:, :4], alpha=2),
    "x.sum(dtype=), a cast": lambda o: o.whole.sum(axis=0, dtype=np.float64),
}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_cached_call_runs_no_python_function(device, name):
    assert functions_of(partial(EVERYWHERE[name], Operands(device))) == []


@pytest.mark.driver  # what users pass as host= is Python
@pytest.mark.parametrize("options", [(), ("out",)])
def test_a_cached_kernel_runs_no_python_function(device, options):
    o = Operands(device)
    named = dict.fromkeys(options, o.out)
    assert functions_of(lambda: AXPY(2.0, o.x, **named)) == []


@pytest.mark.parametrize("name", ONLY_ON_THE_HOST)
def test_a_cached_call_on_the_host_runs_no_python_function(name):
    assert functions_of(partial(ONLY_ON_THE_HOST[name], Operands("cpu"))) == []


@pytest.mark.driver
@pytest.mark.parametrize("name", SLOWER)
def test_python_functions_of_other_cached_calls(device, name):
    stated, call = SLOWER[name]
    functions = functions_of(partial(call, Operands(device)))
    # Comprehensions are functions of their own before Python 3.12.
    assert 0 < len(functions) <= stated, functions


@pytest.mark.driver
def test_new_shapes_of_a_product_run_no_python_function(device):
    arrays = [gi.CudaNdarray(np.ones((n, n), "float32"), device=device) for n in range(1, 20)]
    _ = arrays[0] @ arrays[0]
    assert functions_of(lambda: [x @ x for x in arrays]) in ([], ["<listcomp>"])


# ---- every public function ------------------------------------------------------------------------


def signature(name):
    return inspect.signature(getattr(gi, name)).parameters.values()


def is_function(name):
    return not name.startswith("__") and not isinstance(getattr(gi, name), type)


FUNCTIONS = [name for name in gi.__all__ if is_function(name)]
# Those of the table take operands, and the keywords of NumPy's ufuncs; reductions take an array and axes.
OPERATIONS = [
    name for name in FUNCTIONS if [p.name for p in signature(name)][-2:] == ["dtype", "order"]
]
REDUCTIONS = [name for name in FUNCTIONS if [p.name for p in signature(name)][:2] == ["x", "axis"]
              and isinstance(getattr(gi, name), BuiltinFunctionType)]  # fmt: skip
INTEGERS = ("bitwise_", "invert", "left_shift", "right_shift", "gcd")


def of_table(name):
    """A call of an operation on arrays that it accepts."""
    kind = "whole" if name.startswith(INTEGERS) else "x"
    count = sum(p.kind is p.POSITIONAL_ONLY for p in signature(name))
    return lambda o: getattr(gi, name)(*[getattr(o, kind)] * count)


# A call of each public function that a loop would contain.
WARM = {name: of_table(name) for name in OPERATIONS} | {
    "empty": lambda o: gi.empty((2, 3), device=o.place),
    "zeros": lambda o: gi.zeros(64, "int64", device=o.place),
    "ones": lambda o: gi.ones([2, 3], np.float64, device=o.place),
    "full": lambda o: gi.full(4, 2.5, device=o.place),
    "eye": lambda o: gi.eye(3, 4, -1, device=o.place),
    "empty_like": lambda o: gi.empty_like(o.x),
    "zeros_like": lambda o: gi.zeros_like(o.x),
    "ones_like": lambda o: gi.ones_like(o.x, "int32"),
    "full_like": lambda o: gi.full_like(o.x, 3),
    "arange": lambda o: gi.arange(64, device=o.place),
    "linspace": lambda o: gi.linspace(0, 1, 64, device=o.place),
    "astype": lambda o: gi.astype(o.x, np.int32, "F", copy=False),
    "clip": lambda o: gi.clip(o.x, 0, o.y),
    "round": lambda o: gi.round(o.x, 2),
    "concatenate": lambda o: gi.concatenate((o.x, o.y), 1),
    "stack": lambda o: gi.stack([o.x, o.y], axis=-1),
    "take": lambda o: gi.take(o.x, o.places, 0, mode="clip"),
    "sort": lambda o: gi.sort(o.x),
    "argsort": lambda o: gi.argsort(o.x, -1),
    "cumsum": lambda o: gi.cumsum(o.x, axis=1),
    "cumprod": lambda o: gi.cumprod(o.x),
    "cumulative_sum": lambda o: gi.cumulative_sum(o.x, axis=0),
    "cumulative_prod": lambda o: gi.cumulative_prod(o.v),
    "searchsorted": lambda o: gi.searchsorted(o.v, o.w),
    "dot": lambda o: gi.dot(o.a, o.b),
    "matmul": lambda o: gi.matmul(o.a, o.b),
    "inner": lambda o: gi.inner(o.v, o.w),
    "vdot": lambda o: gi.vdot(o.v, o.w),
    "gemm": lambda o: gi.gemm(o.a, o.b, o.c),
    "gemv": lambda o: gi.gemv(o.a, o.v, o.w),
    "ger": lambda o: gi.ger(o.v, o.w, o.a),
    "addmm": lambda o: gi.addmm(o.c, o.a, o.b),
    **{name: lambda o, name=name: getattr(gi, name)(o.x, axis=0) for name in REDUCTIONS},
}  # fmt: skip
VIEW = "it returns a view, and calls the method of the array"
WAITS = "the host waits for a number that the device computes"
MANY = "it consists of several calls"
ONCE = "programs call it once, not in a loop"
ANSWERS = "it answers in words, or changes a setting"
OF_NAMES = [n for n in FUNCTIONS if getattr(gi, n).__module__ == "gpuinterop.numpy_api.names"]
IN_PYTHON = {
    "array asarray from_gpu_pointer": "they read values, or memory, of any kind",
    "broadcast_to dimshuffle split": VIEW,
    "argwhere compress flatnonzero nonzero allclose": WAITS,
    "join norm put put_along_axis repeat take_along_axis reduce_sum": MANY,
    "copy_async pinned_empty": "the transfer takes longer than its call",
    "default_device device devices empty_cache mem_info memory_stats synchronize stream": ANSWERS,
    "draw explain may_share_memory shares_memory doctor show_config allow_tf32 product_precision": ANSWERS,
    "set_product_precision": ANSWERS,
    "count_copies downloads log_transfers no_copies": ANSWERS,
    " ".join(OF_NAMES): "NumPy's function dispatches, and most return views",
    "broadcast_shapes can_cast finfo iinfo isdtype result_type": ANSWERS,
    "fuse strided capture share shared_empty": ONCE,
    "argpartition partition isin": MANY,
    "unique unique_all unique_counts unique_inverse unique_values": WAITS,
    "via": "the function of the other library is called by its own means",
    "from_any from_dlpack to": "plain objects without Python: tests/exchange/test_calls_without_python.py",
    "cudamat_to_cudandarray cudandarray_to_cudamat cudandarray_to_garray garray_to_cudandarray "
    "to_cudandarray to_gpuarray": "converters of old libraries, of which some consist of Python",
}  # fmt: skip


def test_each_public_function_is_warm_or_has_a_reason():
    reasons = " ".join(IN_PYTHON).split()
    assert sorted({*WARM, *reasons}) == sorted(FUNCTIONS)
    assert len(reasons) == len(set(reasons))
    assert not {*WARM}.intersection(reasons)


@pytest.mark.parametrize("name", WARM)
def test_a_warm_call_of_a_public_function_runs_no_python_of_the_package(device, name):
    operands = Operands(device)
    for operands.place in (device, gi.device(device).type, gi.device(device)):
        assert functions_of(partial(WARM[name], operands), PACKAGE) == []


# Functions of NumPy that the core carries out.
OF_NUMPY = {
    "concatenate": lambda o: np.concatenate([o.x, o.y]),
    "stack": lambda o: np.stack((o.x, o.y), axis=1),
    "roll": lambda o: np.roll(o.x, 1),
    "roll, an axis": lambda o: np.roll(o.x, -7, axis=-1),
    "round": lambda o: np.round(o.x, 1),
    "take": lambda o: np.take(o.x, o.places, axis=1),
    "where": lambda o: np.where(o.x, o.x, o.y),
    "sum": lambda o: np.sum(o.x, axis=0),
    "amax": lambda o: np.amax(o.x),
    "dot": lambda o: np.dot(o.a, o.b),
    "matmul": lambda o: np.matmul(o.a, o.b),
}


@pytest.mark.parametrize("name", OF_NUMPY)
def test_a_warm_function_of_numpy_runs_no_python_of_the_package(device, name):
    operands = Operands(device)
    assert functions_of(partial(OF_NUMPY[name], operands), PACKAGE) == []
    on_host = Operands("cpu")
    for one in vars(on_host):
        setattr(on_host, one, np.asarray(getattr(on_host, one)))
    np.testing.assert_allclose(OF_NUMPY[name](operands).get(), OF_NUMPY[name](on_host), rtol=1e-6)


# Functions whose usual calls NumPy's function of the same name carries out: views on any device, the others on "cpu".
VIEWS = {
    "flip": lambda m, o: m.flip(o.x, axis=1),
    "fliplr, flipud": lambda m, o: m.fliplr(m.flipud(o.x)),
    "rot90": lambda m, o: m.rot90(o.x, 3),
    "moveaxis": lambda m, o: m.moveaxis(o.stack, 0, -1),
    "rollaxis": lambda m, o: m.rollaxis(o.stack, 2),
    "swapaxes": lambda m, o: m.swapaxes(o.x, 0, 1),
    "transpose": lambda m, o: m.transpose(o.x[::-1], (1, 0)),
    "matrix_transpose": lambda m, o: m.matrix_transpose(o.stack),
    "squeeze": lambda m, o: m.squeeze(o.x[:1, 1:], axis=0),
    "expand_dims": lambda m, o: m.expand_dims(o.x, (0, -1)),
    "atleast_1d": lambda m, o: m.atleast_1d(o.total),
    "atleast_3d": lambda m, o: m.atleast_3d(o.x),
    "array_split": lambda m, o: m.array_split(o.x, 2, axis=1),
    "vsplit": lambda m, o: m.vsplit(o.x, [1, 3]),
    "unstack": lambda m, o: m.unstack(o.x, axis=1),
    "real": lambda m, o: m.real(o.x),
    "imag": lambda m, o: m.imag(o.complex),
    "reshape": lambda m, o: m.reshape(o.x, (-1, 2)),
    "ravel": lambda m, o: m.ravel(o.x),
    "diagonal": lambda m, o: m.diagonal(o.x, 1),
    "diagonal, a method": lambda m, o: o.x.diagonal(-1, 1, 0),
}
# By NumPy on "cpu", by one plan on a GPU.
ON_BOTH = {
    "cumsum, a method": lambda m, o: o.x.cumsum(1, None),
    "cumprod, a method": lambda m, o: o.x.cumprod(axis=0),
    "searchsorted, a method": lambda m, o: o.v.searchsorted(o.w),
    "cumsum": lambda m, o: m.cumsum(o.x, 1),
    "cumsum of all": lambda m, o: m.cumsum(o.x),
    "cumsum in a dtype": lambda m, o: m.cumsum(o.whole, 0, dtype="float64"),
    "cumsum of bools": lambda m, o: m.cumsum(o.logical, axis=0),
    "cumprod": lambda m, o: m.cumprod(o.complex, axis=1),
    "cumulative_sum": lambda m, o: m.cumulative_sum(o.v, axis=0),
    "cumulative_prod": lambda m, o: m.cumulative_prod(o.v),
    "searchsorted": lambda m, o: m.searchsorted(o.v, o.w, side="right"),
    "searchsorted from the left": lambda m, o: m.searchsorted(o.v, o.w),
    "sort": lambda m, o: m.sort(o.x),
    "sort of integers": lambda m, o: m.sort(o.whole, -1),
    "sort of all": lambda m, o: m.sort(o.x, axis=None),
    "argsort": lambda m, o: m.argsort(o.x),
    "meshgrid": lambda m, o: m.meshgrid(o.v, o.w),
    "meshgrid of three": lambda m, o: m.meshgrid(o.v, o.logical[0], o.x[:, 1]),
    "meshgrid of one": lambda m, o: m.meshgrid(o.v[::-1]),
}
ON_THE_HOST = {
    "sort": lambda m, o: m.sort(o.x, axis=0),
    "sort, the defaults": lambda m, o: m.sort(o.x, kind="stable", order=None, axis=-1),
    "argsort, a method": lambda m, o: o.x.argsort(axis=0, stable=None),
    "partition": lambda m, o: m.partition(o.x, 1, 0)[1],
    "argpartition": lambda m, o: m.argpartition(o.v, -1)[-1:],
    "unique_all": lambda m, o: m.unique_all(o.whole).inverse_indices,
    "isin": lambda m, o: m.isin(o.whole, o.whole[1:2]),
    "unique": lambda m, o: m.unique(o.whole, return_counts=True),
    "unique_counts": lambda m, o: m.unique_counts(o.logical).counts,
    "argwhere": lambda m, o: m.argwhere(o.logical),
    "flatnonzero": lambda m, o: m.flatnonzero(o.x),
    "take_along_axis": lambda m, o: m.take_along_axis(o.v, o.places, 0),
    "compress": lambda m, o: m.compress(o.logical[0], o.x, axis=1),
    "hstack": lambda m, o: m.hstack([o.x, o.y]),
    "vstack": lambda m, o: m.vstack((o.v, o.w)),
    "dstack": lambda m, o: m.dstack([o.x, o.y]),
    "column_stack": lambda m, o: m.column_stack([o.v, o.w]),
    "append": lambda m, o: m.append(o.x, o.y, axis=0),
    "pad": lambda m, o: m.pad(o.x, (1, 2)),
    "tril": lambda m, o: m.tril(o.x, -1),
    "triu": lambda m, o: m.triu(o.wide),
    "outer": lambda m, o: m.outer(o.v, o.w),
    "tensordot of matrices": lambda m, o: m.tensordot(o.a, o.b, 1),
    "einsum of matrices": lambda m, o: m.einsum("ij,jk->ik", o.a, o.b, optimize=True),
    "vecdot": lambda m, o: m.vecdot(o.whole, o.whole),
    "fft": lambda m, o: m.fft.rfft(o.x, 7, axis=0),
    "ifft2": lambda m, o: m.fft.ifft2(o.complex),
    "solve": lambda m, o: m.linalg.solve(o.regular, o.v),
    "eigh": lambda m, o: m.linalg.eigh(o.a @ o.a.T),
    "det": lambda m, o: m.linalg.det(o.stack),
}  # fmt: skip


def on_both(device):
    """Arrays on a device, and the same values in NumPy's arrays."""
    arrays, on_host = Operands(device), Operands("cpu")
    arrays.total.fill(3)
    on_host.total.fill(3)
    arrays.regular = gi.CudaNdarray(np.eye(4, dtype="float32") + HOST[:, :4] / 8, device=device)
    on_host.regular = arrays.regular.get()
    for one in vars(on_host):
        setattr(on_host, one, np.asarray(getattr(on_host, one)))
    return arrays, on_host


def in_a_list(found):
    return list(found) if isinstance(found, (list, tuple)) else [found]


@pytest.mark.parametrize("name", VIEWS)
def test_a_warm_view_by_numpy_runs_no_python_of_the_package(device, name):
    arrays, on_host = on_both(device)
    of = {
        "moveaxis": "stack",
        "rollaxis": "stack",
        "matrix_transpose": "stack",
        "atleast_1d": "total",
    }
    source = getattr(arrays, "complex" if name == "imag" else of.get(name, "x"))
    for module in (gi, np):
        assert functions_of(partial(VIEWS[name], module, arrays), PACKAGE) == []
        found, expected = (in_a_list(VIEWS[name](*g)) for g in ((module, arrays), (np, on_host)))
        assert type(VIEWS[name](module, arrays)) is not np.ndarray
        for one, wanted in zip(found, expected, strict=True):
            assert gi.shares_memory(one, source)
            assert type(one) is (gi.GpuArray if name == "imag" else gi.CudaNdarray)
            np.testing.assert_array_equal(one.get(), wanted, strict=True)


def require_warm(call, device):
    arrays, on_host = on_both(device)
    for module in (gi, np):
        assert functions_of(partial(call, module, arrays), PACKAGE) == []
        found, expected = (in_a_list(call(*g)) for g in ((module, arrays), (np, on_host)))
        for one, wanted in zip(found, expected, strict=True):
            assert one.device == arrays.x.device
            assert not gi.shares_memory(one, arrays.x)
            assert type(one) in (gi.CudaNdarray, gi.GpuArray)
            assert (type(one) is gi.CudaNdarray) == (wanted.dtype == np.float32)
            np.testing.assert_array_equal(one.get(), np.asarray(wanted), strict=True)


@pytest.mark.parametrize("name", ON_THE_HOST)
def test_a_warm_call_by_numpy_runs_no_python_of_the_package(name):
    require_warm(ON_THE_HOST[name], "cpu")


@pytest.mark.parametrize("name", ON_BOTH)
def test_a_warm_call_by_numpy_or_a_plan_runs_no_python_of_the_package(device, name):
    require_warm(ON_BOTH[name], device)


@pytest.mark.parametrize("logarithm", [False, True])
def test_a_warm_softmax_of_rows_runs_no_python_of_the_package(device, logarithm):
    x = gi.GpuArray(np.arange(200, dtype="float32").reshape(4, 50) / 9, device=device)
    softmax = gi.log_softmax if logarithm else gi.softmax
    exact = x.get().astype("float64")
    expected = exact - np.log(np.exp(exact).sum(-1, keepdims=True))
    for args in ((), (-1,), (1,)):
        assert functions_of(lambda args=args: softmax(x, *args), PACKAGE) == []
        wanted = expected if logarithm else np.exp(expected)
        np.testing.assert_allclose(softmax(x, *args).get(), wanted, rtol=1e-5, atol=1e-6)


def test_plans_of_functions_distinguish_their_arguments(device):
    host = np.arange(24, dtype="int32").reshape(4, 6) % 5 - 2
    x, few = (gi.GpuArray(h, device=device) for h in (host, host[0].copy()))
    few.sort()
    for _ in range(2):
        for axis in (0, 1, -1, None):
            for dtype in (None, "int64", np.int16, "float64", float):
                for y, h in ((x, host), (x.T, host.T), (x[::2], host[::2]), (x[:0], host[:0])):
                    found = gi.cumsum(y, axis, dtype)
                    np.testing.assert_array_equal(
                        found.get(), np.cumsum(h, axis, dtype), strict=True
                    )
                    out = gi.GpuArray(np.zeros_like(found.get()), device=device)
                    assert gi.cumsum(y, axis, dtype, out) is out
                    np.testing.assert_array_equal(out.get(), found.get())
        for axis in (2, -3, 1.5, True, "0", [0]):
            with pytest.raises((gi.AxisError, TypeError), match="cumsum"):
                gi.cumsum(x, axis)
        for axis in (0, 1, -1, None):
            for y, h in (
                (x, host),
                (x.T, host.T),
                (x[:0], host[:0]),
                (x.astype("complex64"), host),
            ):
                np.testing.assert_array_equal(gi.sort(y, axis).get(), np.sort(h, axis))
                found = gi.sort(y, axis, descending=True).get()
                np.testing.assert_array_equal(found, -np.sort(-h, axis))
                places = np.argsort(h, axis, kind="stable")
                np.testing.assert_array_equal(gi.argsort(y, axis).get(), places, strict=True)
        for side in ("left", "right"):
            for v in (x, x.T, x[0], x.astype("float64"), x[:0], 1, [0, 3]):
                found = gi.searchsorted(few, v, side)
                values = v.get() if isinstance(v, gi.GpuArray) else v
                np.testing.assert_array_equal(found.get(), np.searchsorted(few.get(), values, side))
        with pytest.raises(gi.ArgumentTypeError, match="side"):
            gi.searchsorted(few, x, "middle")
        with pytest.raises(gi.ShapeError, match="one axis"):
            gi.searchsorted(x, x)
        with pytest.raises(gi.ShapeError, match="axis="):
            gi.cumulative_sum(x)


def test_calls_that_numpy_does_not_carry_out_are_pythons():
    x = gi.CudaNdarray(HOST, device="cpu")
    np.testing.assert_array_equal(gi.sort(x.T, axis=0).get(), HOST.T)
    assert gi.sort(x.T, axis=0).flags.c_contiguous
    assert gi.sort(x, descending=True)[0, 0].item() == HOST[0, -1]
    assert gi.sort(x.astype("float16")).dtype == np.float16
    with gi.count_copies() as seen:
        gi.sort(x)
    assert seen.count == 0
    with pytest.raises(gi.AxisError, match="sort"):
        gi.sort(x, axis=2)
    for y in (x, x.T):  # a CudaNdarray has sums of float32 alone
        with pytest.raises(gi.DTypeError, match="trace"):
            y.trace(dtype="float64")
    row = gi.GpuArray(HOST[0], device="cpu")
    for mixed in (gi.einsum("i,->i", row, 2), gi.einsum("i,i->i", row, [2] * row.size)):
        np.testing.assert_array_equal(mixed.get(), 2 * HOST[0])
    with pytest.raises(TypeError, match="expected integer indices"):
        gi.take(x, [1.5])
    with pytest.raises(gi.DTypeError, match="append"):
        gi.append(x, gi.GpuArray([1.0], device="cpu", dtype="float64"))
    with pytest.raises(gi.CaptureError):
        gi.capture(lambda x: gi.unique(x), x)
    graph = gi.capture(lambda x: gi.cumsum(x, 1), x)
    x.fill(2)
    np.testing.assert_array_equal(graph(x).get()[0], [2, 4, 6, 8, 10])


# A cached call must not be served by the entry of another one.


def test_cached_calls_distinguish_arguments(device):
    fused = gi.fuse(lambda x, n: x / n)
    x, y = (gi.GpuArray(np.ones(1, t), device=device) for t in ("float32", "float64"))
    strict = gi.CudaNdarray(np.ones(1, np.float32), device=device)
    zero, matrix = (gi.GpuArray(v, device=device) for v in (np.ones(1, "int32"), np.ones((1, 1))))
    with np.errstate(all="ignore"):
        for _ in range(2 if FAKE else 4):
            for n in (1, 1.0, True, -0.0, 0.0, 1000):
                for one in (x, y, strict, zero, matrix):
                    found, expected = fused(one, n), one / n
                    assert (type(found), found.dtype) == (type(expected), expected.dtype)
                    assert found.get().tobytes() == expected.get().tobytes()
                    assert found.shape == one.shape


def test_round_and_astype_distinguish_their_arguments(device):
    x, n = (gi.GpuArray(HOST / 8, dtype=d, device=device) for d in ("float64", "int32"))
    for decimals in (1, 2, 0, -1, 1):
        for array in (x, n):
            np.testing.assert_array_equal(
                array.round(decimals).get(), np.round(array.get(), decimals)
            )
    for dtype in ("int16", np.float32, np.dtype("bool"), float, "int16", "float64"):
        np.testing.assert_array_equal(x.astype(dtype).get(), x.get().astype(dtype), strict=True)
        assert (x.astype(dtype, copy=False) is x) == (np.dtype(dtype) == x.dtype)
        assert x.astype(dtype, "F").flags.f_contiguous
    with pytest.raises(gi.ShapeError):
        x.astype("float64", "Z", copy=False)


def test_numbers_are_checked_in_every_call(device):
    x, n = (gi.GpuArray(HOST, dtype=d, device=device) for d in ("float32", "int8"))
    scale = gi.ElementwiseKernel("float32 a, int8 n, float32 x", "float32 z", "z = a * x + n", "scale",
                                 host=lambda a, n, x: a * x + n)  # fmt: skip
    for _ in range(3):
        x.fill(2.5)
        n.fill(-3)
        assert (x[0, 0].item(), n[0, 0].item(), scale(2.0, 3, x)[0, 0].item()) == (2.5, -3, 8)
        for array, value in [(x, 1e300), (n, 200), (n, -129), (n, 2**70)]:
            with pytest.raises(gi.DTypeError) as caught:
                array.fill(value)
            assert caught.value.where == "fill"
        for bad in [(1e39, 3), (2.0, 300), (2.0, 10**400)]:
            with pytest.raises(gi.DTypeError, match="scale, parameter"):
                scale(*bad, x)
        for wrong in (lambda: scale(1.0, x), lambda: gi.where(x), lambda: gi.clip(x, mni=1),
                      lambda: x.clip(1, 2, None, 4), lambda: x.copy("C", "F"), lambda: x.exp(1)):  # fmt: skip
            with pytest.raises(TypeError):
                wrong()
        with pytest.raises(gi.ReadOnlyError):
            x[:1].broadcast_to(x.shape).fill(1.0)


def test_cached_copies_are_reported(device):
    x = gi.CudaNdarray(HOST, device=device)
    for _ in range(3):
        with gi.count_copies() as seen:
            x.copy()
        assert seen.count == 1
        with gi.no_copies():
            x.astype("float64")
            gi.concatenate([x, x])
            gi.negative(x[:, :4:2], out=x[:, 1:4:2])  # beside the operand's elements, not over them
            gi.add(x, 1, out=x)
            with pytest.raises(gi.CopyForbiddenError, match="copy"):
                x.copy()


def test_prepared_functions_distinguish_their_arguments(device):
    host = np.arange(16, dtype="float32").reshape(4, 4)
    x = gi.GpuArray(host, device=device)
    for _ in range(2):
        pairs = [[1], [0]]
        for axes in (0, 1, 2, ([1], [0]), ((0, 1), (1, 0)), [[0], [0]], [(1,), (1,)], pairs):
            np.testing.assert_array_equal(
                gi.tensordot(x, x, axes).get(), np.tensordot(host, host, axes)
            )
        pairs[1][0] = 1
        np.testing.assert_array_equal(
            gi.tensordot(x, x, pairs).get(), np.tensordot(host, host, pairs)
        )
        for widths in (0, 2, (1, 2), (3,), ((0, 1), (2, 0)), [(0, 1), (2, 0)], [1, 2]):
            for mode in ("constant", "edge", "wrap"):
                np.testing.assert_array_equal(
                    gi.pad(x, widths, mode).get(), np.pad(host, widths, mode)
                )
        for k in (0, 1, -1, 9, np.int64(1)):
            np.testing.assert_array_equal(gi.tril(x, k).get(), np.tril(host, k))
            np.testing.assert_array_equal(gi.diag(x[1], k).get(), np.diag(host[1], k))
        with pytest.raises(gi.ShapeError):
            gi.tensordot(x, x[:3], 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: gi.tril(x, 1), lambda x: gi.pad(x, 1), lambda x: gi.diff(x), lambda x: gi.vecdot(x, x),
        lambda x: gi.einsum("ij,kj->ik", x, x), lambda x: gi.average(x[0], weights=x[1]), lambda x: gi.kron(x, x),
    ],
)  # fmt: skip
def test_prepared_functions_are_recorded_and_keep_classes(call):
    class Special(gi.GpuArray):
        pass

    x = gi.GpuArray(np.eye(3) + 1, "float64", device="cpu")
    expected = call(x)
    assert type(call(Special(x.get(), "float64", device="cpu"))) is Special
    captured = gi.capture(call, x)
    x *= 2
    np.testing.assert_array_equal(captured().get(), call(x).get())
    assert (call(x).get() != expected.get()).any()
