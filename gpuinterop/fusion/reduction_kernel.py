"""Reductions of an expression as one kernel: several operands, a graph, reductions of its results, and what follows.

The kernel, or the program of loops on "cpu", reduces a value as it computes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import c_strides
from gpuinterop.arrays.dtypes import NAMES, WORKING, dtype_from_id, dtype_id
from gpuinterop.elementwise.results import plain, require_arrays
from gpuinterop.reduce.codegen import INPUT, OUTPUT, Ending, Output, Recipe, launches_for
from gpuinterop.reduce.host_program import host_stages
from gpuinterop.reduce.launch import Operand
from gpuinterop.reduce.table import REDUCTIONS, full_strides, reduced_shape

from .codegen import device_function, host_values
from .partition import End

if TYPE_CHECKING:
    from .graph import Graph


class ReductionKernel:
    """Reductions of the results of a graph, and the graphs of the reduced values, for operands of known dtypes.

    Parameters
    ----------
    graph : of the elements of the operands.
    ops : the reductions, one for each result of the graph.
    axis : of the first reduction.
    ends : the results, with the extras, which have the shape of their results.
    type_ids : the dtypes of the operands and the extras.
    results : class, dtype and shape of each result.
    where : the name in errors.
    """

    def __init__(
        self,
        graph: Graph,
        ops: Sequence[str],
        axis: int | tuple[int, ...] | None,
        ends: Sequence[End],
        type_ids: Sequence[int],
        results: Sequence[Output],
        where: str = "fuse",
    ) -> None:
        n = len(graph.inputs)
        self.graph, self.ops, self.axis, self.ends = graph, tuple(ops), axis, tuple(ends)
        self._type_ids, self._extras = tuple(type_ids[:n]), tuple(type_ids[n:])
        self._results, self._where = list(results), where

    def prepare(self, arrays: Sequence[Any], out: Any) -> Any:
        """Return the plan for the layouts of operands and extras, or the result where `out` overlaps them.

        `out` is None, or an array for each result, which has its shape and dtype.
        """
        n = len(self.graph.inputs)
        require_arrays(self._where, *arrays)
        operands, extras = [*map(plain, arrays[:n])], [*map(plain, arrays[n:])]
        shape = _core.broadcast_shapes([x.shape for x in operands], self._where)
        axes = _core.read_axes(self.axis, len(shape), self._where)
        full = [x.broadcast_to(shape) for x in operands]
        after = self._broadcast(
            extras, reduced_shape(shape, axes), reduced_shape(shape, axes, True)
        )
        # Within an end the thread that reads an extra then writes to the same address.
        read_by = [i for i, end in enumerate(self.ends) for _ in end.extras]
        written_by = [i for i, end in enumerate(self.ends) for _ in end.after.results]
        outs_and_ends = [*zip(map(plain, out or ()), written_by, strict=False)]
        sinks = [o for o, _ in outs_and_ends] or None
        if not any(_core._may_overlap(x, o) for x in full for o, _ in outs_and_ends) and not any(
            _core._may_overlap(e, o) and not (i == j and _same_place(e, o))
            for e, i in zip(extras, read_by, strict=True) for o, j in outs_and_ends
        ):  # fmt: skip
            return self._plan(axes, full, after, sinks)
        # Elements would be overwritten before all blocks have read them.
        values = self._plan(axes, full, after, None).run((*full, *after), None)
        for o, value in zip(out, values if isinstance(values, tuple) else (values,), strict=True):
            _core.copy_into(o, value, where=self._where)
        return out if len(out) > 1 else out[0]

    def _broadcast(
        self, extras: Sequence[Any], kept: tuple[int, ...], kept_all: tuple[int, ...]
    ) -> list[Any]:
        """Return the extras in the shapes of the reduced values: without or with the reduced axes."""
        ends = [end for end in self.ends for _ in end.extras]
        return [
            e.reshape(()).broadcast_to(kept) if end.once is not None
            else e.broadcast_to(kept_all if end.keepdims else kept)
            for e, end in zip(extras, ends, strict=True)
        ]  # fmt: skip

    def recipe(self) -> Recipe:
        """Return the recipe of the kernel."""
        mapped = [dtype_from_id(type_id) for type_id in self.graph.result_ids(self._type_ids)]
        reduced = [
            np.dtype(REDUCTIONS[op].result(dtype))
            for op, dtype in zip(self.ops, mapped, strict=True)
        ]
        parts = [
            REDUCTIONS[op].kernel(m.name, r.name)
            for op, m, r in zip(self.ops, mapped, reduced, strict=True)
        ]
        value, _, accumulator = parts[-1]
        for dtype, _, op in reversed(parts[:-1]):
            value, accumulator = f"Pair<{dtype}, {value}>", f"Both<{op}, {accumulator}>"
        functions = [device_function("gi_fused", self.graph, self._type_ids)]
        endings, results, read = [], 0, 0
        rest = iter(self._extras)
        for n, end in enumerate(self.ends):
            of_reduced = [dtype_id(reduced[i]) for i in end.reduced]
            given = (*of_reduced, *islice(rest, len(end.extras)))
            functions.append(device_function(f"gi_posts{n}", end.after, given))
            extra, result = read + len(end.extras), results + len(end.after.results)
            values = [_member(i, len(parts)) for i in end.reduced]
            once = end.once is not None
            endings.append(Ending(values, range(read, extra), range(results, result), once))
            read, results = extra, result
        texts, declared, defined = zip(*functions, strict=True)
        inputs = tuple(NAMES[type_id] for type_id in self._type_ids)
        return Recipe(
            inputs=inputs,
            value=value,
            map=f"gi_mapped({', '.join(f'x{i}' for i in range(len(inputs)))})",
            op=accumulator,
            outputs=tuple(NAMES[output.dtype] for output in self._results),
            extras=tuple(NAMES[type_id] for type_id in self._extras),
            ends=tuple(endings),
            support="".join(texts) + _map_function(value, parts, mapped, inputs),
            declared="\n".join(declared),
            defined="\n".join(defined),
        )

    def _plan(
        self, axes: tuple[int, ...], operands: Sequence[Any], extras: Sequence[Any], outs: Any
    ) -> Any:
        shape, n, type_ids = operands[0].shape, len(operands), self._type_ids
        if operands[0].device.type == "cpu":
            stages = host_stages(
                self.ops[0], type_ids, lambda program, _: host_values(program, self.graph, type_ids)[0],
                self.graph.result_ids(type_ids)[0], self._results[0][1],
                math.prod(shape[i] for i in axes),
            )  # fmt: skip
            return _core.make_host_reduction(stages, shape, axes, self._results[0])
        # A result that is stored once has the same place for each element of the others.
        once = [end.once is not None for end in self.ends for _ in end.after.results]
        strides = (
            [c_strides(output.shape, 1) for output in self._results]
            if outs is None
            else [o._strides for o in outs]
        )
        zeros = (0,) * len(shape)
        sinks = [
            Operand(
                zeros if alone else full_strides(steps, axes, len(shape)),
                dtype_from_id(output.dtype).itemsize,
            )
            for steps, alone, output in zip(strides, once, self._results, strict=True)
        ]
        device = operands[0].device.index
        launches, scratch = launches_for(
            device, self.recipe(), shape, axes,
            [(INPUT, i, Operand.of(x)) for i, x in enumerate(operands)],
            [(OUTPUT, j, sink) for j, sink in enumerate(sinks)],
            [
                (INPUT, n + i, Operand.of(e, full_strides(e._strides, axes, len(shape))))
                for i, e in enumerate(extras)
            ],
        )  # fmt: skip
        return _core.make_plan(device, launches, scratch, self._results)


def _member(i: int, count: int) -> str:
    """Return the expression of reduced value i of a kernel; several are nested pairs."""
    return "gi_r" + ".second" * i + (".first" if i < count - 1 else "")


_ELEMENT = re.compile(r"\bx0\b")


def _map_function(
    value: str, parts: Sequence[tuple[str, str, str]], mapped: Sequence[Any], inputs: Sequence[str]
) -> str:
    """Return gi_mapped, a function that returns the elements to reduce from the values that gi_fused sets."""
    parameters = ", ".join(f"{WORKING[name]} a{i}" for i, name in enumerate(inputs))
    names = ", ".join([f"a{i}" for i in range(len(inputs))] + [f"m{j}" for j in range(len(mapped))])
    declared = " ".join(f"{WORKING[dtype.name]} m{j};" for j, dtype in enumerate(mapped))
    elements = [
        f"gi_to<{dtype}>({_ELEMENT.sub(f'm{j}', element)})"
        for j, (dtype, element, _) in enumerate(parts)
    ]
    pair = elements[-1]
    for element in reversed(elements[:-1]):
        pair = f"gi_pair({element}, {pair})"
    return (
        f"GI_FN {value} gi_mapped({parameters}) {{\n"
        f"  {declared}\n  gi_fused({names});\n  return {pair};\n}}\n"
    )


def _same_place(x: Any, y: Any) -> bool:
    dtypes = [(a.ptr, a.shape, a._strides, a.itemsize) for a in (x, y)]
    return bool(dtypes[0] == dtypes[1])
