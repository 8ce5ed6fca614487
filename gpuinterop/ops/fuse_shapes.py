"""The shapes of a graph's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuinterop.layout import broadcast_shapes

from .reduction_dispatch import normalized_axes

if TYPE_CHECKING:
    from .trace import Node

__all__ = ["shapes_of"]


def shapes_of(
    nodes: Sequence[Node], given: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """The shape of each of the ordered nodes, for inputs of the shapes in `given`."""
    found: dict[int, tuple[int, ...]] = {}
    for node in nodes:
        shapes = [found[id(o)] for o in node.operands]
        if node.index >= 0:
            found[id(node)] = given[node.index]
        elif node.reduction is not None:
            found[id(node)] = _reduced_shape(shapes[0], *node.reduction)
        else:
            found[id(node)] = broadcast_shapes(shapes, "fuse") if shapes else ()
    return found


def _reduced_shape(shape: tuple[int, ...], op: str, axis: Any, keepdims: bool) -> tuple[int, ...]:
    axes = normalized_axes(axis, len(shape), op)
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)
