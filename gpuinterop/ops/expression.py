"""Expressions of array elements: a graph of operations that compiles to as few kernels as possible.

`fuse`, `ElementwiseKernel` and other packages build a graph with `Expression`. The graph holds no
dtypes: each call decides them by the rules of the single operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gpuinterop.dtypes import NAMES, dtype_id
from gpuinterop.errors import ArgumentTypeError, DTypeError
from gpuinterop.layout import broadcast_shapes
from gpuinterop.views import read_reduced_axes

from .cuda_text import CudaText
from .expression_dtypes import (
    Operation,
    Value,
    is_number_kind,
    kinds_of,
    loop_of,
    met,
    strong,
)
from .operation_table import ALIASES, TABLE
from .reduction_table import FUSED

if TYPE_CHECKING:
    from .expression_stages import CompiledExpression

__all__ = ["CudaText", "Expression", "Value"]

Number: TypeAlias = "bool | int | float | complex | np.generic[Any]"


@dataclass
class Expression:
    """A graph under construction.

    Examples
    --------
    >>> import gpuinterop
    >>> from gpuinterop.ops.expression import Expression
    >>> graph = Expression()
    >>> x, y = graph.input(), graph.input()
    >>> distance = graph.apply("sqrt", graph.apply("add", graph.apply("square", x), y))
    >>> total = graph.reduce("sum", graph.cast(distance, "float64"))
    >>> both = graph.compile([distance, total], name="distance")
    >>> a = gpuinterop.asarray([3.0, 4.0], device="cpu")
    >>> [value.tolist() for value in both(a, 0)]
    [[3.0, 4.0], 7.0]
    """

    inputs: list[Value] = field(default_factory=list)
    strict: Sequence[bool] = ()  # which inputs are CudaNdarrays, once the operands are known
    results: list[Value] = field(default_factory=list)
    # The same operation on the same values is one value.
    known: dict[tuple[Any, ...], Value] = field(default_factory=dict)

    def input(self, *, weak: bool = False) -> Value:
        """Add an input: an array of any dtype, or a number, that each call passes.

        `weak`: it is a Python number in every call.
        """
        value = Value(index=len(self.inputs), weak=weak)
        self.inputs.append(value)
        return value

    def constant(self, number: Number) -> Value:
        """Return a number as a value: Python's are weakly typed, NumPy's keep their dtype."""
        if not isinstance(number, (bool, int, float, complex, np.generic)):
            raise ArgumentTypeError(where="constant", expected="a Python or NumPy number",
                                    got=type(number).__name__, fix="pass arrays as inputs")  # fmt: skip
        return self.known.setdefault(constant_key(number), Value(number=number))

    def apply(self, name: str, *operands: Value | Number, result: int = 0) -> Value:
        """Apply an elementwise operation of gpuinterop; `result` selects one of several results.

        Examples
        --------
        >>> from gpuinterop.ops.expression import Expression
        >>> graph = Expression()
        >>> remainder = graph.apply("divmod", graph.input(), 7, result=1)
        """
        row = TABLE.get(ALIASES.get(name, name))
        if row is None or row.name == "cast":
            raise ArgumentTypeError(where="apply", expected="the name of an elementwise operation",
                                    got=repr(name), fix="pass a name such as 'add' or 'where'")  # fmt: skip
        return self._applied(row, operands, result)

    def cast(self, x: Value, dtype: Any) -> Value:
        """Convert the elements to a dtype, as `GpuArray.astype` does."""
        return self.record(TABLE["cast"], (x,), cast_to=dtype_id(dtype, "astype"))

    def reduce(self, name: str, x: Value, axis: Any = None, keepdims: bool = False) -> Value:
        """Reduce over an axis, several axes, or all (None): sum, prod, mean, min, max, any or all.

        Examples
        --------
        >>> from gpuinterop.ops.expression import Expression
        >>> graph = Expression()
        >>> x = graph.input()
        >>> centred = graph.compile([graph.apply("subtract", x, graph.reduce("mean", x))])
        >>> import gpuinterop
        >>> centred(gpuinterop.asarray([1.0, 3.0], device="cpu")).tolist()
        [-1.0, 1.0]
        """
        if name not in FUSED:
            raise ArgumentTypeError(where="reduce", expected=f"one of {', '.join(FUSED)}",
                                    got=repr(name), fix="call the method of the array")  # fmt: skip
        axis = tuple(axis) if isinstance(axis, list) else axis
        return self.record(None, (x,), reduction=(name, axis, bool(keepdims)))

    def cuda(self, text: CudaText, *operands: Value | Number, result: int = 0) -> Value:
        """Apply CUDA text to the values; `result` selects one of its outputs.

        Examples
        --------
        >>> import gpuinterop
        >>> from gpuinterop.ops.expression import CudaText, Expression
        >>> lerp = CudaText("T x, T y, T t", "T z", "z = x + (y - x) * t", "lerp",
        ...                 host=lambda x, y, t: x + (y - x) * t)
        >>> graph = Expression()
        >>> x, y = graph.input(), graph.input()
        >>> between = graph.compile([graph.cuda(lerp, x, y, 0.25)])
        >>> between(*(gpuinterop.asarray([v], device="cpu") for v in (0.0, 8.0))).tolist()
        [2.0]
        """
        return self._applied(text, operands, result)

    def compile(self, results: Sequence[Value], name: str = "expression") -> CompiledExpression:
        """Return a callable of the inputs that computes the results: one, or a tuple of several.

        It takes arrays and numbers, and ``out=`` as `fuse` does. Results and dtypes are those of the
        same operations on arrays, one after the other.
        """
        from .expression_stages import CompiledExpression  # which is built on this module

        return CompiledExpression(self, results, name)

    def _applied(self, row: Operation, operands: Sequence[Any], result: int) -> Value:
        if len(operands) != row.inputs or not 0 <= result < row.results:
            raise ArgumentTypeError(
                where=row.name, expected=f"{row.inputs} operands and a result below {row.results}",
                got=f"{len(operands)} operands, result={result}",
                fix="pass a value for each operand",
            )  # fmt: skip
        values = [x if isinstance(x, Value) else self.constant(x) for x in operands]
        return self.record(row, values, result=result)

    def record(
        self,
        row: Operation | None,
        operands: Sequence[Value],
        *,
        result: int = 0,
        cast_to: int = -1,
        reduction: tuple[str, Any, bool] | None = None,
    ) -> Value:
        """The value of an operation, which the graph holds once."""
        key = (row, *map(id, operands), result, cast_to, repr(reduction))
        return self.known.setdefault(key, Value(row, tuple(operands), result, cast_to, reduction))

    def order(self) -> list[Value]:
        """The values that the results are computed from: after their operands, each once."""
        return ordered(self.results)

    def signature(self) -> tuple[Any, ...]:
        """Equal for graphs that compute the same in the same way."""
        places: dict[int, int] = {}
        steps = []
        for value in self.order():
            places[id(value)] = len(places)
            operands = tuple(places[id(o)] for o in value.operands)
            number, place = constant_key(value.number), (value.index, value.weak)
            steps.append((value.row, operands, value.result, value.cast_to, number, place))
        ends = (places[id(value)] for value in self.results)
        return tuple(self.strict), len(self.inputs), *steps, *ends

    # ---- dtypes -----------------------------------------------------------------------------

    def kinds(self, given: Sequence[int]) -> tuple[dict[int, int], set[int]]:
        """The dtype of every value (or its weak kind) and the strict ones, for these inputs."""
        return kinds_of(self.order(), given, self.strict or [False] * len(self.inputs))

    def input_rows(self, given: Sequence[int]) -> tuple[int, ...]:
        """The dtypes that the inputs are stored in: for a number, the dtype of its use."""
        rows = [strong(kind) for kind in given]
        if any(map(is_number_kind, given)):
            kinds, strict = self.kinds(given)
            used: dict[int, set[int]] = {}
            for value in self.order():
                if value.row is None or value.cast_to >= 0:
                    continue
                ins = loop_of(value.row, met(value, kinds, strict))[0]
                for operand, row in zip(value.operands, ins, strict=True):
                    if operand.index < 0 or not is_number_kind(given[operand.index]):
                        continue
                    # A CUDA text converts NumPy scalars too to the dtype that it declares.
                    if given[operand.index] < 0 or isinstance(value.row, CudaText):
                        used.setdefault(operand.index, set()).add(row)
            for index, dtypes in used.items():
                if len(dtypes) > 1:
                    raise DTypeError(
                        where="Expression", expected="a number that is used with one dtype",
                        got=", ".join(NAMES[row] for row in sorted(dtypes)),
                        fix="pass a NumPy scalar, or add an input for each use",
                    )  # fmt: skip
                rows[index] = dtypes.pop()
        return tuple(rows)

    def result_rows(self, given: Sequence[int]) -> tuple[int, ...]:
        """Dtypes of the results; a lone number is NumPy's default type."""
        kinds, _ = self.kinds(given)
        return tuple(strong(kinds[id(value)]) for value in self.results)

    def strict_results(self, given: Sequence[int]) -> tuple[bool, ...]:
        """Which results are CudaNdarrays."""
        _, strict = self.kinds(given)
        return tuple(id(value) in strict for value in self.results)


def constant_key(value: Any) -> Any:
    """Equal for constants of one type and exactly the same value: 0.0, -0.0, 0 and False all differ.

    Raises TypeError for values that cannot be hashed.
    """
    kind = type(value)
    if isinstance(value, tuple):
        return kind, *map(constant_key, value)
    if isinstance(value, frozenset):
        return kind, frozenset(map(constant_key, value))
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    if isinstance(value, float):
        # A subclass may hold more than its number.
        return kind, float.hex(value), None if kind is float else value
    if isinstance(value, complex):
        parts = float.hex(value.real), float.hex(value.imag)
        return kind, parts, None if kind is complex else value
    hash(value)
    return kind, value


def ordered(results: Sequence[Value], *, through: bool = False) -> list[Value]:
    """Values after their operands, each once; operands of reductions only on demand."""
    done: dict[int, Value] = {}
    stack: list[tuple[Value, bool]] = [(value, False) for value in reversed(results)]
    while stack:
        value, ready = stack.pop()
        if id(value) in done:
            continue
        operands = value.operands if through or value.reduction is None else ()
        if ready or not operands:
            done[id(value)] = value
        else:
            stack.append((value, True))
            stack.extend((operand, False) for operand in operands)
    return list(done.values())


def shapes_of(
    values: Sequence[Value], given: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """The shape of each of the ordered values, for inputs of the shapes in `given`."""
    found: dict[int, tuple[int, ...]] = {}
    for value in values:
        shapes = [found[id(o)] for o in value.operands]
        if value.index >= 0:
            shape = given[value.index]
        elif value.reduction is not None:
            op, axis, keepdims = value.reduction
            axes = read_reduced_axes(axis, len(shapes[0]), op)
            extents = [1 if i in axes else n for i, n in enumerate(shapes[0])]
            shape = tuple(n for i, n in enumerate(extents) if keepdims or i not in axes)
        else:
            shape = broadcast_shapes(shapes, "fuse")
        found[id(value)] = shape
    return found
