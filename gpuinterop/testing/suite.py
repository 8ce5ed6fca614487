"""Which cases there are, and the run over them."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import NamedTuple

import numpy as np

import gpuinterop as gi
from gpuinterop.converters import registry
from gpuinterop.devices import device
from gpuinterop.devices import devices as all_devices
from gpuinterop.dtypes import NAMES
from gpuinterop.errors import ArgumentTypeError, ConversionTypeError, MissingLibraryError
from gpuinterop.testing import peers
from gpuinterop.testing.bridge import Bridge
from gpuinterop.testing.layouts import DTYPES, LAYOUTS, named_dtype
from gpuinterop.testing.matrix_table import Cell, Library, Matrix
from gpuinterop.testing.run_case import run
from gpuinterop.testing.stream_order import run_order
from gpuinterop.testing.verdict import Verdict

__all__ = [
    "Case", "about", "bridge_at", "bridges_named", "cases", "gather", "matrix", "named", "try_case",
]  # fmt: skip

# Layouts for which the order of work is tried: one that is shared everywhere, one that is not.
ORDERED = ("C", "sliced")


class Case(NamedTuple):
    """One thing to try."""

    bridge: Bridge
    direction: str
    device: str
    layout: str
    dtype: str
    stream: str


def named(words: Iterable[str], where: str, known: Iterable[str] = ()) -> list[str]:
    """The libraries that a user's words mean; `where` tells in which option they stood."""
    return [
        word if ":" in word or word in known else registry.backend(word, where).name
        for word in words
    ]


def bridges_named(words: Iterable[str]) -> list[str]:
    """Bridges as "package.module:name"; where a user wrote no name, it is "bridge"."""
    return [word if ":" in word else f"{word}:bridge" for word in words]


def bridge_at(spec: str) -> Bridge:
    """The bridge at "package.module:name", or what a function of that name returns."""
    place, _, name = spec.partition(":")
    name = name or "bridge"
    try:
        if not all(part.isidentifier() for part in place.split(".")):
            raise ModuleNotFoundError(f"{place!r} is no name of a module")
        module = import_module(place)
    except ImportError as error:
        raise MissingLibraryError(
            where="gpuinterop.testing",
            expected=f"a module {place!r} that can be imported, for the bridge {spec!r}",
            got=f"{type(error).__name__}: {error}",
            fix="correct the name, or put the folder that holds it on PYTHONPATH",
        ) from error
    found = getattr(module, name, None)
    if callable(found) and not isinstance(found, type):
        found = _called(spec, found)
    if not isinstance(found, Bridge):
        there = [key for key, value in vars(module).items() if isinstance(value, Bridge)]
        raise ConversionTypeError(
            where="gpuinterop.testing",
            expected='a Bridge at "package.module:name"',
            got=f"{type(found).__name__} at {spec!r}"
            if hasattr(module, name)
            else f"no name {name!r} in module {place!r}",
            fix=f"write {place}:{there[0]}"
            if there
            else "let that name be a gpuinterop.testing.Bridge, or a function that returns one",
        )
    return found


def _called(spec: str, function: Callable[[], object]) -> object:
    try:
        return function()
    except Exception as error:  # somebody else's function, or one that makes no bridge at all
        raise ConversionTypeError(
            where="gpuinterop.testing",
            expected=f"a Bridge at {spec!r}, or a function that returns one when called with nothing",
            got=f"{type(error).__name__}: {error}",
            fix="name the bridge, or mend that function",
        ) from error


def gather(
    libraries: Iterable[str | Bridge] | None = None, devices: Sequence[str] | None = None
) -> tuple[list[Bridge], list[Library]]:
    """The bridges to try, and all libraries with the reason for leaving one out."""
    places = _places(devices)
    bridges: list[Bridge] = []
    rows: list[Library] = []
    named = libraries is not None
    for entry in peers.names() if libraries is None else _once(libraries):
        if isinstance(entry, Bridge):
            bridge: Bridge | None = entry
        elif ":" in entry:
            bridge = bridge_at(entry)
        elif not peers.installed(entry):
            rows.append(Library(entry, why="not installed"))
            continue
        else:
            try:
                bridge = peers.load(entry)
            except Exception as error:  # a broken installation is a row of the table
                if named:
                    raise
                text = str(error).strip().splitlines() or [""]
                rows.append(
                    Library(entry, why=f"its import failed: {type(error).__name__}: {text[0]}")
                )
                continue
        if bridge is None:
            rows.append(
                Library(
                    str(entry), why="no bridge for the suite: its converter has no testing_bridge"
                )
            )
        elif not bridge.directions():
            raise ArgumentTypeError(
                where="gpuinterop.testing",
                expected="a Bridge with something to try: to=, or make= with from_=, or a name "
                f"among {', '.join(registry.names())}",
                got=f"Bridge({bridge.name!r}) without any of these",
                fix="pass the converter's functions, or correct the name",
            )
        elif not any(place.partition(":")[0] in bridge.devices for place in places):
            rows.append(Library(bridge.name, bridge.version, f"no arrays on {', '.join(places)}"))
        else:
            bridges.append(bridge)
            rows.append(Library(bridge.name, bridge.version))
    return bridges, rows


def _once(entries: Iterable[str | Bridge]) -> list[str | Bridge]:
    """The entries, those that are named twice only once."""
    return [*{entry if isinstance(entry, str) else id(entry): entry for entry in entries}.values()]


def _places(devices: Sequence[str] | None) -> list[str]:
    """The devices to try, by default the CPU and the first GPU."""
    if devices is not None:
        return list(dict.fromkeys(str(device(name)) for name in devices))
    return [str(place) for place in all_devices()[:2]]


def cases(
    bridges: Iterable[Bridge],
    devices: Sequence[str] | None = None,
    layouts: Iterable[str] | None = None,
    dtypes: Iterable[str] | None = None,
) -> Iterator[Case]:
    """Every bridge x direction x device x layout x dtype x stream."""
    names = _known(layouts, LAYOUTS, "layouts")
    kinds = [n for n in _known(dtypes, NAMES, "dtypes", DTYPES) if named_dtype(n) is not None]
    for bridge in bridges:
        for place in _places(devices):
            if place.partition(":")[0] not in bridge.devices:
                continue
            for direction in bridge.directions():
                for layout in names:
                    for dtype in kinds:
                        yield Case(bridge, direction, place, layout, dtype, "default")
                    if place != "cpu" and layout in ORDERED and "float32" in kinds:
                        yield Case(bridge, direction, place, layout, "float32", "side")


def _known(
    wanted: Iterable[str] | None,
    known: Iterable[str],
    what: str,
    default: Iterable[str] | None = None,
) -> list[str]:
    if wanted is None:
        return list(default or known)
    found = list(dict.fromkeys(wanted))
    for name in found:
        if name not in known:
            raise ArgumentTypeError(
                where="gpuinterop.testing",
                expected=f"{what} among {', '.join(known)}",
                got=repr(name),
                fix=f"pass some of these, or leave {what} out for all",
            )
    return found


def try_case(case: Case) -> Cell:
    """Run one case."""
    place = device(case.device)
    layout = LAYOUTS[case.layout]
    verdict: Verdict
    with place:
        if case.stream == "side":
            verdict = run_order(case.bridge, case.direction, layout, place.index)
        else:
            dtype = named_dtype(case.dtype)
            assert dtype is not None  # `cases` left such names out
            verdict = run(case.bridge, case.direction, layout, dtype, (place.type, place.index))
    return Cell(
        case.bridge.name, case.direction, case.device, case.layout, case.dtype, case.stream,
        verdict.outcome, verdict.forecast, verdict.reason, verdict.fix,
        tuple({"check": f.check, "expected": f.expected, "got": f.got} for f in verdict.faults),
    )  # fmt: skip


def about() -> dict[str, str]:
    """Where and when a run was made."""
    return {
        "gpuinterop": gi.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def matrix(
    libraries: Iterable[str | Bridge] | None = None,
    devices: Sequence[str] | None = None,
    *,
    layouts: Iterable[str] | None = None,
    dtypes: Iterable[str] | None = None,
) -> Matrix:
    """Try every conversion and return what came of it.

    Parameters
    ----------
    libraries : names, `Bridge` objects or "package.module:bridge"; by default all that are installed.
        They are imported.
    devices : by default the CPU and the first GPU.
    layouts, dtypes : names, by default all of the suite's.

    Examples
    --------
    >>> import gpuinterop.testing
    >>> m = gpuinterop.testing.matrix(["numpy"], ["cpu"], dtypes=["float32"])
    >>> m.ok, m.outcome(direction="to", layout="reversed")
    (True, 'shared')
    """
    bridges, rows = gather(libraries, devices)
    found = [try_case(case) for case in cases(bridges, devices, layouts, dtypes)]
    return Matrix(found, rows, _places(devices), about())
