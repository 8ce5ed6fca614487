"""Divides the values of an expression among kernels.

A reduction ends a kernel, because its value is known only when every element has been read. The same
kernel also computes values element by element from the reduced value, in its shape. All other results
are computed after the reductions, those of one shape in one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpuinterop.views import read_reduced_axes

from .expression_dtypes import Value
from .expression_graph import Graph, in_order, ordered, shapes_of


class Read(NamedTuple):
    """An operand of a kernel: an input of the expression, or a value that an earlier kernel stored."""

    place: int  # the position among the inputs and, after them, the stored values
    axes: tuple[int, ...] | None = (
        None  # for each axis that of the source, -1 for a new one; None: all
    )


class Element(NamedTuple):
    """A value as a kernel computes it: in the order of axes of the kernel's shape."""

    value: Value
    axes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Stage:
    """One kernel.

    Attributes
    ----------
    part, reads : the elements that are computed or reduced, and the operands of that graph.
    stores : the values that it stores, in the order of the kernel's results.
    reduction : of the elements; None for a kernel without one.
    after, extras : the graph of the reduced value, which is its first input, and the other operands of
        that graph; None if the reduced value itself is the only result.
    """

    part: Graph
    reads: tuple[Read, ...]
    stores: tuple[Value, ...]
    reduction: tuple[str, object, bool] | None = None
    after: Graph | None = None
    extras: tuple[Read, ...] = ()


def partition(results: Sequence[Value], shapes: Sequence[tuple[int, ...]]) -> list[Stage]:
    """Return the kernels of an expression for inputs of these shapes; without reductions, shapes are not needed."""
    return _Partition(results, shapes).stages


def depends_on_shapes(results: Sequence[Value], inputs: int) -> bool:
    """Return whether the kernels, and not only their results, depend on the shapes of the inputs."""
    values = ordered(results)
    if any(value.reduction is not None or value.axes is not None for value in values):
        return True
    # Results of the same operands have one shape, that of the kernel.
    arrays = {frozenset(v for v in ordered([r]) if v.index >= 0 and not v.weak) for r in results}
    return len(arrays) > 1 or sum(value.index >= 0 for value in values) < inputs


class _Partition:
    def __init__(self, results: Sequence[Value], shapes: Sequence[tuple[int, ...]]) -> None:
        self.results = results
        self.values = ordered(results)
        self.shapes = shapes_of(self.values, dict(enumerate(shapes))) if shapes else {}
        self.count = len(shapes)
        self.places: dict[int, int] = {}  # of the stored values
        self.stages: list[Stage] = []
        self.users: dict[int, list[Value]] = {}
        for value in self.values:
            for operand in value.operands:
                self.users.setdefault(id(operand), []).append(value)
        for value in self.values:
            if value.reduction is not None:
                self._reduce(value)
        self._finish()

    def _finish(self) -> None:
        """Add the kernels of the results that no reduction stores, one for each shape."""
        groups: dict[tuple[int, ...] | None, list[Value]] = {}
        left = list(self.results)
        for stage in self.stages:
            for value in stage.stores:
                if value in left:
                    left.remove(value)  # once: a second result of the same value is a copy
        for value in left:
            groups.setdefault(self.shapes.get(id(value)), []).append(value)
        for group in groups.values():
            part, reads = self._part([Element(value) for value in group])
            self.stages.append(Stage(part, reads, tuple(group)))

    def _reduce(self, value: Value) -> None:
        part, reads = self._part([Element(value.operands[0])])
        joined = self._joined(value)
        stores = tuple(
            v for v in (value, *joined)
            if v in self.results or any(user not in joined for user in self.users[id(v)])
        )  # fmt: skip
        after: Graph | None = None
        extras: tuple[Read, ...] = ()
        if stores != (value,):
            after, extras = self._part([Element(v) for v in stores], value)
        self.stages.append(Stage(part, reads, stores, value.reduction, after, extras))
        for stored in stores:
            self.places[id(stored)] = self.count + len(self.places)

    def _joined(self, reduced: Value) -> list[Value]:
        """Return the values that a reduction's kernel can compute: of its shape, from it and from stored values."""
        shape = self.shapes[id(reduced)]
        computable, joined = {id(reduced)}, {id(reduced): reduced}
        for value in self.values:
            if value.row is None:
                if (
                    value is reduced
                    or self._is_leaf(value)
                    or value.number is not None
                    or (value.axes is not None and self._is_leaf(value.operands[0]))
                ):
                    computable.add(id(value))
            elif all(id(o) in computable for o in value.operands):
                from_it = any(id(o) in joined for o in value.operands)
                if from_it and self.shapes[id(value)] == shape:
                    joined[id(value)] = value
                if not from_it or id(value) in joined:
                    computable.add(id(value))
        return list(joined.values())[1:]

    def _is_leaf(self, value: Value) -> bool:
        """Return whether a kernel reads the value instead of computing it."""
        return value.index >= 0 or id(value) in self.places

    def _part(
        self, ends: Sequence[Element], reduced: Value | None = None
    ) -> tuple[Graph, tuple[Read, ...]]:
        """Return the graph that computes `ends`, and its operands; `reduced`, if given, is its first input."""
        elements = in_order(ends, lambda element: self._operands(element, reduced))
        leaves = [e for e in elements if self._is_leaf(e.value) and e.value is not reduced]
        leaves.sort(key=lambda e: (self._place(e.value), e.axes or ()))
        part, made = Graph(), {}
        if reduced is not None:
            made[Element(reduced)] = part.input()
        for leaf in leaves:
            made[leaf] = part.input(weak=leaf.value.weak)
        for element in elements:
            if element not in made:
                operands = tuple(made[o] for o in self._operands(element, reduced))
                made[element] = (
                    operands[0] if element.value.axes is not None
                    else replace(element.value, operands=operands)
                )  # fmt: skip
        part.results = [made[end] for end in ends]
        drop = () if reduced is None else self._kept_axes(reduced)
        return part, tuple(self._read(leaf, drop) for leaf in leaves)

    def _operands(self, element: Element, reduced: Value | None) -> list[Element]:
        """Return the values from which an element is computed, each with its axes."""
        value, axes = element
        if self._is_leaf(value) or value is reduced:
            return []
        if value.axes is not None:
            inner = value.axes
            if axes is not None:
                inner = tuple(-1 if axis < 0 else inner[axis] for axis in axes)
            return [Element(value.operands[0], inner)]
        if axes is None:
            return [Element(operand) for operand in value.operands]
        return [Element(operand, self._aligned(operand, value, axes)) for operand in value.operands]

    def _aligned(
        self, operand: Value, value: Value, axes: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        """Return the axes of an operand that broadcasts to a value whose axes are given."""
        ndim = len(self.shapes[id(operand)])
        lead = len(self.shapes[id(value)]) - ndim
        return None if ndim == 0 else tuple(max(axis - lead, -1) for axis in axes)

    def _place(self, leaf: Value) -> int:
        return leaf.index if leaf.index >= 0 else self.places[id(leaf)]

    def _read(self, leaf: Element, kept: Sequence[int]) -> Read:
        """Return how a kernel reads a leaf; after a reduction, without the axes of length 1 that it keeps."""
        axes = leaf.axes
        ndim = len(self.shapes[id(leaf.value)]) if axes is None and kept else len(axes or ())
        if ndim and kept:
            lead = len(kept) - ndim
            axes = tuple(range(ndim)) if axes is None else axes
            axes = tuple(axis for i, axis in enumerate(axes, lead) if kept[i])
        return Read(self._place(leaf.value), axes)

    def _kept_axes(self, reduced: Value) -> tuple[bool, ...]:
        """Return for each axis whether it is not reduced, if the reduction keeps its axes; otherwise ()."""
        assert reduced.reduction is not None
        op, axis, keepdims = reduced.reduction
        if not keepdims:
            return ()
        ndim = len(self.shapes[id(reduced)])
        axes = read_reduced_axes(axis, ndim, op)
        return tuple(i not in axes for i in range(ndim))
