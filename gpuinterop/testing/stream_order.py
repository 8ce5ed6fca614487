"""Check the stream order: a slow producer on a side stream, and a consumer that reads at once.

The pause is a host function on the stream, so that only the order of the streams makes the consumer wait.
"""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np

from gpuinterop import creation, devices, errors
from gpuinterop.testing.bridge import Bridge
from gpuinterop.testing.layouts import Layout
from gpuinterop.testing.matrix_table import Cell
from gpuinterop.testing.memory import fill, require_memory, slow, wait
from gpuinterop.testing.run_case import Case

_NEW = 0x40000000  # 2.0 as float32
_ROUNDS = 3


def run_order(case: Case) -> None:
    """Try one direction on a GPU; float32."""
    cell, index = case.cell, case.device.index
    try:
        for _ in range(_ROUNDS):
            if not (_to if case.to else _from)(case.bridge, case.layout, index, cell):
                break
    except errors.GpuInteropError as error:
        cell.outcome = "refused"
        cell.refuse(error)
    except Exception as error:  # from the library under test: it is a fault of this case
        cell.fault("usable", "an array that its own library can use", repr(error))
    finally:
        wait(index)


def _to(bridge: Bridge, layout: Layout, index: int, cell: Cell) -> bool:
    """Write with gpuinterop on a side stream; read with the library on its own stream."""
    side = devices.Stream(f"cuda:{index}")
    flat = creation.full((layout.count,), 1.0, device=f"cuda:{index}")
    devices.synchronize()
    with side:
        slow(side.handle, index)
        # By an assignment, so that gpuinterop records the stream of the last use.
        flat[...] = creation.full((layout.count,), 2.0, device=f"cuda:{index}")
        if layout.name == "C":
            x = flat.reshape(layout.shape)
        else:
            x = layout.over(flat.ptr, flat.dtype, ("cuda", index), flat)
        foreign = bridge.convert_to(x, True)
    cell.outcome = "shared" if bridge.address(foreign) == x.ptr else "copied"
    require_memory(bridge.address(foreign), 4, ("cuda", index))
    found = np.asarray(bridge.values(foreign))
    same = found.tobytes() == np.full(layout.shape, 2.0, np.float32).tobytes()
    cell.expect(same, "order", "gpuinterop's queued write visible in the library", "older values")
    return same


def _from(bridge: Bridge, layout: Layout, index: int, cell: Cell) -> bool:
    """Write with the library on a side stream; read with gpuinterop on its own stream."""
    if bridge.make is None or bridge.stream is None:
        return False
    flat = np.full(layout.count, 1.0, np.float32)
    foreign = bridge.make(flat, layout, f"cuda:{index}")
    if foreign is None:
        return False
    wait(index)
    start = bridge.address(foreign) - 4 * layout.offset
    with ExitStack() as reader, bridge.stream(f"cuda:{index}") as handle:
        if handle in (0, 1):
            # The library uses the legacy stream only, so gpuinterop has to use another one.
            reader.enter_context(devices.Stream(f"cuda:{index}"))
        slow(handle, index)
        fill(start, _NEW, layout.count, handle, index)
        x = bridge.convert_from(foreign, False)
        found = np.asarray(x)
    cell.outcome = "shared"
    same = found.tobytes() == np.full(layout.shape, 2.0, np.float32).tobytes()
    cell.expect(same, "order", "the library's queued write visible", "older values")
    return same
