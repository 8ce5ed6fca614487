"""What does `import gpuinterop` cost beyond NumPy's own import? The target is 60 ms.

Each turn is a new interpreter that imports NumPy, then gpuinterop, and times both. ``--names`` also
times the first use of each top-level name.
"""

from __future__ import annotations

import subprocess
import sys

from bench_common import GPUINTEROP, Benchmark, parser

import gpuinterop as gi

MARK_MS = 60.0

TIMER = """
import time
def timed(code):
    start = time.perf_counter()
    exec(code)
    return (time.perf_counter() - start) * 1e3
print(*[timed(code) for code in {codes!r}])
"""


def milliseconds(*codes: str) -> list[float]:
    """Return the milliseconds of each, run one after the other in one new interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", TIMER.format(codes=codes)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(word) for word in done.stdout.split()]


def heaviest(count: int) -> list[str]:
    """Return the imports that cost most, as the interpreter reports them."""
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
    options.add_argument(
        "--names", action="store_true", help="also time the first use of every name"
    )
    chosen = options.parse_args()
    repeat = 2 if chosen.quick else chosen.repeat
    bench = Benchmark("import", "ms", chosen, picture="routes")

    turns = [milliseconds("import numpy", "import gpuinterop") for _ in range(repeat)]
    bench.keep("import numpy", {"numpy": [numpy for numpy, _ in turns]})
    bench.keep("import gpuinterop, beyond NumPy", {GPUINTEROP: [own for _, own in turns]}, MARK_MS)
    print("heaviest:", ", ".join(heaviest(5)))

    if chosen.names:
        for name in gi.__all__:
            used = [milliseconds("import gpuinterop", f"gpuinterop.{name}")[1] for _ in "123"]
            bench.keep(f"first use of {name}", {GPUINTEROP: used})
    bench.finish()


if __name__ == "__main__":
    main()
