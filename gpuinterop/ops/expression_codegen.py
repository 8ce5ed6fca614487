"""An expression of one stage as an operation of the core: CUDA statements, and NumPy calls on "cpu"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gpuinterop.dtypes import NAMES, dtype_from_id
from gpuinterop.jit.codegen import STORAGE, WORKING, Body
from gpuinterop.layout import broadcast_shapes

from .cuda_text import CudaText
from .dtype_promotion import dtype_kind, is_extended, loop_dtypes, numpy_types, substitute
from .expression_dtypes import Value, constant_comparison, loop_of, met, strong
from .expression_graph import Graph
from .operation_table import run_row


class DeviceFunction(NamedTuple):
    """A graph as a function of CUDA code: of its inputs, and then of references to its results."""

    text: str
    declared: str  # the CUDA texts that it calls, outside of the generator's namespace
    defined: str


def device_function(symbol: str, graph: Graph, given: Sequence[int]) -> DeviceFunction:
    """The results of a graph for inputs of these dtypes."""
    made = _Statements(graph, given)
    parameters = [f"{WORKING[NAMES[row]]} a{i}" for i, row in enumerate(given)]
    parameters += [f"{WORKING[NAMES[row]]}& o{j}" for j, row in enumerate(graph.result_rows(given))]
    text = f"GI_FN void {symbol}({', '.join(parameters)}) {{\n  {made.text}\n}}\n"
    return DeviceFunction(text, *made.texts())


class _Statements:
    """CUDA statements that compute o0, o1, ... from a0, a1, ..., rounded after every operation.

    Each value is pinned, so that a product and a sum are not contracted: the results have the bits of
    the single operations.
    """

    def __init__(self, graph: Graph, given: Sequence[int]) -> None:
        self.kinds, self.strict = graph.kinds(given)
        self.names: dict[int, str] = {}
        self.functions: list[tuple[str, str]] = []  # declarations and definitions of CUDA texts
        self._texts: dict[tuple[Any, ...], str] = {}
        lines: list[str] = []
        for i, value in enumerate(graph.order()):
            if value.index >= 0:
                self.names[id(value)] = f"a{value.index}"
            elif isinstance(value.row, CudaText):
                lines.append(self._text_line(f"t{i}", value))
            elif value.row is not None:
                lines.append(self._line(f"t{i}", value))
        for j, value in enumerate(graph.results):
            row = strong(self.kinds[id(value)])
            lines.append(f"o{j} = {self._as(value, row)};")
        self.text = "\n  ".join(lines)

    def texts(self) -> tuple[str, str]:
        """The declarations and the definitions of the CUDA texts."""
        declared, defined = ("\n".join(pair[i] for pair in self.functions) for i in (0, 1))
        return declared, defined

    def _as(self, value: Value, row: int, number: Any = None) -> str:
        """A value in the working type of a dtype."""
        number = value.number if number is None else number
        if number is not None:
            return literal(number, row)
        name, working = self.names[id(value)], WORKING[NAMES[row]]
        held = WORKING[NAMES[strong(self.kinds[id(value)])]]
        return name if held == working else f"gi_to<{working}>({name})"

    def _line(self, name: str, value: Value) -> str:
        assert value.row is not None
        assert not isinstance(value.row, CudaText)
        operands = met(value, self.kinds, self.strict)
        ins: tuple[int, ...]
        if value.cast_to >= 0:
            ins, out, expression = (strong(operands[0]),), NAMES[value.cast_to], "x"
        else:
            ins, outs = loop_dtypes(value.row, operands)
            out = NAMES[outs[value.result]]
            text = value.row.expressions.get(dtype_kind(ins[value.row.kinds_from]))
            assert text is not None  # kinds() called body_for, which raises
            expression = text.split(";")[value.result].strip()
        numbers = constant_comparison(value, ins) or (None,) * len(ins)
        bound = tuple(f"{name}_{letter}" for letter in "xyz"[: len(ins)])
        declared = " ".join(
            f"const {WORKING[NAMES[row]]} {b} = {self._as(operand, row, number)};"
            for operand, number, row, b in zip(value.operands, numbers, ins, bound, strict=True)
        )
        self.names[id(value)] = name
        rounded = _rounded(f"gi_to<{WORKING[out]}>({substitute(expression, bound)})", out)
        return f"{declared} {WORKING[out]} {name} = {rounded};"

    def _text_line(self, name: str, value: Value) -> str:
        """The call of a CUDA text, once for all of its outputs, and one output of it."""
        assert isinstance(value.row, CudaText)
        operands = met(value, self.kinds, self.strict)
        ins, outs = value.row.loop(operands)
        key = (id(value.row), *map(id, value.operands))
        called, line = self._texts.get(key), ""
        if called is None:
            called = self._texts[key] = name
            symbol = f"user_{value.row.name}_element{len(self.functions) or ''}"
            self.functions.append(value.row.function(symbol, operands))
            given = [self._as(o, row) for o, row in zip(value.operands, ins, strict=True)]
            made = [f"{called}_{j}" for j in range(len(outs))]
            line = " ".join(
                f"{WORKING[NAMES[row]]} {n};" for row, n in zip(outs, made, strict=True)
            )
            line += f" {symbol}({', '.join((*given, *made))}); "
        out = NAMES[outs[value.result]]
        self.names[id(value)] = name
        return f"{line}const {WORKING[out]} {name} = {_rounded(f'{called}_{value.result}', out)};"


def _rounded(value: str, dtype: str) -> str:
    """A value of a working type, rounded to the dtype."""
    if WORKING[dtype] == STORAGE[dtype]:
        return value
    return f"gi_read(gi_to<{STORAGE[dtype]}>({value}))"


def _real_literal(value: float, working: str) -> str:
    if math.isnan(value):
        return f"({working})gi_double(0x7ff8000000000000ull)"
    if math.isinf(value):
        return f"({working})gi_double({'0x7ff' if value > 0 else '0xfff'}0000000000000ull)"
    return f"({working}){value.hex()}"


def literal(number: Any, row: int) -> str:
    """The number in the working type of a dtype, rounded to the dtype first."""
    name = NAMES[row]
    working = WORKING[name]
    plain = number.item() if isinstance(number, np.generic) else number
    kind = dtype_kind(row)
    if kind == "b":
        return "true" if plain else "false"
    if kind in "iu":
        held = int(np.asarray(plain, dtype=dtype_from_id(row)))
        if held < 0:
            return f"({working})(-{-held - 1}ll - 1)"
        return f"({working}){held}{'ull' if kind == 'u' else 'll'}"
    if kind == "c":
        value = complex(plain)
        part = "float" if name == "complex64" else "double"
        return f"gi_make({_real_literal(value.real, part)}, {_real_literal(value.imag, part)})"
    with np.errstate(all="ignore"):
        rounded = float(np.asarray(plain).astype(dtype_from_id(row)).astype(np.float64))
    return _real_literal(rounded, working)


class ElementwiseOperation:
    """The results of a graph without reductions, element by element."""

    def __init__(self, name: str, graph: Graph) -> None:
        self.name = "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
        self.graph = graph
        self.inputs = len(graph.inputs)
        self.results = len(graph.results)

    def loop(self, kinds: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.graph.input_rows(kinds), self.graph.result_rows(kinds)

    def strict(self, kinds: tuple[int, ...]) -> tuple[bool, ...]:
        return self.graph.strict_results(kinds)

    def body(self, kinds: tuple[int, ...]) -> Body:
        made = _Statements(self.graph, kinds)
        return Body(
            f"fused_{self.name}",
            tuple(NAMES[k] for k in kinds),
            tuple(NAMES[k] for k in self.graph.result_rows(kinds)),
            made.text,
            *made.texts(),
            once=bool(made.functions),  # a text may do more than compute its outputs
        )

    def host(self, inputs: list[Any], results: list[Any], kinds: tuple[int, ...]) -> None:
        known, strict = self.graph.kinds(kinds)
        values: dict[int, Any] = {}
        texts: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for value in self.graph.order():
            if isinstance(value.row, CudaText):
                key = (id(value.row), *map(id, value.operands))
                if key not in texts:
                    operands = [values[id(o)] for o in value.operands]
                    texts[key] = value.row.evaluate(operands, met(value, known, strict))
                values[id(value)] = texts[key][value.result]
            else:
                values[id(value)] = _host_value(value, inputs, values, known, strict)
        found = [values[id(value)] for value in self.graph.results]
        if len(found) > 1:
            # Read an argument that is returned before any `out` array is written.
            found = [
                v.copy() if any(np.may_share_memory(v, out) for out in results) else v
                for v in found
            ]
        with np.errstate(all="ignore"):
            for out, result in zip(results, found, strict=True):
                out[...] = result


def _host_value(
    value: Value, inputs: Sequence[Any], values: dict[int, Any], known: dict[int, int],
    strict: set[int],
) -> Any:  # fmt: skip
    if value.index >= 0:
        return np.asarray(inputs[value.index])
    if value.row is None:
        return np.asarray(value.number)
    operands = [values[id(o)] for o in value.operands]
    if value.cast_to >= 0:
        with np.errstate(all="ignore"):
            return operands[0].astype(dtype_from_id(value.cast_to))
    kinds = met(value, known, strict)
    assert not isinstance(value.row, CudaText)
    types = numpy_types(value.row, kinds)
    numbers = constant_comparison(value, loop_of(value.row, kinds)[0])
    if numbers is not None:
        operands = [
            np.full(o.shape, n, t) for o, n, t in zip(operands, numbers, types, strict=False)
        ]
    shape = broadcast_shapes([o.shape for o in operands], value.row.name)
    outs = [np.empty(shape, t) for t in types[value.row.inputs :]]
    run_row(value.row, operands, outs, types)
    found = outs[value.result]
    held = known[id(value)]
    return found.astype(dtype_from_id(held)) if is_extended(held) else found
