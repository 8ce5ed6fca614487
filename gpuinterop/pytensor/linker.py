"""The linker of the mode "GPU": one generated function for each graph, or captured graphs that are replayed."""

from __future__ import annotations

import copy
import copyreg
import heapq
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytensor.compile.executor import Function, _pickle_Function
from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.link.utils import raise_with_op
from pytensor.link.vm import Loop, VMLinker

import gpuinterop as gi

from . import settings
from .plan import Plan
from .replay import no_replay, recordable_nodes

__all__ = ["GpuFunction", "GpuLinker", "GpuMode", "GpuVM"]


class GpuLinker(VMLinker):
    """Runs the nodes of a graph in Python, and replays CUDA graphs of them if possible."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"use_cloop": False, **options})

    def accept(self, fgraph: Any, no_recycling: Any = None, profile: Any = None) -> Any:
        linker = copy.copy(self)
        linker.fgraph, linker.no_recycling, linker.profile = fgraph, no_recycling or [], profile
        linker.updated_vars = {}
        linker._allow_gc = (
            config.allow_gc
        )  # read for each function, not only when the mode is created
        return linker

    def reduce_storage_allocations(self, storage_map: Any, order: Any) -> Any:
        return ()  # a key would contain the values of 0-d arrays, and reading them would wait for the device

    def schedule(self, fgraph: Any) -> list[Any]:
        """Order the nodes so that those of a captured graph form few long runs: the others go first."""
        order: list[Any] = fgraph.toposort()
        if not settings.captures():
            return order
        recordable = recordable_nodes(order)
        place = {node: i for i, node in enumerate(order)}
        extra = fgraph.orderings()
        waits = {
            node: {x.owner for x in node.inputs if x.owner} | set(extra.get(node, ()))
            for node in order
        }
        followers: dict[Any, list[Any]] = {}
        for node, before in waits.items():
            for other in before:
                followers.setdefault(other, []).append(node)
        left = {node: len(before) for node, before in waits.items()}
        ready: tuple[list[Any], list[Any]] = ([], [])
        for node in order:
            if not left[node]:
                heapq.heappush(ready[node in recordable], (place[node], node))
        result = []
        while ready[0] or ready[1]:
            kind = 0 if ready[0] else 1
            while ready[kind]:
                _, node = heapq.heappop(ready[kind])
                result.append(node)
                for follower in followers.get(node, ()):
                    left[follower] -= 1
                    if not left[follower]:
                        heapq.heappush(ready[follower in recordable], (place[follower], follower))
        return result

    def make_vm(self, nodes: Any, thunks: Any, inputs: Any, outputs: Any, storage_map: Any,
                clear: Any, computed: Any, compute_map: Any, updated: Any) -> Any:  # fmt: skip
        if self.callback or self.callback_input or any(getattr(t, "lazy", False) for t in thunks):
            # Lazy operations, such as ifelse, need PyTensor's own evaluation from the results backwards.
            return super().make_vm(nodes, thunks, inputs, outputs, storage_map, clear, computed,
                                   compute_map, updated)  # fmt: skip
        before = [storage_map[v] for v in self.no_recycling]
        return GpuVM(self.fgraph, nodes, thunks, before, storage_map, inputs, outputs, updated,
                     clear if self.allow_gc else None, set(self.no_recycling))  # fmt: skip


class GpuVM(Loop):
    """Runs the thunks: by replays of captured graphs on a GPU, else by one generated function."""

    time_thunks: bool

    def __init__(self, *args: Any) -> None:
        self.kept = args[-1]  # variables whose memory may be that of a result
        super().__init__(*args[:-1])
        self.synchronise = True  # wait for the device after each timed thunk
        self.plan = Plan(self) if settings.captures() else None
        if self.plan is not None and not self.plan.segments:
            self.plan = None
        self._source, self.flat = _flat(self)

    def __call__(self) -> Any:
        if self.time_thunks:
            return self.call_timed()
        return self.flat() if self.plan is None else self.plan()

    def call_timed(self) -> Any:
        """Run the thunks one by one and add their times; without waits, the first transfer would have all the time."""
        clears = self.post_thunk_clear or [()] * len(self.nodes)
        for cell in self.pre_call_clear:
            cell[0] = None
        for k, (node, thunk) in enumerate(zip(self.nodes, self.thunks, strict=True)):
            start = time.perf_counter()
            try:
                thunk()
            except Exception:
                raise_with_op(self.fgraph, node, thunk)
            if self.synchronise:
                gi.synchronize()
            self.call_times[k] += time.perf_counter() - start
            self.call_counts[k] += 1
            for cell in clears[k]:
                cell[0] = None
        return self.perform_updates()

    @contextmanager
    def timed(self, synchronise: bool) -> Iterator[None]:
        """Time the thunks of all calls in a block."""
        before = self.time_thunks, self.synchronise
        self.time_thunks, self.synchronise = True, synchronise
        try:
            yield
        finally:
            self.time_thunks, self.synchronise = before

    def raise_at(self, error: BaseException) -> None:
        """Raise an error of a thunk with PyTensor's description of its node."""
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != _FLAT:
            trace = trace.tb_next
        if trace is None:
            raise error
        k = int(self._source[trace.tb_lineno - 1].strip()[1:-2])
        raise_with_op(self.fgraph, self.nodes[k], self.thunks[k])


_FLAT = "<a compiled function>"


def _flat(vm: GpuVM) -> Any:
    """Generate one function that calls the thunks in order; a loop over lists costs more than small thunks."""
    names: dict[str, Any] = {"vm": vm}
    lines = ["def run():", "  try:", "    pass"]
    for k, cell in enumerate(vm.pre_call_clear):
        names[f"p{k}"] = cell
        lines.append(f"    p{k}[0] = None")
    for k, thunk in enumerate(vm.thunks):
        names[f"t{k}"] = thunk
        lines.append(f"    t{k}()")
        for j, cell in enumerate(vm.post_thunk_clear[k] if vm.post_thunk_clear else ()):
            names[f"c{k}_{j}"] = cell
            lines.append(f"    c{k}_{j}[0] = None")
    lines += ["  except Exception as error:", "    vm.raise_at(error)"]
    for k, cell in enumerate(vm.output_storage):
        names[f"o{k}"] = cell
    lines.append(f"  r = [{', '.join(f'o{k}[0]' for k in range(len(vm.output_storage)))}]")
    for k, (cell, i) in enumerate(vm.inp_storage_and_out_idx):
        names[f"u{k}"] = cell
        lines.append(f"  u{k}[0] = r[{i}]")
    lines.append("  return r")
    exec(compile("\n".join(lines), _FLAT, "exec"), names)
    return lines, names["run"]


class GpuFunction(Function):
    """A compiled function; a call whose work is one captured graph goes to the replay directly."""

    __slots__ = ("_segment",)

    def __init__(self, vm: Any, *args: Any, **options: Any) -> None:
        super().__init__(vm, *args, **options)
        given = [c for c in self.input_storage if not c.implicit]
        plan = getattr(vm, "plan", None)
        self._segment: Any = _NoSegment
        if plan is not None and plan.is_one_segment and all(c.required for c in given):
            if sum(place >= 0 for place in plan.segments[0].arguments) == len(given):
                self._segment = plan.segments[0]
        elif isinstance(vm, GpuVM) and not given:
            self._segment = _WithoutArguments(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        results = None if kwargs or self.profile else self._segment.direct(*args)
        if results is None:
            return super().__call__(*args, **kwargs)
        return results[0] if self.unpack_single else None if self.return_none else results

    def call_one_by_one(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function without a replay of the whole, so that the operations are timed."""
        return super().__call__(*args, **kwargs)


class _NoSegment:
    direct = staticmethod(no_replay)


class _WithoutArguments:
    """Runs a function without arguments, of which PyTensor has nothing to check."""

    def __init__(self, function: Any) -> None:
        vm, count = function.vm, function._n_returned_outputs
        run = vm.plan or vm.flat
        clear = function._clear_output_storage_data if vm.allow_gc else ()

        def direct(*args: Any) -> Any:
            if args:
                return None
            results = run()[:count]
            for cell in clear:
                cell[0] = None
            return results

        self.direct = direct


copyreg.pickle(GpuFunction, _pickle_Function)


class GpuFunctionMaker(FunctionMaker):
    """Makes GpuFunctions."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"function_class": GpuFunction, **options})


class GpuMode(Mode):
    """A mode whose functions are GpuFunctions."""

    @property
    def function_maker(self) -> Any:
        return GpuFunctionMaker
