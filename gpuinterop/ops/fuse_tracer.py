"""What stands for an array inside of a function that is being fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import row_of
from gpuinterop.errors import ArgumentTypeError

from .catalog import ALIASES, TABLE, Row
from .trace import Graph, Node

__all__ = ["Reduced", "Tracer", "record"]


class Tracer:
    """Stands for an array inside a function that is being fused."""

    __slots__ = ("graph", "node")
    __array_priority__ = 2000.0
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph = graph
        self.node = node

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = ALIASES.get(ufunc.__name__, ufunc.__name__)
        if method != "__call__" or kwargs or name not in TABLE:
            return NotImplemented
        return record(TABLE[name], inputs)

    @staticmethod
    def __gpuinterop_trace__(row: Row, operands: Sequence[Any]) -> Any:
        return record(row, operands)

    def astype(self, dtype: Any) -> Tracer:
        return Tracer(self.graph, Node(TABLE["cast"], (self.node,), cast_to=row_of(dtype)))

    def exp(self) -> Any:
        return record(TABLE["exp"], (self,))

    def clip(self, min: Any = None, max: Any = None) -> Any:
        low = self if min is None else record(TABLE["maximum"], (self, min))
        return low if max is None else record(TABLE["minimum"], (low, max))

    def _reduced(self, op: str, axis: Any, keepdims: bool, dtype: Any, out: Any) -> Reduced:
        if dtype is not None or out is not None:
            raise ArgumentTypeError(where="fuse", expected=f"{op} with axis and keepdims only",
                                    got="dtype or out inside of a fused function",
                                    fix="x.astype(dtype) first; pass out to the fused function")  # fmt: skip
        return Reduced(self.graph, self.node, op, axis, bool(keepdims))

    def __bool__(self) -> bool:
        raise ArgumentTypeError(
            where="fuse",
            expected="a function without branches on the values of arrays",
            got="a truth value of an array that has none yet",
            fix="choose by element: gpuinterop.where(condition, x, y)",
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("item", "tolist", "tobytes", "get"):
            raise _no_value(f"x.{name}()")
        raise ArgumentTypeError(
            where="fuse",
            expected="elementwise operations of gpuinterop or NumPy on the arguments",
            got=f"x.{name}, which is not known while a function is fused",
            fix="use it outside of the fused function",
        )


class Reduced:
    """Stands for a reduced value: it may be returned, and nothing else."""

    __array_ufunc__ = None
    __slots__ = ("axis", "graph", "keepdims", "node", "op")

    def __init__(self, graph: Graph, node: Node, op: str, axis: Any, keepdims: bool) -> None:
        self.graph, self.node, self.op = graph, node, op
        self.axis = tuple(axis) if isinstance(axis, list) else axis
        self.keepdims = keepdims

    @staticmethod
    def __gpuinterop_trace__(row: Row, operands: Sequence[Any]) -> Any:
        raise ArgumentTypeError(
            where="fuse",
            expected="reductions at the end of the function only",
            got=f"an operation ({row.name} or the like) on a reduced value",
            fix="return the reduced value and go on outside of the fused function",
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__gpuinterop_trace__(TABLE.get(name, TABLE["positive"]), ())


def record(row: Row, operands: Sequence[Any]) -> Any:
    """A tracer (or several) for `row` applied to tracers, numbers and arrays."""
    graph = next(o.graph for o in operands if isinstance(o, Tracer))
    nodes = tuple(_node(graph, o, row.name) for o in operands)
    found = tuple(Tracer(graph, Node(row, nodes, result=j)) for j in range(row.results))
    return found if row.results > 1 else found[0]


def _node(graph: Graph, operand: Any, name: str) -> Node:
    if isinstance(operand, Reduced):
        operand.__gpuinterop_trace__(TABLE[name], ())
    if isinstance(operand, Tracer):
        if operand.graph is not graph:
            raise ArgumentTypeError(where="fuse", expected="arguments of one function",
                                    got="a value kept from another fused call",
                                    fix="return it instead of keeping it")  # fmt: skip
        return operand.node
    if isinstance(operand, np.ndarray) and operand.ndim == 0:
        operand = operand[()]
    if isinstance(operand, (bool, int, float, complex, np.generic)):
        return Node(number=operand)
    if isinstance(operand, _core.Array):
        return graph.capture(operand)
    raise ArgumentTypeError(where=name, expected="arrays of this library, and numbers, when fused",
                            got=type(operand).__name__,
                            fix="convert it first: gpuinterop.asarray(value)")  # fmt: skip


def _binary(name: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    def forward(self: Tracer, other: Any) -> Any:
        return record(TABLE[name], (self, other))

    def backward(self: Tracer, other: Any) -> Any:
        return record(TABLE[name], (other, self))

    return forward, backward


for _python, _name in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "divmod": "divmod", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}.items():  # fmt: skip
    _forward, _backward = _binary(_name)
    setattr(Tracer, f"__{_python}__", _forward)
    setattr(Tracer, f"__r{_python}__", _backward)
for _python, _name in {
    "lt": "less", "le": "less_equal", "eq": "equal", "ne": "not_equal", "gt": "greater",
    "ge": "greater_equal",
}.items():  # fmt: skip
    setattr(Tracer, f"__{_python}__", _binary(_name)[0])
for _python, _name in {
    "neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert",
}.items():  # fmt: skip
    setattr(Tracer, f"__{_python}__", lambda self, _row=TABLE[_name]: record(_row, (self,)))


def _no_value(got: str) -> ArgumentTypeError:
    return ArgumentTypeError(
        where="fuse",
        expected="a function that reads no values: it is traced, and nothing is computed meanwhile",
        got=f"{got} inside of it",
        fix="go on with the array itself, or return it and read it outside of the fused function",
    )


def _refusing(got: str) -> Callable[..., Any]:
    def method(self: Tracer, *_arguments: Any, **_options: Any) -> Any:
        raise _no_value(got)

    return method


for _python, _got in {
    "float": "float(x)", "int": "int(x)", "complex": "complex(x)", "index": "x as an index",
    "iter": "a loop over x", "contains": "a search in x", "array": "numpy.asarray(x)",
    "format": "a formatted x", "round": "round(x)", "getitem": "x[index]",
    "setitem": "an assignment to x[index]", "len": "len(x)",
}.items():  # fmt: skip
    setattr(Tracer, f"__{_python}__", _refusing(_got))

# The arithmetic of a reduced value is refused in the words above, not in Python's.
for _python in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul",
    "radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rmatmul",
    "neg", "pos", "abs", "lt", "le", "gt", "ge", "eq", "ne", "bool", "float", "int", "getitem",
):  # fmt: skip
    setattr(
        Reduced,
        f"__{_python}__",
        lambda self, *_others, _row=TABLE["add"]: self.__gpuinterop_trace__(_row, ()),
    )
Reduced.__hash__ = None  # type: ignore[assignment]


def _reduction(op: str) -> Callable[..., Reduced]:
    def method(
        self: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Reduced:
        return self._reduced(op, axis, keepdims, dtype, out)

    return method


for _name in ("sum", "prod", "mean", "min", "max", "any", "all"):
    setattr(Tracer, _name, _reduction(_name))
