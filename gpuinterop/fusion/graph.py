"""The graph of an expression: values, their order, dtypes and shapes.

It holds no dtypes: each call determines them by the rules of the single operations. The modules that
generate kernels read the graph through this module; `expression` has the methods that build it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import NAMES, dtype_from_id, dtype_id
from gpuinterop.elementwise.promotion import (
    STRONG_NUMBER,
    WEAK,
    WEAK_COMPLEX,
    Loop,
    body_for,
    id_of_code,
    letter_of,
    loop_dtypes,
    require_exact_in,
)
from gpuinterop.elementwise.table import Row
from gpuinterop.errors import BoundsError, DTypeError
from gpuinterop.errors.arguments import constant_key
from gpuinterop.errors.messages import integer_out_of_range, negative_exponent
from gpuinterop.reduce.table import REDUCTIONS, check_not_empty, reduced_shape

from .cuda_text import CudaText

# ---- values and their dtypes --------------------------------------------------------------------


_STRICT = np.dtype(np.float32)  # the dtype of a CudaNdarray

Operation: TypeAlias = Row | CudaText


@dataclass(eq=False, repr=False)
class Value:
    """An input, a constant, or the result of an operation, a reduction or a dimshuffle in an `Expression`.

    The code generator reads its attributes. Other packages only pass values to the methods of the graph.
    """

    row: Operation | None = None
    operands: tuple[Value, ...] = ()
    result: int = 0  # which result of the row
    cast_to: int = -1  # the dtype of a cast
    reduction: tuple[str, tuple[int, ...] | None, bool] | None = None  # operation, axes, keepdims
    number: Any = None
    index: int = -1  # position among the inputs
    weak: bool = False  # an input that is a Python number in every call
    axes: tuple[int, ...] | None = None  # of a dimshuffle: the operand's axis, or -1 for a new one

    def __repr__(self) -> str:
        # Without the operands: values are shared, so the text could grow exponentially.
        if self.index >= 0:
            return f"<input {self.index}>"
        if self.reduction is not None:
            return f"<value of {self.reduction[0]}>"
        if self.axes is not None:
            return f"<value with axes {self.axes}>"
        return f"<constant {self.number!r}>" if self.row is None else f"<value of {self.row.name}>"


def loop_of(row: Operation, codes: tuple[int, ...]) -> Loop:
    """Return the dtypes of the operands and the results of an operation."""
    return row.loop(codes) if isinstance(row, CudaText) else loop_dtypes(row, codes)


def codes_of(
    values: Sequence[Value],
    input_codes: Mapping[int, int] | Sequence[int],
    strict_inputs: Mapping[int, bool] | Sequence[bool],
) -> tuple[dict[int, int], set[int]]:
    """Return the dtype of each of the ordered values, or its weak code, and the strict values.

    A strict value would be a CudaNdarray in single operations: float32, computed from another.
    """
    codes: dict[int, int] = {}
    strict: set[int] = set()
    for value in values:
        code = codes[id(value)] = _code(value, input_codes, codes, strict)
        among = any(id(o) in strict for o in value.operands)
        if strict_inputs[value.index] if value.index >= 0 else among and code == dtype_id(_STRICT):
            strict.add(id(value))
    return codes, strict


def operand_codes(value: Value, codes: Mapping[int, int], strict: set[int]) -> tuple[int, ...]:
    """Return the type codes of the operands of `value`; with a CudaNdarray, NumPy scalars are Python's."""
    operands = tuple(codes[id(o)] for o in value.operands)
    if not any(id(o) in strict for o in value.operands):
        return operands
    first = next((o for o in value.operands if o.number is None and not o.weak), None)
    if first is not None and id(first) in strict:
        operands = tuple(
            code_of_number(o.number.item()) if isinstance(o.number, np.generic) else k
            for o, k in zip(value.operands, operands, strict=True)
        )
    # A CUDA text declares the dtypes of its operands itself.
    if isinstance(value.row, Row) and value.cast_to < 0:
        require_exact_in(value.row.name, _STRICT, operands)
    return operands


def _code(
    value: Value, inputs: Mapping[int, int] | Sequence[int], codes: dict[int, int], strict: set[int]
) -> int:
    if value.index >= 0:
        return inputs[value.index]
    if value.axes is not None:
        return codes[id(value.operands[0])]
    if value.reduction is not None:
        of = dtype_from_id(strong(codes[id(value.operands[0])]))
        return dtype_id(REDUCTIONS[value.reduction[0]].result(of))
    if value.row is None:
        return code_of_number(value.number)
    if value.cast_to >= 0:
        return value.cast_to
    operands = operand_codes(value, codes, strict)
    if isinstance(value.row, CudaText):
        return value.row.loop(operands)[1][value.result]
    ins, outs = body_for(value.row, operands)[1]
    if not value.row.compares:
        for operand, row in zip(value.operands, ins, strict=True):
            # Raise the same error as the single operation.
            if type(operand.number) is int and not _fits(operand.number, row):
                dtype, wider = dtype_from_id(row), "float64"
                if dtype.kind not in "iu":
                    dtype, wider = np.dtype(wider), ""
                raise integer_out_of_range(value.row.name, operand.number, dtype, wider)
    if value.row.name == "power":
        _require_exponent(value.operands[1], ins[1], operands[1])
    return outs[value.result]


def is_strict(x: Any) -> bool:
    """Return whether `x` is of a class of one dtype, to which scalars in the same operation are converted."""
    return getattr(type(x), "_only", None) is not None


def is_scalar(code: int) -> bool:
    """Return whether an operand of this code is a scalar, Python's or NumPy's."""
    return code < 0 or code >= STRONG_NUMBER


def code_of_number(number: Any) -> int:
    """Return the core's type code of a number."""
    if isinstance(number, np.generic):
        return STRONG_NUMBER + dtype_id(number.dtype)
    if isinstance(number, bool):
        return STRONG_NUMBER + dtype_id(bool)
    return next((code for code, cls in WEAK.items() if isinstance(number, cls)), WEAK_COMPLEX)


def constant_comparison(value: Value, ins: Sequence[int]) -> tuple[int, int] | None:
    """Return two numbers that compare as the operands of `value` do, or None.

    There are such numbers if one operand is a Python integer that the other's dtype cannot hold: the result is
    then the same for all elements.
    """
    if value.row is None or not value.row.compares:
        return None
    for i, (operand, row) in enumerate(zip(value.operands, ins, strict=True)):
        if type(operand.number) is int and not _fits(operand.number, row):
            above = int(operand.number > 0)
            return (above, 1 - above) if i == 0 else (1 - above, above)
    return None


_FLOATS_END = 2**1024 - 2**970  # from here on float() overflows


def _fits(number: int, type_id: int) -> bool:
    dtype = dtype_from_id(type_id)
    if dtype.kind in "iu":
        return bool(np.iinfo(dtype).min <= number <= np.iinfo(dtype).max)
    return abs(number) < _FLOATS_END


def _require_exponent(exponent: Value, type_id: int, code: int) -> None:
    """Refuse integers to the power of a negative number, as the single operation does."""
    if letter_of(type_id) != "i":
        return
    if exponent.weak or code < 0 <= exponent.index:
        raise BoundsError(where="power", expected="a constant exponent for integers",
                          got="an int that each call passes",
                          fix="name it in static_argnames= of fuse, or cast: x.astype('float64')")  # fmt: skip
    if exponent.number is not None and exponent.number < 0:
        raise negative_exponent("power")


def strong(code: int) -> int:
    """Return the dtype of a type code; a Python number has NumPy's default dtype."""
    if code >= 0:
        return id_of_code(code)
    return NAMES.index(np.dtype(WEAK[code]).name)


# ---- the graph ----------------------------------------------------------------------------------


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

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "known": {}}  # its keys are ids of this process

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

    def codes(self, input_codes: Sequence[int]) -> tuple[dict[int, int], set[int]]:
        """Return the dtype of every value (or its weak code) and the strict values, for these inputs."""
        return codes_of(self.order(), input_codes, self.strict or [False] * len(self.inputs))

    def input_ids(self, input_codes: Sequence[int]) -> tuple[int, ...]:
        """Return the dtypes in which the inputs are stored; for a number, the dtype of its use."""
        type_ids = [strong(code) for code in input_codes]
        if any(map(is_scalar, input_codes)):
            codes, strict = self.codes(input_codes)
            dtypes_of_uses: dict[int, set[int]] = {}
            for value in self.order():
                if value.row is None or value.cast_to >= 0:
                    continue
                ins = loop_of(value.row, operand_codes(value, codes, strict))[0]
                for operand, row in zip(value.operands, ins, strict=True):
                    if operand.index < 0 or not is_scalar(input_codes[operand.index]):
                        continue
                    # A CUDA text converts NumPy scalars too to the dtype that it declares.
                    if input_codes[operand.index] < 0 or isinstance(value.row, CudaText):
                        dtypes_of_uses.setdefault(operand.index, set()).add(row)
            for index, dtypes in dtypes_of_uses.items():
                if len(dtypes) > 1:
                    raise DTypeError(
                        where="Expression", expected="a number that is used with one dtype",
                        got=", ".join(NAMES[row] for row in sorted(dtypes)),
                        fix="pass a NumPy scalar, or add an input for each use",
                    )  # fmt: skip
                type_ids[index] = dtypes.pop()
        return tuple(type_ids)

    def result_ids(self, input_codes: Sequence[int]) -> tuple[int, ...]:
        """Return the dtypes of the results; a single number has NumPy's default dtype."""
        codes, _ = self.codes(input_codes)
        return tuple(strong(codes[id(value)]) for value in self.results)

    def strict_results(self, input_codes: Sequence[int]) -> tuple[bool, ...]:
        """Return for each result whether it is a CudaNdarray."""
        _, strict = self.codes(input_codes)
        return tuple(id(value) in strict for value in self.results)


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
