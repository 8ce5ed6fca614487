"""Slices and index arrays of device arrays: reading, writing and adding."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

import gpuinterop as gi

from . import computes, device_inputs, lower, recordable

# Ops that can write to their first input.
INPLACE = (IncSubtensor, AdvancedIncSubtensor)


def _key(op: Any, values: Any) -> Any:
    """Return the key of an Op: `op.idx_list` has positions among the values, which are numbers or index arrays."""

    def at(place: int | None) -> Any:
        if place is None:
            return None
        value = values[place]
        return value if getattr(value, "ndim", 0) else int(value)

    return tuple(
        slice(at(k.start), at(k.stop), at(k.step)) if isinstance(k, slice) else at(k)
        for k in op.idx_list
    )


@computes(Subtensor, AdvancedSubtensor)
def _subtensor(op: Any, x: Any, *index: Any) -> Any:
    return x[_key(op, index)]


@lower.register(IncSubtensor)
@lower.register(AdvancedIncSubtensor)
def _inc_subtensor(op: Any, node: Any) -> Any:
    repeats = isinstance(op, AdvancedIncSubtensor) and not op.ignore_duplicates
    # PyTensor's rule about lengths of 1 in y, in the versions that have one. It reads shapes and types only.
    check = getattr(op, "_check_runtime_broadcast_of_vector_index", None)

    def run(inputs: Any, outputs: Any) -> None:
        x, y, *index = inputs
        if check is not None:
            check(node, x, y, index[0])
        if y.dtype != x.dtype and y.ndim:
            y = y.astype(x.dtype)
        y = y.item() if isinstance(y, np.ndarray) and y.ndim == 0 else y
        result = x if op.inplace else x.copy()
        key = _key(op, index)
        if op.set_instead_of_inc:
            result[key] = y
        elif repeats:  # an index counts each time that it occurs
            gi.add.at(result, key, y)
        else:
            result[key] += y
        outputs[0][0] = result

    return run


@device_inputs.register(Subtensor)
@device_inputs.register(AdvancedSubtensor)
@device_inputs.register(IncSubtensor)
@device_inputs.register(AdvancedIncSubtensor)
def _arrays(op: Any, node: Any) -> list[int]:
    # An index or a value without dimensions is a number on the host.
    return [i for i, x in enumerate(node.inputs) if i == 0 or getattr(x.type, "ndim", None)]


@recordable.register(Subtensor)
@recordable.register(IncSubtensor)
@recordable.register(AdvancedSubtensor)
@recordable.register(AdvancedIncSubtensor)
def _fixed(op: Any, node: Any) -> str:
    # The number of elements that a mask selects is known only on the device.
    return "" if any(getattr(x.type, "dtype", "") == "bool" for x in node.inputs[1:]) else "fixed"
