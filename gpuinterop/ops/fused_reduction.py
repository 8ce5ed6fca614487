"""A stage of an expression that reduces: one kernel for operands of the kinds that a kernel supports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import ACCUMULATORS, dtype_from_id, dtype_id
from gpuinterop.ops import output_arrays
from gpuinterop.ops.expression_dtypes import is_strict, number_kind
from gpuinterop.ops.reduction_codegen import ACCUMULATOR_BYTES
from gpuinterop.ops.reduction_kernel import ReductionKernel
from gpuinterop.ops.reduction_table import REDUCTIONS

if TYPE_CHECKING:
    from gpuinterop.ops.expression_graph import Graph
    from gpuinterop.ops.expression_partition import End


_MOST = 16  # kMaxPlannedInputs and kMaxPlannedOutputs of native/ops/launch_plan.hpp


class FusedReduction:
    """A stage of an expression that reduces.

    Parameters
    ----------
    part, reductions : the graph of the elements, and the reduction of each of its results.
    ends : what follows; empty if one reduced value is the result.
    elements : computes the graph of the elements, if one reduced value is the result.
    """

    def __init__(
        self, part: Graph, reductions: Sequence[tuple[str, Any, bool]], ends: Sequence[End],
        elements: Callable[..., Sequence[Any]] | None,
    ) -> None:  # fmt: skip
        self.ops = tuple(op for op, _, _ in reductions)
        _, self.axis, self.keepdims = reductions[0]
        self.part, self.ends, self.elements = part, ends, elements
        self.reads_only = part.results[0].index >= 0
        self._kernels: dict[tuple[bool, ...], ReductionKernel] = {}
        self._ways: dict[Any, _Way | None] = {}  # by kinds of operands and extras

    def __call__(
        self, operands: Sequence[Any], extras: Sequence[Any], outs: Sequence[Any]
    ) -> Sequence[Any] | None:
        """Return the results; None if no kernel computes all of them."""
        # Each device has one object, so its id identifies the device.
        key = tuple([
            (type(x), x.dtype, id(x.device)) if isinstance(x, _core.Array) else type(x)
            for x in (*operands, *extras)
        ])  # fmt: skip
        if key not in self._ways:
            self._ways[key] = self._way(operands, extras)
        way = self._ways[key]
        given = None if outs[0] is None else tuple(outs)
        if way is None:
            return None if self.elements is None else self._one_by_one(operands, outs)
        n = len(operands)
        if way.numbers:
            values = [*operands, *extras]
            for i, cls, dtype, code, index in way.numbers:
                number = _core.empty(cls, (), dtype, code, index, where="fuse")
                number.fill(values[i])
                values[i] = number
            operands, extras = values[:n], values[n:]
        made = way.kernel(*operands, extras=extras, out=given)
        results = made if isinstance(made, tuple) else (made,)
        if given is not None:
            return results
        return [
            output_arrays.plain(x) if plain else x
            for x, plain in zip(results, way.plain, strict=True)
        ]

    def _one_by_one(self, operands: Sequence[Any], outs: Sequence[Any]) -> Sequence[Any]:
        """Compute the result by a kernel for the elements and one that reduces them."""
        assert self.elements is not None
        value = operands[0] if self.reads_only else self.elements(*operands, outs=(None,))[0]
        return (getattr(value, self.ops[0])(self.axis, keepdims=self.keepdims, out=outs[0]),)

    def _way(self, operands: Sequence[Any], extras: Sequence[Any]) -> _Way | None:
        """Return how one kernel reduces operands of these kinds; None if no kernel can."""
        values = [*operands, *extras]
        like = next((x for x in values if isinstance(x, _core.Array)), None)
        plain_reduction = self.reads_only and not self.ends
        known = all(isinstance(x, (_core.Array, int, float, complex)) for x in values)
        results = sum(len(end.after.results) for end in self.ends)
        if plain_reduction or like is None or not known or max(len(values), results) > _MOST:
            return None
        no_loops = self.part.has_texts() or REDUCTIONS[self.ops[0]].host is None
        if like.device.type == "cpu" and (no_loops or self.ends):
            return None
        kinds = [
            dtype_id(x.dtype) if isinstance(x, _core.Array) else number_kind(x) for x in values
        ]
        strict, n = is_strict(like), len(operands)
        part = replace(self.part, strict=(strict,) * n)
        rows = part.input_rows(kinds[:n])
        mapped = [dtype_from_id(row) for row in part.result_rows(rows)]
        reduced = [
            np.dtype(REDUCTIONS[op].result(m)) for op, m in zip(self.ops, mapped, strict=True)
        ]
        held = sum(2 * max(4, dtype.itemsize) for dtype in reduced)
        if len(reduced) > 1 and held > ACCUMULATOR_BYTES:
            return None
        strict_results = part.strict_results(rows)
        strict_values = [
            s and r == m for s, r, m in zip(strict_results, reduced, mapped, strict=True)
        ]
        ends, at = [], n
        if self.ends:
            strict_results = ()
        for end in self.ends:
            given = [dtype_id(reduced[i]) for i in end.reduced]
            extra = kinds[at : at + len(end.extras)]
            flags = (*(strict_values[i] for i in end.reduced), *(strict,) * len(extra))
            after = replace(end.after, strict=flags)
            after_rows = after.input_rows((*given, *extra))
            strict_results += after.strict_results(after_rows)
            rows, at = (*rows, *after_rows[len(given) :]), at + len(extra)
            ends.append(end._replace(after=after))
        dtypes = [dtype_from_id(row) for row in rows]
        # The result is a CudaNdarray only if all operands are.
        alike = all(
            (type(x) is type(like) and x.device == like.device) if isinstance(x, _core.Array)
            else output_arrays.class_for(type(like), dtype) is type(like)
            for x, dtype in zip(values, dtypes, strict=True)
        )  # fmt: skip
        if not alike or any(dtype.name not in ACCUMULATORS for dtype in (*dtypes, *mapped)):
            return None
        device = like.device
        numbers = [
            (i, type(like), dtype, device.type_code, device.index)
            for i, (x, dtype) in enumerate(zip(values, dtypes, strict=True))
            if not isinstance(x, _core.Array)
        ]
        known_as = (strict, *strict_values)
        kernel = self._kernels.get(known_as)
        if kernel is None:
            kernel = self._kernels[known_as] = ReductionKernel(
                part, self.ops, self.axis, ends, keepdims=self.keepdims
            )
        return _Way(kernel, numbers, [strict and not s for s in strict_results])


class _Way(NamedTuple):
    """One kernel for operands of certain kinds.

    Attributes
    ----------
    numbers : the positions of numbers among operands and extras, and of the 0-d array that the kernel
        reads instead: class, dtype, device.
    plain : for each result, whether it is not a CudaNdarray although the operands are.
    """

    kernel: ReductionKernel
    numbers: list[tuple[int, Any, Any, int, int]]
    plain: list[bool]
