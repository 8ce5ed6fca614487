"""What do memory and streams cost the host, and how fast is pageable memory moved?

Prints nanoseconds for a warm allocation (with its release), a wait between streams and an event, then
GB/s of blocking transfers from and to NumPy, beside torch where it has CUDA. Medians of seven runs.
"""

from __future__ import annotations

import statistics
import timeit
from importlib.util import find_spec

import numpy as np

import gpuinterop as gi
from gpuinterop import _core


def nanoseconds(call, number=20_000):
    call()
    return statistics.median(timeit.repeat(call, number=number, repeat=7)) / number * 1e9


def bandwidth(call, nbytes):
    call()
    return nbytes / statistics.median(timeit.repeat(call, number=1, repeat=7)) / 1e9


def row(name, ours, theirs, unit):
    theirs = "" if theirs is None else f"{theirs:12.1f}"
    print(f"{name:40}{ours:12.1f}{theirs}  {unit}")


def cuda_torch():
    if find_spec("torch") is None:
        return None
    import torch

    return torch if torch.cuda.is_available() else None


def main():
    place = gi.default_device()
    if place.type == "cpu":
        print("no CUDA device:", gi.show_config("dicts").get("no CUDA because"))
        return
    torch = cuda_torch()
    print(f"{place} {place.name}{'':20}{'gpuinterop':>12}{'torch' if torch else '':>12}")
    shape, float32, home = (230_400,), np.dtype(np.float32), (place.type_code, place.index)

    def empty(shape=shape):
        return _core.empty(gi.CudaNdarray, shape, float32, *home)

    ours = nanoseconds(empty)
    theirs = nanoseconds(lambda: torch.empty(shape, device="cuda")) if torch else None
    row("empty(230400), allocated and freed", ours, theirs, "ns")
    bare = nanoseconds(lambda: empty((0,)))
    row("  of it, beyond an empty array", ours - bare, None, "ns")
    with gi.Stream():
        row("  on a stream of its own", nanoseconds(empty), None, "ns")
    a, b = gi.Stream(), gi.Stream()
    theirs = None
    if torch:
        s, t = torch.cuda.Stream(), torch.cuda.Stream()
        theirs = nanoseconds(lambda: s.wait_stream(t))
    row("a stream waits for another", nanoseconds(lambda: a.wait(b)), theirs, "ns")
    event = gi.Event()
    row("record an event", nanoseconds(lambda: event.record(a)), None, "ns")
    gi.synchronize()
    for mib in (0.25, 1, 4, 64, 1024):
        if mib * 2**20 > gi.mem_info(place)[0] / 4:
            break
        host = np.ones(int(mib * 2**18), np.float32)
        there = gi.asarray(host, device=place)
        tensor = torch.from_numpy(host) if torch else None
        up = bandwidth(lambda h=host: (gi.asarray(h, device=place), gi.synchronize()), host.nbytes)
        down = bandwidth(lambda x=there: np.asarray(x), host.nbytes)
        their_up = their_down = None
        if torch:
            their_up = bandwidth(lambda x=tensor: (x.cuda(), torch.cuda.synchronize()), host.nbytes)
            on_gpu = tensor.cuda()
            their_down = bandwidth(lambda x=on_gpu: x.cpu(), host.nbytes)
        row(f"upload of {mib:g} MiB", up, their_up, "GB/s")
        row(f"download of {mib:g} MiB", down, their_down, "GB/s")


if __name__ == "__main__":
    main()
