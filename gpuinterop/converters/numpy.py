"""NumPy: every layout and dtype of the host is shared, read-only flags included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import _core, copy_tracking, errors
from gpuinterop.converters import checks
from gpuinterop.converters.plan import (
    ArrayInfo,
    Plan,
    Rules,
    copy_or_refuse,
    plan_from_error,
    plan_layout,
    refuse,
)
from gpuinterop.converters.remedies import remedy_cast, remedy_move
from gpuinterop.host_views import as_numpy_view, refuse_mask
from gpuinterop.ndarray import to_host_array
from gpuinterop.option_values import require_bool

__all__ = [
    "execute_import",
    "describe",
    "from_numpy",
    "judge",
    "plain",
    "plan_array",
    "plan_from",
    "plan_to",
    "to_numpy",
]

_TO = Rules("numpy", "to_numpy", devices=frozenset({"cpu"}), readonly=True)


# Before NumPy 2.2.5 the results of numpy.from_dlpack are read-only, whatever the array is.
_QUICK = numpy.lib.NumpyVersion(numpy.__version__) >= "2.2.5"


def plan_to(x: Any, copyif: bool = False) -> Plan:
    """Plan `to_numpy`: what explain() shows and the converter carries out."""
    facts = checks.describe_array(x)
    if facts.device == "cpu":
        return plan_layout(facts, _TO, copyif)
    copyif = require_bool(copyif, "copyif", "to_numpy")
    return Plan(
        "numpy",
        "copied" if copyif else "refused",
        "memory on the host, the only place where NumPy has arrays",
        "device",
        None,
        # Other layouts are made dense on the GPU first: two copies.
        facts.nbytes * (1 if facts.c_contiguous else 2) if copyif else 0,
        f"keep it on the host: {remedy_move(facts, 'cpu')}"
        if copyif
        else "pass copyif=True to download it",
        "to_numpy",
        facts.text(),
        errors.DeviceMismatchError,
        "device_to_host",
    )


def to_numpy(x: Any, copyif: bool = False) -> numpy.ndarray[Any, Any]:
    """Return a NumPy array over the memory of `x`.

    Shares every layout of a host array. Copies an array on a GPU to the host, with ``copyif=True``.
    The dtype stays. A download waits for what is queued on `x`; on the host there is no stream. The
    result keeps `x` alive. Writes on either side are seen by the other; a read-only array stays
    read-only.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> a = numpy.zeros(3, "float32")
    >>> gpuinterop.converters.to_numpy(gpuinterop.converters.from_numpy(a))[::-1].shape
    (3,)
    """
    if (
        _QUICK
        and type(copyif) is bool  # type: ignore[redundant-expr]  # of those who check types
        and isinstance(x, _core.Array)
        and not _core.traits(x) & _core.ON_CUDA
        and x.dtype.isbuiltin == 1
    ):
        try:
            return numpy.from_dlpack(x)
        except errors.CaptureError:  # which is told below in the name of this function
            pass
    checks.require_array(x, "to_numpy")
    plan = plan_to(x, copyif)
    if plan.refused:
        raise plan.exception()
    if plan.copied:
        return to_host_array(x, "to_numpy", memory=True)
    return as_numpy_view(x)


def plain(a: Any) -> numpy.ndarray[Any, Any]:
    """The array as it is: what a subclass says of its shape or dtype may be anything."""
    return numpy.ndarray.view(numpy.asanyarray(a), numpy.ndarray)


def describe(a: Any) -> ArrayInfo:
    """Describe the foreign array; nothing is converted."""
    return _facts(plain(a), isinstance(a, numpy.generic))


def _facts(seen: numpy.ndarray[Any, Any], scalar: bool = False) -> ArrayInfo:
    ptr = (
        0 if scalar else seen.ctypes.data
    )  # the array of a scalar is temporary, its memory nobody's
    return ArrayInfo(
        seen.shape, seen.strides, seen.dtype.name, seen.itemsize, "cpu", 0, ptr,
        not seen.flags.writeable, "numpy",
    )  # fmt: skip


def plan_from(a: Any, copyif: bool = False) -> Plan:
    """Plan `from_numpy`: what explain() shows and the converter carries out."""
    return plan_array(a, plain(a), copyif, "from_numpy")


def judge(a: Any, copyif: bool = False) -> Plan | None:
    """Return the refusal of a masked array or a scalar, which no protocol describes, else None."""
    if isinstance(a, numpy.generic):
        return refuse(
            "gpuinterop",
            "from_numpy",
            errors.ConversionTypeError,
            "an array; a NumPy scalar is a value without memory to share",
            f"{type(a).__name__} scalar",
            "allow a copy: copy=True (in from_any and to: copyif=True)",
        )
    try:
        refuse_mask(a, "from_numpy")
    except errors.UnsupportedError as error:
        return plan_from_error(error, "gpuinterop", "from_numpy")
    return None


def plan_array(
    a: Any, seen: numpy.ndarray[Any, Any], copyif: bool, where: str, library: str = "numpy"
) -> Plan:
    """Plan to take over the memory of `seen`, the array of `a`, which somebody passed, of a library."""
    dtype = seen.dtype
    if isinstance(a, numpy.generic):
        plan = plan_array(seen, seen, True, where)
        if plan.refused:
            return plan
        return copy_or_refuse(
            Rules("gpuinterop", where),
            _facts(seen, True),
            copyif,
            errors.ConversionTypeError,
            "an array; a NumPy scalar is a value without memory to share",
            f"{type(a).__name__} scalar",
            "",
        )
    if dtype.hasobject or dtype.names or (dtype.kind in "OUSMmV" and dtype.isbuiltin != 2):
        return refuse(
            "gpuinterop",
            where,
            errors.DTypeError,
            "a numeric dtype",
            f"dtype {dtype}",
            "convert the values, or pick one field of the structure",
        )
    try:
        refuse_mask(a, where)
    except errors.UnsupportedError as error:
        return plan_from_error(error, "gpuinterop", where)
    facts = replace(_facts(seen), library=library)
    if not dtype.isnative:
        plan = checks.plan_own(facts, where, copyif)
        if plan.refused and plan.code == "dtype":
            return plan
        return copy_or_refuse(
            Rules("gpuinterop", where),
            facts,
            copyif,
            errors.DTypeError,
            "native byte order",
            f"dtype {dtype.str}",
            f"convert it once: {remedy_cast(a, dtype, 'a')}",
        )
    return checks.plan_own(facts, where, copyif)


@_core.imports(_core.NUMPY)
def from_numpy(a: Any, copyif: bool = False) -> Any:
    """Return a host array over the memory of the NumPy array `a`.

    Shares every layout. Copies, with ``copyif=True``, what no array here can hold: foreign byte
    order, elements off their alignment, NumPy's scalars. The dtype stays. There is no stream to wait
    for. The result keeps `a` alive. Writes on either side are seen by the other; a read-only array
    stays read-only. Use ``.to_device("cuda")`` on the result, or ``CudaNdarray(a)``, to upload.
    """
    if not isinstance(a, (numpy.ndarray, numpy.generic)):
        raise checks.not_one_of_theirs(a, "from_numpy", "a numpy.ndarray")
    seen = plain(a)
    return execute_import(a, seen, plan_array(a, seen, copyif, "from_numpy"))


def execute_import(a: Any, seen: numpy.ndarray[Any, Any], plan: Plan) -> Any:
    """The array that a plan for `seen` promises, holding `a`, or the copy, or the refusal."""
    if plan.refused:
        raise plan.exception()
    if plan.shared:
        return checks.borrowed(_facts(seen), a, plan.where, dtype=seen.dtype)
    copy_tracking.note("host", plan.bytes, plan.where)
    # Memory made here is aligned, so that no library that is to share it needs another copy.
    dtype = seen.dtype.newbyteorder("=")
    fresh: Any = _core.empty(
        checks.class_for(dtype), seen.shape, dtype, checks.TYPE_CODES["cpu"], 0
    )
    as_numpy_view(fresh)[...] = seen
    return fresh
