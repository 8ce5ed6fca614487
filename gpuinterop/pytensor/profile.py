"""Measures the times of the operations and the transfers of a compiled function."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from pytensor.compile.executor import Function

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError

from .device_op import GpuOp
from .device_variables import GpuFromHost, HostFromGpu, is_device

KINDS = ("device", "host", "to the device", "to the host")


def kind_of(node: Any) -> str:
    """Return where a node of a compiled graph works: one of `KINDS`."""
    if isinstance(node.op, GpuFromHost):
        return "to the device"
    if isinstance(node.op, HostFromGpu):
        return "to the host"
    on_device = isinstance(node.op, GpuOp) or any(map(is_device, node.outputs))
    return "device" if on_device else "host"


@dataclass(frozen=True)
class ProfileRow:
    """One operation of a function; `seconds` is its time in one call of the function."""

    node: Any
    kind: str
    seconds: float

    @property
    def operation(self) -> str:
        return str(self.node.op)


@dataclass(frozen=True)
class ProfileSummary:
    """The times of a compiled function; `str` returns a table.

    Attributes
    ----------
    call : seconds of a call without a profile, with captured graphs, until the device has finished.
    host_call : seconds until such a call returns.
    rows : the operations, one by one. If `synchronised`, the device finished each before the next began; otherwise a
        row has only the host's time.
    """

    call: float
    host_call: float
    synchronised: bool
    rows: list[ProfileRow] = field(repr=False)

    def seconds(self, kind: str) -> float:
        """Return the sum of the rows of one kind: "device", "host", "to the device" or "to the host"."""
        return sum(row.seconds for row in self.rows if row.kind == kind)

    def __str__(self) -> str:
        total = sum(row.seconds for row in self.rows) or 1.0
        timing = "the device finishes each" if self.synchronised else "only the host's time"
        lines = [
            f"A call takes {self.call * 1e6:.1f} us, and returns after {self.host_call * 1e6:.1f} us.",
            f"Its operations one by one ({timing}), in us per call:",
        ]
        for kind in KINDS:
            spent = self.seconds(kind)
            lines.append(f"  {kind:14} {spent * 1e6:10.1f}  {100 * spent / total:5.1f} %")
        for row in sorted(self.rows, key=lambda row: -row.seconds):
            lines.append(
                f"  {row.kind:14} {row.seconds * 1e6:10.1f}  {100 * row.seconds / total:5.1f} %  {row.operation}"
            )
        return "\n".join(lines)


def graph_of(function: Any, where: str) -> Any:
    """Return the graph of a compiled function."""
    if not hasattr(function, "maker"):
        raise ArgumentTypeError(
            where=where, expected="a function that pytensor.function returned", got=f"type {type(function).__name__}",
            fix="compile it: pytensor.function(inputs, outputs)",
        )  # fmt: skip
    return function.maker.fgraph


def profile_summary(
    function: Any, *arguments: Any, calls: int = 20, synchronise: bool = True
) -> ProfileSummary:
    """Call a function of the mode "GPU" several times, and return the times of its operations.

    The calls are real ones: they update shared variables. ``synchronise=False`` does not wait for the device
    after each operation, so the rows show the host's time for each.
    """
    graph_of(function, "profile_summary")
    if not hasattr(function.vm, "timed"):
        raise ArgumentTypeError(
            where="profile_summary", expected='a function of the mode "GPU" without lazy operations such as ifelse',
            got=f"a function that a {type(function.vm).__name__} runs",
            fix='compile it with mode="GPU", or with profile=True and print f.profile.summary()',
        )  # fmt: skip
    for _ in range(3):  # compiles kernels, captures graphs
        function(*arguments)
    gi.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        function(*arguments)
    returned = time.perf_counter()
    gi.synchronize()
    finished = time.perf_counter()
    vm = function.vm
    vm.call_times, vm.call_counts = [0.0] * len(vm.nodes), [0] * len(vm.nodes)
    with vm.timed(synchronise):
        for _ in range(calls):
            Function.__call__(function, *arguments)
    rows = [
        ProfileRow(node, kind_of(node), spent / calls)
        for node, spent in zip(vm.nodes, vm.call_times, strict=True)
    ]
    vm.call_times, vm.call_counts = [0.0] * len(vm.nodes), [0] * len(vm.nodes)
    return ProfileSummary((finished - start) / calls, (returned - start) / calls, synchronise, rows)
