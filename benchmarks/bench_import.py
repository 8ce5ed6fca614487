"""What does `import gpuinterop` cost beyond NumPy's own import? The mark is 60 ms.

Fresh interpreters, the two kinds taking turns, so that a drifting machine hits both. ``--names`` also
times the first use of each top-level name.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

from bench_common import OURS, Benchmark, parser

import gpuinterop as gi

MARK_MS = 60.0

TIMER = """
import time
start = time.perf_counter()
{code}
print((time.perf_counter() - start) * 1e3)
"""


def milliseconds(code: str) -> float:
    """How long the code takes inside a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", TIMER.format(code=code)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def heaviest(count: int) -> list[str]:
    """The imports that cost most, by the interpreter's own account."""
    code = "import numpy, sys; sys.stderr.write('----\\n'); import gpuinterop"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    rows = []
    for line in done.stderr.partition("----\n")[2].splitlines():
        own, _, name = line.removeprefix("import time:").split("|")
        rows.append((int(own), name.strip()))
    return [f"{name} {own / 1e3:.1f} ms" for own, name in sorted(rows, reverse=True)[:count]]


def main() -> None:
    options = parser(__doc__, on_host=True)
    options.add_argument("--repeat", type=int, default=15)
    options.add_argument("--names", action="store_true", help="first use of every name as well")
    chosen = options.parse_args()
    repeat = 2 if chosen.quick else chosen.repeat
    bench = Benchmark("import", "ms", chosen, picture="routes")

    numpy, both = [], []
    for _ in range(repeat):
        numpy.append(milliseconds("import numpy"))
        both.append(milliseconds("import numpy, gpuinterop"))
    usual = statistics.median(numpy)
    bench.keep("import numpy", {"numpy": numpy})
    bench.keep("import gpuinterop, beyond NumPy", {OURS: [t - usual for t in both]}, MARK_MS)
    print("heaviest:", ", ".join(heaviest(5)))

    if chosen.names:
        usual = statistics.median(both)
        for name in gi.__all__:
            code = f"import gpuinterop; gpuinterop.{name}"
            bench.keep(f"first use of {name}", {OURS: [milliseconds(code) - usual for _ in "123"]})
    bench.finish()


if __name__ == "__main__":
    main()
