"""Conversion of numbers and arrays of other libraries to operands, and the classes of results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.dtypes import dtype_id
from gpuinterop.arrays.numpy_views import as_scalar, read_by_numpy, wrap_numpy
from gpuinterop.arrays.scalars import (
    dtype_beside,
    holds_arrays,
    is_scalar_or_list,
    scalars_to_array,
)
from gpuinterop.devices.foreign_handles import torch_keeps_stream
from gpuinterop.errors import ConversionTypeError
from gpuinterop.exchange.incoming import (
    as_assigned_array,
    as_input_array,
    copy_values,
    default_device_for,
    needs_converter,
)
from gpuinterop.exchange.protocols import interfaces_of


def result_class(classes: Sequence[Any]) -> Any:
    """Return the class of a result: the most derived class, of CudaNdarray's family if an operand belongs to it."""
    special = [c for c in classes if getattr(c, "_only", None) is not None]
    first, *others = special or classes
    for other in others:
        if issubclass(other, first):
            first = other
    return first


def general_class(classes: Sequence[Any]) -> Any:
    """Return the class of a result that a CudaNdarray among these classes of operands cannot hold."""
    others = [c for c in classes if getattr(c, "_only", None) is None]
    cls = result_class(others) if others else _core.Array
    return _core.gpuarray_class() if cls is _core.Array else cls


def operand(value: Any, like: Any, where: str) -> Any:
    """Convert a value that is not a gpuinterop array to an operand, or return NotImplemented.

    NumPy scalars and 0-d NumPy arrays are numbers of their dtype (with a CudaNdarray, of
    float32). A list counts as its numbers do. Other arrays are imported by the exchange protocols; host
    arrays are copied to the device of `like`.
    """
    value = as_scalar(value, where)
    if like is None and isinstance(value, (bool, int, float, complex)):
        source = as_input_array(value, np.result_type(value), where)
        return on_device_of(source, None, where, True)
    if isinstance(value, np.generic):
        number = value.item()
        if not isinstance(number, (bool, int, float, complex)):
            return NotImplemented
        if like is not None and getattr(type(like), "_only", None) is not None:
            return number
        if like is None:
            return on_device_of(as_input_array(np.asarray(value), None, where), None, where, True)
        return number, dtype_id(value.dtype)
    if isinstance(value, (bool, int, float, complex)):
        # An object of a subclass, such as an IntEnum, becomes Python's number.
        numbers: tuple[Any, ...] = (bool, int, float, complex)
        return next(t(value) for t in numbers if isinstance(value, t))
    if is_scalar_or_list(value):
        return list_operand(value, like, where)
    if not hasattr(value, "__gpuinterop_trace__") and is_foreign_array(value):
        return on_device_of(as_input_array(value, None, where), like, where)
    return NotImplemented


def list_operand(values: Any, like: Any, where: str) -> Any:
    """Return nested lists as an array on the device of `like`, of the dtype that numbers have beside it."""
    dtype = None if like is None else getattr(type(like), "_only", None)
    if like is not None and dtype is None:
        dtype = dtype_beside(values, core_view(like).dtype, where)
    host = scalars_to_array(values, dtype, where)
    if holds_arrays(values):  # which may be on a GPU
        raise ConversionTypeError(
            where=where, expected="an array, a number, or nested lists of numbers", got="a list of arrays",
            fix="join the arrays first: gpuinterop.stack(values)",
        )  # fmt: skip
    return on_device_of(wrap_numpy(host), like, where, True)


def is_foreign_array(value: Any) -> bool:
    """Return whether `value` is an array of another library; NumPy's scalars are numbers."""
    known = (_core.Array, int, float, complex, np.generic, type)
    return not isinstance(value, known) and (any(interfaces_of(value)) or needs_converter(value))


def on_device_of(source: Any, like: Any, where: str, values: bool = False) -> Any:
    """Return `source` as an array on the device of `like`, or on the default device: shared if it is there.

    `values`: it was made from Python scalars, whose transfer to a device is not counted as a copy.
    """
    cls = _core.gpuarray_class()
    device = default_device_for(None, source) if like is None else like.device
    if source.device == device:
        return _core.view(cls, source)
    if source.device.type != "cpu":
        return _core.view(cls, source)  # the core raises the error about two GPUs
    copy = _core.empty(cls, source.shape, source.dtype, device.type_code, device.index)
    copy_values(copy, source, where, values)
    return copy


def as_array_or_none(value: Any, like: Any, where: str) -> Any:
    """Return an operand as an array, shared if it is on the device of `like`; None for other values."""
    array = value if isinstance(value, _core.Array) else operand(value, like, where)
    return array if isinstance(array, _core.Array) else None


def _convert_assigned(value: Any, like: Any, where: str) -> Any:
    """Convert a value assigned to `like`, and return whether it was a scalar or a list, without arrays on a GPU."""
    found = as_assigned_array(value, core_view(like), type(like), where)
    return found, is_scalar_or_list(value) and found.device.type == "cpu"


# The subjects of the hook; native/interpreter/hooks.cpp lists their arguments.
_FOREIGN: dict[str, Any] = {
    "operand": operand, "assigned": _convert_assigned, "torch stream": torch_keeps_stream,
}  # fmt: skip
# Those that the conversion engine answers, and those of one library's converter, imported on first use.
_ENGINE = {
    "refuse": "refusal", "caller": "judge_caller", "check strides": "check_strides_for_caller", "out": "refuse_out",
}  # fmt: skip
_CONVERTERS = {"wait": ("jax", "wait_for_readers")}


def _foreign(subject: str, *request: Any) -> Any:
    if subject in _FOREIGN:
        return _FOREIGN[subject](*request)
    # Do not load the engine for a script: without the registry there are no rules for other modules than packages.
    if (
        subject == "caller"
        and "." not in request[0]
        and "gpuinterop.exchange.registry" not in sys.modules
    ):
        return None
    if subject in _ENGINE:
        return getattr(import_module("gpuinterop.exchange.engine"), _ENGINE[subject])(*request)
    library, name = _CONVERTERS[subject]
    return getattr(import_module("gpuinterop.exchange.registry").built_in(library), name)(*request)


_core.set_hooks(foreign=_foreign)


def as_operand(value: Any, like: Any, where: str) -> Any:
    """Return a gpuinterop array unchanged, and any other value as an array on the device of `like`."""
    if isinstance(value, _core.Array):
        return value
    given = read_by_numpy(value) if is_scalar_or_list(value) else value
    return on_device_of(as_input_array(given, None, where), like, where)
