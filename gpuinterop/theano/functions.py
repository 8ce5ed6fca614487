"""Inputs with default values, `ifelse`, variables that are true, and modes that call functions of three parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytensor
from pytensor.compile.debug import monitormode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.link.basic import Container
from pytensor.scalar import GE, GT, LE, LT
from pytensor.tensor.variable import _tensor_py_operators

from gpuinterop.pytensor import host_from_gpu
from gpuinterop.pytensor.device_variables import is_device

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
    operation = getattr(variable.owner and variable.owner.op, "scalar_op", None)
    if isinstance(operation, GE | GT | LE | LT):
        raise TypeError(
            "a comparison of symbolic variables has no value yet; use T.switch, or compile a function"
        )
    return True


def install() -> None:
    """Make ``if x:`` true for a variable, as in Theano, so that programs can distinguish it from None."""
    _tensor_py_operators.__bool__ = _is_true
