"""Reductions: what the array methods ask for on the first use of a layout, and the functions.

On "cpu" NumPy computes, floats of 16 and 32 bits through float64 so that both devices are accurate
in the same sense. On CUDA a LaunchPlan is made once and kept by the core.
"""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core, dtypes
from gpuinterop.errors import ArgumentTypeError, DTypeError
from gpuinterop.host_views import as_numpy_view
from gpuinterop.layout import c_strides
from gpuinterop.ops import output_arrays
from gpuinterop.ops.core_callbacks import CALLS, PREPARE
from gpuinterop.ops.masked_reductions import reduce_selected
from gpuinterop.ops.reduction_launch import (
    INPUT,
    OUTPUT,
    SCRATCH,
    launches_for,
    multiprocessors,
    new_as,
    operand,
    over,
)
from gpuinterop.ops.reduction_plan import Operand, Plan, plan_reduction
from gpuinterop.ops.reduction_table import REDUCTIONS, check_not_empty, recipe_for, reduced_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["reduce_sum"]


def _full_strides(x: Any, axes: Sequence[int], out: Any, keepdims: bool) -> tuple[int, ...]:
    """The strides of `out`, or of a fresh result, over `x`'s shape."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    if out is None:
        own = c_strides([x.shape[axis] for axis in kept], 1)
    else:
        own = tuple(out._strides[axis] for axis in kept) if keepdims else tuple(out._strides)
    return over(own, axes, x.ndim)


def plan_for(
    op: str,
    x: Any,
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    result: Any,
    out: Any,
    ddof: float,
    keepdims: bool,
    cls: type,
) -> Any:
    device = x.device.index
    row = REDUCTIONS[op]
    sms = multiprocessors(device)
    strides_out = _full_strides(x, axes, out, keepdims)
    launches: list[Any] = []
    scratch = 0
    inputs = [operand(x)]
    shift_dtype = None
    sources = [(INPUT, 0, 0)]
    if row.shifted and x.dtype in (np.float64, np.complex128):
        # These have no wider type to hide cancellation in: the mean first, then squares around it.
        mean = recipe_for("mean", x.dtype, x.dtype)
        between = _full_strides(x, axes, None, False)
        plan = plan_reduction(x.shape, axes, inputs, [between], multiprocessors=sms)
        room = -(-plan.geometry.n_out * x.itemsize // 256) * 256
        launches, scratch = launches_for(
            device, mean, plan, _shifted(sources, plan, inputs),
            [(SCRATCH, 0, plan.geometry.out_shifts[0] * x.itemsize)], scratch_at=room,
        )  # fmt: skip
        scratch += room
        inputs.append(Operand(between, x.itemsize))
        sources.append((SCRATCH, 0, 0))
        shift_dtype = x.dtype
    elif row.shifted:
        first = tuple(0 if i in axes else s for i, s in enumerate(x._strides))
        inputs.append(operand(x, first))
        sources.append((INPUT, 0, 0))
        shift_dtype = x.dtype
    recipe = recipe_for(op, x.dtype, result, shift=shift_dtype)
    plan = plan_reduction(
        x.shape, axes, inputs, [strides_out], ordered=recipe.ordered, multiprocessors=sms
    )
    more, used = launches_for(
        device, recipe, plan, _shifted(sources, plan, inputs),
        [(OUTPUT, 0, plan.geometry.out_shifts[0] * result.itemsize)],
        parameter=ddof, scratch_at=scratch,
    )  # fmt: skip
    made = output_arrays.class_for(cls, result)
    return _core.make_plan(
        device, launches + more, scratch + used, [(made, dtypes.dtype_id(result), shape)]
    )


def _shifted(
    sources: Sequence[tuple[int, int, int]], plan: Plan, inputs: Sequence[Operand]
) -> list[tuple[int, int, int]]:
    places = zip(sources, plan.geometry.in_shifts, inputs, strict=True)
    return [(slot, i, shift + by * given.itemsize) for (slot, i, shift), by, given in places]


def _on_host(
    op: str, x: Any, axes: tuple[int, ...], flat: bool, keepdims: bool, out: Any, ddof: float
) -> None:
    row = REDUCTIONS[op]
    source, sink = as_numpy_view(x), as_numpy_view(out, written=True)
    arguments: dict[str, Any] = {"axis": axes}
    if row.is_place:
        arguments["axis"] = None if flat or not axes else -1
        source = _joined(source, axes) if arguments["axis"] else source
    if "ddof" in row.parameters:
        arguments["ddof"] = ddof
    if "dtype" in row.parameters:
        narrow = out.dtype.kind in "fV" and out.dtype.itemsize <= 4
        arguments["dtype"] = np.float64 if narrow else out.dtype
        if source.dtype.kind == "c":
            arguments["dtype"] = np.complex128
    if keepdims:
        sink = sink.reshape([n for i, n in enumerate(sink.shape) if i not in axes])

    def work() -> None:
        # A GPU cannot warn, and both devices behave alike.
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            sink[...] = row.numpy(source, **arguments)

    output_arrays.record_or_run(work)


def _joined(x: np.ndarray[Any, Any], axes: Sequence[int]) -> np.ndarray[Any, Any]:
    """`x` with several axes made one, the last, in C order."""
    kept = [i for i in range(x.ndim) if i not in axes]
    count = math.prod(x.shape[i] for i in axes)
    joined: np.ndarray[Any, Any] = x.transpose(*kept, *axes)
    return joined.reshape(*(x.shape[i] for i in kept), count)


def _reduce(
    op: str,
    x: Any,
    axes: tuple[int, ...],
    has_axis: bool,
    dtype: Any,
    out: Any,
    keepdims: bool,
    ddof: float,
    initial: Any,
    where: Any,
) -> Any:
    """Called by the core for what it has no plan for; gives a plan, or the result."""
    row = REDUCTIONS[op]
    flat = not has_axis
    cls, x, given_out = type(x), output_arrays.plain(x), out
    if row.is_place and has_axis and not axes and x.ndim:
        raise ArgumentTypeError(
            where=op, expected="an axis or more, or None for the flattened array", got="no axis",
            fix=f"x.{op}() for the place in the flattened array",
        )  # fmt: skip
    if dtype is not None:
        dtype = dtypes.as_supported_dtype(dtype, op)
        if dtype == np.bool_ or (dtype.kind in "iu" and op in ("mean", "var", "std")):
            raise DTypeError(
                where=op, expected=f"a dtype that holds a {op}", got=f"dtype={dtype}",
                fix="any or all for true and false; a float dtype for means, and then astype",
            )  # fmt: skip
        if row.shifted and x.dtype.kind == "c" and dtype.kind != "c":
            raise DTypeError(
                where=op, expected=f"a complex dtype to compute the {op} of complex numbers in",
                got=f"dtype={dtype}", fix=f"leave dtype out, x.{op}() is real; or cast to real parts first: "
                f"x.astype('{dtype}').{op}()",
            )  # fmt: skip
        if dtype != x.dtype:
            x = _cast(x, dtype, cls, op)
    dtypes.refuse_half_complex(x.dtype, row.where)
    # The dtype of a variance is what it is computed in: the result is real.
    if initial is not None or where is not None:
        chosen = axes if has_axis else None
        value = reduce_selected(op, x, chosen, dtype, keepdims, ddof, initial, where)
        if out is None:
            return _core.view(output_arrays.class_for(cls, value.dtype), value)
        _core.copy_into(
            output_arrays.check_out(out, value.shape, value.dtype, x, op), value, where=op
        )
        return given_out
    result = np.dtype(row.result(x.dtype) if dtype is None or row.shifted else dtype)
    shape = reduced_shape(x.shape, axes, keepdims)
    reduced = int(np.prod([x.shape[i] for i in axes], dtype=np.int64))
    check_not_empty(op, reduced, x.shape)
    if out is not None:
        out = output_arrays.check_out(out, shape, result, x, op)
    if x.device.type == "cpu":
        sink = new_as(cls, x, shape, result, op) if out is None else out
        if output_arrays.plain(sink).size:
            _on_host(op, x, axes, flat, keepdims, sink, ddof)
        return sink if out is None else given_out
    overlaps = out is not None and _core._may_overlap(x, out)
    plan = plan_for(op, x, axes, shape, result, None if overlaps else out, ddof, keepdims, cls)
    if not overlaps and dtype is None:
        return plan
    value = plan.run((x,), None if overlaps or out is None else (out,))
    if overlaps:
        _core.copy_into(out, value, where=op)
    return value if out is None else given_out


def _cast(x: Any, dtype: np.dtype[Any], cls: type, where: str) -> Any:
    only = getattr(cls, "_only", None)
    if only is not None and dtype != only:
        raise DTypeError(
            where=where, expected=f"{only}, the only dtype of a {cls.__name__}", got=f"dtype={dtype}",
            fix=f'gpuinterop.GpuArray(x, dtype="{dtype}") first',
        )  # fmt: skip
    return x.astype(dtype)


def reduce_sum(x: Any, mask: Sequence[int]) -> Any:
    """Return the sum over the axes whose entry in `mask` is true, without those axes.

    The documents' name and argument; a mask of zeros gives a copy.
    """
    (x,) = output_arrays.taken("reduce_sum", x)
    ndim = output_arrays.plain(x).ndim
    try:
        bits = [bool(int(m)) for m in mask]
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            where="reduce_sum", expected="a sequence of ints", got=repr(mask),
            fix="pass (1, 0) or the like",
        ) from error  # fmt: skip
    if len(bits) != ndim:
        raise ArgumentTypeError(
            where="reduce_sum", expected=f"one entry for each of {ndim} axes",
            got=f"{len(bits)} entries", fix="pass 1 for the axes to sum, 0 for the others",
        )  # fmt: skip
    axes = tuple(i for i, bit in enumerate(bits) if bit)
    return x.sum(axis=axes) if axes else x.copy()


def _reduce_other(name: str, x: Any = None, *args: Any, **options: Any) -> Any:
    """Reduce what is no gpuinterop array: an array of another library, or a traced one."""
    if not hasattr(type(x), "__gpuinterop_trace__"):
        (x,) = output_arrays.taken(name, x)
    return getattr(x, name)(*args, **options)


PREPARE["reduction"] = _reduce
# The functions, and those that are no methods: `where` is the name in their errors.
FUNCTIONS_OF_AXES: dict[str, Any] = {
    row.name: _core._add_reduction(row.name, row.where, row.parameters, row.doc)
    for row in REDUCTIONS.values()
}
CALLS.update({row.name: partial(_reduce_other, row.name) for row in REDUCTIONS.values() if row.doc})
