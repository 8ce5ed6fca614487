"""The description of a library for the suite: how the library makes, reads and writes its arrays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuinterop import converters
from gpuinterop.exchange import registry
from gpuinterop.exchange.sharing import explain
from gpuinterop.testing.layouts import Layout


def default_address(array: Any) -> int:
    """Return the address of element [0, ..., 0] that the array reports."""
    for attribute in ("__cuda_array_interface__", "__array_interface__"):
        interface = getattr(array, attribute, None)
        if interface is not None:
            return int(interface["data"][0] or 0)
    return int(array.data_ptr())


@dataclass(frozen=True)
class Bridge:
    """A converter under test, and functions that inspect its library's arrays without the converter.

    The suite compares with NumPy and with addresses and does not rely on the converter. It needs the
    functions below, which receive the library's arrays and use the library only.

    Parameters
    ----------
    name : the name in the matrix. A registered name provides `to`, `from_` and `explain`.
    to : ``to(x, copyif)`` converts a gpuinterop array to the library's array.
    from_ : ``from_(array, copyif)`` converts the library's array to a gpuinterop array.
    make : ``make(flat, layout, device)`` makes an array of the library: a view with `layout` of the
        values of the flat NumPy array. On the host it should share `flat`, so that the suite can check
        lifetimes. Returns None if the library cannot represent it. Without `make`, `from_` is not tried.
    address : address of element [0, ..., 0].
    values : the elements as a NumPy array on the host, read by the library; a copy or a view. The suite
        compares bytes, so another dtype of the same width is possible.
    write : ``write(array, index, value)`` sets one element; None: the library's arrays are immutable.
    readonly : whether an array is marked read-only; None: the library has no such mark.
    strides : strides in bytes; None: the values alone are compared.
    dtype : the element type's NumPy name; None: the values alone are compared.
    promises : ``promises(layout, dtype, device)`` is True if the library can represent such an array, so
        that `to` must share it; a refusal is then a fault. None: a refusal is never a fault.
    stream : ``stream(device)`` is a context manager that makes a side stream of the library current
        and returns its handle; None: the library has no streams.
    devices : types of devices on which the library has arrays.
    version : the version in the table.
    explain : ``explain(array, to, copyif)`` predicts the outcome; None: `gpuinterop.explain`, for the
        functions of a registered converter, otherwise no prediction.
    options : further keywords for `to` and `explain`.
    """

    name: str
    to: Callable[..., Any] | None = None
    from_: Callable[..., Any] | None = None
    make: Callable[[np.ndarray[Any, Any], Layout, str], Any] | None = None
    address: Callable[[Any], int] = default_address
    values: Callable[[Any], np.ndarray[Any, Any]] = np.asarray
    write: Callable[[Any, tuple[int, ...], Any], None] | None = None
    readonly: Callable[[Any], bool] | None = None
    strides: Callable[[Any], tuple[int, ...]] | None = None
    dtype: Callable[[Any], str] | None = None
    promises: Callable[[Layout, str, str], bool] | None = None
    stream: Callable[[str], AbstractContextManager[int]] | None = None
    devices: tuple[str, ...] = ("cpu",)
    version: str = ""
    explain: Callable[..., Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def directions(self) -> tuple[str, ...]:
        """The directions that can be tried: "to" the library, "from" it, or both."""
        there = self.to is not None or self._registered()
        back = self.make is not None and (self.from_ is not None or self._registered())
        return ("to",) * there + ("from",) * back

    def _registered(self) -> bool:
        return self.name in registry.names()

    def prediction(self, direction: str) -> Callable[..., Any] | None:
        """The function that predicts conversions in a direction."""
        own = self.to if direction == "to" else self.from_
        registered = own is None and self._registered()
        return self.explain or (explain if registered else None)

    def convert_to(self, x: Any, copyif: bool) -> Any:
        function = self.to or converters.to_function(registry.backend(self.name))
        return function(x, copyif, **self.options)

    def convert_from(self, array: Any, copyif: bool) -> Any:
        function = self.from_ or converters.from_function(registry.backend(self.name))
        return function(array, copyif)
