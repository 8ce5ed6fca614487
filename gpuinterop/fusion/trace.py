"""Placeholders for arrays: `fuse` calls a function with them, and records its operations."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gpuinterop import _core
from gpuinterop.arrays.dtypes import dtype_from_id, dtype_id
from gpuinterop.arrays.numpy_views import as_scalar
from gpuinterop.devices.foreign_handles import CPU
from gpuinterop.elementwise.calls import CALLS, FUNCTIONS
from gpuinterop.elementwise.functions import clip
from gpuinterop.elementwise.missing_names import replacement
from gpuinterop.elementwise.table import ALIASES, TABLE, Row
from gpuinterop.errors import ArgumentTypeError, ConversionTypeError, DTypeError
from gpuinterop.errors.arguments import constant_key
from gpuinterop.errors.messages import inner_dimensions_differ
from gpuinterop.reduce.table import FUSED

from .builder import Expression
from .compiled import shape_of
from .graph import Value, code_of_number, codes_of, is_strict, shapes_of, strong, values_of

# ---- numbers: arithmetic gives another placeholder, which every call computes in Python ---------


class Scalar:
    """A number that each call passes, or computes from such numbers.

    Attributes
    ----------
    trace : the trace that it belongs to.
    name : the parameter, for messages.
    value : the number in the traced call, which determines the dtypes of the trace.
    of : the function that computes it from the arguments of a call.
    key : equal for numbers that are computed in the same way.
    """

    __slots__ = ("key", "name", "of", "trace", "value")
    __array_priority__ = 1000.0

    def __init__(
        self, trace: Any, name: str, value: Any, of: Callable[[tuple[Any, ...]], Any], key: Any
    ) -> None:
        self.trace, self.name, self.value, self.of, self.key = trace, name, value, of, key

    def __repr__(self) -> str:
        return "<number in a fused function>"

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options or not all(map(_is_number, inputs)):
            return NotImplemented  # an array among the inputs records the operation
        return _combine(ufunc, *inputs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.unreadable(f"{self.name}.{name}")

    def unreadable(self, got: str) -> ArgumentTypeError:
        return ArgumentTypeError(
            where="fuse",
            expected="a function that does not read the values of numbers, because fuse only traces it",
            got=f"{got} of an argument that is a number",
            fix=f"pass static_argnames={self.name!r} to fuse, which then traces each value",
        )


def _is_number(x: Any) -> bool:
    return isinstance(x, (Scalar, bool, int, float, complex, np.generic))


def _is_array(x: Any) -> bool:
    """Return whether `x` is an array or a placeholder for one."""
    return isinstance(x, _core.Array) or (
        type(x) is not Scalar and hasattr(type(x), "__gpuinterop_trace__")
    )


def _combine(operation: Callable[..., Any], *operands: Any) -> Scalar:
    """Return a number that every call computes from others."""
    first = next(x for x in operands if type(x) is Scalar)
    steps = [x.of if type(x) is Scalar else (lambda args, x=x: x) for x in operands]
    return Scalar(
        first.trace,
        first.name,
        operation(*(x.value if type(x) is Scalar else x for x in operands)),
        lambda args: operation(*(step(args) for step in steps)),
        (operation, *(x.key if type(x) is Scalar else constant_key(x) for x in operands)),
    )


def _operator(name: str, row: str, *, backward: bool = False, reads: bool = False) -> Any:
    """Return an operator with numbers and arrays; `reads`: between numbers it raises, because it reads their values."""
    operation = getattr(operator, name)

    def method(self: Scalar, other: Any) -> Any:
        if _is_array(other):
            return FUNCTIONS[row](*((other, self) if backward else (self, other)))
        if reads:
            raise self.unreadable("a comparison")
        if not _is_number(other):
            return NotImplemented
        return _combine(operation, *((other, self) if backward else (self, other)))

    return method


def _unary(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: _combine(operation, self)


def _reading(got: str) -> Callable[..., Any]:
    def method(self: Scalar, *_others: Any) -> Any:
        raise self.unreadable(got)

    return method


for _name, _row in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power",
}.items():  # fmt: skip
    setattr(Scalar, f"__{_name}__", _operator(_name, _row))
    setattr(Scalar, f"__r{_name}__", _operator(_name, _row, backward=True))
for _name, _row in {
    "lt": "less", "le": "less_equal", "eq": "equal", "ne": "not_equal", "gt": "greater",
    "ge": "greater_equal",
}.items():  # fmt: skip
    setattr(Scalar, f"__{_name}__", _operator(_name, _row, reads=True))
for _name in ("neg", "pos", "abs"):
    setattr(Scalar, f"__{_name}__", _unary(getattr(operator, _name)))
for _name, _got in {
    "bool": "the boolean value", "float": "float()", "int": "int()", "complex": "complex()",
    "index": "the value as an index", "hash": "the hash", "format": "the formatted value", "round":
    "round()", "trunc": "the integer part", "str": "the text", "divmod": "divmod()", "rdivmod":
    "divmod()", "array": "the value as a NumPy array",
}.items():  # fmt: skip
    setattr(Scalar, f"__{_name}__", _reading(_got))


# ---- arrays -------------------------------------------------------------------------------------


class NumbersRead(list[tuple[np.ndarray[Any, Any], Any]]):
    """0-d NumPy arrays, and the numbers that they were when a function was traced."""

    def changed(self) -> bool:
        """Return whether one of the arrays has other bits now."""
        return any(a.dtype != number.dtype or a.tobytes() != number.tobytes() for a, number in self)


class Trace:
    """One call of a function with placeholders.

    Attributes
    ----------
    graph : the operations so far; its inputs are the arguments, then the captured operands.
    arrays : the arguments that are arrays, while the function runs.
    captured : arrays from outside the function, and numbers.
    reads_shape : whether the function read a shape.
    numbers : the 0-d NumPy arrays from outside the function, which are constants of the graph.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.graph, self.arrays = Expression(), arrays
        self.numbers = NumbersRead()
        self.captured: list[Any] = []
        self.reads_shape = False
        for _ in arrays:
            self.graph.input()

    def capture(self, array: Any) -> Value:
        first = len(self.graph.inputs) - len(self.captured)
        for value, other in zip(self.graph.inputs[first:], self.captured, strict=True):
            if other is array:
                return value
        self.captured.append(array)
        return self.graph.input()

    def parameter(self, number: Scalar, use: tuple[Any, ...]) -> Value:
        """Return an input for one use of a number, with the dtype of that use."""
        key = (Scalar, number.key, *use)
        value = self.graph.known.get(key)
        if value is None:
            value = self.graph.known[key] = self.graph.input(weak=True)
            self.captured.append(number)
        return value

    def shape(self, value: Value) -> tuple[int, ...]:
        """Return the shape of a value for the arguments of this call."""
        values = values_of([value])
        shapes = self._by_input(values, lambda x: () if type(x) is Scalar else shape_of(x))
        return shapes_of(values, shapes)[id(value)]

    def dtype(self, value: Value) -> np.dtype[Any]:
        """Return the dtype of a value for the arguments of this call."""
        values = values_of([value])
        inputs = (self._by_input(values, read) for read in (_code_of, is_strict))
        return np.dtype(dtype_from_id(strong(codes_of(values, *inputs)[0][id(value)])))

    def _by_input(self, values: Sequence[Value], read: Callable[[Any], Any]) -> dict[int, Any]:
        if not self.arrays:
            raise _escaped_value()
        operands = (*self.arrays, *self.captured)
        return {v.index: read(operands[v.index]) for v in values if v.index >= 0}


def _code_of(x: Any) -> int:
    if type(x) is Scalar:
        return code_of_number(x.value)
    dtype = getattr(x, "dtype", None)
    if dtype is None:
        raise _refusal("arrays with the attribute dtype", type(x).__name__,
                       "convert it first: gpuinterop.asarray(value)")  # fmt: skip
    return dtype_id(dtype, "fuse")


def _refusal(expected: str, got: str, fix: str) -> ArgumentTypeError:
    return ArgumentTypeError(where="fuse", expected=expected, got=got, fix=fix)


def _escaped_value() -> ArgumentTypeError:
    return _refusal("arguments of one function", "a value kept from another fused call",
                    "return it instead of keeping it")  # fmt: skip


class Tracer(NDArrayOperatorsMixin):
    """A placeholder for an array inside a function that is being fused; NumPy's mixin has its operators."""

    __slots__ = ("trace", "value")
    __array_priority__ = 2000.0
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: Trace, value: Value) -> None:
        self.trace = trace
        self.value = value

    def __repr__(self) -> str:
        return "<array in a fused function>"

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = f"numpy.{ufunc.__name__}"
        if type((kwargs.get("out") or (None,))[0]) is Tracer:
            raise _refusal("a function that changes no array, because fuse only traces it",
                           "an in-place operator, such as x += 1, or out= with an array inside",
                           "write y = x + 1, and pass out=x to the fused function")  # fmt: skip
        refuse_out(name, kwargs.get("out"))
        if ufunc is np.matmul and method == "__call__":
            return CALLS["traced product"]("matmul", *inputs)
        row = TABLE.get(ALIASES.get(ufunc.__name__, ufunc.__name__))
        if method == "__call__" and row is not None:
            return FUNCTIONS[row.name](*inputs, **kwargs) if kwargs else record(row, inputs)
        function = _core._call_method("ufunc method", ufunc, method)
        if function is None:
            raise cannot_be_fused(name if method == "__call__" else f"{name}.{method}")
        return function(*inputs, **kwargs)

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        refuse_out(f"numpy.{func.__name__}", kwargs.get("out"))
        result = _core._call_method("__array_function__", self, func, types, args, kwargs)
        if result is NotImplemented:
            raise cannot_be_fused(f"numpy.{func.__name__}")
        return result

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # Without this method torch raises its own TypeError, which names the class Tracer.
        name = getattr(func, "__name__", str(func))
        if ALIASES.get(name, name) in TABLE:
            raise _refusal("gpuinterop's or NumPy's functions in a fused function", f"torch.{name}",
                           f"call gpuinterop.{name}")  # fmt: skip
        raise cannot_be_fused(f"torch.{name}")

    @staticmethod
    def __gpuinterop_trace__(row: Row, operands: Sequence[Any], out: Any = None) -> Any:
        refuse_out(row.name, out)
        return record(row, operands)

    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> Tracer:
        return Tracer(self.trace, self.trace.graph.cast(self.value, dtype))

    def exp(self) -> Any:
        return record(TABLE["exp"], (self,))

    def conj(self) -> Any:
        return record(TABLE["conjugate"], (self,))

    def round(self, decimals: int = 0) -> Any:
        return np.round(self, decimals)

    def clip(self, min: Any = None, max: Any = None) -> Any:
        return clip(self, min, max)

    # ---- shapes and dtypes of this call ---------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        self.trace.reads_shape = True
        return self.trace.shape(self.value)

    @property
    def ndim(self) -> int:
        return len(self.trace.shape(self.value))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.trace.dtype(self.value)

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def __bool__(self) -> bool:
        raise _refusal("a function without branches on the values of arrays",
                       "the boolean value of an array in the fused function",
                       "select by element: gpuinterop.where(condition, x, y)")  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("item", "tolist", "tobytes", "get"):
            raise _no_value(f"x.{name}()")
        raise cannot_be_fused(f"x.{name}")


def cannot_be_fused(name: str) -> ArgumentTypeError:
    """Return the error for a function that is not elementwise, a reduction or a product with a vector."""
    owner, _, own = name.rpartition(".")
    call = replacement(own) if owner == "x" else ""
    return _refusal(
        f"elementwise operations, the reductions {', '.join(FUSED)}, and products with vectors",
        f"{name}, which cannot be fused",
        f"call {call or name} outside the fused function, and pass its result as an argument",
    )


def refuse_out(where: str, out: Any) -> None:
    """Refuse `out=`, because a traced function must not write to arrays."""
    if out is not None:
        raise ArgumentTypeError(where=where, expected="a call without out= in a fused function",
                                got=f"out={type(out).__name__}",
                                fix="pass out= to the fused function")  # fmt: skip


def record(row: Row, operands: Sequence[Any]) -> Any:
    """Return a tracer, or several, for `row` applied to tracers, numbers and arrays."""
    trace = next(o.trace for o in operands if type(o) in (Tracer, Scalar))
    operand_values = [None if type(o) is Scalar else value_of(trace, o, row.name) for o in operands]
    use = (row.name, *map(id, operand_values))
    values = tuple(
        trace.parameter(o, (i, *use)) if value is None else value
        for i, (o, value) in enumerate(zip(operands, operand_values, strict=True))
    )
    results = tuple(
        Tracer(trace, trace.graph.record(row, values, result=j)) for j in range(row.results)
    )
    if any(type(o) is Scalar and o.trace is not trace for o in operands):
        raise _escaped_value()
    return results if row.results > 1 else results[0]


def value_of(trace: Trace, operand: Any, name: str) -> Value:
    """Return the value of an operand: a placeholder, a constant or an array from outside the function."""
    if isinstance(operand, Tracer):
        if operand.trace is not trace:
            raise _escaped_value()
        return operand.value
    given, operand = operand, as_scalar(operand, name)
    if given is not operand:
        trace.numbers.append((given, operand))
    if isinstance(operand, (bool, int, float, complex, np.generic)):
        return trace.graph.constant(operand)
    if isinstance(operand, _core.Array):
        return trace.capture(operand)
    raise ConversionTypeError(where=name, expected="gpuinterop arrays and numbers in a fused function",
                            got=type(operand).__name__,
                            fix="convert it first: gpuinterop.asarray(value)")  # fmt: skip


Scalar.__gpuinterop_trace__ = staticmethod(Tracer.__gpuinterop_trace__)  # type: ignore[attr-defined]


def _no_value(got: str) -> ArgumentTypeError:
    return _refusal("a function that does not read array values, because fuse only traces it",
                    f"{got} in the fused function",
                    "use the array itself, or return it and read it outside the fused function")  # fmt: skip


def _refusing(got: str) -> Callable[..., Any]:
    def method(self: Tracer, *_arguments: Any, **_options: Any) -> Any:
        raise _no_value(got)

    return method


for _python, _got in {
    "float": "float(x)", "int": "int(x)", "complex": "complex(x)", "index": "x as an index",
    "iter": "a loop over x", "contains": "a search in x", "array": "numpy.asarray(x)",
    "format": "a formatted x", "round": "round(x)",
    "setitem": "an assignment to x[index]",
}.items():  # fmt: skip
    setattr(Tracer, f"__{_python}__", _refusing(_got))


def _reduction(op: str) -> Callable[..., Tracer]:
    def method(
        self: Tracer, axis: Any = None, dtype: Any = None, out: Any = None,
        keepdims: bool = False, **options: Any,
    ) -> Tracer:  # fmt: skip
        if dtype is not None or out is not None or options:
            raise _refusal(f"{op} with axis and keepdims only",
                           "another argument in a fused function",
                           "call x.astype(dtype) or gpuinterop.where(mask, x, 0) first")  # fmt: skip
        for number in axis if isinstance(axis, (tuple, list)) else (axis,):
            if type(number) is Scalar:
                raise number.unreadable("the value as an axis")
        return Tracer(self.trace, self.trace.graph.reduce(op, self.value, axis, bool(keepdims)))

    return method


for _name in FUSED:
    setattr(Tracer, _name, _reduction(_name))


# ---- views, and products with vectors -----------------------------------------------------------


def _rearranged(x: Tracer, view: Callable[[Any], Any]) -> Tracer:
    """Return the placeholder with its axes as `view` has those of an array.

    `view` is applied to an array whose strides are the numbers of its axes; only new axes have length 1.
    """
    ndim = x.ndim
    memory = _core.empty(_core.gpuarray_class(), (ndim * (ndim + 1) // 2 + 1,), np.bool_, CPU, 0)
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
