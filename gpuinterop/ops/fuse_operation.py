"""The operation of the core that a traced graph is, on both devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop.dtypes import NAMES, dtype_from_id
from gpuinterop.jit.spec import Body
from gpuinterop.layout import broadcast_shapes

from .core_callbacks import CustomOperation, numpy_types
from .dtype_promotion import is_extended, loop_dtypes
from .host_elementwise import run_row
from .trace import Graph, Node, met, settled

__all__ = ["FusedOperation"]


class FusedOperation(CustomOperation):
    """The results of a graph, element by element."""

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
        outs = self.graph.result_rows(kinds)
        return Body(
            f"fused_{self.name}",
            tuple(NAMES[k] for k in kinds),
            tuple(NAMES[k] for k in outs),
            self.graph.statements(kinds),
        )

    def host(self, inputs: list[Any], results: list[Any], kinds: tuple[int, ...]) -> None:
        known, strict = self.graph.kinds(kinds)
        values: dict[int, Any] = {}
        for node in self.graph.order():
            values[id(node)] = self._value(node, inputs, values, known, strict)
        found = [values[id(node)] for node in self.graph.results]
        if len(found) > 1:
            # An argument that is returned is read where it lies: before any out is written.
            found = [
                v.copy() if any(np.may_share_memory(v, out) for out in results) else v
                for v in found
            ]
        with np.errstate(all="ignore"):
            for out, value in zip(results, found, strict=True):
                out[...] = value

    @staticmethod
    def _value(
        node: Node,
        inputs: list[Any],
        values: dict[int, Any],
        known: dict[int, int],
        strict: set[int],
    ) -> Any:
        if node.index >= 0:
            return np.asarray(inputs[node.index])
        if node.row is None:
            return np.asarray(node.number)
        operands = [values[id(o)] for o in node.operands]
        if node.cast_to >= 0:
            with np.errstate(all="ignore"):
                return operands[0].astype(dtype_from_id(node.cast_to))
        kinds = met(node, known, strict)
        types = numpy_types(node.row, kinds)
        numbers = settled(node, loop_dtypes(node.row, kinds)[0])
        if numbers is not None:
            operands = [
                np.full(o.shape, n, t) for o, n, t in zip(operands, numbers, types, strict=False)
            ]
        shape = broadcast_shapes([o.shape for o in operands], node.row.name)
        outs = [np.empty(shape, t) for t in types[node.row.inputs :]]
        run_row(node.row, operands, outs, types)
        found = outs[node.result]
        held = known[id(node)]
        return found.astype(dtype_from_id(held)) if is_extended(held) else found
