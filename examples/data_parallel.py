"""The tutorial's logistic regression in one process, and the parts that its data-parallel versions share.

data_parallel_mpi.py, data_parallel_torch.py, data_parallel_dask.py and data_parallel_ray.py give each process a part of
the examples, sum the gradients, and print the same numbers.

    python examples/data_parallel.py [DEVICE]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gpuinterop as gi

N, FEATURES, STEPS, RATE = 400, 784, 50, 0.1


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Return the examples of the tutorial and their classes."""
    rng = np.random.RandomState(0)
    return rng.randn(N, FEATURES).astype("float32"), rng.randint(0, 2, N).astype("float32")


def gradient(x: Any, y: Any, w: Any) -> Any:
    """Return the sums of the gradient and, as the last element, of the loss over these examples."""
    p = gi.sigmoid(x @ w)
    loss = -(y * gi.log(p) + (1 - y) * gi.log(1 - p)).sum()
    return gi.concatenate([x.T @ (p - y), loss.reshape(1)])


def train(x: Any, y: Any, add_up: Callable[[Any], Any], steps: int = STEPS) -> tuple[Any, float]:
    """Return the weights and the last loss. `add_up` adds the sums of all processes, in place."""
    w = gi.zeros(FEATURES, device=x.device)
    loss = 0.0
    for _ in range(steps):
        sums = gradient(x, y, w)
        add_up(sums)
        w -= RATE * (sums[:-1] / N + 0.02 * w)
        loss = sums[-1].item() / N
    return w, loss


def report(w: Any, loss: float, place: str) -> None:
    """Print what the versions have in common."""
    w = np.asarray(w)
    print(f"loss {loss:.5f}, norm of the weights {np.linalg.norm(w):.5f}, on {place}")


def main(device: Any = None) -> None:
    x, y = (gi.asarray(a, device=device) for a in examples())
    w, loss = train(x, y, lambda sums: None)
    report(w, loss, str(x.device))


if __name__ == "__main__":
    from command_line import device_asked_for

    main(device_asked_for(__doc__))
