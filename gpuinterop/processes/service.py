"""The owner's side of shared handles: a thread that gives descriptors to processes of the same user, and leases.

A handle names a socket and a secret token. An opener connects and sends the token. The owner answers with the
layout and the descriptor of the memory. The connection is the lease: it stays open while the opener has the memory
mapped, and ends with its process, however that ends. The owner keeps the array until no handle and no lease is
left. A token is never used again, so an old handle is refused even if the address has been reused.

The socket has an abstract name, so a crash leaves no file behind. Anyone on the machine may connect to such a name,
so both sides read the other's user from the kernel before they send or believe anything.
"""

from __future__ import annotations

import array
import atexit
import errno
import json
import os
import secrets
import selectors
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple

from gpuinterop.errors import ArgumentTypeError, BoundsError, ExchangeError, short_repr

_INT = struct.Struct("i")
TOKEN_BYTES = 16
_MOST_BYTES = 1 << 16  # of an answer: 64 dimensions need less than 3 KiB
_SECONDS = 30.0  # that an opener waits for an answer
_PAUSE = 0.02  # seconds until a new attempt at what nothing announces: a free descriptor, a place in a queue
# How long the exit of the owner waits for the leases of memory that ends with its process.
EXIT_SECONDS = 60.0
# How long a handle for one opening waits for it.
ONCE_SECONDS = 300.0
PREFIX = "gpuinterop-"
# What the answer to an opener has, for each mechanism.
ANSWER = {
    "mechanism", "device", "bytes", "start", "dtype", "shape", "strides", "inside", "readonly", "float32",
}  # fmt: skip


class Offer(NamedTuple):
    """What an owner gives: the answer to an opener, and its descriptors."""

    array: Any  # kept alive
    answer: dict[str, Any]
    descriptors: Callable[[], list[int]]  # new ones, closed after they were sent
    ends_with_owner: bool  # the driver leaves open memory undefined when the owner exits


class _Entry:
    """An offer, the number of leases, whether it can be opened, and until when if only once."""

    def __init__(self, offer: Offer, once: bool) -> None:
        self.offer, self.leases, self.open = offer, 0, True
        self.until = time.monotonic() + ONCE_SECONDS if once else None

    def is_late(self) -> bool:
        return self.until is not None and self.until < time.monotonic()

    def opens(self) -> bool:
        return self.open and not self.is_late()


class _Owner:
    """The thread that answers openers, and the table of offers. One for a process, made on the first share."""

    def __init__(self) -> None:
        self.address = f"{PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        self.entries: dict[bytes, _Entry] = {}
        self.changed = threading.Condition()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(f"\0{self.address}")
        self.listener.listen(128)
        self.listener.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.closing = False
        threading.Thread(target=self._run, name="gpuinterop share", daemon=True).start()

    def add(self, offer: Offer, once: bool = False) -> bytes:
        """Return the token of a new offer, and withdraw those for one opening that nobody has opened."""
        token = secrets.token_bytes(TOKEN_BYTES)
        with self.changed:
            # Of a copy, because the garbage collector may end other handles of this thread meanwhile.
            late = [t for t, entry in self.entries.copy().items() if entry.is_late()]
            self.entries[token] = _Entry(offer, once)
        for other in late:
            self.withdraw(other)
        return token

    def withdraw(self, token: bytes) -> None:
        """Refuse further openers; the array is kept until the last lease ends."""
        dropped = None  # outside of the lock, because its memory may call back
        with self.changed:
            entry = self.entries.get(token)
            if entry is not None:
                entry.open = False
                dropped = self._drop_if_unused(token, entry)
        del dropped

    def _drop_if_unused(self, token: bytes, entry: _Entry) -> _Entry | None:
        self.changed.notify_all()
        return self.entries.pop(token, None) if not entry.open and not entry.leases else None

    def _run(self) -> None:
        while not self.closing:
            for key, _ in self.selector.select():
                try:
                    self._accept() if key.fileobj is self.listener else self._read(key)
                except OSError:  # the opener ended meanwhile
                    pass

    def _accept(self) -> None:
        try:
            connection, _ = self.listener.accept()
        except OSError:  # no descriptor is free, and the listener stays ready
            return time.sleep(_PAUSE)
        if peer_user(connection) != os.geteuid():
            return connection.close()
        connection.setblocking(False)
        self.selector.register(connection, selectors.EVENT_READ)

    def _read(self, key: selectors.SelectorKey) -> None:
        """Read a token, or the end of a lease."""
        connection: Any = key.fileobj
        try:
            text = connection.recv(TOKEN_BYTES + 1)
        except ConnectionError:
            text = b""
        if text and key.data is None and self._lease(connection, text):
            return
        self.selector.unregister(connection)
        connection.close()
        if key.data is not None:
            self._end_lease(key.data)

    def _end_lease(self, token: bytes) -> None:
        dropped = None
        with self.changed:
            entry = self.entries[token]
            entry.leases -= 1
            dropped = self._drop_if_unused(token, entry)
        del dropped

    def _lease(self, connection: socket.socket, token: bytes) -> bool:
        """Answer an opener; False ends the connection."""
        with self.changed:
            entry = self.entries.get(token)
            if entry is None or not entry.opens():
                connection.send(b"{}")
                return False
            entry.leases += 1
            entry.open = entry.until is None
        try:
            given = entry.offer.descriptors()
            try:
                socket.send_fds(connection, [json.dumps(entry.offer.answer).encode()], given)
            finally:
                close_all(given)
        # No descriptor is free, the driver refuses, or the opener has ended.
        except Exception as error:
            self._end_lease(token)  # first, because a send to an opener that has ended raises
            connection.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
            return False
        self.selector.modify(connection, selectors.EVENT_READ, token)
        return True

    def end(self) -> None:
        """Refuse new openers, and wait for the leases of memory that ends with this process."""
        with self.changed:
            for entry in self.entries.copy().values():
                entry.open = False
            self.changed.wait_for(lambda: not self._must_stay(), EXIT_SECONDS)
        self.closing = True

    def _must_stay(self) -> bool:
        """Return whether another process has memory open that ends with this one."""
        entries = self.entries.copy().values()
        return any(entry.leases and entry.offer.ends_with_owner for entry in entries)

    def leave(self) -> None:
        """Close the sockets in a child of a fork, which has no thread that answers."""
        self.changed = threading.Condition()  # the thread may have held the other one
        for key in [*self.selector.get_map().values()]:
            connection: Any = key.fileobj
            connection.close()  # and not unregistered, because the parent's selector is the same
        self.selector.close()


_lock = threading.Lock()
_owner: _Owner | None = None


def owner() -> _Owner:
    """Return this process's owner of handles."""
    global _owner
    with _lock:
        if _owner is None:
            _owner = _Owner()
            atexit.register(_end)
            if util := sys.modules.get("multiprocessing.util"):  # its children leave atexit out
                util.Finalize(None, _end, exitpriority=0)
        return _owner


def offered_here(address: str, token: bytes) -> Offer | None:
    """Return this process's own offer, None if another process made it; refuse one that has been withdrawn."""
    if _owner is None or address != _owner.address:
        return None
    with _owner.changed:
        entry = _owner.entries.get(token)
        if entry is None or not entry.opens():
            raise no_longer_shared()
    if entry.until is not None:
        _owner.withdraw(token)
    return entry.offer


def leases(address: str, token: bytes) -> int:
    """Return how many times other processes have the memory open."""
    entry = _own(address, "openers").entries.get(token)
    return 0 if entry is None else entry.leases


def wait(address: str, token: bytes, timeout: float | None) -> bool:
    """Wait until no other process has the memory open; False after `timeout` seconds."""
    own, seconds = _own(address, "wait"), None if timeout is None else _read_seconds(timeout)
    with own.changed:
        return own.changed.wait_for(lambda: leases(address, token) == 0, seconds)


def _read_seconds(timeout: Any) -> float:
    """Return a timeout that Python's locks take, which is at most 292 years."""
    is_number = isinstance(timeout, Real) and not isinstance(timeout, bool)
    if is_number and timeout >= 0:  # and not NaN
        return float(min(timeout, threading.TIMEOUT_MAX))
    raise (BoundsError if is_number else ArgumentTypeError)(
        where="wait", expected="timeout=None or a number of seconds, 0 or more",
        got=f"timeout={short_repr(timeout)}", fix="pass seconds, or None to wait without end",
    )  # fmt: skip


def _own(address: str, where: str) -> _Owner:
    """Return this process's owner; raise if another process made the handle."""
    if _owner is None or address != _owner.address:
        raise ExchangeError(
            where=where, expected="the process that shared the array, which has the list of openers",
            got="another process", fix="call it in the owner's process",
        )  # fmt: skip
    return _owner


def _end() -> None:
    if _owner is not None and not _owner.closing:
        _owner.end()


def _after_fork_in_child() -> None:
    global _owner, _lock
    _lock = threading.Lock()
    if _owner is not None:
        _owner.leave()
        _owner = None
    for lease in [*_leases]:
        lease.close()
    _leases.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)

# ---- the opener's side --------------------------------------------------------------------------

# From before they connect; closed in a child of a fork, which would extend them.
_leases: set[socket.socket] = set()


def connect(address: str, token: bytes) -> tuple[socket.socket, dict[str, Any], list[int]]:
    """Return the lease, the owner's answer and new descriptors of the memory."""
    lease = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _leases.add(lease)
    given: list[int] = []
    try:
        lease.settimeout(_SECONDS)
        _reach(lease, address)
        if peer_user(lease) != os.geteuid():
            raise ExchangeError(
                where="open", expected="a handle of this user", got="a handle of another user",
                fix="send a copy: numpy.asarray(x), or a pickle of the array",
            )  # fmt: skip
        try:
            lease.send(token)
        except ConnectionError:
            raise owner_is_gone() from None
        text, given = receive(lease)
        answer = _read_answer(text)
        if "error" in answer:
            raise ExchangeError(
                where="open", expected="memory that its owner can send", got=str(answer["error"]),
                fix="close arrays that are open, or send a copy: a pickle of the array",
            )  # fmt: skip
    except BaseException:
        end_lease(lease)
        close_all(given)
        raise
    return lease, answer, given


def _read_answer(text: bytes) -> dict[str, Any]:
    if not text:
        raise owner_is_gone()
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if answer == {}:
        raise no_longer_shared()
    if not isinstance(answer, dict) or not ("error" in answer or answer.keys() >= ANSWER):
        raise wrong_answer(short_repr(text))
    return answer


def _reach(lease: socket.socket, address: str) -> None:
    """Connect to an owner, whose queue of openers may be full for a while."""
    end = time.monotonic() + _SECONDS
    while True:
        try:
            return lease.connect(f"\0{address}")
        except BlockingIOError:
            if time.monotonic() > end:
                raise _no_answer() from None
            time.sleep(_PAUSE)
        except (ConnectionError, FileNotFoundError):
            raise owner_is_gone() from None


def end_lease(lease: socket.socket) -> None:
    """Report to the owner that this process has unmapped the memory."""
    _leases.discard(lease)
    lease.close()


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Receive a message and its descriptors, which children do not inherit. A longer message is cut."""
    # Not socket.recv_fds, which ignores the flag before Python 3.12.
    space, given = socket.CMSG_LEN(4 * _INT.size), array.array("i")
    try:
        text, parts, flags, _ = connection.recvmsg(_MOST_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return b"", []
    except TimeoutError:
        raise _no_answer() from None
    for level, kind, data in parts:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            given.frombytes(data[: len(data) // _INT.size * _INT.size])
    if flags & socket.MSG_CTRUNC:
        close_all([*given])
        code = errno.EMFILE  # the system drops descriptors that this process has no room for
        raise OSError(code, f"{os.strerror(code)}: no room for the descriptor of the shared memory")
    return text, [*given]


def close_all(descriptors: list[int]) -> None:
    """Close descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)


def peer_user(connection: socket.socket) -> int:
    """Return the user of the process at the other end, from the kernel."""
    parts = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", parts)[1])


def wrong_answer(got: str) -> ExchangeError:
    """Return the error for an answer with another text or other fields than `share` gives."""
    return ExchangeError(
        where="open", expected="an answer as gpuinterop.share gives it", got=got,
        fix="use the same version of gpuinterop in both processes",
    )  # fmt: skip


def _no_answer() -> ExchangeError:
    """Return the error for an owner that does not answer."""
    return ExchangeError(
        where="open", expected="an answer of the owner's process",
        got=f"none within {_SECONDS:.0f} seconds", fix="continue the owner, if it is stopped, and open again",
    )  # fmt: skip


def owner_is_gone() -> ExchangeError:
    """Return the error for a handle of a process that has ended."""
    return ExchangeError(
        where="open", expected="a handle of a running process",
        got="a handle whose owner has ended", fix="share the array from a process that keeps running",
    )  # fmt: skip


def no_longer_shared() -> ExchangeError:
    """Return the error for a handle that its owner has dropped, or a token that no owner has."""
    return ExchangeError(
        where="open", expected="a handle that its owner still offers",
        got="a handle whose owner has released it", fix="keep the handle in the owner until it has been opened",
    )  # fmt: skip
