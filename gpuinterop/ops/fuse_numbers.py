"""What stands for a Python float among the arguments while a function is fused.

As long as it meets arrays and other numbers by arithmetic only, it becomes a parameter of the kernel,
and another number needs no other kernel. Once Python looks at its value (a comparison, `float`, an
`isinstance`), it is a constant of the trace.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gpuinterop import _core
from gpuinterop.layout import core_view

from .fuse_names import told_apart

__all__ = ["OPEN", "More", "Number", "argument", "described"]

OPEN = object()  # in a key for the value of a number


class More(NamedTuple):
    """What a trace depends on beyond the arguments' types and what is fixed anyway."""

    fixed: frozenset[int]  # positions of numbers whose values it has looked at
    shapes: bool  # of all arrays, and their dtypes

    def key(
        self, first: tuple[Any, ...], args: tuple[Any, ...], arrays: list[Any]
    ) -> tuple[Any, ...]:
        """The key of the trace for these arguments, from the one without all this."""
        found = list(first)
        for i in self.fixed:
            found[i + 1] = (float, told_apart(args[i]))
        if self.shapes:
            found += map(described, arrays)
        return tuple(found)


def described(x: Any) -> tuple[tuple[int, ...], Any]:
    """The shape and the dtype of an argument."""
    seen = core_view(x) if isinstance(x, _core.Array) else x
    return tuple(np.shape(seen)), getattr(seen, "dtype", None)


class Number:
    """A number that each call gives anew.

    Attributes
    ----------
    value : what it is in the call that is traced.
    origins : positions of the arguments that it is computed from.
    key : equal for numbers that are computed in the same way.
    of : computes it from the arguments of a call.
    read : the positions of all arguments whose values were looked at, shared by a trace's numbers.
    """

    __slots__ = ("key", "of", "origins", "read", "value")

    def __init__(
        self,
        value: Any,
        origins: frozenset[int],
        key: Any,
        of: Callable[[tuple[Any, ...]], Any],
        read: set[int],
    ) -> None:
        self.value, self.origins, self.key, self.of, self.read = value, origins, key, of, read

    def _looked_at(self) -> Any:
        self.read |= self.origins
        return self.value

    # isinstance asks for it, and numpy.asarray for the others.
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._looked_at())

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self._looked_at(), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if any(hasattr(type(x), "__gpuinterop_trace__") for x in inputs):
            return NotImplemented
        return getattr(ufunc, method)(*map(_plain, inputs), **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._looked_at(), name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return float, (self._looked_at(),)


def argument(value: float, place: int, read: set[int]) -> Number:
    """What stands for the argument at `place`."""
    return Number(value, frozenset((place,)), place, operator.itemgetter(place), read)


def _plain(value: Any) -> Any:
    return value._looked_at() if type(value) is Number else value


def _later(operation: Callable[..., Any], *operands: Any) -> Number:
    """A number computed from others, by every call."""
    numbers = [x for x in operands if type(x) is Number]
    steps = [x.of if type(x) is Number else None for x in operands]

    def of(args: tuple[Any, ...]) -> Any:
        return operation(
            *(x if step is None else step(args) for x, step in zip(operands, steps, strict=True))
        )

    return Number(
        operation(*(x.value if type(x) is Number else x for x in operands)),
        frozenset().union(*(x.origins for x in numbers)),
        (operation, *(x.key if type(x) is Number else (type(x), repr(x)) for x in operands)),
        of,
        numbers[0].read,
    )


def _alone(self: Number, operation: Callable[..., Any]) -> Number:
    return _later(operation, self)


def _arithmetic(operation: Callable[..., Any], *, backward: bool) -> Callable[..., Any]:
    def method(self: Number, other: Any) -> Any:
        if hasattr(type(other), "__gpuinterop_trace__"):
            return NotImplemented
        pair = (other, self) if backward else (self, other)
        if type(other) in (int, float, Number):
            return _later(operation, *pair)
        return operation(*map(_plain, pair))

    return method


def _looking(operation: Callable[..., Any], *, backward: bool = False) -> Callable[..., Any]:
    def method(self: Number, *others: Any) -> Any:
        if any(hasattr(type(other), "__gpuinterop_trace__") for other in others):
            return NotImplemented
        given = map(_plain, (*others, self) if backward else (self, *others))
        return operation(*given)

    return method


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _operation = getattr(operator, _name)
    setattr(Number, f"__{_name}__", _arithmetic(_operation, backward=False))
    setattr(Number, f"__r{_name}__", _arithmetic(_operation, backward=True))
for _name in ("neg", "pos", "abs"):
    setattr(Number, f"__{_name}__", functools.partialmethod(_alone, getattr(operator, _name)))
for _name in ("mod", "floordiv"):
    setattr(Number, f"__{_name}__", _looking(getattr(operator, _name)))
    setattr(Number, f"__r{_name}__", _looking(getattr(operator, _name), backward=True))
for _name in ("lt", "le", "eq", "ne", "gt", "ge"):
    setattr(Number, f"__{_name}__", _looking(getattr(operator, _name)))
_LOOKING: dict[str, Callable[..., Any]] = {
    "float": float, "int": int, "complex": complex, "bool": bool, "hash": hash, "str": str, "repr": repr,
    "format": format, "round": round, "trunc": math.trunc, "divmod": divmod,
}  # fmt: skip
for _name, _function in _LOOKING.items():
    setattr(Number, f"__{_name}__", _looking(_function))
Number.__rdivmod__ = _looking(divmod, backward=True)  # type: ignore[attr-defined]
