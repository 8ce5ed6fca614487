"""The tutorial's first program on an OpenCL device: exp of 230,400 numbers by a PyOpenCL kernel.

The kernel computes on the memory of a CudaNdarray in place, on its values in order and on a reversed view.
The same program with gpuinterop.exp runs on DEVICE, for comparison. Needs PyOpenCL and an OpenCL device that
computes in host memory: pip install pyopencl pocl-binary-distribution mako

    python examples/opencl_exp.py [DEVICE]
"""

from __future__ import annotations

import time

import numpy as np

import gpuinterop as gi

VLEN = 10 * 30 * 768
EXP = """
__kernel void exp_of(__global const char *from, long first, long step, __global char *to, long to_first, long to_step) {
    long i = get_global_id(0);
    *(__global float *)(to + to_first + i * to_step) = exp(*(__global const float *)(from + first + i * step));
}"""


def main(device=None, iterations: int = 1000, vlen: int = VLEN) -> dict[str, np.ndarray]:
    import pyopencl as cl

    cpus = [d for p in cl.get_platforms() for d in p.get_devices(cl.device_type.CPU)]
    queue = cl.CommandQueue(cl.Context(cpus[:1]))
    kernel = cl.Kernel(cl.Program(queue.context, EXP).build(), "exp_of")

    def exp_of(a, out) -> None:
        layout = (np.int64(n) for n in (a.offset, a.strides[0]))
        layout_out = (np.int64(n) for n in (out.offset, out.strides[0]))
        kernel(queue, a.shape, None, a.base_data, *layout, out.base_data, *layout_out)
        queue.finish()

    values = np.random.RandomState(22).rand(vlen).astype(np.float32)
    x = gi.CudaNdarray(values, device="cpu")
    y = gi.asarray(values, device=device)
    result, reversed_result, other = gi.empty_like(x), gi.empty_like(x), gi.empty_like(y)
    with gi.no_copies():
        a, out = (gi.to(array, "pyopencl", queue=queue) for array in (x, result))
        back, out_back = (gi.to(v[::-1], "pyopencl", queue=queue) for v in (x, reversed_result))
    forms = {
        "PyOpenCL kernel": (lambda: exp_of(a, out), result),
        "of a reversed view": (lambda: exp_of(back, out_back), reversed_result),
        f"gpuinterop on {y.device}": (lambda: gi.exp(y, out=other), other),
    }
    print(f"exp of {vlen} numbers on {cpus[0].name}, {iterations} times; microseconds a call")
    results = {}
    for name, (body, array) in forms.items():
        body()
        begin = time.perf_counter()
        for _ in range(iterations):
            body()
        gi.synchronize(y.device)
        print(f"  {name:22} {(time.perf_counter() - begin) * 1e6 / iterations:8.2f}")
        results[name] = array.get()
    print("Result is", results["PyOpenCL kernel"])
    return results


if __name__ == "__main__":
    from command_line import device_asked_for

    main(device_asked_for(__doc__))
