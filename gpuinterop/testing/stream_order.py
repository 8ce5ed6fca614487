"""Is the order kept? A slow producer on a side stream, read at once on the other side.

The pause is a host function on the stream, so nothing but the stream's order makes the reader wait.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

import gpuinterop as gi
from gpuinterop.testing.bridge import Bridge
from gpuinterop.testing.layouts import Layout
from gpuinterop.testing.memory import fill, slow, wait
from gpuinterop.testing.verdict import Verdict, refused_parts

__all__ = ["run_order"]

_NEW = 0x40000000  # 2.0 as float32
_ROUNDS = 3


def run_order(bridge: Bridge, direction: str, layout: Layout, index: int) -> Verdict:
    """Try one direction on a GPU; float32."""
    verdict = Verdict()
    try:
        for _ in range(_ROUNDS):
            if not (_to if direction == "to" else _from)(bridge, layout, index, verdict):
                break
    except gi.GpuInteropError as error:
        verdict.outcome = "refused"
        refused_parts(verdict, error)
    except Exception as error:  # of the library under test: judged, not passed on
        verdict.fault("usable", "an array that its own library can use", repr(error))
    finally:
        wait(index)
    if verdict.faults:
        verdict.outcome = "wrong"
    return verdict


def _window(flat: Any, layout: Layout) -> Any:
    from gpuinterop import _core  # noqa: PLC0415

    return _core.from_pointer(
        gi.CudaNdarray, flat.ptr + 4 * layout.offset, layout.shape, layout.byte_strides(4),
        np.dtype(np.float32), 2, flat.device.index, flat,
    )  # fmt: skip


def _to(bridge: Bridge, layout: Layout, index: int, verdict: Verdict) -> bool:
    """We write on a side stream; the library reads on its own."""
    side = gi.Stream(f"cuda:{index}")
    flat = gi.full((layout.count,), 1.0, device=f"cuda:{index}")
    gi.synchronize()
    with side:
        slow(side.handle, index)
        # Through the array itself, so that it knows where it was used last.
        flat[...] = gi.full((layout.count,), 2.0, device=f"cuda:{index}")
        x = _window(flat, layout) if layout.name != "C" else flat.reshape(layout.shape)
        theirs = bridge.convert_to(x, True)
    verdict.outcome = "shared" if bridge.address(theirs) == x.ptr else "copied"
    found = np.asarray(bridge.values(theirs))
    same = found.tobytes() == np.full(layout.shape, 2.0, np.float32).tobytes()
    verdict.expect(same, "order", "what we had queued, seen there", "older values")
    return same


def _from(bridge: Bridge, layout: Layout, index: int, verdict: Verdict) -> bool:
    """The library writes on a side stream of its own; we read on ours."""
    if bridge.make is None or bridge.stream is None:
        return False
    flat = np.full(layout.count, 1.0, np.float32)
    theirs = bridge.make(flat, layout, f"cuda:{index}")
    if theirs is None:
        return False
    wait(index)
    start = bridge.address(theirs) - 4 * layout.offset
    with ExitStack() as reader, bridge.stream(f"cuda:{index}") as handle:
        if handle in (0, 1):
            # The library knows the legacy stream only, so the other stream has to be ours.
            reader.enter_context(gi.Stream(f"cuda:{index}"))
        slow(handle, index)
        fill(start, _NEW, layout.count, handle, index)
        x = bridge.convert_from(theirs, False)
        found = np.asarray(x)
    verdict.outcome = "shared"
    same = found.tobytes() == np.full(layout.shape, 2.0, np.float32).tobytes()
    verdict.expect(same, "order", "what the library had queued, seen here", "older values")
    return same
