"""One case: a bridge, a direction, a layout, a dtype and a device, tried and judged.

A conversion without ``copyif`` must share or raise; with it, it must copy what it refused. Each claim
is checked against memory itself. The outcome is "shared", "copied" (refused, and copied with
``copyif=True``), "refused", "none" (the bridge makes no such array, as a rule because the library
cannot hold it) or "wrong".
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

import gpuinterop as gi
from gpuinterop import _core
from gpuinterop.testing.bridge import Bridge
from gpuinterop.testing.layouts import Layout
from gpuinterop.testing.memory import Store, elements, poke
from gpuinterop.testing.verdict import Verdict, alike, another, buffers, refused_parts, settled

__all__ = ["run"]


@dataclass(frozen=True)
class _Scene:
    """What both directions need to know."""

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
        """The layout's elements, read from memory."""
        return elements(address, self.layout.shape, self.strides, self.dtype, self.place)

    def last(self) -> tuple[tuple[int, ...], int]:
        """Index of the last element, and its distance from the first in bytes."""
        index = tuple(n - 1 for n in self.layout.shape)
        return index, sum(i * s for i, s in zip(index, self.strides, strict=True))


def run(
    bridge: Bridge,
    direction: str,
    layout: Layout,
    dtype: np.dtype[Any],
    place: tuple[str, int],
) -> Verdict:
    """Try one case. What goes wrong is in the verdict; nothing is raised for it."""
    verdict = Verdict()
    scene = _Scene(bridge, layout, dtype, place, verdict)
    held = buffers(place)
    store = Store(layout.count, dtype, place)
    try:
        (_try_to if direction == "to" else _try_from)(scene, store)
    except Exception as error:  # of the library's readers: the case is judged, the suite goes on
        verdict.fault("usable", "an array that its own library can use", _named(error))
        error.__traceback__ = None
    finally:
        store.keeper = None
        # Fewer is no leak: what others had left lying was collected meanwhile.
        if not settled(lambda: buffers(place) <= held, bridge.name):
            verdict.fault("leaks", "no memory of ours left", f"{buffers(place) - held} buffers")
        verdict.expect(store.intact(), "bounds", "no write beside the array", "one")
        store.close()
    if verdict.forecast and verdict.outcome != "none" and verdict.forecast != verdict.outcome:
        verdict.fault("forecast", f"explain to say {verdict.outcome}", verdict.forecast)
    if verdict.faults:
        verdict.outcome = "wrong"
    return verdict


# ---- attempts -----------------------------------------------------------------------------------


def _attempt(scene: _Scene, function: Any, argument: Any, copyif: bool) -> Any:
    """The result, or None with the refusal noted."""
    verdict = scene.verdict
    try:
        result = function(argument, copyif)
        if result is None:
            verdict.fault("error", "an array, or an error that says why there is none", "None")
        return result
    except gi.GpuInteropError as error:
        refused_parts(verdict, error)
        # The traceback holds the frames, and so the arrays whose release is to be seen.
        error.__traceback__ = error.__context__ = error.__cause__ = None
    except Exception as error:  # any other class is the finding
        verdict.fault("error", "an error of gpuinterop's, or none", _named(error))
        error.__traceback__ = error.__context__ = error.__cause__ = None
    return None


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _convert(scene: _Scene, function: Any, argument: Any) -> Any:
    """Ask without copyif, then with it; the outcome says which one worked."""
    verdict = scene.verdict
    with gi.count_copies() as counted:
        result = _attempt(scene, function, argument, False)
    verdict.expect(counted.count == 0, "copies", "none without copyif", f"{counted.count} counted")
    if result is not None:
        verdict.outcome, verdict.reason, verdict.fix = "shared", "", ""
        return result
    with gi.count_copies() as counted:
        result = _attempt(scene, function, argument, True)
    verdict.outcome = "refused" if result is None else "copied"
    if result is not None and scene.layout.size:
        nbytes = scene.layout.size * scene.dtype.itemsize
        verdict.expect(
            counted.bytes >= nbytes, "counted", f"{nbytes} bytes told to count_copies()", counted.bytes
        )  # fmt: skip
    return result


def _check_source(scene: _Scene, start: int, before: Any) -> None:
    """Whether what was converted, shared, copied or refused, holds the values that it held."""
    if scene.layout.size:
        same = alike(scene.at(start), before)
        scene.verdict.expect(same, "writes", "no write by the conversion itself", "other values")


def _forecast(scene: _Scene, argument: Any, to: str) -> str:
    explain = scene.bridge.explain
    if explain is None:
        return ""
    with gi.count_copies() as counted:
        options = scene.bridge.options if to == scene.bridge.name else {}
        first = explain(argument, to, False, **options)
        second = explain(argument, to, True, **options)
    scene.verdict.expect(counted.count == 0, "forecast", "no copy", f"{counted.count} copies")
    return "shared" if first.shared else str(second.outcome)


# ---- ours to theirs -----------------------------------------------------------------------------


def _ours(scene: _Scene, store: Store) -> Any:
    cls = gi.CudaNdarray if scene.dtype == np.float32 else gi.GpuArray
    return _core.from_pointer(
        cls,
        store.address + scene.layout.offset * scene.dtype.itemsize,
        scene.layout.shape,
        scene.strides,
        scene.dtype,
        1 if scene.device == "cpu" else 2,
        scene.place[1],
        store.keeper,
        readonly=scene.layout.readonly,
    )


def _try_to(scene: _Scene, store: Store) -> None:
    bridge, verdict, layout = scene.bridge, scene.verdict, scene.layout
    start = store.address + layout.offset * scene.dtype.itemsize
    before = scene.at(start)
    x = _ours(scene, store)
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
    there = result is not None and _check_theirs(scene, result, start, before)
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
    """Whether memory is where an array says it is; else neither we nor its library may look.

    All of it when the strides are told, else the first element.
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


def _check_theirs(scene: _Scene, result: Any, start: int, before: Any) -> bool:
    """Look at a result; False when there is no memory where it says."""
    bridge, verdict = scene.bridge, scene.verdict
    shared = verdict.outcome == "shared"
    address = bridge.address(result) if scene.layout.size else 0
    if scene.layout.size and address != start:
        # What is shared was to keep its strides; a copy may be packed.
        told: tuple[int, ...] | None = scene.strides if shared else None
        if bridge.strides is not None:
            told = bridge.strides(result)
        if not _is_there(scene, address, told):
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
    seen = "our write seen there" if shared else "a copy apart from our writes"
    same = alike(bridge.values(result), expected)
    verdict.expect(same, "writes", seen, "other values")
    if address != start and (shared or not same):  # whose memory that is, nobody knows
        return True
    if bridge.write is None or (bridge.readonly is not None and bridge.readonly(result)):
        return True
    value = another(value)
    bridge.write(result, index, value.item())
    found = scene.at(start)[index]
    if shared:
        verdict.expect(alike(found, value), "writes", "their write seen here", found)
    else:
        verdict.expect(not alike(found, value), "writes", "a copy apart from us", "a shared write")
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
    scene.verdict.expect(kept, "readonly", "the mark kept, or a refusal", "writable memory")


# ---- theirs to ours -----------------------------------------------------------------------------


def _try_from(scene: _Scene, store: Store) -> None:
    bridge, verdict, layout = scene.bridge, scene.verdict, scene.layout
    host = store if scene.device == "cpu" else Store(layout.count, scene.dtype, ("cpu", 0))
    alive = weakref.ref(host.keeper)
    theirs = bridge.make(host.flat(), layout, scene.device) if bridge.make else None
    if theirs is None:
        return
    size = layout.size
    start = bridge.address(theirs) if size else 0
    if size and not _is_there(scene, start, scene.strides):
        return
    borrows = start == host.address + layout.offset * scene.dtype.itemsize
    before = layout.of(host.flat()).copy()
    if not alike(bridge.values(theirs), before):
        verdict.fault("made", "an array of the layout's values from make()", "other values")
        return
    verdict.forecast = _forecast(scene, theirs, "gpuinterop")
    x = _convert(scene, bridge.convert_from, theirs)
    _check_source(scene, start, before)
    there = x is not None and _check_ours(scene, x, theirs, start, before)
    owned = None
    if there and verdict.outcome == "shared" and size:
        owned = _read(scene, x).copy()
    del theirs
    host.keeper = None
    # A pool hands freed memory to the next array: if that was ours, its values change now.
    later = [] if borrows else [_make_other(scene) for _ in range(4)]
    if owned is not None:
        if borrows:
            verdict.expect(
                alive() is not None, "lifetime", "memory kept while the array lives", "freed early"
            )
        same = alike(_read(scene, x), owned)
        verdict.expect(same, "lifetime", "values as before when only ours is left", "others")
    del x, later
    verdict.expect(
        settled(lambda: alive() is None, bridge.name),
        "released",
        "memory released with the last user",
        "kept",
    )


def _read(scene: _Scene, x: Any) -> np.ndarray[Any, Any]:
    """What an array of ours says, where it says."""
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


def _check_ours(scene: _Scene, x: Any, theirs: Any, start: int, before: Any) -> bool:
    """Look at one of ours; False when there is no memory where it says."""
    bridge, verdict, layout = scene.bridge, scene.verdict, scene.layout
    shared = verdict.outcome == "shared"
    verdict.expect(isinstance(x, _core.Array), "type", "an array of ours", type(x).__name__)
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
    marked = bridge.write is None or (bridge.readonly is not None and bridge.readonly(theirs))
    if shared and marked:
        verdict.expect(x.readonly, "readonly", "ours read-only, as theirs is", "writable memory")
    index, distance = scene.last()
    value = another(before[index])
    poke(start + distance, value.tobytes(), scene.place)
    expected = scene.at(start) if shared else before
    seen = "their write seen here" if shared else "a copy apart from their writes"
    verdict.expect(alike(_read(scene, x), expected), "writes", seen, "other values")
    if shared and not x.readonly and x.ptr == start:
        value = another(value)
        _write(scene, x, index, value)
        same = alike(np.asarray(bridge.values(theirs))[index], value)
        verdict.expect(same, "writes", "our write seen there", "the old value")
    return True
