"""Compiles an expression of one stage to an operation of the core: CUDA statements, and NumPy's loops on "cpu"."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpuinterop.arrays.dtypes import NAMES, dtype_from_id
from gpuinterop.arrays.scalars import cast_once
from gpuinterop.elementwise.codegen import STORAGE, WORKING, Body
from gpuinterop.elementwise.host_program import HostProgram, HostValue, row_results
from gpuinterop.elementwise.promotion import letter_of, loop_dtypes, substitute

from .cuda_text import CudaText
from .graph import Graph, Value, constant_comparison, loop_of, operand_codes, strong


def device_function(symbol: str, graph: Graph, type_ids: Sequence[int]) -> tuple[str, str, str]:
    """Return the device function of a graph for inputs of these dtypes.

    Its parameters are the inputs and then references to the results. The second and the third text declare and
    define the CUDA texts that it calls, outside the generator's namespace.
    """
    statements = _Statements(graph, type_ids)
    parameters = [f"{WORKING[NAMES[type_id]]} a{i}" for i, type_id in enumerate(type_ids)]
    parameters += [
        f"{WORKING[NAMES[type_id]]}& o{j}" for j, type_id in enumerate(graph.result_ids(type_ids))
    ]
    text = f"GI_FN void {symbol}({', '.join(parameters)}) {{\n  {statements.text}\n}}\n"
    return text, *statements.texts()


class _Statements:
    """CUDA statements that compute o0, o1, ... from a0, a1, ..., rounded after every operation.

    Each value is rounded in a way that prevents the compiler from contracting a product and a sum, so the
    results have the bits of the single operations.
    """

    def __init__(self, graph: Graph, given: Sequence[int]) -> None:
        self.codes, self.strict = graph.codes(given)
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
            type_id = strong(self.codes[id(value)])
            lines.append(f"o{j} = {self._as(value, type_id)};")
        self.text = "\n  ".join(lines)

    def texts(self) -> tuple[str, str]:
        """Return the declarations and the definitions of the CUDA texts."""
        declared, defined = ("\n".join(pair[i] for pair in self.functions) for i in (0, 1))
        return declared, defined

    def _as(self, value: Value, type_id: int, number: Any = None) -> str:
        """Return a value in the working type of a dtype."""
        number = value.number if number is None else number
        if number is not None:
            return literal(number, type_id)
        name, working = self.names[id(value)], WORKING[NAMES[type_id]]
        value_type = WORKING[NAMES[strong(self.codes[id(value)])]]
        return name if value_type == working else f"gi_to<{working}>({name})"

    def _line(self, name: str, value: Value) -> str:
        assert value.row is not None
        assert not isinstance(value.row, CudaText)
        operands = operand_codes(value, self.codes, self.strict)
        ins: tuple[int, ...]
        if value.cast_to >= 0:
            ins, out, expression = (strong(operands[0]),), NAMES[value.cast_to], "x"
        else:
            ins, outs = loop_dtypes(value.row, operands)
            out = NAMES[outs[value.result]]
            text = value.row.expressions.get(letter_of(ins[value.row.letter_from]))
            assert text is not None  # codes() called body_for, which raises
            expression = text.split(";")[value.result].strip()
        numbers = constant_comparison(value, ins) or (None,) * len(ins)
        bound = tuple(f"{name}_{letter}" for letter in "xyz"[: len(ins)])
        declared = " ".join(
            f"const {WORKING[NAMES[row]]} {b} = {self._as(operand, row, number)};"
            for operand, number, row, b in zip(value.operands, numbers, ins, bound, strict=True)
        )
        self.names[id(value)] = name
        computed = substitute(expression, bound)
        if value.cast_to < 0 or WORKING[out] == STORAGE[out]:  # a cast rounds once, to the dtype
            computed = f"gi_to<{WORKING[out]}>({computed})"
        return f"{declared} {WORKING[out]} {name} = {_round(computed, out)};"

    def _text_line(self, name: str, value: Value) -> str:
        """Return one output of a CUDA text, with the call of the text if it is the first output."""
        assert isinstance(value.row, CudaText)
        operands = operand_codes(value, self.codes, self.strict)
        ins, outs = value.row.loop(operands)
        key = (id(value.row), *map(id, value.operands))
        call, line = self._texts.get(key), ""
        if call is None:
            call = self._texts[key] = name
            symbol = f"user_{value.row.name}_element{len(self.functions) or ''}"
            self.functions.append(value.row.function(symbol, operands))
            args = [self._as(o, row) for o, row in zip(value.operands, ins, strict=True)]
            outputs = [f"{call}_{j}" for j in range(len(outs))]
            line = " ".join(
                f"{WORKING[NAMES[row]]} {n};" for row, n in zip(outs, outputs, strict=True)
            )
            line += f" {symbol}({', '.join((*args, *outputs))}); "
        out = NAMES[outs[value.result]]
        self.names[id(value)] = name
        return f"{line}const {WORKING[out]} {name} = {_round(f'{call}_{value.result}', out)};"


def _round(value: str, dtype: str) -> str:
    """Return a value of a working type, rounded to the dtype."""
    if WORKING[dtype] == STORAGE[dtype]:
        return value
    return f"gi_read(gi_to<{STORAGE[dtype]}>({value}))"


def _real_literal(value: float, working: str) -> str:
    if math.isfinite(value):
        return f"({working}){value.hex()}"
    bits = int.from_bytes(struct.pack(">d", value), "big")  # with the sign of a NaN
    return f"({working})gi_double({bits:#x}ull)"


def literal(number: Any, type_id: int) -> str:
    """Return a number as a literal of the working type of a dtype, rounded to the dtype first."""
    name = NAMES[type_id]
    working = WORKING[name]
    scalar = number.item() if isinstance(number, np.generic) else number
    letter = letter_of(type_id)
    if letter == "b":
        return "true" if scalar else "false"
    if letter in "iu":
        integer = int(np.asarray(scalar, dtype=dtype_from_id(type_id)))
        if integer < 0:
            return f"({working})(-{-integer - 1}ll - 1)"
        return f"({working}){integer}{'ull' if letter == 'u' else 'll'}"
    if letter == "c":
        value = complex(scalar)
        part = "float" if name == "complex64" else "double"
        return f"gi_make({_real_literal(value.real, part)}, {_real_literal(value.imag, part)})"
    with np.errstate(all="ignore"):
        rounded = float(cast_once(np.asarray(scalar), dtype_from_id(type_id)))
    return _real_literal(rounded, working)


class ElementwiseOperation:
    """An operation that computes the results of a graph without reductions, element by element."""

    def __init__(self, name: str, graph: Graph) -> None:
        self.name = name
        self.graph = graph
        self.inputs = len(graph.inputs)
        self.results = len(graph.results)

    def loop(self, codes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.graph.input_ids(codes), self.graph.result_ids(codes)

    def strict(self, codes: tuple[int, ...]) -> tuple[bool, ...]:
        return self.graph.strict_results(codes)

    def body(self, codes: tuple[int, ...]) -> Body:
        statements = _Statements(self.graph, codes)
        symbol = "".join(c if c.isalnum() and c.isascii() else "_" for c in self.name)
        return Body(
            f"fused_{symbol}",
            tuple(NAMES[k] for k in codes),
            tuple(NAMES[k] for k in self.graph.result_ids(codes)),
            statements.text,
            *statements.texts(),
            once=bool(statements.functions),  # a text may do more than compute its outputs
            keeps_signs=all(
                v.row is None or getattr(v.row, "keeps_signs", False) for v in self.graph.order()
            ),
        )

    def host_program(
        self, codes: tuple[int, ...], stored: Sequence[int], results: Sequence[int], in_place: bool
    ) -> Any:
        """Return the program of all values."""
        program = HostProgram(stored)
        values = host_values(program, self.graph, codes)
        return program.finish(values, results, in_place)


def host_values(program: HostProgram, graph: Graph, codes: Sequence[int]) -> list[HostValue]:
    """Add the steps of a graph, and return its results."""
    all_codes, strict = graph.codes(codes)
    values: dict[int, HostValue] = {}
    results: dict[tuple[Any, ...], Sequence[HostValue]] = {}  # results of an operation, made once
    for value in graph.order():
        if value.index >= 0:
            values[id(value)] = program.inputs[value.index]
        elif value.row is None:
            # Each use casts the number, which may fit no dtype by itself.
            values[id(value)] = HostValue(strong(all_codes[id(value)]), number=value.number)
        else:
            operands = [values[id(o)] for o in value.operands]
            key = (value.row, value.cast_to, *map(id, value.operands))
            if key not in results:
                results[key] = _host_steps(program, value, operands, all_codes, strict)
            values[id(value)] = results[key][value.result]
    return [values[id(value)] for value in graph.results]


def _host_steps(
    program: HostProgram, value: Value, operands: Sequence[HostValue], all_codes: dict[int, int],
    strict: set[int],
) -> Sequence[HostValue]:  # fmt: skip
    """Add the steps of a value, and return all results of its operation."""
    if value.cast_to >= 0:
        return [program.cast(operands[0], value.cast_to)]
    assert value.row is not None
    codes = operand_codes(value, all_codes, strict)
    ins, outs = loop_of(value.row, codes)
    if isinstance(value.row, CudaText):
        args = [program.cast(x, row) for x, row in zip(operands, ins, strict=True)]
        return program.call(value.row.on_host(outs), args, outs)
    numbers = constant_comparison(value, ins)
    if numbers is not None:
        operands = [program.constant(n, row) for n, row in zip(numbers, ins, strict=True)]
    return row_results(program, value.row, operands, codes)
