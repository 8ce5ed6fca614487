"""Operations on "cpu" need no more memory than NumPy's: no arrays in between."""

import json

import pytest
from doubles import driver
from doubles.fake_driver import built

PROGRAM = """
import copy, ctypes, json, pickle, warnings
import ml_dtypes
import numpy as np
import gpuinterop as gi

warnings.simplefilter("ignore")  # no element is selected
heap = ctypes.CDLL(None)  # with doubles/heap
heap.heap_start.restype = heap.heap_highest.restype = ctypes.c_long

def peak(call):
    call()  # once, for what is kept: programs, NumPy's buffers
    before = heap.heap_start()
    result = call()
    return heap.heap_highest() - before

n = 1 << 18
f = np.random.default_rng(0).random((64, n // 64), "float32")
u, d, k, m = f.astype("uint8"), f.astype("float64"), f.astype("int32"), f > 0.5
U, F, D, K, M = (gi.GpuArray(value, device="cpu") for value in (u, f, d, k, m))
below = (64 * f).astype("int64")
places, counts = below.ravel(), below.ravel() % 3
P, B, C = (gi.GpuArray(value, device="cpu") for value in (places, below, counts))
places_of_rows, places_in_rows = (v.copy() for v in np.broadcast_arrays(*np.ogrid[:64, : n // 64]))
w, mw = f.reshape(2, -1), m.reshape(2, -1)
W, MW = (gi.GpuArray(value, device="cpu") for value in (w, mw))
selected, swapped = d[m], f.astype(">f4")
imaginary = 1j * f
SELECTED, IMAGINARY = gi.GpuArray(selected, device="cpu"), gi.GpuArray(imaginary, device="cpu")
stack, number, line = f.reshape(-1, 32, 32)[:32], np.asarray(np.float32(1)), w[0].copy()
dots = np.dot(stack, stack)
outer, square = w[:, :512].copy(), np.zeros((512, 512), "float32")
TALL = F.reshape(-1, 64)
STACK, NUMBER, LINE, DOTS, OUTER, SQUARE = (
    gi.GpuArray(value, device="cpu") for value in (stack, number, line, dots, outer, square))
half, wide, some = outer.astype("f2"), square.astype("f2"), below.reshape(-1, 32, 32)
brain = f.astype(ml_dtypes.bfloat16)
BRAIN = gi.GpuArray(brain, device="cpu")
HALF, WIDE, SOME = (gi.GpuArray(value, device="cpu") for value in (half, wide, some))
PRODUCT, HALVES = (gi.capture(lambda x: x @ x.T, x) for x in (F, HALF))
fused = gi.fuse(lambda x, y: gi.tanh(x * y + x))
kernel = gi.ElementwiseKernel("T a, T x, T y", "T z", "z = a * x + y", host=lambda a, x, y: a * x + y)

def buffers(x):
    found = []
    return pickle.dumps(x, 5, buffer_callback=found.append), found

def pickles(name, dump):
    texts = [dump(x) for x in (F, f)]
    PAIRS[f"dumps {name}"] = lambda: dump(F), lambda: dump(f)
    PAIRS[f"loads {name}"] = tuple((lambda t=t: pickle.loads(t[0], buffers=t[1])) for t in texts)

h = f.astype(ml_dtypes.bfloat16)
H = gi.GpuArray(h, device="cpu")

PAIRS = {
    "sum of another dtype": (lambda: U.sum(axis=1, dtype="float64"), lambda: u.sum(axis=1, dtype="float64")),
    "sum": (lambda: F.sum(axis=0), lambda: f.sum(axis=0)),
    "mean": (lambda: F.mean(), lambda: f.mean()),
    "var": (lambda: F.var(axis=0), lambda: f.var(axis=0)),
    "norm": (lambda: F.norm(), lambda: np.linalg.norm(f)),
    "sum of selected elements of two rows": (lambda: W.sum(0, where=MW), lambda: w.sum(0, where=mw)),
    "sum of selected elements and out=": (
        lambda: W.sum(0, where=MW, initial=1, out=LINE), lambda: w.sum(0, where=mw, initial=1, out=line)),
    "sum with initial= and out=": (lambda: W.sum(0, initial=1, out=LINE), lambda: w.sum(0, initial=1, out=line)),
    "mean of selected elements and out=": (
        lambda: W.mean(0, where=MW, out=LINE), lambda: w.mean(0, where=mw, out=line)),
    "var of selected elements of two rows": (lambda: W.var(0, where=MW), lambda: w.var(0, where=mw)),
    "std of selected elements and out=": (
        lambda: W.std(0, where=MW, out=LINE), lambda: w.std(0, where=mw, out=line)),
    "ptp and out=": (lambda: np.ptp(W, 0, out=LINE), lambda: np.ptp(w, 0, out=line)),
    "nanmin of two rows": (lambda: np.nanmin(W, 0), lambda: np.nanmin(w, 0)),
    "nanmax of two rows and out=": (
        lambda: np.nanmax(W, 0, out=LINE), lambda: np.nanmax(w, 0, out=line)),
    "any": (lambda: F.any(), lambda: f.any()),
    "count_nonzero": (lambda: np.count_nonzero(F), lambda: np.count_nonzero(f)),
    "count_nonzero of rows": (lambda: np.count_nonzero(F, 1), lambda: np.count_nonzero(f, 1)),
    "sum of selected elements": (lambda: F.sum(where=M), lambda: f.sum(where=m)),
    "mean of selected elements": (lambda: F.mean(where=M), lambda: f.mean(where=m)),
    "astype": (lambda: U.astype("float64"), lambda: u.astype("float64")),
    "add of two dtypes": (lambda: K + F, lambda: k + f),
    "add into float32": (lambda: gi.add(F, U, out=F), lambda: np.add(f, u, out=f)),
    "where": (lambda: gi.where(M, F, D), lambda: np.where(m, f, d)),
    "clip": (lambda: gi.clip(F, 0.2, 0.7), lambda: np.clip(f, 0.2, 0.7)),
    "clip of another dtype": (lambda: np.clip(F, 0, 1, dtype="float64"), lambda: np.clip(f, 0, 1, dtype="float64")),
    "clip of another dtype and out=": (
        lambda: np.clip(F, 0, 1, D, dtype="float64"), lambda: np.clip(f, 0, 1, d, dtype="float64")),
    "round": (lambda: F.round(2), lambda: f.round(2)),
    "round and out=": (lambda: gi.round(F, 2, F), lambda: np.round(f, 2, f)),
    "round and out= of another dtype": (lambda: gi.round(F, 2, D), lambda: np.round(f, 2, d)),
    "assignment of another dtype": (lambda: D.__setitem__(..., F), lambda: d.__setitem__(..., f)),
    "copyto": (lambda: np.copyto(D, F, where=M), lambda: np.copyto(d, f, where=m)),
    "array of another dtype": (lambda: gi.GpuArray(u, "float64", "cpu"), lambda: np.array(u, "float64")),
    "dtype=": (lambda: gi.add(F, K, dtype="float64"), lambda: np.add(f, k, dtype="float64")),
    "dtype= and out=": (lambda: gi.add(F, K, dtype="float64", out=D), lambda: np.add(f, k, dtype="float64", out=d)),
    "dtype= of one operand": (lambda: gi.exp(F, dtype="float64"), lambda: np.exp(f, dtype="float64")),
    "power of another dtype": (lambda: gi.power(U, 2, dtype="int64"), lambda: np.power(u, 2, dtype="int64")),
    "concatenate": (lambda: gi.concatenate([F, D]), lambda: np.concatenate([f, d])),
    "concatenate flattened": (lambda: gi.concatenate([F, F.T], None), lambda: np.concatenate([f, f.T], None)),
    "roll": (lambda: np.roll(F, 3), lambda: np.roll(f, 3)),
    "roll along two axes": (lambda: np.roll(F, 3, (0, 1)), lambda: np.roll(f, 3, (0, 1))),
    "repeat": (lambda: gi.repeat(F, 2), lambda: np.repeat(f, 2)),
    "product with a vector": (lambda: D @ D[0], lambda: d @ d[0]),
    "vdot of complex numbers": (
        lambda: gi.vdot(IMAGINARY, IMAGINARY), lambda: np.vdot(imaginary, imaginary)),
    "product with a column": (lambda: W.T @ W[:, 0], lambda: w.T @ w[:, 0]),
    "product of matrices": (
        lambda: F.T[:512] @ F[:, :512], lambda: np.matmul(f.T[:512], f[:, :512], out=np.empty((512, 512), "f4"))),
    "dot of stacks of matrices": (lambda: gi.dot(STACK, STACK), lambda: np.dot(stack, stack)),
    "dot of stacks of matrices and out=": (
        lambda: gi.dot(STACK, STACK, out=DOTS), lambda: np.dot(stack, stack, out=dots)),
    "inner of stacks of matrices": (lambda: gi.inner(STACK, STACK), lambda: np.inner(stack, stack)),
    "dot of a number and out=": (lambda: gi.dot(F, NUMBER, out=F), lambda: np.dot(f, number, out=f)),
    "gemm": (lambda: gi.gemm(OUTER.T, OUTER, SQUARE, alpha=2.0, beta=0.5),
             lambda: 2 * (outer.T @ outer) + 0.5 * square),
    "gemm and out=": (lambda: gi.gemm(OUTER.T, OUTER, alpha=2.0, out=SQUARE),
                      lambda: np.matmul(outer.T, outer, out=square)),
    "addmm and out=": (lambda: gi.addmm(SQUARE, OUTER.T, OUTER, beta=0.5, out=SQUARE),
                       lambda: np.add(outer.T @ outer, 0.5 * square, out=square)),
    "product of halves": (lambda: HALF @ HALF.T, lambda: half @ half.T),
    "gemm of halves": (lambda: gi.gemm(HALF.T, HALF, WIDE, alpha=2.0, beta=0.5),
                       lambda: 2 * (half.T @ half) + 0.5 * wide),
    "gemm of halves and out=": (lambda: gi.gemm(HALF.T, HALF, WIDE, beta=0.5, out=WIDE),
                                lambda: np.add(half.T @ half, 0.5 * wide, out=wide)),
    "gemm of bfloat16": (lambda: gi.gemm(H.T[:512], H[:, :512], alpha=2.0), lambda: np.empty((512, 512), "f2")),
    "product of stacks": (lambda: STACK @ STACK[0], lambda: np.matmul(stack, stack[0])),
    "gemm of stacks of integers": (lambda: gi.gemm(SOME, SOME, SOME[0]), lambda: some @ some + some[0]),
    "gemv of rows with gaps": (lambda: gi.gemv(F[:, ::2], F[0, ::2], LINE[:64], alpha=2.0),
                               lambda: 2 * (f[:, ::2] @ f[0, ::2]) + line[:64]),
    "replay of a product": (PRODUCT, lambda: f @ f.T),
    "replay of a product of halves": (HALVES, lambda: half @ half.T),
    "fused function": (lambda: fused(F, F), lambda: np.tanh(f * f)),
    "ElementwiseKernel": (lambda: kernel(2, F, F[0]), lambda: np.add(f, f)),
    "ElementwiseKernel and out=": (lambda: kernel(2, D, D, out=D), lambda: np.add(d, d, out=d)),
    **{name: (lambda function=getattr(gi, name): function(F), lambda: np.exp(f))
       for name in ("digamma", "erf", "erfc", "erfinv", "gamma", "lgamma", "rsqrt", "sigmoid", "softplus")},
    "max of selected elements": (lambda: F.max(where=M, initial=0), lambda: f.max(where=m, initial=0)),
    "nonzero of many columns": (lambda: gi.nonzero(F.reshape(1024, -1)), lambda: np.nonzero(f.reshape(1024, -1))),
    "nonzero": (lambda: gi.nonzero(F), lambda: np.nonzero(f)),
    "flatnonzero": (lambda: gi.flatnonzero(M), lambda: np.flatnonzero(m)),
    "nonzero of bfloat16": (lambda: gi.nonzero(BRAIN), lambda: np.nonzero(brain)),
    "selection": (lambda: F[M], lambda: f[m]),
    "assignment to selected elements": (lambda: F.__setitem__(M, 1), lambda: f.__setitem__(m, 1)),
    "compress": (lambda: gi.compress(m[0], F, axis=1), lambda: np.compress(m[0], f, axis=1)),
    "index arrays": (lambda: F[B, B], lambda: f[below, below]),
    "take": (lambda: gi.take(F, P), lambda: np.take(f, places)),
    "small indices": (lambda: F.ravel()[U], lambda: f.ravel()[u]),
    "take, clip": (lambda: gi.take(F, B, mode="clip"), lambda: np.take(f, below, mode="clip")),
    "take, wrap": (lambda: gi.take(F, B, mode="wrap"), lambda: np.take(f, below, mode="wrap")),
    "take from columns, clip": (
        lambda: gi.take(F.T, B, mode="clip"), lambda: np.take(f.T, below, mode="clip")),
    "take from columns, wrap": (
        lambda: gi.take(F.T, B, mode="wrap"), lambda: np.take(f.T, below, mode="wrap")),
    "take_along_axis": (lambda: gi.take_along_axis(F, B, 0), lambda: np.take_along_axis(f, below, 0)),
    "take_along_axis of the longest": (
        lambda: gi.take_along_axis(F.T, P[:4096, None], 0), lambda: np.empty((4096, 64), "f4")),
    "rows": (lambda: TALL[P[:4096]], lambda: np.empty((4096, 64), "f4")),
    "columns of a transpose": (lambda: F[:, P[:4096]], lambda: np.empty((64, 4096), "f4")),
    "columns": (lambda: TALL[:, B[0, :64]], lambda: np.empty((4096, 64), "f4")),
    "several arrays": (lambda: TALL[P[:4096], P[4096:8192]], lambda: np.empty(4096, "f4")),
    "transposed mask": (lambda: F.T[M.T], lambda: f[m]),
    "assignment to rows": (lambda: TALL.__setitem__(P[:4096], TALL[0]), lambda: None),
    "values for selected elements": (lambda: D.__setitem__(M, SELECTED), lambda: None),
    "put": (lambda: gi.put(F, B, 3), lambda: np.put(f, below, 3)),
    "put, clip": (lambda: gi.put(F, B, 3, mode="clip"), lambda: np.put(f, below, 3, mode="clip")),
    "repeat with counts": (lambda: gi.repeat(F, C), lambda: np.repeat(f, counts)),
    "repeat rows": (lambda: gi.repeat(F, range(64), 0), lambda: np.repeat(f, range(64), 0)),
    "stack": (lambda: gi.stack([F, D], axis=2), lambda: np.stack([f, d], axis=2)),
    "tile": (lambda: np.tile(F, 2), lambda: np.tile(f, 2)),
    "copy of columns": (lambda: F[:, ::2].copy(), lambda: f[:, ::2].copy()),
    "ravel": (lambda: F.T.ravel(), lambda: f.T.ravel()),
    "overlapping assignment": (
        lambda: F[:, 1:].__setitem__(..., F[:, :-1]), lambda: f[:, 1:].__setitem__(..., f[:, :-1])),
    "overlapping out": (lambda: gi.add(F[:-1], F[:-1], out=F[1:]), lambda: np.add(f[:-1], f[:-1], out=f[1:])),
    "comparison with an overlapping out": (
        lambda: gi.less(F[:-1], 0, out=F[1:]), lambda: np.less(f[:-1], 0, out=f[1:])),
    "index arrays and another dtype": (
        lambda: F.__setitem__((places_of_rows, places_in_rows), D),
        lambda: f.__setitem__((places_of_rows, places_in_rows), d)),
    "rows of another dtype": (
        lambda: F.__setitem__(places_of_rows[:, 0], D), lambda: f.__setitem__(places_of_rows[:, 0], d)),
    "selected elements of another dtype": (lambda: F.__setitem__(M, SELECTED), lambda: f.__setitem__(m, selected)),
    "put of another dtype": (lambda: gi.put(F, B, D, mode="wrap"), lambda: np.put(f, below, d, mode="wrap")),
    "put of few values": (lambda: gi.put(F, B, [1, 2, 3]), lambda: np.put(f, below, [1, 2, 3])),
    "add.at of another dtype": (
        lambda: gi.add.at(D, (places_of_rows, places_in_rows), F),
        lambda: np.add.at(d, (places_of_rows, places_in_rows), f)),
    "assignment to bfloat16": (lambda: H.__setitem__(..., F), lambda: h.__setitem__(..., f)),
    "copyto of bfloat16": (lambda: np.copyto(H, F, "unsafe", M), lambda: np.copyto(h, f, "unsafe", m)),
    "copyto from bfloat16": (lambda: np.copyto(F, H, where=M), lambda: np.copyto(f, h, where=m)),
    "var of selected elements": (lambda: F.var(axis=1, where=M), lambda: f.var(axis=1, where=m)),
    "std of selected complex elements": (
        lambda: IMAGINARY.std(axis=0, where=M), lambda: imaginary.std(axis=0, where=m)),
    "sum with initial= of another dtype": (
        lambda: U.sum(axis=1, initial=2, dtype="float64"), lambda: u.sum(axis=1, initial=2, dtype="float64")),
    "mean of selected elements in another dtype": (
        lambda: U.mean(axis=0, where=M, dtype="float64"), lambda: u.mean(axis=0, where=m, dtype="float64")),
    "nanmax": (lambda: np.nanmax(F), lambda: np.nanmax(f)),
    "nanmin of rows": (lambda: np.nanmin(F[:, ::2], 1), lambda: np.nanmin(f[:, ::2], 1)),
    "isclose": (lambda: np.isclose(F, D), lambda: np.isclose(f, d)),
    "array_equal": (lambda: np.array_equal(F, F, equal_nan=True), lambda: np.array_equal(f, f, equal_nan=True)),
    "argmax": (lambda: F.T.argmax(axis=0), lambda: f.T.argmax(axis=0)),
    "argmin of columns": (lambda: F.argmin(axis=0), lambda: f.argmin(axis=0)),
    "allclose": (lambda: np.allclose(F, F), lambda: np.allclose(f, f)),
    "arange": (lambda: gi.arange(n, device="cpu"), lambda: np.arange(n, dtype="float32")),
    "arange of floats": (
        lambda: gi.arange(0, n, 1.0, "float64", device="cpu"), lambda: np.arange(0, n, 1.0, "float64")),
    "linspace": (lambda: gi.linspace(0, 1, n, device="cpu"), lambda: np.linspace(0, 1, n, dtype="float32")),
    "ones": (lambda: gi.ones(n, device="cpu"), lambda: np.ones(n, "float32")),
    "array": (lambda: gi.array(f, "float64", device="cpu"), lambda: np.array(f, "float64")),
    "array of bfloat16": (lambda: gi.array(f, "bfloat16", device="cpu"), lambda: f.astype(ml_dtypes.bfloat16)),
    "array in foreign byte order": (lambda: gi.array(swapped, device="cpu"), lambda: np.array(swapped, "float32")),
    "array in foreign byte order and another dtype": (
        lambda: gi.GpuArray(swapped, "float64", "cpu"), lambda: np.array(swapped, "float64")),
    "asarray in foreign byte order and another dtype": (
        lambda: gi.asarray(swapped, "float64", device="cpu"), lambda: np.array(swapped, "float64")),
    "deepcopy": (lambda: copy.deepcopy(F), lambda: copy.deepcopy(f)),
    "tobytes": (lambda: F.tobytes(), lambda: f.tobytes()),
    "tolist": (lambda: F[:8, :1024].tolist(), lambda: f[:8, :1024].tolist()),
    "repr": (lambda: repr(F), lambda: repr(f)),
}
for protocol in (2, 4, 5):
    pickles(f"protocol {protocol}", lambda x, protocol=protocol: (pickle.dumps(x, protocol), None))
pickles("with buffers", buffers)
print(json.dumps({name: [min(peak(call), peak(call)) for call in pair] for name, pair in PAIRS.items()}))
"""

# The core moves elements of one dtype: values of another one, and masks, are cast first, to at most one array of 2^18
# elements. A loop that casts while it moves would need none.
CAST_FIRST = {
    "copyto", "copyto of bfloat16", "copyto from bfloat16", "nonzero", "nonzero of many columns",
    "nonzero of bfloat16", "index arrays and another dtype", "rows of another dtype",
    "selected elements of another dtype", "put of few values", "put of another dtype", "add.at of another dtype",
}  # fmt: skip


@pytest.mark.slow
def test_no_operation_needs_more_memory_than_numpy():
    # Python's own allocator would allocate blocks of many objects.
    counting = {"LD_PRELOAD": str(built("heap", "heap.cpp")), "PYTHONMALLOC": "malloc"}
    peaks = json.loads(driver.run(PROGRAM, timeout=300, **counting))
    assert peaks.keys() >= CAST_FIRST
    one_array = {name: 8 << 18 for name in CAST_FIRST}
    more = {
        name: pair
        for name, pair in peaks.items()
        if pair[0] > pair[1] + 64 * 1024 + one_array.get(name, 0)
    }
    assert not more, f"bytes of gpuinterop and of NumPy: {more}"
