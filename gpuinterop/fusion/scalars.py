"""The placeholder for a Python number among the arguments of a function that `fuse` traces.

Arithmetic with numbers gives another placeholder, which every call computes in Python. Arithmetic with
arrays makes it a parameter of the kernel. Its value cannot be read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.elementwise.calls import FUNCTIONS
from gpuinterop.errors import ArgumentTypeError

from .graph import constant_key


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
