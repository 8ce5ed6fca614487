"""The tutorial's logistic regression, 400 x 784, trained 10,000 steps by a captured graph.

A training step is two kernels: one pass over x computes the prediction, cross-entropy and error of every
row, another pass the gradient and the update of every weight. The bias is the weight of a column of ones,
so it needs no kernel of its own. No result returns to the host.

    python examples/logistic_regression.py [DEVICE]
"""

from __future__ import annotations

import time

import numpy as np

import gpuinterop

N, FEATURES, STEPS = 400, 784, 10_000
RATE, DECAY = 0.01, 0.02  # the penalty is 0.01 * sum(w**2), so its gradient is 0.02 * w
WIDTH = (
    FEATURES + 4
)  # with the ones, followed by zeros, so that rows begin at multiples of 16 bytes


def _rows(operands, extras):
    """Compute the first kernel in NumPy; every row of `w`, broadcast to the shape of x, is the same."""
    (x, w), (y,) = operands, extras
    z = x @ w[0]
    p = 1 / (1 + np.exp(-z))
    xent = np.maximum(z, 0) - y * z + np.log1p(np.exp(-np.abs(z)))
    return p > 0.5, xent, (p - y) / len(y)


# log(p) and log(1 - p) are written in terms of z, as the tutorial's compiler rewrites them: this is accurate
# even if p itself rounds to 0 or 1.
forward = gpuinterop.MapReduce(
    "x0 * x1",
    _rows,
    axis=-1,
    locals="const float z = r; const float p = 1.0f / (1.0f + expf(-z));",
    posts=(
        "p > 0.5f",
        "fmaxf(z, 0.0f) - e0 * z + log1pf(expf(-fabsf(z)))",
        f"(p - e0) * {1 / N!r}f",
    ),
)


def _columns(operands, extras):
    (x, error), (w, decay) = operands, extras
    return (w - RATE * (error[:, 0] @ x + decay * w),)


backward = gpuinterop.MapReduce(
    "x0 * x1", _columns, axis=0, posts=(f"e0 - {RATE}f * (r + e1 * e0)",)
)


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.RandomState(seed)
    x = rng.randn(N, FEATURES).astype(np.float32)
    y = rng.randint(size=N, low=0, high=2).astype(np.float32)
    return x, y, rng.randn(FEATURES).astype(np.float32)


class Training:
    """The arrays on `device`, and a step as a captured graph."""

    def __init__(self, device=None, seed: int = 0) -> None:
        given, target, start = data(seed)
        x = gpuinterop.zeros((N, WIDTH), device=device)
        w, decay = (gpuinterop.zeros((WIDTH,), device=x.device) for _ in range(2))
        self.x, self.w, self.b = x[:, :FEATURES], w[:FEATURES], w[FEATURES]
        self.x[...], self.w[...] = given, start
        x[:, FEATURES], decay[:FEATURES] = 1, DECAY  # the bias has no penalty
        y = gpuinterop.CudaNdarray(target, device=x.device)
        self.prediction, self.xent, error = (
            gpuinterop.empty((N,), device=x.device) for _ in range(3)
        )
        with gpuinterop.capture(device=x.device) as self.step:
            forward(x, w, extras=(y,), out=(self.prediction, self.xent, error))
            backward(x, error.expand_dims(1), extras=(w, decay), out=w)

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
