"""The tutorial's first program: exp of 230,400 numbers, a thousand times, in its three forms.

The result returns to the host; it stays on the device; its buffer is reused. A loop on a GPU ends before
its work does, so the program prints two times: when all work is launched, and when it is finished.

    python examples/exp_loop.py [DEVICE]
"""

from __future__ import annotations

import time

import numpy as np

import gpuinterop

VLEN = 10 * 30 * 768


def timed(body, iterations: int, device) -> tuple[float, float]:
    """Return the seconds until the loop has ended, and until its work is finished."""
    gpuinterop.synchronize(device)
    begin = time.perf_counter()
    for _ in range(iterations):
        body()
    launched = time.perf_counter() - begin
    gpuinterop.synchronize(device)
    return launched, time.perf_counter() - begin


def main(device=None, iterations: int = 1000, vlen: int = VLEN) -> dict[str, np.ndarray]:
    values = np.random.RandomState(22).rand(vlen).astype(np.float32)
    x = gpuinterop.asarray(values, device=device)
    buffer = gpuinterop.empty_like(x)
    graph = gpuinterop.capture(lambda: gpuinterop.exp(x, out=buffer), device=x.device)
    forms = {
        "result on the host": lambda: np.asarray(gpuinterop.exp(x)),
        "handle on the device": lambda: gpuinterop.exp(x),
        "buffer used again": lambda: gpuinterop.exp(x, out=buffer),
        "captured graph": graph,
    }
    results = {}
    print(f"exp of {vlen} numbers on {x.device}, {iterations} times; microseconds a call")
    for name, body in forms.items():
        results[name] = np.array(np.asarray(body()))
        launched, finished = timed(body, iterations, x.device)
        scale = 1e6 / iterations
        print(f"  {name:22} launched {launched * scale:8.2f}   finished {finished * scale:8.2f}")
    print("Result is", results["result on the host"])
    return results


if __name__ == "__main__":
    from command_line import device_asked_for

    main(device_asked_for(__doc__))
