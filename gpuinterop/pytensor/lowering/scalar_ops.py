"""PyTensor's scalar Ops as operations of an expression."""

from __future__ import annotations

from functools import reduce, singledispatch
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.scalar import basic, math
from pytensor.tensor.elemwise import Elemwise

from gpuinterop import Expression
from gpuinterop.elementwise.table import TABLE
from gpuinterop.fusion.builder import Value

from ..device_variables import is_device

# Scalar Op -> elementwise operation of gpuinterop.
_NAMES: dict[type, str] = {
    basic.LT: "less", basic.GT: "greater", basic.LE: "less_equal", basic.GE: "greater_equal",
    basic.EQ: "equal", basic.NEQ: "not_equal", basic.IsNan: "isnan", basic.IsInf: "isinf",
    basic.Switch: "where", basic.OR: "bitwise_or", basic.XOR: "bitwise_xor", basic.AND: "bitwise_and",
    basic.Invert: "invert", basic.Maximum: "maximum", basic.Minimum: "minimum", basic.Add: "add",
    basic.Mul: "multiply", basic.Sub: "subtract", basic.TrueDiv: "divide", basic.IntDiv: "floor_divide",
    basic.Mod: "remainder", basic.Pow: "power", basic.Identity: "positive",
    basic.Abs: "absolute", basic.Sign: "sign", basic.Ceil: "ceil", basic.Floor: "floor", basic.Trunc: "trunc",
    basic.RoundHalfToEven: "rint", basic.Neg: "negative", basic.Reciprocal: "reciprocal", basic.Log: "log",
    basic.Log2: "log2", basic.Log10: "log10", basic.Log1p: "log1p", basic.Exp: "exp", basic.Exp2: "exp2",
    basic.Expm1: "expm1", basic.Sqr: "square", basic.Sqrt: "sqrt", basic.Cos: "cos", basic.ArcCos: "arccos",
    basic.Sin: "sin", basic.ArcSin: "arcsin", basic.Tan: "tan", basic.ArcTan: "arctan",
    basic.ArcTan2: "arctan2", basic.Cosh: "cosh", basic.ArcCosh: "arccosh", basic.Sinh: "sinh",
    basic.ArcSinh: "arcsinh", basic.Tanh: "tanh", basic.ArcTanh: "arctanh", basic.Conj: "conjugate",
    math.Erf: "erf", math.Erfc: "erfc", math.Erfinv: "erfinv", math.Gamma: "gamma", math.GammaLn: "lgamma",
    math.Psi: "digamma", math.Sigmoid: "sigmoid",
}  # fmt: skip
for _late, _name in (("ScalarMaximum", "maximum"), ("ScalarMinimum", "minimum")):
    if hasattr(basic, _late):
        _NAMES[getattr(basic, _late)] = _name


_COMPARISONS = ("less", "greater", "less_equal", "greater_equal", "equal", "not_equal")
_OF_MANY = ("add", "multiply", "maximum", "minimum", "bitwise_or", "bitwise_and")


def supported(op: Any, node: Any) -> bool:
    """Return whether an expression can compute a scalar Op for the dtypes of a node."""
    if isinstance(op, basic.Composite):
        return all(supported(inner.op, inner) for inner in op.fgraph.toposort())
    if type(op) not in _NAMES:
        return type(op) in _SPECIAL
    is_complex = any(np.dtype(x.type.dtype).kind == "c" for x in (*node.inputs, *node.outputs))
    return not is_complex or "c" in TABLE[_NAMES[type(op)]].expressions


class Expressions:
    """Builds an expression from scalar Ops; values have the dtypes that PyTensor declares."""

    def __init__(self) -> None:
        self.graph = Expression()

    def outputs(self, op: Any, node: Any, operands: list[Value]) -> list[Value]:
        """Return the values of the outputs of a scalar node."""
        if isinstance(op, basic.Composite):
            known: dict[Any, Value] = dict(zip(op.fgraph.inputs, operands, strict=True))
            for inner in op.fgraph.toposort():
                values = self.outputs(inner.op, inner, [self.value(known, x) for x in inner.inputs])
                known.update(zip(inner.outputs, values, strict=True))
            return [self.value(known, x) for x in op.fgraph.outputs]
        dtypes = [str(x.type.dtype) for x in node.inputs]
        wanted = str(node.outputs[0].type.dtype)
        make = _SPECIAL.get(type(op))
        if make is not None:
            return [make(self.graph, op, node, operands)]
        name = _NAMES[type(op)]
        # PyTensor declares the dtype of a result; operands of other dtypes are converted to it first.
        common = str(np.result_type(*dtypes)) if name in _COMPARISONS else wanted
        if name not in ("isnan", "isinf", "absolute"):
            targets = ["bool", common, common] if name == "where" else [common] * len(operands)
            operands = [
                x if d == target else self.graph.cast(x, target)
                for x, d, target in zip(operands, dtypes, targets, strict=True)
            ]
        if all(x.number is not None for x in operands[name == "where" :]):
            # Else the result is float64, NumPy's default dtype.
            operands[-1] = self.graph.cast(operands[-1], common)
        if len(operands) > 2 and name in _OF_MANY:
            value = reduce(lambda a, b: self.graph.apply(name, a, b), operands)
        else:
            value = self.graph.apply(name, *operands)
        found = "bool" if name in _COMPARISONS or name in ("isnan", "isinf") else common
        return [value if found == wanted else self.graph.cast(value, wanted)]

    def value(self, known: dict[Any, Value], x: Any) -> Value:
        if x in known:
            return known[x]
        assert isinstance(x, Constant)
        return self.number(x, np.asarray(x.data))

    def number(self, x: Any, data: Any) -> Value:
        """Return a constant of one element: float32 becomes a Python number, which float32 operations use exactly."""
        data = data.reshape(())
        if data.dtype == np.float32 or data.dtype == np.bool_:
            return self.graph.constant(data.item())
        number: Any = data[()]
        return self.graph.constant(number)


def _cast(graph: Expression, op: Any, node: Any, operands: Any) -> Value:
    return graph.cast(operands[0], op.o_type.dtype)


def _second(graph: Expression, op: Any, node: Any, operands: Any) -> Value:
    return graph.cast(
        graph.apply("where", True, operands[1], operands[0]), node.outputs[0].type.dtype
    )


def _clip(graph: Expression, op: Any, node: Any, operands: Any) -> Value:
    # Where the bounds cross, PyTensor's order of the comparisons decides; "clip" is NumPy's, and NaN bounds spread.
    wanted = node.outputs[0].type.dtype
    x, low, high = (
        value if given.type.dtype == wanted else graph.cast(value, wanted)
        for value, given in zip(operands, node.inputs, strict=True)
    )
    upper = graph.apply("where", graph.apply("greater", x, high), high, x)
    return graph.apply("where", graph.apply("less", x, low), low, upper)


def _softplus(graph: Expression, op: Any, node: Any, operands: Any) -> Value:
    return graph.apply("logaddexp", operands[0], 0.0)


def _log1mexp(graph: Expression, op: Any, node: Any, operands: Any) -> Value:
    (x,) = operands
    near = graph.apply("log", graph.apply("negative", graph.apply("expm1", x)))
    far = graph.apply("log1p", graph.apply("negative", graph.apply("exp", x)))
    return graph.apply("where", graph.apply("less", x, -0.6931471805599453), far, near)


_SPECIAL: dict[type, Any] = {
    basic.Cast: _cast, basic.Second: _second, basic.Clip: _clip, math.Softplus: _softplus, math.Log1mexp: _log1mexp,
}  # fmt: skip


# ---- nodes of device Ops ---------------------------------------------------------------------------


@singledispatch
def emit(op: Any, made: Expressions, node: Any, operands: list[Value]) -> list[Value]:
    """Add a node to an expression, and return the values of its outputs."""
    raise NotImplementedError


@emit.register(Elemwise)
def _emit_elemwise(op: Any, made: Expressions, node: Any, operands: list[Value]) -> list[Value]:
    types = (basic.get_scalar_type(x.type.dtype) for x in node.inputs)
    return made.outputs(op.scalar_op, op.scalar_op.make_node(*(kind() for kind in types)), operands)


def compiled(
    inputs: list[Any], nodes: list[Any], outputs: list[Any], name: str, constants: dict[int, Any]
) -> Any:
    """Compile nodes between `inputs` and `outputs`; `constants`: values of inputs that the kernels do not take."""
    made = Expressions()
    known: dict[Any, Value] = {}
    for i, x in enumerate(inputs):
        if i in constants:
            known[x] = made.number(x, np.asarray(constants[i], x.type.dtype))
        else:
            value = made.graph.input()
            # A number would adapt to the dtypes of other operands, but PyTensor's has a dtype.
            known[x] = value if is_device(x) else made.graph.cast(value, x.type.dtype)
    for node in nodes:
        operands = [known[x] if x in known else made.number(x, host_value(x)) for x in node.inputs]
        known.update(zip(node.outputs, emit(node.op.host, made, node, operands), strict=True))
    return made.graph.compile([known[o] for o in outputs], name=name)


def host_value(x: Any) -> Any:
    """Return the value of a constant as a NumPy array."""
    return x.data.get() if is_device(x) else np.asarray(x.data)
