"""Long messages in parts, each with a stream of its own: packing one part overlaps with the transfer of another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from gpuinterop import _core
from gpuinterop.arrays import copy_tracking
from gpuinterop.arrays.core_view import class_for
from gpuinterop.devices.streams import current_stream

# A call of NCCL takes about 7 us longer than its bytes. Three more calls are 3 % of the time of 256 MiB over NVLink.
LONG = 256 << 20  # bytes
# The first parts are short because the transfer waits for them: the GPU may start it only after the second is packed.
ENDS = (0, 1, 2, 6, 8)  # eighths
COLLECTIVES = {"send", "recv", "broadcast", "all_reduce"}  # the others exchange blocks


def ranges(count: int, nbytes: int) -> list[tuple[int, int]]:
    """Return the parts of a message of `count` elements, as ranges of elements; none of an empty one.

    They depend only on what all processes of the group know. One may have a contiguous array, another a view.
    """
    if nbytes < LONG:
        return [(0, count)] * bool(count)
    return [*pairwise(sorted({count * end // ENDS[-1] for end in ENDS}))]


def views(x: Any, first: int, last: int) -> Iterator[Any]:
    """Return the views that have the elements `first` to `last` of an array, which is not 0-d, in index order."""
    row = x.size // x.shape[0]
    start, end = -(-first // row), last // row  # the whole rows
    if start > end:
        yield from views(x[end], first - end * row, last - end * row)
        return
    if first < start * row:
        yield from views(x[start - 1], first - (start - 1) * row, row)
    if start < end:
        yield x[start:end]
    if end * row < last:
        yield from views(x[end], 0, last - end * row)


class Part:
    """A range of an array's elements, and a contiguous array for them."""

    def __init__(self, x: Any, first: int, last: int) -> None:
        self._caller, self.stream = current_stream(x.device), _core.Stream(x.device)
        self.stream.wait(self._caller)
        dtype, (code, index) = x.dtype, x.__dlpack_device__()
        with self.stream:
            self.packed = _core.empty(class_for(dtype), (last - first,), dtype, code, index)
        self._pairs, start = [], 0  # of views, and their places in `packed`
        for view in views(x, first, last):
            end = start + view.size
            self._pairs.append((view, self.packed[start:end].reshape(view.shape)))
            start = end

    def pack(self) -> None:
        """Copy the elements to `packed`, beside the work of the caller's stream."""
        with self.stream, copy_tracking.isolated_copy_count():
            for view, place in self._pairs:
                place[...] = view

    def unpack(self) -> None:
        """Copy the elements from `packed`, after the work that is now on the caller's stream."""
        self.stream.wait(self._caller)
        with self.stream, copy_tracking.isolated_copy_count():
            for view, place in self._pairs:
                view[...] = place

    def join(self) -> None:
        """Let later work on the caller's stream follow the copies."""
        self._caller.wait(self.stream)
