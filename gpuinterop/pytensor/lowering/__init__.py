"""The lowerings: functions that compute host Ops on device arrays.

``lower(op, node)`` returns a function of the input values and the output cells, as `Op.perform` has them. A
package adds its Op with ``@lower.register(ItsOp)``. An input cell holds a device array, or a host value where the
Op reads it on the host (`device_inputs`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any


@singledispatch
def lower(op: Any, node: Any) -> Callable[[Any, Any], None]:
    """Return ``run(inputs, outputs)`` for an Apply node on device arrays; raises NotImplementedError."""
    raise NotImplementedError(f"{type(op).__name__} has no lowering for device arrays")


def has_lowering(op: Any) -> bool:
    """Return whether `lower` has an entry for the class of an Op."""
    return lower.dispatch(type(op)) is not lower.dispatch(object)


@singledispatch
def device_inputs(op: Any, node: Any) -> list[int] | None:
    """Return the positions of the inputs that are device arrays; the others are values on the host, such as shapes.

    None: this node cannot run on the device.
    """
    dtypes = {o.type.dtype for o in node.outputs}
    return [
        i
        for i, x in enumerate(node.inputs)
        if getattr(x.type, "ndim", 0) and x.type.dtype in dtypes
    ]


@singledispatch
def recordable(op: Any, node: Any) -> str:
    """Return whether a captured CUDA graph may replay an Op: "", "fixed" or "values".

    The lowering must make the same gpuinterop calls for the same layouts, and read no array on the host. "fixed": host
    inputs must depend on constants and shapes only; "values": other numbers may be captured with the graph.
    """
    return ""


def computes(*ops: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that returns the one result, for the Op and its input values, as the lowering of Ops."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def lowering(op: Any, node: Any) -> Any:
            def run(inputs: Any, outputs: Any) -> None:
                outputs[0][0] = function(op, *inputs)

            return run

        for op in ops:
            lower.register(op, lowering)
        return function

    return register


def record_as(kind: str, *ops: type) -> None:
    """Let graphs contain Ops of these classes: "fixed" or "values", as `recordable` has them."""
    for op in ops:
        recordable.register(op, lambda op, node: kind)


def read_first(*ops: type) -> None:
    """Let the device read the first input of Ops of these classes, and the host the others."""
    for op in ops:
        device_inputs.register(op, lambda op, node: [0])
