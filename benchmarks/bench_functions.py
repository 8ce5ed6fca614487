"""Functions outside the fast path: views, joins, sorts, sums of products, linear algebra, transforms, random numbers.

Microseconds of a call in a loop, for small and for large arrays, compared with NumPy and torch with one thread each on
"cpu", with torch and CuPy on a GPU. The table ends with the ratios to the peers, the worst first, and `--calls` counts
the Python functions of the package that a repeated call runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # read when the libraries are loaded

import numpy as np  # noqa: E402
from bench_common import GPUINTEROP, Benchmark, Call, parser, peers, waiting  # noqa: E402

import gpuinterop as gi  # noqa: E402
from gpuinterop.cli.contenders import first_line, seconds_of  # noqa: E402

SMALL, LARGE = 64, 1 << 20
PACKAGE = str(Path(gi.__file__).parent)

# The call of gpuinterop, NumPy and CuPy, whose module is m, and that of torch, t, where it has another name or none
# ("-"). x, y: vectors; A, B: square matrices; S: a symmetric one; i: indices; k: whole numbers below 9; o: x in order;
# b: a mask; z: complex numbers; n: the length of x, s: that of a row; r: a generator of random numbers.
_TABLE = """
m.reshape(x, (4, -1)) | t.reshape(x, (4, -1))
x.reshape(4, -1) |
m.ravel(A) |
m.transpose(A) | A.mT
A.transpose(1, 0) | A.permute(1, 0)
m.permute_dims(A, (1, 0)) | t.permute(A, (1, 0))
m.matrix_transpose(A) | A.mT
m.swapaxes(A, 0, 1) |
m.moveaxis(A, 0, 1) |
m.rollaxis(A, 1) | -
m.squeeze(A) |
m.expand_dims(A, 0) | t.unsqueeze(A, 0)
m.flip(A, axis=0) | t.flip(A, (0,))
m.fliplr(A) |
m.flipud(A) |
m.rot90(A) |
m.atleast_1d(x) |
m.atleast_2d(x) |
m.diagonal(A) |
m.real(z) |
m.imag(z) |
m.broadcast_to(x, (3, n)) |
m.broadcast_arrays(A, A[0]) | t.broadcast_tensors(A, A[0])
m.unstack(A[:4]) | t.unbind(A[:4])
x.reshape(-1) |
x[i] |
x[b] |
m.stack([A, B]) |
m.where(b, x, y) |
x.argmax() |
x.std() |
A.mean(axis=0) |
A.max(axis=0) | A.amax(0)
A.T.copy() | A.T.contiguous()
x.astype("float64") | x.double()
m.split(x, 4) | t.tensor_split(x, 4)
m.array_split(x, 4) | t.tensor_split(x, 4)
m.vsplit(A, 2) |
m.vstack([A, B]) |
m.hstack([A, B]) |
m.dstack([A, B]) |
m.column_stack([x, y]) |
m.concat([A, B]) |
m.append(x, y) | -
m.roll(x, 3) |
m.roll(A, (1, 2), axis=(0, 1)) | t.roll(A, (1, 2), (0, 1))
m.tile(x, 2) | t.tile(x, (2,))
m.repeat(x, 2) | t.repeat_interleave(x, 2)
m.pad(x, 1) | t.nn.functional.pad(x, (1, 1))
m.pad(A, 1, mode="edge") | -
m.meshgrid(A[0], A[1]) | t.meshgrid(A[0], A[1], indexing="xy")
m.tril(A) |
m.triu(A) |
m.diag(A[0]) |
m.diff(x) |
m.trace(A) |
m.ptp(x) | -
m.count_nonzero(A) |
m.average(A, axis=0) | -
m.average(A[0], weights=A[1]) | -
m.nanmax(x) | -
m.nan_to_num(x) |
m.isclose(x, y) |
m.allclose(x, y) |
m.outer(A[0], A[1]) |
m.cross(A[:3, 0], A[:3, 1]) | t.linalg.cross(A[:3, 0], A[:3, 1])
m.tensordot(A, B, 1) |
m.vecdot(A, B) | t.linalg.vecdot(A, B)
m.matvec(A, A[0]) | t.mv(A, A[0])
m.einsum("ij,j->i", A, A[0]) |
m.take(x, i) |
m.take(A, 3, axis=0) | A.select(0, 3)
m.take(A, k[:3] // 2, axis=1) | t.index_select(A, 1, k[:3] // 2)
m.take_along_axis(x, i, 0) | t.gather(x, 0, i)
m.nonzero(b) |
m.argwhere(b) |
m.flatnonzero(b) | -
m.compress(b, x) | t.masked_select(x, b)
m.sort(x) |
m.sort(A, axis=0) | t.sort(A, dim=0)
m.argsort(x) |
m.argsort(x, kind="stable") | t.argsort(x, stable=True)
m.partition(x, 3) | -
m.cumsum(x) | t.cumsum(x, 0)
m.cumsum(A, axis=0) | t.cumsum(A, 0)
m.cumsum(A, axis=1) | t.cumsum(A, 1)
m.cumprod(x) | t.cumprod(x, 0)
m.cumulative_sum(x) | t.cumsum(x, 0)
m.searchsorted(o, y) |
m.isin(k, k[:5]) |
m.unique(k) |
m.unique_values(k) | t.unique(k)
m.unique_counts(k) | t.unique(k, return_counts=True)
m.unique_inverse(k) | t.unique(k, return_inverse=True)
m.fft.fft(z) |
m.fft.ifft(z) |
m.fft.rfft(x) |
m.fft.fft2(z.reshape(s, s)) |
m.fft.fftshift(x) |
m.fft.fftfreq(s) |
m.linalg.norm(x) |
m.linalg.norm(A, axis=1) | t.linalg.norm(A, dim=1)
m.linalg.vector_norm(x) |
m.linalg.matrix_norm(A) |
m.linalg.multi_dot([A, B, A]) |
m.linalg.matrix_power(A, 3) |
m.linalg.solve(S, A[0]) |
m.linalg.inv(S) |
m.linalg.det(S) |
m.linalg.slogdet(S) |
m.linalg.cholesky(S) |
m.linalg.qr(S) |
r.random(n, "float32") | t.rand(n, device=D)
r.standard_normal(n, "float32") | t.randn(n, device=D)
r.integers(0, 1000, n) | t.randint(0, 1000, (n,), device=D)
r.permutation(n) | t.randperm(n, device=D)
"""
# Only with small arrays: bench_algebra.py has the others.
_ONLY_SMALL = """
m.kron(A, B) |
m.einsum("ij,jk->ik", A, B) |
m.linalg.eigh(S) |
m.linalg.svd(S) |
m.linalg.pinv(S) |
m.linalg.lstsq(S, A[0]) | t.linalg.lstsq(S, A[:, :1])
"""
# gpuinterop's call, and the same one by the other libraries, which includes no conversion.
_OTHERS = {
    "x[b] = 0": ("x.__setitem__(b, 0)", "x.__setitem__(b, 0)", "x.__setitem__(b, 0)"),
    "x += y": ("x.__iadd__(y)", "x.__iadd__(y)", "x.add_(y)"),
    "arange(n)": ("gi.arange(n, device=D)", 'm.arange(n, dtype="float32")', "t.arange(0.0, n, device=D)"),
    **{f"{name}(n)": (f"gi.{name}(n, device=D)", f'm.{name}(n, "float32")', f"t.{name}(n, device=D)")
       for name in ("zeros", "ones", "empty")},
    "via.numpy.sort(x)": ("gi.via.numpy.sort(x)", "np.sort(x)", "-"),
    "via.torch.sort(x)": ("gi.via.torch.sort(x)", "-", "t.sort(x)"),
    "via.cupy.sort(x)": ("gi.via.cupy.sort(x)", "cupy.sort(x)", "-"),
    "numpy.sort(x)": ("np.sort(x)", "m.sort(x)", "t.sort(x)"),
    "numpy.cumsum(x)": ("np.cumsum(x)", "m.cumsum(x)", "t.cumsum(x, 0)"),
    "numpy.percentile(x, 5), borrowed": ("np.percentile(x, 5)", "m.percentile(x, 5)", "-"),
    "softmax(A)": ("m.softmax(A)", "-", "t.softmax(A, -1)"),
    "log_softmax(A)": ("m.log_softmax(A)", "-", "t.log_softmax(A, -1)"),
    "x.argsort()": ("x.argsort()", "x.argsort()", "x.argsort()"),
    "x.cumsum()": ("x.cumsum()", "x.cumsum()", "x.cumsum(0)"),
    "x.sort()": ("x.sort()", "x.sort()", "-"),
    "array API, sort(x)": ("api.sort(x)", "m.sort(x)", "t.sort(x)"),
    "array API, sum(x)": ("api.sum(x)", "m.sum(x)", "t.sum(x)"),
    "array API, reshape": ("api.reshape(x, (4, -1))", "m.reshape(x, (4, -1))", "t.reshape(x, (4, -1))"),
    "array API, zeros": ("api.zeros(8)", "m.zeros(8)", "t.zeros(8, device=D)"),
}  # fmt: skip


def rows(large: bool) -> dict[str, tuple[str, str, str]]:
    """Return by name the expressions of gpuinterop, of NumPy and CuPy, and of torch ("-" where there is none)."""
    found = {}
    for line in filter(None, (_TABLE + ("" if large else _ONLY_SMALL)).splitlines()):
        own, _, torch = (part.strip() for part in line.partition("|"))
        found[own.removeprefix("m.")] = own, own, torch or own.replace("m.", "t.")
    return found | _OTHERS


def values(n: int) -> dict[str, Any]:
    """Return the arrays of one size as NumPy arrays."""
    rng, s = np.random.default_rng(0), int(n**0.5)
    a = rng.random((s, s), np.float32)
    return {
        "x": rng.random(n, np.float32), "y": rng.random(n, np.float32), "A": a, "B": rng.random((s, s), np.float32),
        "S": (a @ a.T / s + np.eye(s)).astype("float32"), "i": rng.integers(0, n, n), "k": rng.integers(0, 9, n),
        "o": np.sort(rng.random(n, np.float32)), "b": rng.random(n) > 0.5,
        "z": (rng.random(s * s) + 1j * rng.random(s * s)).astype("complex64"),
    }  # fmt: skip


def calls_of(
    who: str, expression: str, names: dict[str, Any], row: str
) -> Callable[[], Any] | None:
    """Return the expression as a function, None if the library lacks it."""
    if expression == "-":
        return None
    call: Callable[[], Any] = eval(f"lambda: {expression}", names)  # of the tables above
    try:
        call()
    except Exception as error:  # whatever a library raises
        print(f"{row}: without {who}, {first_line(error)}", flush=True)
        return None
    return call


def python_calls(call: Callable[[], Any]) -> int:
    """Return how many Python functions of the package a repeated call runs."""
    found = 0

    def note(frame: Any, event: str, _: Any) -> None:
        nonlocal found
        found += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    for _ in range(3):
        call()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def namespaces(libraries: dict[str, Any], device: str, n: int) -> dict[str, dict[str, Any]]:
    """Return the names that the expressions of each library use."""
    host, found = values(n), {}
    common = {"np": np, "t": libraries.get("torch"), "D": device, "n": n, "s": int(n**0.5)}
    for who, module in {GPUINTEROP: gi, **libraries}.items():
        own = {name: gi.asarray(value, value.dtype, device=device) for name, value in host.items()}
        if module is not gi:
            own = {name: module.from_dlpack(x.copy()) for name, x in own.items()}
        elif "cupy" in libraries:
            common["cupy"] = libraries["cupy"]
        if who != "torch":
            options = {"device": device} if module is gi else {}
            own["r"] = module.random.default_rng(0, **options)
        found[who] = {**common, **own, "m": module, "gi": gi, "api": gi.array_api}
    return found


def ratios(rows_: dict[str, dict[str, float]]) -> list[tuple[float, float, str]]:
    """Return the ratios to the slower and to the faster peer, and the row, the worst first."""
    found = []
    for row, figures in rows_.items():
        others = [value for who, value in figures.items() if who != GPUINTEROP]
        if GPUINTEROP in figures and others:
            own = figures[GPUINTEROP]
            found.append((own / max(others), own / min(others), row))
    return sorted(found, reverse=True)


def main() -> None:
    options = parser(__doc__, on_host=True)
    options.add_argument("--only", default="", help="rows whose name contains this")
    options.add_argument("--calls", action="store_true", help="count Python functions too")
    options.add_argument("--small", action="store_true", help="only small arrays")
    chosen = options.parse_args()
    bench = Benchmark("functions", "us", chosen, figure="best", picture="ratio")
    libraries = peers(chosen, ("numpy", "torch") if chosen.device == "cpu" else ("torch", "cupy"))
    if chosen.device == "cpu" and "torch" in libraries:
        libraries["torch"].set_num_threads(1)
    wait = {"numpy": lambda: None, **waiting(libraries, chosen.device)}
    counts = {}
    for n in (SMALL,) if chosen.quick or chosen.small else (SMALL, LARGE):
        names = namespaces(libraries, chosen.device, n)
        for row, expressions in rows(n == LARGE).items():
            if chosen.only not in row:
                continue
            title = f"{row}, {'small' if n == SMALL else 'large'}"
            calls = {}
            for who, own in names.items():
                place = {GPUINTEROP: 0, "torch": 2}.get(who, 1)
                call = calls_of(who, expressions[place], own, title)
                if call is not None:
                    calls[who] = Call(call, wait[who])
            if not calls:
                continue
            if GPUINTEROP in calls and n == SMALL and chosen.calls:
                counts[title] = python_calls(calls[GPUINTEROP].body)
            once = max(min(seconds_of(c.body, c.wait, 2) for c in calls.values()), 1e-6)
            # Many short turns, of which the best counts, because other programs may use the processors.
            bench.loop(
                title,
                calls,
                count=int(min(200, max(1, 1e-3 / once))),
                turns=25 if n == SMALL else 7,
            )
    bench.finish()
    print(f"\n{'gpuinterop / slower, faster of the others':50}")
    for slower, faster, row in ratios(bench.rows):
        print(f"{row:50}{slower:8.2f}{faster:8.2f}{counts.get(row, ''):>6}")


if __name__ == "__main__":
    main()
