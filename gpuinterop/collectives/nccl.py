"""NCCL through a communicator of nccl4py: contiguous arrays, on the current stream of gpuinterop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpuinterop import _core, errors
from gpuinterop.ndarray import GpuArray

NAME = "NCCL"
HAS_STREAMS = True  # on which it queues transfers of GPU memory
_WHERE = "gpuinterop.collectives"
_OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3}  # ncclRedOp_t
_REDUCED = {
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16",
}  # fmt: skip


def place(group: Any) -> tuple[int, int]:
    """Return the size of a communicator, and the rank of this process."""
    return group.nranks, group.rank


def reduces(dtype: str, op: str) -> bool:
    """Return whether NCCL has the reduction."""
    return dtype in _REDUCED


def require_device(group: Any, array: Any, where: str) -> None:
    """Raise if an array is on another device than the communicator."""
    wanted = f"cuda:{group.device.device_id}"
    if str(array.device) != wanted:
        raise errors.DeviceMismatchError(
            where=where, expected=f"an array on {wanted}, the device of the communicator",
            got=f"an array on {array.device}", fix=f'move it with x.to_device("{wanted}")',
        )  # fmt: skip


def takes(name: str, array: Any, stacked: bool) -> bool:
    """Return whether NCCL reads or writes an array in place: it knows no strides."""
    return bool(array.is_c_contiguous())


@contextmanager
def _stream_for(*arrays: Any) -> Iterator[int]:
    """Provide the current stream after the work on the arrays; later work on them follows it. Word NCCL's errors."""
    used = [array for array in arrays if array is not None]
    stream = _core.current_stream_handle(used[0].device.index)
    for array in used:
        _core.used_on(array, stream, _WHERE)
    try:
        yield stream
    except Exception as e:  # of nccl.core, which is not imported here
        raise errors.ExchangeError(
            where=_WHERE, expected="a transfer that NCCL carries out", got=f"{type(e).__name__}: {e}",
            fix="check that every process makes the same call",
        ) from e  # fmt: skip
    finally:
        _core.end_use(used[0], stream)


def _bytes(x: Any) -> Any:
    """Return the bytes of a contiguous array, because NCCL transfers uint8 and not every dtype."""
    return None if x is None else _core.view(GpuArray, x).reshape(-1).view("uint8")


def send(group: Any, x: Any, rank: int) -> None:
    """Send an array."""
    with _stream_for(x) as stream:
        group.send(_bytes(x), rank, stream=stream)


def recv(group: Any, out: Any, rank: int) -> None:
    """Receive an array."""
    with _stream_for(out) as stream:
        group.recv(_bytes(out), rank, stream=stream)


def broadcast(group: Any, x: Any, root: int) -> None:
    """Broadcast an array, in place."""
    with _stream_for(x) as stream:
        group.broadcast(_bytes(x), _bytes(x), root, stream=stream)


def all_reduce(group: Any, x: Any, out: Any, op: str) -> None:
    """Reduce into `out`, or in place."""
    out = x if out is None else out
    with _stream_for(x, out) as stream:
        group.allreduce(x, out, _OPS[op], stream=stream)


def reduce_scatter(group: Any, x: Any, out: Any, op: str) -> None:
    """Reduce, and keep one block."""
    with _stream_for(x, out) as stream:
        group.reduce_scatter(x, out, _OPS[op], stream=stream)


def all_gather(group: Any, x: Any, out: Any) -> None:
    """Gather in every process."""
    with _stream_for(x, out) as stream:
        group.allgather(_bytes(x), _bytes(out), stream=stream)


def gather(group: Any, x: Any, out: Any, root: int) -> None:
    """Gather in one process."""
    with _stream_for(x, out) as stream:
        group.gather(_bytes(x), _bytes(out), root, stream=stream)


def scatter(group: Any, x: Any, out: Any, root: int) -> None:
    """Scatter from one process."""
    with _stream_for(x, out) as stream:
        group.scatter(_bytes(x), _bytes(out), root, stream=stream)


def all_to_all(group: Any, x: Any, out: Any) -> None:
    """Exchange blocks."""
    with _stream_for(x, out) as stream:
        group.alltoall(_bytes(x), _bytes(out), stream=stream)
