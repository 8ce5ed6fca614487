"""One builder for each recurring kind of error, so that each has one wording; Python and the core call them.

A builder takes `where`, the call as the user wrote it, and the values at fault, and returns the error:
``raise error_messages.axis_out_of_range("squeeze", axis, ndim)``. The core passes the builder's name
and the values: ``fail_with("axis_out_of_range", where, {axis, ndim})``. Shapes and devices of the core
arrive as text, so builders only put values into sentences.

`where` of an operator in place is a statement, such as ``x += y``. It has no ``out=``: the builders for
``out`` then speak of its left operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar, cast

from gpuinterop.errors import (
    ArgumentTypeError,
    BoundsError,
    ContiguityError,
    DeviceMismatchError,
    DTypeError,
    ExchangeError,
    GpuInteropError,
    RangeError,
    ReadOnlyError,
    ShapeError,
    short_repr,
)

__all__ = [
    "axis_out_of_range",
    "cast_changes_values",
    "devices_differ",
    "dtype_of_class",
    "in_statement",
    "integer_out_of_range",
    "negative_exponent",
    "negative_length",
    "not_a_bool",
    "not_an_array",
    "not_an_int",
    "not_an_optional_bool",
    "not_ints",
    "not_one_of",
    "out_dtype_differs",
    "out_is_broadcast",
    "out_is_no_array",
    "out_on_other_device",
    "out_read_only",
    "out_shape_differs",
    "outs_overlap",
    "producer_fault",
    "read_only",
    "repeated_axis",
    "shapes_do_not_broadcast",
    "strides_of_partial_elements",
    "type_name",
    "unknown_keyword",
    "where_not_bool",
    "wrong_number_of_outs",
    "wrong_number_of_strides",
]


Builder = TypeVar("Builder", bound=Callable[..., Any])


def type_name(value: Any) -> str:
    """Return "an object of type module.Class", without the module of built-in classes."""
    cls = type(value)
    module = "" if cls.__module__ == "builtins" else f"{cls.__module__}."
    return f"an object of type {module}{cls.__qualname__}"


def _choices(values: Sequence[Any]) -> str:
    *first, last = [repr(value) for value in values]
    return f"{', '.join(first)} or {last}" if first else last


# ---- arguments -----------------------------------------------------------------------------------


def not_a_bool(where: str, name: str, value: Any) -> ArgumentTypeError:
    return ArgumentTypeError(where=where, expected=f"{name}=True or False",
                             got=f"{name}={short_repr(value)}",
                             fix=f"pass {name}=True, or omit {name}")  # fmt: skip


def not_an_optional_bool(where: str, name: str, value: Any) -> ArgumentTypeError:
    return ArgumentTypeError(where=where, expected=f"{name}=True, False or None",
                             got=f"{name}={short_repr(value)}",
                             fix=f"pass {name}=False to forbid a copy, or True to make one")  # fmt: skip


def not_an_int(where: str, name: str, value: Any, fix: str = "pass an int") -> ArgumentTypeError:
    return ArgumentTypeError(
        where=where, expected=f"an int as {name}", got=short_repr(value), fix=fix
    )


def not_ints(where: str, name: str, value: Any) -> ArgumentTypeError:
    return ArgumentTypeError(where=where, expected=f"an int or a sequence of ints as {name}",
                             got=short_repr(value), fix="pass a tuple of ints")  # fmt: skip


def not_one_of(
    where: str, name: str, choices: Sequence[Any], value: Any,
    fix: str = "pass one of these values", error: type[GpuInteropError] = ArgumentTypeError,
) -> GpuInteropError:  # fmt: skip
    return error(where=where, expected=f"{name}={_choices(choices)}",
                 got=f"{name}={short_repr(value)}", fix=fix)  # fmt: skip


def unknown_keyword(
    where: str, accepted: Sequence[str], name: str, value: Any
) -> ArgumentTypeError:
    """The error for a keyword that a function does not accept; suggests the closest one."""
    near = get_close_matches(name, accepted, 1)
    return ArgumentTypeError(where=where, expected=f"options among {', '.join(accepted)}",
                             got=f"{name}={short_repr(value)}",
                             fix=f"{f'write {near[0]}=...' if near else 'pass one of these'}, or omit it")  # fmt: skip


def not_an_array(
    where: str, name: str, value: Any, fix: str = "convert it: gpuinterop.asarray(x)"
) -> ArgumentTypeError:
    """The error where only a gpuinterop array will do."""
    return ArgumentTypeError(
        where=where, expected=f"a gpuinterop array as {name}", got=type_name(value), fix=fix
    )


# ---- shapes and axes -----------------------------------------------------------------------------


def axis_out_of_range(where: str, axis: Any, ndim: int) -> ShapeError:
    return ShapeError(
        where=where,
        expected=f"an axis from {-ndim} to {ndim - 1}" if ndim else "no axis, because the array is 0-d",
        got=f"axis {short_repr(axis)}",
        fix="count axes from 0, or from -1 backwards",
    )  # fmt: skip


def repeated_axis(where: str, axes: Any) -> ShapeError:
    return ShapeError(
        where=where, expected="each axis once", got=f"axes {axes}", fix="name each axis once"
    )


def negative_length(where: str, shape: Any) -> ShapeError:
    return ShapeError(where=where, expected="axis lengths of 0 or more", got=f"shape {shape}",
                      fix="pass lengths that are not negative")  # fmt: skip


def shapes_do_not_broadcast(where: str, *shapes: Any) -> ShapeError:
    return ShapeError(
        where=where, expected="shapes that broadcast", got=f"shapes {' and '.join(map(str, shapes))}",
        fix="reshape one: two axis lengths, counted from the right, must be equal or one of them 1",
    )  # fmt: skip


def wrong_number_of_strides(where: str, ndim: int, strides: Any) -> ShapeError:
    return ShapeError(where=where, expected=f"one stride for each axis, {ndim} in all",
                      got=f"strides {strides}", fix="pass one stride for each axis")  # fmt: skip


# ---- strides and memory --------------------------------------------------------------------------


def strides_of_partial_elements(where: str, itemsize: int, strides: Any) -> BoundsError:
    return BoundsError(where=where, expected=f"strides in multiples of the itemsize, {itemsize} bytes",
                       got=f"strides {strides} bytes", fix="pass byte strides of whole elements")  # fmt: skip


def read_only(where: str, name: str = "the array") -> ReadOnlyError:
    return ReadOnlyError(where=where, expected=f"{name} in writable memory", got="a read-only array",
                         fix="write to a copy: x.copy()")  # fmt: skip


def producer_fault(where: str, expected: str, got: str) -> ExchangeError:
    return ExchangeError(where=where, expected=expected, got=got,
                         fix="report it to the library that made the object")  # fmt: skip


# ---- dtypes --------------------------------------------------------------------------------------


def dtype_of_class(
    where: str, class_name: str, only: Any, dtype: Any, cast: str = "x.astype('{}')"
) -> DTypeError:
    return DTypeError(where=where, expected=f"dtype {only}, the only one of {class_name}",
                      got=f"dtype {dtype}",
                      fix=f"write the cast: {cast.format(only)}, or keep the dtype with GpuArray")  # fmt: skip


def where_not_bool(where: str, dtype: Any) -> DTypeError:
    return DTypeError(where=where, expected="where= of dtype bool", got=f"where= of dtype {dtype}",
                      fix="compare: where=x > 0")  # fmt: skip


def cast_changes_values(where: str, dtype: Any, got: str) -> DTypeError:
    """The error for values in a list that the dtype of the array would change."""
    return DTypeError(where=where, expected=f"arrays that {dtype} holds exactly", got=got,
                      fix=f"write the cast: a.astype('{dtype}'), or numpy.stack(list) to keep the dtype")  # fmt: skip


def integer_out_of_range(where: str, value: Any, dtype: Any, wider: Any) -> RangeError:
    fix = (
        f"cast the array to a wider dtype first: x.astype('{wider}')"
        if wider
        else "pass float('inf') for infinity"
    )
    return RangeError(where=where, expected=f"an integer that {dtype} holds",
                      got=value if isinstance(value, str) else short_repr(value), fix=fix)  # fmt: skip


def negative_exponent(where: str) -> BoundsError:
    return BoundsError(where=where, expected="an exponent of 0 or more for integers",
                       got="a negative exponent", fix="cast the base to a float: x.astype('float64')")  # fmt: skip


# ---- devices -------------------------------------------------------------------------------------


def devices_differ(where: str, device: Any, other: Any) -> DeviceMismatchError:
    return DeviceMismatchError(where=where, expected=f"operands on one device, {device} as the first",
                               got=f"an operand on {other}", fix=f'move it: x.to_device("{device}")')  # fmt: skip


# ---- out=, and the left operand of an operator in place --------------------------------------------


def in_statement(error: BaseException, statement: str) -> BaseException:
    """Return the error of an operator in place, such as ``x += y``, in the words of the statement."""
    if not isinstance(error, GpuInteropError):
        return error
    name, *values = getattr(error, "builder", ("",))
    if name:
        reworded: GpuInteropError = globals()[name](statement, *values)
        return reworded
    return type(error)(where=statement, expected=error.expected, got=error.got, fix=error.fix,
                       reason=error.reason, axis=error.axis)  # fmt: skip


def _rewordable(builder: Builder) -> Builder:
    """Keep the arguments of a builder in its errors, for `in_statement`."""

    @wraps(builder)
    def build(where: str, *values: Any) -> GpuInteropError:
        error: GpuInteropError = builder(where, *values)
        error.__dict__["builder"] = (builder.__name__, *values)
        return error

    return cast(Builder, build)


def _in_place(where: str) -> bool:
    return "= " in where


def _out(where: str) -> str:
    return "x" if _in_place(where) else "out="


def _without_out(where: str, otherwise: str) -> str:
    """The fix that needs no `out`: ``x = x + y`` for ``x += y``."""
    if not _in_place(where):
        return otherwise
    x, operator, y = where.split(" ")
    return f"write {x} = {x} {operator[:-1]} {y}"


@_rewordable
def out_is_no_array(where: str, value: str) -> ArgumentTypeError:
    return ArgumentTypeError(where=where, expected="a gpuinterop array as out=", got=f"out= as {value}",
                             fix="share its memory: out=gpuinterop.asarray(out), or omit out=")  # fmt: skip


@_rewordable
def out_shape_differs(where: str, shape: Any, got: Any) -> ShapeError:
    return ShapeError(
        where=where, expected=f"{_out(where)} with shape {shape}", got=f"{_out(where)} with shape {got}",
        fix=_without_out(where, f"pass an array of shape {shape}, or omit out="),
    )  # fmt: skip


@_rewordable
def out_dtype_differs(where: str, dtype: Any, got: Any) -> DTypeError:
    return DTypeError(
        where=where, expected=f"{_out(where)} with a dtype that {dtype} casts to",
        got=f"{_out(where)} with dtype {got}",
        fix=_without_out(where, f"pass an array of dtype {dtype}, or cast the result with astype"),
    )  # fmt: skip


@_rewordable
def out_on_other_device(where: str, device: Any, got: Any) -> DeviceMismatchError:
    return DeviceMismatchError(where=where, expected=f"{_out(where)} on {device}, with the operands",
                               got=f"{_out(where)} on {got}", fix=f'move it: out.to_device("{device}")')  # fmt: skip


@_rewordable
def out_read_only(where: str) -> ReadOnlyError:
    return ReadOnlyError(
        where=where, expected=f"{_out(where)} in writable memory", got="a read-only array",
        fix=_without_out(where, "pass a copy: out=x.copy()"),
    )  # fmt: skip


@_rewordable
def out_is_broadcast(where: str, layout: str) -> ContiguityError:
    return ContiguityError(
        where=where, expected=f"{_out(where)} whose elements do not overlap",
        got=f"{_out(where)} with {layout}", fix=_without_out(where, "pass a copy: out=x.copy()"),
    )  # fmt: skip


def outs_overlap(where: str) -> BoundsError:
    return BoundsError(where=where, expected="out= arrays that do not overlap",
                       got="two out= arrays that share memory", fix="pass a copy of one of them")  # fmt: skip


def wrong_number_of_outs(where: str, count: int, got: int) -> ShapeError:
    return ShapeError(where=where, expected=f"{count} out= arrays, one for each result",
                      got=str(got), fix="pass a tuple with one array or None for each result")  # fmt: skip
