"""The blog's y = m.x + b in its four stages, with the transfers of each between host and device.

NumPy; all arrays transferred each time; m and b on the device; all arrays on the device. The last stage is
one matrix product that adds b as it writes y.

    python examples/line.py [DEVICE]
"""

from __future__ import annotations

import time

import numpy as np

import gpuinterop


def main(device=None, n: int = 1000, iterations: int = 50):
    """Return the result of each stage, and the number of its transfers between host and device."""
    rng = np.random.RandomState(123)
    m, x, b = (rng.randn(n, n).astype(np.float32) for _ in range(3))

    def upload(array: np.ndarray):
        return gpuinterop.CudaNdarray(array, device=device)

    on_device = {name: upload(array) for name, array in (("m", m), ("x", x), ("b", b))}
    y = gpuinterop.empty_like(on_device["b"])

    def numpy_only():
        return np.add(np.dot(m, x), b)

    def all_transferred():
        return gpuinterop.gemm(upload(m), upload(x), upload(b)).get()

    def parameters_resident():
        return gpuinterop.gemm(on_device["m"], upload(x), on_device["b"]).get()

    def all_resident():
        return gpuinterop.gemm(on_device["m"], on_device["x"], on_device["b"], out=y)

    stages = {
        "numpy": numpy_only,
        "all transferred": all_transferred,
        "m and b resident": parameters_resident,
        "all resident": all_resident,
    }
    place = y.device
    results, transfers = {}, {}
    print(f"y = m.x + b, {n} x {n}, on {place}; {iterations} times")
    print(f"  {'stage':18} {'us a step':>10} {'transfers':>10} {'bytes':>12}")
    for name, stage in stages.items():
        with gpuinterop.log_transfers() as log:
            result = stage()
        crossing = [t for t in log if t.kind in ("host_to_device", "device_to_host")]
        results[name] = np.array(np.asarray(result))
        transfers[name] = len(crossing)
        begin = time.perf_counter()
        for _ in range(iterations):
            stage()
        gpuinterop.synchronize(place)
        each = (time.perf_counter() - begin) / iterations
        moved = sum(t.bytes for t in crossing)
        print(f"  {name:18} {each * 1e6:10.1f} {len(crossing):10} {moved:12}")
    return results, transfers


if __name__ == "__main__":
    from command_line import device_asked_for

    main(device_asked_for(__doc__))
