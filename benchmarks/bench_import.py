"""What does `import gpuinterop` cost beyond NumPy's own import? The mark is 60 ms.

Fresh interpreters, the two kinds taking turns, so that a drifting machine hits both; medians.
``bench_import.py --names`` also times the first use of each top-level name.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--names", action="store_true")
    arguments = parser.parse_args()

    numpy, both = [], []
    for _ in range(arguments.repeat):
        numpy.append(milliseconds("import numpy"))
        both.append(milliseconds("import numpy, gpuinterop"))
    beyond = statistics.median(both) - statistics.median(numpy)
    print(f"import numpy               {statistics.median(numpy):7.1f} ms")
    print(f"import numpy, gpuinterop   {statistics.median(both):7.1f} ms")
    print(f"beyond NumPy               {beyond:7.1f} ms   mark {MARK_MS:.0f} ms")
    print("heaviest:", ", ".join(heaviest(5)))

    if arguments.names:
        import gpuinterop

        for name in gpuinterop.__all__:
            samples = [
                milliseconds(f"import gpuinterop; gpuinterop.{name}") - statistics.median(both)
                for _ in range(3)
            ]
            print(f"  first use of {name:20} {statistics.median(samples):7.1f} ms more")
    return 0 if beyond <= MARK_MS else 1


if __name__ == "__main__":
    sys.exit(main())
