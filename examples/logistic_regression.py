"""The tutorial's logistic regression, 400 x 784, trained 10,000 steps by a captured graph.

`fuse` makes two kernels of a training step: one pass over x computes the prediction, cross-entropy and error of
every row, another pass the gradient and the update of every weight. No result returns to the host.

    python examples/logistic_regression.py [DEVICE]
"""

from __future__ import annotations

import time

import numpy as np

import gpuinterop

N, FEATURES, STEPS = 400, 784, 10_000
RATE, DECAY = 0.01, 0.02  # the penalty is 0.01 * sum(w**2), so its gradient is 0.02 * w


@gpuinterop.fuse
def training_step(x, y, w, b):
    """Return prediction and cross-entropy of every row, and the new weights and bias."""
    z = x @ w + b
    p = 1 / (1 + gpuinterop.exp(-z))
    # log(p) and log(1 - p) are written in terms of z, as the tutorial's compiler rewrites them: this is accurate
    # even if p itself rounds to 0 or 1.
    xent = gpuinterop.maximum(z, 0) - y * z + gpuinterop.log1p(gpuinterop.exp(-abs(z)))
    error = (p - y) / N
    return p > 0.5, xent, w - RATE * (x.T @ error + DECAY * w), b - RATE * error.sum()


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.RandomState(seed)
    x = rng.randn(N, FEATURES).astype(np.float32)
    y = rng.randint(size=N, low=0, high=2).astype(np.float32)
    return x, y, rng.randn(FEATURES).astype(np.float32)


class Training:
    """The arrays on `device`, and a step as a captured graph."""

    def __init__(self, device=None, seed: int = 0) -> None:
        self.x, y, self.w = (gpuinterop.asarray(given, device=device) for given in data(seed))
        self.b = gpuinterop.zeros((), device=self.x.device)
        self.prediction = gpuinterop.empty((N,), dtype=bool, device=self.x.device)
        self.xent = gpuinterop.empty_like(y)
        with gpuinterop.capture(device=self.x.device) as self.step:
            outs = self.prediction, self.xent, self.w, self.b
            training_step(self.x, y, self.w, self.b, out=outs)

    def predict(self, x):
        """Run the tutorial's second function: return 1 where the model predicts 1, on the device of the arrays."""
        return (gpuinterop.dot(x, self.w) + self.b > 0).astype("float32")


def train(steps: int = STEPS, device=None, seed: int = 0, tell=None) -> dict[str, np.ndarray]:
    """Train on `device`; return the values that the tutorial prints, and the seconds of the training.

    After each tenth of the steps `tell` is called with their number and the mean cross-entropy.
    """
    model = Training(device, seed)
    seconds = 0.0
    for tenth in range(10):
        done, until = steps * tenth // 10, steps * (tenth + 1) // 10
        begin = time.perf_counter()
        for _ in range(done, until):
            model.step.replay()
        gpuinterop.synchronize(model.x.device)
        seconds += time.perf_counter() - begin
        if tell:
            tell(until, float(model.xent.mean()))
    found = {name: getattr(model, name) for name in ("w", "b", "prediction", "xent")}
    found["predicted"] = model.predict(model.x)
    return {
        **{k: np.array(np.asarray(v)) for k, v in found.items()},
        "seconds": seconds,
        "nodes": model.step.nodes,
    }


def oracle(steps: int = STEPS, seed: int = 0) -> dict[str, np.ndarray]:
    """Train in float64 NumPy, as the tutorial writes it, for comparison."""
    x, y, w = (v.astype(np.float64) for v in data(seed))
    b = 0.0
    for _ in range(steps):
        z = x @ w + b
        p = 1 / (1 + np.exp(-z))
        prediction = p > 0.5
        xent = np.maximum(z, 0) - y * z + np.log1p(np.exp(-np.abs(z)))
        error = (p - y) / N
        w, b = w - RATE * (x.T @ error + DECAY * w), b - RATE * error.sum()
    predicted = x @ w + b > 0
    return {"w": w, "b": b, "prediction": prediction, "xent": xent, "predicted": predicted}


def main(device=None) -> None:
    def tell(steps: int, loss: float) -> None:
        print(f"after {steps:6} steps: cross-entropy {loss:.4f}", flush=True)

    result = train(device=device, tell=tell)
    print(
        f"{STEPS} steps, {result['nodes']} nodes each: {result['seconds'] / STEPS * 1e6:.2f} us a step"
    )
    print("target values for D")
    print(data()[1][:20])
    print("prediction on D")
    print(result["predicted"][:20])


if __name__ == "__main__":
    from command_line import device_asked_for

    main(device_asked_for(__doc__))
