"""Arguments for kernels that are given nothing but addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gpuinterop import _core, errors
from gpuinterop.converters import engine, registry
from gpuinterop.converters.foreign_layout import LEGACY, new_copy, stream_number
from gpuinterop.converters.plan import ArrayInfo
from gpuinterop.converters.suggested_fixes import copy_line, move_line
from gpuinterop.option_values import require_bool, takes_copy_keyword
from gpuinterop.overlap import share_bytes

__all__ = ["pointer_arguments"]


@takes_copy_keyword("copyif")
@contextmanager
def pointer_arguments(
    args: Sequence[Any],
    *,
    copyif: bool = False,
    allow_readonly: bool = False,
    stream: Any = LEGACY,
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
        stream = stream_number(stream)
    args = list(args)
    prepared: list[Any] = []
    keep: list[Any] = []
    copies: dict[Any, Any] = {}  # one for each place, however often it is passed
    back: list[tuple[Any, Any, int]] = []
    written: list[tuple[Any, int]] = []
    for position, arg in enumerate(args):
        array = _as_gpuinterop_array(arg)
        if array is None:
            prepared.append(arg)
            continue
        spot = f"{where}, argument {position}"
        if array.device.type != "cuda" and array.size:
            raise errors.DeviceMismatchError(
                where=spot,
                expected="an array on the GPU, where the kernel runs",
                got=f"an array on {array.device}",
                fix=f"move it first: x = {move_line(registry.library_of(arg), 'cuda')}",
            )
        if device is not None and array.size and array.device.index != device:
            raise errors.DeviceMismatchError(
                where=spot,
                expected=f"an array on cuda:{device}, where the kernel runs",
                got=f"an array on {array.device}",
                fix=f"move it first: x = {move_line(registry.library_of(arg), f'cuda:{device}')}",
            )
        usable = array
        if not array.is_c_contiguous():
            if not copyif:
                info = ArrayInfo.of(array)
                raise errors.ContiguityError(
                    where=spot,
                    expected="C-contiguous memory, because the kernel is given only an address",
                    got=f"shape {info.shape} with strides {info.strides} (bytes)",
                    fix=f"pass {copy_line(registry.library_of(arg))}, or copyif=True to copy in and back out",
                )
            place = replace(ArrayInfo.of(array), readonly=False)
            if place not in copies:
                copies[place] = new_copy(array, where)
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
            usable = new_copy(array, where)
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
            if other is array or _overlap(array, other):
                foreign = [a for a in (args[position], args[at]) if not isinstance(a, _core.Array)]
                again = copy_line(registry.library_of(foreign[0] if foreign else array))
                raise errors.ContiguityError(
                    where=f"{where}, argument {position}",
                    expected="a strided array apart from all others that the kernel may write to, "
                    "because it is copied in and back out",
                    got=f"memory that argument {at} writes to as well"
                    if at != position
                    else "elements that share places",
                    fix=f"pass a copy of the one that the kernel only reads: {again}",
                )


def _overlap(a: Any, b: Any) -> bool:
    if not _core._may_overlap(a, b):
        return False
    # The core also says yes when it cannot tell quickly; a refusal needs to be sure.
    reaches = [(f.ptr, f.shape, f.strides, f.itemsize) for f in map(ArrayInfo.of, (a, b))]
    try:
        return share_bytes(reaches[0], reaches[1])
    except errors.BoundsError:  # too many strides to decide
        return True


def _as_gpuinterop_array(arg: Any) -> Any:
    if isinstance(arg, _core.Array):  # or shows the class of one, as a weak proxy does
        return engine.import_array(arg, False, {})
    entry = registry.find_backend(arg)
    # Host arrays are arguments by value in PyCUDA (scalars, structs), never addresses.
    if entry is None or entry.name == "numpy" or "cuda" not in entry.devices:
        return None
    return engine.import_array(arg, False, {})
