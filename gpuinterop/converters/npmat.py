"""npmat: gnumpy's stand-in for CUDAMat, whose matrices are NumPy arrays on the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import errors
from gpuinterop.converters import numpy as numpys
from gpuinterop.converters.plan import ArrayInfo, Plan, plan_from_error, refuse
from gpuinterop.converters.remedies import remedy_cast
from gpuinterop.host_views import refuse_mask

__all__ = ["describe", "fault", "gaps", "inside", "matrix_over", "precision_fault"]

_SINGLE = "set GNUMPY_CPU_PRECISION=32 before gnumpy is imported"


def _small(module: Any) -> Any:
    return module.CUDAMatrix(numpy.zeros((1, 1), numpy.float32, order="F"))


def precision_fault(module: Any, library: str, where: str) -> Plan | None:
    """A refusal when the matrices of `module` are not float32: gnumpy's CPU mode may be set so."""
    own = _small(module).numpy_array.dtype
    if own == numpy.float32:
        return None
    return refuse(
        library, where, errors.DTypeError, "an npmat of float32, which shares our memory",
        f"npmat made an array of dtype {own}", _SINGLE,
    )  # fmt: skip


def matrix_over(module: Any, host: Any, owner: Any, where: str) -> Any:
    """An npmat matrix of `module` over a host matrix, holding `owner`."""
    # Constructors of npmat copy what they are given, so the matrix is made small and its array set.
    made = _small(module)
    made.numpy_array = host
    for name, value in (("mat", host), ("num_elems", host.size)):
        if name in vars(made):  # kept by the constructor, not computed
            setattr(made, name, value)
    seen = made.numpy_array
    if tuple(made.shape) != host.shape or (host.size and not numpy.shares_memory(seen, host)):
        raise errors.ExchangeError(
            where=where,
            expected="an npmat matrix that is what its numpy_array is",
            got=f"shape {tuple(made.shape)} instead of {host.shape}, or memory of its own",
            fix="use the npmat that gnumpy 0.2 brings",
        )
    made._base = owner
    return made


def inside(m: Any) -> tuple[Any, Any]:
    """The array inside an npmat matrix, or else the struct inside a CUDAMatrix: one of the two.

    Each is looked at once, because a property may make another one for the next look.
    """
    host, struct = getattr(m, "numpy_array", None), getattr(m, "mat", None)
    if _is_array(host) and (struct is None or _is_array(struct)):
        return host, None
    return None, struct


def _is_array(found: Any) -> bool:
    return issubclass(type(found), numpy.ndarray)  # an object may call itself of any class


def fault(host: Any, where: str) -> Plan | None:
    """What of the array inside an npmat matrix no array of ours can show."""
    try:
        refuse_mask(host, where)
    except errors.UnsupportedError as error:
        return plan_from_error(error, "gpuinterop", where)
    seen = numpys.plain(host)
    if seen.ndim != 2:
        return refuse(
            "gpuinterop", where, errors.ShapeError, "a matrix of two dimensions",
            f"a numpy_array of shape {seen.shape}", "reshape m.numpy_array to (rows, columns)",
        )  # fmt: skip
    if not seen.dtype.isnative:
        native = remedy_cast(seen, "float32", "m.numpy_array")
        return refuse(
            "gpuinterop", where, errors.DTypeError, "native byte order", f"dtype {seen.dtype.str}",
            f"convert it once: m.numpy_array = {native}",
        )  # fmt: skip
    return None


def gaps(seen: numpy.ndarray[Any, Any], where: str) -> Plan | None:
    """A refusal where the elements of an npmat matrix do not lie one beside the other."""
    if not seen.size or seen.flags.c_contiguous or seen.flags.f_contiguous:
        return None
    return refuse(
        "gpuinterop", where, errors.ExchangeError, "npmat memory without gaps",
        f"strides {seen.strides}", "pass a copy, which the library makes dense",
    )  # fmt: skip


def describe(seen: numpy.ndarray[Any, Any], layout: str) -> ArrayInfo:
    """Describe the array inside an npmat matrix, in one of CUDAMat's two layouts."""
    found = replace(numpys.describe(seen), library="cudamat")  # a matrix has no methods of arrays
    if layout != "memory":
        return found
    # The same bytes in row order: C strides of the same shape over column-major memory.
    strides = (found.shape[1] * found.itemsize, found.itemsize)
    return replace(found, strides=strides)
