"""Arguments for kernels that are given nothing but addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gpuinterop import _core, errors
from gpuinterop.converters import checks, registry
from gpuinterop.converters.incoming import from_any
from gpuinterop.converters.overlap import meet
from gpuinterop.converters.remedies import remedy_copy, remedy_move
from gpuinterop.option_values import require_bool

__all__ = ["pointer_arguments"]


@contextmanager
def pointer_arguments(
    args: Sequence[Any],
    *,
    copyif: bool = False,
    allow_readonly: bool = False,
    stream: Any = checks.LEGACY,
    where: str = "pointer_arguments",
    wrap: Callable[[int], Any] | None = None,
    device: int | None = None,
) -> Iterator[list[Any]]:
    """Give a kernel that takes raw addresses only what it will read correctly.

    CuPy's RawKernel, PyCUDA and ctypes pass an array's address and drop its strides. Inside the
    block, `args` hold C-contiguous arrays on the GPU; a strided one raises, or is replaced by a
    compact copy that is written back at the end of the block (``copyif=True``): one copy for each
    array, however often it is passed, and none of arrays that overlap others in part. The kernel must be
    launched on `stream`, an object of any library or a handle, which waits for what is queued on each
    array and has to live until the end of the block; what uses the arrays later waits for it. None
    stands for a launcher that sees to this itself. With `wrap`, arrays are replaced by
    ``wrap(address)``; with `device`, they must lie on that GPU. `pycuda.kernel` and `cupy.kernel` do
    all this for a kernel of theirs.
    """
    if isinstance(args, (str, _core.Array)) or not isinstance(args, Iterable):
        raise errors.ArgumentTypeError(
            where=where,
            expected="a sequence of kernel arguments",
            got=f"an object of type {type(args).__name__}",
            fix="pass a tuple, also for one argument: (x,)",
        )
    copyif = require_bool(copyif, "copyif", where)
    allow_readonly = require_bool(allow_readonly, "allow_readonly", where)
    if stream is not None:
        stream = checks.stream_number(stream)
    args = list(args)
    prepared: list[Any] = []
    keep: list[Any] = []
    copies: dict[Any, Any] = {}  # one for each place, however often it is passed
    back: list[tuple[Any, Any, int]] = []
    written: list[tuple[Any, int]] = []
    for position, arg in enumerate(args):
        array = _as_ours(arg)
        if array is None:
            prepared.append(arg)
            continue
        spot = f"{where}, argument {position}"
        if array.device.type != "cuda" and array.size:
            raise errors.DeviceMismatchError(
                where=spot,
                expected="an array on the GPU, where the kernel runs",
                got=f"an array on {array.device}",
                fix=f"move it first: x = {remedy_move(arg, 'cuda')}",
            )
        if device is not None and array.size and array.device.index != device:
            raise errors.DeviceMismatchError(
                where=spot,
                expected=f"an array on cuda:{device}, where the kernel runs",
                got=f"an array on {array.device}",
                fix=f"move it first: x = {remedy_move(arg, f'cuda:{device}')}",
            )
        usable = array
        if not array.is_c_contiguous():
            if not copyif:
                facts = checks.describe_array(array)
                raise errors.ContiguityError(
                    where=spot,
                    expected="C-contiguous memory, because the kernel is given only an address",
                    got=f"shape {facts.shape} with strides {facts.strides} (bytes)",
                    fix=f"pass {remedy_copy(arg)}, or copyif=True to copy in and back out",
                )
            place = replace(checks.describe_array(array), readonly=False)
            if place not in copies:
                copies[place] = checks.copied(array, where)
            usable = copies[place]
            if not array.readonly and all(usable is not other for _, other, _ in back):
                back.append((array, usable, position))
        elif array.readonly and not allow_readonly:
            if not copyif:
                raise errors.ReadOnlyError(
                    where=spot,
                    expected="writable memory, because a kernel may write to any argument",
                    got="a read-only array",
                    fix="pass allow_readonly=True if the kernel only reads it, or copyif=True",
                )
            usable = checks.copied(array, where)
        elif not array.readonly:
            written.append((array, position))
        keep.append(usable)
        prepared.append(usable if wrap is None else wrap(usable.ptr))
    _require_apart(args, back, written, where)
    if stream is None:
        yield prepared
    else:
        try:
            for usable in keep:
                _core.used_on(usable, stream, where)
            yield prepared
        finally:  # the stream is the caller's, who may end it from here on
            if keep:
                _core.used_up(keep[0], stream)
    for array, usable, _ in back:
        _core.copy_into(array, usable, where=where)


def _require_apart(
    args: Sequence[Any],
    back: list[tuple[Any, Any, int]],
    written: list[tuple[Any, int]],
    where: str,
) -> None:
    """Refuse copies whose way back would undo what the kernel wrote by another argument."""
    for i, (array, _, position) in enumerate(back):
        others = [(other, at) for other, _, at in back[i + 1 :]] + written
        if _core._overlaps_itself(array):
            others.append((array, position))
        for other, at in others:
            if other is array or _meet(array, other):
                foreign = [a for a in (args[position], args[at]) if not isinstance(a, _core.Array)]
                mend = remedy_copy(foreign[0] if foreign else array)  # serves either of the two
                raise errors.ContiguityError(
                    where=f"{where}, argument {position}",
                    expected="a strided array apart from all others that the kernel may write to, "
                    "because it is copied in and back out",
                    got=f"memory that argument {at} writes to as well"
                    if at != position
                    else "elements that share places",
                    fix=f"pass a copy of the one that the kernel only reads: {mend}",
                )


def _meet(a: Any, b: Any) -> bool:
    if not _core._may_overlap(a, b):
        return False
    # The core also says yes when it cannot tell quickly; a refusal needs to be sure.
    reaches = [(f.ptr, f.shape, f.strides, f.itemsize) for f in map(checks.describe_array, (a, b))]
    try:
        return meet(reaches[0], reaches[1])
    except errors.BoundsError:  # too involved to tell
        return True


def _as_ours(arg: Any) -> Any:
    if isinstance(arg, _core.Array):  # or shows the class of one, as a weak proxy does
        return from_any(arg)
    row = registry.find_backend(arg)
    # Host arrays are arguments by value in PyCUDA (scalars, structs), never addresses.
    if row is None or row.name == "numpy" or "cuda" not in row.devices:
        return None
    return row.take(arg)
