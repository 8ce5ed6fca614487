"""Graphs of operations on array elements, which compile to as few kernels as possible.

`fuse`, `ElementwiseKernel` and other packages build a graph with `Expression`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import dtype_id
from gpuinterop.elementwise.table import ALIASES, TABLE
from gpuinterop.errors import ArgumentTypeError, short_repr
from gpuinterop.errors.arguments import constant_key
from gpuinterop.reduce.table import FUSED

from .compiled import CompiledExpression
from .cuda_text import CudaText
from .graph import Graph, Operation, Value, values_of

__all__ = ["CudaText", "Expression", "Value"]

Number: TypeAlias = "bool | int | float | complex | np.generic[Any]"


class Expression(Graph):
    """A graph of operations on array elements, built value by value and then compiled.

    Examples
    --------
    >>> import gpuinterop
    >>> from gpuinterop.fusion.builder import Expression
    >>> graph = Expression()
    >>> x, y = graph.input(), graph.input()
    >>> distance = graph.apply("sqrt", graph.apply("add", graph.apply("square", x), y))
    >>> total = graph.reduce("sum", graph.cast(distance, "float64"))
    >>> both = graph.compile([distance, total], name="distance")
    >>> a = gpuinterop.asarray([3.0, 4.0], device="cpu")
    >>> [value.tolist() for value in both(a, 0)]
    [[3.0, 4.0], 7.0]
    """

    def constant(self, number: Number) -> Value:
        """Return a number as a value: Python's are weakly typed, NumPy's keep their dtype."""
        if not isinstance(number, (bool, int, float, complex, np.generic)):
            raise ArgumentTypeError(where="constant", expected="a Python or NumPy number",
                                    got=type(number).__name__,
                                    fix="use graph.input() for an array, and pass the array in the call")  # fmt: skip
        return self.known.setdefault(constant_key(number), Value(number=number))

    def apply(self, name: str, *operands: Value | Number, result: int = 0) -> Value:
        """Apply an elementwise operation of gpuinterop; `result` selects one of several results.

        Examples
        --------
        >>> from gpuinterop.fusion.builder import Expression
        >>> graph = Expression()
        >>> remainder = graph.apply("divmod", graph.input(), 7, result=1)
        """
        row = TABLE.get(ALIASES.get(name, name))
        if row is None or row.name == "cast":
            near = difflib.get_close_matches(
                short_repr(name).strip("'"), [*TABLE.keys() - {"cast"}, *ALIASES], 1, 0.8
            )
            raise ArgumentTypeError(
                where="apply", expected="the name of an elementwise operation", got=short_repr(name),
                fix=f"pass {near[0]!r}" if near else "pass a name such as 'add' or 'where'",
            )  # fmt: skip
        return self._applied(row, operands, result)

    def cast(self, x: Value | Number, dtype: Any) -> Value:
        """Convert the elements to a dtype, as `GpuArray.astype` does."""
        return self.record(TABLE["cast"], (self._value(x),), cast_to=dtype_id(dtype, "astype"))

    def reduce(
        self, name: str, x: Value | Number, axis: Any = None, keepdims: bool = False
    ) -> Value:
        """Reduce over an axis, several axes, or all (None), by a reduction that `fuse` accepts, such as sum.

        Examples
        --------
        >>> from gpuinterop.fusion.builder import Expression
        >>> graph = Expression()
        >>> x = graph.input()
        >>> centred = graph.compile([graph.apply("subtract", x, graph.reduce("mean", x))])
        >>> import gpuinterop
        >>> centred(gpuinterop.asarray([1.0, 3.0], device="cpu")).tolist()
        [-1.0, 1.0]
        """
        if name not in FUSED:
            raise ArgumentTypeError(where="reduce", expected=f"one of {', '.join(FUSED)}",
                                    got=short_repr(name), fix="call the method of the array")  # fmt: skip
        axis = None if axis is None else _core.read_ints(axis, name, "an axis or axes")
        return self.record(None, (self._value(x),), reduction=(name, axis, bool(keepdims)))

    def dimshuffle(self, x: Value, axes: Sequence[int]) -> Value:
        """Put the axes in another order: `axes` has the operand's axis for each, or -1 for a new one of length 1.

        An input or a reduced value is read in that order; nothing is copied.

        Examples
        --------
        >>> from gpuinterop.fusion.builder import Expression
        >>> graph = Expression()
        >>> x, v = graph.input(), graph.input()
        >>> scaled = graph.apply("multiply", x, graph.dimshuffle(v, (0, -1)))
        >>> import gpuinterop
        >>> rows = graph.compile([graph.reduce("sum", scaled, axis=0)])
        >>> a = gpuinterop.asarray([[1.0, 2.0], [3.0, 4.0]], device="cpu")
        >>> rows(a, gpuinterop.asarray([1.0, 10.0], device="cpu")).tolist()
        [31.0, 42.0]
        """
        return self.record(None, (self._value(x),), axes=tuple(axes))

    def cuda(self, text: CudaText, *operands: Value | Number, result: int = 0) -> Value:
        """Apply CUDA text to the values; `result` selects one of its outputs.

        Examples
        --------
        >>> import gpuinterop
        >>> from gpuinterop.fusion.builder import CudaText, Expression
        >>> lerp = CudaText("T x, T y, T t", "T z", "z = x + (y - x) * t", "lerp",
        ...                 host=lambda x, y, t: x + (y - x) * t)
        >>> graph = Expression()
        >>> x, y = graph.input(), graph.input()
        >>> between = graph.compile([graph.cuda(lerp, x, y, 0.25)])
        >>> between(*(gpuinterop.asarray([v], device="cpu") for v in (0.0, 8.0))).tolist()
        [2.0]
        """
        if not isinstance(text, CudaText):
            raise ArgumentTypeError(where="cuda", expected="a gpuinterop.CudaText", got=type(text).__name__,
                                    fix="create one: gpuinterop.CudaText('T x', 'T z', 'z = x')")  # fmt: skip
        return self._applied(text, operands, result)

    @classmethod
    def of_text(cls, text: CudaText) -> Expression:
        """Return the graph of a single CUDA text, with its declared inputs and outputs."""
        graph = cls()
        values = [graph.input() for _ in text.ins]
        graph.results = [graph.cuda(text, *values, result=j) for j in range(text.results)]
        return graph

    def compile(self, results: Sequence[Value], name: str = "expression") -> CompiledExpression:
        """Return a callable of the inputs that computes the results: one, or a tuple of several.

        It takes arrays and numbers, and ``out=`` as `fuse` does. Results and dtypes are those of the
        same operations on arrays, one after the other.
        """
        if not isinstance(results, (list, tuple)) or not results:
            raise ArgumentTypeError(where="compile", expected="a list of one or more values of the graph",
                                    got=short_repr(results), fix="call graph.compile([value])")  # fmt: skip
        for value in results:
            if not isinstance(value, Value):
                raise ArgumentTypeError(where="compile", expected="values of the graph as results",
                                        got=type(value).__name__,
                                        fix="pass results of input, apply, cast, reduce or cuda")  # fmt: skip
        for value in values_of(results):
            if value.index >= 0 and value not in self.inputs[value.index : value.index + 1]:
                raise ArgumentTypeError(where="compile", expected="values of this graph",
                                        got=f"{value!r} of another graph",
                                        fix="call input() of the graph that compiles it")  # fmt: skip
        return CompiledExpression(self, results, name)

    def _applied(self, row: Operation, operands: Sequence[Any], result: int) -> Value:
        if len(operands) != row.inputs or not 0 <= result < row.results:
            raise ArgumentTypeError(
                where=row.name, expected=f"{row.inputs} operands and a result below {row.results}",
                got=f"{len(operands)} operands, result={result}",
                fix="pass a value for each operand",
            )  # fmt: skip
        return self.record(row, [*map(self._value, operands)], result=result)

    def _value(self, x: Value | Number) -> Value:
        return x if isinstance(x, Value) else self.constant(x)
