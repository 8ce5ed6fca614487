"""Sums of products with NumPy's names: einsum, tensordot, kron, cross, vecdot and their relatives.

Views, the package's matrix products and fused operations compute them on both devices.
"""

from __future__ import annotations

import math
import operator
import string
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gpuinterop import _core
from gpuinterop.elementwise import results
from gpuinterop.elementwise.calls import CALLS, FUNCTIONS
from gpuinterop.elementwise.functions import cast_operands
from gpuinterop.elementwise.operands import as_operand
from gpuinterop.elementwise.promotion import common_dtype
from gpuinterop.errors import ShapeError, short_repr
from gpuinterop.fusion.fuse import fuse
from gpuinterop.product import functions as products


def _arrays(where: str, *values: Any) -> list[Any]:
    """Return the values as arrays on the device of the first gpuinterop array among them."""
    like = next(filter(_core.is_array, values), None)
    return [as_operand(x, like, where) for x in values]


def _first(x: Any, axes: Sequence[int]) -> Any:
    """Return the view of x with these axes first, the others behind them in their order."""
    return x.transpose((*axes, *(i for i in range(x.ndim) if i not in axes)))


# ---- einsum -------------------------------------------------------------------------------------


class _Labels(NamedTuple):
    """The subscripts of einsum as strings with one letter for each axis; an ellipsis has letters too."""

    inputs: tuple[str, ...]
    output: str
    sizes: dict[str, int]  # of the axes of each letter
    path: list[tuple[int, int]]


def _parts(given: tuple[Any, ...]) -> tuple[list[Any], tuple[str, ...], str | None]:
    """Return the operands, their subscripts and those of the result, None without an arrow."""
    if isinstance(given[0], str):
        inputs, arrow, output = given[0].replace(" ", "").partition("->")
        operands, names, last = list(given[1:]), inputs.split(","), output if arrow else None
    else:  # operand, sublist, operand, sublist, perhaps the sublist of the result
        operands = list(given[:-1:2]) if len(given) % 2 else list(given[::2])
        names = [_letters(entry) for entry in given[1::2]][: len(operands)]
        last = _letters(given[-1]) if len(given) % 2 else None
    if len(names) != len(operands):
        raise _wrong(f"subscripts for {len(operands)} operands", f"{len(names)} of them")
    return _arrays("numpy.einsum", *operands), tuple(names), last


@lru_cache(maxsize=1024)
def _labels(
    given: tuple[str, ...], output: str | None, shapes: tuple[tuple[int, ...], ...]
) -> _Labels:
    """Return the subscripts of operands of these shapes."""
    inputs = [*given]
    used = {*"".join(inputs), *(output or "")}
    free = [letter for letter in string.ascii_letters if letter not in used]
    lengths = [
        len(shape) - len(text.replace("...", ""))
        for text, shape in zip(inputs, shapes, strict=True)
    ]
    most = max((n for n, text in zip(lengths, inputs, strict=True) if "..." in text), default=0)
    letters = "".join(free[: max(most, 0)])
    for i, (n, text) in enumerate(zip(lengths, inputs, strict=True)):
        if n < 0 or (n and "..." not in text):
            raise _wrong(
                f"a subscript for each axis of operand {i}", f"{text!r} for shape {shapes[i]}"
            )
        inputs[i] = text.replace("...", letters[len(letters) - n :])
    if output is None:
        text = "".join(inputs)
        once = sorted({a for a in text if text.count(a) == 1 and a not in letters})
        output = letters + "".join(once)
    elif letters and "..." not in output:
        raise _wrong("... in the result, because operands have axes for it", f"->{output}")
    else:
        output = output.replace("...", letters)
    letters_only = all(a in string.ascii_letters for a in "".join((*inputs, output)))
    unknown = {*output} - {*"".join(inputs)}
    if not letters_only or unknown or len({*output}) < len(output):
        raise _wrong("letters as subscripts, and in the result each once and from an operand",
                     f"{','.join(inputs)}->{output}")  # fmt: skip
    return _Labels(tuple(inputs), output, _sizes(inputs, shapes), _path(shapes, inputs, output))


def _sizes(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for shape, text in zip(shapes, names, strict=True):
        for letter, n in zip(text, shape, strict=True):
            if sizes.setdefault(letter, n) != n and 1 not in (n, sizes[letter]):
                raise _wrong(
                    "axes of equal length for equal subscripts",
                    f"{letter} of lengths {sizes[letter]} and {n}",
                )
            sizes[letter] = max(n, sizes[letter]) if n and sizes[letter] else 0
    return sizes


def _letters(entry: Iterable[Any]) -> str:
    return "".join(
        "..." if i is Ellipsis else string.ascii_letters[operator.index(i)] for i in entry
    )


def _wrong(expected: str, got: str) -> ShapeError:
    return ShapeError(where="numpy.einsum", expected=expected, got=got,
                      fix='write for example numpy.einsum("ij,jk->ik", x, y)')  # fmt: skip


def _einsum_of(x: Any, y: Any, subscripts: Any, **options: Any) -> Any:
    """Return the function of two operands whose sums are those of one matrix product; None for other calls."""
    asked = {name for name, value in options.items() if value is not None} - {"optimize"}
    shapes = tuple(x.shape), tuple(y.shape)
    if asked or x.dtype != y.dtype or x.dtype == np.bool_ or 1 in (*shapes[0], *shapes[1]):
        return None
    _, given, last = _parts((subscripts, x, y))
    (left, right), output, _, _ = _labels(given, last, shapes)
    alone = {*left} ^ {*right}
    if len({*left}) < len(left) or len({*right}) < len(right) or not alone <= {*output}:
        return None
    how = _arrangement(left, right, frozenset(output), *shapes)
    if not how.sums:
        return None
    order = tuple([how.result.index(letter) for letter in output])
    orders = tuple(how.axes[0]), tuple(how.axes[1])
    return _matmul_of(x, y, orders, how.shapes, how.shape, order)


@_core.prepared(
    _einsum_of, "subscripts x y z * out optimize dtype order casting", "x y", on_gpu=True
)
def einsum(
    *operands: Any, out: Any = None, optimize: Any = False, dtype: Any = None, order: str = "K",
    casting: Any = "safe",
) -> Any:  # fmt: skip
    """Return numpy.einsum of arrays: products of two operands at a time, in an order that keeps them small."""
    arrays, given, last = _parts(operands)
    names, output, sizes, path = _labels(given, last, tuple([tuple(x.shape) for x in arrays]))
    # All operands have the dtype of the result first, because a product of two of them may overflow theirs.
    # An operand of one dtype, such as CudaNdarray, decides itself what it is multiplied with.
    if dtype is not None:
        arrays = cast_operands("numpy.einsum", arrays, dtype, casting)
    elif not any(getattr(type(x), "_only", None) for x in arrays):
        wanted = common_dtype([x.dtype for x in arrays], "numpy.einsum")
        arrays = [x.astype(wanted, copy=False) for x in arrays]
    if any(x.dtype == np.bool_ for x in arrays):
        raise TypeError("an operand of dtype bool")
    parts = [_diagonal(x, text, sizes) for x, text in zip(arrays, names, strict=True)]
    for pair in path:
        first, second = pair
        rest = [parts[i] for i in range(len(parts)) if i not in pair]
        needed = {*output, *"".join(text for _, text in rest)}
        parts = [*rest, _product(parts[first], parts[second], needed)]
    x, text = _summed(*parts[0], {*output})
    x = x.transpose([text.index(letter) for letter in output if letter in text])
    missing = [i for i, letter in enumerate(output) if letter not in text]
    if missing:  # axes of length 1 in every operand
        x = x.expand_dims(tuple(missing))
    if out is None:
        return x
    results.check_out(out, x.shape, out.dtype, x, "numpy.einsum")
    if not np.can_cast(x.dtype, out.dtype, casting):
        raise TypeError(f"out= of dtype {out.dtype} for a result of dtype {x.dtype}")
    out[...] = x
    return out


def _path(
    shapes: Sequence[tuple[int, ...]], names: Sequence[str], output: str
) -> list[tuple[int, int]]:
    """Return which two of the remaining operands to multiply, step by step; products go to the end."""
    if len(shapes) < 3:
        return [(0, 1)] * (len(shapes) - 1)
    stand_ins = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    steps = np.einsum_path(f"{','.join(names)}->{output}", *stand_ins, optimize="greedy")[0][1:]
    path: list[tuple[int, int]] = []
    for step in steps:  # of three operands or more, where none is better than another
        path.append((step[0], step[1]))
        left = len(shapes) - len(path)
        for _ in step[2:]:
            path.append((left - 2, left - 1))
            left -= 1
    return path


def _diagonal(x: Any, text: str, sizes: dict[str, int]) -> tuple[Any, str]:
    """Return the operand with one axis for each letter, and without axes of length 1 that broadcast."""
    if len({*text}) == len(text) and 1 not in x.shape:
        return x, text
    for letter in sorted({a for a in text if text.count(a) > 1}):
        while text.count(letter) > 1:
            i = text.index(letter)
            j = text.index(letter, i + 1)
            if x.shape[i] != x.shape[j]:
                raise _wrong("a diagonal of axes of equal length", f"shape {x.shape} for {text!r}")
            x = x.diagonal(0, i, j)
            text = text[:i] + text[i + 1 : j] + text[j + 1 :] + letter
    ones = [i for i, letter in enumerate(text) if x.shape[i] == 1]
    if not ones or all(sizes[text[i]] == 1 for i in ones):
        return x, text
    drop = tuple(i for i in ones if sizes[text[i]] != 1)
    return x.squeeze(drop), "".join(a for i, a in enumerate(text) if i not in drop)


def _summed(x: Any, text: str, needed: set[str]) -> tuple[Any, str]:
    """Return the operand summed over the axes that no other part of the call has."""
    if needed.issuperset(text):
        return x, text
    axes = tuple(i for i, letter in enumerate(text) if letter not in needed)
    total = x.sum(axes, dtype=x.dtype)
    return total, "".join(letter for letter in text if letter in needed)


def _product(a: tuple[Any, str], b: tuple[Any, str], needed: set[str]) -> tuple[Any, str]:
    """Return the product of two operands, summed over the letters that are not needed."""
    x, left = _summed(*a, needed | {*b[1]})
    y, right = _summed(*b, needed | {*a[1]})
    how = _arrangement(left, right, frozenset(needed), tuple(x.shape), tuple(y.shape))
    x = x.transpose(how.axes[0]).reshape(how.shapes[0])
    y = y.transpose(how.axes[1]).reshape(how.shapes[1])
    if not how.sums:  # every element with every other
        return FUNCTIONS["multiply"](x, y), how.result
    return products.matmul(x, y).reshape(how.shape), how.result


class _Arrangement(NamedTuple):
    """How two operands become stacks of matrices, or arrays that broadcast, and what their product is."""

    axes: tuple[list[int], list[int]]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    sums: bool
    shape: tuple[int, ...]
    result: str


@lru_cache(maxsize=1024)
def _arrangement(
    left: str, right: str, needed: frozenset[str], of_x: tuple[int, ...], of_y: tuple[int, ...]
) -> _Arrangement:
    both = [letter for letter in left if letter in right]
    kept, summed = [c for c in both if c in needed], [c for c in both if c not in needed]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    first = [left.index(c) for c in (*kept, *rows, *summed)]
    second = [right.index(c) for c in (*kept, *summed, *columns)]
    stack = tuple([of_x[left.index(c)] for c in kept])
    m = tuple([of_x[left.index(c)] for c in rows])
    n = tuple([of_y[right.index(c)] for c in columns])
    if summed:
        inner = math.prod([of_y[right.index(c)] for c in summed])
        shapes = (*stack, math.prod(m), inner), (*stack, inner, math.prod(n))
    else:
        shapes = (*stack, *m, *[1] * len(n)), (*stack, *[1] * len(m), *n)
    result = "".join((*kept, *rows, *columns))
    return _Arrangement((first, second), shapes, bool(summed), (*stack, *m, *n), result)


def _matmul_of(
    a: Any, b: Any, orders: Any, shapes: Any, result: tuple[int, ...], order: Any = None
) -> Callable[[Any, Any], Any]:
    """Return the function that multiplies `a` and `b` with their axes in `orders`, as stacks of matrices of `shapes`.

    The product gets the shape `result`, and then its axes another order.
    """
    same = [
        how == (*range(x.ndim),) and shape == tuple(x.shape)
        for x, how, shape in zip((a, b), orders, shapes, strict=True)
    ]
    reshaped = result != (*shapes[0][:-1], shapes[1][-1])
    ordered = order is not None and order != (*range(len(order)),)
    if all(same) and not reshaped and not ordered:
        return products.matmul  # type: ignore[no-any-return]

    def call(a: Any, b: Any) -> Any:
        x = a if same[0] else a.transpose(orders[0]).reshape(shapes[0])
        y = b if same[1] else b.transpose(orders[1]).reshape(shapes[1])
        found = products.matmul(x, y)
        found = found.reshape(result) if reshaped else found
        return found.transpose(order) if ordered else found

    return call


# ---- other products -----------------------------------------------------------------------------


def _tensordot_of(a: Any, b: Any, axes: Any = 2) -> Callable[[Any, Any], Any]:
    """Return the function that multiplies arrays of the shapes of `a` and `b`."""
    if isinstance(axes, (int, np.integer)):
        pairs: Any = (range(-int(axes), 0), range(int(axes)))
    else:
        pairs = axes
    left, right = (
        [_core.read_axis(i, x.ndim, "numpy.tensordot") for i in ([given] if np.ndim(given) == 0 else given)]
        for x, given in zip((a, b), pairs, strict=True)
    )  # fmt: skip
    lengths = [a.shape[i] for i in left], [b.shape[i] for i in right]
    if lengths[0] != lengths[1] or len({*left}) < len(left) or len({*right}) < len(right):
        raise ShapeError(where="numpy.tensordot", expected="pairs of axes of equal length, each axis once",
                         got=f"axes {short_repr(axes)} of shapes {a.shape} and {b.shape}",
                         fix="name the axes: axes=([0], [1])")  # fmt: skip
    others = (
        [i for i in range(a.ndim) if i not in left],
        [i for i in range(b.ndim) if i not in right],
    )
    rows, columns = [a.shape[i] for i in others[0]], [b.shape[i] for i in others[1]]
    orders, inner = ((*others[0], *left), (*right, *others[1])), math.prod(lengths[0])
    shapes, result = ((math.prod(rows), inner), (inner, math.prod(columns))), (*rows, *columns)
    return _matmul_of(a, b, orders, shapes, result)


@_core.prepared(_tensordot_of, "a b axes", "a b", on_gpu=True)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Return numpy.tensordot: the sum of products over pairs of axes, as one matrix product."""
    a, b = _arrays("numpy.tensordot", a, b)
    return _tensordot_of(a, b, axes)(a, b)


def _kron_of(a: Any, b: Any) -> Callable[[Any, Any], Any]:
    """Return the function that multiplies arrays of the shapes of `a` and `b`."""
    ndim = max(a.ndim, b.ndim)
    shapes = [(1,) * (ndim - x.ndim) + tuple(x.shape) for x in (a, b)]
    left = tuple([n for length in shapes[0] for n in (length, 1)])
    right = tuple([n for length in shapes[1] for n in (1, length)])
    result = tuple([m * n for m, n in zip(*shapes, strict=True)])
    multiply = FUNCTIONS["multiply"]
    if a.device.type != "cpu" or ndim < 2 or right[-1] >= 16:
        return lambda a, b: multiply(a.reshape(left), b.reshape(right)).reshape(result)
    # A loop for each short line of `b` would take longer than the products: write each line of `a` in its final length,
    # and `b` as often.
    wide = (*left[:-1], right[-1]), (*right[:-2], *left[-2:-1], right[-1])
    lines = [(*shape[:-2], shape[-2] * shape[-1]) for shape in wide]
    return lambda a, b: multiply(
        a.reshape(left).broadcast_to(wide[0]).reshape(lines[0]),
        b.reshape(right).broadcast_to(wide[1]).reshape(lines[1]),
    ).reshape(result)


@_core.prepared(_kron_of, "a b", "a b", on_gpu=True)
def kron(a: Any, b: Any) -> Any:
    """Return numpy.kron: every element of `a` times all of `b`."""
    a, b = _arrays("numpy.kron", a, b)
    return _kron_of(a, b)(a, b)


def _outer_of(a: Any, b: Any, out: Any = None) -> Any:
    return products.ger if a.ndim == b.ndim == 1 and out is None else None


@_core.prepared(_outer_of, "a b out", "a b", on_gpu=True)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    """Return numpy.outer: every element of `a` times every one of `b`."""
    return products.ger(*(x.ravel() for x in _arrays("numpy.outer", a, b)), out=out)


_cross_parts = fuse(lambda a, b, c, x, y, z: (b * z - c * y, c * x - a * z, a * y - b * x))


def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    """Return numpy.cross of vectors of three elements."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = _arrays("numpy.cross", a, b)
    x, y = (
        _first(results.plain(v), [_core.read_axis(i, v.ndim, "numpy.cross")])
        for v, i in ((a, axisa), (b, axisb))
    )
    if len(x) != 3 or len(y) != 3:
        raise TypeError(f"vectors of {len(x)} and {len(y)} elements")
    shape = _core.broadcast_shapes([x.shape[1:], y.shape[1:]], "numpy.cross")
    like = results.leading([a, b])
    if a.dtype != b.dtype:
        like = FUNCTIONS["multiply"](*(v[..., :0].reshape(0) for v in (a, b)))
    made = results.new_like(like, (3, *shape), like.dtype, "numpy.cross")
    parts = results.plain(made)  # by index, because iteration takes several times as long
    _cross_parts(x[0], x[1], x[2], y[0], y[1], y[2], out=(parts[0], parts[1], parts[2]))
    along = _core.read_axis(axisc, made.ndim, "numpy.cross")
    return made.transpose([*range(1, along + 1), 0, *range(along + 1, made.ndim)])


@lru_cache(maxsize=32)
def _dots(dtype: np.dtype[Any]) -> Any:
    """Return the fused function of the inner products along the last axis, in a dtype."""
    if dtype.kind == "c":
        return fuse(lambda x, y: (x.conj() * y).sum(-1).astype(dtype))
    return fuse(lambda x, y: (x * y).sum(-1).astype(dtype))


def _vecdot_of(x1: Any, x2: Any, **options: Any) -> Any:
    """Return the function of inner products of vectors of one length along the last axis; None for other calls."""
    last = {"axis": -1, "keepdims": False}
    if any(last.get(name) is not value for name, value in options.items() if value is not None):
        return None
    if not x1.ndim or not x2.ndim or x1.shape[-1] != x2.shape[-1]:
        return None
    dtype = common_dtype((x1.dtype, x2.dtype), "numpy.vecdot")
    return None if dtype == np.bool_ else _dots(dtype)


@_core.prepared(_vecdot_of, "x1 x2 / out * axis keepdims dtype", "x1 x2", on_gpu=True)
def vecdot(
    x1: Any, x2: Any, /, out: Any = None, *, axis: int = -1, keepdims: bool = False, dtype: Any = None
) -> Any:  # fmt: skip
    """Return numpy.vecdot: the inner products of vectors along an axis, the first conjugated."""
    x, y = (
        v.transpose([*(i for i in range(v.ndim) if i != along), along])
        for v in _arrays("numpy.vecdot", x1, x2)
        for along in [_core.read_axis(axis, v.ndim, "numpy.vecdot")]
    )
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError(where="numpy.vecdot", expected="vectors of equal length",
                         got=f"vectors of {x.shape[-1]} and of {y.shape[-1]} elements, axis {axis}",
                         fix="slice one, or name another axis")  # fmt: skip
    if dtype is None:
        dtype = common_dtype((x.dtype, y.dtype), "numpy.vecdot")
    else:
        x, y = cast_operands("numpy.vecdot", (x, y), dtype)
        dtype = x.dtype
    found = (x & y).any(-1) if dtype == np.bool_ else results.by_general_class(_dots(dtype), x, y)
    if keepdims:
        along = _core.read_axis(axis, found.ndim + 1, "numpy.vecdot")
        found = found.expand_dims(along)
    if out is None:
        return found
    results.check_out(out, found.shape, found.dtype, found, "numpy.vecdot")
    out[...] = found
    return out


def _matrix_and_vector(where: str, matrix: Any, vector: Any) -> None:
    """Refuse fewer dimensions than a matrix, or a stack of them, and a vector have."""
    if matrix.ndim < 2 or vector.ndim < 1:
        raise ShapeError(where=where, expected="a matrix and a vector, or stacks of them",
                         got=f"shapes {tuple(matrix.shape)} and {tuple(vector.shape)}",
                         fix="call numpy.vecdot for two vectors")  # fmt: skip


def _matvec_of(x1: Any, x2: Any, out: Any = None) -> Any:
    return products.matmul if x1.ndim > 1 and x2.ndim == 1 and out is None else None


@_core.prepared(_matvec_of, "x1 x2 / out", "x1 x2", on_gpu=True)
def matvec(x1: Any, x2: Any, /, out: Any = None) -> Any:
    """Return numpy.matvec: the products of matrices with vectors."""
    x, y = _arrays("numpy.matvec", x1, x2)
    _matrix_and_vector("numpy.matvec", x, y)
    result = None if out is None else out[..., None]
    found = products.matmul(x, y[..., None], out=result)
    return found[..., 0] if out is None else out


def vecmat(x1: Any, x2: Any, /, out: Any = None) -> Any:
    """Return numpy.vecmat: the products of vectors, conjugated, with matrices."""
    x, y = _arrays("numpy.vecmat", x1, x2)
    _matrix_and_vector("numpy.vecmat", y, x)
    x = x.conj() if x.dtype.kind == "c" else x
    result = None if out is None else out[..., None, :]
    found = products.matmul(x[..., None, :], y, out=result)
    return found[..., 0, :] if out is None else out


CALLS.update(cross=cross, tensordot=tensordot, vecdot=vecdot)
