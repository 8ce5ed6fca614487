"""Generated functions that run the thunks of a compiled graph; an error names the node of its thunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pytensor.link.utils import raise_with_op


def sequence(
    vm: Any,
    steps: Iterable[Any],
    clear_first: Iterable[Any] = (),
    results: Callable[[Callable[[Any], str]], list[str]] = lambda name: [],
) -> Any:
    """Return a function without arguments that runs `steps`, because a loop over lists costs more than small thunks.

    A step is the position of a node, or a function, which raises its errors itself. `results` returns the lines
    that follow the last step; it gets a function that returns the name of a value.
    """
    names: dict[str, Any] = {}
    nodes: dict[int, int] = {}  # number of a line -> position of the node

    def name(value: Any) -> str:
        names[text := f"x{len(names)}"] = value
        return text

    def add_node(error: Any) -> None:
        k = nodes.get(error.__traceback__.tb_lineno)
        if k is not None:
            raise_with_op(vm.fgraph, vm.nodes[k], vm.thunks[k])

    lines = ["def run():", " try:", "  pass"]
    lines += [f"  {name(cell)}[0] = None" for cell in clear_first]
    for step in steps:
        is_node = isinstance(step, int)
        lines.append(f"  {name(vm.thunks[step] if is_node else step)}()")
        if is_node:
            nodes[len(lines)] = step
            clears = vm.post_thunk_clear[step] if vm.post_thunk_clear else ()
            lines += [f"  {name(cell)}[0] = None" for cell in clears]
    lines += [" except Exception as error:", f"  {name(add_node)}(error)", "  raise"]
    lines += results(name)
    exec(compile("\n".join(lines), "<a compiled function>", "exec"), names)
    return names["run"]
