"""One builder for each recurring kind of error, so that each has one wording; Python and the core call them.

A builder takes `where`, the call as the user wrote it, and the values at fault, and returns the error:
``raise messages.axis_out_of_range("squeeze", axis, ndim)``. The core passes the builder's name
and the values: ``fail_with("axis_out_of_range", where, {axis, ndim})``. Shapes, devices and objects of the
core arrive as text, so builders only put values into sentences.

`where` of an in-place operator is a statement, such as ``x += y``. It has no ``out=``, so the messages for
``out=`` then name the left operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpuinterop.errors import (
    ArgumentTypeError,
    ArrayIndexError,
    AxisError,
    BoundsError,
    ContextError,
    ContiguityError,
    CopyForbiddenError,
    DeviceError,
    DeviceMismatchError,
    DTypeError,
    ExchangeError,
    GpuInteropError,
    MissingNameError,
    ProtocolError,
    RangeError,
    ReadOnlyError,
    ScalarIndexError,
    ShapeError,
    StreamError,
    short_repr,
)


class Shown(str):
    """A value that the core gives as its repr."""

    __slots__ = ()


def from_core(builder: str, where: str, *values: Any) -> GpuInteropError:
    """Return the error of the builder of that name, for values of the core."""
    shown = (Shown(value) if isinstance(value, str) else value for value in values)
    error: GpuInteropError = globals()[builder](where, *shown)
    return error


def _repr(value: Any) -> str:
    return value if isinstance(value, Shown) else short_repr(value)


class Builder:
    """Makes the errors of one kind: ``builder(where, *values)``.

    `names` are the names of the values in the three sentences; a "value" is shown as its repr, any other as
    text. In the sentences `{out}` is ``out=``, or the left operand of a statement. `in_place` is the fix for
    a statement if it is another one; `{spelled}` in it is ``x = x + y`` for ``x += y``.
    """

    def __init__(
        self, error: type[GpuInteropError], names: str, *, expected: str, got: str, fix: str,
        in_place: str = "",
    ) -> None:  # fmt: skip
        self.error, self.names = error, names.split()
        self.expected, self.got, self.fix, self.in_place = expected, got, fix, in_place or fix

    def __call__(self, where: str, *values: Any, fix: str = "") -> GpuInteropError:
        words = {
            name: _repr(value) if name == "value" or isinstance(value, int) else str(value)
            for name, value in zip(self.names, values, strict=True)
        }
        statement = "= " in where
        words["out"] = "x" if statement else "out="
        if statement:
            x, operator, y = where.split(" ")
            words["spelled"] = f"{x} = {x} {operator[:-1]} {y}"
        fix = fix or (self.in_place if statement else self.fix)
        expected, got, fix = (part.format(**words) for part in (self.expected, self.got, fix))
        error = self.error(where=where, expected=expected, got=got, fix=fix)
        if "value" not in self.names:  # which may be any object; errors are pickled
            error.__dict__["builder"] = (self, values)  # for `in_statement`
        return error


def in_statement(error: BaseException, statement: str) -> BaseException:
    """Return the error of an in-place operator, such as ``x += y``, worded for the statement."""
    if not isinstance(error, GpuInteropError):
        return error
    builder, values = getattr(error, "builder", (None, ()))
    if builder is not None:
        reworded: GpuInteropError = builder(statement, *values)
        return reworded
    return error.changed(where=statement)


# ---- arguments -----------------------------------------------------------------------------------

not_a_bool = Builder(
    ArgumentTypeError, "name value", expected="{name}=True or False", got="{name}={value}",
    fix="pass {name}=True, or omit {name}",
)  # fmt: skip
not_an_optional_bool = Builder(
    ArgumentTypeError, "name value", expected="{name}=True, False or None", got="{name}={value}",
    fix="pass {name}=False to forbid a copy, or True to make one",
)  # fmt: skip
not_an_int = Builder(
    ArgumentTypeError, "name value", expected="an int as {name}", got="{value}", fix="pass an int"
)
not_ints = Builder(
    ArgumentTypeError, "name value", expected="an int or a sequence of ints as {name}", got="{value}",
    fix="pass an int, or a tuple of ints",
)  # fmt: skip
# The object is given by `type_name`.
not_an_array = Builder(
    ArgumentTypeError, "name object", expected="a gpuinterop array as {name}", got="{object}",
    fix="convert it: gpuinterop.asarray(x)",
)  # fmt: skip


def missing_name(where: str, name: str, fix: str) -> MissingNameError:
    return MissingNameError(
        where=where, expected="a name that gpuinterop has", got=name,
        fix=f"{fix}see docs/reference/familiar-names.md and docs/reference/missing-functions.md",
    )  # fmt: skip


def not_one_of(
    where: str, name: str, choices: Sequence[Any], value: Any,
    fix: str = "pass one of these values", error: type[GpuInteropError] = ArgumentTypeError,
) -> GpuInteropError:  # fmt: skip
    *first, last = [repr(choice) for choice in choices]
    listed = f"{', '.join(first)} or {last}" if first else last
    return error(where=where, expected=f"{name}={listed}", got=f"{name}={_repr(value)}", fix=fix)


def wrong_order(where: str, orders: str, value: Any) -> GpuInteropError:
    """Return the error for a wrong `order`; `orders` are the letters that are accepted."""
    return not_one_of(where, "order", orders, value, error=ShapeError)


# ---- shapes, axes and strides --------------------------------------------------------------------

too_many_dimensions = Builder(
    ShapeError, "most count", expected="at most {most} dimensions", got="{count} dimensions",
    fix="merge dimensions: x.reshape(shape)",
)  # fmt: skip
shape_too_large = Builder(
    ShapeError, "shape", expected="a shape whose bytes fit 63 bits", got="shape {shape}",
    fix="pass shorter axes",
)  # fmt: skip
inner_dimensions_differ = Builder(
    ShapeError, "a b n m", expected="equal inner dimensions",
    got="shapes {a} and {b}, inner dimensions {n} and {m}",
    fix="transpose (x.T), reshape or slice one operand",
)  # fmt: skip


def axis_out_of_range(where: str, axis: Any, ndim: int) -> AxisError:
    return AxisError(
        where=where,
        expected=f"an axis from {-ndim} to {ndim - 1}" if ndim else "no axis, because the array is 0-d",
        got=f"axis {short_repr(axis)}",
        fix="count axes from 0, or from -1 backwards" if ndim else "omit the axis, or reshape: x.reshape(1)",
    )  # fmt: skip


def refused_by_numpy(where: str, error: Exception) -> GpuInteropError:
    """Return gpuinterop's error for one that a function of NumPy raised, of the same built-in classes."""
    if isinstance(error, np.exceptions.AxisError) and error.axis is not None:
        return axis_out_of_range(where, error.axis, error.ndim or 0)
    classes = (
        (np.exceptions.AxisError, AxisError),
        (IndexError, ArrayIndexError),
        (TypeError, ArgumentTypeError),
    )
    cls = next((own for theirs, own in classes if isinstance(error, theirs)), ShapeError)
    return cls(
        where=where, expected="arguments that NumPy's function takes", got=str(error),
        fix="change the arguments, or cast or reshape the array",
    )  # fmt: skip


repeated_axis = Builder(
    ShapeError, "axes", expected="each axis once", got="axes {axes}", fix="name each axis once"
)
negative_length = Builder(
    ShapeError, "shape", expected="axis lengths of 0 or more", got="shape {shape}",
    fix="pass lengths that are not negative",
)  # fmt: skip
wrong_number_of_strides = Builder(
    ShapeError, "ndim strides", expected="one stride for each axis, {ndim} in all",
    got="strides {strides}", fix="pass one stride for each axis",
)  # fmt: skip
strides_of_partial_elements = Builder(
    BoundsError, "itemsize strides",
    expected="strides in multiples of the itemsize, {itemsize} bytes", got="strides {strides} bytes",
    fix="pass byte strides of whole elements",
)  # fmt: skip
undefined_for_dtypes = Builder(
    DTypeError, "name got advice", expected="dtypes for which {name} is defined", got="{got}",
    fix="{advice}",
)  # fmt: skip


def shapes_do_not_broadcast(where: str, *shapes: Any) -> ShapeError:
    return ShapeError(
        where=where, expected="shapes that broadcast", got=f"shapes {' and '.join(map(str, shapes))}",
        fix="reshape one operand: axis lengths, counted from the right, must be equal or 1",
    )  # fmt: skip


def too_many_indices(where: str, count: int, shape: Any) -> ArrayIndexError:
    scalar = str(shape) == "()"
    return (ScalarIndexError if scalar else ArrayIndexError)(
        where=where,
        expected="no index" if scalar else "at most one index for each axis",
        got=f"{'an index' if count == 1 else f'{count} indices'} for an array of shape {shape}",
        fix="read the value with x.item(), the array with x[...]" if scalar else "omit the extra indices",
    )  # fmt: skip


# The index is given as text; the axis is that of the indexed array.
def index_out_of_range(where: str, extent: int, index: str, axis: int) -> ArrayIndexError:
    other = {"x[key]": ", or read with x.take(indices, axis, mode='clip')"}
    other |= dict.fromkeys(("take", "put"), ", or pass mode='clip' or mode='wrap'")
    expected, fix = (
        f"indices from {-extent} to {extent - 1}",
        f"correct the indices{other.get(where, '')}",
    )
    if not extent:
        expected, fix = (
            "no index, because the axis is empty",
            "check x.shape first, or index another axis",
        )
    return ArrayIndexError(
        where=where, expected=expected, got=f"{index} on axis {axis}", fix=fix, axis=axis
    )


def misaligned(where: str, itemsize: int, address: str) -> ContiguityError:
    return ContiguityError(
        where=where, expected=f"memory aligned to the itemsize, {itemsize} bytes", got=f"address {address}",
        fix="make a copy: gpuinterop.asarray(x)", reason="alignment",
    )  # fmt: skip


# ---- dtypes, memory and devices ------------------------------------------------------------------


def dtype_of_class(
    where: str, class_name: str, only: Any, dtype: Any, cast: str = "x.astype('{}')"
) -> DTypeError:
    # A cast of complex numbers would lose the imaginary part.
    fix = "" if "complex" in str(dtype) else f"write the cast: {cast.format(only)}, or "
    return DTypeError(where=where, expected=f"dtype {only}, the only one of {class_name}",
                      got=f"dtype {dtype}", fix=f"{fix}keep the dtype with GpuArray")  # fmt: skip


def integer_out_of_range(where: str, value: Any, dtype: Any, wider: Any) -> RangeError:
    fix = (
        f"cast the array to a wider dtype first: x.astype('{wider}')"
        if wider
        else "pass float('inf') for infinity"
    )
    return RangeError(where=where, expected=f"an integer that {dtype} holds",
                      got=value if isinstance(value, str) else short_repr(value), fix=fix)  # fmt: skip


# For values in a list that the dtype of the array would change.
cast_changes_values = Builder(
    DTypeError, "dtype array", expected="arrays that {dtype} holds exactly", got="{array}",
    fix="write the cast: a.astype('{dtype}'), or numpy.stack(list) to keep the dtype",
)  # fmt: skip
not_held_exactly = Builder(
    DTypeError, "only dtype", got="{dtype}",
    expected="operands that {only} holds exactly, because one is a CudaNdarray",
    fix="cast the operand to {only}, or the CudaNdarray to the wider dtype: x.astype('float64')",
    in_place="cast the operand: y.astype('{only}')",
)  # fmt: skip
# The conversion is a call in the library of the array.
foreign_byte_order = Builder(
    DTypeError, "dtype conversion", expected="native byte order", got="dtype {dtype}",
    fix="convert the byte order: {conversion}",
)  # fmt: skip
negative_exponent = Builder(
    BoundsError, "", expected="an exponent of 0 or more for integers", got="a negative exponent",
    fix="cast the base to a float: x.astype('float64')",
)  # fmt: skip
read_only = Builder(
    ReadOnlyError, "", expected="the array in writable memory", got="a read-only array",
    fix="write to a copy: x.copy()",
)  # fmt: skip
devices_differ = Builder(
    DeviceMismatchError, "device other", expected="operands on {device}, the device of the first",
    got="an operand on {other}", fix='move it: x.to_device("{device}")',
)  # fmt: skip

memory_elsewhere = Builder(
    ExchangeError, "device", expected='memory on "cpu" or "cuda"', got="{device}",
    fix="copy it to the host in the producer",
)  # fmt: skip
copy_needed = Builder(
    CopyForbiddenError, "needs", expected="an object whose memory can be shared", got="{needs}",
    fix="pass copy=None to allow a copy",
)  # fmt: skip
copy_forbidden = Builder(
    CopyForbiddenError, "device wanted", got="{wanted}",
    expected="the array's own device, {device}, because copy=False", fix="omit copy, or pass copy=None",
)  # fmt: skip


def no_such_device(where: str, count: int, found: Any) -> DeviceError:
    return DeviceError(
        where=where, got=_repr(found),
        expected="device number 0, of the only CUDA device" if count == 1
        else f"a CUDA device number from 0 to {count - 1}",
        fix="gpuinterop.devices() lists the devices; CUDA_VISIBLE_DEVICES may hide devices",
    )  # fmt: skip


# What another library made wrongly.
protocol_broken = Builder(
    ProtocolError,
    "wanted value",
    expected="{wanted}",
    got="{value}",
    fix="report it to the producer",
)
wrong_device_reported = Builder(
    DeviceMismatchError, "device found", expected="memory on {device}, as the producer reports",
    got="memory on {found}", fix="report it to the producer",
)  # fmt: skip
foreign_context = Builder(
    ContextError, "subject found", expected="{subject} of a device's primary context",
    got="{found} of another context",
    fix="make the other library use the primary context (PyCUDA: import pycuda.autoprimaryctx instead of "
    "pycuda.autoinit)",
)  # fmt: skip
# An object that is not a stream is given by its type.
not_a_stream = Builder(
    StreamError, "kinds type", expected="a gpuinterop.Stream or {kinds}", got="{type}",
    fix="wrap it first: gpuinterop.devices.as_stream(stream)",
)  # fmt: skip
cuda_memory_without_driver = Builder(
    ExchangeError, "memory reason",
    expected="host memory, because there is no working CUDA driver", got="{memory}; {reason}",
    fix="copy it to the host in the producer",
)  # fmt: skip

# ---- out=, and the left operand of an in-place operator --------------------------------------------

# The object is given by `type_name`.
out_is_no_array = Builder(
    ArgumentTypeError, "object", expected="a gpuinterop array as out=", got="out= as {object}",
    fix="omit out=, and copy the result into it",
)  # fmt: skip
out_shape_differs = Builder(
    ShapeError, "shape found", expected="{out} with shape {shape}", got="{out} with shape {found}",
    fix="pass an array of shape {shape}, or omit out=", in_place="write {spelled}",
)  # fmt: skip
out_dtype_differs = Builder(
    DTypeError, "dtype found", expected="{out} with a dtype that {dtype} casts to",
    got="{out} with dtype {found}", in_place="write {spelled}",
    fix="pass an array of dtype {dtype}, or cast the result with astype",
)  # fmt: skip
out_on_other_device = Builder(
    DeviceMismatchError, "device found", expected="{out} on {device}, with the operands",
    got="{out} on {found}", fix='move it: out.to_device("{device}")',
)  # fmt: skip
out_read_only = Builder(
    ReadOnlyError, "", expected="{out} in writable memory", got="a read-only array",
    fix="pass a copy: out=x.copy()", in_place="write {spelled}",
)  # fmt: skip
out_is_broadcast = Builder(
    ContiguityError, "layout", expected="{out} whose elements do not overlap",
    got="{out} with {layout}", fix="pass a copy: out=x.copy()", in_place="write {spelled}",
)  # fmt: skip
outs_overlap = Builder(
    BoundsError, "", expected="out= arrays that do not overlap",
    got="two out= arrays that share memory", fix="pass a copy of one of them",
)  # fmt: skip
wrong_number_of_outs = Builder(
    ShapeError, "count found", expected="an out= array for each result, {count} in all", got="{found}",
    fix="pass a tuple with one array or None for each result",
)  # fmt: skip
