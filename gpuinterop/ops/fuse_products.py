"""Views and products of placeholders: rearranged axes, and products with vectors."""

from __future__ import annotations

from typing import Any

from gpuinterop.error_messages import inner_dimensions_differ
from gpuinterop.errors import ArgumentTypeError, DTypeError
from gpuinterop.views import read_axes, read_axis

from .core_callbacks import CALLS
from .expression_dtypes import Value
from .fuse_tracer import Trace, Tracer, cannot_be_fused, refuse_out, value_of


def dimshuffle(x: Tracer, axes: tuple[int, ...]) -> Tracer:
    """Return the placeholder with its axes in another order; -1 stands for a new axis of length 1."""
    return Tracer(x.trace, x.trace.graph.dimshuffle(x.value, axes))


def _transpose(self: Tracer, *axes: Any) -> Tracer:
    given = (
        axes[0]
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list)))
        else axes
    )
    if given is None or given == ():
        return dimshuffle(self, tuple(reversed(range(self.ndim))))
    order = read_axes(tuple(given), self.ndim, "transpose")
    if len(order) != self.ndim:
        raise ArgumentTypeError(
            where="transpose", expected=f"{self.ndim} axes, each once", got=repr(axes),
            fix="omit the axes to reverse their order",
        )  # fmt: skip
    return dimshuffle(self, order)


def _swapaxes(self: Tracer, axis1: Any, axis2: Any) -> Tracer:
    i, j = (read_axis(axis, self.ndim, "swapaxes") for axis in (axis1, axis2))
    order = list(range(self.ndim))
    order[i], order[j] = j, i
    return dimshuffle(self, tuple(order))


def _expand_dims(self: Tracer, axis: Any) -> Tracer:
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    added = read_axes(axis, self.ndim + count, "expand_dims")
    old = iter(range(self.ndim))
    return dimshuffle(
        self, tuple(-1 if i in added else next(old) for i in range(self.ndim + count))
    )


def _getitem(self: Tracer, key: Any) -> Tracer:
    """Return x[:, None] and similar; raise for other indices, which an elementwise kernel cannot select."""
    keys = list(key) if isinstance(key, tuple) else [key]
    whole = slice(None)
    if any(not (k is None or k is Ellipsis or (type(k) is slice and k == whole)) for k in keys):
        raise cannot_be_fused("x[index]")
    missing = self.ndim - sum(type(k) is slice for k in keys)
    if Ellipsis not in keys:
        keys.append(Ellipsis)
    if missing < 0 or keys.count(Ellipsis) > 1:
        raise cannot_be_fused("x[index]")
    at = keys.index(Ellipsis)
    keys[at : at + 1] = [whole] * missing
    old = iter(range(self.ndim))
    return dimshuffle(self, tuple(-1 if k is None else next(old) for k in keys))


def product(a: Any, b: Any, where: str = "matmul") -> Tracer:
    """Return the product of two vectors, or of a matrix and a vector: a sum of products over one axis."""
    trace: Trace = next(x.trace for x in (a, b) if isinstance(x, Tracer))
    left, right = (value_of(trace, x, where) for x in (a, b))
    shapes = trace.shape(left), trace.shape(right)
    trace.reads_shape = True  # a product requires equal lengths, while a sum of products broadcasts
    ndims = tuple(map(len, shapes))
    if 0 in ndims or max(ndims) > 2 or ndims == (2, 2):
        raise cannot_be_fused(f"{where} of shapes {shapes[0]} and {shapes[1]}")
    for value in (left, right):
        _require_float(trace, value, where)
    n, m = shapes[0][-1], shapes[1][0]
    if n != m:
        raise inner_dimensions_differ(where, *shapes, n, m)
    if ndims == (1, 2):
        left = trace.graph.dimshuffle(left, (0, -1))
    products = trace.graph.apply("multiply", left, right)
    return Tracer(trace, trace.graph.reduce("sum", products, 0 if ndims == (1, 2) else -1))


def _require_float(trace: Trace, value: Value, where: str) -> None:
    dtype = trace.dtype(value)
    if dtype.name not in ("float32", "float64"):
        raise DTypeError(
            where=where, expected="float32 or float64 operands of a product in a fused function",
            got=dtype.name, fix="cast the operands, x.astype('float32'), or multiply outside the function",
        )  # fmt: skip


def _traced(where: str, a: Any, b: Any, out: Any = None) -> Tracer:
    refuse_out(where, out)
    if where == "dot" and 0 in (getattr(a, "ndim", 0), getattr(b, "ndim", 0)):
        made: Tracer = a * b
        return made
    return product(a, b, where)


CALLS["traced product"] = _traced
for _name, _method in {
    "T": property(_transpose), "transpose": _transpose, "swapaxes": _swapaxes,
    "expand_dims": _expand_dims, "__getitem__": _getitem,
    "__matmul__": product, "__rmatmul__": lambda self, other: product(other, self),
    "dot": lambda self, other, out=None: _traced("dot", self, other, out),
}.items():  # fmt: skip
    setattr(Tracer, _name, _method)
