"""Copy tracking: forbid or count copies in a block, or log transfers between host and device.

A copy moves elements of an array, of any library, to other memory: by a conversion, an assignment, a
download, or a step of one of these. Each move counts on its own. The following are not copies:

* results of arithmetic, of explicit casts, of joining and choosing (``x + 1``, ``x.astype(dtype)``,
  ``asarray(x, dtype)``, ``concatenate``), and the casts that these need;
* arrays made from Python scalars and lists, or from no data (``zeros``, ``arange``), on either device;
* values that become Python scalars: ``item``, ``float``, ``tolist``, ``print``. ``get``, ``tobytes``
  and ``numpy.asarray`` of an array on a GPU return memory, and are copies.

`no_copies`, `count_copies` and `log_transfers` open copy scopes. A scope belongs to the thread that
entered it, even if another thread leaves it, as when a generator is resumed or collected elsewhere. The
core and the converters report every copy to `report_copy` before they make it, so a forbidden copy does
not happen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from gpuinterop import _core
from gpuinterop.errors import CopyForbiddenError

P = ParamSpec("P")
R = TypeVar("R")

# The core's kinds. The first two stay within one memory, the others are transfers.
KINDS = {
    "host": "copy within host memory",
    "copy": "copy within a device",
    "host_to_device": "host to device",
    "device_to_host": "device to host",
    "peer": "device to device",
}
_WITHIN_MEMORY = ("host", "copy")
_PACKAGE = str(Path(__file__).parents[1]) + os.sep


@dataclass(slots=True)
class CopyCount:
    """The number of copies in the block, and the bytes that they moved."""

    count: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Transfer:
    """One copy between host and device, or between devices."""

    kind: str
    bytes: int
    where: str  # the function that copied
    caller: str  # "file.py:12" of the calling line outside this package

    def __str__(self) -> str:
        return f"{KINDS[self.kind]}: {self.bytes} bytes by {self.where} at {self.caller}"


class TransferLog(list[Transfer]):
    """A list of transfers; prints one line for each."""

    @property
    def bytes(self) -> int:
        return sum(t.bytes for t in self)

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "no transfers between host and device"


class _Ban:
    """Copies are forbidden."""


class _Isolated(CopyCount):
    """The scopes around this one neither count nor forbid copies."""


class _Scope(_core.Block):
    """A copy scope, as a context manager or a decorator."""

    def __init__(self, record: Any, result: Any) -> None:
        enter, leave = partial(_core._enter_copies, record), partial(_core._leave_copies, record)
        super().__init__((enter, leave), result=result)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return inside


def _scopes() -> list[Any]:
    """Return the records that this thread's copies concern."""
    scopes = _core._copy_scopes()
    isolated = [i for i, record in enumerate(scopes) if isinstance(record, _Isolated)]
    return scopes[isolated[-1] :] if isolated else scopes


def _forbids(scopes: list[Any]) -> bool:
    return any(isinstance(record, _Ban) for record in scopes)


def report_copy(kind: str, nbytes: int, where: str, uncounted: bool = False) -> None:
    """Report a copy that this thread is about to make to its copy scopes.

    `uncounted` moves are results and Python scalars: they are not copies, but may be transfers.

    Raises
    ------
    CopyForbiddenError
        The calling thread is inside ``no_copies()``.
    """
    scopes = _scopes()
    if not nbytes:
        return
    if not uncounted and _forbids(scopes):
        raise _forbidden(kind, nbytes, where)
    for record in scopes:
        if isinstance(record, CopyCount) and not uncounted:
            record.count += 1
            record.bytes += nbytes
        elif isinstance(record, TransferLog) and kind not in _WITHIN_MEMORY:
            record.append(Transfer(kind, nbytes, where, _caller()))


def _forbidden(kind: str, nbytes: int, where: str) -> CopyForbiddenError:
    return CopyForbiddenError(
        where=where,
        expected="no copy, because this runs inside no_copies()",
        got=f"{KINDS[kind]}, {nbytes} bytes",
        fix="leave the no_copies() block for this call, or see explain() for how to share",
    )


def forbidden_copy_error(kind: str, nbytes: int, where: str) -> CopyForbiddenError | None:
    """Return the error that `report_copy` would raise, or None; counts nothing."""
    return _forbidden(kind, nbytes, where) if _forbids(_scopes()) else None


def isolated_copy_count() -> AbstractContextManager[CopyCount]:
    """Count copies in the block without reporting them to, or being limited by, the enclosing scopes."""
    record = _Isolated()
    return _Scope(record, record)


def _caller() -> str:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def no_copies() -> _Scope:
    """Forbid every copy that this thread would make in the block, by any converter.

    `CopyForbiddenError` is raised before memory is touched, even for explicit copies: ``x.copy()``,
    ``x.get()``, ``CudaNdarray(y)``. Results of arithmetic and of casts are not copies, nor are arrays
    made from Python scalars, nor ``print(x)``. Copies that another library makes itself, as
    ``numpy.array(x)`` does, are not tracked.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.from_any(numpy.zeros((4, 4), "float32"))
    >>> with gpuinterop.no_copies():
    ...     y = gpuinterop.converters.to_numpy(x)  # shares, hence allowed
    """
    return _Scope(_Ban(), None)


def count_copies() -> AbstractContextManager[CopyCount]:
    """Count the copies that this thread makes in the block: ``.count`` and ``.bytes``.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.zeros((2, 3), device="cpu")
    >>> with gpuinterop.count_copies() as copies:
    ...     y = x.copy()
    >>> copies
    CopyCount(count=1, bytes=24)
    """
    record = CopyCount()
    return _Scope(record, record)


def log_transfers() -> AbstractContextManager[TransferLog]:
    """List this thread's transfers between host and device, or devices, in the block.

    The list has `Transfer` objects with ``kind``, ``bytes``, ``where`` (the function that copied) and
    ``caller`` (the line outside this package). Copies within one memory are not listed; transfers of
    Python scalars, as in ``print(x)``, are.

    Examples
    --------
    >>> import gpuinterop
    >>> with gpuinterop.log_transfers() as log:
    ...     y = gpuinterop.zeros(3, device="cpu").tolist()
    >>> print(log)
    no transfers between host and device
    """
    record = TransferLog()
    return _Scope(record, record)


_core.set_hooks(copied=report_copy)
