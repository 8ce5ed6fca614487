"""Graphs in the form that Theano printed: lists of nodes, and the trees of theano.printing.debugprint."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

from pytensor import scalar
from pytensor.graph.basic import Apply, Constant
from pytensor.printing import FunctionPrinter, Printer, leaf_printer, pprint
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant

from gpuinterop.pytensor.device_op import printed
from gpuinterop.pytensor.device_variables import dimensions


def install() -> None:
    """Print operations, types and constants on the host as Theano did; those on the device are printed so anyway."""
    texts: dict[Any, Any] = {
        Elemwise: lambda op: printed(op, "Elemwise"),
        DimShuffle: lambda op: printed(op, "InplaceDimShuffle"),
        TensorType: lambda kind: f"TensorType({kind.dtype}, {dimensions(kind)})",
        TensorConstant: lambda x: f"TensorConstant{{{Constant.__str__(x)}}}",
    }
    for printed_class, text in texts.items():
        printed_class.__str__ = text
    TensorType.__repr__ = texts[TensorType]
    for name in ("and_", "or_", "xor", "invert"):
        getattr(scalar, name).name = name
    pprint.assign(lambda _, x: isinstance(x, TensorConstant), leaf_printer)
    pprint.assign(Elemwise, _FunctionOfElements())


class _FunctionOfElements(Printer):
    """Prints ``exp(x)`` in expressions, and not the name of the operation."""

    def process(self, output: Any, pstate: Any) -> str:
        """Return the text of a variable."""
        name = type(output.owner.op.scalar_op).__name__.lower()
        return str(FunctionPrinter([name]).process(output, pstate))


def debugprint(obj: Any, file: Any = None, **_: Any) -> Any:
    """Print a function, a variable or a list of variables; ``file="str"`` returns the text."""
    outputs, order = _graph_of(obj)
    places = {node: i for i, node in enumerate(order)}
    names: dict[Any, str] = {}
    stream: Any = io.StringIO() if file == "str" else file or sys.stdout
    for output in outputs:
        for line in _lines(output, "", "", places, names, set()):
            print(line, file=stream)
    return stream.getvalue() if file == "str" else file


def _graph_of(obj: Any) -> tuple[list[Any], list[Any]]:
    """Return the outputs, and the nodes in the order of execution if the graph is compiled."""
    maker = getattr(obj, "maker", None)
    fgraph = getattr(maker, "fgraph", obj)
    if hasattr(fgraph, "toposort"):
        return list(fgraph.outputs), list(fgraph.toposort())
    if isinstance(obj, Apply):
        return list(obj.outputs), []
    return (list(obj) if isinstance(obj, (list, tuple)) else [obj]), []


def _lines(
    variable: Any, prefix: str, below: str, places: dict[Any, int], names: dict[Any, str], shown: set[Any]
) -> Iterator[str]:  # fmt: skip
    node = variable.owner
    if node is None:
        yield f"{prefix}{variable} {_letters(variable, names)}"
        return
    part = f".{node.outputs.index(variable)}" if len(node.outputs) > 1 else ""
    place = places.get(node, "")
    yield f"{prefix}{node.op}{part} {_letters(node, names)} '{variable.name or ''}'   {place}".rstrip()
    if node in shown:
        return
    shown.add(node)
    for operand in node.inputs:
        last = operand is node.inputs[-1]
        deeper = below + ("  " if last else " |")
        yield from _lines(operand, below + " |", deeper, places, names, shown)


def _letters(obj: Any, names: dict[Any, str]) -> str:
    """Return [@A], [@B], ... [@Z], [@BA]: one label for each object, in order of appearance."""
    if obj not in names:
        number, text = len(names), ""
        while number or not text:
            number, rest = divmod(number, 26)
            text = chr(ord("A") + rest) + text
        names[obj] = f"[@{text}]"
    return names[obj]
