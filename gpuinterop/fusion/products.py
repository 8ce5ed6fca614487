"""Views and products of placeholders: rearranged axes, and products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.devices.foreign_handles import CPU
from gpuinterop.elementwise.calls import CALLS
from gpuinterop.elementwise.operands import gpuarray_class
from gpuinterop.errors import DTypeError
from gpuinterop.errors.messages import inner_dimensions_differ

from .dtypes import Value
from .trace import Trace, Tracer, cannot_be_fused, refuse_out, value_of


def _rearranged(x: Tracer, view: Callable[[Any], Any]) -> Tracer:
    """Return the placeholder with its axes as `view` has those of an array.

    `view` is applied to an array whose strides are the numbers of its axes; only new axes have length 1.
    """
    ndim = x.ndim
    memory = _core.empty(gpuarray_class(), (ndim * (ndim + 1) // 2 + 1,), np.bool_, CPU, 0)
    found = view(memory._restrided((2,) * ndim, range(1, ndim + 1), 0))
    axes = (s - 1 if n > 1 else -1 for n, s in zip(found.shape, found._strides, strict=True))
    return Tracer(x.trace, x.trace.graph.dimshuffle(x.value, tuple(axes)))


def _view(name: str) -> Callable[..., Tracer]:
    return lambda self, *arguments: _rearranged(self, lambda x: getattr(x, name)(*arguments))


def _getitem(self: Tracer, key: Any) -> Tracer:
    """Return x[:, None] and similar; raise for other indices, which an elementwise kernel cannot select."""
    for k in key if isinstance(key, tuple) else (key,):
        if not (k is None or k is Ellipsis or (type(k) is slice and k == slice(None))):
            raise cannot_be_fused("x[index]")
    return _rearranged(self, lambda x: x[key])


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
    "T": property(lambda self: _rearranged(self, lambda x: x.T)), "__getitem__": _getitem,
    **{name: _view(name) for name in ("transpose", "swapaxes", "expand_dims")},
    "dot": lambda self, other, out=None: _traced("dot", self, other, out),
}.items():  # fmt: skip
    setattr(Tracer, _name, _method)
