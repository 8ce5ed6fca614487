"""Expressions recorded instead of computed: what `fuse` sees of a Python function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import NAMES, dtype_of, row_of
from gpuinterop.errors import ArgumentTypeError
from gpuinterop.jit.codegen import STORAGE, WORKING

from .bodies import body_for, substitute
from .catalog import ALIASES, TABLE, Row
from .rules import kind_of, loop_for

__all__ = ["Graph", "Reduced", "Tracer", "record"]


@dataclass(eq=False)
class Node:
    """One operation on earlier nodes, an input, or a number."""

    row: Row | None = None
    operands: tuple[Node, ...] = ()
    result: int = 0  # which result of the row
    cast_to: int = -1  # the dtype of a cast
    number: Any = None
    index: int = -1  # position among the inputs


@dataclass
class Graph:
    """The inputs of a function and what it returned; `captured` are arrays from outside."""

    inputs: list[Node] = field(default_factory=list)
    captured: list[Any] = field(default_factory=list)
    results: list[Node] = field(default_factory=list)

    def add_input(self) -> Node:
        node = Node(index=len(self.inputs))
        self.inputs.append(node)
        return node

    def capture(self, array: Any) -> Node:
        node = self.add_input()
        self.captured.append(array)
        return node

    def order(self) -> list[Node]:
        """Nodes after their operands, each once."""
        done: dict[int, Node] = {}
        stack: list[tuple[Node, bool]] = [(node, False) for node in reversed(self.results)]
        while stack:
            node, ready = stack.pop()
            if id(node) in done:
                continue
            if ready or not node.operands:
                done[id(node)] = node
            else:
                stack.append((node, True))
                stack.extend((operand, False) for operand in node.operands)
        return list(done.values())

    # ---- dtypes -----------------------------------------------------------------------------

    def kinds(self, given: tuple[int, ...]) -> dict[int, int]:
        """The dtype of every node (or its weak kind), for inputs of these kinds."""
        found: dict[int, int] = {}
        for node in self.order():
            found[id(node)] = self._kind(node, given, found)
        return found

    @staticmethod
    def _kind(node: Node, given: tuple[int, ...], found: dict[int, int]) -> int:
        if node.index >= 0:
            return given[node.index]
        if node.row is None:
            return _number_kind(node.number)
        if node.cast_to >= 0:
            return node.cast_to
        kinds = tuple(found[id(o)] for o in node.operands)
        ins, outs = body_for(node.row, kinds)[1]
        for operand, row in zip(node.operands, ins, strict=True):
            if type(operand.number) is int and not node.row.compares:
                _require_fit(operand.number, row, node.row.name)
        return outs[node.result]

    def result_rows(self, given: tuple[int, ...]) -> tuple[int, ...]:
        """Dtypes of the results; a lone number is NumPy's default type."""
        kinds = self.kinds(given)
        return tuple(_strong(kinds[id(node)]) for node in self.results)

    # ---- CUDA text ----------------------------------------------------------------------------

    def statements(self, given: tuple[int, ...]) -> str:
        """Statements that compute o0, o1, ... from a0, a1, ..., rounded after every operation.

        Each value is pinned, so that a product and a sum are not contracted: a fused function gives
        the bits that the single operations give.
        """
        kinds = self.kinds(given)
        names: dict[int, str] = {}
        lines: list[str] = []
        for i, node in enumerate(self.order()):
            if node.index >= 0:
                names[id(node)] = f"a{node.index}"
            elif node.row is not None:
                names[id(node)] = f"t{i}"
                lines.append(self._line(f"t{i}", node, kinds, names))
        for j, node in enumerate(self.results):
            row = _strong(kinds[id(node)])
            value = names.get(id(node)) or _literal(node.number, row)
            lines.append(f"o{j} = gi_to<{WORKING[NAMES[row]]}>({value});")
        return "\n  ".join(lines)

    def _line(self, name: str, node: Node, kinds: dict[int, int], names: dict[int, str]) -> str:
        assert node.row is not None
        operands = tuple(kinds[id(o)] for o in node.operands)
        ins: tuple[int, ...]
        if node.cast_to >= 0:
            ins = (_strong(operands[0]),)
            out = NAMES[node.cast_to]
            expression = "x"
        else:
            ins, outs = loop_for(node.row, operands)
            out = NAMES[outs[node.result]]
            text = node.row.expression(kind_of(ins[node.row.kinds_from]))
            assert text is not None  # kinds() asked body_for, which refuses
            expression = text.split(";")[node.result].strip()
        values = tuple(
            f"gi_to<{WORKING[NAMES[row]]}>({names[id(o)]})"
            if id(o) in names
            else _literal(o.number, row)
            for o, row in zip(node.operands, ins, strict=True)
        )
        bound = tuple(f"{name}_{letter}" for letter in "xyz"[: len(values)])
        types = [WORKING[NAMES[row]] for row in ins]
        declared = " ".join(
            f"const {t} {b} = {v};" for t, b, v in zip(types, bound, values, strict=True)
        )
        value = f"gi_to<{WORKING[out]}>({substitute(expression, bound)})"
        if WORKING[out] != STORAGE[out]:
            value = f"gi_read(gi_to<{STORAGE[out]}>({value}))"
        return f"{declared} {WORKING[out]} {name} = {value};"


def _number_kind(number: Any) -> int:
    if isinstance(number, np.generic):
        return 64 + row_of(number.dtype)
    if isinstance(number, bool):
        return 64
    return -1 if isinstance(number, int) else -2 if isinstance(number, float) else -3


def _require_fit(number: int, row: int, where: str) -> None:
    """Refuse what the operation alone refuses: a Python integer that its type cannot hold."""
    dtype = dtype_of(row)
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
        raise OverflowError(
            f"{where}: Python integer {number} is out of bounds for {dtype}\n"
            "  fix: cast the array to a wider type first: x.astype('int64')"
        )


def _strong(kind: int) -> int:
    if kind >= 0:
        return kind % 64
    return NAMES.index({-1: "int64", -2: "float64", -3: "complex128"}[kind])


def _real(value: float, working: str) -> str:
    if math.isnan(value):
        return f"({working})gi_double(0x7ff8000000000000ull)"
    if math.isinf(value):
        return f"({working})gi_double({'0x7ff' if value > 0 else '0xfff'}0000000000000ull)"
    return f"({working}){value.hex()}"


def _literal(number: Any, row: int) -> str:
    """The number in the working type of a dtype, rounded to the dtype first."""
    name = NAMES[row]
    working = WORKING[name]
    plain = number.item() if isinstance(number, np.generic) else number
    kind = kind_of(row)
    if kind == "b":
        return "true" if plain else "false"
    if kind in "iu":
        held = int(np.asarray(plain, dtype=dtype_of(row)))
        return (
            f"({working}){held}{'ull' if kind == 'u' else 'll'}"
            if held >= 0
            else f"({working})(-{-held - 1}ll - 1)"
        )
    if kind == "c":
        value = complex(plain)
        part = "float" if name == "complex64" else "double"
        return f"gi_make({_real(value.real, part)}, {_real(value.imag, part)})"
    rounded = float(np.asarray(plain).astype(dtype_of(row)).astype(np.float64))
    return _real(rounded, working)


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
