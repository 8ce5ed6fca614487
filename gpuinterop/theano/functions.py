"""Inputs with default values, `ifelse`, and what PyTensor's variables, operations and rewrites do as in Theano."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytensor
from pytensor.compile.debug import monitormode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.configdefaults import config
from pytensor.link.basic import Container
from pytensor.scalar import basic as scalar
from pytensor.tensor.rewriting import math
from pytensor.tensor.type import discrete_dtypes
from pytensor.tensor.variable import _tensor_py_operators

from gpuinterop.pytensor import host_from_gpu
from gpuinterop.pytensor.device_variables import is_device

from . import tensor

conditional: Any  # the module of ifelse
try:
    conditional = import_module("pytensor.conditional.op")
except ImportError:  # PyTensor before 3.3, where the attribute pytensor.ifelse is the function
    conditional = import_module("pytensor.ifelse")


class In(pytensor.compile.io.In):
    """An input of a function, which may have a default value."""

    def __init__(
        self, variable: Any, name: Any = None, value: Any = None, *rest: Any, **options: Any
    ) -> None:
        self.default = None if isinstance(value, Container | SharedVariable) else value
        if self.default is not None and (rest or options.get("update") is not None):
            raise ValueError(
                "an input has a default value or an update; use theano.shared(value) and updates="
            )
        super().__init__(variable, name, value if self.default is None else None, *rest, **options)  # fmt: skip


def Param(variable: Any, default: Any = None, name: Any = None, *rest: Any, **options: Any) -> In:
    """Return an input, by the parameters of Theano's first versions."""
    options |= dict(
        zip(("mutable", "strict", "allow_downcast", "implicit", "borrow"), rest, strict=False)
    )
    return In(variable, name, default, **options)


def ifelse(condition: Any, then_branch: Any, else_branch: Any, name: str | None = None) -> Any:
    """Return one of two values, or one of two lists; a shared variable on the device may be paired with a tensor."""

    def tensors(branch: Any) -> Any:
        if isinstance(branch, list | tuple):
            return type(branch)(map(tensors, branch))
        return host_from_gpu(branch) if is_device(branch) else branch

    return conditional.ifelse(condition, tensors(then_branch), tensors(else_branch), name)


class _Function:
    """A compiled function that passes the default values of its inputs."""

    def __init__(self, compiled: Any, inputs: Sequence[Any]) -> None:
        self._compiled = compiled
        self._inputs = [
            (getattr(i, "variable", i).name if i.name is None else i.name, getattr(i, "default", None)) for i in inputs
        ]  # fmt: skip

    def __call__(self, *given: Any, **named: Any) -> Any:
        values = list(given)
        for name, default in self._inputs[len(given) :]:
            if name not in named and default is None:
                break
            values.append(named.pop(name, default))
        return self._compiled(*values, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while it is copied, it has no attributes
            raise AttributeError(name)
        return getattr(self._compiled, name)


def with_defaults(compiled: Any, inputs: Sequence[Any]) -> Any:
    """Return a function that passes the default values of inputs, if there are any."""
    if all(getattr(i, "default", None) is None for i in inputs):
        return compiled
    return _Function(compiled, inputs)


class MonitorMode(monitormode.MonitorMode):
    """A mode that calls functions of a node's number, the node and its thunk."""

    def __init__(
        self, pre_func: Any = None, post_func: Any = None, *rest: Any, **options: Any
    ) -> None:
        super().__init__(_of_four(pre_func), _of_four(post_func), *rest, **options)


def _of_four(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Return a function of four parameters, of which the first is the graph, for one of three."""
    if function is None or len(inspect.signature(function).parameters) != 3:
        return function
    return lambda _, *arguments: function(*arguments)


def _is_true(variable: Any) -> bool:
    made = variable.owner
    # A comparison is cast to int8.
    if made and isinstance(getattr(made.op, "scalar_op", None), scalar.Cast):
        made = made.inputs[0].owner
    operation = getattr(made and made.op, "scalar_op", None)
    if isinstance(operation, scalar.GE | scalar.GT | scalar.LE | scalar.LT):
        raise TypeError(
            "a comparison of symbolic variables has no value yet; use T.switch, or compile a function"
        )
    return True


def _gradient_of_extreme(op: Any, inputs: Any, outputs: Any, gradients: Any) -> list[Any]:
    """Return the gradient of a maximum or minimum: both operands have it where they are equal."""
    (z,), (g,) = outputs, gradients
    if z.type in scalar.discrete_types:
        return [x.zeros_like(dtype=config.floatX) for x in inputs]
    return [scalar.eq(z, x) * g for x in inputs]


def _no_gradient(op: Any, inputs: Any, outputs: Any, gradients: Any) -> list[Any]:
    """Return zeros, of an input's dtype if it has floats: PyTensor's have the dtype floatX."""
    floats = (x.dtype if x.type in scalar.continuous_types else config.floatX for x in inputs)
    return [x.zeros_like(dtype=dtype) for x, dtype in zip(inputs, floats, strict=True)]


def _mean(
    x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, acc_dtype: Any = None
) -> Any:
    return tensor.mean(x, axis, dtype, keepdims=keepdims, acc_dtype=acc_dtype)


def _refuse(rewriter: Any, condition: Callable[[Any], bool]) -> None:
    """Let a rewrite of PyTensor leave the nodes for which a condition is true."""
    rewrite = rewriter.fn
    rewriter.fn = lambda graph, node: None if condition(node) else rewrite(graph, node)


def _has_unsigned(node: Any) -> bool:
    """Return whether a node has unsigned integers, for which there is no constant -1."""
    return bool(node.inputs[0].dtype.startswith("uint"))


def _widens_integers(node: Any) -> bool:
    """Return whether integers are reduced in another dtype than theirs, or are factors of an array of another dtype.

    Integers have wrapped before they are summed; sums of integers, and powers of them, can have another dtype.
    """
    x = node.inputs[0]
    integers = {y.dtype for y in (x, *(x.owner.inputs if x.owner else ()))} & set(discrete_dtypes)
    return bool(integers - {node.outputs[0].dtype})


def install() -> None:
    """Give PyTensor's variables and operations Theano's meaning, where the two differ.

    ``if x:`` is true for a variable, so that programs can distinguish it from None.
    """
    _tensor_py_operators.__bool__ = _is_true
    for name in ("lt", "le", "gt", "ge", "neg", "ceil", "floor", "trunc"):
        setattr(_tensor_py_operators, f"__{name}__", getattr(tensor, name))
    for name in (
        "any",
        "all",
        "ceil",
        "floor",
        "trunc",
        "round",
        "conj",
        "min",
        "ptp",
        "var",
        "std",
    ):
        setattr(_tensor_py_operators, name, getattr(tensor, name))
    _tensor_py_operators.mean = _mean
    _tensor_py_operators.real, _tensor_py_operators.imag = map(property, (tensor.real, tensor.imag))
    # The name of the method in the versions of PyTensor.
    gradient = "pullback" if hasattr(scalar.ScalarOp, "pullback") else "L_op"
    for operation in (scalar.Maximum, scalar.Minimum):
        setattr(operation, gradient, _gradient_of_extreme)
    for operation in (scalar.LogicalComparison, scalar.FixedLogicalComparison, scalar.Trunc):
        setattr(operation, gradient, _no_gradient)
    if "uint64" not in scalar.autocast_int.dtypes:  # else 2**63 becomes negative
        scalar.autocast_int.dtypes += ("uint64",)
    _refuse(math.local_neg_to_mul, _has_unsigned)
    _refuse(math.local_sum_prod_of_mul_or_div, _widens_integers)
