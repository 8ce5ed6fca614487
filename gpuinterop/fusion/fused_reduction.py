"""A stage of an expression that reduces: one kernel for operands of the kinds that a kernel supports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import ACCUMULATORS, dtype_from_id, dtype_id
from gpuinterop.elementwise import results as output_arrays
from gpuinterop.reduce.codegen import ACCUMULATOR_BYTES
from gpuinterop.reduce.table import REDUCTIONS

from .partition import plain_end
from .reduction_kernel import ReductionKernel

if TYPE_CHECKING:
    from .partition import Stage


class ValueType(NamedTuple):
    """An operand or a result of a stage: its class, None for a number, and its kind."""

    cls: Any
    kind: int

    @property
    def is_strict(self) -> bool:
        return getattr(self.cls, "_only", None) is not None


class FusedReduction(NamedTuple):
    """One kernel for operands of certain kinds.

    Attributes
    ----------
    numbers : the positions of numbers among operands and extras, and of the 0-d array that the kernel
        reads instead: class, dtype, device.
    plain : for each result, whether it is not a CudaNdarray although the operands are.
    """

    kernel: ReductionKernel
    numbers: list[tuple[int, Any, Any, int, int]]
    plain: Sequence[bool]

    def __call__(self, operands: list[Any], outs: Sequence[Any]) -> Sequence[Any]:
        """Return the results, new arrays or `outs`; the extras follow the operands."""
        for i, cls, dtype, code, index in self.numbers:
            number = _core.empty(cls, (), dtype, code, index, where="fuse")
            number.fill(operands[i])
            operands[i] = number
        out = None if outs[0] is None else tuple(outs)
        result = self.kernel.run(tuple(operands), out)
        results = result if isinstance(result, tuple) else (result,)
        if out is not None:
            return results
        return [
            output_arrays.plain(x) if plain else x
            for x, plain in zip(results, self.plain, strict=True)
        ]


def fused_reduction(
    stage: Stage, types: Sequence[ValueType], result_types: Sequence[ValueType], device: Any,
    kernel_for: Callable[[Any, Callable[[], ReductionKernel]], ReductionKernel],
) -> FusedReduction | None:  # fmt: skip
    """Return the kernel of a stage for operands and extras of these kinds; None if no kernel can compute it.

    `result_types` are the results. `kernel_for` returns the kernel that it has for a key, or makes it.
    """
    like = next((x for x in types if x.cls is not None), None)
    plain_reduction = stage.part.results[0].index >= 0 and not stage.ends
    if plain_reduction or like is None or max(len(types), len(result_types)) > _core.MAX_PLANNED:
        return None
    if device.type == "cpu" and stage.part.has_texts():
        return None
    n, cls, strict = len(stage.reads), like.cls, like.is_strict
    part = replace(stage.part, strict=(strict,) * n)
    rows = part.input_rows([x.kind for x in types[:n]])
    mapped = [dtype_from_id(row) for row in part.result_rows(rows)]
    ops = [op for op, _, _ in stage.reductions]
    reduced = [np.dtype(REDUCTIONS[op].result(m)) for op, m in zip(ops, mapped, strict=True)]
    accumulator_bytes = sum(2 * max(4, dtype.itemsize) for dtype in reduced)
    if len(reduced) > 1 and accumulator_bytes > ACCUMULATOR_BYTES:
        return None
    strict_values = [
        s and r == m for s, r, m in zip(part.strict_results(rows), reduced, mapped, strict=True)
    ]
    ends, position = [], n
    for end in stage.ends or [plain_end(stage.reductions[0][2])]:
        extra = types[position : position + len(end.extras)]
        flags = (*(strict_values[i] for i in end.reduced), *(strict,) * len(extra))
        after = replace(end.after, strict=flags)
        of_reduced = [dtype_id(reduced[i]) for i in end.reduced]
        after_rows = after.input_rows((*of_reduced, *(x.kind for x in extra)))
        rows, position = (*rows, *after_rows[len(of_reduced) :]), position + len(extra)
        ends.append(end._replace(after=after))
    dtypes = [dtype_from_id(row) for row in rows]
    # The result is a CudaNdarray only if all operands are.
    is_one_class = all(
        (output_arrays.class_for(cls, dtype) if x.cls is None else x.cls) is cls
        for x, dtype in zip(types, dtypes, strict=True)
    )
    if not is_one_class or any(dtype.name not in ACCUMULATORS for dtype in (*dtypes, *mapped)):
        return None
    signatures_of_ends = [(e.reduced, e.after.signature(), e.keepdims, e.once) for e in ends]
    kernel = kernel_for(
        (*part.signature(), stage.reductions, *signatures_of_ends),
        lambda: ReductionKernel(part, ops, stage.reductions[0][1], ends),
    )
    numbers = [
        (i, cls, dtype, device.type_code, device.index)
        for i, (x, dtype) in enumerate(zip(types, dtypes, strict=True))
        if x.cls is None
    ]
    return FusedReduction(kernel, numbers, [x.cls is not cls and strict for x in result_types])
