"""Operations on "cpu" need no more memory than NumPy's: no arrays in between."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="peaks of memory are read from /proc"
)

# The C library returns every large block at once, so that a peak shows all blocks of a call.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536"}
PROGRAM = """
import json
import numpy as np
import gpuinterop as gi

def kib(key):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key))

def peak(call):
    call()  # once, for what is kept: programs, NumPy's buffers
    open("/proc/self/clear_refs", "w").write("5")
    before = kib("VmRSS")
    result = call()
    return kib("VmHWM") - before

n = 1 << 22
f = np.random.default_rng(0).random((64, n // 64), "float32")
u, d, k, m = f.astype("uint8"), f.astype("float64"), f.astype("int32"), f > 0.5
U, F, D, K, M = (gi.GpuArray(value, device="cpu") for value in (u, f, d, k, m))
fused = gi.fuse(lambda x, y: gi.tanh(x * y + x))
PAIRS = {
    "sum of another dtype": (lambda: U.sum(axis=1, dtype="float64"), lambda: u.sum(axis=1, dtype="float64")),
    "sum": (lambda: F.sum(axis=0), lambda: f.sum(axis=0)),
    "mean": (lambda: F.mean(), lambda: f.mean()),
    "var": (lambda: F.var(axis=0), lambda: f.var(axis=0)),
    "norm": (lambda: F.norm(), lambda: np.linalg.norm(f)),
    "any": (lambda: F.any(), lambda: f.any()),
    "sum of selected elements": (lambda: F.sum(where=M), lambda: f.sum(where=m)),
    "mean of selected elements": (lambda: F.mean(where=M), lambda: f.mean(where=m)),
    "astype": (lambda: U.astype("float64"), lambda: u.astype("float64")),
    "add of two dtypes": (lambda: K + F, lambda: k + f),
    "add into float32": (lambda: gi.add(F, U, out=F), lambda: np.add(f, u, out=f)),
    "where": (lambda: gi.where(M, F, D), lambda: np.where(m, f, d)),
    "clip": (lambda: gi.clip(F, 0.2, 0.7), lambda: np.clip(f, 0.2, 0.7)),
    "round": (lambda: F.round(2), lambda: f.round(2)),
    "assignment of another dtype": (lambda: D.__setitem__(..., F), lambda: d.__setitem__(..., f)),
    "copyto": (lambda: np.copyto(D, F, where=M), lambda: np.copyto(d, f, where=m)),
    "array of another dtype": (lambda: gi.GpuArray(u, "float64", "cpu"), lambda: np.array(u, "float64")),
    "dtype=": (lambda: gi.add(F, K, dtype="float64"), lambda: np.add(f, k, dtype="float64")),
    "dtype= and out=": (lambda: gi.add(F, K, dtype="float64", out=D), lambda: np.add(f, k, dtype="float64", out=d)),
    "dtype= of one operand": (lambda: gi.exp(F, dtype="float64"), lambda: np.exp(f, dtype="float64")),
    "concatenate": (lambda: gi.concatenate([F, D]), lambda: np.concatenate([f, d])),
    "roll": (lambda: np.roll(F, 3), lambda: np.roll(f, 3)),
    "repeat": (lambda: gi.repeat(F, 2), lambda: np.repeat(f, 2)),
    "product with a vector": (lambda: D @ D[0], lambda: d @ d[0]),
    "fused function": (lambda: fused(F, F), lambda: np.tanh(f * f)),
}
print(json.dumps({name: [min(peak(call) for _ in range(3)) for call in pair] for name, pair in PAIRS.items()}))
"""


def test_no_operation_needs_more_memory_than_numpy():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **MALLOC},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    peaks = json.loads(done.stdout)
    more = {name: pair for name, pair in peaks.items() if pair[0] > pair[1] + 64}
    assert not more, f"KiB of gpuinterop and of NumPy: {more}"
