"""Process groups of torch.distributed, with Gloo or NCCL: contiguous tensors over the memory of gpuinterop arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from gpuinterop import _core, errors
from gpuinterop.converters import to

NAME = "torch.distributed"
HAS_STREAMS = True  # on which it queues transfers of GPU memory
_OPS = {
    "sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}  # fmt: skip
# Names of torch 2.13, and earlier ones.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
# What Gloo and NCCL both reduce.
_REDUCED = {"int8", "uint8", "int32", "int64", "float16", "float32", "float64", "bfloat16"}


def place(group: Any) -> tuple[int, int]:
    """Return the size of a process group, and the rank of this process."""
    return dist.get_world_size(group), dist.get_rank(group)


def reduces(dtype: str, op: str) -> bool:
    """Return whether the process group has the reduction."""
    return dtype in _REDUCED


def require_device(group: Any, array: Any, where: str) -> None:
    """Raise if the group has no backend for the device of an array."""
    backend = str(dist.get_backend(group))
    kind = array.device.type
    if (backend == "gloo" and kind == "cuda") or (backend == "nccl" and kind == "cpu"):
        target, other = ("cpu", "nccl") if kind == "cuda" else ("cuda", "gloo")
        raise errors.DeviceMismatchError(
            where=where, expected=f"an array that {backend} transfers", got=f"an array on {array.device}",
            fix=f'move it with x.to_device("{target}"), or make the group with backend="{other}"',
        )  # fmt: skip


def _bytes(x: Any) -> Any:
    """Return the bytes of a contiguous array as a tensor, because every backend transfers uint8."""
    return to(x, "torch", allow_readonly=True).reshape(-1).view(torch.uint8)


def takes(name: str, array: Any, stacked: bool) -> bool:
    """Return whether torch reads or writes an array in place: only contiguous ones."""
    return bool(array.is_c_contiguous())


@contextmanager
def _ordered(*written: Any) -> Iterator[None]:
    """Order later work on the written arrays after torch's current stream, and word errors of torch."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as e:
        raise errors.ExchangeError(
            where="gpuinterop.collectives", expected="a transfer that torch.distributed carries out",
            got=f"{type(e).__name__}: {e}", fix="check that every process makes the same call",
        ) from e  # fmt: skip
    for array in written:
        if array is not None and array.device.type == "cuda":
            stream = torch.cuda.current_stream(array.device.index).cuda_stream
            _core.after_stream(array, stream or 1, "gpuinterop.collectives")


def _blocks(x: Any) -> Any:
    return None if x is None else [*_bytes(x).reshape(x.shape[0], -1).unbind(0)]


def send(group: Any, x: Any, rank: int) -> None:
    """Send an array."""
    with _ordered():
        dist.send(_bytes(x), dist.get_global_rank(group, rank), group)


def recv(group: Any, out: Any, rank: int) -> None:
    """Receive an array."""
    with _ordered(out):
        dist.recv(_bytes(out), dist.get_global_rank(group, rank), group)


def broadcast(group: Any, x: Any, root: int) -> None:
    """Broadcast an array."""
    with _ordered(x):
        dist.broadcast(_bytes(x), dist.get_global_rank(group, root), group)


def all_reduce(group: Any, x: Any, out: Any, op: str) -> None:
    """Reduce into `out`, or in place."""
    if out is None:
        out = x
    else:  # torch reduces in place
        out[...] = x
    with _ordered(out):
        dist.all_reduce(to(out, "torch"), _OPS[op], group)


def reduce_scatter(group: Any, x: Any, out: Any, op: str) -> None:
    """Reduce, and keep one block."""
    source = to(x, "torch", allow_readonly=True).reshape(-1)
    with _ordered(out):
        _reduce_scatter(to(out, "torch").reshape(-1), source, _OPS[op], group)


def all_gather(group: Any, x: Any, out: Any) -> None:
    """Gather in every process."""
    with _ordered(out):
        _all_gather(_bytes(out), _bytes(x), group)


def gather(group: Any, x: Any, out: Any, root: int) -> None:
    """Gather in one process."""
    with _ordered(out):
        dist.gather(_bytes(x), _blocks(out), dist.get_global_rank(group, root), group)


def scatter(group: Any, x: Any, out: Any, root: int) -> None:
    """Scatter from one process."""
    with _ordered(out):
        dist.scatter(_bytes(out), _blocks(x), dist.get_global_rank(group, root), group)


def all_to_all(group: Any, x: Any, out: Any) -> None:
    """Exchange blocks."""
    with _ordered(out):
        dist.all_to_all_single(_bytes(out), _bytes(x), group=group)
