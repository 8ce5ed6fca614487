"""The logistic regression of data_parallel.py in two workers of Dask, each with a part of the examples.

The workers keep their examples on DEVICE; with "cuda" the first one uses GPU 0, the second one GPU 1. Needs
dask[array] and distributed.

    python examples/data_parallel_dask.py [DEVICE]
"""

from __future__ import annotations

from typing import Any

import data_parallel
import numpy as np

import gpuinterop as gi

WORKERS = 2


def part(number: int, device: str) -> tuple[Any, Any]:
    """Return the examples of a worker, on its device."""
    place = gi.device(device)
    if place.type == "cuda":
        place = gi.device(f"cuda:{number % (len(gi.devices()) - 1)}")
    x, y = data_parallel.examples()
    return tuple(gi.asarray(a[number::WORKERS], device=place) for a in (x, y))


def sums_of(examples: tuple[Any, Any], w: np.ndarray) -> np.ndarray:
    """Return the sums of the gradient over the examples of a worker."""
    x, y = examples
    return data_parallel.gradient(x, y, gi.asarray(w, device=x.device)).get()


def main(device: Any = "cpu", steps: int = data_parallel.STEPS) -> None:
    from distributed import Client, LocalCluster

    options = {"n_workers": WORKERS, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        names = sorted(client.scheduler_info()["workers"])
        place = str(device or "cpu")
        parts = [client.submit(part, i, place, workers=name) for i, name in enumerate(names)]
        w, loss = np.zeros(data_parallel.FEATURES, "float32"), 0.0
        for _ in range(steps):
            sums = sum(client.gather([client.submit(sums_of, p, w, pure=False) for p in parts]))
            w = w - data_parallel.RATE * (sums[:-1] / data_parallel.N + np.float32(0.02) * w)
            loss = float(sums[-1]) / data_parallel.N
        data_parallel.report(w, loss, f"{WORKERS} workers of Dask, {place}")


if __name__ == "__main__":
    from command_line import device_asked_for

    main(device_asked_for(__doc__))
