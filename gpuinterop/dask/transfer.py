"""Arrays between the processes of Dask: handles to shared memory on one machine, and frames of a GPU for UCX.

All other arrays travel as pickles, as Dask does with objects that have no serializer.
"""

from __future__ import annotations

import pickle
from typing import Any

from dask import config
from distributed.comm.addressing import get_address_host
from distributed.protocol.cuda import cuda_deserialize, cuda_serialize
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from gpuinterop import _core
from gpuinterop.converters import from_any
from gpuinterop.ndarray import CudaNdarray, GpuArray, pickled_memory
from gpuinterop.processes.handles import share_once

_LEAST = 1 << 16  # bytes; fewer are sent in less time than a process needs to open memory


def register() -> None:
    """Register the functions of this module in the tables of distributed."""
    for table, function in (
        (dask_serialize, to_handle), (dask_deserialize, from_handle), (cuda_serialize, to_frame),
        (cuda_deserialize, from_frame),
    ):  # fmt: skip
        table.register(_core.Array)(function)


def to_handle(x: Any, context: Any = None) -> tuple[dict[str, Any], list[Any]]:
    """Return a handle to the memory of an array for a process of this machine; nothing is copied.

    NotImplementedError makes Dask pickle the array.
    """
    if type(x) in (CudaNdarray, GpuArray) and x.nbytes >= _LEAST and _is_opened_here(context):
        handle = share_once(x)
        if handle is not None:
            return {"handle": pickle.dumps(handle)}, []
    raise NotImplementedError("Dask pickles this array")


def _is_opened_here(context: Any) -> bool:
    """Return whether a message is read on this machine, by the process that receives it.

    The scheduler passes messages on to other machines. It is the one that asks for pickles of protocol 4.
    """
    context = context or {}
    ends = [context.get(side, {}).get("address") for side in ("sender", "recipient")]
    if (
        context.get("pickle-protocol", 0) < 5
        or None in ends
        or not config.get("gpuinterop.share", True)
    ):
        return False
    sender, recipient = map(get_address_host, ends)
    return bool(sender == recipient)


def from_handle(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the array of a handle, on the GPU of the number that it has in the sender, as a pickle does."""
    handle = pickle.loads(header["handle"])
    array = handle.open()
    return array if str(array.device) == handle.device else array.to_device(handle.device)


def to_frame(x: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the memory of an array on a GPU, for a transport that reads it there."""
    if type(x) not in (CudaNdarray, GpuArray) or x.device.type == "cpu":
        raise NotImplementedError("only arrays on a GPU have frames of its memory")
    memory, strides, offset = pickled_memory(x)
    layout = type(x), x.dtype, x.shape, strides, offset, x.readonly
    return {"layout": pickle.dumps(layout)}, [_core.view(GpuArray, memory).view("uint8")]


def from_frame(header: dict[str, Any], frames: list[Any]) -> Any:
    """Return the array of a frame, which is memory of a GPU in any library's form."""
    cls, dtype, shape, strides, offset, readonly = pickle.loads(header["layout"])
    memory = _core.view(GpuArray, from_any(frames[0])).view(dtype)
    array = _core.adopt(cls, memory._restrided(shape, strides, offset))
    if readonly:
        array.readonly = True
    return array
