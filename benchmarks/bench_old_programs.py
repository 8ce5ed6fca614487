"""The programs of the Theano tutorials and of the blog as printed, compared with the times printed with them.

Each program runs in a separate process by ``gpuinterop run``, and prints its own time; a copy of `blog_shared`, which
takes the time and does not print it, gets the line that the blog's other programs have. "Then" is a GeForce GTX 580
(tutorial), 275 (GpuArray) and 970 (blog), with the processors of those machines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from bench_common import GPUINTEROP, Benchmark, parser

PROGRAMS = Path(__file__).resolve().parents[1] / "tests" / "documents"
THEN = "Theano, then"
PRINT = '\nprint "theano", time.time()-start, "sec"\n'
# Program, device and floatX in THEANO_FLAGS, seconds that its document prints.
ROWS = {
    "check1, on the cpu": ("check1", "cpu", "float32", 3.066),
    "check1": ("check1", "gpu", "float32", 0.639),
    "check2, the result stays there": ("check2", "gpu", "float32", 0.349),
    "check3, borrowed": ("check3", "gpu", "float32", 0.05),
    "check1 of the GpuArray backend": ("gpuarray_check1", "cuda0", "float64", 2.286),
    "check2 of the GpuArray backend": ("gpuarray_check2", "cuda0", "float64", 0.456),
    "y = m.x + b, Theano on the cpu": ("blog_theano", "cpu", "float32", 136.37),
    "y = m.x + b, with transfers": ("blog_theano", "gpu", "float32", 3.161),
    "y = m.x + b, m and b shared": ("blog_shared", "gpu", "float32", 1.935),
    "y = m.x + b, all shared": ("blog_shared2", "gpu", "float32", 0.896),
}


def printed_seconds(program: str, device: str, floats: str) -> float:
    """Return the time that a program prints."""
    flags = f"device={device},floatX={floats},print_active_device=False"
    text = (PROGRAMS / f"{program}.py.txt").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{program}.py"
        path.write_text(text + PRINT * (program == "blog_shared"), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "gpuinterop", "run", str(path)],
            env={**os.environ, "THEANO_FLAGS": flags, "THEANORC": os.devnull},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    found = re.search(r"(?:took|theano|numpy) ([0-9.e-]+) sec", done.stdout)
    assert found, done.stdout
    return float(found[1])


def numpy_seconds(n: int, iterations: int) -> float:
    """Return the seconds of the blog's loop in NumPy."""
    rng = np.random.RandomState(123)
    m, x, b = (rng.randn(n, n).astype("float32") for _ in range(3))
    start = time.perf_counter()
    for _ in range(iterations):
        np.add(np.dot(m, x), b)
    return time.perf_counter() - start


def main() -> None:
    chosen = parser(__doc__, on_host=True).parse_args()
    bench = Benchmark("old_programs", "s", chosen)
    size = (64, 2) if chosen.quick else (1000, 500)
    bench.keep("y = m.x + b, NumPy", {GPUINTEROP: [numpy_seconds(*size)], THEN: [135.35]})
    for row, (program, device, floats, then) in ROWS.items():
        on_host = device == "cpu"
        # A quick run tries one program; on the host blog programs take minutes.
        skipped = program != "check1" if chosen.quick else on_host and program == "blog_theano"
        if skipped or (bench.on_host and not on_host) or not find_spec("pytensor"):
            continue
        turns = 1 if chosen.quick or on_host else 3
        seconds = [printed_seconds(program, device, floats) for _ in range(turns)]
        bench.keep(row, {GPUINTEROP: seconds, THEN: [then]})
    bench.finish()


if __name__ == "__main__":
    main()
