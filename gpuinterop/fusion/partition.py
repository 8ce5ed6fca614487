"""Divides the values of an expression among kernels.

A reduction ends a kernel, because its value is known only when every element has been read. The same
kernel also computes values element by element from the reduced value, in its shape. All other results
are computed after the reductions, those of one shape in one kernel.

Up to `_MOST_REDUCTIONS` reductions that do not depend on each other share a kernel (`_joins`) in two cases:

- They reduce elements of the same shape over the same axes. If these are more than `_SMALL`, they must also have an
  operand of that size in common, which the kernel reads once: without one, only the time of a launch would be saved.
- One reduces at most `_SMALL` elements over some axes, and the other reduces elements with only these axes to a single
  value. The kernel computes this value again for each result of the first one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gpuinterop import _core

from .graph import Graph, Value, in_order, shapes_of, values_of

_MOST_REDUCTIONS = 4  # of one kernel
_SMALL = 1 << 20  # elements: a reduction of fewer takes about as long as a launch


class Read(NamedTuple):
    """An operand of a kernel: an input of the expression, or a value that an earlier kernel stored."""

    place: int  # the position among the inputs and, after them, the stored values
    # For each axis that of the source, -1 for a new one; None: all.
    axes: tuple[int, ...] | None = None


class Element(NamedTuple):
    """A value as a kernel computes it: in the order of axes of the kernel's shape."""

    value: Value
    axes: tuple[int, ...] | None = None


class End(NamedTuple):
    """The results of a kernel that have one shape.

    Attributes
    ----------
    reduced : the positions of the reductions from which they are computed.
    after : the graph of the results. Its inputs are the reduced values and the extras.
    extras : the further operands of that graph.
    stores : the results.
    keepdims : whether they keep the reduced axes, with length 1.
    once : None; or, of a single value that the kernel computes again for each of its other results and stores once,
        the number of axes of its elements.
    """

    reduced: tuple[int, ...]
    after: Graph
    extras: Sequence[Any]
    stores: tuple[Value, ...] = ()
    keepdims: bool = False
    once: int | None = None


def bare_end(keepdims: bool) -> End:
    """Return the end whose result is the reduced value itself."""
    after = Graph()
    after.results = [after.input()]
    return End((0,), after, (), keepdims=keepdims)


@dataclass(frozen=True)
class Stage:
    """One kernel.

    Attributes
    ----------
    part, reads : the elements that are computed or reduced, and the operands of that graph.
    stores : the values that it stores, in the order of the kernel's results.
    reductions : one for each result of `part`; none in an elementwise kernel.
    ends : what follows the reductions; empty if one reduced value is the only result.
    """

    part: Graph
    reads: tuple[Read, ...]
    stores: tuple[Value, ...]
    reductions: tuple[tuple[str, Any, bool], ...] = ()
    ends: tuple[End, ...] = ()

    @property
    def extras(self) -> tuple[Read, ...]:
        return tuple(read for end in self.ends for read in end.extras)


def partition(
    results: Sequence[Value], shapes: Sequence[tuple[int, ...]], joined: bool = True
) -> list[Stage]:
    """Return the kernels of an expression for inputs of these shapes; without reductions, shapes are not needed.

    Without `joined` each reduction has a kernel that computes nothing else.
    """
    return _Partition(results, shapes, joined).stages


def depends_on_shapes(results: Sequence[Value], inputs: int) -> bool:
    """Return whether the kernels, and not only their results, depend on the shapes of the inputs."""
    values = values_of(results)
    if any(value.reduction is not None or value.axes is not None for value in values):
        return True
    # Results of the same operands have one shape, that of the kernel.
    arrays = {frozenset(v for v in values_of([r]) if v.index >= 0 and not v.weak) for r in results}
    return len(arrays) > 1 or sum(value.index >= 0 for value in values) < inputs


class _Partition:
    def __init__(
        self, results: Sequence[Value], shapes: Sequence[tuple[int, ...]], joined: bool
    ) -> None:
        self.results, self.joined = results, joined
        self.values = values_of(results)
        self.shapes = shapes_of(self.values, dict(enumerate(shapes))) if shapes else {}
        self.count = len(shapes)
        self.places: dict[int, int] = {}  # of the stored values
        self.stages: list[Stage] = []
        self.users: dict[int, list[Value]] = {}
        for value in self.values:
            for operand in value.operands:
                self.users.setdefault(id(operand), []).append(value)
        levels: dict[int, int] = {}  # the number of reductions that precede a value
        for value in self.values:
            below = max((levels[id(o)] for o in value.operands), default=0)
            levels[id(value)] = below + (value.reduction is not None)
        for level in range(max(levels.values(), default=0)):
            for group in self._groups([
                v for v in self.values if v.reduction is not None and levels[id(v)] == level + 1
            ]):  # fmt: skip
                self._reduce(group)
        self._finish()

    def _finish(self) -> None:
        """Add the kernels of the results that no reduction stores, one for each shape."""
        groups: dict[tuple[int, ...] | None, list[Value]] = {}
        results = list(self.results)
        for stage in self.stages:
            for value in stage.stores:
                if value in results:
                    results.remove(value)  # once: a second result of the same value is a copy
        for value in results:
            groups.setdefault(self.shapes.get(id(value)), []).append(value)
        for group in groups.values():
            part, reads = self._part([Element(value) for value in group])
            self.stages.append(Stage(part, reads, tuple(group)))

    def _groups(self, values: list[Value]) -> list[list[Element]]:
        """Return the reductions of each kernel, with the axes of their elements in the order of the first one's."""
        groups: list[list[Element]] = []
        for value in sorted(values, key=lambda v: -math.prod(self._shape_of_elements(v))):
            for group in groups:
                found = self._joins(group, value)
                if found:
                    group.append(found)
                    break
            else:
                groups.append([Element(value)])
        # Those of fewer results first: the kernels of the others compute what depends on both.
        return sorted(groups, key=lambda group: math.prod(self.shapes[id(group[0].value)]))

    def _joins(self, group: list[Element], value: Value) -> Element | None:
        """Return the elements of a reduction that can share the kernel of a group, or None: see the module's docstring.

        They have their axes in the order of those of the group's first reduction.
        """
        first = group[0].value
        shape, own = self._shape_of_elements(first), self._shape_of_elements(value)
        axes, mine = _reduced_axes(first, len(shape)), _reduced_axes(value, len(own))
        size = math.prod(shape)
        if size == 0 or len(group) == _MOST_REDUCTIONS or not self.joined:
            return None
        if own == shape and mine == axes:
            shared = self._arrays(first, shape) & self._arrays(value, shape)
            return Element(value) if size <= _SMALL or shared else None
        long = [i for i in mine if own[i] > 1]  # axes of length 1 may be anywhere
        lengths = [shape[i] for i in axes if shape[i] > 1]
        if size > _SMALL or len(mine) < len(own) or [own[i] for i in long] != lengths:
            return None
        # If values of the first one's shape need both, the other one is stored by an earlier kernel.
        alone = len(self._values_after([first]))
        self.places[id(value)] = -1
        needed = len(self._values_after([first])) > alone
        del self.places[id(value)]
        if needed:
            return None
        rest = iter(long)
        found = [next(rest) if i in axes and n > 1 else -1 for i, n in enumerate(shape)]
        while found and found[0] < 0:  # as in an operand with fewer axes
            del found[0]
        return Element(value, tuple(found))

    def _shape_of_elements(self, value: Value) -> tuple[int, ...]:
        return self.shapes[id(value.operands[0])]

    def _arrays(self, value: Value, shape: tuple[int, ...]) -> set[int]:
        """Return the places of the arrays with as many elements as a reduction that it reads."""
        leaves = in_order([value.operands[0]], lambda v: () if self._is_leaf(v) else v.operands)
        size = math.prod(shape)
        return {
            self._place(v)
            for v in leaves
            if self._is_leaf(v) and math.prod(self.shapes[id(v)]) == size
        }

    def _reduce(self, group: list[Element]) -> None:
        values = [element.value for element in group]
        part, reads = self._part([self._element(v.operands[0], axes) for v, axes in group])
        reductions = tuple(v.reduction for v in values if v.reduction is not None)
        alike: dict[tuple[Any, ...], list[int]] = {}  # the reductions whose results have one shape
        for i, (value, axes) in enumerate(group):
            alike.setdefault((axes is None, reductions[i][2], self.shapes[id(value)]), []).append(i)
        if not self.joined:
            self._add(Stage(part, reads, (values[0],), reductions))
            # Later kernels read them, and so do not compute them for each of their elements.
            stored = tuple(v for v in self._values_to_store(values) if v is not values[0])
            if stored:
                part, reads = self._part([Element(v) for v in stored])
                self._add(Stage(part, reads, stored))
            return
        ends = tuple(self._end(places, group) for places in alike.values())
        stores = tuple(value for end in ends for value in end.stores)
        self._add(Stage(part, reads, stores, reductions, () if stores == (values[0],) else ends))

    def _add(self, stage: Stage) -> None:
        self.stages.append(stage)
        for stored in stage.stores:
            self.places[id(stored)] = self.count + len(self.places)

    def _values_to_store(self, reduced: list[Value]) -> tuple[Value, ...]:
        """Return the values, of these and of those after them, that other kernels or the caller read."""
        joined = self._values_after(reduced)
        return tuple(
            v for v in (*reduced, *joined)
            if v in self.results or any(user not in joined for user in self.users[id(v)])
        )  # fmt: skip

    def _end(self, places: list[int], group: list[Element]) -> End:
        reduced = [group[i].value for i in places]
        value, axes = group[places[0]]
        stores = self._values_to_store(reduced)
        after, extras = self._part([Element(v) for v in stores], reduced)
        assert value.reduction is not None
        once = None if axes is None else len(self._shape_of_elements(value))
        return End(tuple(places), after, extras, stores, value.reduction[2], once)

    def _values_after(self, reduced: list[Value]) -> list[Value]:
        """Return the values that a kernel can compute from these reduced values, of one shape, and stored ones."""
        shape = self.shapes[id(reduced[0])]
        dependent = {id(v): v for v in reduced}
        computable = set(dependent)
        for value in self.values:
            view = value.axes is not None and self._is_leaf(value.operands[0])
            if view or self._is_leaf(value) or value.number is not None:
                computable.add(id(value))
            elif value.row is not None and all(id(o) in computable for o in value.operands):
                from_it = any(id(o) in dependent for o in value.operands)
                if from_it and self.shapes[id(value)] == shape:
                    dependent[id(value)] = value
                if not from_it or id(value) in dependent:
                    computable.add(id(value))
        return list(dependent.values())[len(reduced) :]

    def _is_leaf(self, value: Value) -> bool:
        """Return whether a kernel reads the value instead of computing it."""
        return value.index >= 0 or id(value) in self.places

    def _part(
        self, ends: Sequence[Element], reduced: Sequence[Value] = ()
    ) -> tuple[Graph, tuple[Read, ...]]:
        """Return the graph that computes `ends`, and its operands; the values `reduced` are its first inputs."""
        elements = in_order(ends, lambda element: self._operands(element, reduced))
        leaves = [e for e in elements if self._is_leaf(e.value) and e.value not in reduced]
        leaves.sort(key=lambda e: (self._place(e.value), e.axes or ()))
        part, part_values = Graph(), {}
        for value in reduced:
            part_values[Element(value)] = part.input()
        for leaf in leaves:
            part_values[leaf] = part.input(weak=leaf.value.weak)
        for element in elements:
            if element not in part_values:
                operands = tuple(part_values[o] for o in self._operands(element, reduced))
                part_values[element] = (
                    operands[0] if element.value.axes is not None
                    else replace(element.value, operands=operands)
                )  # fmt: skip
        part.results = [part_values[end] for end in ends]
        return part, tuple(Read(self._place(leaf.value), leaf.axes) for leaf in leaves)

    def _operands(self, element: Element, reduced: Sequence[Value]) -> list[Element]:
        """Return the values from which an element is computed, each with its axes."""
        value, axes = element
        if self._is_leaf(value) or value in reduced:
            return []
        if value.axes is not None:
            inner = value.axes
            if axes is not None:
                inner = tuple(-1 if axis < 0 else inner[axis] for axis in axes)
            return [Element(value.operands[0], inner)]
        if axes is None:
            return [Element(operand) for operand in value.operands]
        return [
            self._element(operand, self._aligned(operand, value, axes))
            for operand in value.operands
        ]

    def _element(self, value: Value, axes: tuple[int, ...] | None) -> Element:
        """Return the element of a value with these axes; without axes if they are its own."""
        own = axes == tuple(range(len(self.shapes.get(id(value), ()))))
        return Element(value, None if own else axes)

    def _aligned(
        self, operand: Value, value: Value, axes: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        """Return the axes of an operand that broadcasts to a value whose axes are given."""
        ndim = len(self.shapes[id(operand)])
        lead = len(self.shapes[id(value)]) - ndim
        return None if ndim == 0 else tuple(max(axis - lead, -1) for axis in axes)

    def _place(self, leaf: Value) -> int:
        return leaf.index if leaf.index >= 0 else self.places[id(leaf)]


def _reduced_axes(value: Value, ndim: int) -> tuple[int, ...]:
    assert value.reduction is not None
    op, axis, _ = value.reduction
    return _core.read_axes(axis, ndim, op)
