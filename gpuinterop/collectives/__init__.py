"""Send, gather and reduce any view of any library's array between processes, over the engine that the program uses.

The class of `group` chooses the engine: an mpi4py communicator, a process group of ``torch.distributed`` (Gloo,
NCCL), or a communicator of nccl4py (NCCL). Each function transfers the elements in index order, whatever the strides
are on either side, or raises. Arrays are shared, never converted by a copy. What the engine cannot read in place is
packed into a contiguous buffer: a copy, which `count_copies` counts and `no_copies` forbids before anything is sent.
MPI reads most views in place, as derived datatypes. On a GPU the engine waits for the work that is queued on an array,
and later work on the array waits for the engine. Every process of the group makes the same calls with arrays of the
same size and dtype.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from importlib import import_module
from itertools import zip_longest
from typing import Any

from gpuinterop import _core, errors
from gpuinterop.arrays import copy_tracking
from gpuinterop.arrays.core_view import class_for, core_view
from gpuinterop.converters import from_any
from gpuinterop.devices.foreign_handles import module_of
from gpuinterop.errors.messages import not_one_of
from gpuinterop.exchange.engine import require_array
from gpuinterop.exchange.sharing import shares_memory

from . import parts

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "broadcast", "gather", "recv", "reduce_scatter", "scatter",
    "send",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


# The package of a group's class: the file of this folder for that engine.
ENGINES = {"mpi4py": "mpi", "torch": "process_group", "nccl": "nccl"}
OPERATIONS = ("sum", "prod", "max", "min")


def send(x: Any, dest: int, *, group: Any) -> None:
    """Send `x` to the process of rank `dest`, which calls `recv`.

    Shares `x` with the engine; packs it first if the engine cannot read its strides. `x` may change as soon as the call
    returns, or on a GPU by work that is queued later.

    Examples
    --------
    >>> gi.collectives.send(x.T, 1, group=MPI.COMM_WORLD)  # doctest: +SKIP
    """
    call = _Call("send", group)
    array, rank = call.read(x), call.rank_of(dest)
    for part in call.sources(array):
        call.engine.send(group, part, rank)


def recv(out: Any, source: int, *, group: Any) -> None:
    """Receive what the process of rank `source` sends, into the array or view `out`.

    Examples
    --------
    >>> gi.collectives.recv(out[::2, ::-1], 0, group=MPI.COMM_WORLD)  # doctest: +SKIP
    """
    call = _Call("recv", group)
    rank = call.rank_of(source)
    for part in call.targets(out):
        call.engine.recv(group, part, rank)


def broadcast(x: Any, root: int = 0, *, group: Any) -> None:
    """Give every process the elements that `x` has on rank `root`. On other ranks `x` is written.

    Examples
    --------
    >>> gi.collectives.broadcast(x[:, ::2], 0, group=MPI.COMM_WORLD)  # doctest: +SKIP
    """
    call = _Call("broadcast", group)
    for part in (call.sources if call.rank_of(root) == call.rank else call.targets)(x):
        call.engine.broadcast(group, part, root)


def all_reduce(x: Any, out: Any = None, op: str = "sum", *, group: Any) -> None:
    """Reduce the arrays `x` of all processes, element by element, into `out` of each, or into `x`.

    `op` is "sum", "prod", "max" or "min". Engines reduce contiguous arrays, so other layouts are packed.

    Examples
    --------
    >>> gi.collectives.all_reduce(gradient, op="sum", group=MPI.COMM_WORLD)  # doctest: +SKIP
    """
    call = _Call("all_reduce", group, op)
    if out is None:
        for part in call.targets(x, reads=True):
            call.engine.all_reduce(group, part, None, op)
        return
    x, out = call.read(x), call.read(out)
    call.require_shape("out", out.shape, x.shape)
    # The sources come first: a source is packed before the earlier target is unpacked, which waits for the engine.
    # With `strict`, zip also resumes the targets after the last part, which unpacks it.
    for source, target in zip(call.sources(x), call.targets(out), strict=True):
        call.engine.all_reduce(group, source, target, op)


def reduce_scatter(x: Any, out: Any, op: str = "sum", *, group: Any) -> None:
    """Reduce the arrays `x` of all processes and leave block ``x[rank]`` of the result in `out`.

    ``x.shape`` is ``(size of the group, *out.shape)``. `op` is "sum", "prod", "max" or "min".

    Examples
    --------
    >>> gi.collectives.reduce_scatter(x, out, group=MPI.COMM_WORLD)  # doctest: +SKIP
    """
    call = _Call("reduce_scatter", group, op)
    source = call.source(x)
    for array in call.targets(out):
        call.require_shape("x", source.shape, (call.size, *array.shape))
        if array.size:
            call.engine.reduce_scatter(group, source, array, op)


def all_gather(x: Any, out: Any, *, group: Any) -> None:
    """Gather the arrays `x` of all processes: ``out[rank]`` is the array of that rank, in each process.

    ``out.shape`` is ``(size of the group, *x.shape)``.

    Examples
    --------
    >>> gi.collectives.all_gather(x[::2], out, group=MPI.COMM_WORLD)  # doctest: +SKIP
    """
    call = _Call("all_gather", group)
    source = call.source(x)
    for array in call.targets(out):
        call.require_shape("out", array.shape, (call.size, *source.shape))
        if array.size:
            call.engine.all_gather(group, source, array)


def gather(x: Any, out: Any = None, root: int = 0, *, group: Any) -> None:
    """Gather the arrays `x` of all processes in `out` on rank `root`: ``out[rank]`` is the array of that rank.

    Other processes pass no `out`.

    Examples
    --------
    >>> gi.collectives.gather(x, out if rank == 0 else None, 0, group=MPI.COMM_WORLD)  # doctest: +SKIP
    """
    call = _Call("gather", group)
    source = call.source(x)
    if call.rank_of(root) != call.rank:
        if source.size:
            call.engine.gather(group, source, None, root)
        return
    for array in call.targets(out):
        call.require_shape("out", array.shape, (call.size, *source.shape))
        if array.size:
            call.engine.gather(group, source, array, root)


def scatter(x: Any, out: Any, root: int = 0, *, group: Any) -> None:
    """Give each process its block of `x` on rank `root`: `out` becomes ``x[rank]``. Other processes pass ``x=None``.

    Examples
    --------
    >>> gi.collectives.scatter(x if rank == 0 else None, out, 0, group=MPI.COMM_WORLD)  # doctest: +SKIP
    """
    call = _Call("scatter", group)
    source = call.source(x) if call.rank_of(root) == call.rank else None
    for array in call.targets(out):
        if source is not None:
            call.require_shape("x", source.shape, (call.size, *array.shape))
        if array.size:
            call.engine.scatter(group, source, array, root)


def all_to_all(x: Any, out: Any, *, group: Any) -> None:
    """Send block ``x[rank]`` to each process; ``out[rank]`` becomes the block from that process.

    The first axis of `x` and of `out` has the length of the group.

    Examples
    --------
    >>> gi.collectives.all_to_all(x, out[:, ::-1], group=MPI.COMM_WORLD)  # doctest: +SKIP
    """
    call = _Call("all_to_all", group)
    source = call.source(x)
    for array in call.targets(out):
        call.require_shape("x", source.shape, (call.size, *source.shape[1:]))
        call.require_shape("out", array.shape, source.shape)
        if array.size:
            call.engine.all_to_all(group, source, array)


class _Call:
    """The engine of a call, and its arrays as that engine takes them."""

    def __init__(self, name: str, group: Any, op: str | None = None) -> None:
        self.name, self.group, self.op = name, group, op
        self.where = f"collectives.{name}"
        self.engine = _engine_of(group, self.where)
        self.size, self.rank = self.engine.place(group)
        if op is not None and op not in OPERATIONS:
            raise not_one_of(self.where, "op", OPERATIONS, op)
        self.dtype: Any = None  # of the call's first array
        self.beside: Any = None  # the array that the engine reads while it writes to another

    def source(self, x: Any) -> Any:
        """Return `x` as an array that the engine reads."""
        (array,) = self.sources(x)
        return array

    def sources(self, x: Any) -> Iterator[Any]:
        """Provide `x` to the engine, or a packed copy, or the parts of a long message, each packed in its turn."""
        array = self.beside = self.read(x)
        ranges = self._ranges(array)
        if self.engine.takes(self.name, array, self.name in ("scatter", "all_to_all")):
            yield from self._slices(array, ranges)
            return
        self._report_copy(array)
        if len(ranges) == 1:
            yield self._packed(array, True)
            return
        found = parts.cut(array, ranges)
        for part, following in zip_longest(found, found[1:]):
            part.pack()
            if following:
                following.follow(part)
            yield part.packed

    def targets(self, out: Any, reads: bool = False) -> Iterator[Any]:
        """Provide `out` to the engine, or a packed array, or the parts of a long message; then unpack each.

        Raise if it shares memory with what `sources` has provided.
        """
        array = self.read(out)
        self._require_writable(array)
        # Only shares_memory decides difficult views. It takes longer than a short message, so the core comes first.
        beside = self.beside
        if (
            beside is not None
            and _core._may_overlap(beside, array)
            and shares_memory(beside, array)
        ):
            raise errors.ContiguityError(
                where=self.where, expected="x and out that do not share memory, because the engine reads one "
                "while it writes to the other", got="two arrays over the same elements",
                fix="pass out=x.copy()" if self.op is None else "omit out= to reduce in place",
            )  # fmt: skip
        ranges = self._ranges(array)
        if self.engine.takes(self.name, array, self.name in ("all_gather", "gather", "all_to_all")):
            yield from self._slices(array, ranges)
            return
        # Report the copy now, so that one that is forbidden raises before the engine moves anything.
        self._report_copy(array)
        if len(ranges) == 1:
            packed = self._packed(array, reads)
            yield packed
            _core.copy_into(array, packed, where=self.where, uncounted=True)
            return
        found = parts.cut(array, ranges)
        for part in found if reads else ():
            part.pack()
        for part in found:
            yield part.packed
            part.unpack()
        for part in found:
            part.join()

    def _ranges(self, array: Any) -> list[tuple[int, int]]:
        """Return the parts of a message, as ranges of elements. Only an engine with streams gains from several."""
        if self.name not in parts.COLLECTIVES:
            return [(0, array.size)]
        gains = array.device.type == "cuda" and self.engine.HAS_STREAMS
        return parts.ranges(array.size, array.nbytes if gains else 0)

    @staticmethod
    def _slices(array: Any, ranges: list[tuple[int, int]]) -> list[Any]:
        """Return the parts of an array that the engine reads or writes in place."""
        if len(ranges) == 1:
            return [array]
        return [array.reshape(-1)[first:last] for first, last in ranges]

    def _report_copy(self, array: Any) -> None:
        kind = "copy" if array.device.type == "cuda" else "host"
        copy_tracking.report_copy(kind, array.nbytes, self.where)

    def _packed(self, array: Any, reads: bool) -> Any:
        """Return a contiguous array, with the elements of `array` if `reads`."""
        if reads:
            with copy_tracking.isolated_copy_count():
                packed = array._copied(self.where)
        else:
            dtype, (code, index) = array.dtype, array.__dlpack_device__()
            packed = _core.empty(class_for(dtype), array.shape, dtype, code, index)
        # Waits, if the engine has no streams.
        self.engine.require_device(self.group, packed, self.where)
        return packed

    def rank_of(self, value: Any) -> int:
        rank = operator.index(value) if hasattr(value, "__index__") else -1
        if 0 <= rank < self.size:
            return rank
        raise errors.BoundsError(
            where=self.where, expected=f"a rank from 0 to {self.size - 1}", got=errors.short_repr(value),
            fix="pass the rank of a process of this group",
        )  # fmt: skip

    def require_shape(self, name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
        if tuple(shape) != tuple(wanted):
            raise errors.ShapeError(
                where=self.where, expected=f"{name} of shape {tuple(wanted)} in a group of {self.size}",
                got=f"shape {tuple(shape)}", fix=f"pass {name} with that shape",
            )  # fmt: skip

    def read(self, x: Any) -> Any:
        """Return `x` as a gpuinterop array over the same memory."""
        if x is None:
            raise errors.ConversionTypeError(
                where=self.where, expected=f"an array on rank {self.rank}", got="None",
                fix="pass None only to gather and scatter, on ranks other than root",
            )  # fmt: skip
        array = core_view(from_any(x))
        require_array(array, self.where)
        dtype = array.dtype
        if self.op is not None and not self.engine.reduces(dtype.name, self.op):
            raise errors.DTypeError(
                where=self.where, expected=f"a dtype that {self.engine.NAME} reduces with op={self.op!r}",
                got=f"dtype {dtype}", fix='cast the array: x.astype("float32")',
            )  # fmt: skip
        if self.dtype is None:
            self.dtype = dtype
        if dtype != self.dtype:
            raise errors.DTypeError(
                where=self.where, expected=f"x and out of one dtype, {self.dtype}", got=f"dtype {dtype}",
                fix=f"cast one of them: x.astype({str(dtype)!r})",
            )  # fmt: skip
        self.engine.require_device(self.group, array, self.where)
        return array

    def _require_writable(self, array: Any) -> None:
        if array.readonly:
            raise errors.ReadOnlyError(
                where=self.where, expected="a writable array, because the engine writes to it",
                got="a read-only array", fix="pass a copy: x.copy()",
            )  # fmt: skip
        if array.is_c_contiguous():
            return
        reach = 0  # bytes that the axes of smaller strides span
        for step, length in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
            if length > 1 and array.size and step <= reach:
                raise errors.ContiguityError(
                    where=self.where, expected="a destination whose elements do not overlap",
                    got=f"shape {array.shape} with strides {array.strides} (bytes)",
                    fix="receive into a new array, and assign",
                )  # fmt: skip
            reach += step * (length - 1)


def _engine_of(group: Any, where: str) -> Any:
    """Return the module of the engine to which the class of a group belongs."""
    for cls in type(group).__mro__:
        name = ENGINES.get(module_of(cls).partition(".")[0])
        if name is not None:
            return import_module(f"{__name__}.{name}")
    raise errors.ArgumentTypeError(
        where=where, expected=f"group= of one of {', '.join(ENGINES)}", got=errors.short_repr(group),
        fix="pass group=mpi4py.MPI.COMM_WORLD or group=torch.distributed.group.WORLD",
    )  # fmt: skip
