"""Reductions in an expression: a value is reduced as it is computed.

On CUDA each reduction is one kernel that reads the operands once and writes its result. Where such a
kernel has no accumulator (floats below 16 bits) and on "cpu", the value is computed first and then
reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import ACCUMULATORS, NAMES, WORKING, dtype_from_id, dtype_id
from gpuinterop.jit import kernel_text
from gpuinterop.layout import broadcast_shapes
from gpuinterop.views import read_reduced_axes

from . import output_arrays
from .expression import Expression
from .expression_codegen import statements
from .expression_dtypes import is_strict, number_kind
from .map_reduce import MapReduce
from .reduction_table import REDUCTIONS

__all__ = ["FusedReduction"]


class _Kernel(MapReduce):
    """A map-reduce whose map is an expression of one result."""

    def __init__(self, graph: Expression, op: str, axis: Any) -> None:
        names = ", ".join(f"x{i}" for i in range(len(graph.inputs)))
        super().__init__(f"gi_fused({names})", _no_host, op=op, axis=axis, where="fuse")
        self.graph = graph

    def mapped(self, operands: Sequence[Any]) -> np.dtype[Any]:
        return dtype_from_id(self.graph.result_rows(_rows(operands))[0])

    def _dtypes(self, operands: Sequence[Any]) -> tuple[Any, list[Any]]:
        value = self.mapped(operands)
        return value, [np.dtype(REDUCTIONS[self.op].result(value))]

    def _support(self, operands: Sequence[Any]) -> str:
        rows = _rows(operands)
        result = WORKING[NAMES[self.graph.result_rows(rows)[0]]]
        declared = ", ".join(f"{WORKING[NAMES[row]]} a{i}" for i, row in enumerate(rows))
        return (
            kernel_text("math.cuh")
            + f"GI_FN {result} gi_fused({declared}) {{\n  {result} o0;\n  "
            + f"{statements(self.graph, rows)}\n  return o0;\n}}\n"
        )


def _no_host(operands: Sequence[Any], extras: Sequence[Any]) -> Sequence[Any]:
    raise AssertionError("the host computes the values before it reduces them")


def _rows(operands: Sequence[Any]) -> tuple[int, ...]:
    return tuple(dtype_id(x.dtype) for x in operands)


class FusedReduction:
    """One reduced value of an expression; `part` computes the values that are reduced."""

    def __init__(
        self, part: Expression, reduction: tuple[str, Any, bool], elementwise: Callable[..., Any]
    ) -> None:
        self.op, self.axis, self.keepdims = reduction
        strict = replace(part, strict=(True,) * len(part.inputs))
        # By whether the operands are CudaNdarrays, all of them or none.
        self.kernels = [_Kernel(graph, self.op, self.axis) for graph in (part, strict)]
        self.value = elementwise
        self.reads_only = part.results[0].index >= 0

    def __call__(self, operands: Sequence[Any], out: Any) -> Any:
        """The result for operands that the elementwise function takes."""
        operands = self._arrays(operands)
        if self.reads_only and isinstance(operands[0], _core.Array):
            return self._method(operands[0], out)
        strict = len(operands) > 0 and is_strict(operands[0])
        kernel = self.kernels[strict]
        if not self._one_kernel(operands, kernel):
            return self._method(self.value(*operands), out)
        made = self._run(kernel, operands, out)
        if out is None and strict and not kernel.graph.strict_results(_rows(operands))[0]:
            return output_arrays.plain(made)
        return made

    def _arrays(self, operands: Sequence[Any]) -> list[Any]:
        """The operands with 0-d arrays for numbers: a kernel that reduces reads its operands."""
        like = next((x for x in operands if isinstance(x, _core.Array)), None)
        numbers = any(isinstance(x, (int, float, complex)) for x in operands)
        if not numbers or like is None or like.device.type == "cpu":
            return list(operands)
        kinds = [
            number_kind(x) if isinstance(x, (int, float, complex)) else dtype_id(x.dtype)
            for x in operands
        ]
        rows = self.kernels[is_strict(like)].graph.input_rows(kinds)
        found = list(operands)
        for i, (x, row) in enumerate(zip(operands, rows, strict=True)):
            if isinstance(x, (int, float, complex)):
                found[i] = output_arrays.new_like(like, (), dtype_from_id(row), "fuse")
                found[i].fill(x)
        return found

    def _run(self, kernel: _Kernel, operands: Sequence[Any], out: Any) -> Any:
        if not self.keepdims:
            return kernel(*operands, out=out)
        shape = broadcast_shapes([x.shape for x in operands], "fuse")
        axes = read_reduced_axes(self.axis, len(shape), self.op)
        full = tuple(1 if i in axes else n for i, n in enumerate(shape))
        if out is None:
            return kernel(*operands).reshape(full)
        output_arrays.check_out(out, full, kernel._dtypes(operands)[1][0], operands[0], self.op)
        kept = tuple(n for i, n in enumerate(shape) if i not in axes)
        kernel(*operands, out=out.reshape(kept))
        return out

    def _method(self, value: Any, out: Any) -> Any:
        return getattr(value, self.op)(self.axis, keepdims=self.keepdims, out=out)

    def _one_kernel(self, operands: Sequence[Any], kernel: _Kernel) -> bool:
        if not all(isinstance(x, _core.Array) and x.device.type == "cuda" for x in operands):
            return False
        if any(
            x.device != operands[0].device or x.dtype.name not in ACCUMULATORS for x in operands
        ):
            return False
        # A CudaNdarray's class and its rules hold for the result only beside its own kind.
        if len({type(x) for x in operands}) > 1:
            return False
        return kernel.mapped(operands).name in ACCUMULATORS
