"""The graph of an expression: values, their order, dtypes and shapes.

It holds no dtypes: each call determines them by the rules of the single operations. The modules that
generate kernels read the graph through this module; `expression` has the methods that build it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import NAMES
from gpuinterop.errors import ArgumentTypeError, DTypeError, type_name
from gpuinterop.reduce.table import check_not_empty, reduced_shape

from .cuda_text import CudaText
from .dtypes import Operation, Value, is_scalar, kinds_of, loop_of, operand_kinds, strong

Node = TypeVar("Node")


@dataclass
class Graph:
    """Values that are computed from inputs."""

    inputs: list[Value] = field(default_factory=list)
    strict: Sequence[
        bool
    ] = ()  # for each input, whether it is a CudaNdarray, once the operands are known
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

    def record(
        self,
        row: Operation | None,
        operands: Sequence[Value],
        *,
        result: int = 0,
        cast_to: int = -1,
        reduction: tuple[str, tuple[int, ...] | None, bool] | None = None,
        axes: tuple[int, ...] | None = None,
    ) -> Value:
        """Return the value of an operation, which the graph holds once."""
        key = (row, *map(id, operands), result, cast_to, reduction, axes)
        value = Value(row, tuple(operands), result, cast_to, reduction, axes=axes)
        return self.known.setdefault(key, value)

    def order(self) -> list[Value]:
        return values_of(self.results)

    def has_texts(self) -> bool:
        """Return whether a value is computed by CUDA text of a user."""
        return any(isinstance(value.row, CudaText) for value in self.order())

    def signature(self) -> tuple[Any, ...]:
        """Return a key that is equal for graphs of the same operations."""
        places: dict[int, int] = {}
        steps = []
        for value in self.order():
            places[id(value)] = len(places)
            operands = tuple(places[id(o)] for o in value.operands)
            number, place = constant_key(value.number), (value.index, value.weak)
            steps.append((value.row, operands, value.result, value.cast_to, number, place))
        ends = (places[id(value)] for value in self.results)
        return tuple(self.strict), len(self.inputs), *steps, *ends

    def kinds(self, input_kinds: Sequence[int]) -> tuple[dict[int, int], set[int]]:
        """Return the dtype of every value (or its weak kind) and the strict values, for these inputs."""
        return kinds_of(self.order(), input_kinds, self.strict or [False] * len(self.inputs))

    def input_rows(self, input_kinds: Sequence[int]) -> tuple[int, ...]:
        """Return the dtypes in which the inputs are stored; for a number, the dtype of its use."""
        rows = [strong(kind) for kind in input_kinds]
        if any(map(is_scalar, input_kinds)):
            kinds, strict = self.kinds(input_kinds)
            dtypes_of_uses: dict[int, set[int]] = {}
            for value in self.order():
                if value.row is None or value.cast_to >= 0:
                    continue
                ins = loop_of(value.row, operand_kinds(value, kinds, strict))[0]
                for operand, row in zip(value.operands, ins, strict=True):
                    if operand.index < 0 or not is_scalar(input_kinds[operand.index]):
                        continue
                    # A CUDA text converts NumPy scalars too to the dtype that it declares.
                    if input_kinds[operand.index] < 0 or isinstance(value.row, CudaText):
                        dtypes_of_uses.setdefault(operand.index, set()).add(row)
            for index, dtypes in dtypes_of_uses.items():
                if len(dtypes) > 1:
                    raise DTypeError(
                        where="Expression", expected="a number that is used with one dtype",
                        got=", ".join(NAMES[row] for row in sorted(dtypes)),
                        fix="pass a NumPy scalar, or add an input for each use",
                    )  # fmt: skip
                rows[index] = dtypes.pop()
        return tuple(rows)

    def result_rows(self, input_kinds: Sequence[int]) -> tuple[int, ...]:
        """Return the dtypes of the results; a single number has NumPy's default dtype."""
        kinds, _ = self.kinds(input_kinds)
        return tuple(strong(kinds[id(value)]) for value in self.results)

    def strict_results(self, input_kinds: Sequence[int]) -> tuple[bool, ...]:
        """Return for each result whether it is a CudaNdarray."""
        _, strict = self.kinds(input_kinds)
        return tuple(id(value) in strict for value in self.results)


def constant_key(value: Any) -> Any:
    """Return a key that is equal for constants of the same type and value: 0.0, -0.0, 0 and False all differ.

    Raises TypeError for values that cannot be hashed.
    """
    kind = type(value)
    if isinstance(value, tuple):
        return kind, *map(constant_key, value)
    if isinstance(value, frozenset):
        return kind, frozenset(map(constant_key, value))
    if isinstance(value, range):  # equal ranges can end differently
        return kind, value.start, value.stop, value.step
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    # A subclass may hold more than its number, and may define its own equality.
    if isinstance(value, int):
        return kind, int.__index__(value), None if kind in (int, bool) else value
    if isinstance(value, float):
        return kind, struct.pack("d", value), None if kind is float else value
    if isinstance(value, complex):
        parts = struct.pack("2d", value.real, value.imag)
        return kind, parts, None if kind is complex else value
    try:
        hash(value)
    except ValueError as error:  # of a writable memoryview
        raise TypeError(str(error)) from None
    return kind, value


def argument_key(value: Any, where: str, kind: str) -> Any:
    """Return the key of an argument that a fused or captured function keeps as a constant."""
    try:
        return constant_key(value)
    except TypeError:
        raise ArgumentTypeError(
            where=where,
            expected=f"arrays, numbers and hashable constants as arguments of a {kind} function",
            got=type_name(value), fix="convert data first: gpuinterop.asarray(value)",
        ) from None  # fmt: skip


def values_of(results: Sequence[Value]) -> list[Value]:
    """Return the values from which the results are computed, each once and after its operands."""
    return in_order(results, lambda value: value.operands)


def in_order(roots: Sequence[Node], operands_of: Callable[[Node], Sequence[Node]]) -> list[Node]:
    """Return the nodes of a graph, each once and after its operands; no recursion, because graphs can be deep."""
    done: dict[Node, None] = {}
    stack: list[tuple[Node, bool]] = [(node, False) for node in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        operands = () if ready else operands_of(node)
        if not operands:
            done[node] = None
        else:
            stack.append((node, True))
            stack.extend((operand, False) for operand in operands)
    return list(done)


def shapes_of(
    values: Sequence[Value], input_shapes: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """Return the shape of each of the ordered values, for inputs of these shapes."""
    shapes: dict[int, tuple[int, ...]] = {}
    for value in values:
        operands = [shapes[id(o)] for o in value.operands]
        if value.index >= 0:
            shape = input_shapes[value.index]
        elif value.reduction is not None:
            op, axis, keepdims = value.reduction
            axes = _core.read_axes(axis, len(operands[0]), op)
            check_not_empty(op, operands[0], axes)
            shape = reduced_shape(operands[0], axes, keepdims)
        elif value.axes is not None:
            shape = tuple(1 if axis < 0 else operands[0][axis] for axis in value.axes)
        else:
            shape = _core.broadcast_shapes(operands, "fuse")
        shapes[id(value)] = shape
    return shapes
