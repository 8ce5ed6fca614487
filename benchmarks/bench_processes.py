"""How long does another process take to open 2 GiB of memory, by each mechanism? The target is 10 ms.

One process that has used the device before opens a handle five times and closes the array each time. "share" is the
time of the owner's call. Nothing is copied. A legacy handle has no target. Owners that are not installed are skipped.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bench_common import GPUINTEROP, Benchmark, first_line, parser

import gpuinterop as gi

MARK_MS = 10.0

OPENER = """
import pickle, sys, time
import gpuinterop as gi
if sys.argv[1] != "cpu":
    gi.zeros(1, device=sys.argv[1]).sync()
print(flush=True)
for line in sys.stdin:
    handle, times = pickle.loads(bytes.fromhex(line)), []
    for _ in range(5):
        begin = time.perf_counter()
        x = handle.open()
        opened = time.perf_counter()
        del x
        times.append([1e3 * (opened - begin), 1e3 * (time.perf_counter() - opened)])
    print(pickle.dumps(times).hex(), flush=True)
"""


def of_cuda_core(count: int) -> Any:
    """Return an array in a pool of cuda.core that other processes can open."""
    from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions

    device = Device(0)
    device.set_current()
    options = DeviceMemoryResourceOptions(ipc_enabled=True, max_size=4 * count + (64 << 20))
    pool = DeviceMemoryResource(device, options)
    buffer = pool.allocate(4 * count, stream=device.default_stream)
    return gi.CudaNdarray.from_pointer(int(buffer.handle), (count,), None, (pool, buffer))


def of_torch(count: int) -> Any:
    """Return a tensor, whose memory is a cudaMalloc block."""
    import torch

    return torch.empty(count, device="cuda")


def main() -> None:
    chosen = parser(__doc__, on_host=True).parse_args()
    bench = Benchmark("processes", "ms", chosen, picture="routes")
    count = 1 << (20 if chosen.quick else 29)
    owners: dict[str, Callable[[], Any]] = {
        "shared_empty": lambda: gi.shared_empty(count, device=chosen.device)
    }
    if chosen.device != "cpu" and not chosen.alone:
        owners |= {"cuda.core": lambda: of_cuda_core(count), "torch": lambda: of_torch(count)}
    opener = subprocess.Popen(
        [sys.executable, "-c", OPENER, chosen.device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    assert opener.stdin is not None
    assert opener.stdout is not None
    opener.stdout.readline()
    for name, make in owners.items():
        try:
            array = make()
            handle = gi.share(array)
        except Exception as error:
            print(f"{name} skipped, {first_line(error)}", flush=True)
            continue
        print(pickle.dumps(handle).hex(), file=opener.stdin, flush=True)
        times = pickle.loads(bytes.fromhex(opener.stdout.readline()))
        row = f"{name}, {handle.mechanism}, {4 * count / (1 << 20):.0f} MiB"
        mark = None if handle.mechanism == "legacy" else MARK_MS
        bench.keep(f"open {row}", {GPUINTEROP: [first for first, _ in times]}, mark)
        bench.keep(f"close {row}", {GPUINTEROP: [last for _, last in times]})
        handle.wait()
    opener.stdin.close()
    opener.wait()
    bench.finish()


if __name__ == "__main__":
    main()
