"""MPI through mpi4py: views are sent and received in place, as derived datatypes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

from mpi4py import MPI

from gpuinterop import _core, errors
from gpuinterop.arrays.core_view import byte_range

NAME = "MPI"
HAS_STREAMS = False  # on which it queues transfers of GPU memory
_OPS = {"sum": MPI.SUM, "prod": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN}
_TYPES = {
    "int8": MPI.INT8_T, "int16": MPI.INT16_T, "int32": MPI.INT32_T, "int64": MPI.INT64_T,
    "uint8": MPI.UINT8_T, "uint16": MPI.UINT16_T, "uint32": MPI.UINT32_T, "uint64": MPI.UINT64_T,
    "float32": MPI.FLOAT, "float64": MPI.DOUBLE,
    "complex64": MPI.C_FLOAT_COMPLEX, "complex128": MPI.C_DOUBLE_COMPLEX,
}  # fmt: skip

_PACKED = {"broadcast", "all_reduce", "reduce_scatter", "all_to_all"}
_SAME = "make the same call in every process, with arrays of the same size and dtype"
_MOST, _PART = 1 << 31, 1 << 30  # Open MPI 5.0 counts in 32 bits


def place(group: Any) -> tuple[int, int]:
    """Return the size of a communicator, and the rank of this process."""
    return group.Get_size(), group.Get_rank()


def reduces(dtype: str, op: str) -> bool:
    """Return whether MPI has the reduction."""
    return dtype in _TYPES and not (dtype.startswith("complex") and op in ("max", "min"))


def require_device(group: Any, array: Any, where: str) -> None:
    """Wait for the work on an array, because MPI has no streams; raise if MPI does not read GPU memory."""
    if array.device.type == "cpu":
        return
    if not reads_gpu_memory():
        raise errors.DeviceMismatchError(
            where=where, expected="host memory, because this MPI does not report that it reads GPU memory",
            got=f"an array on {array.device}",
            fix='send x.to_device("cpu"), or install an MPI that is built for CUDA',
        )  # fmt: skip
    _core.finish_uses(array, where)


@cache
def reads_gpu_memory() -> bool:
    """Return whether the MPI library reports that it reads CUDA memory: Open MPI's query, or MPICH's."""
    for library in (ctypes.CDLL(None), ctypes.CDLL(MPI.__file__)):
        if hasattr(library, "MPIX_Query_cuda_support"):
            return bool(library.MPIX_Query_cuda_support())
        if hasattr(library, "MPIX_GPU_query_support"):
            found = ctypes.c_int(0)
            library.MPIX_GPU_query_support(0, ctypes.byref(found))  # 0: MPIX_GPU_SUPPORT_CUDA
            return bool(found.value)
    return False


def takes(name: str, array: Any, stacked: bool) -> bool:
    """Return whether MPI reads or writes an array in place.

    Reductions need contiguous arrays. So do broadcasts: Open MPI divides long ones by the count of elements, which must
    then be the same in every process, and a derived datatype counts as one. So does all_to_all: Bruck's algorithm reads
    `x` with the datatype of `out`. Open MPI 5.0 places two kinds of datatypes wrongly: blocks of a stacked array that
    interleave or go backwards in memory, and single bytes that go backwards.
    """
    if array.is_c_contiguous():
        return True
    if max(array.shape) >= _MOST:
        return False
    backwards = array.itemsize == 1 and any(step < 0 for step in array.strides)
    if backwards or name in _PACKED:
        return False
    if not stacked:
        return True
    first, end = byte_range(0, array.shape[1:], array.strides[1:], array.itemsize)
    return bool(array.shape[0] == 1 or array.strides[0] >= end - first)


@contextmanager
def _message(x: Any, blocks: int = 1) -> Iterator[Any]:
    """Describe an array to MPI, or with `blocks` the first of its parts along axis 0, one for each process.

    As one element of a datatype, also if it is contiguous: some algorithms cut messages by the count of elements, or
    use the count of one side with the datatype of the other.
    """
    if x is None:
        yield None
        return
    if x.is_c_contiguous():  # first, because a few microseconds show beside a short message
        start, end = x.ptr, x.ptr + x.nbytes // blocks
        kind = _bytes(end - start)
    else:
        start, end, kind = _strided(x, blocks)
    kind.Commit()
    try:
        yield [MPI.memory.fromaddress(start, end - start), 1, kind]
    finally:
        kind.Free()


def _strided(x: Any, blocks: int) -> tuple[int, int, Any]:
    """Return the range of addresses and the datatype of an array, or of the first of its parts along axis 0."""
    first = 0 if blocks == 1 else 1
    shape, strides = x.shape[first:], x.strides[first:]
    start, end = byte_range(x.ptr, shape, strides, x.itemsize)
    kind = _datatype([*zip(shape, strides, strict=True)], x.itemsize)
    # The datatype starts at its lowest byte, because not all of Open MPI's algorithms accept others.
    if start < x.ptr:
        kind = _replaced(kind, kind.Create_hindexed([1], [x.ptr - start]))
    if first:
        kind = _replaced(kind, kind.Create_resized(0, x.strides[0]))
    return start, end, kind


def _datatype(axes: list[tuple[int, int]], itemsize: int) -> Any:
    """Return the datatype of elements with these lengths and strides in bytes, in index order."""
    run = itemsize  # bytes without a gap
    axes = [(length, step) for length, step in axes if length != 1]
    while axes and axes[-1][1] == run:
        run *= axes.pop()[0]
    kind = _bytes(run)
    for length, step in reversed(axes):
        kind = _replaced(kind, kind.Create_hvector(length, 1, step))
    return kind


def _bytes(count: int) -> Any:
    """Return the datatype of adjacent bytes."""
    if count < _MOST:
        return MPI.BYTE.Create_contiguous(count)
    part = MPI.BYTE.Create_contiguous(_PART)
    whole, rest = divmod(count, _PART)
    return _replaced(
        part, MPI.Datatype.Create_struct([whole, rest], [0, whole * _PART], [part, MPI.BYTE])
    )


def _replaced(old: Any, new: Any) -> Any:
    old.Free()
    return new


def _values(x: Any, count: int | None = None) -> Any:
    """Describe a contiguous array whose elements MPI computes with, or `count` of them for each process."""
    memory = MPI.memory.fromaddress(x.ptr, x.nbytes)
    return [memory, x.size if count is None else count, _TYPES[x.dtype.name]]


def _worded(transfer: Any) -> Any:
    """Word the errors of MPI that a transfer raises."""

    @wraps(transfer)
    def worded(*arguments: Any) -> None:
        try:
            transfer(*arguments)
        except MPI.Exception as e:
            truncated = e.Get_error_class() == MPI.ERR_TRUNCATE
            raise (errors.ShapeError if truncated else errors.ExchangeError)(
                where=f"collectives.{transfer.__name__}",
                expected="a message that fits" if truncated else "a transfer that MPI carries out",
                got=str(e), fix=_SAME,
            ) from e  # fmt: skip

    return worded


@_worded
def send(group: Any, x: Any, rank: int) -> None:
    """Send an array."""
    with _message(x) as message:
        group.Send(message, dest=rank)


@_worded
def recv(group: Any, out: Any, rank: int) -> None:
    """Receive an array; raise if the message has another size."""
    status = MPI.Status()
    with _message(out) as message:
        group.Recv(message, source=rank, status=status)
    if out.nbytes < _MOST and (count := status.Get_elements(MPI.BYTE)) != out.nbytes:
        raise errors.ShapeError(
            where="collectives.recv",
            expected=f"{out.nbytes} bytes from rank {rank}, for shape {out.shape} of {out.dtype}",
            got=f"{count} bytes", fix=_SAME,
        )  # fmt: skip


@_worded
def broadcast(group: Any, x: Any, root: int) -> None:
    """Broadcast a contiguous array, which MPI divides between the processes."""
    if x.nbytes < _MOST:
        group.Bcast([MPI.memory.fromaddress(x.ptr, x.nbytes), MPI.BYTE], root=root)
        return
    with _message(x) as message:
        group.Bcast(message, root=root)


@_worded
def all_reduce(group: Any, x: Any, out: Any, op: str) -> None:
    """Reduce into `out`, or in place."""
    x = x.reshape(-1)
    out = None if out is None else out.reshape(-1)
    for start in range(0, x.size, _PART):
        part = slice(start, start + _PART)
        if out is None:
            group.Allreduce(MPI.IN_PLACE, _values(x[part]), op=_OPS[op])
        else:
            group.Allreduce(_values(x[part]), _values(out[part]), op=_OPS[op])


@_worded
def reduce_scatter(group: Any, x: Any, out: Any, op: str) -> None:
    """Reduce, and keep one block."""
    if out.size >= _MOST:
        raise errors.ShapeError(
            where="collectives.reduce_scatter",
            expected="a block of less than 2**31 elements, because MPI counts them in 32 bits",
            got=f"shape {out.shape}", fix="reduce parts of the blocks, one after the other",
        )  # fmt: skip
    group.Reduce_scatter_block(_values(x, out.size), _values(out), op=_OPS[op])


@_worded
def all_gather(group: Any, x: Any, out: Any) -> None:
    """Gather in every process."""
    with _message(x) as sent, _message(out, group.Get_size()) as received:
        group.Allgather(sent, received)


@_worded
def gather(group: Any, x: Any, out: Any, root: int) -> None:
    """Gather in one process."""
    if out is not None:  # Open MPI would pack and unpack the root's own block between two datatypes
        _core.copy_into(out[root], x, where="collectives.gather", uncounted=True)
    with _message(x if out is None else None) as sent, _message(out, group.Get_size()) as received:
        group.Gather(sent or MPI.IN_PLACE, received, root=root)


@_worded
def scatter(group: Any, x: Any, out: Any, root: int) -> None:
    """Scatter from one process."""
    if x is not None:  # as in gather
        _core.copy_into(out, x[root], where="collectives.scatter", uncounted=True)
    with _message(x, group.Get_size()) as sent, _message(out if x is None else None) as received:
        group.Scatter(sent, received or MPI.IN_PLACE, root=root)


@_worded
def all_to_all(group: Any, x: Any, out: Any) -> None:
    """Exchange blocks."""
    size = group.Get_size()
    with _message(x, size) as sent, _message(out, size) as received:
        group.Alltoall(sent, received)
