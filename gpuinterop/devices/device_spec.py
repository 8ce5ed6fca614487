"""`Device`, the default device and the parsing of device specifiers; `gpuinterop.devices` exports them.

A device is written "cpu", "cuda", "cuda:1", "gpu0", as an int, a DLPack pair, or as another library's
device object. The default is GPUINTEROP_DEVICE, else the first GPU, else the CPU; ``with device:``
changes it for a block.
"""

from __future__ import annotations

import os
import re
import threading
from contextvars import ContextVar
from functools import cache, partial
from typing import Any

from gpuinterop import _core
from gpuinterop.errors import CudaError, DeviceError, short_repr, type_name
from gpuinterop.errors.messages import no_such_device

from .foreign_handles import CPU, CUDA, DLPACK, NAMES, as_int, device_pair

# int() limits the digits that it reads, and no device has a number of more than nine.
_SPELLING = re.compile(r"(cpu|host|cuda|gpu)(?::?0*(\d{1,9}))?", re.IGNORECASE)
_ACCEPTED = '"cpu", "cuda", "cuda:1", "gpu0", an int, (type, id) or another library\'s device'


class Device(_core.Block):
    """The CPU or one GPU. Equal to its name: ``x.device == "cuda:0"``.

    ``with device:`` makes it the default in the block, for the running thread or task.

    Examples
    --------
    >>> import gpuinterop
    >>> place = gpuinterop.device("cpu")
    >>> place.type, place == "cpu"
    ('cpu', True)
    """

    __slots__ = {
        "index": "The number among the devices of its kind; 0 for the CPU.",
        "type": '"cpu" or "cuda".',
        "type_code": "1 for the CPU, 2 for CUDA, as in DLPack.",
    }

    type: str
    index: int
    type_code: int

    def __new__(cls, spec: Any = None) -> Device:
        """Return ``device(spec)``; each device has one object."""
        return device(spec)

    def __init__(self, spec: Any = None) -> None:
        pass  # it is made once, by device_from_dlpack

    def __setattr__(self, name: str, value: object) -> None:
        # All arrays on the device share this object.
        raise AttributeError(
            f"{name}: a device cannot be changed; gpuinterop.device(spec) returns another"
        )

    def __delattr__(self, name: str) -> None:
        setattr(self, name, None)

    @property
    def id(self) -> int:
        """The index, under the name that CuPy and JAX use."""
        return self.index

    @property
    def name(self) -> str:
        """The name of the product."""
        return (
            str(_core.cuda_device_properties(self.index)["name"]) if self.type == "cuda" else "cpu"
        )

    def synchronize(self) -> None:
        """Wait until everything queued on this device is done."""
        if self.type == "cuda":
            _core.cuda_synchronize(self.index)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str(self) == other
        return self is other if isinstance(other, Device) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return (device_from_dlpack, (self.type_code, self.index))

    def __str__(self) -> str:
        return "cpu" if self.type == "cpu" else f"cuda:{self.index}"

    def __repr__(self) -> str:
        return f"Device({str(self)!r})"


@cache
def device_from_dlpack(type_code: int, index: int) -> Device:
    """Return the device of a DLPack type code and number; it need not exist."""
    code = DLPACK[type_code]
    if code != type_code or (code == CPU and index):
        return device_from_dlpack(code, 0 if code == CPU else index)
    made = _core.Block.__new__(Device)
    _core.Block.__init__(made, (partial(_core._push, _blocks, made), partial(_core._pop, _blocks)))
    for name, value in (
        ("type_code", code),
        ("type", "cpu" if code == CPU else "cuda"),
        ("index", index),
    ):
        object.__setattr__(made, name, value)
    return made


# ---- the default -------------------------------------------------------------------------------

_blocks: ContextVar[tuple[Device, ...]] = ContextVar("gpuinterop_default_devices", default=())
_lock = threading.Lock()
_process_default: Device | None = None


def default_device() -> Device:
    """Return the device of new arrays without ``device=``.

    It is that of the innermost ``with device:``, else that of `set_default_device`, else
    GPUINTEROP_DEVICE, else the first GPU, else the CPU.

    Examples
    --------
    >>> import gpuinterop
    >>> with gpuinterop.device("cpu"):
    ...     gpuinterop.default_device()
    Device('cpu')
    """
    blocks = _blocks.get()
    if blocks:
        return blocks[-1]
    return _process_default or _find_default()


def device_from_variable(wish: str) -> Device:
    """Return the device that a value of GPUINTEROP_DEVICE names."""
    match = _SPELLING.fullmatch(wish)
    try:
        # Elsewhere "cuda" means the default device, which this function computes.
        return (
            _checked(NAMES[match[1].lower()], int(match[2] or 0), wish) if match else device(wish)
        )
    except DeviceError as error:
        fix = "unset GPUINTEROP_DEVICE or name a device that exists"
        raise error.changed(where="GPUINTEROP_DEVICE", fix=fix) from None


def _find_default() -> Device:
    global _process_default
    wish = os.environ.get("GPUINTEROP_DEVICE", "").strip()
    if wish:
        found = device_from_variable(wish)
    elif _core.cuda_forked():
        # The parent had a GPU. Using the CPU would change the device silently.
        raise no_cuda("default_device", CudaError)
    else:
        found = (
            device_from_dlpack(CUDA, 0) if _core.cuda_device_count() else device_from_dlpack(CPU, 0)
        )
    with _lock:
        _process_default = _process_default or found
    return _process_default


def set_default_device(spec: Any) -> None:
    """Set the default for the whole process; None goes back to GPUINTEROP_DEVICE or the first GPU."""
    global _process_default
    chosen = None if spec is None else device(spec)
    with _lock:
        _process_default = chosen


# ---- naming a device ---------------------------------------------------------------------------


def device(spec: Any = None) -> Device:
    """Return the existing device that `spec` names.

    Parameters
    ----------
    spec : a `Device`, None for the default, "cpu", "cuda" (the default if that is a GPU, else the
        first one), "cuda:1", "gpu1", an int for a GPU's number, a pair as ``__dlpack_device__``
        returns it, or the device object of torch, CuPy, JAX, cuda.core and similar libraries.

    Raises
    ------
    DeviceError
        The device does not exist, or gpuinterop has no arrays on it.

    Examples
    --------
    >>> from gpuinterop.devices import device
    >>> device("cpu")
    Device('cpu')
    >>> device((1, 0)) == "cpu"
    True
    """
    if type(spec) is Device:
        return spec
    if spec is None:
        return default_device()
    if type(spec) is str and spec == "cpu":  # before the expression, which takes 3 us
        return device_from_dlpack(CPU, 0)
    if isinstance(spec, str):
        match = _SPELLING.fullmatch(spec.strip())
        if match is None:
            raise _unknown(spec)
        number = match[2]
        return _checked(NAMES[match[1].lower()], None if number is None else int(number), spec)
    number = as_int(spec)
    if number is not None:
        return _checked(CUDA, number, spec)
    pair = device_pair(spec)
    if pair is None:
        raise _unknown(spec)
    return _checked(*pair, spec)


def _checked(code: int, index: int | None, spec: Any) -> Device:
    if code == CPU:
        if index:
            raise DeviceError(
                where="device",
                expected="one CPU, number 0",
                got=short_repr(spec),
                fix='write "cpu"',
            )
        return device_from_dlpack(CPU, 0)
    count = _core.cuda_device_count()
    if not count:
        raise no_cuda("device", CudaError if _core.cuda_forked() else DeviceError, spec)
    if index is None:
        default = default_device()
        index = default.index if default.type == "cuda" else 0
    if not 0 <= index < count:
        raise no_such_device("device", count, spec)
    return device_from_dlpack(CUDA, index)


# The name of a dtype; the table of dtypes would load NumPy.
_DTYPE = re.compile(r"(u?int|b?float|complex)[0-9]+\w*|bool")


def _unknown(spec: Any) -> DeviceError:
    name = spec.__name__ if isinstance(spec, type) else spec
    is_dtype = isinstance(name, str) and _DTYPE.fullmatch(name)  # CudaNdarray(values, "float32")
    return DeviceError(
        where="device",
        expected=_ACCEPTED,
        got=short_repr(spec) if isinstance(spec, str) else f"{short_repr(spec)}, {type_name(spec)}",
        fix=f"name a dtype by its keyword: dtype={name!r}"
        if is_dtype
        else 'write "cpu" or "cuda:N"; gpuinterop.devices() lists the devices',
    )


def no_cuda(where: str, kind: type[Any], spec: Any = None) -> Any:
    """Return the error `kind` for a call that needs a GPU without a working driver."""
    forked = _core.cuda_forked()
    return kind(
        where=where,
        expected="a working CUDA driver",
        got=("" if spec is None else f"{short_repr(spec)}; ") + _core.cuda_unavailable_reason(),
        fix='start workers with multiprocessing.get_context("spawn")'
        if forked
        else 'install the NVIDIA driver, or use device="cpu"',
    )


def fix_host_argument(move: str) -> str:
    """Return the fix for a kernel's argument in host memory; `move` is the line that moves it."""
    if _core.cuda_device_count():
        return f"pass an array on the GPU: {move}"
    return (
        "run the kernel on a machine with a GPU, because this one has none; "
        'an ElementwiseKernel with host= also runs on "cpu"'
    )


def devices() -> tuple[Device, ...]:
    """Return every device of this machine, the CPU first.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.devices()[-1]
    Device('cpu')
    """
    gpus = (device_from_dlpack(CUDA, i) for i in range(_core.cuda_device_count()))
    return (device_from_dlpack(CPU, 0), *gpus)


def gpu(spec: Any) -> Device:
    """Return the GPU that `spec` or the default device names; the CPU if there is no GPU."""
    if spec is not None:
        return device(spec)
    default = default_device()
    return default if default.type == "cuda" or not _core.cuda_device_count() else device("cuda")


def _device_for_core(spec: Any) -> Device:
    return device_from_dlpack(*spec) if type(spec) is tuple else device(spec)


_core.set_hooks(device=_device_for_core)
_core._set_default_devices(_blocks.get, globals())
