"""What does one conversion cost on the host, compared with the conversions of other libraries?

Every pair is timed in one process, the routes of a row in turn, so that run-to-run variation affects all of
them; the figure is the best of the repeats. bench_exchange times exports and views. Without a GPU only
conversions of host arrays are timed.
``--sizes`` shows that a conversion does not depend on the size of the array.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from bench_common import Benchmark, parser

import gpuinterop as gi
from gpuinterop import converters

# Targets in microseconds, for a CUDA array of 64 x 64 float32 on an H200.
MARKS = {
    "CudaNdarray -> torch": 0.6,
    "torch -> CudaNdarray": 0.25,
    "CudaNdarray -> cupy": 2.0,
    "cupy -> CudaNdarray": 0.5,
    "CudaNdarray -> Numba": 6.0,
}


def load(name: str) -> Any:
    """Return the module, or None if it is not installed or does not work on this machine."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, RuntimeError):
        return None


def time_row(routes: dict[str, Callable[[], Any]], quick: bool) -> dict[str, list[float]]:
    """Return the microseconds of one call in every repeat; the routes take turns."""
    calls, found = {}, {name: [] for name in routes}
    repeats, warm, budget = (2, 3, 1e-4) if quick else (15, 100, 0.01)
    for name, route in routes.items():
        for _ in range(warm):
            route()
        start = time.perf_counter()
        for _ in range(warm):
            route()
        once = (time.perf_counter() - start) / warm
        calls[name] = max(5, int(budget / once))
    for _ in range(repeats):
        for name, route in routes.items():
            n = calls[name]
            start = time.perf_counter()
            for _ in range(n):
                route()
            found[name].append((time.perf_counter() - start) / n * 1e6)
    return found


def refused(route: Callable[[], Any]) -> Callable[[], None]:
    def call() -> None:
        try:
            route()
        except gi.GpuInteropError:
            return
        raise AssertionError("was not refused")

    return call


def host_rows(n: int) -> dict[str, dict[str, Callable[[], Any]]]:
    a = np.ones((n, n), np.float32)
    x = converters.from_numpy(a)
    rows: dict[str, dict[str, Callable[[], Any]]] = {
        "numpy -> CudaNdarray, host": {
            "gpuinterop": lambda: converters.from_numpy(a),
            "numpy.from_dlpack(numpy)": lambda: np.from_dlpack(a),
        },
        "CudaNdarray -> numpy, host": {
            "gpuinterop": lambda: converters.to_numpy(x),
            "numpy.from_dlpack(gpuinterop)": lambda: np.from_dlpack(x),
        },
        "explain, host": {"gpuinterop": lambda: gi.explain(x, "numpy")},
        "shares_memory, interleaved": {"gpuinterop": lambda: gi.shares_memory(x[::2], x[1::2])},
    }
    torch = load("torch")
    if torch is not None:
        t = torch.from_numpy(a)
        rows["CudaNdarray -> torch, host"] = {
            "gpuinterop": lambda: converters.to_torch(x),
            "torch.from_dlpack(gpuinterop)": lambda: torch.from_dlpack(x),
            "torch.from_numpy(numpy)": lambda: torch.from_numpy(a),
        }
        rows["torch -> CudaNdarray, host"] = {
            "gpuinterop": lambda: converters.from_torch(t),
            "gpuinterop.from_any": lambda: gi.from_any(t),
            "numpy.from_dlpack(torch)": lambda: np.from_dlpack(t),
        }
        r = x[:, ::-1]
        rows["refusal: negative strides -> torch"] = {
            "gpuinterop": refused(lambda: converters.to_torch(r))
        }
        tvm_ffi = load("tvm_ffi")
        if tvm_ffi is not None:
            rows["torch -> CudaNdarray, host"]["tvm_ffi.from_dlpack(torch)"] = lambda: (
                tvm_ffi.from_dlpack(t)
            )
    jax = load("jax")
    if jax is not None:
        j = jax.device_put(a, jax.devices("cpu")[0])
        aligned = gi.ones((n, n), device="cpu")  # to 64 bytes, or JAX would copy
        of_numpy = np.from_dlpack(aligned)
        rows["CudaNdarray -> jax, host"] = {
            "gpuinterop": lambda: converters.to_jax(aligned),
            "jax.dlpack.from_dlpack(numpy)": lambda: jax.dlpack.from_dlpack(of_numpy),
        }
        rows["jax -> CudaNdarray, host"] = {
            "gpuinterop": lambda: converters.from_jax(j),
            "numpy.from_dlpack(jax)": lambda: np.from_dlpack(j),
        }
    return rows


def gpu_rows(n: int) -> dict[str, dict[str, Callable[[], Any]]]:
    a = np.ones((n, n), np.float32)
    x = gi.array(a, device="cuda")
    gi.synchronize()
    rows: dict[str, dict[str, Callable[[], Any]]] = {}
    torch, cupy, tvm_ffi = load("torch"), load("cupy"), load("tvm_ffi")
    core = load("cuda.core.utils")
    t = (
        torch.ones(n, n, device="cuda:0")
        if torch is not None and torch.cuda.is_available()
        else None
    )
    c = cupy.ones((n, n), "float32") if cupy is not None else None
    if t is not None:
        rows["CudaNdarray -> torch"] = {"gpuinterop": lambda: converters.to_torch(x)}
        rows["torch -> CudaNdarray"] = {
            "gpuinterop": lambda: converters.from_torch(t),
            "gpuinterop.from_any": lambda: gi.from_any(t),
        }
        reversed_x = x[:, ::-1]
        rows["refusal: negative strides -> torch"] = {
            "gpuinterop": refused(lambda: converters.to_torch(reversed_x))
        }
        if tvm_ffi is not None:
            rows["torch -> CudaNdarray"]["tvm_ffi.from_dlpack(torch)"] = lambda: (
                tvm_ffi.from_dlpack(t)
            )
        if core is not None:
            view = core.StridedMemoryView
            rows["torch -> CudaNdarray"]["cuda.core view of torch"] = lambda: (
                view.from_any_interface(t, stream_ptr=-1)
            )
    if c is not None:
        rows["CudaNdarray -> cupy"] = {
            "gpuinterop": lambda: converters.to_cupy(x),
            "cupy.from_dlpack(gpuinterop)": lambda: cupy.from_dlpack(x),
        }
        rows["cupy -> CudaNdarray"] = {"gpuinterop": lambda: converters.from_cupy(c)}
        if tvm_ffi is not None:
            rows["cupy -> CudaNdarray"]["tvm_ffi.from_dlpack(cupy)"] = lambda: tvm_ffi.from_dlpack(
                c
            )
        if t is not None:
            rows["CudaNdarray -> torch"]["torch.from_dlpack(cupy)"] = lambda: torch.from_dlpack(c)
            rows["CudaNdarray -> torch"]["torch.as_tensor(cupy)"] = lambda: torch.as_tensor(
                c, device="cuda"
            )
            rows["CudaNdarray -> cupy"]["cupy.from_dlpack(torch)"] = lambda: cupy.from_dlpack(t)
            rows["CudaNdarray -> cupy"]["cupy.asarray(torch)"] = lambda: cupy.asarray(t)
            rows["torch -> CudaNdarray"]["cupy.from_dlpack(torch)"] = lambda: cupy.from_dlpack(t)
    rows.update(_numba_rows(x, c))
    rows.update(_pycuda_rows(x))
    return rows


def _numba_rows(x: Any, c: Any) -> dict[str, dict[str, Callable[[], Any]]]:
    cuda = load("numba.cuda")
    if cuda is None:
        return {}
    out = {"gpuinterop": lambda: converters.to_numba(x)}
    if c is not None:
        out["numba.cuda.as_cuda_array(cupy)"] = lambda: cuda.as_cuda_array(c)
    d = cuda.to_device(np.ones((64, 64), np.float32))
    back: dict[str, Callable[[], Any]] = {"gpuinterop": lambda: converters.from_numba(d)}
    return {"CudaNdarray -> Numba": out, "Numba -> CudaNdarray": back}


def _pycuda_rows(x: Any) -> dict[str, dict[str, Callable[[], Any]]]:
    if load("pycuda") is None:
        return {}
    converters.pycuda.init()
    gpuarray = importlib.import_module("pycuda.gpuarray")
    g = gpuarray.to_gpu(np.ones((64, 64), np.float32))
    shape, dtype, address = x.shape, x.dtype, x.gpudata
    return {
        "CudaNdarray -> PyCUDA": {
            "gpuinterop": lambda: gi.to_gpuarray(x),
            "GPUArray's constructor": lambda: gpuarray.GPUArray(
                shape, dtype, base=x, gpudata=address
            ),
        },
        "PyCUDA -> CudaNdarray": {"gpuinterop": lambda: gi.to_cudandarray(g)},
    }


def mark(name: str, times: dict[str, list[float]]) -> float | None:
    """Return the target; for PyCUDA relative to the constructor that every converter must call."""
    if name == "CudaNdarray -> PyCUDA":
        return min(times["GPUArray's constructor"]) + 0.4
    return MARKS.get(name)


def main() -> None:
    options = parser(__doc__, on_host=True)
    options.add_argument("--sizes", action="store_true", help="repeat with a large array")
    chosen = options.parse_args()
    if chosen.alone:
        print("with --alone only conversions to and from NumPy are timed")
        globals()["load"] = lambda name: None
    bench = Benchmark("converters", "us", chosen, figure="best", picture="routes")
    for n in (64, 4096) if chosen.sizes else (64,):
        rows = {**host_rows(n), **(gpu_rows(n) if chosen.device != "cpu" else {})}
        for name, routes in rows.items():
            times = time_row(routes, chosen.quick)
            if n == 64:
                bench.keep(name, times, mark(name, times))
            else:
                bench.keep(f"{name}, {n} x {n}", times)
    bench.finish()


if __name__ == "__main__":
    main()
