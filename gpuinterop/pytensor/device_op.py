"""Operations on device arrays. Each holds the host Op that it replaces, and computes by that Op's lowering."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.type import TensorType

from .device_variables import DeviceOp, current_type, device_type, is_device
from .lowering import lower

_TAGS = ("values_eq_approx", "nan_guard_mode_check")  # which DebugMode and NanGuardMode read


class GpuOp(DeviceOp):
    """The device's version of a host Op: the same inputs, outputs, views and shapes, on device arrays.

    Subclasses are made by `class_for`, one for each class of host Ops, and are named after it.
    """

    __props__ = ("host",)

    def __init__(self, host: Op) -> None:
        self.host = host
        self.destroy_map = dict(host.destroy_map)
        self.view_map = dict(host.view_map)

    def host_node(self, inputs: Any) -> Any:
        """Return the host's node for inputs of the same dtypes and shapes."""
        return self.host.make_node(*(x.type.host()() if is_device(x) else x for x in inputs))

    def make_node(self, *inputs: Any) -> Any:
        floats = {type(x.type) for x in inputs if is_device(x) and x.type.dtype == "float32"}
        like = floats.pop() if len(floats) == 1 else current_type()
        shadow = self.host_node(inputs)
        outputs = [
            device_type(o.type.dtype, o.type.shape, like)()
            if isinstance(o.type, TensorType)
            else o.type()
            for o in shadow.outputs
        ]
        for made, like_host in zip(outputs, shadow.outputs, strict=True):
            for name in _TAGS:
                if hasattr(like_host.tag, name):
                    setattr(made.tag, name, getattr(like_host.tag, name))
        return Apply(self, list(inputs), outputs)

    def infer_shape(self, node: Any, shapes: Any) -> Any:
        return self.host.infer_shape(None, self.host_node(node.inputs), shapes)

    def do_constant_folding(self, fgraph: Any, node: Any) -> bool:
        return False  # its memory is small compared with that of a constant on the device

    def runner(self, node: Any) -> Any:
        return lower(self.host, node)

    def debug_perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        self.perform(node, inputs, outputs)
        if isinstance(self.host, AllocEmpty):
            outputs[0][0][...] = -123456789  # DebugMode compares two calls

    def __str__(self) -> str:
        return printed(self.host, type(self).__name__)

    def __reduce__(self) -> Any:
        # By the host Op, because two packages may have Ops of one name.
        return _device_op, (self.host,)


def _device_op(host: Op) -> GpuOp:
    return class_for(type(host))(host)


@singledispatch
def printed(host: Any, name: str) -> str:
    """Return the text of a device Op, as Theano printed it; `name` is the name of its class."""
    return name


_classes: dict[type, type[GpuOp]] = {}


def class_for(host: type[Op]) -> type[GpuOp]:
    """Return the subclass of GpuOp for a class of host Ops: GpuElemwise for Elemwise, GpuCAReduce for Sum."""
    host = next(base for base in host.__mro__ if base in lower.registry)
    found = _classes.get(host)
    if found is None:
        name = "Gpu" + host.__name__
        found = _classes[host] = type(name, (GpuOp,), {"__module__": __name__})
    return found


def __getattr__(name: str) -> Any:
    """Return a class by its name, such as GpuElemwise."""
    for host in lower.registry:
        if name == "Gpu" + host.__name__:
            return class_for(host)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
