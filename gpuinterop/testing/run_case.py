"""Run one case: a bridge, a direction, a layout, a dtype and a device.

A conversion without ``copyif`` must share or raise; with ``copyif=True`` it must copy what it refused. Every
claim is compared with memory. The outcome is "shared", "copied" (refused, and copied with
``copyif=True``), "refused", "none" (the bridge makes no such array, usually because the library
cannot represent it) or "wrong".

Both directions run the same checks: gpuinterop is described by a `Bridge` too, and a case has the bridge
of the source and that of the result.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gpuinterop import _core, errors
from gpuinterop.arrays import copy_tracking
from gpuinterop.devices import Device
from gpuinterop.testing.bridge import Bridge
from gpuinterop.testing.layouts import Layout
from gpuinterop.testing.matrix_table import Cell
from gpuinterop.testing.memory import MARGIN, Store, elements, poke
from gpuinterop.testing.verdict import alike, another, buffers, settled


def _place(x: Any) -> tuple[str, int]:
    return x.device.type, x.device.index


def _write(x: Any, index: tuple[int, ...], value: Any) -> None:
    if x.device.type == "cpu":
        x[index] = value
    else:  # without a kernel, which would need a compiler
        steps = sum(i * s for i, s in zip(index, x.strides, strict=True))
        poke(x.ptr + steps, np.asarray(value).astype(x.dtype).tobytes(), _place(x))


_GPUINTEROP = Bridge(
    "gpuinterop",
    address=lambda x: x.ptr,
    values=lambda x: elements(x.ptr, x.shape, tuple(x.strides), x.dtype, _place(x)),
    write=_write,
    readonly=lambda x: x.readonly,
    strides=lambda x: tuple(x.strides),
    dtype=lambda x: x.dtype.name,
)


@dataclass(frozen=True)
class Case:
    """One conversion to try."""

    bridge: Bridge
    direction: str
    device: Device
    layout: Layout
    dtype: np.dtype[Any]
    stream: str = "default"

    @cached_property
    def cell(self) -> Cell:
        """The outcome so far."""
        return Cell(
            self.bridge.name, self.direction, str(self.device), self.layout.name, self.dtype.name,
            self.stream, "none",
        )  # fmt: skip

    @property
    def to(self) -> bool:
        return self.direction == "to"

    @property
    def place(self) -> tuple[str, int]:
        return self.device.type, self.device.index

    @property
    def source(self) -> Bridge:
        return _GPUINTEROP if self.to else self.bridge

    @property
    def result(self) -> Bridge:
        return self.bridge if self.to else _GPUINTEROP

    @property
    def strides(self) -> tuple[int, ...]:
        return self.layout.byte_strides(self.dtype.itemsize)

    def at(self, address: int) -> np.ndarray[Any, Any]:
        """Read the layout's elements from memory."""
        return elements(address, self.layout.shape, self.strides, self.dtype, self.place)

    def make(self, store: Store) -> Any:
        """Return the array to convert; None if the library has no such array."""
        if self.to:
            return self.layout.over(store.address, self.dtype, self.place, store.keeper)
        return self.bridge.make and self.bridge.make(store.flat(), self.layout, self.place[0])

    def convert(self, array: Any, copyif: bool) -> Any:
        return (self.bridge.convert_to if self.to else self.bridge.convert_from)(array, copyif)


def run(case: Case) -> None:
    """Run one case. Its cell holds all faults; none is raised."""
    cell, place = case.cell, case.place
    held = buffers(place)
    # The library itself copies the values of a new array to the GPU.
    store = Store(case.layout.count, case.dtype, place if case.to else ("cpu", 0))
    try:
        _try(case, store)
    except Exception as error:  # from the library: it is a fault of this case
        cell.fault("usable", "an array that its own library can use", _named(error))
        error.__traceback__ = None
    finally:
        store.keeper = None
        # Fewer buffers are not a leak: the collection also frees garbage of earlier code.
        if not settled(lambda: buffers(place) <= held, case.bridge.name):
            left = f"{buffers(place) - held} buffers"
            cell.fault("leaks", "no buffers left after the case", left)
        cell.expect(store.intact(), "bounds", "no write outside the array", "a write")
        store.close()
    if cell.forecast and cell.outcome != "none" and cell.forecast != cell.outcome:
        cell.fault("forecast", f"{cell.outcome} predicted by explain", cell.forecast)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _try(case: Case, store: Store) -> None:
    cell, layout = case.cell, case.layout
    alive = weakref.ref(store.keeper)
    source = case.make(store)
    if source is None:
        return
    start = case.source.address(source) if layout.size else 0
    if not _is_there(case, start, case.strides):
        return
    before = layout.of(store.values)
    if not alike(case.source.values(source), before):
        cell.fault("made", "an array of the layout's values from make()", "other values")
        return
    cell.forecast = _forecast(case, source)
    result = _convert(case, source)
    if layout.size:  # a conversion must not write to its source
        same = alike(case.at(start), before)
        cell.expect(same, "writes", "no write by the conversion", "other values")
    promised = case.to and case.bridge.promises
    if promised and promised(layout, case.dtype.name, case.place[0]):
        shared = cell.outcome == "shared"
        cell.expect(shared, "shares", "memory shared, as the bridge promises", cell.outcome)
    there = result is not None and _check(case, source, result, start, before)
    kept = case.result.values(result).copy() if there else None
    borrowed = start == store.address + layout.offset * case.dtype.itemsize
    del source
    store.keeper = None
    if kept is not None and cell.outcome == "shared" and layout.size:
        _check_lifetime(case, store, result, kept, alive if borrowed else None)
    del result
    released = settled(lambda: alive() is None, case.bridge.name)
    cell.expect(released, "released", "memory released with the last user", "kept")


# ---- attempts -----------------------------------------------------------------------------------


def _attempt(case: Case, argument: Any, copyif: bool) -> Any:
    """Return the result, or None after a refusal, which is recorded in the cell."""
    cell = case.cell
    try:
        result = case.convert(argument, copyif)
        if result is None:
            cell.fault("error", "an array, or an error with the reason", "None")
        return result
    except errors.GpuInteropError as error:
        cell.refuse(error)
        refused: Exception = error
    except Exception as error:  # any other class is a fault
        cell.fault("error", "no error, or a GpuInteropError", _named(error))
        refused = error
    # The traceback refers to frames, and so to the arrays whose release is checked below.
    refused.__traceback__ = refused.__context__ = refused.__cause__ = None
    return None


def _convert(case: Case, argument: Any) -> Any:
    """Convert without copyif, and with copyif=True if that is refused; set the outcome."""
    cell, size = case.cell, case.layout.size
    with copy_tracking.count_copies() as counted:
        result = _attempt(case, argument, False)
    copies = f"{counted.count} copies"
    cell.expect(counted.count == 0, "copies", "no copy without copyif", copies)
    with copy_tracking.count_copies() as counted:
        again = _attempt(case, argument, True)
    if result is not None:
        cell.outcome, cell.reason, cell.fix = "shared", "", ""
        if again is not None and size:
            same = case.result.address(again) == case.result.address(result)
            cell.expect(same, "copyif", "memory shared with copyif=True as well", "a copy")
        return result
    cell.outcome = "refused" if again is None else "copied"
    nbytes = size * case.dtype.itemsize
    if again is not None and counted.bytes < nbytes:
        cell.fault("counted", f"{nbytes} bytes in count_copies()", counted.bytes)
    return again


def _forecast(case: Case, argument: Any) -> str:
    explain = case.bridge.prediction(case.direction)
    if explain is None:
        return ""
    library, options = (case.bridge.name, case.bridge.options) if case.to else ("gpuinterop", {})
    with copy_tracking.count_copies() as counted:
        first = explain(argument, library, False, **options)
        second = explain(argument, library, True, **options)
    case.cell.expect(counted.count == 0, "forecast", "no copy", f"{counted.count} copies")
    outcome = "shared" if first.shared else str(second.outcome)
    return "" if outcome == "unknown" else outcome


# ---- checks of a result -------------------------------------------------------------------------


def _is_there(case: Case, address: int, strides: tuple[int, ...] | None) -> bool:
    """Return whether there is memory at the address of an array. If not, any read could end the process.

    Checks all elements if the strides are given, otherwise the first element.
    """
    shape = case.layout.shape
    if not case.layout.size:
        return True
    if strides is None or len(strides) != len(shape):
        shape = strides = ()
    try:
        elements(address, shape, strides, case.dtype, case.place)
    except RuntimeError as error:
        case.cell.fault("address", "an address of memory", error)
        return False
    return True


def _check(case: Case, source: Any, result: Any, start: int, before: Any) -> bool:
    """Check a result; return False if there is no memory at its address."""
    bridge, cell, layout = case.result, case.cell, case.layout
    shared = cell.outcome == "shared"
    if not case.to:
        if not isinstance(result, _core.Array):
            cell.fault("type", "a gpuinterop array", type(result).__name__)
            return False
        cell.expect(_place(result) == case.place, "device", case.place, _place(result))
    address = bridge.address(result) if layout.size else 0
    # A shared array must have the same strides; a copy may be contiguous.
    strides = bridge.strides(result) if bridge.strides else case.strides if shared else None
    if not _is_there(case, address, strides):
        return False
    values = bridge.values(result)
    if bridge.dtype is not None:
        name = bridge.dtype(result)
        cell.expect(name == case.dtype.name, "dtype", case.dtype.name, name)
    cell.expect(tuple(values.shape) == layout.shape, "shape", layout.shape, values.shape)
    if not layout.size:
        return True
    if shared:
        cell.expect(address == start, "address", hex(start), f"{address:#x}: a silent copy")
        if bridge.strides is not None:
            _check_strides(case, bridge.strides(result))
        _check_readonly(case, source, result)
    else:
        cell.expect(address != start, "address", "another address, for a copy", hex(address))
    _check_writes(case, source, result, start, before)
    return True


def _check_strides(case: Case, found: tuple[int, ...]) -> None:
    meant = [s for n, s in zip(case.layout.shape, case.strides, strict=True) if n > 1]
    got = [s for n, s in zip(case.layout.shape, found, strict=False) if n > 1]
    case.cell.expect(meant == got, "strides", meant, got)


def _is_readonly(bridge: Bridge, array: Any) -> bool:
    return bridge.write is None or (bridge.readonly is not None and bridge.readonly(array))


def _check_readonly(case: Case, source: Any, result: Any) -> None:
    if _is_readonly(case.source, source):
        kept = _is_readonly(case.result, result)
        case.cell.expect(kept, "readonly", "a read-only array, or a refusal", "writable memory")


def _check_writes(case: Case, source: Any, result: Any, start: int, before: Any) -> None:
    """Write to the last element on each side, and read it on the other."""
    cell, bridge = case.cell, case.result
    shared = cell.outcome == "shared"
    index = tuple(n - 1 for n in case.layout.shape)
    distance = sum(i * s for i, s in zip(index, case.strides, strict=True))
    value = another(before[index])
    poke(start + distance, value.tobytes(), case.place)
    same = alike(bridge.values(result), case.at(start) if shared else before)
    meant = "the source's write visible in the result" if shared else "a copy without later writes"
    cell.expect(same, "writes", meant, "other values")
    # At another address or with other values the memory may belong to something else.
    mine = same
    if shared:
        mine = bridge.address(result) == start and (same or _ends_inside(case, result, index))
    if bridge.write is None or _is_readonly(bridge, result) or not mine:
        return
    value = another(value)
    bridge.write(result, index, value.item())
    found = np.asarray(case.source.values(source))[index]
    if shared:
        cell.expect(alike(found, value), "writes", "the result's write visible", found)
    elif alike(found, value):
        cell.fault("writes", "a copy with separate memory", "a shared write")


def _ends_inside(case: Case, result: Any, index: tuple[int, ...]) -> bool:
    """Return whether an element of a result with wrong values is in the memory of the case or its margins."""
    strides = case.result.strides(result) if case.result.strides else ()
    if len(strides) != len(index):
        return False
    size = case.dtype.itemsize
    place = case.layout.offset * size + sum(i * s for i, s in zip(index, strides, strict=True))
    return -MARGIN <= place <= case.layout.count * size + MARGIN - size


def _check_lifetime(case: Case, store: Store, result: Any, kept: Any, alive: Any) -> None:
    """Check that the result, which is the last user, keeps the memory; `alive` if the store has it."""
    cell = case.cell
    if alive is not None:
        meant = "memory kept while the result lives"
        cell.expect(alive() is not None, "lifetime", meant, "freed early")
    # A pool reuses freed memory for the next array: if it was freed too early, the values change now.
    make, later = case.bridge.make, []
    if alive is None and make is not None:
        zeros = np.zeros(case.layout.count, case.dtype)
        later = [make(zeros, case.layout, case.place[0]) for _ in range(4)]
    same = alike(case.result.values(result), kept)
    cell.expect(same, "lifetime", "the same values when only the result is left", "other values")
    del later
