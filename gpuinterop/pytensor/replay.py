"""Captured CUDA graphs of compiled functions: their contents, their replays, and the reasons against a replay.

A segment is a sequence of device Ops between two host Ops. The first call with given layouts runs its Ops one by one,
the second call captures them, and later calls replay the graph. Nodes on the host whose results depend only on
constants and shapes run only during the capture, because for the same inputs their results do not change.

A replay is queued on the current stream of the calling thread, and the host does not wait. The graph owns the memory
of its results, and each replay returns new array objects over it. `_core.Replays` counts the references to this memory.
It passes over a graph whose results a caller still holds; the segment then captures another graph, up to `HELD`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.compile.aliasing import alias_root
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.printing import Print
from pytensor.tensor.shape import Shape, Shape_i

import gpuinterop as gi
from gpuinterop import _core

from . import settings
from .device_op import GpuOp
from .device_variables import GpuContiguous, is_device
from .lowering import recordable
from .sequence import sequence

GRAPHS = 8  # of one segment, and fixed arrays of one input
HELD = 3  # graphs for the same inputs, for results that callers still hold
# Inputs of at most this size whose address changes are staged: each call copies them to a fixed array on the device.
STAGED_BYTES = 4 << 20


def is_fixed(x: Any, known: dict[Any, bool]) -> bool:
    """Return whether a value on the host depends on constants and shapes of device arrays only; `known` is filled."""
    if isinstance(x, Constant):
        return True
    if x not in known:
        node = x.owner
        if node is None or is_device(x):
            known[x] = False
        elif isinstance(node.op, (Shape, Shape_i)):
            known[x] = is_device(node.inputs[0])
        else:
            # Print writes in each call, and Ops of other packages may do so too.
            pytensors = type(node.op).__module__.startswith("pytensor.")
            known[x] = pytensors and not isinstance(node.op, Print)
            known[x] &= all(not is_device(i) and is_fixed(i, known) for i in node.inputs)
    return known[x]


def recordable_nodes(order: list[Any]) -> set[Any]:
    """Return the nodes of a graph that a captured graph can hold, in any order of their calls."""
    known: dict[Any, bool] = {}

    def keep(node: Any) -> bool:
        op = node.op
        numbers = [x for x in node.inputs if not is_device(x) and not isinstance(x, Constant)]
        fixed = all(is_fixed(x, known) for x in numbers)
        if isinstance(op, GpuOp):
            kind = recordable(op.host, node)
            if kind == "values" and not fixed:
                return all(all(x.type.broadcastable) for x in numbers)
            return bool(kind) and fixed
        if getattr(op, "recordable", False):
            return fixed
        if isinstance(op, (DeepCopyOp, ViewOp, GpuContiguous)) and is_device(node.inputs[0]):
            return True
        return all(is_fixed(o, known) for o in node.outputs)

    return {node for node in order if keep(node)}


class Segment:
    """A sequence of nodes, and the graphs that were captured of it."""

    def __init__(self, vm: Any, places: list[int]) -> None:
        self.vm, self.run_nodes = vm, sequence(vm, places)
        self.nodes = [vm.nodes[k] for k in places]
        self.last = False  # the segment that also writes the new values of shared variables
        self.refusal = ""  # why it is no longer captured
        self.change = ""  # why it is not captured during a pause
        self.why = "it has not been called twice with arrays of the same layouts"
        self.replays: dict[Any, Any] = {}  # host values -> _core.Replays
        self.replayed = False
        self.seen: set[Any] = set()  # layouts of earlier calls
        self.hits = 0  # replays at the last capture
        self.before = 0  # replays at the last call that ran one by one
        self.pause = 0  # calls until the next capture
        self.wasted: dict[Any, int] = {}  # layouts -> captures that were not replayed again
        # The place of a staged input among `cells` -> the fixed arrays that graphs read, by shape.
        self.staged: dict[int, dict[Any, Any]] = {}

    def prepare(self, used_outside: set[Any], updates: dict[Any, Any]) -> None:
        """Find the inputs and outputs of the segment; `updates`: device inputs of the function and their new values."""
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
            outside.update(dict.fromkeys(self.updates))
            outside.update(dict.fromkeys(x for x in self.updates.values() if x not in made))
            self.exposed = [
                x for x in results if x in made or (is_device(x) and alias_root(x) in self.updates)
            ]
        self.exposed += [x for x in made if x in used_outside and x not in self.exposed]
        self.arrays = [x for x in outside if is_device(x)]
        self.numbers = [cells[x] for x in outside if not is_device(x)]
        self.cells = [cells[x] for x in self.arrays]
        self.read_cells = list(self.cells)  # those of staged inputs are replaced
        arguments = {x: i for i, x in enumerate(fgraph.inputs) if not isinstance(x, SharedVariable)}
        self.arguments = [arguments.get(x, -1) for x in self.arrays]
        self.inner = made.difference(self.exposed)
        self.made_cells = [cells[x] for x in made]
        # A result that is a shared variable itself must not take that variable's cell.
        self.exposed_cells = [cells[x] if x in made else [None] for x in self.exposed]
        self.shared = [i for i, x in enumerate(self.arrays) if isinstance(x, SharedVariable)]
        # Old values that nothing reads: the operation that makes the new one may write to their memory.
        self.unread = [
            (cells[old], cells[new]) for old, new in self.updates.items()
            if not fgraph.clients[old] and new in made and alias_root(new) is new
        ]  # fmt: skip
        self.destroyed = {
            alias_root(node.inputs[i]) for node in self.nodes for places in node.op.destroy_map.values()
            for i in places
        }  # fmt: skip
        self.only = None if self.numbers else self.graphs(())

    def forget(self) -> None:
        """Drop all graphs, and the memory that they hold."""
        for replays in self.replays.values():
            replays.forget()

    def graphs(self, key: Any) -> Any:
        found = self.replays.get(key)
        if found is None:
            if len(self.replays) >= GRAPHS:
                self.replays.pop(next(iter(self.replays)))
            found = self.replays[key] = _core.Replays(self.read_cells, self.arguments)
        return found

    def key(self) -> Any:
        values = (np.asarray(cell[0]) for cell in self.numbers)
        return tuple((v.dtype.str, v.shape, v.tobytes()) for v in values)

    def __call__(self) -> None:
        """Run the segment: set the cells of the values that are used outside it."""
        for i in self.staged:
            self.stage(i)
        replays = self.graphs(self.key()) if self.only is None else self.only
        try:
            results = replays.replay()
            if results is None:
                results = self.miss(replays)
            else:
                self.replayed = True
        finally:
            for i in self.staged:  # A call that does not copy its inputs first must find no graph.
                self.read_cells[i][0] = None
        if results is not None:
            for cell, value in zip(self.exposed_cells, results, strict=True):
                # Host Ops may work in place.
                cell[0] = value.copy() if isinstance(value, np.ndarray) else value

    def miss(self, replays: Any) -> Any:
        """Capture the segment, or run it one by one and return None."""
        if self.refusal or _core._recording() is not None:
            return self.one_by_one()
        if self.count() > self.hits:
            self.wasted.clear()
        if replays.fitting >= HELD:
            self.why = f"the caller holds the results of the last {HELD} calls"
            return self.one_by_one()
        if not replays.fitting:
            replays.drop_others([i for i in self.shared if i not in self.staged])
            layouts = tuple((c[0].shape, c[0].strides) for c in self.cells)
            if layouts not in self.seen:  # kernels may have to be compiled
                if len(self.seen) >= 64:
                    self.seen.clear()
                    self.wasted.clear()
                self.seen.add(layouts)
                return self.one_by_one()
            if self.pause:
                self.pause -= 1
                self.why = self.change
                return self.one_by_one()
            self.wasted[layouts] = wasted = self.wasted.get(layouts, 0) + 1
            if wasted > 4:  # captures cost more than they save
                if self.stage_small_inputs():
                    self.wasted.clear()
                    self.forget()
                    self.why = "its inputs were other arrays in each call; they are now copied to fixed memory"
                    return self.one_by_one()
                self.pause = 2 ** min(wasted, 10)
                self.change = self.reason_of_changes()
        return self.capture(replays)

    def count(self) -> int:
        """Return the number of replays of the current graphs."""
        return sum(r.hits for r in self.replays.values())

    @property
    def was_replayed(self) -> bool:
        """Whether the last call replayed a graph."""
        return self.replayed or self.count() > self.before

    def one_by_one(self) -> None:
        self.replayed, self.before = False, self.count()
        self.run_nodes()

    def capture(self, replays: Any) -> Any:
        for cell in self.made_cells:
            cell[0] = None  # a graph writes to its own memory
        given = [*self.cells, *self.numbers]  # cleared when their last node has run
        present = [cell[0] for cell in given]
        recording = gi.capture(device=present[0].device if self.cells else settings.device())
        try:
            for cell, read in zip(self.cells, self.read_cells, strict=True):
                cell[0] = read[0]
            for old, new in self.unread:
                others = (cell[0] for cell in self.cells if cell is not old)
                if not old[0].readonly and not any(gi.may_share_memory(old[0], a) for a in others):
                    new[0] = old[0]
            with recording:
                self.run_nodes()
                results = self.finish()
        except Exception as error:
            self.refused(error)
            results = None
        finally:
            for cell, value in zip(given, present, strict=True):
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
                results = replays.replay()
                self.hits = self.count()
                if results is not None:
                    self.replayed, self.why = True, ""
                    return results
            self.refusal = "another object refers to the memory of its results"
        refusal, self.refusal = self.refusal, ""
        self.one_by_one()  # raises if the capture did not cause the error
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
            values = write_updates(values, olds, news)
        return values

    def changing(self) -> list[int]:
        """Return the places of inputs that may be other arrays in each call and are not staged."""
        return [
            i for i, x in enumerate(self.arrays)
            if i not in self.staged and x not in self.updates and alias_root(x) not in self.destroyed
        ]  # fmt: skip

    def stage_small_inputs(self) -> bool:
        """Copy small inputs that change to fixed memory in later calls; return whether there are any."""
        small = [i for i in self.changing() if self.cells[i][0].nbytes <= STAGED_BYTES]
        for i in small:
            self.staged[i], self.read_cells[i] = {}, [None]
        return bool(small)

    def reason_of_changes(self) -> str:
        names = ", ".join(str(self.arrays[i]) for i in self.changing())
        if self.numbers and not names:
            return (
                "values that come from the host change in each call; keep them in shared variables"
            )
        return f"these inputs are other arrays in each call: {names}"

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


def write_updates(results: list[Any], olds: list[Any], news: list[Any]) -> list[Any]:
    """Copy new values of shared variables into their current arrays; return the results for the caller.

    Results and other new values in memory that is about to be overwritten are copied first.
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
        overlaps = isinstance(x, _core.Array) and any(gi.may_share_memory(x, t) for t in targets)
        return x.copy() if overlaps else x

    results = [safe(x) for x in results]
    for old, new in [(old, safe(new)) for old, new in pairs]:
        old[...] = new
    return results
