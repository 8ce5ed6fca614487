"""Copy tracking: forbid or count copies in a block, log transfers, or refuse hidden downloads.

A copy moves elements of an array, of any library, to other memory: by a conversion, an assignment, a
download, or a step of one of these. Each move counts on its own. The following are not copies:

* results of arithmetic, of explicit casts, of joining and choosing (``x + 1``, ``x.astype(dtype)``,
  ``asarray(x, dtype)``, ``concatenate``), and the casts that these need;
* arrays made from Python scalars and lists, or from no data (``zeros``, ``arange``), on either device;
* values that become Python scalars: ``item``, ``float``, ``tolist``, ``print``. ``get``, ``tobytes``
  and ``numpy.asarray`` of an array on a GPU return memory, and are copies.

A download is hidden if NumPy makes it of an array on a GPU to run a function on the host:
``numpy.asarray(x)``, which programs call themselves and NumPy's, SciPy's and Matplotlib's functions call
inside. A download is explicit if the call names the host or requests Python values: ``x.get()``,
``x.to_device("cpu")``, ``numpy.save``, pickles, ``float(x)``, ``x.tolist()``, ``print(x)``, ``if x:``.

`no_copies`, `count_copies`, `log_transfers` and `downloads` open copy scopes. A scope belongs to the thread that
entered it, even if another thread leaves it, as when a generator is resumed or collected elsewhere. The
core and the converters report every copy to `report_copy` before they make it, so a forbidden copy does
not happen.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial, update_wrapper, wraps
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar
from warnings import warn

from gpuinterop import _core
from gpuinterop.errors import ArgumentTypeError, CopyForbiddenError
from gpuinterop.errors.messages import not_one_of

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
_POLICIES = ("allow", "warn", "refuse")
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

    def __init__(self, record: Any, result: Any, call: str) -> None:
        self._call = call
        enter, leave = partial(_core._enter_copies, record), partial(_core._leave_copies, record)
        super().__init__((enter, leave), result=result)

    def __repr__(self) -> str:
        return f"gpuinterop.{self._call}"

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return inside


class _Opener(Generic[P, R]):
    """A function that opens a copy scope; a block that omits the call raises an error that shows it."""

    def __init__(self, function: Callable[P, R]) -> None:
        self._function = function
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __enter__(self) -> Any:
        name = self._function.__name__
        call = f"gpuinterop.{name}()"
        raise ArgumentTypeError(where=name, expected=f"a block with a call: with {call}:",
                                got="the function itself", fix=f"write with {call}:")  # fmt: skip

    def __exit__(self, *error: object) -> None:
        """Python looks for it before it enters the block."""

    def __reduce__(self) -> str:  # pickle finds it by its name, as a function
        return self._function.__name__


class _Downloads(_Scope):
    """The scope of a policy for hidden downloads. Until a block or a decorator uses it, the policy is the process's."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        super().__init__(self, None, f"downloads({policy!r})")
        self._entry = policy, weakref.ref(self)
        _calls.append(self._entry)
        _forget_superseded()

    def _give_back(self) -> None:
        with suppress(ValueError):  # used before
            _calls.remove(self._entry)

    def __enter__(self) -> Any:
        self._give_back()
        return super().__enter__()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        self._give_back()
        return super().__call__(function)


# The calls that no block has used, in their order; the last one has the policy for threads outside a block. Threads may
# call and enter in any order, so each call removes its own entry alone.
_calls: list[tuple[str, weakref.ref[_Downloads]]] = []


def _forget_superseded() -> None:
    """Remove each call that no block can use any more and that a later one of that kind supersedes."""
    final = [call for call in _calls if call[1]() is None]
    for call in final[:-1]:
        with suppress(ValueError):  # another thread has
            _calls.remove(call)


def _default_policy() -> str:
    """Return the policy of the process: that of the last call, or else of the environment."""
    with suppress(IndexError):
        return _calls[-1][0]
    return _read_policy(os.environ.get("GPUINTEROP_DOWNLOADS") or "allow", "GPUINTEROP_DOWNLOADS")


def _read_policy(value: Any, where: str) -> str:
    if not isinstance(value, str) or value not in _POLICIES:
        raise not_one_of(where, "policy", _POLICIES, value)
    return value


def report_hidden_download(nbytes: int, where: str) -> None:
    """Warn of a hidden download that this thread is about to make, or refuse it, as the policy says.

    Raises
    ------
    CopyForbiddenError
        The policy is "refuse".
    """
    records = [record for record in _core._copy_scopes() if isinstance(record, _Downloads)]
    policy = records[-1]._policy if records else _default_policy()
    if policy == "allow":
        return
    error = CopyForbiddenError(
        where=where, expected=f'no hidden download, because gpuinterop.downloads("{policy}") is in force',
        got=f"{KINDS['device_to_host']}, {nbytes} bytes",
        fix="download it explicitly, x.get(), or call a function that runs on the GPU: gpuinterop's own, or "
        "gpuinterop.via.cupy",
    )  # fmt: skip
    if policy == "refuse":
        raise error
    warn(str(error), UserWarning, stacklevel=_frames_of_package())


def _frames_of_package() -> int:
    """Return the stack level of the calling line outside this package, for a warning of the caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


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
    return _Scope(record, record, "count_copies()")


def _caller() -> str:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


@_Opener
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
    return _Scope(_Ban(), None, "no_copies()")


@_Opener
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
    return _Scope(record, record, "count_copies()")


@_Opener
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
    return _Scope(record, record, "log_transfers()")


def downloads(policy: str) -> _Scope:
    """Allow hidden downloads of arrays on a GPU, warn of them, or refuse them: "allow", "warn" or "refuse".

    A hidden download is ``numpy.asarray(x)``, alone or in a function of NumPy, SciPy or Matplotlib. The call looks
    like work on the GPU, and runs on the host. With "refuse" it raises `CopyForbiddenError`. Explicit downloads
    stay: ``x.get()``, ``x.to_device("cpu")``, ``numpy.save``, ``float(x)``, ``x.tolist()``, ``print(x)``.

    A call sets the policy of the process. It is "allow" at first, or what GPUINTEROP_DOWNLOADS says. A ``with``
    block sets the policy of this thread until the block ends.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.ones(3)
    >>> with gpuinterop.downloads("refuse"):
    ...     host = x.get()  # explicit, hence allowed
    """
    return _Downloads(_read_policy(policy, "downloads"))


_core.set_hooks(copied=report_copy)
