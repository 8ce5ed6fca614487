"""NumPy: every layout and dtype of the host is shared, read-only flags included."""

from __future__ import annotations

from typing import Any

import numpy

from gpuinterop import _core, copies, errors
from gpuinterop.converters import checks
from gpuinterop.converters.plan import (
    Facts,
    Plan,
    Rules,
    mend_by_copy,
    plan_layout,
    refuse,
    refused_by,
)
from gpuinterop.sources import host_view, refuse_mask
from gpuinterop.switches import as_switch

__all__ = ["describe", "from_numpy", "plan_from", "plan_to", "to_numpy"]

_TO = Rules("numpy", "to_numpy", devices=frozenset({"cpu"}), readonly=True)


# Before NumPy 2.2.5 the results of numpy.from_dlpack are read-only, whatever the array is.
_QUICK = numpy.lib.NumpyVersion(numpy.__version__) >= "2.2.5"


def plan_to(x: Any, copyif: bool = False) -> Plan:
    """Plan `to_numpy`: what explain() shows and the converter carries out."""
    facts = checks.facts_of(x)
    if facts.device == "cpu":
        return plan_layout(facts, _TO, copyif)
    copyif = as_switch(copyif, "copyif", "to_numpy")
    return Plan(
        "numpy",
        "copied" if copyif else "refused",
        "memory on the host, the only place where NumPy has arrays",
        "device",
        None,
        # Other layouts are made dense on the GPU first: two copies.
        facts.nbytes * (1 if facts.c_contiguous else 2) if copyif else 0,
        "keep it on the host: x.to_device('cpu')" if copyif else "pass copyif=True to download it",
        "to_numpy",
        facts.text(),
        errors.DeviceMismatchError,
        "device_to_host",
    )


def to_numpy(x: Any, copyif: bool = False) -> numpy.ndarray[Any, Any]:
    """Return a NumPy array over the memory of `x`.

    Shares every layout of a host array and keeps `x` alive; a read-only array stays read-only. An
    array on a GPU is downloaded with ``copyif=True``; the call then waits for the GPU.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> a = numpy.zeros(3, "float32")
    >>> gpuinterop.converters.to_numpy(gpuinterop.converters.from_numpy(a))[::-1].shape
    (3,)
    """
    if (
        _QUICK
        and isinstance(x, _core.Array)
        and not _core.traits(x) & _core.ON_CUDA
        and x.dtype.isbuiltin == 1
    ):
        return numpy.from_dlpack(x)
    checks.require_array(x, "to_numpy")
    plan = plan_to(x, copyif)
    if plan.refused:
        raise plan.exception()
    if plan.copied:
        return numpy.array(x)
    return host_view(x)


def describe(a: Any) -> Facts:
    """Describe the foreign array; nothing is converted."""
    scalar = isinstance(a, numpy.generic)  # its array is a temporary one, whose memory is nobody's
    # Its real geometry: what a subclass says of its shape may be anything.
    a = numpy.ndarray.view(numpy.asanyarray(a), numpy.ndarray)
    ptr = 0 if scalar else a.ctypes.data
    readonly = not a.flags.writeable
    return Facts(a.shape, a.strides, a.dtype.name, a.itemsize, "cpu", 0, ptr, readonly, "numpy")


def plan_from(a: Any, copyif: bool = False) -> Plan:
    """Plan `from_numpy`: what explain() shows and the converter carries out."""
    where = "from_numpy"
    if isinstance(a, numpy.generic):
        plan = plan_from(numpy.asarray(a), True)
        if plan.refused:
            return plan
        return mend_by_copy(
            Rules("gpuinterop", where),
            describe(a),
            copyif,
            errors.ConversionTypeError,
            "an array; a NumPy scalar is a value without memory to share",
            f"{type(a).__name__} scalar",
            "",
        )
    if a.dtype.hasobject or a.dtype.names or (a.dtype.kind in "OUSMmV" and a.dtype.isbuiltin == 1):
        return refuse(
            "gpuinterop",
            where,
            errors.DTypeError,
            "a numeric dtype",
            f"dtype {a.dtype}",
            "convert the values, or pick one field of the structure",
        )
    try:
        refuse_mask(a, where)
    except errors.UnsupportedError as error:
        return refused_by(error, "gpuinterop", where)
    facts = describe(a)
    if not a.dtype.isnative:
        plan = checks.plan_own(facts, where, copyif)
        if plan.refused and plan.code == "dtype":
            return plan
        return mend_by_copy(
            Rules("gpuinterop", where),
            facts,
            copyif,
            errors.DTypeError,
            "native byte order",
            f"dtype {a.dtype.str}",
            "convert it once: a.astype(a.dtype.newbyteorder('='))",
        )
    return checks.plan_own(facts, where, copyif)


@_core.quick
def from_numpy(a: Any, copyif: bool = False) -> Any:
    """Return a host array over the memory of the NumPy array `a`.

    Shares every layout, and keeps `a` alive; a read-only array stays read-only. Use
    ``.to_device("cuda")`` on the result, or ``CudaNdarray(a)``, to upload.
    """
    if not isinstance(a, (numpy.ndarray, numpy.generic)):
        raise checks.not_one_of_theirs(a, "from_numpy", "a numpy.ndarray")
    plan = plan_from(a, copyif)
    if plan.refused:
        raise plan.exception()
    if plan.copied:
        copies.note("host", plan.bytes, plan.where)
        # Memory made here is aligned, so that no library that is to share it needs another copy.
        dtype = a.dtype.newbyteorder("=")
        fresh: Any = _core.empty(
            checks.class_for(dtype), a.shape, dtype, checks.TYPE_CODES["cpu"], 0
        )
        host_view(fresh)[...] = a
        return fresh
    return checks.borrowed(describe(a), a, "from_numpy", dtype=a.dtype)
