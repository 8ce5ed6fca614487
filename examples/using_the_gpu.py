"""The exercise of the tutorial "Using the GPU": its logistic regression, timed on the host and on a device.

Three versions of the same training step: data passed with each call, data in shared variables, and results that also
stay on the device. The profile of the first version shows the time that the others save. Needs PyTensor.

    python examples/using_the_gpu.py [DEVICE]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import gpuinterop as gi

N, FEATURES = 400, 784
VERSIONS = ("inputs", "shared data", "results on the device")


def functions(version: str) -> tuple[Any, list[np.ndarray]]:
    """Return a compiled training step, and the arguments of its calls."""
    import pytensor
    import pytensor.tensor as pt

    from gpuinterop.pytensor import gpu_from_host

    rng = np.random.RandomState(0)
    data = rng.randn(N, FEATURES).astype("float32"), rng.randint(0, 2, N).astype("float32")
    if version == "inputs":
        x, y = pt.fmatrix("x"), pt.fvector("y")
        arguments = list(data)
    else:
        x, y = (pytensor.shared(v) for v in data)
        arguments = []
    w = pytensor.shared(rng.randn(FEATURES).astype("float32"), name="w")
    b = pytensor.shared(np.asarray(0, "float32"), name="b")
    p_1 = 1 / (1 + pt.exp(-pt.dot(x, w) - b))
    prediction = pt.cast(p_1 > 0.5, "float32")
    xent = -y * pt.log(p_1) - (1 - y) * pt.log(1 - p_1)
    cost = xent.mean() + 0.01 * (w**2).sum()
    gw, gb = pt.grad(cost, [w, b])
    outputs = [prediction, xent]
    if version == "results on the device":
        outputs = [gpu_from_host(v) for v in outputs]
    updates = {w: w - 0.01 * gw, b: b - 0.01 * gb}
    inputs = [x, y] if version == "inputs" else []
    return pytensor.function(inputs, outputs, updates=updates, name="train"), arguments


def seconds(step: Any, arguments: list[np.ndarray], steps: int) -> float:
    """Return the seconds of a call, as the mean of `steps` calls."""
    for _ in range(3):  # compiles kernels, captures graphs
        step(*arguments)
    gi.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step(*arguments)
    gi.synchronize()
    return (time.perf_counter() - start) / steps


def main(device: Any = None, steps: int = 2000) -> dict[str, float]:
    """Print microseconds of a step, by version and device, and the profile of the first version."""
    import pytensor

    import gpuinterop.pytensor as backend

    found: dict[str, float] = {}
    floats, mode = pytensor.config.floatX, pytensor.config.mode
    pytensor.config.floatX = "float32"
    pytensor.config.mode = backend.HOST
    found["host"] = seconds(*functions("inputs"), steps)
    print(f"{'host':34} {found['host'] * 1e6:9.1f} us a step")
    backend.use(gi.default_device() if device is None else device)
    try:
        for version in VERSIONS:
            step, arguments = functions(version)
            name = f"{gi.device(device or gi.default_device())}, {version}"
            found[version] = seconds(step, arguments, steps)
            print(f"{name:34} {found[version] * 1e6:9.1f} us a step")
            for transfer in backend.transfers(step):
                print("   moves:", str(transfer).splitlines()[0])
            if version == "inputs":
                print(backend.profile_summary(step, *arguments))
    finally:
        backend.unuse()
        pytensor.config.floatX, pytensor.config.mode = floats, mode
    return found


if __name__ == "__main__":
    from command_line import device_asked_for

    main(device_asked_for(__doc__))
