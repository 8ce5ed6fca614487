"""The linker of the mode "GPU": one generated function for each graph, or captured graphs that are replayed.

A call of a compiled function is one of these (`GpuFunction` chooses it once, in the first call):

1. If one graph can be all that a call does, a ``_core.Replays``: without Python code it finds the graph whose inputs
   are the arguments, and queues it on the current stream. If none fits, it calls 2. or 3., which may capture one.
2. If the function has no arguments, a generated function, which runs the steps and returns the results.
3. Otherwise PyTensor's: it checks the arguments and calls the `GpuVM`, which runs the steps.

The steps are those of a `Schedule` on a GPU, where a `Segment` replays a graph if one fits, and else the thunks.
"""

from __future__ import annotations

import copy
import copyreg
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property, partial
from itertools import cycle
from typing import Any

from pytensor.compile.executor import Function, _pickle_Function
from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.link.vm import Loop, VMLinker

import gpuinterop as gi
from gpuinterop import _core

from . import settings
from .device_variables import HostFromGpu
from .replay import recordable_nodes
from .schedule import Schedule
from .sequence import sequence


class GpuLinker(VMLinker):
    """Runs the nodes of a graph in Python, and replays CUDA graphs of them if possible."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"use_cloop": False, **options})

    def accept(self, fgraph: Any, no_recycling: Any = None, profile: Any = None) -> Any:
        linker = copy.copy(self)
        linker.fgraph, linker.no_recycling, linker.profile = fgraph, no_recycling or [], profile
        linker.updated_vars = {}
        # The setting of the moment, not that when the mode was created.
        linker._allow_gc = config.allow_gc
        return linker

    def reduce_storage_allocations(self, storage_map: Any, order: Any) -> Any:
        return ()  # a key would contain the values of 0-d arrays, and reading them would wait for the device

    def schedule(self, fgraph: Any) -> list[Any]:
        """Order the nodes so that those of a captured graph form few long runs, and transfers to the host too."""
        order: list[Any] = fgraph.toposort()
        if not settings.captures():
            return order
        recordable = recordable_nodes(order)
        extra = fgraph.orderings()
        before = {
            node: {x.owner for x in node.inputs if x.owner} | set(extra.get(node, ()))
            for node in order
        }
        result: list[Any] = []
        done: set[Any] = set()
        kinds: Iterator[Callable[[Any], bool]] = cycle((
            lambda node: isinstance(node.op, HostFromGpu), lambda node: node not in recordable,
            lambda node: node in recordable,
        ))  # fmt: skip
        # One kind of nodes after the other, as many of each as the finished nodes allow.
        while order:
            is_next, left = next(kinds), []
            for node in order:
                if is_next(node) and before[node] <= done:
                    result.append(node)
                    done.add(node)
                else:
                    left.append(node)
            order = left
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
    """Runs the thunks by one generated function; on a GPU replays of captured graphs take the place of some."""

    time_thunks: bool

    def __init__(self, *args: Any) -> None:
        self.kept = args[-1]  # variables whose memory may be that of a result
        super().__init__(*args[:-1])
        self.synchronise = True  # wait for the device after each timed thunk
        schedule = Schedule(self) if settings.captures() else None
        self.schedule = schedule if schedule is not None and schedule.segments else None

    def __call__(self) -> Any:
        return self.call_timed() if self.time_thunks else self.run()

    @cached_property
    def run(self) -> Any:
        """The function that runs the thunks and the updates, and returns the list of all results."""
        return self.generated()

    def generated(self, returned: str = "r", clear_last: Iterable[Any] = ()) -> Any:
        """Return a function that runs the thunks and the updates; `returned` makes its value of the list ``r``."""

        def results(name: Callable[[Any], str]) -> list[str]:
            lines = [f" r = [{', '.join(f'{name(cell)}[0]' for cell in self.output_storage)}]"]
            if self.schedule is None:
                lines += [f" {name(cell)}[0] = r[{i}]" for cell, i in self.inp_storage_and_out_idx]
            else:
                lines += [f" {name(cell)}[0] = r[{i}]" for cell, i in self.schedule.host_updates]
                lines += [f" {name(self.schedule.update)}(r)"] * self.schedule.has_device_updates
            lines += [f" {name(cell)}[0] = None" for cell in clear_last]
            return [*lines, f" return {returned}"]

        if self.schedule is None:
            return sequence(self, range(len(self.nodes)), self.pre_call_clear, results)
        return sequence(self, self.schedule.steps, self.schedule.clear_first, results)

    @cached_property
    def one_by_one(self) -> list[Any]:
        return [sequence(self, [k]) for k in range(len(self.nodes))]

    def call_timed(self) -> Any:
        """Run the thunks one by one and add their times; without waits, the first transfer would have all the time."""
        for cell in self.pre_call_clear:
            cell[0] = None
        for k, run in enumerate(self.one_by_one):
            start = time.perf_counter()
            run()
            if self.synchronise:
                gi.synchronize()
            self.call_times[k] += time.perf_counter() - start
            self.call_counts[k] += 1
        return self.perform_updates()

    def timed(self, synchronise: bool) -> AbstractContextManager[None]:
        """Time the thunks of all calls in a block."""
        new = {"time_thunks": True, "synchronise": synchronise}
        return _core.Block(
            *((partial(setattr, self, name, value), partial(setattr, self, name, getattr(self, name)))
              for name, value in new.items()),
            result=None,
        )  # fmt: skip


class GpuFunction(Function):
    """A compiled function. Its first call, for which PyTensor has set all attributes, chooses what later calls run."""

    # Python calls an instance by this attribute, without a method between.
    __slots__ = ("__call__",)

    def __init__(self, vm: Any, *args: Any, **options: Any) -> None:
        super().__init__(vm, *args, **options)
        self.__call__ = self._first_call

    def _first_call(self, *args: Any, **kwargs: Any) -> Any:
        self.__call__ = self._shortest_call()
        return self(*args, **kwargs)

    def _shortest_call(self) -> Any:
        """Return the function with the fewest steps that does what ``Function.__call__`` does."""
        vm, call = self.vm, super().__call__
        if self.profile or not isinstance(vm, GpuVM):
            return call
        given = [c for c in self.input_storage if not c.implicit]
        returned = "first" if self.unpack_single else "none" if self.return_none else "all"
        if not given:  # PyTensor has nothing to check
            text = {"first": "r[0]", "none": "None", "all": f"r[:{self._n_returned_outputs}]"}
            clear = self._clear_output_storage_data if vm.allow_gc else ()
            call = vm.generated(text[returned], clear)
        replays = None if vm.schedule is None else vm.schedule.replays_of_whole_calls(given)
        if replays is None:
            return call
        replays.set_fallback(call, returned)
        return replays


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
