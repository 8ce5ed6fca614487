"""A base class for Ops that one CUDA C kernel computes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply

import gpuinterop as gi
from gpuinterop.errors import DeviceError, ShapeError

from .device_variables import DeviceOp, as_device_variable, gpu_contiguous


class KernelOp(DeviceOp):
    """An Op that a CUDA C kernel computes; a subclass sets `source` and `name`, and may override the methods.

    By default the result has the type and the shape of the first input, and the kernel receives the inputs, the results
    and the number of elements of the first result as an int, with a thread for each element. Inputs are C-contiguous
    arrays on the device. Captured graphs may contain the Op. A subclass that defines ``host(*arrays)``, which takes
    NumPy arrays and returns one for each result, also runs on "cpu".
    """

    __props__: tuple[str, ...] = ()
    source = ""
    name = ""
    threads = 256
    recordable = True

    def output_types(self, *inputs: Any) -> list[Any]:
        """Return the types of the results for symbolic inputs."""
        return [inputs[0].type]

    def output_shapes(self, *shapes: Any) -> list[Any]:
        """Return the shapes of the results for those of the inputs, which may be symbolic."""
        return [shapes[0]]

    def arguments(self, inputs: list[Any], outputs: list[Any]) -> tuple[Any, ...]:
        """Return the arguments of the kernel: arrays and NumPy scalars."""
        return (*inputs, *outputs, np.intc(outputs[0].size))

    def grid(self, inputs: list[Any], outputs: list[Any]) -> Any:
        """Return the number of blocks of `threads` threads; 0 for no launch."""
        return -(-outputs[0].size // self.threads)

    def make_node(self, *inputs: Any) -> Any:
        inputs = tuple(gpu_contiguous(as_device_variable(x)) for x in inputs)
        return Apply(self, list(inputs), [kind() for kind in self.output_types(*inputs)])

    def infer_shape(self, *arguments: Any) -> Any:
        return self.output_shapes(*arguments[-1])

    def do_constant_folding(self, fgraph: Any, node: Any) -> bool:
        return False

    def runner(self, node: Any) -> Any:
        return partial(self._run, gi.RawKernel(self.source, self.name), node)

    def _run(self, kernel: Any, node: Any, inputs: Any, outputs: Any) -> None:
        device = inputs[0].device
        shapes = [tuple(shape) for shape in self.output_shapes(*(x.shape for x in inputs))]
        if device.type == "cpu":
            self._run_on_host(shapes, node, inputs, outputs)
            return
        arrays = []
        for cell, shape, o in zip(outputs, shapes, node.outputs, strict=True):
            old = cell[0]  # the result of the last call, where PyTensor keeps it
            if old is None or old.shape != shape or not old.flags.c_contiguous:
                old = gi.empty(shape, o.type.dtype, device=device)
            arrays.append(old)
        grid = self.grid(inputs, arrays)
        if grid:
            kernel(grid, self.threads, *self.arguments(list(inputs), arrays))
        for cell, array in zip(outputs, arrays, strict=True):
            cell[0] = array

    def _run_on_host(
        self, shapes: list[tuple[int, ...]], node: Any, inputs: Any, outputs: Any
    ) -> None:
        where = f"{type(self).__name__}.host"
        host = getattr(self, "host", None)
        if host is None:
            raise DeviceError(
                where=where, expected="this method, because CUDA C runs on GPUs only", got="arrays on cpu",
                fix="define host(self, *arrays), which computes the results with NumPy, or call use('cuda')",
            )  # fmt: skip
        results = host(*(x.get() for x in inputs))
        results = results if isinstance(results, (list, tuple)) else [results]
        results = [
            np.asarray(result, o.type.dtype)
            for result, o in zip(results, node.outputs, strict=True)
        ]
        if [result.shape for result in results] != shapes:
            raise ShapeError(
                where=where, expected=f"results of the shapes that output_shapes returns, {shapes}",
                got=f"shapes {[result.shape for result in results]}", fix="correct host or output_shapes",
            )  # fmt: skip
        for cell, result, o in zip(outputs, results, node.outputs, strict=True):
            cell[0] = o.type.array_class(result, device=inputs[0].device)
