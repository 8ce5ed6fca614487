"""Launches of reduction kernels: compiled functions, parameters and operands of a plan."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any

from gpuinterop import _core
from gpuinterop.jit import EXACT, compile_source
from gpuinterop.ops import output_arrays
from gpuinterop.ops.reduction_codegen import (
    Recipe,
    accumulator_bytes,
    kernel_names,
    pack_params,
    pointer_offsets,
    render,
)
from gpuinterop.ops.reduction_plan import Operand, Plan

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = [
    "INPUT",
    "OUTPUT",
    "SCRATCH",
    "TICKETS",
    "functions_for",
    "launches_for",
    "multiprocessors",
    "new_as",
    "operand",
    "over",
]

INPUT, OUTPUT, SCRATCH, TICKETS = 0, 1, 2, 3  # ops::Slot

_functions: dict[tuple[int, int, bytes], list[_core.LoadedKernel]] = {}


def functions_for(device: int, recipe: Recipe, plan: Plan) -> list[_core.LoadedKernel]:
    """The kernels to launch, one or two, compiled and loaded once."""
    text, names = render(recipe, plan), kernel_names(plan)
    # A plan with parts to join and one without may have the same text.
    key = (device, len(names), hashlib.sha256(text.encode()).digest())
    found = _functions.get(key)
    if found is None:

        def loaded(name: str) -> _core.LoadedKernel:
            def compiled(fresh: bool) -> tuple[bytes, str]:
                arch, file = _core._compute_capability(device), f"{names[0]}.cu"
                return compile_source(text, arch, options=EXACT, name=file, fresh=fresh), name

            return _core._load_kernel(device, compiled, name)

        found = [loaded(name) for name in names]
        _functions[key] = found
    return found


def operand(x: Any, strides: Sequence[int] | None = None) -> Operand:
    """`x` as the planner sees it."""
    address = x.ptr
    alignment = min(address & -address, 16) if address else 16
    return Operand(tuple(x._strides if strides is None else strides), x.itemsize, alignment)


def launches_for(
    device: int,
    recipe: Recipe,
    plan: Plan,
    sources: Sequence[tuple[int, int, int]],
    sinks: Sequence[tuple[int, int, int]],
    *,
    parameter: float = 0.0,
    scratch_at: int = 0,
    extras: Sequence[tuple[int, int, int]] = (),
    extra_strides: Sequence[Sequence[int]] = (),
) -> tuple[list[Any], int]:
    """Launches of a plan for `_core.make_plan`, and the scratch bytes used from `scratch_at` on.

    `sources`, `sinks` and `extras` are (slot, index, byte shift) of each operand.
    """
    if plan.geometry.n_out == 0:
        return [], 0
    functions = functions_for(device, recipe, plan)
    params = pack_params(
        recipe, plan, count=plan.geometry.n_red, parameter=parameter, extra_strides=extra_strides
    )
    in_at, out_at, scratch_offset, extra_at = pointer_offsets(recipe, plan)
    patches = [
        (at, *place)
        for at, place in zip([*in_at, *out_at, *extra_at], [*sources, *sinks, *extras], strict=True)
    ]
    used = 0
    if plan.splits > 1:
        patches.append((scratch_offset, SCRATCH, 0, scratch_at))
        used = accumulator_bytes(recipe, wide=plan.wide) * plan.geometry.n_out * plan.splits
    if plan.one_launch:
        patches.append((scratch_offset + 8, TICKETS, 0, 0))
    grids = [plan.grid, (plan.finish_grid, 1)] if plan.finish_grid else [plan.grid]
    launches = [
        (function, grid, plan.threads, params, patches)
        for function, grid in zip(functions, grids, strict=True)
    ]
    return launches, used


def over(strides: Sequence[int], axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Strides of a result over the full shape: 0 along reduced axes."""
    rest = iter(strides)
    return tuple(0 if axis in axes else next(rest) for axis in range(ndim))


def new_as(cls: type, x: Any, shape: tuple[int, ...], dtype: Any, where: str = "empty") -> Any:
    """An unset array beside `x` of the class that an operand of class `cls` leads to."""
    made = output_arrays.class_for(cls, dtype)
    return _core.empty(made, shape, dtype, x.device.type_code, x.device.index, where=where)


@cache
def multiprocessors(device: int) -> int:
    """How many multiprocessors the device has."""
    return int(_core.cuda_device_properties(device)["multiProcessorCount"])
