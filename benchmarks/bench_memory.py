"""What do memory and streams cost the host, and how long do blocking transfers of pageable memory take?

Microseconds of a cached allocation with its release, of a wait between streams, of an event, and of
transfers from and to NumPy, compared with torch. On "cpu" only host allocations are timed.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
from bench_common import GPUINTEROP, Benchmark, parser, peers

import gpuinterop as gi
from gpuinterop import _core


def turns(bench: Benchmark, call: Callable[[], Any], number: int) -> list[float]:
    """Return the microseconds of a call in each of seven turns."""
    call()
    number, repeat = (2, 2) if bench.options.quick else (number, 7)
    return [t / number * 1e6 for t in timeit.repeat(call, number=number, repeat=repeat)]


def allocations(bench: Benchmark, place: gi.Device, torch: Any) -> None:
    shape, float32, home = (230_400,), np.dtype(np.float32), (place.type_code, place.index)

    def empty(shape: tuple[int, ...] = shape) -> Any:
        return _core.empty(gi.CudaNdarray, shape, float32, *home)

    times = {GPUINTEROP: turns(bench, empty, 20_000)}
    if torch:
        times["torch"] = turns(bench, lambda: torch.empty(shape, device=str(place)), 20_000)
    bench.keep("empty(230400), allocated and freed", times)
    bench.keep(
        "the same without memory, empty(0)", {GPUINTEROP: turns(bench, lambda: empty((0,)), 20_000)}
    )


def streams(bench: Benchmark, torch: Any) -> None:
    a, b = gi.Stream(), gi.Stream()
    times = {GPUINTEROP: turns(bench, lambda: a.wait(b), 20_000)}
    if torch:
        s, t = torch.cuda.Stream(), torch.cuda.Stream()
        times["torch"] = turns(bench, lambda: s.wait_stream(t), 20_000)
    bench.keep("a stream waits for another", times)
    event = gi.Event()
    bench.keep("record an event", {GPUINTEROP: turns(bench, lambda: event.record(a), 20_000)})
    gi.synchronize()


def transfers(bench: Benchmark, place: gi.Device, torch: Any) -> None:
    for mib in (0.25,) if bench.options.quick else (0.25, 1, 4, 64, 1024):
        if mib * 2**20 > gi.mem_info(place)[0] / 4:
            break
        host = np.ones(int(mib * 2**18), np.float32)
        there = gi.asarray(host, device=place)
        up = {
            GPUINTEROP: turns(
                bench, lambda h=host: (gi.asarray(h, device=place), gi.synchronize()), 1
            )
        }
        down = {GPUINTEROP: turns(bench, lambda x=there: np.asarray(x), 1)}
        if torch:
            tensor = torch.from_numpy(host)
            on_gpu = tensor.cuda()
            sent = lambda x=tensor: (x.cuda(), torch.cuda.synchronize())  # noqa: E731
            up["torch"] = turns(bench, sent, 1)
            down["torch"] = turns(bench, lambda x=on_gpu: x.cpu(), 1)
        bench.keep(f"upload of {mib:g} MiB", up)
        bench.keep(f"download of {mib:g} MiB", down)


def main() -> None:
    chosen = parser(__doc__, on_host=True).parse_args()
    place = gi.device(chosen.device)
    torch = peers(chosen, ("torch",)).get("torch")
    bench = Benchmark("memory", "us", chosen)
    allocations(bench, place, torch)
    if not bench.on_host:
        streams(bench, torch)
        transfers(bench, place, torch)
    bench.finish()


if __name__ == "__main__":
    main()
