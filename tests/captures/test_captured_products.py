"""Every BLAS function, captured: a replay reads its operands again and gives the same bits as an eager call."""

import numpy as np
import pytest

import gpuinterop as gi

M, V = (4, 4), (4,)  # square, so that every operand may take another's place

# name: (shapes of the operands, the call)
CALLS = {
    "matmul": ((M, M), gi.matmul),
    "matmul, stacks": (((3, 4, 4), M), gi.matmul),
    "matmul, a vector": ((M, V), gi.matmul),
    "@": ((M, M), lambda a, b: a @ b),
    "dot": ((M, M), gi.dot),
    "dot, vectors": ((V, V), gi.dot),
    "dot, stacks": ((M, (2, 4, 4)), gi.dot),
    "inner": ((M, M), gi.inner),
    "inner, stacks": (((2, 4, 4), M), gi.inner),
    "vdot": ((V, V), gi.vdot),
    "vdot, flattened": ((M, M), lambda a, b: gi.vdot(a.T, b)),
    "gemm": ((M, M), lambda a, b: gi.gemm(a, b, alpha=2)),
    "joined": ((M, M), lambda a, b: gi.concatenate([a, gi.stack([b[0], b[:, 1]])])),
    "gemm, c": ((M, M, M), gi.gemm),
    "gemm, c broadcast": ((M, M, V), lambda a, b, c: gi.gemm(a, b, c, alpha=2, beta=0.5)),
    "gemm, no product": ((M, M, M), lambda a, b, c: gi.gemm(a, b, c, alpha=0, beta=3)),
    "gemm, out": ((M, M, M), lambda a, b, c: gi.gemm(a, b, c, beta=0.5, out=c)),
    "gemm, views": ((M, M, M), lambda a, b, c: gi.gemm(a.T, b[::-1], c)),
    "addmm": ((V, M, M), lambda c, a, b: gi.addmm(c, a, b, alpha=0.5, beta=2)),
    "gemv": ((M, V), lambda a, x: gi.gemv(a, x, alpha=2)),
    "gemv, y": ((M, V, V), lambda a, x, y: gi.gemv(a, x, y, alpha=2, beta=0.5)),
    "gemv, out": ((M, V, V), lambda a, x, y: gi.gemv(a, x, y, out=y)),
    "ger": ((V, V), lambda x, y: gi.ger(x, y, alpha=2)),
    "ger, a": ((V, V, M), lambda x, y, a: gi.ger(x, y, a, alpha=2)),
    "ger, out": ((V, V, M), lambda x, y, a: gi.ger(x, y, a, out=a)),
    "ger, no product": ((V, V, M), lambda x, y, a: gi.ger(x, y, a, alpha=0)),
}  # fmt: skip
DTYPES = {
    "float32": ("f4",) * 3,
    "float64": ("f8",) * 3,
    "int32": ("i4",) * 3,
    "addend wider": None,
}

WHOLE = ("gemm, c", "gemm, views", "gemv, out", "ger, out")


def operands(shapes, dtypes, seed: int, device: str):
    rng = np.random.default_rng(seed)
    values = [
        np.asarray(rng.integers(-99, 99, shape), t)
        for shape, t in zip(shapes, dtypes, strict=False)
    ]
    return [gi.GpuArray(v, device=device) for v in values]


def dtypes_of(name: str, kind: str):
    if DTYPES[kind]:
        return DTYPES[kind]
    return ("f8", "f4", "f4") if name == "addmm" else ("f4", "f4", "f8")


def takes(name: str, kind: str) -> bool:
    if kind == "int32":  # their alpha and beta are 1
        return name in WHOLE or (len(CALLS[name][0]) == 2 and name not in ("gemm", "gemv", "ger"))
    return kind != "addend wider" or len(CALLS[name][0]) == 3


# Each case compiles kernels, so the quick suite has every call once and every dtype in some.
CASES = [
    pytest.param(name, kind, marks=[] if quick else pytest.mark.slow)
    for name in CALLS
    for kind in DTYPES
    if takes(name, kind)
    for quick in [kind == "float32" or name in ("gemm, c", "gemv, y")]
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_replay_gives_the_same_bits_as_eager_calls(name: str, kind: str, device: str) -> None:
    shapes, call = CALLS[name]
    dtypes = dtypes_of(name, kind)
    own = operands(shapes, dtypes, 0, device)
    graph = gi.capture(call, *own)
    results = set()
    for seed in range(4):
        eager = operands(shapes, dtypes, seed, device)
        if seed % 2:  # the captured operands hold other values
            for operand, given in zip(own, eager, strict=True):
                operand[...] = given
            replayed = graph()
        else:  # other arguments
            replayed = graph(*eager)
        expected = call(*eager)
        assert replayed.dtype == expected.dtype
        assert replayed.get().tobytes() == expected.get().tobytes()
        results.add(replayed.get().tobytes())
    assert len(results) == 4
