"""Long messages in parts, each with a stream of its own: packing one part overlaps with the transfer of another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from gpuinterop import _core
from gpuinterop.arrays import copy_tracking
from gpuinterop.arrays.core_view import class_for
from gpuinterop.devices.streams import current_stream

# A further call of NCCL costs every message about 7 us, which is 4 % of the time of 64 MiB over NVLink. It saves a view
# 17 us of packing or more at each end, so a message has one further part for each 64 MiB.
FURTHER = 64 << 20  # bytes
# The first and the last part of a long message are short, because the transfer waits until the first one is packed, and
# unpacking the last one follows the transfer. The GPU may start it only after the second is packed.
ENDS = ((0, 8), (0, 4, 8), (0, 2, 6, 8), (0, 1, 2, 6, 8))  # eighths, by the number of further parts
COLLECTIVES = {"send", "recv", "broadcast", "all_reduce"}  # the others exchange blocks
_WHERE = "gpuinterop.collectives"


def ranges(count: int, nbytes: int) -> list[tuple[int, int]]:
    """Return the parts of a message of `count` elements, as ranges of elements; none of an empty one.

    They depend only on what all processes of the group know. One may have a contiguous array, another a view.
    """
    ends = ENDS[min(nbytes // FURTHER, len(ENDS) - 1)]
    return [*pairwise(sorted({count * end // 8 for end in ends}))]


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

    def __init__(self, x: Any, ends: tuple[int, int], caller: Any) -> None:
        self.x, self.ends, self.caller, self.stream = x, ends, caller, _core.Stream(x.device)
        self.stream.wait(caller)
        # In memory that earlier calls have freed on the caller's stream; from now on of the part's stream.
        dtype, (code, index) = x.dtype, x.__dlpack_device__()
        self.packed = _core.empty(class_for(dtype), (ends[1] - ends[0],), dtype, code, index)
        _core.used_on(self.packed, self.stream.handle, _WHERE)

    def _pairs(self) -> Iterator[tuple[Any, Any]]:
        """Return views of the array, and their places in the contiguous one."""
        start = 0
        for view in views(self.x, *self.ends):
            end = start + view.size
            yield view, self.packed[start:end].reshape(view.shape)
            start = end

    def pack(self) -> None:
        """Copy the elements to `packed`: of the first part on the caller's stream, because its transfer follows."""
        with self.caller if self.ends[0] == 0 else self.stream, copy_tracking.isolated_copy_count():
            for view, place in self._pairs():
                place[...] = view

    def unpack(self) -> None:
        """Copy the elements from `packed`, after the work that is now on the caller's stream."""
        last = self.ends[1] == self.x.size  # follows its transfer on the caller's stream
        if not last:
            self.stream.wait(self.caller)
        with self.caller if last else self.stream, copy_tracking.isolated_copy_count():
            for view, place in self._pairs():
                view[...] = place

    def follow(self, packed: Part) -> None:
        """Pack this part after another one. Else it would follow the other's transfer, which is queued next."""
        _core.used_on(packed.x, self.stream.handle, _WHERE)

    def join(self) -> None:
        """Let later work on the caller's stream follow the copies."""
        _core.used_on(self.packed, self.caller.handle, _WHERE)
        _core.end_use(self.packed, self.caller.handle)


def cut(x: Any, found: list[tuple[int, int]]) -> list[Part]:
    """Return the parts of an array that have these ranges of its elements."""
    caller = current_stream(x.device)
    return [Part(x, ends, caller) for ends in found]
