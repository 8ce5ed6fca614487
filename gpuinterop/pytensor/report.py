"""Which values of a compiled function move between host and device, why, and how to avoid it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .device_variables import GpuFromHost, HostFromGpu
from .lowering import has_lowering

__all__ = ["Transfer", "transfers"]


@dataclass(frozen=True)
class Transfer:
    """One transfer of a compiled function: `direction` is "to the device" or "to the host"."""

    value: str
    direction: str
    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.value} moves {self.direction}: {self.why}; {self.fix}"


def transfers(function: Any) -> list[Transfer]:
    """Return the transfers that a call of a compiled function makes, in their order."""
    graph = function.maker.fgraph
    found = []
    for node in graph.toposort():
        if isinstance(node.op, GpuFromHost):
            found.append(_upload(node.inputs[0]))
        elif isinstance(node.op, HostFromGpu):
            clients = [client for client, _ in graph.clients[node.outputs[0]]]
            found.append(_download(node, clients))
    return found


def _upload(x: Any) -> Transfer:
    if x.owner is None:
        why = "it is an argument in host memory"
        fix = "keep it in a shared variable, or pass slices of one by givens"
    else:
        why = f"{x.owner.op} computes it on the host"
        fix = _host_fix(x.owner)
    return Transfer(x.name or str(x), "to the device", why, fix)


def _download(node: Any, clients: list[Any]) -> Transfer:
    x = node.inputs[0]
    readers = [
        client for client in clients if client.inputs and type(client.op).__name__ != "Output"
    ]
    if readers:
        why = f"{readers[0].op} reads it on the host"
        fix = _host_fix(readers[0])
    else:
        why = "the function returns it as a NumPy array"
        fix = "return gpu_from_host(x), or update a shared variable with it"
    return Transfer(x.name or str(x), "to the host", why, fix)


def _host_fix(node: Any) -> str:
    dtypes = {x.type.dtype for x in (*node.inputs, *node.outputs) if hasattr(x.type, "dtype")}
    if has_lowering(node.op) and dtypes - {"float32", "bool"}:
        return f"use float32 instead of {', '.join(sorted(dtypes - {'float32', 'bool'}))}"
    return "move the operation out of the function, or add a lowering for it"
