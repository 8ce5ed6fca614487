"""NumPy: every layout and dtype of the host is shared, read-only flags included."""

from __future__ import annotations

from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.arrays import copy_tracking
from gpuinterop.arrays.core_view import class_for
from gpuinterop.arrays.dtypes import NAMES, as_supported_dtype, name_of
from gpuinterop.arrays.numpy_views import as_numpy_view, refuse_mask, to_host_array
from gpuinterop.devices.foreign_handles import CPU
from gpuinterop.errors.messages import foreign_byte_order
from gpuinterop.exchange.foreign_memory import import_memory
from gpuinterop.exchange.plan import (
    ArrayInfo,
    Plan,
    Rules,
    copy_needed,
    plan_from_error,
    plan_layout,
    refuse,
)
from gpuinterop.exchange.suggested_fixes import cast_line, fix_dtype, move_line

ARRAY = "a numpy.ndarray"
STREAM = "the host"
FAMILY = _core.NUMPY
COPIES = ["arrays on a GPU to the host"]
FROM_NOTE = """Copies memory of foreign byte order and NumPy's scalars too, with ``copyif=True``. Use
``.to_device("cuda")`` on the result, or ``CudaNdarray(obj)``, to upload."""
RULES = Rules("numpy", "to_numpy", devices=frozenset({"cpu"}), readonly=True)


def plan_to(info: ArrayInfo, copyif: bool = False) -> Plan:
    """Plan a conversion to NumPy, which has no arrays on a GPU: those are downloaded."""
    if info.device == "cpu":
        return plan_layout(info, RULES)
    return Plan(
        "numpy", "copied", "memory on the host, because NumPy has no arrays on a GPU", "device",
        # Other layouts are made contiguous on the GPU first: two copies.
        bytes=info.nbytes * (1 if info.c_contiguous else 2),
        fix=f"keep it on the host: {move_line(info.library, 'cpu')}", where="to_numpy",
        got=info.text(), error=errors.DeviceMismatchError, crosses="device_to_host",
    )  # fmt: skip


def export(x: Any, library: Any) -> numpy.ndarray[Any, Any]:
    """Return a NumPy array over the memory of a host array, or a download."""
    if _core.traits(x) & _core.ON_CUDA:
        return to_host_array(x, "to_numpy", memory=True)
    return as_numpy_view(x)


def as_base_array(a: Any) -> numpy.ndarray[Any, Any]:
    """Return a view as NumPy's own class, because a subclass may override its shape or dtype."""
    return numpy.ndarray.view(numpy.asanyarray(a), numpy.ndarray)


def judge(a: Any) -> Plan | None:
    """Refuse dtypes without numbers and masks; scalars and foreign byte order need a copy."""
    return judge_host(a, as_base_array(a), "from_numpy")


def judge_host(
    a: Any, array: numpy.ndarray[Any, Any], where: str, library: str = "numpy"
) -> Plan | None:
    """Judge `array`, the array in `a`, which an object of a library holds."""
    dtype = array.dtype
    if dtype.name not in NAMES:
        return refuse(
            "gpuinterop", where, errors.DTypeError, "a numeric dtype that gpuinterop has", f"dtype {dtype}",
            fix_dtype(library, dtype.name, frozenset(NAMES)) if dtype.kind in "fc"
            else "convert the values, or pass one field of the structure",
        )  # fmt: skip
    if isinstance(a, numpy.generic):
        return copy_needed(
            "gpuinterop", where, describe(a), errors.ConversionTypeError,
            "an array, because a NumPy scalar has no memory to share",
            f"{type(a).__name__} scalar",
        )  # fmt: skip
    try:
        refuse_mask(a, where)
    except errors.UnsupportedError as error:
        return plan_from_error(error, "gpuinterop", where)
    if dtype.isnative:
        return None
    swapped = foreign_byte_order(where, dtype.str, cast_line(library, dtype, "a"))
    return copy_needed("gpuinterop", where, describe_host(array), type(swapped), swapped.expected,
                       swapped.got, swapped.fix)  # fmt: skip


def describe(a: Any) -> ArrayInfo:
    """Describe a NumPy array or scalar."""
    return describe_host(as_base_array(a), isinstance(a, numpy.generic))


def describe_host(array: numpy.ndarray[Any, Any], scalar: bool = False) -> ArrayInfo:
    """Describe an array of NumPy's own class."""
    ptr = 0 if scalar else array.ctypes.data  # the array of a scalar is temporary
    return ArrayInfo(
        array.shape, array.strides, name_of(array.dtype), array.itemsize, "cpu", 0, ptr,
        not array.flags.writeable, "numpy",
    )  # fmt: skip


def adopt(a: Any, info: ArrayInfo, plan: Plan) -> Any:
    """Return an array over the memory of `a`, or an aligned copy in native byte order, cast to `info.dtype`."""
    if plan.shared:
        return import_memory(a, info, plan)
    array = as_base_array(a)
    copy_tracking.report_copy("host", plan.bytes, plan.where)
    # gpuinterop allocates aligned memory, so that other libraries can share it without another copy.
    dtype = as_supported_dtype(info.dtype)
    copy: Any = _core.empty(class_for(dtype), array.shape, dtype, CPU, 0)
    as_numpy_view(copy)[...] = array
    return copy
