"""Arguments for kernels that receive only addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from gpuinterop import _core, errors
from gpuinterop.devices.device_spec import fix_host_argument
from gpuinterop.errors.arguments import checks_arguments, require_bool

from . import engine, registry
from .foreign_memory import LEGACY, stream_number
from .plan import ArrayInfo, Plan, copy_needed, refuse, share
from .suggested_fixes import copy_line, move_line


@checks_arguments("copyif")
def pointer_arguments(
    args: Sequence[Any],
    *,
    copyif: bool = False,
    allow_readonly: bool = False,
    stream: Any = LEGACY,
    where: str = "pointer_arguments",
    wrap: Callable[[int], Any] | None = None,
    device: int | None = None,
) -> AbstractContextManager[list[Any]]:
    """Prepare arguments for a kernel that takes raw addresses, so that it reads arrays correctly.

    CuPy's RawKernel, PyCUDA and ctypes pass an array's address and drop its strides. Inside the
    block, `args` hold C-contiguous arrays on the GPU. A strided array raises, or with ``copyif=True`` is
    replaced by a contiguous copy that is written back at the end of the block: one copy for each
    array, however often it is passed; arrays that partly overlap others raise. The kernel must be
    launched on `stream`, an object of any library or a handle. The stream waits for the work that is
    queued on each array, later uses of the arrays wait for the stream, and it must live until the end of
    the block. Pass None if the launcher orders the streams itself. With `wrap`, arrays are replaced by
    ``wrap(address)``; with `device`, they must be on that GPU. `pycuda.kernel` and `cupy.kernel` wrap
    kernels of PyCUDA and CuPy in this way.
    """
    if isinstance(args, (str, _core.Array)) or not isinstance(args, Iterable):
        raise errors.ArgumentTypeError(
            where=where,
            expected="a sequence of kernel arguments",
            got=errors.type_name(args),
            fix="pass a tuple, even for one argument: (x,)",
        )
    copyif = require_bool(copyif, "copyif", where)
    allow_readonly = require_bool(allow_readonly, "allow_readonly", where)
    if stream is not None:
        stream = stream_number(stream)
    prepared = list(args)
    arrays = _usable_arrays(prepared, copyif, allow_readonly, device, where)
    written = [x for x in arrays if not x.array.readonly]
    copied = [x for x in written if x.usable is not x.array]
    # A copy is written back once, however often the array is passed.
    back = [x for i, x in enumerate(copied) if all(x.usable is not y.usable for y in copied[:i])]
    _require_apart(prepared, back, [x for x in written if x.usable is x.array], where)
    for position, _, usable in arrays:
        prepared[position] = usable if wrap is None else wrap(usable.ptr)
    changes: list[tuple[Any, ...]] = [
        (None, partial(_core.copy_into, x.array, x.usable, where=where), None) for x in back
    ]
    if stream is not None and arrays:
        # From the end of the block on the caller may destroy the stream.
        changes.append((None, partial(_core.end_use, arrays[0].usable, stream)))
        changes += [(partial(_core.used_on, x.usable, stream, where), None) for x in arrays]
    return _core.Block(*changes, result=prepared)


class _Argument(NamedTuple):
    """An array among the arguments, and the array whose address the kernel gets: the same, or a copy."""

    position: int
    array: Any
    usable: Any


def _usable_arrays(
    args: list[Any], copyif: bool, allow_readonly: bool, device: int | None, where: str
) -> list[_Argument]:
    arrays = []
    copies: dict[ArrayInfo, Any] = {}  # one for each memory, however often it is passed
    for position, arg in enumerate(args):
        array = _as_gpuinterop_array(arg)
        if array is None:
            continue
        info, spot = ArrayInfo.of(array), f"{where}, argument {position}"
        plan = _plan_pointer(info, registry.library_of(arg), allow_readonly, device, spot)
        plan = plan.permit(copyif)
        if plan.refused:
            raise plan.exception()
        if not allow_readonly:
            _core._prepare_write(array, where)
        usable = array
        if plan.copied:
            memory = replace(info, readonly=False)
            if memory not in copies:
                copies[memory] = array._copied(where)
            usable = copies[memory]
        arrays.append(_Argument(position, array, usable))
    return arrays


def _plan_pointer(
    info: ArrayInfo, library: str, allow_readonly: bool, device: int | None, where: str
) -> Plan:
    """Plan to give a kernel the address of an array, or of a copy that is written back."""
    wanted = "cuda" if device is None else f"cuda:{device}"
    if info.size and not info.device_name.startswith(wanted):
        return refuse(
            library, where, errors.DeviceMismatchError,
            f"an array on {'the GPU' if device is None else wanted}, which runs the kernel",
            f"an array on {info.device_name}", fix_host_argument(f"x = {move_line(library, wanted)}"),
        )  # fmt: skip
    if not info.c_contiguous:
        return copy_needed(
            library, where, info, errors.ContiguityError,
            "C-contiguous memory, because the kernel receives only an address",
            f"shape {info.shape} with strides {info.strides} (bytes)", f"pass {copy_line(library)}",
        )  # fmt: skip
    if info.readonly and not allow_readonly:
        return copy_needed(
            library, where, info, errors.ReadOnlyError,
            "writable memory, because a kernel may write to any argument", "a read-only array",
            "pass allow_readonly=True if the kernel only reads it",
        )  # fmt: skip
    return share(library, where)


def _require_apart(
    args: list[Any], back: list[_Argument], in_place: list[_Argument], where: str
) -> None:
    """Raise if writing a copy back would overwrite the kernel's results in another argument."""
    for i, (position, array, _) in enumerate(back):
        others = [*back[i + 1 :], *in_place]
        hit = [x.position for x in others if _core._may_overlap(array, x.array)]
        if _core._overlaps_itself(array):
            hit.append(position)
        if hit:
            raise errors.ContiguityError(
                where=f"{where}, argument {position}",
                expected="a strided array that does not overlap other arrays that the kernel may write to, "
                "because it is copied in and back out",
                got=f"memory that argument {hit[0]} also writes to",
                fix="pass a copy of the array that the kernel only reads: "
                + copy_line(registry.library_of(args[hit[0]])),
            )


def _as_gpuinterop_array(arg: Any) -> Any:
    entry = registry.find_backend(arg)
    # Host arrays are arguments by value in PyCUDA (scalars, structs), never addresses.
    by_value = entry is None or entry.name == "numpy" or "cuda" not in entry.devices
    if by_value and not isinstance(arg, _core.Array):
        return None
    return engine.import_array(arg, False, {})
