"""Expressions recorded instead of computed: the graph of a fused function and its CUDA text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuinterop.dtypes import NAMES, dtype_from_id, dtype_id
from gpuinterop.errors import ArgumentTypeError, BoundsError, RangeError, short_repr
from gpuinterop.jit.codegen import STORAGE, WORKING

from .core_callbacks import require_exact_in
from .dtype_promotion import STRONG_NUMBER, dtype_kind, loop_dtypes, row_of_kind
from .fuse_literals import literal
from .fuse_numbers import Number, described
from .fuse_shapes import shapes_of
from .kernel_bodies import body_for, substitute
from .operation_table import Row
from .reduction_table import REDUCTIONS

__all__ = [
    "Graph", "Node", "input_kind", "is_strict", "kinds_of", "met", "ordered", "settled", "strong",
]  # fmt: skip

_STRICT = np.dtype(np.float32)  # what a CudaNdarray holds


@dataclass(eq=False)
class Node:
    """One operation on earlier nodes, a reduction of one, an input, or a number."""

    row: Row | None = None
    operands: tuple[Node, ...] = ()
    result: int = 0  # which result of the row
    cast_to: int = -1  # the dtype of a cast
    reduction: tuple[str, Any, bool] | None = None  # operation, axis, keepdims
    number: Any = None
    index: int = -1  # position among the inputs
    weak: bool = False  # a number that each call gives: an input for one of its uses

    @property
    def is_leaf(self) -> bool:
        """Whether a kernel reads it instead of computing it."""
        return self.index >= 0 or self.reduction is not None


@dataclass
class Graph:
    """The inputs of a function and what it returned; `captured` are arrays from outside."""

    inputs: list[Node] = field(default_factory=list)
    captured: list[Any] = field(default_factory=list)
    strict: Sequence[bool] = ()  # which inputs are CudaNdarrays, once it is known
    results: list[Node] = field(default_factory=list)
    # The same operation on the same nodes is one node.
    known: dict[tuple[Any, ...], Node] = field(default_factory=dict)
    given: Sequence[Any] = ()  # the arguments, while the function is traced
    asked: bool = False  # whether the trace depends on their shapes or dtypes
    read: set[int] = field(default_factory=set)  # positions of numbers that were looked at

    def add_input(self) -> Node:
        node = Node(index=len(self.inputs))
        self.inputs.append(node)
        return node

    def capture(self, array: Any) -> Node:
        for node, other in zip(self.inputs[-len(self.captured) :], self.captured, strict=False):
            if other is array:
                return node
        node = self.add_input()
        self.captured.append(array)
        return node

    def is_own(self, operand: Any) -> bool:
        """Whether an operand is a number that each call of the traced function gives."""
        return type(operand) is Number and operand.read is self.read

    def parameter(self, number: Number, use: tuple[Any, ...]) -> Node:
        """An input for one use of a number, which takes on the dtype that it has there."""
        key = (number.key, *use)
        node = self.known.get(key)
        if node is None:
            node = self.known[key] = self.add_input()
            node.weak = True
            self.captured.append(number)
        return node

    def number(self, value: Any) -> Node:
        # As text, because 0.0 equals -0.0 and a NaN nothing.
        return self.known.setdefault((type(value), repr(value)), Node(number=value))

    def record(
        self,
        row: Row | None,
        operands: Sequence[Node],
        *,
        result: int = 0,
        cast_to: int = -1,
        reduction: tuple[str, Any, bool] | None = None,
    ) -> Node:
        key = (row, *map(id, operands), result, cast_to, repr(reduction))
        made = Node(row, tuple(operands), result, cast_to, reduction)
        return self.known.setdefault(key, made)

    def shape(self, node: Node) -> tuple[int, ...]:
        """The shape of a value for the arguments at hand."""
        nodes = ordered([node], through=True)
        given = {n.index: described(self._array(n.index))[0] for n in nodes if n.index >= 0}
        return shapes_of(nodes, given)[id(node)]

    def dtype(self, node: Node) -> np.dtype[Any]:
        """The dtype of a value for the arguments at hand."""
        nodes = ordered([node], through=True)
        arrays = {n.index: self._array(n.index) for n in nodes if n.index >= 0}
        given = {i: input_kind(x) for i, x in arrays.items()}
        strict = {i: is_strict(x) for i, x in arrays.items()}
        return np.dtype(dtype_from_id(strong(kinds_of(nodes, given, strict)[0][id(node)])))

    def _array(self, index: int) -> Any:
        if index >= len(self.inputs) - len(self.captured):
            found = self.captured[index - len(self.inputs)]
            return found.value if type(found) is Number else found
        if not self.given:
            raise ArgumentTypeError(where="fuse", expected="arguments of one function",
                                    got="a value kept from another fused call",
                                    fix="return it instead of keeping it")  # fmt: skip
        self.asked = True
        return self.given[index]

    def order(self) -> list[Node]:
        """The nodes that the results are computed from: after their operands, each once."""
        return ordered(self.results)

    def signature(self) -> tuple[Any, ...]:
        """Equal for graphs that compute the same in the same way."""
        places: dict[int, int] = {}
        steps = []
        for node in self.order():
            places[id(node)] = len(places)
            number = (type(node.number), repr(node.number))
            operands = tuple(places[id(o)] for o in node.operands)
            place = (node.index, node.weak)
            steps.append((node.row, operands, node.result, node.cast_to, number, place))
        return (
            tuple(self.strict),
            len(self.inputs),
            *steps,
            *(places[id(node)] for node in self.results),
        )

    # ---- dtypes -----------------------------------------------------------------------------

    def kinds(self, given: tuple[int, ...]) -> tuple[dict[int, int], set[int]]:
        """The dtype of every node (or its weak kind) and the strict ones, for inputs of these kinds."""
        return kinds_of(self.order(), given, self.strict or [False] * len(self.inputs))

    def input_rows(self, given: tuple[int, ...]) -> tuple[int, ...]:
        """What the inputs are stored as: a number as the dtype of its use."""
        rows = [kind if kind >= 0 else strong(kind) for kind in given]
        if min(given, default=0) < 0:
            kinds, strict = self.kinds(given)
            for node in self.order():
                if node.row is None or not any(operand.weak for operand in node.operands):
                    continue
                ins = loop_dtypes(node.row, met(node, kinds, strict))[0]
                for operand, row in zip(node.operands, ins, strict=True):
                    if operand.weak:
                        rows[operand.index] = row
        return tuple(rows)

    def result_rows(self, given: tuple[int, ...]) -> tuple[int, ...]:
        """Dtypes of the results; a lone number is NumPy's default type."""
        kinds, _ = self.kinds(given)
        return tuple(strong(kinds[id(node)]) for node in self.results)

    def strict_results(self, given: tuple[int, ...]) -> tuple[bool, ...]:
        """Which results are CudaNdarrays."""
        _, strict = self.kinds(given)
        return tuple(id(node) in strict for node in self.results)

    # ---- CUDA text ----------------------------------------------------------------------------

    def statements(self, given: tuple[int, ...]) -> str:
        """Statements that compute o0, o1, ... from a0, a1, ..., rounded after every operation.

        Each value is pinned, so that a product and a sum are not contracted: a fused function gives
        the bits that the single operations give.
        """
        kinds, strict = self.kinds(given)
        names: dict[int, str] = {}
        lines: list[str] = []
        for i, node in enumerate(self.order()):
            if node.index >= 0:
                names[id(node)] = f"a{node.index}"
            elif node.row is not None:
                names[id(node)] = f"t{i}"
                lines.append(self._line(f"t{i}", node, met(node, kinds, strict), names))
        for j, node in enumerate(self.results):
            row = strong(kinds[id(node)])
            value = names.get(id(node)) or literal(node.number, row)
            lines.append(f"o{j} = gi_to<{WORKING[NAMES[row]]}>({value});")
        return "\n  ".join(lines)

    def _line(self, name: str, node: Node, operands: tuple[int, ...], names: dict[int, str]) -> str:
        assert node.row is not None
        ins: tuple[int, ...]
        if node.cast_to >= 0:
            ins = (strong(operands[0]),)
            out = NAMES[node.cast_to]
            expression = "x"
        else:
            ins, outs = loop_dtypes(node.row, operands)
            out = NAMES[outs[node.result]]
            text = node.row.expression(dtype_kind(ins[node.row.kinds_from]))
            assert text is not None  # kinds() asked body_for, which refuses
            expression = text.split(";")[node.result].strip()
        numbers = settled(node, ins) or tuple(o.number for o in node.operands)
        values = tuple(
            f"gi_to<{WORKING[NAMES[row]]}>({names[id(o)]})"
            if number is None
            else literal(number, row)
            for o, number, row in zip(node.operands, numbers, ins, strict=True)
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


def ordered(results: Sequence[Node], *, through: bool = False) -> list[Node]:
    """Nodes after their operands, each once; what reductions are computed from only on demand."""
    done: dict[int, Node] = {}
    stack: list[tuple[Node, bool]] = [(node, False) for node in reversed(results)]
    while stack:
        node, ready = stack.pop()
        if id(node) in done:
            continue
        operands = node.operands if through or node.reduction is None else ()
        if ready or not operands:
            done[id(node)] = node
        else:
            stack.append((node, True))
            stack.extend((operand, False) for operand in operands)
    return list(done.values())


def kinds_of(
    nodes: Sequence[Node],
    given: Mapping[int, int] | Sequence[int],
    inputs: Mapping[int, bool] | Sequence[bool],
) -> tuple[dict[int, int], set[int]]:
    """The dtype of each of the ordered nodes, or its weak kind; and those that are strict.

    Without `fuse` a strict one would be a CudaNdarray: float32, and computed from another.
    """
    found: dict[int, int] = {}
    strict: set[int] = set()
    for node in nodes:
        kind = found[id(node)] = _kind(node, given, found, strict)
        among = any(id(o) in strict for o in node.operands)
        if inputs[node.index] if node.index >= 0 else among and kind == dtype_id(_STRICT):
            strict.add(id(node))
    return found, strict


def met(node: Node, kinds: Mapping[int, int], strict: set[int]) -> tuple[int, ...]:
    """The kinds of the operands of `node`; beside a CudaNdarray NumPy's scalars are plain numbers."""
    found = tuple(kinds[id(o)] for o in node.operands)
    if not any(id(o) in strict for o in node.operands):
        return found
    first = next(o for o in node.operands if o.row is not None or (o.is_leaf and not o.weak))
    if id(first) in strict:
        found = tuple(
            _number_kind(o.number.item()) if isinstance(o.number, np.generic) else k
            for o, k in zip(node.operands, found, strict=True)
        )
    if node.row is not None and node.cast_to < 0:
        require_exact_in(node.row.name, _STRICT, found)
    return found


def is_strict(x: Any) -> bool:
    """Whether `x` is of a class of one dtype, which numbers beside it take on."""
    return getattr(type(x), "_only", None) is not None


def _kind(
    node: Node, given: Mapping[int, int] | Sequence[int], found: dict[int, int], strict: set[int]
) -> int:
    if node.index >= 0:
        return given[node.index]
    if node.reduction is not None:
        of = dtype_from_id(strong(found[id(node.operands[0])]))
        return dtype_id(REDUCTIONS[node.reduction[0]].result(of))
    if node.row is None:
        return _number_kind(node.number)
    if node.cast_to >= 0:
        return node.cast_to
    ins, outs = body_for(node.row, met(node, found, strict))[1]
    if not node.row.compares:
        for operand, row in zip(node.operands, ins, strict=True):
            if type(operand.number) is int:
                _require_fit(operand.number, row, node.row.name)
    if node.row.name == "power":
        _require_exponent(node.operands[1].number, ins[1])
    return outs[node.result]


def input_kind(x: Any) -> int:
    """The kind of an argument, as the core calls it."""
    if isinstance(x, (int, float, complex)) and not isinstance(x, np.generic):
        return _number_kind(x)
    dtype = described(x)[1]
    if not isinstance(dtype, np.dtype):
        raise ArgumentTypeError(where="fuse", expected="arrays of this library where dtypes are asked for",
                                got=type(x).__name__,
                                fix="convert it first: gpuinterop.asarray(value)")  # fmt: skip
    return dtype_id(dtype) + STRONG_NUMBER * isinstance(x, np.generic)


def _number_kind(number: Any) -> int:
    if isinstance(number, np.generic):
        return STRONG_NUMBER + dtype_id(number.dtype)
    if isinstance(number, bool):
        return STRONG_NUMBER + dtype_id(bool)
    return -1 if isinstance(number, int) else -2 if isinstance(number, float) else -3


def settled(node: Node, ins: Sequence[int]) -> tuple[int, int] | None:
    """Numbers that compare as the operands of `node` do, where one is a Python integer that the
    other's type cannot hold: the answer is then the same for all elements.
    """
    if node.row is None or not node.row.compares:
        return None
    for i, (operand, row) in enumerate(zip(node.operands, ins, strict=True)):
        if type(operand.number) is int and not _fits(operand.number, row):
            above = int(operand.number > 0)
            return (above, 1 - above) if i == 0 else (1 - above, above)
    return None


_FLOATS_END = 2**1024 - 2**970  # from here on float() overflows


def _fits(number: int, row: int) -> bool:
    dtype = dtype_from_id(row)
    return dtype.kind not in "iu" or bool(np.iinfo(dtype).min <= number <= np.iinfo(dtype).max)


def _require_exponent(number: Any, row: int) -> None:
    """Refuse what the operation alone refuses: integers to the power of a negative number."""
    if number is not None and dtype_kind(row) == "i" and number < 0:
        raise BoundsError(where="power", expected="an exponent of 0 or more for integers",
                          got="a negative number",
                          fix="cast the base to a float: x.astype('float64')")  # fmt: skip


def _require_fit(number: int, row: int, where: str) -> None:
    """Refuse what the operation alone refuses: a Python integer that its type cannot hold."""
    whole = dtype_from_id(row).kind in "iu"
    if not _fits(number, row) or not (whole or abs(number) < _FLOATS_END):
        raise RangeError(where=where, got=short_repr(number),
                         expected=f"a Python integer that {dtype_from_id(row) if whole else 'float64'} holds",
                         fix=f"cast the array to a wider type first: x.astype('{_wider_for(number, row)}')"
                         if whole else "pass float('inf') for infinity")  # fmt: skip


def _wider_for(number: int, row: int) -> str:
    """A type that holds the number beside the elements of the array, as the core names it."""
    unsigned = ("uint64",) if dtype_from_id(row).kind == "u" else ()
    return next((t for t in ("int64", *unsigned) if _fits(number, NAMES.index(t))), "float64")


def strong(kind: int) -> int:
    """The dtype of a kind: a number of Python's has NumPy's default."""
    if kind >= 0:
        return row_of_kind(kind)
    return NAMES.index({-1: "int64", -2: "float64", -3: "complex128"}[kind])
