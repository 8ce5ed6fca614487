"""Reports the transfers and the replays of a compiled function, with reasons and fixes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import settings
from .device_variables import GpuFromHost, HostFromGpu
from .lowering import has_lowering
from .profile import graph_of, kind_of
from .replay import Segment


@dataclass(frozen=True)
class Transfer:
    """One transfer of a compiled function: `direction` is "to the device" or "to the host"."""

    value: str
    direction: str
    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.value} moves {self.direction}: {self.why}; {self.fix}"


@dataclass(frozen=True)
class Replay:
    """A sequence of operations of a compiled function, and whether its calls replay a captured graph of it."""

    operations: tuple[str, ...]
    replayed: bool
    why_not: str

    def __str__(self) -> str:
        names = ", ".join(self.operations)
        return f"replayed: {names}" if self.replayed else f"one by one: {names}: {self.why_not}"


def replays(function: Any) -> list[Replay]:
    """Return which operations of a compiled function its last call replayed as a captured graph, and why not others."""
    graph = graph_of(function, "replays")
    schedule = getattr(function.vm, "schedule", None)
    if schedule is None:
        if not settings.captures():
            why = "graphs are captured on GPUs only, and not after use(capture=False)"
        elif hasattr(function.vm, "schedule"):
            why = "no operation runs on the device"
        else:
            why = "it has lazy operations, or was not compiled in mode GPU"
        return [Replay(tuple(str(node.op) for node in graph.toposort()), False, why)]
    found = []
    for step in schedule.steps:
        if isinstance(step, Segment):
            names = tuple(str(node.op) for node in step.nodes)
            found.append(Replay(names, step.was_replayed, step.refusal or step.why))
        else:
            for k in [step] if isinstance(step, int) else step.places:
                node = function.vm.nodes[k]
                found.append(Replay((str(node.op),), False, _alone(node)))
    return found


def _alone(node: Any) -> str:
    kind = kind_of(node)
    if kind in ("to the device", "to the host"):
        return f"it transfers a value {kind}"
    if kind == "host":
        return "it runs on the host"
    return "it depends on values of the host, or its lowering does not allow it"


def transfers(function: Any) -> list[Transfer]:
    """Return the transfers that a call of a compiled function makes, in their order."""
    graph = graph_of(function, "transfers")
    found = []
    for node in graph.toposort():
        if isinstance(node.op, GpuFromHost):
            found.append(_upload(node.inputs[0]))
        elif isinstance(node.op, HostFromGpu):
            clients = [client for client, _ in graph.clients[node.outputs[0]]]
            found.append(_download(node, clients))
    return found


def _upload(x: Any) -> Transfer:
    if x.owner is not None:
        why, fix = _on_host(x.owner)
        why = f"{x.owner.op} computes it on the host ({why})"
    else:
        why = "it is an argument in host memory"
        fix = "keep it in a shared variable, or pass slices of a shared variable by givens"
        if x.type.dtype != "float32" and not settings.any_dtype():
            fix = f"call use({str(settings.device())!r}, any_dtype=True), and keep it in a shared variable"
    return Transfer(x.name or str(x), "to the device", why, fix)


def _download(node: Any, clients: list[Any]) -> Transfer:
    x = node.inputs[0]
    readers = [
        client for client in clients if client.inputs and type(client.op).__name__ != "Output"
    ]
    if readers:
        why, fix = _on_host(readers[0])
        names = " and ".join(dict.fromkeys(str(reader.op) for reader in readers))
        why = f"{names} read{'s' * (len(readers) == 1)} it on the host ({why})"
    else:
        why = "the function returns it as a NumPy array"
        fix = "return gpu_from_host(result), or update a shared variable with it"
    return Transfer(x.name or str(x), "to the host", why, fix)


def _on_host(node: Any) -> tuple[str, str]:
    """Why a node runs on the host, and how to avoid it."""
    if not has_lowering(node.op):
        return (
            "no version for the device",
            "move the operation out of the function, or add a lowering for it",
        )
    dtypes = {x.type.dtype for x in (*node.inputs, *node.outputs) if hasattr(x.type, "dtype")}
    wide = sorted(d for d in dtypes if np.dtype(d).kind in "fc" and d != "float32")
    if wide and not settings.any_dtype():
        names = ", ".join(wide)
        return f"dtype {names}", f"use float32 instead of {names}"
    return (
        "not compiled for the device, or in a form that the device does not compute",
        'compile the function in the mode "GPU", or move the operation out of it',
    )
