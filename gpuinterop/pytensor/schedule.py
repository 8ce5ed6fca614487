"""The steps of a call of a compiled function on a GPU: segments that are replayed, and the nodes between them."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from pytensor.compile.aliasing import alias_root

from gpuinterop import _core

from .device_op import GpuOp
from .device_variables import GpuFromHost, HostFromGpu, is_device
from .replay import GRAPHS, STAGED_BYTES, Segment, recordable_nodes, write_updates
from .sequence import sequence


class Upload:
    """A transfer to the device whose memory stays in use, so that captured graphs find the value at one address."""

    def __init__(self, vm: Any, k: int) -> None:
        self.places, self.transfer = [k], sequence(vm, [k])
        self.source = vm.storage_map[vm.nodes[k].inputs[0]]
        self.target = vm.storage_map[vm.nodes[k].outputs[0]]
        self.arrays: dict[Any, Any] = {}

    def __call__(self) -> None:
        shape = self.source[0].shape
        self.target[0] = old = self.arrays.get(shape)  # the transfer writes to the existing array
        self.transfer()
        new = self.target[0]
        if old is None:
            if len(self.arrays) >= GRAPHS or new.nbytes > STAGED_BYTES:
                self.arrays.clear()
            self.arrays[shape] = new


class Downloads:
    """Transfers to the host that follow each other: the host waits once for all small ones."""

    def __init__(self, vm: Any, places: list[int]) -> None:
        nodes = [vm.nodes[k] for k in places]
        self.places = places
        self.sources = [vm.storage_map[node.inputs[0]] for node in nodes]
        self.targets = [vm.storage_map[node.outputs[0]] for node in nodes]
        clear = vm.post_thunk_clear
        self.clear = [cell for k in places for cell in clear[k]] if clear else []

    def __call__(self) -> None:
        values = _core.download_all([cell[0] for cell in self.sources])
        for cell, value in zip(self.targets, values, strict=True):
            cell[0] = value
        for cell in self.clear:
            cell[0] = None


class Schedule:
    """The steps of a call: segments, transfers, and the positions of nodes that run every time."""

    def __init__(self, vm: Any) -> None:
        self.vm = vm
        recordable = recordable_nodes(vm.nodes)
        self.steps: list[Any] = []
        self.segments: list[Segment] = []

        def kind_of_step(k: int) -> str:
            if vm.nodes[k] in recordable:
                return "segment"
            return "downloads" if isinstance(vm.nodes[k].op, HostFromGpu) else "alone"

        for kind, group in groupby(range(len(vm.nodes)), kind_of_step):
            places = list(group)
            if kind == "segment" and self.has_kernels(places):
                self.segments.append(Segment(vm, places))
                self.steps.append(self.segments[-1])
            elif kind == "downloads" and len(places) > 1:
                self.steps.append(Downloads(vm, places))
            else:
                self.steps += map(self.alone, places)
        if self.segments:
            self.prepare()

    def alone(self, k: int) -> Any:
        node = self.vm.nodes[k]
        stays = isinstance(node.op, GpuFromHost) and node.outputs[0] not in self.vm.kept
        return Upload(self.vm, k) if stays else k

    def has_kernels(self, places: list[int]) -> bool:
        ops = [self.vm.nodes[k].op for k in places]
        return any(isinstance(op, GpuOp) or getattr(op, "recordable", False) for op in ops)

    def prepare(self) -> None:
        vm, fgraph = self.vm, self.vm.fgraph
        outputs = fgraph.outputs
        inputs = {id(cell): x for cell, x in zip(vm.input_storage, fgraph.inputs, strict=True)}
        pairs = [(inputs[id(cell)], cell, i) for cell, i in vm.inp_storage_and_out_idx]
        updates = {x: outputs[i] for x, _, i in pairs if is_device(x)}
        self.host_updates = [(cell, i) for x, cell, i in pairs if not is_device(x)]
        self.device_updates = [(cell, i) for x, cell, i in pairs if is_device(x)]
        self.returned = len(outputs) - len(pairs)
        final = self.segments[-1]
        made = {o for node in final.nodes for o in node.outputs}
        # Nodes that run after the last segment must not read new values in place of old ones.
        later = vm.nodes[vm.nodes.index(final.nodes[-1]) + 1 :]
        reads_later = any(
            x not in made and alias_root(x) in updates for node in later for x in node.inputs
        )
        old_values = [
            x for x in outputs[: self.returned] if is_device(x) and alias_root(x) in updates
        ]
        final.last = not reads_later and all(
            x.owner is None or x in made for x in (*updates.values(), *old_values)
        )
        for segment in self.segments:
            inside = set(segment.nodes)
            used = {x for node in vm.nodes if node not in inside for x in node.inputs}
            segment.prepare(used if segment.last else used | set(updates.values()), updates)
        cells = vm.storage_map
        private = dict(zip(final.exposed, final.exposed_cells, strict=True))
        self.old_values = [
            (i, private[x]) for i, x in enumerate(outputs[: self.returned])
            if x in private and private[x] is not cells[x]
        ]  # fmt: skip
        inner = {x for segment in self.segments for x in segment.inner}
        self.clear_first = [
            cells[o] for node in vm.nodes for o in node.outputs
            if o in vm.kept or (is_device(o) and o not in inner)
        ]  # fmt: skip

    @property
    def has_device_updates(self) -> bool:
        return bool(self.device_updates or self.old_values)

    def update(self, results: list[Any]) -> None:
        """Give shared variables their new values, in the memory that captured graphs read if there are any."""
        last = self.segments[-1]
        if last.replayed:
            for i, cell in self.old_values:
                results[i], cell[0] = cell[0], None
            if last.last:
                return
        olds = [cell[0] for cell, _ in self.device_updates]
        news = [results[i] for _, i in self.device_updates]
        captured = any(len(r) for s in self.segments for r in s.replays.values())
        if captured and all(
            a.shape == b.shape and not a.readonly for a, b in zip(olds, news, strict=True)
        ):
            n = self.returned
            results[:n] = write_updates(results[:n], olds, news)
        else:
            for (cell, _), new in zip(self.device_updates, news, strict=True):
                cell[0] = new

    def replays_of_whole_calls(self, given: list[Any]) -> Any:
        """Return the replays if one is all that a call with these arguments does, else None."""
        segment = self.segments[-1]
        results = self.vm.fgraph.outputs[: self.returned]
        whole = len(self.steps) == 1 and segment.last and segment.exposed == results
        read = sum(place >= 0 for place in segment.arguments)
        if (
            not whole
            or self.host_updates
            or read < len(given)
            or not all(c.required for c in given)
        ):
            return None
        return segment.only
