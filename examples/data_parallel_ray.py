"""The logistic regression of data_parallel.py in two actors of Ray, each with a part of the examples.

The actors keep their examples on DEVICE; with "cuda" Ray gives each of them a GPU. Needs ray.

    python examples/data_parallel_ray.py [DEVICE]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import data_parallel
import numpy as np

import gpuinterop as gi

ACTORS = 2


class Part:
    """The examples of an actor, on its device."""

    def __init__(self, number: int, device: str) -> None:
        self.x, self.y = (
            gi.asarray(a[number::ACTORS], device=device) for a in data_parallel.examples()
        )

    def sums(self, w: np.ndarray) -> np.ndarray:
        """Return the sums of the gradient over the examples."""
        return data_parallel.gradient(self.x, self.y, gi.asarray(w, device=self.x.device)).get()


def main(device: Any = "cpu", steps: int = data_parallel.STEPS) -> None:
    import ray

    here = {"PYTHONPATH": str(Path(__file__).parent)}  # where the actors import data_parallel
    ray.init(num_cpus=ACTORS, include_dashboard=False, runtime_env={"env_vars": here})
    place = str(device or "cpu")
    actor = ray.remote(num_cpus=1, num_gpus=int(place != "cpu"))(Part)
    actors = [actor.remote(number, place) for number in range(ACTORS)]
    w, loss = np.zeros(data_parallel.FEATURES, "float32"), 0.0
    for _ in range(steps):
        sums = sum(ray.get([part.sums.remote(w) for part in actors]))
        w = w - data_parallel.RATE * (sums[:-1] / data_parallel.N + np.float32(0.02) * w)
        loss = float(sums[-1]) / data_parallel.N
    data_parallel.report(w, loss, f"{ACTORS} actors of Ray, {place}")
    ray.shutdown()


if __name__ == "__main__":
    from command_line import device_asked_for

    main(device_asked_for(__doc__))
