"""The arguments of a call as arrays of a library, and its results as gpuinterop arrays, on the same memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import is_supported
from gpuinterop.converters import from_any, to
from gpuinterop.elementwise.results import plain
from gpuinterop.errors import GpuInteropError
from gpuinterop.exchange import registry
from gpuinterop.ndarray import CudaNdarray

# Arguments and results of these classes contain no array.
_NO_ARRAYS = frozenset({bool, int, float, complex, str, bytes, slice, type(None), type(Ellipsis)})


class LentFunction:
    """A library's function; a call shares the memory of the arguments, and of the results."""

    def __init__(
        self, entry: registry.Backend, function: Any, copyif: bool = False, reads: bool = False
    ) -> None:
        self._entry, self._value, self._copyif = entry, function, copyif
        self._reads = reads  # it writes to no positional argument, so these may be read-only
        family = getattr(entry.module, "FAMILY", 0)
        lent = None
        if family and callable(function):  # the core converts usual arguments and results
            lent = _core.LentFunction(entry.name, family, function, partial(_take, entry, copyif))
        self._lent = lent

    @_core.lends
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with its library's arrays over the memory of `args`."""
        return Loan(self._entry, self._copyif).call(self._value, args, kwargs, self._reads)


def _take(entry: registry.Backend, copyif: bool, result: Any, lent: Any, narrow: bool) -> Any:
    """Return a result that the core does not convert; `lent` are the arrays and the library's objects."""
    loan = Loan(entry, copyif)
    loan.lent, loan.narrow = lent, narrow
    return loan.take(result)


class Loan:
    """One call of a library's function."""

    __slots__ = ("copyif", "entry", "lent", "narrow")

    def __init__(self, entry: registry.Backend, copyif: bool = False) -> None:
        self.entry = entry
        self.copyif = copyif
        self.lent: list[tuple[Any, Any]] = []  # an array, and the library's object over its memory
        self.narrow = False  # an operand is a CudaNdarray, so float32 results are too

    def call(
        self,
        function: Callable[..., Any],
        args: Iterable[Any],
        kwargs: dict[str, Any],
        reads: bool = False,
    ) -> Any:
        """Call the library's function, if the core declined. What raises before it has changed nothing."""
        given = [self.give(x, reads) for x in args]
        named = {name: self.give(x) for name, x in kwargs.items()}
        result = function(*given, **named)
        for array, lent in self.lent:
            if not _core.is_array(array) or array.device.type != "cpu":
                from_any(lent)  # orders the current stream after what the library wrote
        return self.take(result)

    def give(self, value: Any, reads: bool = False) -> Any:
        """Return an argument as the library takes it: each array in it as the library's own."""
        if type(value) in _NO_ARRAYS:
            return value
        if _core.is_array(value):
            self.narrow |= isinstance(value, CudaNdarray)
        elif isinstance(value, (tuple, list)):
            return _rebuilt(value, partial(self.give, reads=reads))
        elif type(value) is dict:
            return {key: self.give(item) for key, item in value.items()}
        elif isinstance(value, np.generic) or registry.library_of(value) in ("", self.entry.name):
            return self._as_argument(value)
        options = {"allow_readonly": True} if reads else {}
        try:
            lent = to(value, self.entry.name, copyif=self.copyif, **options)
        except GpuInteropError as error:
            raise error.changed(fix=_fix_of_call(error.fix)) from None
        self.lent.append((value, lent))
        return lent

    def _as_argument(self, value: Any) -> Any:
        """Return a dtype or a device in the library's own class."""
        convert = getattr(self.entry.module, "as_argument", None)
        return value if convert is None else convert(value)

    def take(self, value: Any) -> Any:
        """Return a result with a gpuinterop array for each array of the library; an argument as the caller's object."""
        if type(value) in _NO_ARRAYS:
            return value
        for array, lent in self.lent:
            if lent is value:
                return array
        if isinstance(value, (tuple, list)):
            return _rebuilt(value, self.take)
        if type(value) is dict:
            return {key: self.take(item) for key, item in value.items()}
        array = np.asarray(value) if isinstance(value, np.generic) else value
        if isinstance(array, np.ndarray) and not array.flags.aligned:
            array = array.copy()  # such as the bins of a histogram that Dask has sent
        if registry.library_of(array) != self.entry.name or not _has_numbers(array):
            return value
        found = from_any(array, copyif=self.copyif)
        return found if self.narrow else plain(found)


def _fix_of_call(fix: str) -> str:
    """Return the suggested fix of a conversion for a call, which does not take the options of one."""
    by_option, _, other = fix.partition(", or ")
    if "copyif=True" not in by_option:
        return fix
    copies = "write gpuinterop.via(copyif=True), whose calls copy"
    return copies if not other or "allow_readonly" in other else f"{copies}, or {other}"


def _has_numbers(value: Any) -> bool:
    """Return whether gpuinterop has the dtype: NumPy has strings, dates and objects too."""
    return not isinstance(value, np.ndarray) or is_supported(value.dtype)


def _rebuilt(values: Any, convert: Callable[[Any], Any]) -> Any:
    """Return a list or a tuple, perhaps with names, of the converted items."""
    items = [convert(item) for item in values]
    if type(values) is list:
        return items
    if hasattr(values, "_fields"):
        return type(values)(*items)
    # PyTorch's tuples with names take the items in one argument, as tuple does.
    return type(values)(items)
