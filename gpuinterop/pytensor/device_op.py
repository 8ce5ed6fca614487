"""Operations on device arrays. Each holds the host's Op that it replaces, and computes by its lowering."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.type import TensorType

from gpuinterop import _core

from .device_variables import current_type, device_type, is_device
from .lowering import lower

__all__ = ["GpuOp", "class_for", "printed"]


_TAGS = ("values_eq_approx", "nan_guard_mode_check")  # which DebugMode and NanGuardMode read


class GpuOp(Op):
    """The device's version of a host Op: the same inputs, outputs, views and shapes, on device arrays.

    Subclasses are made by `class_for`, one for each class of host Ops, and are named after it.
    """

    __props__ = ("host",)

    def __init__(self, host: Op) -> None:
        self.host = host
        self.destroy_map = dict(host.destroy_map)
        self.view_map = dict(host.view_map)

    def host_node(self, inputs: Any) -> Any:
        """The host's node for inputs of the same dtypes and shapes."""
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
        return False  # its memory is small compared with what a constant on the device would hold

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        lower(self.host, node)(inputs, outputs)
        _convert(outputs, _classes_of(node))

    def debug_perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        self.perform(node, inputs, outputs)
        if isinstance(self.host, AllocEmpty):
            outputs[0][0][...] = -123456789  # DebugMode compares two calls

    def make_thunk(
        self, node: Any, storage_map: Any, compute_map: Any, no_recycling: Any, impl: Any = None
    ) -> Any:
        inputs = [storage_map[v] for v in node.inputs]
        outputs = [storage_map[v] for v in node.outputs]
        run = lower(self.host, node)
        classes = _classes_of(node)
        if len(outputs) == 1 and classes[0] is not None:
            (cell,), (cls,) = outputs, classes

            def thunk_of_one() -> None:
                run([source[0] for source in inputs], outputs)
                if type(cell[0]) is not cls:
                    cell[0] = _core.view(cls, cell[0])

            return thunk_of_one

        def thunk() -> None:
            run([source[0] for source in inputs], outputs)
            _convert(outputs, classes)

        return thunk

    def __str__(self) -> str:
        return printed(self.host, type(self).__name__)


def _classes_of(node: Any) -> list[Any]:
    return [o.type.array_class if is_device(o) else None for o in node.outputs]


def _convert(cells: Any, classes: Any) -> None:
    for cell, cls in zip(cells, classes, strict=True):
        if cls is not None and type(cell[0]) is not cls:
            cell[0] = _core.view(cls, cell[0])


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
        globals()[name] = found  # for pickle
    return found


def __getattr__(name: str) -> Any:
    """Make a class of this module that a pickle of another process names."""
    for host in lower.registry:
        if name == "Gpu" + host.__name__:
            return class_for(host)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
