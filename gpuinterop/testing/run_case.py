"""Run one case: a bridge, a direction, a layout, a dtype and a device.

A conversion without ``copyif`` must share or raise; with ``copyif=True`` it must copy what it refused. Every
claim is compared with memory. The outcome is "shared", "copied" (refused, and copied with
``copyif=True``), "refused", "none" (the bridge makes no such array, usually because the library
cannot represent it) or "wrong".
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuinterop import _core, copy_tracking, errors
from gpuinterop.testing.bridge import Bridge
from gpuinterop.testing.layouts import Layout
from gpuinterop.testing.memory import Store, elements, poke
from gpuinterop.testing.verdict import Verdict, alike, another, buffers, refused_parts, settled

__all__ = ["run"]


@dataclass(frozen=True)
class _Scene:
    """The case and its verdict, for both directions."""

    bridge: Bridge
    layout: Layout
    dtype: np.dtype[Any]
    place: tuple[str, int]
    verdict: Verdict

    @property
    def device(self) -> str:
        return self.place[0]

    @property
    def strides(self) -> tuple[int, ...]:
        return self.layout.byte_strides(self.dtype.itemsize)

    def at(self, address: int) -> np.ndarray[Any, Any]:
        """Read the layout's elements from memory."""
        return elements(address, self.layout.shape, self.strides, self.dtype, self.place)

    def last(self) -> tuple[tuple[int, ...], int]:
        """Return the index of the last element, and its distance from the first in bytes."""
        index = tuple(n - 1 for n in self.layout.shape)
        return index, sum(i * s for i, s in zip(index, self.strides, strict=True))


def run(
    bridge: Bridge,
    direction: str,
    layout: Layout,
    dtype: np.dtype[Any],
    place: tuple[str, int],
) -> Verdict:
    """Run one case. The verdict holds all faults; none is raised."""
    verdict = Verdict()
    scene = _Scene(bridge, layout, dtype, place, verdict)
    held = buffers(place)
    store = Store(layout.count, dtype, place)
    try:
        (_try_to if direction == "to" else _try_from)(scene, store)
    except (
        Exception
    ) as error:  # from the library: it is a fault of this case, and the suite continues
        verdict.fault("usable", "an array that its own library can use", _named(error))
        error.__traceback__ = None
    finally:
        store.keeper = None
        # Fewer buffers are no leak: the collection also frees garbage of earlier code.
        if not settled(lambda: buffers(place) <= held, bridge.name):
            verdict.fault(
                "leaks", "no buffers left after the case", f"{buffers(place) - held} buffers"
            )
        verdict.expect(store.intact(), "bounds", "no write outside the array", "a write")
        store.close()
    if verdict.forecast and verdict.outcome != "none" and verdict.forecast != verdict.outcome:
        verdict.fault("forecast", f"explain to say {verdict.outcome}", verdict.forecast)
    if verdict.faults:
        verdict.outcome = "wrong"
    return verdict


# ---- attempts -----------------------------------------------------------------------------------


def _attempt(scene: _Scene, function: Any, argument: Any, copyif: bool) -> Any:
    """Return the result, or None after a refusal, which is recorded in the verdict."""
    verdict = scene.verdict
    try:
        result = function(argument, copyif)
        if result is None:
            verdict.fault("error", "an array, or an error with the reason", "None")
        return result
    except errors.GpuInteropError as error:
        refused_parts(verdict, error)
        # The traceback refers to frames, and so to the arrays whose release is checked below.
        error.__traceback__ = error.__context__ = error.__cause__ = None
    except Exception as error:  # any other class is a fault
        verdict.fault("error", "no error, or a GpuInteropError", _named(error))
        error.__traceback__ = error.__context__ = error.__cause__ = None
    return None


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _convert(scene: _Scene, function: Any, argument: Any) -> Any:
    """Convert without copyif, and with copyif=True if that is refused; set the outcome."""
    verdict = scene.verdict
    with copy_tracking.count_copies() as counted:
        result = _attempt(scene, function, argument, False)
    verdict.expect(
        counted.count == 0, "copies", "no copy without copyif", f"{counted.count} copies"
    )
    if result is not None:
        verdict.outcome, verdict.reason, verdict.fix = "shared", "", ""
        return result
    with copy_tracking.count_copies() as counted:
        result = _attempt(scene, function, argument, True)
    verdict.outcome = "refused" if result is None else "copied"
    if result is not None and scene.layout.size:
        nbytes = scene.layout.size * scene.dtype.itemsize
        verdict.expect(
            counted.bytes >= nbytes, "counted", f"{nbytes} bytes in count_copies()", counted.bytes
        )  # fmt: skip
    return result


def _check_source(scene: _Scene, start: int, before: Any) -> None:
    """Check that the conversion has not changed the values of the source."""
    if scene.layout.size:
        same = alike(scene.at(start), before)
        scene.verdict.expect(same, "writes", "no write by the conversion", "other values")


def _forecast(scene: _Scene, argument: Any, to: str) -> str:
    explain = scene.bridge.explain
    if explain is None:
        return ""
    with copy_tracking.count_copies() as counted:
        options = scene.bridge.options if to == scene.bridge.name else {}
        first = explain(argument, to, False, **options)
        second = explain(argument, to, True, **options)
    scene.verdict.expect(counted.count == 0, "forecast", "no copy", f"{counted.count} copies")
    return "shared" if first.shared else str(second.outcome)


# ---- to the library -----------------------------------------------------------------------------


def _try_to(scene: _Scene, store: Store) -> None:
    bridge, verdict, layout = scene.bridge, scene.verdict, scene.layout
    start = store.address + layout.offset * scene.dtype.itemsize
    before = scene.at(start)
    x = layout.over(store.address, scene.dtype, scene.place, store.keeper)
    verdict.forecast = _forecast(scene, x, bridge.name)
    result = _convert(scene, bridge.convert_to, x)
    _check_source(scene, start, before)
    promised = bridge.promises and bridge.promises(layout, scene.dtype.name, scene.device)
    if promised and verdict.outcome != "shared":
        verdict.fault("shares", "memory shared, as the bridge promises", verdict.outcome)
    if verdict.outcome == "shared":
        again = _attempt(scene, bridge.convert_to, x, True)
        if again is not None and layout.size:
            same = bridge.address(again) == start
            verdict.expect(same, "copyif", "memory shared with copyif=True as well", "a copy")
        del again
    alive = weakref.ref(store.keeper)
    there = result is not None and _check_library_array(scene, result, start, before)
    del x
    store.keeper = None
    if there and verdict.outcome == "shared" and layout.size:
        verdict.expect(
            alive() is not None, "lifetime", "memory kept while the result lives", "freed early"
        )
        same = alike(bridge.values(result), scene.at(start))
        verdict.expect(same, "lifetime", "values as before when only the result is left", "others")
    del result
    verdict.expect(
        settled(lambda: alive() is None, bridge.name),
        "released",
        "memory released with the last user",
        "kept",
    )


def _is_there(scene: _Scene, address: int, strides: tuple[int, ...] | None) -> bool:
    """Whether there is memory at the address of an array. If not, any read could end the process.

    Checks all elements if the strides are given, otherwise the first element.
    """
    shape = scene.layout.shape
    if strides is None or len(strides) != len(shape):
        shape = strides = ()
    try:
        elements(address, shape, strides, scene.dtype, scene.place)
    except RuntimeError as error:
        scene.verdict.fault("address", "an address of memory", error)
        return False
    return True


def _check_library_array(scene: _Scene, result: Any, start: int, before: Any) -> bool:
    """Check an array of the library; return False if there is no memory at its address."""
    bridge, verdict = scene.bridge, scene.verdict
    shared = verdict.outcome == "shared"
    address = bridge.address(result) if scene.layout.size else 0
    if scene.layout.size and address != start:
        # A shared array must have the same strides; a copy may be contiguous.
        strides: tuple[int, ...] | None = scene.strides if shared else None
        if bridge.strides is not None:
            strides = bridge.strides(result)
        if not _is_there(scene, address, strides):
            return False
    _check_description(scene, result, shared)
    if not scene.layout.size:
        return True
    if shared:
        verdict.expect(address == start, "address", hex(start), f"{address:#x}: a silent copy")
    else:
        verdict.expect(address != start, "address", "another one, for a copy", hex(address))
    _check_readonly(scene, result, shared)
    index, distance = scene.last()
    value = another(before[index])
    poke(start + distance, value.tobytes(), scene.place)
    expected = scene.at(start) if shared else before
    seen = "gpuinterop's write visible in the library" if shared else "a copy without later writes"
    same = alike(bridge.values(result), expected)
    verdict.expect(same, "writes", seen, "other values")
    if address != start and (shared or not same):  # the memory may belong to anything
        return True
    if bridge.write is None or (bridge.readonly is not None and bridge.readonly(result)):
        return True
    value = another(value)
    bridge.write(result, index, value.item())
    found = scene.at(start)[index]
    if shared:
        verdict.expect(alike(found, value), "writes", "the library's write visible", found)
    else:
        verdict.expect(
            not alike(found, value), "writes", "a copy with memory of its own", "a shared write"
        )
    return True


def _check_description(scene: _Scene, result: Any, shared: bool) -> None:
    bridge, verdict, layout = scene.bridge, scene.verdict, scene.layout
    values = bridge.values(result)
    if bridge.dtype is not None:
        name = bridge.dtype(result)
        verdict.expect(name == scene.dtype.name, "dtype", scene.dtype.name, name)
    if tuple(values.shape) != layout.shape:
        verdict.fault("shape", layout.shape, tuple(values.shape))
    if bridge.strides is not None and shared and layout.size:
        _check_strides(scene, bridge.strides(result))


def _check_strides(scene: _Scene, found: tuple[int, ...]) -> None:
    meant = [s for n, s in zip(scene.layout.shape, scene.strides, strict=True) if n > 1]
    got = [s for n, s in zip(scene.layout.shape, found, strict=False) if n > 1]
    scene.verdict.expect(meant == got, "strides", meant, got)


def _check_readonly(scene: _Scene, result: Any, shared: bool) -> None:
    if not (scene.layout.readonly and shared) or scene.bridge.write is None:
        return
    kept = scene.bridge.readonly is not None and scene.bridge.readonly(result)
    scene.verdict.expect(kept, "readonly", "a read-only array, or a refusal", "writable memory")


# ---- from the library ---------------------------------------------------------------------------


def _try_from(scene: _Scene, store: Store) -> None:
    bridge, verdict, layout = scene.bridge, scene.verdict, scene.layout
    host = store if scene.device == "cpu" else Store(layout.count, scene.dtype, ("cpu", 0))
    alive = weakref.ref(host.keeper)
    foreign = bridge.make(host.flat(), layout, scene.device) if bridge.make else None
    if foreign is None:
        return
    size = layout.size
    start = bridge.address(foreign) if size else 0
    if size and not _is_there(scene, start, scene.strides):
        return
    borrows = start == host.address + layout.offset * scene.dtype.itemsize
    before = layout.of(host.flat()).copy()
    if not alike(bridge.values(foreign), before):
        verdict.fault("made", "an array of the layout's values from make()", "other values")
        return
    verdict.forecast = _forecast(scene, foreign, "gpuinterop")
    x = _convert(scene, bridge.convert_from, foreign)
    _check_source(scene, start, before)
    there = x is not None and _check_gpuinterop_array(scene, x, foreign, start, before)
    owned = None
    if there and verdict.outcome == "shared" and size:
        owned = _read(scene, x).copy()
    del foreign
    host.keeper = None
    # A pool reuses freed memory for the next array: if it was freed too early, the values change now.
    later = [] if borrows else [_make_other(scene) for _ in range(4)]
    if owned is not None:
        if borrows:
            verdict.expect(
                alive() is not None, "lifetime", "memory kept while the array lives", "freed early"
            )
        same = alike(_read(scene, x), owned)
        verdict.expect(
            same, "lifetime", "values as before when only the gpuinterop array is left", "others"
        )
    del x, later
    verdict.expect(
        settled(lambda: alive() is None, bridge.name),
        "released",
        "memory released with the last user",
        "kept",
    )


def _read(scene: _Scene, x: Any) -> np.ndarray[Any, Any]:
    """Read the elements of a gpuinterop array from memory."""
    return elements(x.ptr, x.shape, tuple(x.strides), x.dtype, scene.place)


def _write(scene: _Scene, x: Any, index: tuple[int, ...], value: Any) -> None:
    if scene.device == "cpu":
        x[index] = value.item()
    else:
        steps = sum(i * s for i, s in zip(index, x.strides, strict=True))
        poke(x.ptr + steps, value.tobytes(), scene.place)


def _make_other(scene: _Scene) -> Any:
    flat = np.zeros(scene.layout.count, scene.dtype)
    return scene.bridge.make(flat, scene.layout, scene.device) if scene.bridge.make else None


def _check_gpuinterop_array(scene: _Scene, x: Any, foreign: Any, start: int, before: Any) -> bool:
    """Check a gpuinterop array; return False if there is no memory at its address."""
    bridge, verdict, layout = scene.bridge, scene.verdict, scene.layout
    shared = verdict.outcome == "shared"
    verdict.expect(isinstance(x, _core.Array), "type", "a gpuinterop array", type(x).__name__)
    verdict.expect(x.shape == layout.shape, "shape", layout.shape, x.shape)
    verdict.expect(x.dtype == scene.dtype, "dtype", scene.dtype, x.dtype)
    verdict.expect(x.device.type == scene.device, "device", scene.device, x.device)
    if not layout.size:
        return True
    if not _is_there(scene, x.ptr, tuple(x.strides)):
        return False
    if shared:
        verdict.expect(x.ptr == start, "address", hex(start), f"{x.ptr:#x}: a silent copy")
        _check_strides(scene, tuple(x.strides))
    else:
        verdict.expect(x.ptr != start, "address", "another one, for a copy", hex(x.ptr))
    marked = bridge.write is None or (bridge.readonly is not None and bridge.readonly(foreign))
    if shared and marked:
        verdict.expect(
            x.readonly, "readonly", "a read-only array, as in the library", "writable memory"
        )
    index, distance = scene.last()
    value = another(before[index])
    poke(start + distance, value.tobytes(), scene.place)
    expected = scene.at(start) if shared else before
    seen = "the library's write visible" if shared else "a copy without later writes"
    verdict.expect(alike(_read(scene, x), expected), "writes", seen, "other values")
    if shared and not x.readonly and x.ptr == start:
        value = another(value)
        _write(scene, x, index, value)
        same = alike(np.asarray(bridge.values(foreign))[index], value)
        verdict.expect(same, "writes", "gpuinterop's write visible in the library", "the old value")
    return True
