"""Who copied what: forbid copies in a block, count them, or list what crossed between host and device.

What counts as a copy: each time that elements of an array, of any library, are moved to other memory,
by a conversion, an assignment, a download, or on the way to one of these; each move is announced for
itself. No copies are

* results: of arithmetic, of casts that somebody wrote, of joining and choosing (``x + 1``,
  ``x.astype(dtype)``, ``asarray(x, dtype)``, ``concatenate``), and the casts on the way to them;
* arrays made from Python's numbers and lists, or from nothing (``zeros``, ``arange``), on either device;
* values handed over as Python's numbers: ``item``, ``float``, ``tolist``, ``print``. ``get``,
  ``tobytes`` and ``numpy.asarray`` of an array on a GPU hand over memory, and are copies.

The policy belongs to the thread that entered the block, whichever thread ends it: a generator may be
resumed, or collected, by another. The core and the converters announce every
copy to `note` before they make it, so a refused copy has not happened.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from gpuinterop import _core
from gpuinterop.errors import ArgumentTypeError, CopyForbiddenError, short_repr

__all__ = [
    "CopyCount",
    "Transfer",
    "TransferLog",
    "aside",
    "ban",
    "count_copies",
    "log_transfers",
    "no_copies",
    "note",
]

# The core's kinds. The first two stay where they are, the others cross a border.
KINDS = {
    "host": "copy within host memory",
    "copy": "copy within a device",
    "host_to_device": "host to device",
    "device_to_host": "device to host",
    "peer": "device to device",
}
_STAYING = ("host", "copy")
_PACKAGE = str(Path(__file__).parent) + os.sep


@dataclass(slots=True)
class CopyCount:
    """How many copies were made in the block, and how many bytes they moved."""

    count: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Transfer:
    """One copy between host and device, or between devices."""

    kind: str
    bytes: int
    where: str  # the function that copied
    caller: str  # "file.py:12" of the line outside this package that asked for it

    def __str__(self) -> str:
        return f"{KINDS[self.kind]}: {self.bytes} bytes by {self.where} at {self.caller}"


@dataclass(slots=True)
class TransferLog:
    """A list of transfers; prints as a table."""

    transfers: list[Transfer] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(t.bytes for t in self.transfers)

    def __len__(self) -> int:
        return len(self.transfers)

    def __iter__(self) -> Iterator[Transfer]:
        return iter(self.transfers)

    def __getitem__(self, index: int) -> Transfer:
        return self.transfers[index]

    def __str__(self) -> str:
        if not self.transfers:
            return "nothing crossed between host and device"
        return "\n".join(str(t) for t in self.transfers)


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_LATER = {
    inspect.isgeneratorfunction: "generator function",
    inspect.iscoroutinefunction: "coroutine function",
    inspect.isasyncgenfunction: "asynchronous generator function",
}


class Watch(ContextDecorator, AbstractContextManager[T]):
    """What `no_copies` and its like return: a block, or a decorator, that says what it is for."""

    def __init__(self, block: Callable[[], AbstractContextManager[T]], purpose: str) -> None:
        self._block, self._purpose = block, purpose
        # By thread: others may enter and leave the same object meanwhile.
        self._entered: dict[int, list[AbstractContextManager[T]]] = {}

    def __enter__(self) -> T:
        block = self._block()
        self._entered.setdefault(threading.get_ident(), []).append(block)
        return block.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        thread = threading.get_ident()
        if thread not in self._entered:  # a generator that another thread resumes or collects
            thread = next(iter(self._entered.copy()), thread)
        entered = self._entered.get(thread)
        if not entered:
            raise ArgumentTypeError(
                where="__exit__",
                expected="a block that was entered",
                got=f"one that was not, or was left already ({self._purpose})",
                fix="use it in a with statement",
            )
        block = entered.pop()
        if not entered:
            self._entered.pop(thread, None)
        return block.__exit__(kind, error, trace)

    def __call__(self, function: F) -> F:
        # Such a function returns at once; what it copies, it copies later.
        inner: Any = getattr(function, "__func__", None)  # of a static method
        called: Any = inspect.getattr_static(type(function), "__call__", None)
        asks: tuple[Any, ...] = (function, inner, called)
        for asked in asks:
            for is_of, name in _LATER.items():
                if is_of(asked):
                    raise ArgumentTypeError(
                        where=f"the decorator of a block in which {self._purpose}",
                        expected="a function that does its work when it is called",
                        got=f"{getattr(function, '__qualname__', short_repr(function))}, of the kind {name}",
                        fix="write the with statement inside the function",
                    )
        return super().__call__(function)

    def _recreate_cm(self) -> Watch[T]:
        # Of each call of a decorated function: calls may overlap in threads.
        return Watch(self._block, self._purpose)

    def __repr__(self) -> str:
        return f"<{self._purpose}: use it in a with statement>"


class _State:
    def __init__(self) -> None:
        self.bans: list[object] = []
        self.counts: list[CopyCount] = []
        self.logs: list[TransferLog] = []


class _Local(threading.local):
    def __init__(self) -> None:
        self.state = _State()


_local = _Local()


def note(kind: str, nbytes: int, where: str, uncounted: bool = False) -> None:
    """Announce a copy that is about to be made by this thread.

    Results, and Python's numbers on their way, are `uncounted`: no copies, though they may cross between
    host and device all the same.

    Raises
    ------
    CopyForbiddenError
        The calling thread is inside ``no_copies()``.
    """
    if not nbytes:  # nothing is moved
        return
    state = _local.state
    if not uncounted:
        if state.bans:
            raise _forbidden(kind, nbytes, where)
        for count in state.counts:
            count.count += 1
            count.bytes += nbytes
    if state.logs and kind not in _STAYING:
        transfer = Transfer(kind, nbytes, where, _caller())
        for log in state.logs:
            log.transfers.append(transfer)


def _forbidden(kind: str, nbytes: int, where: str) -> CopyForbiddenError:
    return CopyForbiddenError(
        where=where,
        expected="no copy, because this runs inside no_copies()",
        got=f"{KINDS[kind]}, {nbytes} bytes",
        fix="leave the no_copies() block for this call, or see explain() for how to share",
    )


def ban(kind: str, nbytes: int, where: str) -> CopyForbiddenError | None:
    """The error that `note` would raise here and now, if it would; nothing is counted."""
    return _forbidden(kind, nbytes, where) if _local.state.bans else None


@contextmanager
def aside() -> Iterator[CopyCount]:
    """Count the copies of the block without telling, or asking, the watchers around it."""
    around, _local.state = _local.state, _State()
    try:
        with count_copies() as counted:
            yield counted
    finally:
        _local.state = around


def _caller() -> str:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def no_copies() -> Watch[None]:
    """Refuse every copy that this thread would make in the block, by any converter.

    `CopyForbiddenError` is raised before memory is touched. Copies asked for in words are refused as
    well: ``x.copy()``, ``x.get()``, ``CudaNdarray(y)``. Results of arithmetic and of casts are no copies,
    nor are arrays made from Python's numbers, nor ``print(x)``. What another library copies by itself,
    as ``numpy.array(x)`` does, is not seen here.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.from_any(numpy.zeros((4, 4), "float32"))
    >>> with gpuinterop.no_copies():
    ...     y = gpuinterop.converters.to_numpy(x)  # shares, hence allowed
    """
    return Watch(_no_copies, "no copies are made")


@contextmanager
def _no_copies() -> Iterator[None]:
    bans, ban = _local.state.bans, object()
    _core._watch(+1)
    bans.append(ban)
    try:
        yield
    finally:
        _remove(bans, ban)
        _core._watch(-1)


def count_copies() -> Watch[CopyCount]:
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
    return Watch(_count_copies, "copies are counted")


@contextmanager
def _count_copies() -> Iterator[CopyCount]:
    counts, count = _local.state.counts, CopyCount()
    _core._watch(+1)
    counts.append(count)
    try:
        yield count
    finally:
        _remove(counts, count)
        _core._watch(-1)


def log_transfers() -> Watch[TransferLog]:
    """List what this thread moves between host and device (or devices) in the block, and who asked.

    The list has `Transfer` objects with ``kind``, ``bytes``, ``where`` (the function that copied) and
    ``caller`` (the line outside this package). Copies that stay in one memory are not listed; Python's
    numbers that cross, as in ``print(x)``, are.

    Examples
    --------
    >>> import gpuinterop
    >>> with gpuinterop.log_transfers() as log:
    ...     y = gpuinterop.zeros(3, device="cpu").tolist()
    >>> print(log)
    nothing crossed between host and device
    """
    return Watch(_log_transfers, "transfers are listed")


@contextmanager
def _log_transfers() -> Iterator[TransferLog]:
    logs, log = _local.state.logs, TransferLog()
    _core._watch(+1)
    logs.append(log)
    try:
        yield log
    finally:
        _remove(logs, log)
        _core._watch(-1)


def _remove(watchers: list[Any], watcher: object) -> None:
    # By identity: two fresh counters are equal as dataclasses, and blocks may end out of order.
    for i, other in enumerate(watchers):
        if other is watcher:
            del watchers[i]
            return


_core.set_hooks(copied=note)
