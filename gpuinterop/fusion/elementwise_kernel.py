"""Kernels from CUDA C++ text over single elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import NAMES, dtype_from_id, dtype_id
from gpuinterop.arrays.numpy_views import as_scalar
from gpuinterop.arrays.scalars import scalars_to_array
from gpuinterop.elementwise.calls import compile_operation
from gpuinterop.elementwise.operands import as_array_or_none
from gpuinterop.elementwise.promotion import common_dtype
from gpuinterop.errors import ArgumentTypeError
from gpuinterop.jit.compiler import require_arch

from .builder import Expression
from .codegen import ElementwiseOperation
from .compiled import CompiledExpression, limits_of
from .cuda_text import CudaText

__all__ = ["ElementwiseKernel"]


class ElementwiseKernel(CompiledExpression):
    """A CUDA C++ expression for single elements, over arrays of any strides that broadcast.

    Parameters
    ----------
    inputs, outputs : declarations, "float32 x, T y": the name of a dtype or a C type, or a capital
        letter for any dtype, the same for each use of the letter. An array must be of the declared
        dtype or of one that NumPy casts safely to it; numbers follow the rule of `asarray`.
    operation : statements that set the outputs from the inputs; small floats are floats here.
    name : of the kernel in profiles and messages.
    preamble : functions that the operation calls.
    host : a function that computes the same on device "cpu". It is called for each block of elements, with a
        read-only NumPy array of one dimension for each input, and returns an array for each output, which is
        cast to the output's dtype. The arrays are valid during the call only.

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
        self._text = CudaText(
            inputs, outputs, operation, name, preamble, host, where="ElementwiseKernel"
        )
        self._declared = inputs, outputs
        self.name, graph = name, Expression.of_text(self._text)
        super().__init__(graph, graph.results, name)
        self._names = [name for _, name in self._text.ins]

    def __reduce__(self) -> tuple[Any, ...]:
        text = self._text
        return ElementwiseKernel, (*self._declared, text.text, self.name, text.preamble, text.host)

    def __repr__(self) -> str:
        return f"<ElementwiseKernel {self._text}>"

    def compile(self, arch: int, **dtypes: Any) -> bytes:
        """Return machine code for C-contiguous arrays and a compute capability times ten.

        `dtypes` are those of the capital letters, ``T="float64"``, by default float32. CompileError shows
        the line. The call needs NVRTC but no GPU, so it can also check the text on device "cpu".
        """
        where = f"{self.name}.compile"
        declared = [c_type for c_type, _ in self._text.ins]
        if unknown := dtypes.keys() - {c_type for c_type in declared if len(c_type) == 1}:
            raise ArgumentTypeError(where=where, expected="dtypes of the capital letters of the inputs",
                                    got=", ".join(sorted(unknown)), fix="omit them")  # fmt: skip
        type_ids = tuple(
            NAMES.index(c_type)
            if len(c_type) > 1
            else dtype_id(dtypes.get(c_type, "float32"), where)
            for c_type in declared
        )
        return compile_operation(
            ElementwiseOperation(self.name, self._graph), type_ids, require_arch(arch, where)
        )

    def _read_arguments(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the arguments, and the limits by which the core recognises the arguments of later calls.

        Numbers that `scalars_to_array` refuses for the dtype of their parameter are refused. If no argument
        is an array, numbers become arrays: for a parameter with a letter, a NumPy number keeps its dtype,
        and a Python number follows `asarray`.
        """
        args = [as_scalar(value, self.name) for value in values]
        numbers = [isinstance(value, (bool, int, float, complex, np.generic)) for value in args]
        alone = all(numbers)
        dtypes: dict[str, Any] = {}
        for (c_type, _), value in zip(self._text.ins, args, strict=True):
            if isinstance(value, (_core.Array, np.ndarray)) or (alone and hasattr(value, "dtype")):
                both = dtypes.get(c_type, value.dtype), value.dtype
                dtypes[c_type] = common_dtype(both, self.name)
        limits = [limits_of(value) for value in args]
        for i, ((c_type, name), value) in enumerate(zip(self._text.ins, args, strict=True)):
            if not numbers[i]:
                continue
            dtype = dtypes.get(c_type) if len(c_type) == 1 else dtype_from_id(NAMES.index(c_type))
            if alone or dtype is not None:
                elements = scalars_to_array(value, dtype, f"{self.name}, parameter {name}")
            if alone:
                args[i] = as_array_or_none(elements, None, self.name)
            limits[i] = None
            if (
                type(value) in (int, float)
                and dtype is not None
                and dtype.isbuiltin == 1
                and not alone
            ):
                info = {"i": np.iinfo, "u": np.iinfo, "f": np.finfo}.get(dtype.kind)
                if info is not None and info(dtype).min <= value <= info(dtype).max:
                    limits[i] = float(info(dtype).min), float(info(dtype).max)
        return args, limits
