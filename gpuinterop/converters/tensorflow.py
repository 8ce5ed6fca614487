"""TensorFlow: C-contiguous memory is shared; its tensors are immutable, so ours are read-only."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters import checks
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, plan_layout, refuse
from gpuinterop.dtypes import NUMPY_NAMES
from gpuinterop.option_values import require_bool

__all__ = ["describe", "from_tensorflow", "plan_from", "plan_to", "to_tensorflow", "stream_used_by"]

_DTYPES = frozenset({*NUMPY_NAMES, "bfloat16"})
# TensorFlow takes any address, but its kernels may use aligned loads of a whole vector register.
_TO = Rules(
    "tensorflow",
    "to_tensorflow",
    _DTYPES,
    layout="c",
    readonly=True,
    alignment=64,
    device_alignment=16,
)


def plan_to(x: Any, copyif: bool = False) -> Plan:
    """Plan `to_tensorflow`: what explain() shows and the converter carries out."""
    return plan_layout(checks.describe_array(x), _TO, copyif)


def to_tensorflow(x: Any, copyif: bool = False) -> Any:
    """Return a TensorFlow eager tensor over the memory of `x`.

    Shares C-contiguous memory, aligned to 64 bytes on the host, and keeps it alive. TensorFlow takes
    tensors for immutable: do not write to `x` while the result is in use.
    """
    checks.require_array(x, "to_tensorflow")
    plan = plan_to(x, copyif)
    tf = checks.library_for(plan, "tensorflow")
    x = checks.execute_export(x, plan)
    _core.require_hand_over(x, checks.LEGACY, "to_tensorflow")
    source: Any = _core.writable_alias(x) if x.readonly else x
    # TensorFlow knows the old capsule only. Without a stream it is ordered on the legacy stream.
    return tf.experimental.dlpack.from_dlpack(source.__dlpack__())


def stream_used_by(index: int, array: Any = None) -> int | None:
    """The stream on which the library uses memory, by its handle. Its tensors are ready when we get them."""
    return checks.LEGACY if array is None else None


def _place(t: Any) -> tuple[str, int]:
    kind, _, index = t.device.rpartition("/device:")[2].partition(":")
    return {"CPU": "cpu", "GPU": "cuda"}.get(kind, kind.lower()), int(index or 0)


def _oddity(t: Any) -> Plan | None:
    def no(reason: str, got: str, fix: str) -> Plan:
        return refuse("gpuinterop", "from_tensorflow", errors.ConversionTypeError, reason, got, fix)

    name = type(t).__name__
    if "Variable" in name:
        return no(
            "a tensor; a variable may move its memory on every assignment",
            f"a tf.{name}",
            "pass v.value(), or tf.identity(v)",
        )
    if not hasattr(t, "numpy"):
        return no(
            "an eager tensor with values",
            f"a symbolic {name} inside tf.function",
            "convert outside the function, or use tf.py_function",
        )
    if t.dtype.name not in _DTYPES:
        return refuse(
            "gpuinterop", "from_tensorflow", errors.DTypeError, "a numeric dtype",
            f"dtype {t.dtype.name}", "convert the values with tf.cast",
        )  # fmt: skip
    place = _place(t)[0]
    if place not in ("cpu", "cuda"):
        return refuse(
            "gpuinterop", "from_tensorflow", errors.DeviceMismatchError, "a tensor on CPU or GPU",
            f"a tensor on {t.device}", "copy it: with tf.device('/CPU:0'): tf.identity(t)",
        )  # fmt: skip
    return None


def describe(t: Any) -> ArrayInfo:
    """Describe the foreign array; nothing is converted."""
    return replace(checks.describe_array(_import(t)), readonly=True)


def plan_from(t: Any, copyif: bool = False) -> Plan:
    """Plan `from_tensorflow`: what explain() shows and the converter carries out."""
    return _oddity(t) or checks.plan_own(describe(t), "from_tensorflow", copyif)


def _import(t: Any) -> Any:
    tf = sys.modules["tensorflow"]
    if numpy.prod(t.shape.as_list(), dtype="int64") == 0:
        # TensorFlow exports an empty tensor without the device that it is on.
        return _core.empty(
            checks.class_for(t.dtype.as_numpy_dtype),
            tuple(t.shape),
            t.dtype.as_numpy_dtype,
            checks.TYPE_CODES["cpu"],
            0,
        )
    return _core.import_any(None, tf.experimental.dlpack.to_dlpack(t))


def from_tensorflow(t: Any, copyif: bool = False) -> Any:
    """Return a read-only array over the memory of the eager tensor `t`.

    Shares memory and keeps it alive. TensorFlow takes its tensors for immutable, so writing is
    refused; ``from_tensorflow(t).copy()`` can be written to.
    """
    require_bool(copyif, "copyif", "from_tensorflow")
    checks.require_foreign(t, "tensorflow", "from_tensorflow", "a tf.Tensor")
    odd = _oddity(t)
    if odd is not None:
        raise odd.exception()
    x = _import(t)
    x.readonly = True
    return x
