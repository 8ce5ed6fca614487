"""The tutorial's exercises on custom kernels, with gpuinterop.

A (20, 10) matrix doubled; x * y of two matrices; x + y and x - y from one kernel; and the same on
strided operands, without copies.

    python examples/pycuda_exercises.py [DEVICE]
"""

from __future__ import annotations

import numpy as np

import gpuinterop

double = gpuinterop.fuse(lambda x: x * 2)
product = gpuinterop.fuse(lambda x, y: x * y)
sum_and_difference = gpuinterop.fuse(lambda x, y: (x + y, x - y))


def main(device=None) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(0)
    a, b = (rng.randn(20, 10).astype(np.float32) for _ in range(2))
    x, y = (gpuinterop.CudaNdarray(v, device=device) for v in (a, b))
    results = {"double": double(x), "product": product(x, y)}
    results["sum"], results["difference"] = sum_and_difference(x, y)

    # A transpose, a reversed axis, every second column: the kernel follows the strides.
    with gpuinterop.count_copies() as copies:
        results["strided"] = product(x.T[::-1, ::2], y.T[::-1, ::2])
    assert copies.count == 0
    shown = {name: np.array(np.asarray(value)) for name, value in results.items()}
    expected = {
        "double": a * 2, "product": a * b, "sum": a + b, "difference": a - b,
        "strided": (a * b).T[::-1, ::2],
    }  # fmt: skip
    for name, value in expected.items():
        assert np.array_equal(shown[name], value), name
        print(f"{name:11} {shown[name].shape} agrees with NumPy")
    return shown


if __name__ == "__main__":
    from command_line import device_asked_for

    main(device_asked_for(__doc__))
