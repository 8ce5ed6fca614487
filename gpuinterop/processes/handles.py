"""`share`: a picklable handle to the memory of an array, which another process opens; `shared_empty`: such memory.

The mechanism follows from the memory. A GPU's memory is opened by a descriptor of its virtual memory allocation or of
its pool, or by a legacy IPC handle. Host memory is opened by a descriptor of its file. Nothing is copied.
"""

from __future__ import annotations

import math
import os
import re
import weakref
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import byte_range
from gpuinterop.arrays.dtypes import as_supported_dtype
from gpuinterop.devices import resolve_device
from gpuinterop.errors import CaptureError, ExchangeError, short_repr, type_name
from gpuinterop.errors.arguments import require_bool
from gpuinterop.errors.context import reraise_from
from gpuinterop.errors.messages import negative_length, shape_too_large
from gpuinterop.exchange import engine
from gpuinterop.exchange.plan import ArrayInfo, Plan, copy_needed
from gpuinterop.exchange.plan import share as share_plan
from gpuinterop.ndarray import CudaNdarray, GpuArray

from . import device_memory, host_memory, service
from .opened import Held, open_shared

__all__ = ["Handle", "share", "shared_empty"]

_HOST_WORDS = "a descriptor of its file in shared memory"
_MAKE = "make the array with gpuinterop.shared_empty(shape, dtype)"


def shared_empty(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an uninitialized array in memory that `share` can share; float32 by default.

    The memory belongs to no process: it exists until the last array over it, in any process, is destroyed. On a GPU
    an allocation takes at least 2 MiB and about a millisecond. On "cpu" it keeps a file descriptor open.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.shared_empty((2, 3), device="cpu")
    >>> x[...] = 1
    >>> gpuinterop.explain(x, "process").shared
    True
    """
    where = "shared_empty"
    extents = _core.read_ints(shape, where)
    kind = as_supported_dtype(np.float32 if dtype is None else dtype, where)
    if any(n < 0 for n in extents):
        raise negative_length(where, extents)
    place = resolve_device(device, where)
    nbytes = math.prod(extents) * kind.itemsize
    if nbytes >= 1 << 62:
        raise shape_too_large(where, extents)
    cls = CudaNdarray if kind == np.float32 else GpuArray
    if not nbytes:
        return _core.empty(cls, extents, kind, place.type_code, place.index, where=where)
    with reraise_from(where):
        held = Held(_new_memory(place, nbytes))
        return held.array(cls, 0, extents, kind, place.type_code, place.index)


def _new_memory(place: Any, nbytes: int) -> Any:
    if place.type == "cpu":
        return host_memory.new_memory(nbytes)
    return device_memory.VirtualMemory(place.index, nbytes)


# ---- plan ---------------------------------------------------------------------------------------


def plan(x: Any, copyif: bool = False) -> Plan:
    """Return what `share` would do, for `explain(x, "process")`."""
    incoming = engine.plan_in(x, False, {}, "share")
    if incoming.plan.outcome != "shared":
        return replace(incoming.plan, library="process").permit(copyif)
    return _plan_memory(incoming.info)[0].permit(copyif)


def _plan_memory(info: ArrayInfo) -> tuple[Plan, Any]:
    """Return the plan for the memory of an array, and where it is: an allocation, or a file and an offset in it."""
    low, nbytes = _extent(info)
    found: Any
    if not nbytes:
        return _shared("no memory, because the array is empty"), None
    if info.device == "cpu":
        found = host_memory.find_file(low, nbytes, info.readonly)
        why, words = found if isinstance(found, str) else "", _HOST_WORDS
    else:
        found = device_memory.allocation_of(low, nbytes, info.index)
        why, words = found.why_not, device_memory.WORDS.get(found.mechanism, "")
    if not why:
        return _shared(words), found
    plan = copy_needed(
        "process", "share", info, ExchangeError, "memory that another process can open", why, _MAKE
    )  # fmt: skip
    return plan, None


def _shared(words: str) -> Plan:
    return replace(share_plan("process", "share"), reason=f"by {words}")


def _extent(info: ArrayInfo) -> tuple[int, int]:
    """Return the lowest address of an array's elements and the bytes from there to the end of the highest."""
    low, end = byte_range(info.ptr, info.shape, info.strides, info.itemsize)
    return low, end - low


# ---- the owner ----------------------------------------------------------------------------------


def share(x: Any, copyif: bool = False) -> Handle:
    """Return a picklable handle to the memory of an array of any library, for other processes of this machine.

    Another process of the same user calls ``handle.open()`` and gets an array over the same memory, with the dtype,
    shape, strides and read-only mark of `x`. Both see each other's writes. The opener's stream waits for the work
    that is queued on `x`. `handle.mechanism` says how the memory is shared; ``explain(x, "process")`` says it before.

    The handle keeps `x` alive, so keep it until another process has opened it. You can open it any number of times.
    When the owner has dropped the handle, opening a copy of it raises an error.

    Parameters
    ----------
    x : a gpuinterop array or an array of another library.
    copyif : copy memory that cannot be shared to new memory. The handle is then for the copy.

    Raises
    ------
    ExchangeError
        The memory cannot be opened by another process, as host memory of ``numpy.zeros``.

    Examples
    --------
    >>> import pickle, gpuinterop
    >>> x = gpuinterop.shared_empty(3, device="cpu")
    >>> x[...] = 7
    >>> handle = gpuinterop.share(x)
    >>> pickle.loads(pickle.dumps(handle)).open().tolist()      # in another process
    [7.0, 7.0, 7.0]
    """
    copyif = require_bool(copyif, "copyif", "share")
    with reraise_from("share"):
        array = engine.import_array(x, copyif, {})
    if array.device.type == "cpu":
        _core._require_values("share", array)
    plan, found = _plan_memory(ArrayInfo.of(array))
    plan = plan.permit(copyif)
    if plan.refused:
        raise plan.exception()
    if plan.copied:
        copied = _core.adopt(
            type(array), shared_empty(array.shape, array.dtype, device=array.device)
        )
        _core.copy_into(copied, array, where="share")
        array = copied
        found = _plan_memory(ArrayInfo.of(array))[1]
    handle = _add(_offer(array, found), once=False)
    weakref.finalize(handle, service.owner().withdraw, handle._token).atexit = False
    return handle


def share_once(array: Any) -> Handle | None:
    """Return a handle that keeps a gpuinterop array until it has been opened and closed; None if it cannot be shared.

    The memory is such that it outlives this process, because an engine may end its processes at any time.
    """
    found = _plan_memory(ArrayInfo.of(array))[1]
    if found is None:
        return None
    on_host = array.device.type == "cpu"
    lasts = host_memory.keeps_its_length(found[0]) if on_host else found.mechanism == "vmm"
    return _add(_offer(array, found), once=True) if lasts else None


def _add(offer: service.Offer, once: bool) -> Handle:
    owner = service.owner()
    token = owner.add(offer, once)
    return Handle(owner.address, token, {name: offer.answer[name] for name in _SHOWN})


_SHOWN = ("mechanism", "dtype", "shape", "device", "readonly")


def _offer(array: Any, found: Any) -> service.Offer:
    """Return what openers receive: the layout in bytes from the lowest element on, and where that is."""
    info = ArrayInfo.of(array)
    low, nbytes = _extent(info)
    answer = {
        "mechanism": "none", "device": info.device_name, "bytes": nbytes, "start": 0, "dtype": info.dtype,
        "shape": info.shape, "strides": info.strides, "inside": info.ptr - low if nbytes else 0,
        "readonly": info.readonly, "float32": isinstance(array, CudaNdarray),
    }  # fmt: skip
    if not nbytes:
        return service.Offer(array, answer, list, False)
    if info.device == "cpu":
        file, answer["start"], answer["readonly"] = found
        answer["mechanism"] = "file"
        return service.Offer(array, answer, partial(_duplicate, file), False)
    if _core.capturing():
        raise CaptureError(
            where="share", expected="no graph capture in progress, because other processes wait for an event",
            got="a graph capture", fix="share the array before the capture begins",
        )  # fmt: skip
    _core.hand_over(array, _core.current_stream_handle(info.index), "share")
    event = device_memory.ReadyEvent(info.index)
    answer |= {
        "mechanism": found.mechanism, "start": low - found.start, "size": found.nbytes, "number": found.number,
        "gpu": device_memory.device_id(info.index), "event": event.text,
        "handle": device_memory.handle_of(found, info.index),
    }  # fmt: skip
    descriptors = partial(device_memory.descriptors_of, found, info.index)
    return service.Offer((array, event), answer, descriptors, found.mechanism != "vmm")


def _duplicate(file: host_memory.File) -> list[int]:
    return [os.dup(file.descriptor)]


# ---- the handle -----------------------------------------------------------------------------------


class Handle:
    """A handle to the memory of an array in a process of this machine; made by `share`, and sent by pickle.

    Attributes
    ----------
    mechanism : "vmm", "pool" or "legacy" on a GPU, "file" on the host, "none" for an empty array.
    dtype, shape, device, readonly : of the array, as the owner describes it.

    In the owner's process the handle keeps the array alive. A copy of the handle, as pickle makes, does not.
    ``with handle as x:`` opens the array for a block, and waits at its end for the work on it.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.shared_empty((2, 3), device="cpu")
    >>> handle = gpuinterop.share(x)
    >>> handle.mechanism, handle.shape, handle.readonly
    ('file', (2, 3), False)
    """

    def __init__(self, address: str, token: bytes, shown: dict[str, Any]) -> None:
        self._address, self._token, self._entered = address, token, []  # type: ignore[var-annotated]
        self.mechanism, self.dtype, self.shape, self.device, self.readonly = (
            shown[name] for name in _SHOWN
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (
            self._address,
            self._token,
            {name: getattr(self, name) for name in _SHOWN},
        )

    def __repr__(self) -> str:
        owner = self._address.removeprefix(service.PREFIX).partition("-")[0]
        return f"<handle of process {owner} to {self.dtype} {tuple(self.shape)} on {self.device}, by {self.mechanism}>"

    def open(self) -> Any:
        """Return an array over the shared memory, which stays open until the last array over it is destroyed.

        Nothing is copied. On a GPU the current stream waits for the work that was queued when the array was shared.

        Raises
        ------
        ExchangeError
            The owner has ended, has released the handle, or belongs to another user.
        DeviceError
            The GPU is not visible in this process.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.shared_empty(2, device="cpu")
        >>> handle = gpuinterop.share(x)
        >>> handle.open().ptr == x.ptr          # the owner's own array; another process maps the memory
        True
        """
        offer = service.offered_here(self._address, self._token)
        if offer is not None:
            array = offer.array[0] if isinstance(offer.array, tuple) else offer.array
            return _core.view(CudaNdarray if isinstance(array, CudaNdarray) else GpuArray, array)
        return open_shared(self._address, self._token)

    def __enter__(self) -> Any:
        array = self.open()
        self._entered.append(array)
        return array

    def __exit__(self, *error: object) -> None:
        self._entered.pop().sync()

    @property
    def openers(self) -> int:
        """The number of arrays that other processes have open. ExchangeError outside of the owner's process."""
        return service.leases(self._address, self._token)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait in the owner's process until no other process has the array open; False after `timeout` seconds.

        All work of the openers on the memory is done then. Outside of the owner's process it raises ExchangeError.

        Examples
        --------
        >>> import gpuinterop
        >>> gpuinterop.share(gpuinterop.shared_empty(2, device="cpu")).wait(timeout=1)
        True
        """
        return service.wait(self._address, self._token, timeout)


_ADDRESS = re.compile(rf"{service.PREFIX}[0-9]{{1,10}}-[0-9a-f]{{16}}")


def _received(address: Any, token: Any, shown: Any) -> Handle:
    """Return a handle that pickle has read; refuse one that `share` did not make."""
    if not (
        isinstance(address, str) and _ADDRESS.fullmatch(address) and isinstance(token, bytes)
        and len(token) == service.TOKEN_BYTES and isinstance(shown, dict) and shown.keys() == {*_SHOWN}
    ):  # fmt: skip
        raise ExchangeError(
            where="gpuinterop.share", expected="a handle that gpuinterop.share has made",
            got=f"{short_repr(address)}, {type_name(token)}", fix="send the handle itself, by pickle",
        )  # fmt: skip
    return Handle(address, token, shown)
