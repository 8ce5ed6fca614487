"""Captured CUDA graphs of compiled functions: what they hold, when they are replayed, and why not.

A run of device Ops between two host Ops is a segment. The first call with given layouts runs it one by one, the
second one captures it, later ones replay it. Nodes on the host whose results depend on constants and shapes only run
while the segment is captured: for the same inputs a replay would compute the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pytensor.compile.aliasing import alias_root
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Constant
from pytensor.link.utils import raise_with_op
from pytensor.printing import Print
from pytensor.tensor.shape import Shape, Shape_i

import gpuinterop as gi
from gpuinterop import _core

from . import settings
from .device_op import GpuOp
from .device_variables import GpuFromHost, is_device
from .lowering import recordable

__all__ = ["Plan", "Segment", "recordable_nodes"]

GRAPHS = 8  # of one segment
HELD = 3  # graphs for the same inputs, for results that callers still hold
STAGED_BYTES = 4 << 20  # smaller inputs that change their place are copied to a fixed one


def recordable_nodes(order: list[Any]) -> set[Any]:
    """Return the nodes of a graph that a captured graph can hold, in any order of their calls."""
    fixed: set[Any] = set()  # host values that depend on constants and shapes only
    found: set[Any] = set()
    for node in order:
        numbers = [x for x in node.inputs if not is_device(x) and not isinstance(x, Constant)]
        is_fixed = all(x in fixed for x in numbers)
        if isinstance(node.op, GpuOp):
            held = is_fixed or (
                recordable(node.op.host, node) == "values" and all(not x.type.ndim for x in numbers)
            )
            keep = held and bool(recordable(node.op.host, node))
        elif isinstance(node.op, (DeepCopyOp, ViewOp)):
            keep = is_device(node.inputs[0]) or is_fixed
        elif isinstance(node.op, (Shape, Shape_i)):
            keep = is_device(node.inputs[0])
        else:
            keep = (
                is_fixed
                and type(node.op).__module__.startswith("pytensor.")
                and not isinstance(node.op, (GpuFromHost, Print))
                and not any(map(is_device, node.inputs))
            )
        if keep:
            found.add(node)
            if is_fixed:
                fixed.update(o for o in node.outputs if not is_device(o))
    return found


class Segment:
    """A run of nodes and the graphs that were captured of it."""

    def __init__(self, vm: Any, places: list[int]) -> None:
        self.vm, self.places = vm, places
        self.nodes = [vm.nodes[k] for k in places]
        self.last = False  # the segment that also writes the new values of shared variables
        self.refusal = ""  # why it is not captured any more
        self.why = "it has not been called twice with arrays of the same layouts"
        self.replays: dict[Any, Any] = {}  # host values -> _core.Replays
        self.replayed = False
        self.seen: set[Any] = set()
        self.hits = self.wasted = self.pause = 0
        self.staged: dict[int, dict[Any, Any]] = {}

    def prepare(self, used_outside: set[Any], updates: dict[Any, Any]) -> None:
        """Find what comes in and goes out; `updates`: device inputs of the function and their new values."""
        made = {o for node in self.nodes for o in node.outputs}
        outside = dict.fromkeys(
            x for node in self.nodes for x in node.inputs
            if x not in made and not isinstance(x, Constant)
        )  # fmt: skip
        fgraph, cells = self.vm.fgraph, self.vm.storage_map
        self.updates = updates if self.last else {}
        results = fgraph.outputs[: len(fgraph.outputs) - len(self.vm.inp_storage_and_out_idx)]
        self.exposed = [x for x in results if x in made]
        if self.last:  # results that are old values of shared variables
            for x in self.updates:
                outside[x] = None
            self.exposed = [
                x for x in results if x in made or (is_device(x) and alias_root(x) in self.updates)
            ]
        self.exposed += [x for x in made if x in used_outside and x not in self.exposed]
        self.arrays = [x for x in outside if is_device(x)]
        self.numbers = [cells[x] for x in outside if not is_device(x)]
        self.cells = [cells[x] for x in self.arrays]
        self.read_cells = list(self.cells)  # those of staged inputs are replaced
        self.inner = made.difference(self.exposed)
        self.made_cells = [cells[x] for x in made]
        # A result that is a shared variable itself must not take that variable's cell.
        self.exposed_cells = [cells[x] if x in made else [None] for x in self.exposed]
        self.shared = [i for i, x in enumerate(self.arrays) if x in set(fgraph.inputs)]
        self.destroyed = {
            alias_root(node.inputs[i]) for node in self.nodes for places in node.op.destroy_map.values()
            for i in places
        }  # fmt: skip
        clear = self.vm.post_thunk_clear
        kept = [cells[x] for x in self.arrays if x.owner and isinstance(x.owner.op, GpuFromHost)]
        self.clears = [
            [c for c in clear[k] if not any(c is other for other in kept)] if clear else ()
            for k in self.places
        ]
        self.forget()

    def forget(self) -> None:
        """Drop all graphs, and the memory that they hold."""
        self.replays.clear()
        self.only = None if self.numbers else self.graphs(())
        # The replay for functions without arguments; inputs that must be copied first go the long way.
        self.direct = self.only if self.only is not None and not self.staged else _nothing

    def graphs(self, key: Any) -> Any:
        found = self.replays.get(key)
        if found is None:
            if len(self.replays) >= GRAPHS:
                self.replays.pop(next(iter(self.replays)))
            found = self.replays[key] = _core.Replays(self.read_cells)
        return found

    def key(self) -> Any:
        values = (np.asarray(cell[0]) for cell in self.numbers)
        return tuple((v.dtype.str, v.shape, v.tobytes()) for v in values)

    def __call__(self) -> None:
        """Run the segment: set the cells of the values that are used outside of it."""
        for i in self.staged:
            self.stage(i)
        replays = self.graphs(self.key()) if self.only is None else self.only
        results = replays()
        if results is None:
            results = self.miss(replays)
        else:
            self.replayed = True
        if results is not None:
            for cell, value in zip(self.exposed_cells, results, strict=True):
                # Host Ops may work in place.
                cell[0] = value.copy() if isinstance(value, np.ndarray) else value

    def miss(self, replays: Any) -> Any:
        """Capture the segment, or run it one by one and return None."""
        self.replayed = False
        if self.refusal or _core._recording() is not None:
            return self.one_by_one()
        hits = sum(r.hits for r in self.replays.values())
        if hits > self.hits:
            self.wasted = 0
        if replays.fitting >= HELD:
            self.why = f"the caller holds the results of the last {HELD} calls"
            return self.one_by_one()
        if not replays.fitting:
            replays.drop_others([i for i in self.shared if i not in self.staged])
            layouts = tuple((c[0].shape, c[0].strides) for c in self.cells)
            if layouts not in self.seen:  # kernels may have to be compiled
                if len(self.seen) >= 64:
                    self.seen.clear()
                self.seen.add(layouts)
                return self.one_by_one()
            if self.pause:
                self.pause -= 1
                return self.one_by_one()
            self.wasted += 1
            if self.wasted > 2:
                self.why = self.changing()
                self.pause = 2 ** min(self.wasted, 10)
                return self.one_by_one()
        return self.capture(replays)

    def one_by_one(self) -> None:
        self.replayed = False
        for k, node, clears in zip(self.places, self.nodes, self.clears, strict=True):
            try:
                self.vm.thunks[k]()
            except Exception:
                raise_with_op(self.vm.fgraph, node, self.vm.thunks[k])
            for cell in clears:
                cell[0] = None

    def capture(self, replays: Any) -> Any:
        for cell in self.made_cells:
            cell[0] = None  # a graph writes to memory of its own
        present = [cell[0] for cell in self.cells]
        recording = gi.capture(device=present[0].device if present else settings.device())
        try:
            for cell, read in zip(self.cells, self.read_cells, strict=True):
                cell[0] = read[0]
            with recording:
                for k in self.places:
                    self.vm.thunks[k]()
                results = self.finish()
        except Exception as error:
            self.refused(error)
            results = None
        finally:
            for cell, value in zip(self.cells, present, strict=True):
                cell[0] = value
            for cell in self.made_cells:
                cell[0] = None
        if results is not None:
            inputs = [cell[0] for cell in self.read_cells]
            overwritable = [
                (x.owner is not None and x not in self.vm.kept)
                or any(gi.may_share_memory(value, a) for a in inputs)
                for x, value in zip(self.exposed, results, strict=True)
            ]
            if replays.add(recording._recorder, results, overwritable, GRAPHS):
                results = replays()
                self.hits = sum(r.hits for r in self.replays.values())
                if results is not None:
                    self.replayed, self.why = True, ""
                    return results
            self.refusal = "another object refers to the memory of its results"
        refusal, self.refusal = self.refusal, ""
        self.one_by_one()  # raises if the error was not the capture's
        self.refusal = refusal
        return None

    def refused(self, error: Exception) -> None:
        text = str(error).splitlines()
        self.refusal = f"{type(error).__name__}: {text[0] if text else ''}"
        if isinstance(error, gi.OutOfMemoryError):
            self.forget()

    def finish(self) -> list[Any]:
        """Write new values of shared variables to their memory, and return the exposed values."""
        cells = self.vm.storage_map
        values = [cells[x][0] for x in self.exposed]
        if self.updates:
            olds = [cells[x][0] for x in self.updates]
            news = [cells[x][0] for x in self.updates.values()]
            values = land(values, olds, news)
        return values

    def changing(self) -> str:
        """Say which inputs change; copy small ones to a fixed place from now on."""
        names = []
        for i, x in enumerate(self.arrays):
            array = self.cells[i][0]
            if i in self.shared and x.owner is None and x in self.updates:
                continue
            if alias_root(x) in self.destroyed or x in self.destroyed or i in self.staged:
                continue
            if array.nbytes <= STAGED_BYTES:
                self.staged[i] = {}
                self.read_cells[i] = [None]
                continue
            names.append(str(x))
        if self.staged and not names:
            self.wasted = 0
            self.forget()
            for i in self.staged:
                self.stage(i)
            return "its inputs were other arrays at each call; they are copied to fixed memory now"
        if not names and self.numbers:
            return (
                "values that come from the host change at each call; keep them in shared variables"
            )
        return f"these inputs are other arrays at each call: {', '.join(names)}"

    def stage(self, i: int) -> None:
        value = self.cells[i][0]
        fixed = self.staged[i].get(value.shape)
        if fixed is None:
            if len(self.staged[i]) >= GRAPHS:
                self.staged[i].clear()
            fixed = self.staged[i][value.shape] = value.copy()
        else:
            fixed[...] = value
        self.read_cells[i][0] = fixed


def _nothing() -> None:
    return None


def land(results: list[Any], olds: list[Any], news: list[Any]) -> list[Any]:
    """Copy new values of shared variables into their present arrays; return the results for the caller.

    Results, and other new values, that lie in memory that is about to be overwritten are copied before.
    """
    pairs = [(old, new) for old, new in zip(olds, news, strict=True) if new is not old]
    for old, new in pairs:
        if old.shape != new.shape or old.readonly:
            raise gi.GpuInteropError(
                where="updates", expected=f"a new value of shape {old.shape}", got=f"shape {new.shape}",
                fix="keep the shape of the shared variable for functions that replay a graph",
            )  # fmt: skip
    targets = [old for old, _ in pairs]

    def safe(x: Any) -> Any:
        lies_there = isinstance(x, _core.Array) and any(gi.may_share_memory(x, t) for t in targets)
        return x.copy() if lies_there else x

    results = [safe(x) for x in results]
    for old, new in [(old, safe(new)) for old, new in pairs]:
        old[...] = new
    return results


class _Single:
    """A node that runs at every call."""

    def __init__(self, vm: Any, k: int) -> None:
        self.fgraph, self.node, self.thunk = vm.fgraph, vm.nodes[k], vm.thunks[k]
        self.clears = vm.post_thunk_clear[k] if vm.post_thunk_clear else ()

    def keep(self, cells: list[Any]) -> None:
        self.clears = [c for c in self.clears if not any(c is other for other in cells)]

    def __call__(self) -> None:
        try:
            self.thunk()
        except Exception:
            raise_with_op(self.fgraph, self.node, self.thunk)
        for cell in self.clears:
            cell[0] = None


class Plan:
    """The steps of a call: thunks that run every time, and segments."""

    def __init__(self, vm: Any) -> None:
        self.vm = vm
        inside = recordable_nodes(vm.nodes)
        steps: list[Any] = []
        for k, node in enumerate(vm.nodes):
            if node not in inside:
                steps.append(k)
            elif steps and isinstance(steps[-1], list):
                steps[-1].append(k)
            else:
                steps.append([k])
        self.steps: list[Callable[[], None]] = []
        self.segments: list[Segment] = []
        owner: dict[Any, int] = {}
        for s, step in enumerate(steps):
            for k in step if isinstance(step, list) else [step]:
                owner.update(dict.fromkeys(vm.nodes[k].outputs, s))
            on_device = isinstance(step, list) and any(
                isinstance(vm.nodes[k].op, GpuOp) for k in step
            )
            if on_device:
                self.segments.append(Segment(vm, step))
                self.steps.append(self.segments[-1])
            else:
                for k in step if isinstance(step, list) else [step]:
                    self.steps.append(_Single(vm, k))
        if self.segments:
            self.prepare(owner, steps)

    def prepare(self, owner: dict[Any, int], steps: list[Any]) -> None:
        vm, fgraph = self.vm, self.vm.fgraph
        outputs = fgraph.outputs
        inputs = {id(cell): x for cell, x in zip(vm.input_storage, fgraph.inputs, strict=True)}
        pairs = [(inputs[id(cell)], cell, i) for cell, i in vm.inp_storage_and_out_idx]
        updates = {x: outputs[i] for x, _, i in pairs if is_device(x)}
        self.host_updates = [(cell, i) for x, cell, i in pairs if not is_device(x)]
        self.device_updates = [(cell, i) for x, cell, i in pairs if is_device(x)]
        self.returned = len(outputs) - len(pairs)
        last = max(s for s, step in enumerate(steps) if isinstance(step, list) and any(
            isinstance(vm.nodes[k].op, GpuOp) for k in step))  # fmt: skip
        # Nodes that run after the last segment must not find new values in the place of old ones.
        read_later = {
            x for step in steps[last + 1 :] if not isinstance(step, list) for x in vm.nodes[step].inputs
            if owner.get(x, -1) != last and alias_root(x) in updates
        }  # fmt: skip
        self.segments[-1].last = not read_later and all(
            owner.get(x, -1) <= last for x in updates.values()
        )
        for segment in self.segments:
            inside = set(segment.nodes)
            segment.prepare(
                {x for node in vm.nodes if node not in inside for x in node.inputs}, updates
            )
        # The memory of uploads stays, so that graphs find them at the same place.
        uploads = {x for segment in self.segments for x in segment.arrays} - vm.kept
        uploads = {
            x for x in uploads if x.owner is not None and isinstance(x.owner.op, GpuFromHost)
        }
        cells = vm.storage_map
        final = self.segments[-1]
        private = dict(zip(final.exposed, final.exposed_cells, strict=True))
        self.old_values = [
            (i, private[x]) for i, x in enumerate(outputs[: self.returned])
            if x in private and private[x] is not cells[x]
        ]  # fmt: skip
        for step in self.steps:
            if isinstance(step, _Single):
                step.keep([cells[x] for x in uploads])
        inner = {x for segment in self.segments for x in segment.inner}
        self.clear_first = [
            cells[o] for node in vm.nodes for o in node.outputs
            if o in vm.kept or (is_device(o) and o not in uploads and o not in inner)
        ]  # fmt: skip

    def __call__(self) -> Any:
        vm = self.vm
        for cell in self.clear_first:
            cell[0] = None  # a reference here would count as one of a caller
        for step in self.steps:
            step()
        results = [cell[0] for cell in vm.output_storage]
        for cell, i in self.host_updates:
            cell[0] = results[i]
        last = self.segments[-1]
        if last.replayed:
            for i, cell in self.old_values:
                results[i], cell[0] = cell[0], None
        if self.device_updates and not (last.last and last.replayed):
            self.update(results)
        return results

    def update(self, results: list[Any]) -> None:
        """Give shared variables their new values, in the memory that captured graphs read if there are any."""
        olds = [cell[0] for cell, _ in self.device_updates]
        news = [results[i] for _, i in self.device_updates]
        captured = any(len(r) for s in self.segments for r in s.replays.values())
        if captured and all(
            a.shape == b.shape and not a.readonly for a, b in zip(olds, news, strict=True)
        ):
            n = self.returned
            results[:n] = land(results[:n], olds, news)
        else:
            for (cell, _), new in zip(self.device_updates, news, strict=True):
                cell[0] = new

    @property
    def is_one_segment(self) -> bool:
        """Whether a replay of one segment is all that a call does."""
        segment = self.segments[-1]
        results = self.vm.fgraph.outputs[: self.returned]
        return len(self.steps) == 1 and segment.last and not (
            self.host_updates or segment.numbers or segment.exposed != results
        )  # fmt: skip
