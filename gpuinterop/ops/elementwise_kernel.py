"""Kernels from CUDA C++ text over single elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuinterop import _core
from gpuinterop.errors import ArgumentTypeError

from .cuda_text import CudaText
from .expression import Expression
from .expression_stages import expected_argument
from .kernel_parameters import number_ranges, numbers_as_arrays, require_held_numbers

__all__ = ["ElementwiseKernel"]


class ElementwiseKernel(_core.PreparedCalls):
    """A CUDA C++ expression for single elements, over arrays of any strides that broadcast.

    Parameters
    ----------
    inputs, outputs : declarations, "float32 x, T y": the name of a dtype or a C type, or a capital
        letter for any dtype, the same wherever the letter stands. An array must be of the declared
        dtype or of one that NumPy casts safely to it; numbers follow the rule of `asarray`.
    operation : statements that set the outputs from the inputs; small floats are floats here.
    name : of the kernel in profiles and messages.
    preamble : functions that the operation calls.
    host : a function of NumPy arrays that computes the same on device "cpu".

    Examples
    --------
    >>> import gpuinterop
    >>> axpy = gpuinterop.ElementwiseKernel(
    ...     "float32 a, float32 x, float32 y", "float32 z", "z = a * x + y", "axpy",
    ...     host=lambda a, x, y: a * x + y)
    >>> x = gpuinterop.asarray([1.0, 2.0], device="cpu")
    >>> axpy(2.0, x, x).tolist()
    [3.0, 6.0]
    """

    def __init__(
        self,
        inputs: str,
        outputs: str,
        operation: str,
        name: str = "kernel",
        preamble: str = "",
        host: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__()
        self._text = CudaText(
            inputs, outputs, operation, name, preamble, host, where="ElementwiseKernel"
        )
        self._declared = inputs, outputs
        self.name, graph = name, Expression()
        values = [graph.input() for _ in self._text.ins]
        results = [
            graph.cuda(self._text, *values, result=j) for j in range(self._text.results)
        ]  # fmt: skip
        self._compiled = graph.compile(results, name)

    def __reduce__(self) -> tuple[Any, ...]:
        text = self._text
        return ElementwiseKernel, (*self._declared, text.text, self.name, text.preamble, text.host)

    def __repr__(self) -> str:
        return f"<ElementwiseKernel {self._text}>"

    def _prepare(self, *args: Any, out: Any = None) -> Any:
        """A call that the core has no entry for; returns new C-ordered arrays, or `out`."""
        parameters = self._text.ins
        if len(args) != len(parameters):
            names = ", ".join(name for _, name in parameters)
            raise ArgumentTypeError(
                where=self.name, expected=f"{len(parameters)} operand{'s' * (len(parameters) != 1)}",
                got=f"{len(args)}", fix=f"call {self.name}({names})",
            )  # fmt: skip
        arrays = [isinstance(value, _core.Array) for value in args]
        if False in arrays:
            require_held_numbers(self.name, parameters, args)
        if True not in arrays:
            args = numbers_as_arrays(self.name, parameters, args)
        operation = self._compiled.operation(args)
        ranges = number_ranges(parameters, args)
        if ranges is not None:
            expected = [expected_argument(value) for value in args]
            for i, (low, high) in ranges.items():
                expected[i] = (type(args[i]), None, -1, 0, float(low), float(high))
            if None not in expected:
                operands = [(i, None) for i in range(len(args))]
                self._add(expected, operands, operation, None)
        return operation(*args, out=out)
