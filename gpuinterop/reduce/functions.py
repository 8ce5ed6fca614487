"""Reductions: the launch plan that the core requests on the first use of a layout, functions and methods.

On "cpu" NumPy's loops accumulate floats of 16 and 32 bits in float64, so that both devices have the same
accuracy. On CUDA a LaunchPlan is made once for each layout, and the core keeps it.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays import dtypes
from gpuinterop.arrays.core_view import c_strides
from gpuinterop.arrays.numpy_views import as_scalar
from gpuinterop.arrays.scalars import scalars_to_array
from gpuinterop.elementwise import results
from gpuinterop.elementwise.calls import CALLS, FUNCTIONS, PREPARE, call
from gpuinterop.elementwise.examples import example_of
from gpuinterop.errors import (
    ArgumentTypeError,
    DTypeError,
    GpuInteropError,
    ShapeError,
    short_repr,
    type_name,
)

from .codegen import INPUT, OUTPUT, SCRATCH, Output, launches_for
from .host_program import cast_stages, selected_stages
from .launch import Operand
from .table import REDUCTIONS, Reduction, check_not_empty, full_strides, recipe_for, reduced_shape

if TYPE_CHECKING:
    from collections.abc import Sequence


Self = TypeVar("Self", bound="ReductionMethods")


def _plan(
    op: str, x: Any, axes: tuple[int, ...], shape: tuple[int, ...], result: Any, out: Any,
    ddof: float, cls: type,
) -> Any:  # fmt: skip
    row, device = REDUCTIONS[op], x.device.index
    launches: list[Any] = []
    scratch, shift_dtype = 0, None
    inputs = [(INPUT, 0, Operand.of(x))]
    if row.shifted:
        shift_dtype = x.dtype
        if x.dtype in (np.float64, np.complex128):
            # There is no wider type to absorb the cancellation, so a first kernel computes the mean and a
            # second one the squared differences from it.
            kept = reduced_shape(x.shape, axes)
            between = Operand(full_strides(c_strides(kept, 1), axes, x.ndim), x.itemsize)
            room = -(-math.prod(kept) * x.itemsize // 256) * 256
            launches, scratch = launches_for(
                device, recipe_for("mean", x.dtype, x.dtype), x.shape, axes, inputs,
                [(SCRATCH, 0, between)], scratch_at=room,
            )  # fmt: skip
            scratch += room
            inputs.append((SCRATCH, 0, between))
        else:
            # Differences from the first element along the axes, in float64.
            first = tuple(0 if i in axes else s for i, s in enumerate(x._strides))
            inputs.append((INPUT, 0, Operand.of(x, first)))
    strides = c_strides(shape, 1) if out is None else out._strides
    sink = Operand(full_strides(strides, axes, x.ndim), result.itemsize)
    more, scratch_used = launches_for(
        device, recipe_for(op, x.dtype, result, shift=shift_dtype), x.shape, axes, inputs,
        [(OUTPUT, 0, sink)], parameter=ddof, scratch_at=scratch,
    )  # fmt: skip
    output = Output(results.class_for(cls, result), dtypes.dtype_id(result), shape)
    return _core.make_plan(device, launches + more, scratch + scratch_used, [output])


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
    mask: Any,
) -> Any:
    """Return a launch plan for the core to keep, or the result if no plan can be kept."""
    row = REDUCTIONS[op]
    cls, x, user_out = type(x), results.plain(x), out
    if row.place_of and has_axis and not axes and x.ndim:
        raise ArgumentTypeError(
            where=op, expected="one or more axes, or axis=None", got="axis=()",
            fix=f"call x.{op}() for the position in the flattened array",
        )  # fmt: skip
    if dtype is not None:
        dtype = _read_dtype(dtype, x, cls, op)
    on_host = x.device.type == "cpu"
    source = x.dtype if dtype is None else dtype
    result = _result_dtype(op, source, dtype)
    shape = reduced_shape(x.shape, axes, keepdims)
    selects = initial is not None or mask is not None
    if not selects:
        check_not_empty(op, x.shape, axes)
    dtypes.refuse_half_complex(source, row.where)
    if out is not None:
        out = results.check_out(out, shape, result, x, op)
    if selects:
        value = _reduce_selected(op, x, axes, dtype, keepdims, ddof, initial, mask, out)
        output = results.class_for(cls, value.dtype)
        return _core.view(output, value) if out is None else user_out
    casts = not on_host and source != x.dtype
    if casts:
        x = x.astype(source)
    overlaps = out is not None and _core._may_overlap(x, out)
    plan: Any
    if on_host:
        ids = tuple(map(dtypes.dtype_id, (x.dtype, source, result)))
        output = Output(results.class_for(cls, result), ids[-1], shape)
        if row.place_of:
            finds_max = row.place_of == "max"
            plan = _core.make_place_reduction(ids[1], finds_max, x.shape, axes, output)
        else:
            count = math.prod(map(x.shape.__getitem__, axes))
            stages = cast_stages(op, *ids, count, ddof)
            plan = _core.make_host_reduction(stages, x.shape, axes, output)
    else:
        plan = _plan(op, x, axes, shape, result, None if overlaps else out, ddof, cls)
    if not overlaps and not casts:
        return plan
    value = plan.run((x,), None if overlaps or out is None else (out,))
    if overlaps:
        _core.copy_into(out, value, where=op)
    return value if out is None else user_out


@cache
def _result_dtype(
    op: str, source: np.dtype[Any], dtype: np.dtype[Any] | None = None
) -> np.dtype[Any]:
    row = REDUCTIONS[op]
    # A variance is computed in `dtype`, and its result is real.
    return np.dtype(row.result(source) if dtype is None or row.shifted else dtype)


def _read_dtype(dtype: Any, x: Any, cls: Any, op: str) -> Any:
    """Return the argument `dtype`, in which a reduction of `x`, of class `cls`, is computed."""
    dtype = dtypes.as_supported_dtype(dtype, op)
    averages = op in ("mean", "var", "std")
    # With a real dtype only the mean of the real parts would be subtracted.
    narrows = REDUCTIONS[op].shifted and x.dtype.kind == "c" and dtype.kind != "c"
    if dtype == np.bool_ or (dtype.kind in "iu" and averages) or narrows:
        raise DTypeError(
            where=op, expected=f"a dtype in which the {op} of {x.dtype} elements is computed",
            got=f"dtype={dtype}", fix=f"omit dtype=, or cast the array first: x.astype('{dtype}').{op}()",
        )  # fmt: skip
    if results.class_for(cls, dtype) is not cls:
        raise DTypeError(
            where=op, expected=f"{cls._only}, the only dtype of a {cls.__name__}", got=f"dtype={dtype}",
            fix=f"cast the array first: x.astype('{dtype}')",
        )  # fmt: skip
    return dtype


# ---- where= and initial= ------------------------------------------------------------------------------


def _reduce_selected(
    op: str, x: Any, axes: tuple[int, ...], dtype: Any, keepdims: bool, ddof: float, initial: Any,
    mask: Any, out: Any,
) -> Any:  # fmt: skip
    """Return the reduction of a GpuArray, computed in `dtype` from the initial value on."""
    row = REDUCTIONS[op]
    mask = None if mask is None else results.as_mask(mask, x, op)
    result = _result_dtype(op, x.dtype, dtype)
    start = None if initial is None else _number(initial, result, op)
    # Replaces the elements that are not selected.
    other = None if row.identity is not None or row.ufunc is None else start
    if mask is not None and row.needs_elements and other is None:
        raise ShapeError(
            where=op, expected="initial= with where=, because there is no identity",
            got="only where=", fix=f"pass initial=, the {op} of no elements",
        )  # fmt: skip
    if x.device.type == "cpu" and row.ufunc is not None:
        start = row.identity if start is None else start
        return _selected_on_host(op, x, mask, start, axes, dtype, keepdims, out)
    if row.needs_elements and not all(x.shape[i] for i in axes):
        shape = reduced_shape(x.shape, axes, keepdims)
        value = results.new_like(x, shape, x.dtype) if out is None else out
        value[...] = start
        return value
    # A call with out= is not cached.
    out_argument = {} if out is None else {"out": out}
    if start is not None and op in ("sum", "prod") and result.kind not in "iu":
        inputs = [x, start, *([] if mask is None else [mask])]
        compiled = call("from start", op, axes, keepdims, result, mask is not None)
        return compiled(*inputs, **out_argument)
    if mask is None:
        args = out_argument if dtype is None else {**out_argument, "dtype": dtype}
        value = getattr(x, op)(axis=axes, keepdims=keepdims, **args)
    else:
        compiled = call("selected reduction", op, axes, keepdims, x.dtype, dtype, ddof)
        if op == "mean":  # in place, because the sums and the counts may be many
            if out is not None:
                out_argument["out"] = out if out.itemsize > 2 else None, None
            total, count = compiled(x, mask, **out_argument)
            average = FUNCTIONS["divide"](total, count, out=total if out is None else out)
            return average.astype(result, copy=False)
        if row.shifted and not keepdims:
            if out is not None:
                out_argument["out"] = out.expand_dims(axes)
            return compiled(x, mask, **out_argument).squeeze(axes)
        value = compiled(x, mask, *[v for v in (other,) if v is not None], **out_argument)
    if start is None or row.ufunc is None:
        return value
    return FUNCTIONS[row.ufunc.__name__](value, start, out=value)


def _selected_on_host(
    op: str, x: Any, mask: Any, start: Any, axes: tuple[int, ...], dtype: Any, keepdims: bool, out: Any
) -> Any:  # fmt: skip
    """Return the reduction of the elements that the mask selects, joined to `start` one after the other."""
    inputs = [x] if mask is None else [x, mask]
    source = x.dtype if dtype is None else dtype
    result = _result_dtype(op, source, dtype)
    shape = reduced_shape(x.shape, axes, keepdims)
    type_ids = tuple(dtypes.dtype_id(i.dtype) for i in inputs)
    plan, accumulator = _plan_from_start(op, type_ids, x.shape, axes, source, result, shape)
    first = results.new_like(x, (), accumulator)
    first[...] = start
    overlaps = out is not None and any(_core._may_overlap(i, out) for i in inputs)
    value = plan.run((*inputs, first), None if overlaps or out is None else (out,))
    if overlaps:
        _core.copy_into(out, value, where=op)
    return value if out is None else out


@lru_cache(maxsize=256)
def _plan_from_start(
    op: str, type_ids: tuple[int, ...], shape: tuple[int, ...], axes: tuple[int, ...], source: np.dtype[Any],
    result: np.dtype[Any], extents: tuple[int, ...],
) -> tuple[Any, np.dtype[Any]]:  # fmt: skip
    """Return the plan of a reduction on "cpu" whose last operand is the start, and the dtype of that."""
    result_id = dtypes.dtype_id(result)
    stages = selected_stages(op, type_ids, dtypes.dtype_id(source), result_id)
    plan = _core.make_host_reduction(stages, shape, axes, Output(None, result_id, extents), True)
    return plan, dtypes.dtype_from_id(stages[0].accumulator)


def _number(initial: Any, dtype: Any, op: str) -> Any:
    """Return the initial value as a Python number of the result's kind, or as a 0-d array."""
    if isinstance(initial, _core.Array) and initial.ndim == 0:
        return results.plain(initial).astype(dtype)  # `out` may overlap it
    number = as_scalar(initial, op)
    if not isinstance(number, (bool, int, float, complex, np.generic)):
        raise ArgumentTypeError(
            where=op, expected="a number as initial=", got=type_name(initial),
            fix="combine an array with the result: gpuinterop.add(x.sum(0), y)",
        )  # fmt: skip
    return scalars_to_array(number, dtype, f"{op}, initial").item()


# ---- functions and methods ----------------------------------------------------------------------------


def reduce_sum(x: Any, mask: Sequence[int]) -> Any:
    """Return the sum over the axes whose entry in `mask` is true, without those axes.

    Name and argument are those of the Theano tutorials; a mask of zeros returns a copy.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.reduce_sum([[1, 2], [3, 4]], (1, 0)).tolist()
    [4.0, 6.0]
    """
    (x,) = results.as_operands("reduce_sum", x)
    ndim = results.plain(x).ndim
    try:
        axes = tuple(i for i, bit in enumerate(mask) if int(bit))
        entries = len(mask)
    except (TypeError, ValueError):
        entries = -1
    if entries != ndim:
        raise ArgumentTypeError(
            where="reduce_sum", expected=f"a sequence of {ndim} ints, one for each axis",
            got=short_repr(mask), fix="pass 1 for the axes to sum, 0 for the others",
        )  # fmt: skip
    return x.sum(axis=axes) if axes else x.copy()


def norm_plan_of(x: Any, ord: Any = 2, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the plan of norms of vectors of floats; None for other orders and dtypes, and for other `keepdims`."""
    floats = dtypes.LETTERS[dtypes.name_of(x.dtype)] in "fc"
    if ord not in (None, 2) or not floats or not isinstance(keepdims, bool):
        return None
    axes = tuple(_core.read_axes(axis, x.ndim, "norm"))
    has_axis = axis is not None
    made = _reduce("norm2", x, axes, has_axis, None, None, keepdims, 0.0, None, None)
    return made if isinstance(made, _core.Plan) else None


@_core.planned(norm_plan_of, "x ord axis keepdims", on_host=True)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the vector norm over `axis` (all axes by default): ord 2, 1, inf or -inf.

    A matrix counts as the vector of its elements, whatever `ord` is. `gpuinterop.linalg.norm` has the norms of
    matrices and the other orders. Squares are summed in float64, so squares of float32 values do not overflow.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.norm([3, 4]).item()
    5.0
    """
    (x,) = results.as_operands("norm", x)
    if ord is None or (isinstance(ord, str) and ord == "fro"):
        op = "norm2"
    elif isinstance(ord, (int, float, np.number)) and ord in (2, 1, np.inf, -np.inf):
        op = {2: "norm2", 1: "norm1", np.inf: "norm_max", -np.inf: "norm_min"}[float(ord)]
    else:
        raise ShapeError(
            where="norm", expected="ord 2, 1, inf or -inf", got=short_repr(ord),
            fix="call gpuinterop.linalg.norm(x, ord)",
        )  # fmt: skip
    return FUNCTIONS_OF_AXES[op](x, axis, keepdims)


class ReductionMethods(_core.Array):
    """The reductions of an array. `sum`, `prod`, `mean`, `min`, `max`, `argmin`,
    `argmax`, `any`, `all`, `var` and `std` are in the core and take NumPy's arguments.
    """

    __slots__ = ()

    def reduce_sum(self: Self, mask: Sequence[int]) -> Self:
        """Return the sum over the axes whose entry in `mask` is true, without those axes.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x.reduce_sum((0, 1)).tolist()
        [3.0, 7.0]
        """
        summed: Self = reduce_sum(self, mask)
        return summed

    def norm(self: Self, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Self:
        """Return the vector norm over `axis`; see `gpuinterop.norm`.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x[1].norm().item()
        5.0
        """
        length: Self = norm(self, ord, axis, keepdims)
        return length

    def ptp(self: Self, axis: Any = None, keepdims: bool = False) -> Self:
        """Return the difference of the maximum and the minimum over `axis`.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x.ptp(axis=0).tolist()
        [2.0, 2.0]
        """
        try:  # not by reraise_from, which would run six more Python functions in a cached call
            between: Self = self.max(axis, keepdims=keepdims) - self.min(axis, keepdims=keepdims)
        except GpuInteropError as error:
            raise error.changed(where="ptp") from None
        return between

    def trace(
        self: Self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None,
        out: Any = None,
    ) -> Self:  # fmt: skip
        """Return the sum of a diagonal.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x.trace().item()
        5.0
        """
        diagonal: Any = self.diagonal(offset, axis1, axis2)  # type: ignore[attr-defined]
        try:
            total: Self = diagonal.sum(-1, dtype, out)
        except GpuInteropError as error:
            raise error.changed(where="trace") from None
        return total


def _reduce_other(name: str, x: Any = None, *args: Any, **options: Any) -> Any:
    """Reduce an array of another library, or a placeholder of `fuse`."""
    if hasattr(type(x), "__gpuinterop_trace__"):
        return getattr(x, name)(*args, **options)
    (x,) = results.as_operands(name, x)
    return FUNCTIONS_OF_AXES[name](x, *args, **options)


PREPARE["reduction"] = _reduce
_DEFAULTS = {"*": "*", "ddof": "ddof=0", "keepdims": "keepdims=False", "where": "where=True"}


def _add(row: Reduction) -> Any:
    """Return the function of an entry of the table, which is a method too if it has a docstring."""
    words = [_DEFAULTS.get(word, f"{word}=None") for word in row.parameters.split()]
    doc = f"{', '.join(words)})\n--\n\n{row.doc}{example_of(row.name)}"
    return _core._add_reduction(row.name, row.where, row.parameters, doc, bool(row.doc))


# The functions, including those that are not methods: `where` is the name in their errors.
FUNCTIONS_OF_AXES: dict[str, Any] = {row.name: _add(row) for row in REDUCTIONS.values()}
CALLS.update({name: partial(_reduce_other, name) for name in REDUCTIONS})
FUNCTIONS_OF_AXES.update({
    alias: FUNCTIONS_OF_AXES[row.name] for row in REDUCTIONS.values() for alias in row.aliases
})  # fmt: skip


def __getattr__(name: str) -> Any:
    """Return gpuinterop.sum and other functions whose names this module uses for Python's functions."""
    try:
        return FUNCTIONS_OF_AXES[name]
    except KeyError:
        raise AttributeError(name) from None
