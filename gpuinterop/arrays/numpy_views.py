"""NumPy views of arrays in host memory, downloads, and core arrays over NumPy's memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import ContiguityError, ShapeError, UnsupportedError
from gpuinterop.errors.context import reraise_from
from gpuinterop.errors.messages import foreign_byte_order

from .core_view import core_view
from .dtypes import as_supported_dtype, is_supported


def as_numpy_view(
    array: _core.Array, where: str = "gpuinterop.capture", *, written: bool = False
) -> np.ndarray[Any, Any]:
    """Return a NumPy array that shares a host array's memory and keeps it alive.

    A result of a capture that no replay has computed yet is refused, unless the view is `written`.
    """
    if written:
        _core._note_write(array)
    else:
        _core._require_set(where, array)
    return _core.numpy_view(array)


def to_host_array(x: Any, where: str, memory: bool = False) -> np.ndarray[Any, Any]:
    """Return the elements as a NumPy array, downloaded or shared; an error names `where`.

    Without `memory` the caller converts them to Python scalars or text, which is not counted as a copy.
    """
    seen = core_view(x)
    if seen.device.type == "cpu":
        _core._require_values(where, x)
        return as_numpy_view(x)
    return download(x, where, uncounted=not memory)


def download(x: Any, where: str, *, uncounted: bool = False) -> np.ndarray[Any, Any]:
    """Return a new NumPy array with the elements of an array on any device."""
    try:
        found: Any = _core.download(x, where, uncounted)
    except MemoryError:
        with reraise_from(where):
            raise
    return found  # type: ignore[no-any-return]


def only_element(x: Any, where: str) -> Any:
    """Return the element of an array of size 1 as a Python scalar."""
    found = _core._element(x, (), where)
    if found is NotImplemented:
        seen = core_view(x)
        raise ShapeError(
            where=where,
            expected="one element",
            got=f"{seen.size} elements of shape {seen.shape}",
            fix="read one: x.item(0), or "
            + (
                "print fewer digits: numpy.set_printoptions(precision=3)"
                if where == "format"
                else "test x.size > 0, x.any() or x.all()"
            ),
        )
    return found


def read_by_numpy(value: Any) -> np.ndarray[Any, Any]:
    """Return numpy.asarray(value). NumPy 2.1 ends the process where later versions raise this ValueError."""
    waiting, known = [value], set()  # a list may contain itself
    while waiting:
        one = waiting.pop()
        if isinstance(one, (list, tuple)):
            if id(one) not in known:
                known.add(id(one))
                waiting += [x for x in one if type(x) not in (bool, int, float, complex)]
        elif not isinstance(one, (np.ndarray, np.generic, _core.Array)):
            interface = getattr(one, "__array_interface__", None)
            if isinstance(interface, dict) and "shape" not in interface:
                raise ValueError("Missing __array_interface__ shape")
    return np.asarray(value)


def wrap_numpy(host: np.ndarray[Any, Any]) -> _core.Array:
    """Return a core array over a NumPy array's memory."""
    host = np.asarray(host)  # because a subclass may report any shape
    return _core.from_pointer(
        _core.Array,
        host.ctypes.data if host.size else 0,
        host.shape,
        host.strides if host.size else None,
        host.dtype,
        1,
        0,
        host,
        readonly=not host.flags.writeable,
    )


def has_core_layout(host: np.ndarray[Any, Any]) -> bool:
    """Return whether a core array can describe the memory: its dtype, strides of whole elements, aligned addresses."""
    if not is_supported(host.dtype):
        return False
    size, step = host.dtype.itemsize, _core.alignment_of(host.dtype, 1)
    return not host.size or (
        host.ctypes.data % step == 0 and not any(s % size for s in host.strides)
    )


def require_aligned_host(host: np.ndarray[Any, Any], where: str) -> _core.Array:
    """Return a core array over a NumPy array that a copy reads or fills in place."""
    refuse_mask(host, where)
    view = np.asarray(host)
    if not view.dtype.isnative:
        raise foreign_byte_order(where, view.dtype.str, f"a.astype('{view.dtype.name}')")
    size = as_supported_dtype(view.dtype, where).itemsize
    if not has_core_layout(view):
        raise ContiguityError(
            where=where,
            expected=f"a NumPy array of aligned elements, a multiple of {size} bytes apart",
            got=f"shape {view.shape} with strides {view.strides} (bytes) "
            f"at address {view.ctypes.data:#x}",
            fix="copy through a new array: numpy.empty(shape, dtype)",
        )
    return wrap_numpy(view)


def refuse_mask(value: Any, where: str) -> None:
    """Refuse a NumPy masked array with masked elements, because gpuinterop arrays have no mask."""
    if not isinstance(value, np.ma.MaskedArray) or value.dtype.names is not None:
        return  # is_masked() cannot read structures, which are refused for their dtype
    if np.ma.is_masked(value):
        raise UnsupportedError(
            where=where,
            expected="data without masked elements",
            got=f"a masked array of shape {value.shape}",
            fix="fill it, a.filled(value), or pass a.data to ignore the mask",
        )


def as_scalar(value: Any, where: str) -> Any:
    """Return a 0-d NumPy array as a number, and any other value unchanged."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        refuse_mask(value, where)
        return np.asarray(value)[()]
    return value
