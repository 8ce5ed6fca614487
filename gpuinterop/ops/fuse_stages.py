"""The graph of a fused function in stages: kernels that run one after the other.

A reduction ends a stage, because its value is known only when every element has been seen. What is
computed from it belongs to later stages. Nothing but reduced values is stored between stages: what
several of them need is computed in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpuinterop import _core
from gpuinterop.layout import core_view

from .core_callbacks import is_foreign_array, viewed
from .fuse_checks import check_outs
from .fuse_numbers import described
from .fuse_recent import Recent
from .output_arrays import check_count, refuse_overlap
from .reduction_dispatch import may_overlap
from .trace import Graph, Node, ordered

__all__ = ["Stage", "Stages", "part_of", "stages_of", "unfit_numbers"]

_MOST = 16  # operands of a kernel that may be numbers of the call; the core takes 24


@dataclass(frozen=True)
class Stage:
    """One kernel.

    Attributes
    ----------
    run : takes the operands and an out, or None, for each result; returns the results.
    reads : places of its operands among the arguments and, after them, the reduced values.
    gives : places of its results among those of the function; none for a value in between.
    reduces : whether its one result joins the reduced values.
    """

    run: Callable[[list[Any], list[Any]], Sequence[Any]]
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    reduces: bool


class Stages:
    """A function of arrays as a list of stages."""

    def __init__(self, stages: Sequence[Stage], nodes: Sequence[Node]) -> None:
        self.stages, self.results = stages, len(nodes)
        self._nodes = nodes
        self._checked = Recent()  # operands and outs that were found to fit, as `_like` sees them

    def __call__(self, *operands: Any, out: Any = None) -> Any:
        outs: list[Any] = [None] * self.results
        if out is not None:
            outs = list(out) if isinstance(out, tuple) else [out]
        check_count(outs, self.results, "fuse")
        refuse_overlap(outs, "fuse")
        values = _beside_each_other(operands, outs)
        if out is not None:
            values = self._apart(values, outs)
        found = list(outs)
        for stage in self.stages:
            sinks = [outs[place] for place in stage.gives] or [None]
            made = stage.run([values[place] for place in stage.reads], sinks)
            for place, value in zip(stage.gives, made, strict=False):
                found[place] = value
            values.extend(made if stage.reduces else ())
        return found[0] if self.results == 1 else tuple(found)

    def _apart(self, operands: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        """The operands, copied where a stage would overwrite what a later one reads."""
        values = list(operands)
        if len(self.stages) > 1 and any(out is not None for out in outs):
            self._check(operands, outs)
        written: list[Any] = []
        for stage in self.stages:
            for place in stage.reads:
                x = operands[place] if place < len(operands) else None
                if (
                    isinstance(x, _core.Array)
                    and values[place] is x
                    and any(may_overlap(x, w) for w in written)
                ):
                    values[place] = operands[place].copy()
            written += [outs[g] for g in stage.gives if isinstance(outs[g], _core.Array)]
        return values

    def _check(self, operands: Sequence[Any], outs: Sequence[Any]) -> None:
        """Refuse what a later stage would, before the first one writes its out."""
        known = (tuple(map(_like, operands)), tuple(map(_like, outs)))
        if self._checked[known] is None:
            check_outs(self._nodes, self.stages, operands, outs)
            self._checked[known] = True


def _beside_each_other(operands: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    """The operands, arrays of other libraries where the first array here is: in all stages alike."""
    like = next((x for x in (*operands, *outs) if isinstance(x, _core.Array)), None)
    return [viewed(x, like, "fuse") if is_foreign_array(x) else x for x in operands]


def _like(x: Any) -> tuple[Any, ...]:
    """Equal for operands, and for outs, that are taken or refused alike."""
    if not isinstance(x, _core.Array):
        return type(x), *described(x)
    seen = core_view(x)
    return type(x), seen.shape, seen._strides, seen.dtype, seen.device, seen.readonly


def stages_of(
    graph: Graph,
    results: Sequence[Node],
    elementwise: Callable[[Graph], Callable[..., Any]],
    reduced: Callable[[Graph, tuple[str, Any, bool]], Callable[[Sequence[Any], Any], Any]],
) -> list[Stage]:
    """The stages that compute `results`; the two functions make their kernels."""
    inputs = len(graph.inputs)
    stages: list[Stage] = []
    places: dict[int, int] = {}  # of the reduced values
    left = dict(enumerate(results))
    for node in ordered(results, through=True):
        if node.reduction is None:
            continue
        part, leaves = part_of([node.operands[0]])
        gives = next(((j,) for j, result in left.items() if result is node), ())
        for j in gives:
            del left[j]
        stages.append(
            Stage(_alone(reduced(part, node.reduction)), _reads(leaves, places), gives, True)
        )
        places[id(node)] = inputs + len(places)
    for group in _of_one_shape(graph, left):
        part, leaves = part_of([results[j] for j in group])
        stages.append(
            Stage(_together(elementwise(part)), _reads(leaves, places), tuple(group), False)
        )
    return stages


def unfit_numbers(graph: Graph, results: Sequence[Node]) -> set[int]:
    """The arguments whose numbers must be constants: those in what is reduced, which takes arrays
    only, and all of them where a kernel would take too many.
    """
    if len(graph.inputs) + len(results) > _MOST:
        reached = graph.inputs
    else:
        reduced = [n.operands[0] for n in ordered(results, through=True) if n.reduction is not None]
        reached = ordered(reduced, through=True)
    places = [node.index - len(graph.inputs) for node in reached if node.weak]
    return {origin for place in places for origin in graph.captured[place].origins}


def part_of(results: Sequence[Node]) -> tuple[Graph, list[Node]]:
    """The graph from its leaves to the results, with the leaves as its inputs; and the leaves."""
    nodes = ordered(results)
    leaves = sorted(
        (node for node in nodes if node.is_leaf),
        key=lambda node: (node.index < 0, node.index),
    )
    part = Graph()
    made = {id(leaf): part.add_input() for leaf in leaves}
    for leaf in leaves:
        made[id(leaf)].weak = leaf.weak
    for node in nodes:
        if not node.is_leaf:
            operands = tuple(made[id(o)] for o in node.operands)
            made[id(node)] = Node(node.row, operands, node.result, node.cast_to, number=node.number)
    part.results = [made[id(node)] for node in results]
    return part, leaves


def _reads(leaves: Sequence[Node], places: dict[int, int]) -> tuple[int, ...]:
    return tuple(leaf.index if leaf.index >= 0 else places[id(leaf)] for leaf in leaves)


def _of_one_shape(graph: Graph, results: dict[int, Node]) -> list[list[int]]:
    """The places of results, together where one kernel can compute them.

    Results of the same operands have one shape. Otherwise the arguments must be asked.
    """
    leaves = {
        j: frozenset(id(leaf) for leaf in part_of([node])[1] if not leaf.weak)
        for j, node in results.items()
    }
    if len(set(leaves.values())) <= 1:
        return [list(results)] if results else []
    groups: dict[tuple[int, ...], list[int]] = {}
    for j, node in results.items():
        groups.setdefault(graph.shape(node), []).append(j)
    return list(groups.values())


def _alone(reduction: Callable[[Sequence[Any], Any], Any]) -> Callable[..., Sequence[Any]]:
    return lambda operands, outs: (reduction(operands, outs[0]),)


def _together(operation: Callable[..., Any]) -> Callable[..., Sequence[Any]]:
    def run(operands: list[Any], outs: list[Any]) -> Sequence[Any]:
        given = None if all(out is None for out in outs) else tuple(outs)
        values = operation(*operands, out=given)
        return values if isinstance(values, tuple) else (values,)

    return run
