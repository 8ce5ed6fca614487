"""NumPy's functions under their names in gpuinterop, one row each.

A function here is NumPy's, called with gpuinterop arrays: gpuinterop computes it, or the array library of the device
does. Lists and arrays of other libraries become arrays first, as for every function of the package.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.elementwise import results
from gpuinterop.elementwise.calls import FUNCTIONS
from gpuinterop.errors import GpuInteropError
from gpuinterop.errors.messages import refused_by_numpy
from gpuinterop.fusion.fuse import fuse
from gpuinterop.reduce.softmax import rows_by_core, softmax_of_rows

from . import contractions

# name | its arguments that are arrays: the number of leading ones, "*" all, "[]" a list of them as the first, "+" those
# of einsum | what it returns, and in the next line an example = its value.
_TABLE = """
reshape | 1 | Return the elements in another shape: a view where the strides allow it, else a copy.
    reshape([[1, 2], [3, 4]], 4) = [1.0, 2.0, 3.0, 4.0]
ravel | 1 | Return the elements as a vector: a view where the strides allow it, else a copy.
    ravel([[1, 2], [3, 4]], "F") = [1.0, 3.0, 2.0, 4.0]
transpose | 1 | Return a view with the axes in another order, reversed by default.
    transpose([[1, 2], [3, 4]]) = [[1.0, 3.0], [2.0, 4.0]]
permute_dims | 1 | Return a view with the axes in another order; the standard's name of `transpose`.
    permute_dims([[1, 2]], (1, 0)) = [[1.0], [2.0]]
matrix_transpose | 1 | Return a view with the last two axes exchanged.
    matrix_transpose([[1, 2], [3, 4]]) = [[1.0, 3.0], [2.0, 4.0]]
swapaxes | 1 | Return a view with two axes exchanged.
    swapaxes([[1, 2]], 0, 1) = [[1.0], [2.0]]
moveaxis | 1 | Return a view with axes moved to other positions.
    moveaxis([[1, 2]], 0, -1) = [[1.0], [2.0]]
rollaxis | 1 | Return a view with an axis moved before another.
    rollaxis([[1, 2]], 1) = [[1.0], [2.0]]
squeeze | 1 | Return a view without axes of length 1.
    squeeze([[1, 2]]) = [1.0, 2.0]
expand_dims | 1 | Return a view with new axes of length 1.
    expand_dims([1, 2], 0) = [[1.0, 2.0]]
flip | 1 | Return a view with the elements in reverse order along axes, all by default.
    flip([1, 2, 3]) = [3.0, 2.0, 1.0]
fliplr | 1 | Return a view with the columns in reverse order.
    fliplr([[1, 2]]) = [[2.0, 1.0]]
flipud | 1 | Return a view with the rows in reverse order.
    flipud([[1], [2]]) = [[2.0], [1.0]]
rot90 | 1 | Return a view rotated by 90 degrees in the plane of two axes.
    rot90([[1, 2], [3, 4]]) = [[2.0, 4.0], [1.0, 3.0]]
atleast_1d | * | Return views with one axis or more.
    atleast_1d([1, 2]) = [1.0, 2.0]
atleast_2d | * | Return views with two axes or more.
    atleast_2d([1, 2]) = [[1.0, 2.0]]
atleast_3d | * | Return views with three axes or more.
    atleast_3d([1, 2]) = [[[1.0], [2.0]]]
diagonal | 1 | Return a view of a diagonal; its axis comes last.
    diagonal([[1, 2], [3, 4]]) = [1.0, 4.0]
real | 1 | Return the real parts: a view of complex numbers, the array itself of real ones.
    real([1, 2]) = [1.0, 2.0]
imag | 1 | Return the imaginary parts: a view of complex numbers, read-only zeros of real ones.
    imag([1, 2]) = [0.0, 0.0]
broadcast_arrays | * | Return views that are broadcast to a common shape.
    broadcast_arrays([1, 2], [[3], [4]])[1] = [[3.0, 3.0], [4.0, 4.0]]
unstack | 1 | Return views of the parts along an axis, as a tuple.
    unstack([[1, 2], [3, 4]])[1] = [3.0, 4.0]
array_split | 1 | Return views: parts along an axis, whose lengths may differ by one.
    array_split([1, 2, 3], 2)[1] = [3.0]
hsplit | 1 | Return views: parts along the second axis.
    hsplit([[1, 2]], 2)[1] = [[2.0]]
vsplit | 1 | Return views: parts along the first axis.
    vsplit([[1, 2], [3, 4]], 2)[1] = [[3.0, 4.0]]
dsplit | 1 | Return views: parts along the third axis.
    dsplit([[[1, 2]]], 2)[1] = [[[2.0]]]
vstack | [] | Return the arrays joined along the first axis; vectors count as rows.
    vstack([[1, 2], [3, 4]]) = [[1.0, 2.0], [3.0, 4.0]]
hstack | [] | Return the arrays joined along the second axis; vectors are joined to a vector.
    hstack([[1, 2], [3, 4]]) = [1.0, 2.0, 3.0, 4.0]
dstack | [] | Return the arrays joined along the third axis.
    dstack([[1, 2], [3, 4]]) = [[[1.0, 3.0], [2.0, 4.0]]]
column_stack | [] | Return the arrays joined along the second axis; vectors count as columns.
    column_stack([[1, 2], [3, 4]]) = [[1.0, 3.0], [2.0, 4.0]]
concat | [] | Return the arrays joined along an axis; the standard's name of `concatenate`.
    concat([[1, 2], [3]]) = [1.0, 2.0, 3.0]
append | 2 | Return the values joined behind an array, both flattened unless there is an axis.
    append([1, 2], [3]) = [1.0, 2.0, 3.0]
roll | 1 | Return the elements moved along axes, those beyond an end to the other end.
    roll([1, 2, 3], 1) = [3.0, 1.0, 2.0]
tile | 1 | Return the array repeated as a whole along its axes.
    tile([1, 2], 2) = [1.0, 2.0, 1.0, 2.0]
pad | 1 | Return the array with a border: a constant, or elements of the array.
    pad([1, 2], 1, "edge") = [1.0, 1.0, 2.0, 2.0]
meshgrid | * | Return the coordinates of a grid, one array for each axis.
    meshgrid([1, 2], [3, 4])[0] = [[1.0, 2.0], [1.0, 2.0]]
tril | 1 | Return a copy with zeros above the k-th diagonal.
    tril([[1, 2], [3, 4]]) = [[1.0, 0.0], [3.0, 4.0]]
triu | 1 | Return a copy with zeros below the k-th diagonal.
    triu([[1, 2], [3, 4]]) = [[1.0, 2.0], [0.0, 4.0]]
diag | 1 | Return a matrix with a vector as its diagonal, or a copy of a matrix's diagonal.
    diag([1, 2]) = [[1.0, 0.0], [0.0, 2.0]]
diff | 1 | Return the differences of neighbours along an axis.
    diff([1, 4, 9]) = [3.0, 5.0]
trace | 1 | Return the sum of a diagonal.
    trace([[1, 2], [3, 4]]) = 5.0
ptp | 1 | Return the difference of the maximum and the minimum over axes.
    ptp([3, 1, 5]) = 4.0
count_nonzero | 1 | Return how many elements are not zero, over axes.
    count_nonzero([[0, 7], [8, 9]], axis=1) = [1, 2]
average | 1 | Return the mean over axes, with weights.
    average([1, 4], weights=[3, 1]) = 1.75
nanmax | 1 | Return the maximum over axes of the elements that are not NaN.
    nanmax([1, float("nan")]) = 1.0
nanmin | 1 | Return the minimum over axes of the elements that are not NaN.
    nanmin([1, float("nan")]) = 1.0
nan_to_num | 1 | Return the array with numbers in place of NaN and infinities.
    nan_to_num([float("nan"), 1]) = [0.0, 1.0]
nextafter | 2 | Return the next number that the dtype has after each element, towards another.
    nextafter([1.0], [2.0]) = [1.0000001192092896]
interp | 3 | Return the values at points of a function that is linear between the points that are given.
    interp([1.5, 9], [1, 2], [10, 20]) = [15.0, 20.0]
choose | 1 | Return for each element of an array of indices the element of the choice with that index.
    choose(gpuinterop.asarray([0, 1], "int32"), [[1, 2], [3, 4]]) = [1, 4]
isclose | 2 | Return where two arrays are equal within tolerances.
    isclose([1, 2], [1, 3]) = [True, False]
outer | 2 | Return the products of every element of a vector with every one of another.
    outer([1, 2], [3, 4]) = [[3.0, 4.0], [6.0, 8.0]]
kron | 2 | Return the Kronecker product: every element of an array times all of another.
    kron([1, 2], [3, 4]) = [3.0, 4.0, 6.0, 8.0]
cross | 2 | Return the cross products of vectors of three elements.
    cross([1, 0, 0], [0, 1, 0]) = [0.0, 0.0, 1.0]
tensordot | 2 | Return the sum of products over pairs of axes, as one matrix product.
    tensordot([[1, 2], [3, 4]], [1, 10], 1) = [21.0, 43.0]
vecdot | 2 | Return the inner products of vectors along an axis, the first conjugated.
    vecdot([[1, 2], [3, 4]], [1, 10]) = [21.0, 43.0]
matvec | 2 | Return the products of matrices with vectors.
    matvec([[1, 2], [3, 4]], [1, 10]) = [21.0, 43.0]
vecmat | 2 | Return the products of vectors, conjugated, with matrices.
    vecmat([1, 10], [[1, 2], [3, 4]]) = [31.0, 42.0]
einsum | + | Return sums of products by subscripts, computed by matrix products.
    einsum("ij,j->i", [[1, 2], [3, 4]], [1, 10]) = [21.0, 43.0]
"""


def _named(name: str, arrays: str, summary: str, example: str) -> Callable[..., Any]:
    """Return NumPy's function, with arguments that are arrays, and errors, of gpuinterop."""
    function = getattr(np, name, None) or getattr(contractions, name)  # NumPy 2.1 lacks two
    try:
        signature = inspect.signature(function)
    except ValueError:  # of a ufunc
        signature = inspect.Signature([
            inspect.Parameter("x1", inspect.Parameter.POSITIONAL_ONLY),
            inspect.Parameter("x2", inspect.Parameter.POSITIONAL_ONLY),
            inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD),
        ])  # fmt: skip
    leading = int(arrays) if arrays.isdigit() else 1 if arrays == "[]" else 0
    names = [*signature.parameters][:leading]

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if arrays == "*" and args:
                args = tuple(results.as_operands(name, *args))
            elif arrays == "+":
                args = _of_einsum(name, args)
            else:
                args, kwargs = _converted(name, arrays, names, args, kwargs)
            return function(*args, **kwargs)
        except GpuInteropError as error:
            raise error.changed(where=name) from None
        except (TypeError, ValueError, IndexError) as error:
            raise refused_by_numpy(name, error) from error

    call.__name__ = call.__qualname__ = name
    call.__module__ = __name__
    call.__signature__ = signature  # type: ignore[attr-defined]
    text, value = example.rsplit(" = ", 1)
    call.__doc__ = (
        f"{summary}\n\nAs `numpy.{name}`, on the device of the arrays.\n\nExamples\n--------\n"
        f">>> import gpuinterop\n>>> gpuinterop.{text}.tolist()\n{value}\n"
    )
    return _core.numpy_function(function)(call)


def _converted(
    where: str, arrays: str, names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with an array for each one that should be."""
    given = [*args[: len(names)], *(kwargs[name] for name in names if name in kwargs)]
    if arrays == "[]":
        if not given or isinstance(given[0], _core.Array):
            return args, kwargs
        found: Any = [results.as_operands(where, *given[0])]
    else:
        if all([isinstance(x, _core.Array) for x in given]):
            return args, kwargs
        found = _operands(where, given)
    n = min(len(args), len(names))
    by_name = [name for name in names if name in kwargs]
    return (*found[:n], *args[n:]), {**kwargs, **dict(zip(by_name, found[n:], strict=True))}


def _of_einsum(where: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with arrays: all but the subscripts, or every second one before the last sublist."""
    if not args:
        return args
    if isinstance(args[0], str):
        return (args[0], *_operands(where, args[1:]))
    places = range(0, len(args) - len(args) % 2, 2)
    found = dict(zip(places, _operands(where, [args[i] for i in places]), strict=True))
    return tuple(found.get(i, x) for i, x in enumerate(args))


def _operands(where: str, given: Any) -> list[Any]:
    """Return the operands as arrays; a number beside an array stays one."""
    if all(map(_core.is_array, given)):
        return results.as_operands(where, *given)
    numbers = (bool, int, float, complex)
    arrays = iter(results.as_operands(where, *(x for x in given if not isinstance(x, numbers))))
    return [x if isinstance(x, numbers) else next(arrays) for x in given]


_lines = _TABLE.strip().splitlines()
_rows = [
    [*row.split(" | "), example.strip()] for row, example in zip(*[iter(_lines)] * 2, strict=True)
]
__all__ = [row[0] for row in _rows]
globals().update({row[0]: _named(*row) for row in _rows})


# ---- functions that NumPy lacks -------------------------------------------------------------------


def _softmax(x: Any, axis: Any) -> Any:
    e = FUNCTIONS["exp"](x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _log_softmax(x: Any, axis: Any) -> Any:
    distance = x - x.max(axis, keepdims=True)
    return distance - FUNCTIONS["log"](FUNCTIONS["exp"](distance).sum(axis, keepdims=True))


_fused_softmax = fuse(_softmax, static_argnames="axis")
_fused_log_softmax = fuse(_log_softmax, static_argnames="axis")


@rows_by_core(False)
def softmax(x: Any, axis: int | tuple[int, ...] | None = -1) -> Any:
    """Return exp(x), divided by its sum over axes, without overflow.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.softmax([1000, 1000]).tolist()
    [0.5, 0.5]
    """
    return _over(_fused_softmax, x, axis, "softmax")


@rows_by_core(True)
def log_softmax(x: Any, axis: int | tuple[int, ...] | None = -1) -> Any:
    """Return the logarithm of `softmax`, also where that rounds to 0.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.log_softmax([0, -1000]).tolist()
    [0.0, -1000.0]
    """
    return _over(_fused_log_softmax, x, axis, "log_softmax")


def _over(function: Any, x: Any, axis: Any, where: str) -> Any:
    (x,) = results.as_operands(where, x)
    try:
        axes = _core.read_axes(axis, x.ndim, where)
        found = softmax_of_rows(where == "log_softmax", x, axis)  # of what has become an array
        if found is not None:
            return found
        # One int is a constant that the core compares; a tuple makes Python look the function up.
        axis = axes if len(axes) != 1 else axes[0]
        if not x.size:
            return FUNCTIONS["exp"](x)
        return results.by_general_class(function, x, axis)
    except GpuInteropError as error:
        raise error.changed(where=where) from None
