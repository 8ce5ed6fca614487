"""Transfers between host and device, as operations of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.basic import as_tensor_variable

from . import settings
from .types import CudaNdarrayType, device_type, is_device

__all__ = ["GpuFromHost", "HostFromGpu", "as_device_variable", "gpu_from_host", "host_from_gpu"]


class _Transfer(Op):
    __props__: tuple[str, ...] = ()

    def make_thunk(
        self, node: Any, storage_map: Any, compute_map: Any, no_recycling: Any, impl: Any = None
    ) -> Any:
        (source,), (target,) = ([storage_map[v] for v in vs] for vs in (node.inputs, node.outputs))
        perform = self.perform

        def thunk() -> None:
            perform(node, (source[0],), (target,))

        return thunk

    def infer_shape(self, node: Any, shapes: Any) -> Any:
        return shapes

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        # The host type on both sides: the gradient of a shared variable has the type that it has on the host.
        return [as_tensor_variable(cotangents[0])]


class GpuFromHost(_Transfer):
    """Copy a tensor to the device."""

    def make_node(self, x: Any) -> Any:
        x = as_tensor_variable(x)
        return Apply(self, [x], [device_type(x.type.dtype, x.type.shape, settings.array_type())()])

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        (x,), cell = inputs, outputs[0]
        old = cell[0]
        if old is not None and old.shape == x.shape and old.flags.c_contiguous:
            old[...] = x
        else:
            cell[0] = node.outputs[0].type.array_class(x, device=settings.device())


class HostFromGpu(_Transfer):
    """Copy an array from the device to a new NumPy array."""

    __props__ = ("any_dtype",)

    def __init__(self, any_dtype: bool = False) -> None:
        self.any_dtype = any_dtype  # the type is not Theano's first, which its text says

    def make_node(self, x: Any) -> Any:
        if not is_device(x):
            raise TypeError(f"expected a variable on the device, got {x.type}")
        op = self if isinstance(x.type, CudaNdarrayType) else HostFromGpu(any_dtype=True)
        return Apply(op, [x], [x.type.host()()])

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        outputs[0][0] = inputs[0].get()

    def __str__(self) -> str:
        return "HostFromGpu(gpuarray)" if self.any_dtype else "HostFromGpu"


gpu_from_host, host_from_gpu = GpuFromHost(), HostFromGpu()


def as_device_variable(x: Any) -> Any:
    """Return a variable on the device: the source of a `HostFromGpu`, a constant, or a transfer."""
    if not isinstance(x, Variable):
        x = as_tensor_variable(x)
    if is_device(x):
        return x
    if x.owner is not None and isinstance(x.owner.op, HostFromGpu):
        return x.owner.inputs[0]
    if isinstance(x, Constant):
        kind = device_type(x.type.dtype, x.type.shape, settings.array_type())
        return kind.make_constant(np.asarray(x.data))
    return gpu_from_host(x)


class GpuContiguous(_Transfer):
    """Return a C-contiguous array: the same one, or a copy."""

    view_map = {0: [0]}  # noqa: RUF012 (PyTensor reads it from the class)

    def make_node(self, x: Any) -> Any:
        x = as_device_variable(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        (x,) = inputs
        outputs[0][0] = x if x.flags.c_contiguous else x.copy()


gpu_contiguous = GpuContiguous()
