"""Communicators with the methods of nccl4py's, for the threads of one process, on memory of the fake driver.

As NCCL they take an address and a count, and know no strides. They work on the stream that they are given, so an array
whose work is on another stream arrives wrong.
"""

from ctypes import c_size_t, c_void_p
from threading import Barrier
from types import SimpleNamespace

import numpy as np

from doubles import driver

OPERATIONS = [np.add, np.multiply, np.maximum, np.minimum]


def communicators(size):
    """One for each rank, all on "cuda:0"."""
    barrier, given = Barrier(size, timeout=60), [None] * size
    return [Communicator(size, rank, barrier, given) for rank in range(size)]


class Flat:
    """The elements at the address of a buffer, as NCCL counts them, read and written on a stream."""

    def __init__(self, buffer, stream):
        self.dtype, self.count = np.dtype(str(buffer.dtype)), int(np.prod(buffer.shape))
        self.address, self.stream = buffer.ptr, stream

    def read(self):
        return driver.read(self.address, self.count, self.stream, dtype=self.dtype)

    def write(self, values):
        values = np.ascontiguousarray(values, self.dtype)
        assert values.size == self.count
        with driver.Current():
            driver.call("cuMemcpyHtoDAsync_v2", c_void_p(self.address), c_void_p(values.ctypes.data),
                        c_size_t(values.nbytes), c_void_p(self.stream))  # fmt: skip


class Communicator:
    __module__ = "nccl.core.communicator"

    def __init__(self, nranks, rank, barrier, given):
        self.nranks, self.rank, self._barrier, self._given = nranks, rank, barrier, given
        self.device = SimpleNamespace(device_id=0)

    def _exchange(self, stream, mine):
        """What all ranks give, after the work on their streams."""
        self._given[self.rank] = None if mine is None else Flat(mine, stream).read()
        self._barrier.wait()
        found = [*self._given]
        self._barrier.wait()
        return found

    def _blocks(self, values):
        return values.reshape(self.nranks, -1)

    def send(self, sendbuf, peer, *, stream=None):
        self._exchange(stream, sendbuf)

    def recv(self, recvbuf, peer, *, stream=None):
        Flat(recvbuf, stream).write(self._exchange(stream, None)[peer])

    def broadcast(self, sendbuf, recvbuf, root, *, stream=None, config=None):
        Flat(recvbuf, stream).write(self._exchange(stream, sendbuf)[root])

    def allreduce(self, sendbuf, recvbuf, op, *, stream=None, config=None):
        Flat(recvbuf, stream).write(OPERATIONS[op].reduce(self._exchange(stream, sendbuf)))

    def reduce_scatter(self, sendbuf, recvbuf, op, *, stream=None, config=None):
        total = OPERATIONS[op].reduce(self._exchange(stream, sendbuf))
        Flat(recvbuf, stream).write(self._blocks(total)[self.rank])

    def allgather(self, sendbuf, recvbuf, *, stream=None, config=None):
        Flat(recvbuf, stream).write(np.concatenate(self._exchange(stream, sendbuf)))

    def gather(self, sendbuf, recvbuf, root=None, *, stream=None, config=None):
        found = self._exchange(stream, sendbuf)
        if root == self.rank:
            Flat(recvbuf, stream).write(np.concatenate(found))

    def scatter(self, sendbuf, recvbuf, root, *, stream=None, config=None):
        found = self._exchange(stream, sendbuf if root == self.rank else None)
        Flat(recvbuf, stream).write(self._blocks(found[root])[self.rank])

    def alltoall(self, sendbuf, recvbuf, *, stream=None, config=None):
        found = self._exchange(stream, sendbuf)
        Flat(recvbuf, stream).write(
            np.concatenate([self._blocks(values)[self.rank] for values in found])
        )
