"""List the cases of a run, and run them."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from gpuinterop._version import __version__
from gpuinterop.arrays.dtypes import NAMES
from gpuinterop.devices import device
from gpuinterop.devices import devices as all_devices
from gpuinterop.errors import ArgumentTypeError, ConversionTypeError, short_repr
from gpuinterop.exchange import registry
from gpuinterop.testing import peers
from gpuinterop.testing.bridge import Bridge
from gpuinterop.testing.layouts import DTYPES, LAYOUTS, named_dtype
from gpuinterop.testing.matrix_table import Cell, Library, Matrix
from gpuinterop.testing.run_case import Case, run
from gpuinterop.testing.stream_order import run_order

# Layouts for which the stream order is checked: one that all libraries share, and one that some do not.
ORDERED = ("C", "sliced")
Progress = Callable[[list[Any]], Iterable[Any]]


def named(words: Iterable[str], where: str) -> list[str]:
    """Return the names of the libraries that a user wrote in the option `where`."""
    return [word if ":" in word else registry.backend(word, where).name for word in words]


def bridges_named(words: Iterable[str]) -> list[str]:
    """Return specs of bridges as "package.module:name"; the default name is "bridge"."""
    return [word if ":" in word else f"{word}:bridge" for word in words]


def bridge_at(spec: str) -> Bridge:
    """Return the bridge at "package.module:name", or the bridge that a function there returns."""
    place, _, name = spec.partition(":")
    try:
        found = getattr(import_module(place), name or "bridge")
        found = found() if callable(found) else found
        got = f"{type(found).__name__} at {spec!r}"
    except Exception as error:  # of the import, of the module's function, or no such name
        found, got = None, f"{type(error).__name__}: {error}"
    if isinstance(found, Bridge):
        return found
    raise ConversionTypeError(
        where="gpuinterop.testing",
        expected=f'a Bridge, or a function without arguments that returns one, at "{spec}"',
        got=got,
        fix='write "package.module:name", and add the module\'s folder to PYTHONPATH',
    )


def gather(
    libraries: Iterable[str | Bridge] | None = None, devices: Sequence[str] | None = None,
    progress: Progress = iter,
) -> tuple[list[Bridge], list[Library]]:  # fmt: skip
    """Return the bridges to try, and all libraries, with the reason if a library is not tried."""
    places = _places(devices)
    bridges: list[Bridge] = []
    rows: list[Library] = []
    for entry in progress(_once(peers.names() if libraries is None else libraries)):
        bridge, why, broken = _load(entry, places)
        if bridge is not None and not bridge.directions():
            raise ArgumentTypeError(
                where="gpuinterop.testing",
                expected="a Bridge with something to try: to=, or make= with from_=, or a name "
                f"among {', '.join(registry.names())}",
                got=f"Bridge({bridge.name!r}) with none of them",
                fix="pass the converter's functions, or correct the name",
            )
        if bridge is None:
            rows.append(Library(str(entry), why=why, broken=broken))
        elif not any(place.partition(":")[0] in bridge.devices for place in places):
            rows.append(Library(bridge.name, bridge.version, f"no arrays on {', '.join(places)}"))
        else:
            bridges.append(bridge)
            rows.append(Library(bridge.name, bridge.version))
    return bridges, rows


def _load(entry: str | Bridge, places: list[str]) -> tuple[Bridge | None, str, bool]:
    """Return the bridge of a library, or the reason why there is none and whether it is broken."""
    if isinstance(entry, Bridge):
        return entry, "", False
    if entry not in peers.names():
        if isinstance(entry, str) and ":" in entry:  # type: ignore[redundant-expr]
            return bridge_at(entry), "", False
        registry.backend(entry, "gpuinterop.testing")  # raises for an unknown name
    try:
        if not {place.partition(":")[0] for place in places} & {*registry.backend(entry).devices}:
            return None, f"no arrays on {', '.join(places)}", False
        if not peers.installed(entry):
            return None, "not installed", False
        found = peers.load(entry)
    except Exception as error:  # the table shows a broken installation
        why = getattr(error, "got", f"its import fails: {type(error).__name__}: {error}")
        return None, why.strip().partition("\n")[0], True
    return found, "no bridge for the suite: its converter has no testing_bridge", False


def _once(entries: Iterable[str | Bridge]) -> list[str | Bridge]:
    """Return the entries without duplicates."""
    return [*{entry if isinstance(entry, str) else id(entry): entry for entry in entries}.values()]


def _in_list(given: Any) -> Any:
    """Return a lone name in a list, because a string would be read letter by letter."""
    return [given] if isinstance(given, (str, Bridge)) else given


def _places(devices: Sequence[str] | None) -> list[str]:
    """Return the devices to try, by default the CPU and the first GPU."""
    if devices is not None:
        return list(dict.fromkeys(str(device(name)) for name in devices))
    return [str(place) for place in all_devices()[:2]]


def cases(
    bridges: Iterable[Bridge],
    devices: Sequence[str] | None = None,
    layouts: Iterable[str] | None = None,
    dtypes: Iterable[str] | None = None,
) -> Iterator[Case]:
    """Yield all combinations of bridge, direction, device, layout, dtype and stream."""
    chosen = [LAYOUTS[name] for name in _known(layouts, LAYOUTS, "layouts")]
    found = map(named_dtype, _known(dtypes, NAMES, "dtypes", DTYPES))
    kinds = [kind for kind in found if kind is not None]
    for bridge in bridges:
        for place in map(device, _places(devices)):
            if place.type not in bridge.devices:
                continue
            for direction in bridge.directions():
                for layout in chosen:
                    few = layout.dtypes if dtypes is None else ()
                    for dtype in (kind for kind in kinds if not few or kind.name in few):
                        yield Case(bridge, direction, place, layout, dtype)
                    if place.type != "cpu" and layout.name in ORDERED and np.float32 in kinds:
                        yield Case(bridge, direction, place, layout, np.dtype("float32"), "side")


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
                got=short_repr(name),
                fix=f"pass some of these, or omit {what} for all",
            )
    return found


def try_case(case: Case) -> Cell:
    """Run one case."""
    with case.device:
        (run_order if case.stream == "side" else run)(case)
    if case.cell.faults:
        case.cell.outcome = "wrong"
    return case.cell


def about() -> dict[str, str]:
    """Return the versions, the machine and the date of a run."""
    return {
        "gpuinterop": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def matrix(
    libraries: str | Bridge | Iterable[str | Bridge] | None = None,
    devices: str | Sequence[str] | None = None,
    *,
    layouts: Iterable[str] | None = None,
    dtypes: Iterable[str] | None = None,
    progress: Progress = iter,
) -> Matrix:
    """Try every conversion and return the outcomes.

    Parameters
    ----------
    libraries : names, `Bridge` objects or "package.module:bridge"; by default all installed libraries.
        The suite imports them.
    devices : by default the CPU and the first GPU.
    layouts, dtypes : names, by default all of the suite's.
    progress : called with the list of libraries, then with the list of cases. It returns an iterator over them, and can
        show how far the run is, as `tqdm.tqdm` does.

    A single name needs no list.

    Examples
    --------
    >>> import gpuinterop.testing
    >>> m = gpuinterop.testing.matrix(["numpy"], ["cpu"], dtypes=["float32"])
    >>> m.ok, m.outcome(direction="to", layout="reversed")
    (True, 'shared')
    """
    places = _in_list(devices)
    bridges, rows = gather(_in_list(libraries), places, progress)
    chosen = list(cases(bridges, places, _in_list(layouts), _in_list(dtypes)))
    return Matrix([try_case(case) for case in progress(chosen)], rows, _places(places), about())
