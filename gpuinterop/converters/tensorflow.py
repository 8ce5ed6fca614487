"""TensorFlow: C-contiguous memory is shared; its tensors are immutable, so imported arrays are read-only."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from gpuinterop import _core, errors
from gpuinterop.arrays.dtypes import NUMPY_NAMES
from gpuinterop.exchange.plan import ArrayInfo, Plan, Rules, refuse_object

ARRAY = "a tf.Tensor"
STREAM = "the legacy default stream"
TO_NOTE = "TensorFlow treats tensors as immutable: do not write to `x` while the result is in use."
FROM_NOTE = "The result is read-only, because TensorFlow treats its tensors as immutable."

_DTYPES = frozenset({*NUMPY_NAMES, "bfloat16"})
# TensorFlow accepts any address, but its kernels may use aligned loads of a whole vector register.
RULES = Rules(
    "tensorflow",
    "to_tensorflow",
    _DTYPES,
    layout="c",
    readonly=True,
    alignment=64,
    device_alignment=16,
)


def export(x: Any, tf: Any) -> Any:
    """Return an eager tensor over the memory of `x`."""
    source: Any = _core.writable_alias(x) if x.readonly else x
    # TensorFlow reads legacy capsules only. Without a stream they are ordered on the legacy stream.
    return tf.experimental.dlpack.from_dlpack(source.__dlpack__())


_REFUSALS: tuple[Any, ...] = (  # a condition, and what `refuse_object` takes
    (
        lambda t: "Variable" in type(t).__name__, errors.ConversionTypeError, "",
        "a tensor, because an assignment to a variable may move its memory", "a variable",
        "pass v.value(), or tf.identity(v)",
    ),
    (
        lambda t: not hasattr(t, "numpy"), errors.ConversionTypeError, "",
        "an eager tensor with values", "a symbolic tensor inside tf.function",
        "convert outside the function, or use tf.py_function",
    ),
    (
        lambda t: t.dtype.name not in _DTYPES, errors.DTypeError, "", "a numeric dtype",
        "dtype {0.dtype.name}", "convert the values with tf.cast",
    ),
    (
        lambda t: t.device.rpartition("/device:")[2][:4] not in ("CPU:", "GPU:"),
        errors.DeviceMismatchError, "", "a tensor on CPU or GPU", "a tensor on {0.device}",
        "copy it: with tf.device('/CPU:0'): tf.identity(t)",
    ),
)  # fmt: skip


def judge(t: Any) -> Plan | None:
    """Refuse variables, symbolic tensors, and tensors without numbers or on other devices."""
    for condition, *error in _REFUSALS:
        if condition(t):
            return refuse_object(t, "from_tensorflow", *error)
    return None


def describe(t: Any) -> ArrayInfo:
    """Describe an eager tensor by an array over its memory, which is the owner."""
    tf = sys.modules["tensorflow"]
    array: Any = _core.import_any(None, tf.experimental.dlpack.to_dlpack(t))
    array.readonly = True
    return replace(ArrayInfo.of(array), library="tensorflow", owner=array)
