"""What does one conversion cost on the host, in microseconds, beside the peers in the same run?

A 64x64 float32 array; nothing is copied, so the time must not depend on the size. All rows take turns
many times over and the best turn counts, because a shared machine only ever adds time. ``--json`` for
programs, ``--device cuda`` for device arrays (the default where there is a GPU: both).
"""

from __future__ import annotations

import argparse
import importlib
import json
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

import gpuinterop as gi
from gpuinterop import _core

# Row, statement, mark in microseconds (None: a peer, or a figure without a mark). Names are set up
# in names_for(); a row whose names are missing is left out.
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
    ("from CuPy", "import_any(CudaNdarray, c)", 0.5),
    ("from CuPy", "tvm_from_dlpack(c)", None),
    ("from CuPy", "smv(c, stream_ptr=handle)", None),
    ("to CuPy", "cupy.from_dlpack(x)", None),
    ("to CuPy", "cupy.asarray(x)", None),
    ("to tvm-ffi", "tvm_from_dlpack(x)", None),
    ("to cuda.core", "smv(x, stream_ptr=handle)", None),
]


def module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def names_for(device: str) -> dict[str, Any]:
    """What the statements use on this device. Peers that are not installed have no name."""
    on_gpu = device == "cuda"
    host = np.zeros((64, 64), "float32")
    names: dict[str, Any] = {
        "gi": gi,
        "CudaNdarray": gi.CudaNdarray,
        "import_any": _core.import_any,
        "export_via": _core.export_via,
        "x": gi.zeros((64, 64), device=device),
        # -1 is cuda.core's word for "no order", 1 the legacy stream.
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


def runnable(names: dict[str, Any]) -> list[tuple[str, str, float | None, Callable[[], Any]]]:
    rows = []
    for group, statement, mark in ROWS:
        code = compile(statement, statement, "eval")
        if not set(code.co_names) - {"from_dlpack", "from_numpy", "asarray", "__dlpack__"} <= set(
            names
        ):
            continue
        eval(code, dict(names))  # a peer that refuses says so here, not in the middle
        rows.append((group, statement, mark, timeit.Timer(statement, globals=names)))
    return rows


def measure(device: str, turns: int) -> list[dict[str, Any]]:
    rows = runnable(names_for(device))
    best = [float("inf")] * len(rows)
    number = 2000
    for _ in range(turns):
        for i, (_, _, _, timer) in enumerate(rows):
            best[i] = min(best[i], timer.timeit(number) / number * 1e6)
    return [
        {"device": device, "group": group, "statement": statement, "us": us, "mark_us": mark}
        for (group, statement, mark, _), us in zip(rows, best, strict=True)
    ]


def show(figures: list[dict[str, Any]]) -> None:
    group = ""
    for row in figures:
        if (row["device"], row["group"]) != group:
            group = (row["device"], row["group"])
            print(f"\n{row['group']}, {row['device']}")
        mark = row["mark_us"]
        verdict = (
            "" if mark is None else f"  mark {mark:.2f}{'' if row['us'] <= mark else '  MISSED'}"
        )
        print(f"  {row['statement']:38} {row['us']:7.3f} us{verdict}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], action="append")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    gpu = any(d.type == "cuda" for d in gi.devices())
    devices = arguments.device or ["cpu", *(["cuda"] if gpu else [])]
    figures = [row for device in devices for row in measure(device, arguments.turns)]
    if arguments.json:
        print(json.dumps(figures, indent=1))
    else:
        show(figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
