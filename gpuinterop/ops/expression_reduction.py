"""Reductions in an expression: a value is reduced as it is computed.

On CUDA each reduction is one kernel that reads the operands once and writes its result. Where such a
kernel has no accumulator (floats below 16 bits) and on "cpu", the value is computed first and then
reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gpuinterop import _core
from gpuinterop.dtypes import ACCUMULATORS, dtype_from_id, dtype_id
from gpuinterop.layout import broadcast_shapes
from gpuinterop.views import read_reduced_axes

from . import output_arrays
from .expression_dtypes import is_strict, number_kind
from .expression_graph import Graph
from .reduction_kernel import ReductionKernel
from .reduction_table import reduced_shape

__all__ = ["FusedReduction"]


class FusedReduction:
    """One reduced value of an expression; `part` computes the values that are reduced."""

    def __init__(
        self, part: Graph, reduction: tuple[str, Any, bool], elementwise: Callable[..., Any]
    ) -> None:
        self.op, self.axis, self.keepdims = reduction
        strict = replace(part, strict=(True,) * len(part.inputs))
        # By whether the operands are CudaNdarrays, all of them or none.
        self.kernels = [ReductionKernel(graph, self.op, self.axis) for graph in (part, strict)]
        self.value = elementwise
        self.reads_only = part.results[0].index >= 0
        self._ways: dict[
            Any, tuple[ReductionKernel | None, list[Any], bool]
        ] = {}  # by kinds of operands

    def __call__(self, operands: Sequence[Any], out: Any) -> Any:
        """The result for operands that the elementwise function takes."""
        # A device has one object, so its address names it.
        key = tuple([
            (type(x), x.dtype, id(x.device)) if isinstance(x, _core.Array) else type(x)
            for x in operands
        ])  # fmt: skip
        way = self._ways.get(key)
        if way is None:
            way = self._ways[key] = self._way(operands)
        kernel, numbers, plain = way
        if kernel is None:
            value = operands[0] if plain else self.value(*operands)
            return getattr(value, self.op)(self.axis, keepdims=self.keepdims, out=out)
        if numbers:
            operands = list(operands)
            for i, cls, dtype, code, index in numbers:
                number = _core.empty(cls, (), dtype, code, index, where="fuse")
                number.fill(operands[i])
                operands[i] = number
        made = self._run(kernel, operands, out)
        return output_arrays.plain(made) if plain and out is None else made

    def _way(self, operands: Sequence[Any]) -> tuple[ReductionKernel | None, list[Any], bool]:
        """How operands of these kinds are reduced: the kernel, and the 0-d arrays it reads for numbers.

        The third value says that a CudaNdarray cannot hold the kernel's result, or, where there is no
        kernel, that the first operand is reduced as it is.
        """
        like = next((x for x in operands if isinstance(x, _core.Array)), None)
        if self.reads_only and like is not None and operands[0] is like:
            return None, [], True
        if like is None or like.device.type == "cpu":
            return None, [], False
        strict = is_strict(like)
        kernel = self.kernels[strict]
        if not all(isinstance(x, (_core.Array, int, float, complex)) for x in operands):
            return None, [], False
        kinds = [
            dtype_id(x.dtype) if isinstance(x, _core.Array) else number_kind(x) for x in operands
        ]
        rows = kernel.graph.input_rows(kinds)
        dtypes = [dtype_from_id(row) for row in rows]
        # A CudaNdarray's class and its rules hold for the result only beside its own kind.
        alike = all(
            (type(x) is type(like) and x.device == like.device) if isinstance(x, _core.Array)
            else output_arrays.class_for(type(like), dtype) is type(like)
            for x, dtype in zip(operands, dtypes, strict=True)
        )  # fmt: skip
        mapped = dtype_from_id(kernel.graph.result_rows(rows)[0])
        if not alike or any(dtype.name not in ACCUMULATORS for dtype in (*dtypes, mapped)):
            return None, [], False
        device = like.device
        numbers = [
            (i, type(like), dtype, device.type_code, device.index)
            for i, (x, dtype) in enumerate(zip(operands, dtypes, strict=True))
            if not isinstance(x, _core.Array)
        ]
        return kernel, numbers, strict and not kernel.graph.strict_results(rows)[0]

    def _run(self, kernel: ReductionKernel, operands: Sequence[Any], out: Any) -> Any:
        if not self.keepdims:
            return kernel(*operands, out=out)
        shape = broadcast_shapes([x.shape for x in operands], "fuse")
        axes = read_reduced_axes(self.axis, len(shape), self.op)
        full = reduced_shape(shape, axes, keepdims=True)
        if out is None:
            return kernel(*operands).reshape(full)
        output_arrays.check_out(out, full, kernel._dtypes(operands)[0], operands[0], self.op)
        kernel(*operands, out=out.reshape(reduced_shape(shape, axes)))
        return out
