"""Small matrices on CUDA: kernels that keep a matrix in the shared memory of a block, or a column in a thread.

They read operands of any layout, and compute a stack with one launch, where cuSOLVER needs copies in its order and
several launches, for some functions one after the other for each matrix.
"""

from __future__ import annotations

import struct
from typing import Any

from gpuinterop.arrays.dtypes import STORAGE
from gpuinterop.jit import kernel_text
from gpuinterop.jit.compiler import kernels_of
from gpuinterop.jit.texts import program

_MOST_BYTES = 44 << 10  # of shared memory for the elements; a block has 48 KB
_THREADS = 128  # of a block for at most this many bytes:
_FEW_BYTES = 8 << 10


def fits(height: int, width: int, itemsize: int) -> bool:
    """Return whether a matrix has room in shared memory."""
    return height * (width | 1) * itemsize <= _MOST_BYTES


def solve(a: Any, b: Any, x: Any, info: Any) -> None:
    """Fill x with the solutions of ``a @ x = b``, for stacks of one axis."""
    rows, columns = b.shape[-2:]
    params = struct.pack("<8q2q2i", *_stack(a), *_stack(b), x.ptr, info.ptr, rows, columns)
    _launch("solve", a, rows * (rows + columns | 1), params, [a, b, x, info])


def cholesky(a: Any, factor: Any, info: Any) -> None:
    """Fill `factor` with the lower factors of a stack of one axis."""
    rows = a.shape[-1]
    params = struct.pack("<4q2q2i", *_stack(a), factor.ptr, info.ptr, rows, 0)
    _launch("cholesky", a, rows * (rows | 1), params, [a, factor, info])


def reflectors(work: Any, tau: Any, q: Any) -> None:
    """Fill q with the products of the reflectors that a QR factorization left in `work`, column by column."""
    rows, columns = q.shape[-2:]
    count = q.size // (rows * columns)
    sizes = (count, rows, columns, work.shape[-2], tau.shape[-1])
    params = struct.pack("<4q4i", work.ptr, tau.ptr, q.ptr, *sizes)
    (kernel,) = kernels_of(
        work.device.index, ("gi_reflectors",), text, "reflectors", work.dtype.name
    )
    kernel.launch((-(-count * columns // _THREADS),), (_THREADS,), 0, [params], [work, tau, q])


def _stack(x: Any) -> tuple[int, ...]:
    return (x.ptr, *(step // x.itemsize for step in x.strides))


def _launch(name: str, a: Any, elements: int, params: bytes, arrays: list[Any]) -> None:
    """Start a block for each matrix, with as much shared memory as a kernel of few sizes has."""
    room = max(4096, min(1 << (elements * a.itemsize - 1).bit_length(), _MOST_BYTES))
    threads = _THREADS if room <= _FEW_BYTES else 2 * _THREADS
    of_text = (name, a.dtype.name, room // a.itemsize, threads)
    (kernel,) = kernels_of(a.device.index, (f"gi_{name}",), text, *of_text)
    kernel.launch((a.shape[0],), (threads,), 0, [params], arrays)


def text(name: str, dtype: str, room: int = 0, threads: int = _THREADS) -> str:
    """Return the program of a kernel."""
    parts = (kernel_text(f"linalg/{file}.cuh") for file in ("block", name))
    return program({"ROOM": room, "THREADS": threads}, f"typedef {STORAGE[dtype]} T;", *parts)
