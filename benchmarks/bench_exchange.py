"""What does one conversion cost on the host, in microseconds, compared with other libraries in the same run?

A 64x64 float32 array; nothing is copied, so the time must not depend on the size. All rows take many turns
and the best turn counts, because other work on a shared machine only adds time. On a machine with a
GPU arrays on both devices are timed, with ``--device cpu`` only those in host memory.
"""

from __future__ import annotations

import importlib
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
from bench_common import GPUINTEROP, Benchmark, parser

import gpuinterop as gi
from gpuinterop import _core

# Row, statement, target in microseconds (None: another library, or a figure without a target). Names are set up
# in names_for(); a row whose names are missing is skipped.
ROWS: list[tuple[str, str, float | None]] = [
    ("export", "x.__dlpack__()", 0.2),
    ("export", "x.__dlpack__(max_version=(1, 3))", None),
    ("export", "c.__dlpack__()", None),
    ("export", "t.__dlpack__()", None),
    ("export", "n.__dlpack__()", None),
    ("view", "x[1:, ::2]", 0.25),
    ("view", "n[1:, ::2]", None),
    ("view", "t[1:, ::2]", None),
    ("view", "c[1:, ::2]", None),
    ("view", "c.view()", None),
    ("to NumPy", "np.from_dlpack(x)", 0.35),
    ("to NumPy", "np.from_dlpack(n)", None),
    ("to NumPy", "np.from_dlpack(t)", None),
    ("from NumPy", "import_any(CudaNdarray, n)", None),
    ("from NumPy", "tvm_from_dlpack(n)", None),
    ("from NumPy", "torch.from_numpy(n)", None),
    ("from torch", "import_any(CudaNdarray, t)", 0.25),
    ("from torch", "gi.from_dlpack(t)", None),
    ("from torch", "tvm_from_dlpack(t)", None),
    ("from torch", "smv(t, stream_ptr=handle)", None),
    ("from torch", "cupy.from_dlpack(t)", None),
    ("to torch", "export_via(x, Tensor)", 0.6),
    ("to torch", "torch.from_dlpack(x)", None),
    ("to torch", "torch.from_numpy(n)", None),
    ("to torch", "torch.from_dlpack(c)", None),
    ("from torch, side stream", "from_torch(t)", 0.6),
    ("from torch, side stream", "tvm_from_dlpack(t)", None),
    ("to torch, side stream", "to_torch(x)", 0.8),
    ("to torch, side stream", "torch.from_dlpack(t)", None),
    ("from CuPy", "import_any(CudaNdarray, c)", 0.5),
    ("from CuPy", "tvm_from_dlpack(c)", None),
    ("from CuPy", "smv(c, stream_ptr=handle)", None),
    ("to CuPy", "cupy.from_dlpack(x)", None),
    ("to CuPy", "cupy.asarray(x)", None),
    ("to tvm-ffi", "tvm_from_dlpack(x)", None),
    ("to cuda.core", "smv(x, stream_ptr=handle)", None),
]

SIDE_STREAM = "side stream"  # rows of this ending run while PyTorch works on a stream of its own


def installed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def names_for(device: str, alone: bool = False) -> dict[str, Any]:
    """Return names for the statements on this device. Libraries that are not installed have no name."""
    module = (lambda name: None) if alone else installed
    on_gpu = device == "cuda"
    host = np.zeros((64, 64), "float32")
    names: dict[str, Any] = {
        "gi": gi,
        "CudaNdarray": gi.CudaNdarray,
        "import_any": _core.import_any,
        "export_via": _core.export_via,
        "from_torch": gi.converters.from_torch,
        "to_torch": gi.converters.to_torch,
        "x": gi.zeros((64, 64), device=device),
        # For cuda.core -1 means no order, and 1 the legacy stream.
        "handle": 1 if on_gpu else -1,
    }
    if not on_gpu:
        names |= {"np": np, "n": host}
    torch, tvm_ffi, utils = module("torch"), module("tvm_ffi"), module("cuda.core.utils")
    if torch is not None and (not on_gpu or torch.cuda.is_available()):
        names |= {"torch": torch, "Tensor": torch.Tensor}
        names["t"] = torch.zeros(64, 64, device=device)
    if tvm_ffi is not None:
        names["tvm_from_dlpack"] = tvm_ffi.from_dlpack
    if utils is not None:
        names["smv"] = utils.StridedMemoryView.from_dlpack
    cupy = module("cupy") if on_gpu else None
    if cupy is not None:
        names |= {"cupy": cupy, "c": cupy.zeros((64, 64), "float32")}
    return names


def runnable(
    names: dict[str, Any], side: bool
) -> list[tuple[str, str, float | None, Callable[[], Any]]]:
    rows = []
    for group, statement, mark in ROWS:
        if side != group.endswith(SIDE_STREAM):
            continue
        try:
            eval(statement, dict(names))  # so that a library that raises does so before the timing
        except NameError:
            continue
        rows.append((group, statement, mark, timeit.Timer(statement, globals=names)))
    return rows


def label(statement: str, mark: float | None) -> str:
    """Return the statement, with the prefix "gpuinterop" if gpuinterop does the work."""
    own = mark is not None or statement.startswith(
        ("x", "gi.", "import_any", "export_via", "from_torch(", "to_torch(")
    )
    return f"{GPUINTEROP}: {statement}" if own else statement


def measure(
    bench: Benchmark, device: str, turns: int, names: dict[str, Any], side: bool = False
) -> None:
    number = 50 if bench.options.quick else 2000
    rows = runnable(names, side)
    times: list[list[float]] = [[] for _ in rows]
    for _ in range(turns):
        for found, (_, _, _, timer) in zip(times, rows, strict=True):
            found.append(timer.timeit(number) / number * 1e6)
    for (group, statement, mark, _), found in zip(rows, times, strict=True):
        bench.keep(f"{group}, {device}", {label(statement, mark): found}, mark)


def main() -> None:
    options = parser(__doc__, on_host=True)
    options.add_argument("--turns", type=int, default=40)
    chosen = options.parse_args()
    turns = 2 if chosen.quick else chosen.turns
    bench = Benchmark("exchange", "us", chosen, figure="best", picture="routes")
    for device in ("cpu",) if chosen.device == "cpu" else ("cpu", "cuda"):
        names = names_for(device, chosen.alone)
        measure(bench, device, turns, names)
        if device == "cuda" and "torch" in names:
            torch = names["torch"]
            # The first conversion of a class is made in Python, on the default stream.
            gi.converters.to_torch(gi.converters.from_torch(names["t"]))
            with torch.cuda.stream(torch.cuda.Stream()):
                t = torch.zeros(64, 64, device=device)
                side = names | {"t": t, "x": gi.converters.from_torch(t)}
                measure(bench, device, turns, side, side=True)
    bench.finish()


if __name__ == "__main__":
    main()
