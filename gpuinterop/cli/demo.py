"""``gpuinterop demo``: one array shared with every library that is installed, on the default device.

Ends with a table of the outcomes: shared, copied or refused. For each shared array the demo writes on
one side and reads on the other, by the bridges of the compatibility suite. The exit code is 0 if all of
these reads see the writes and no library failed. The error of a library that fails is a line of the
table; the demo continues with the others.
``--json`` prints the table and the refusals as JSON of the schema "gpuinterop.demo/1".
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import gpuinterop as gi
from gpuinterop.cli import words_of
from gpuinterop.testing import Bridge, peers
from gpuinterop.testing.suite import gather, named
from gpuinterop.testing.verdict import alike

# Layouts that some libraries share and others do not.
VIEWS: dict[str, Callable[[Any], Any]] = {
    "x": lambda x: x,
    "x.T": lambda x: x.T,
    "x[:, ::2]": lambda x: x[:, ::2],
    "x[:, ::-1]": lambda x: x[:, ::-1],
}
PLAIN = "x"

# Outcomes that break a promise.
BAD = ("BROKEN", "WRONG", "FAILED")
ABSENT = "not installed"


@dataclass
class Library:
    """A library, and the outcomes of its conversions."""

    bridge: Bridge
    cells: dict[str, str] = field(default_factory=dict)  # a word for each of VIEWS
    refusal: tuple[str, gi.GpuInteropError] | None = None  # the first view refused, and why
    story: str = ""  # the observations of one memory
    copy: str = ""  # the result of copyif=True for the first view refused
    failure: str = ""  # the first error that was not a refusal

    @property
    def name(self) -> str:
        return self.bridge.name

    def refuse(self, view: str, error: gi.GpuInteropError) -> None:
        self.cells[view] = "refused"
        if self.refusal is None and view != PLAIN:
            self.refusal = view, error

    def fail(self, view: str, error: Exception) -> None:
        self.cells[view] = "FAILED"
        words = str(error).strip().partition("\n")[0]
        self.failure = self.failure or f"{type(error).__name__}: {words}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the device and the libraries."""
    parser.epilog = (
        "exit code: 0 all shared arrays share memory; 1 one does not, or a library failed; "
        "2 an\nargument is wrong\n\nexample: gpuinterop demo --only numpy,torch --device cpu\n"
    )
    parser.add_argument("--device", help="instead of the default device")
    parser.add_argument("--only", metavar="LIBRARY,...", help="only these libraries")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; return 1 if a promise was broken or a library failed."""
    # JAX would take three quarters of the GPU's memory at its first use and starve the others.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # Libraries warn that arrays of twelve elements do not fill a GPU.
    warnings.simplefilter("ignore")
    device = gi.device(arguments.device) if arguments.device else gi.default_device()
    words = words_of(arguments.only, "--only")
    here, left_out, broken = libraries(device, None if words is None else named(words, "--only"))
    tell = _nothing if arguments.json else print

    tell(f"gpuinterop {gi.__version__} on {device}")
    tell("\n1. One memory: write on one side, read on the other")
    for library in here:
        library.story = share(library, device)
        tell(f"   {library.name:16} {library.story}")

    tell(
        "\n2. A strided view is shared with the libraries that can hold it, and refused for the others"
    )
    for library in here:
        for view in list(VIEWS)[1:]:
            offer(library, view, device)
    ok = not any(word in BAD for library in here for word in library.cells.values())
    if arguments.json:
        print(json.dumps(data(here, left_out, broken, device, ok), indent=1))
        return int(not ok)
    show_refusal(here)

    print("\n3. What was shared, refused, and copied with copyif=True\n")
    print(table(here))
    for why in dict.fromkeys(left_out.values()):
        print(f"   {why}: {', '.join(name for name in left_out if left_out[name] == why)}")
    return int(not ok)


def _nothing(*words: object) -> None:
    """Print nothing, in place of the text that is not part of the JSON."""


def libraries(
    device: Any, only: list[str] | None
) -> tuple[list[Library], dict[str, str], dict[str, str]]:
    """Return the installed libraries with arrays on `device`, why others are omitted, and broken ones."""
    # NumPy is always installed, so on a GPU it shows a download: refused, or a copy.
    numpy = replace(peers.numpy_bridge(), devices=("cpu", "cuda"), version=np.__version__)
    wanted = [numpy if name == "numpy" else name for name in only or peers.names()]
    bridges, rows = gather(wanted, [str(device)])
    left_out = {row.name: row.why for row in rows if row.why}
    broken = {row.name: row.why for row in rows if row.broken}
    if not bridges:
        raise gi.ConversionTypeError(
            where="gpuinterop demo", expected=f"a library that is installed and has arrays on {device}",
            got=", ".join(f"{name} ({why})" for name, why in left_out.items()),
            fix="omit --only, or pass another --device",
        )  # fmt: skip
    return [Library(bridge) for bridge in bridges], left_out, broken


# ---- one memory ---------------------------------------------------------------------------------


def fresh(device: Any) -> Any:
    """Return a new array, 3 x 4, of different values."""
    return gi.CudaNdarray(np.arange(12, dtype=np.float32).reshape(3, 4), device=device)


def share(library: Library, device: Any) -> str:
    """Write on each side and read on the other; describe the result."""
    x = fresh(device)
    try:
        other = library.bridge.convert_to(x, False)
        seen = observe(library.bridge, x, other)
    except gi.GpuInteropError as error:
        library.refuse(PLAIN, error)
        offer(library, PLAIN, device)
        word = library.cells[PLAIN]
        refused_write = ", and a write by gpuinterop raises" if word == "shared" else ""
        return f"{word}{refused_write}: expected {error.expected}"
    except Exception as error:  # whatever a foreign library may raise
        library.fail(PLAIN, error)
        return f"FAILED: {library.failure}"
    library.cells[PLAIN] = "shared" if all(ok for _, ok in seen) else "BROKEN"
    return ", ".join(words if ok else f"NOT: {words}" for words, ok in seen)


def observe(bridge: Bridge, x: Any, other: Any) -> list[tuple[str, bool]]:
    """Return whether each side sees the other's writes, with a description."""
    x[1, 2] = 100.0
    gi.synchronize()
    seen = [("write by gpuinterop seen", alike(np.asarray(bridge.values(other)), np.asarray(x)))]
    if bridge.write is not None:
        bridge.write(other, (1, 2), 200.0)
        gi.synchronize()
        seen.append(("write by the library seen", x[1, 2].item() == 200.0))
    back = gi.from_any(other)
    seen.append(("same address on the way back", back.ptr == x.ptr))
    return seen


def offer(library: Library, view: str, device: Any) -> None:
    """Try to share a view, then to copy it; compare the values."""
    try:
        compare(library, view, device)
    except Exception as error:  # whatever a foreign library may raise
        library.fail(view, error)


def compare(library: Library, view: str, device: Any) -> None:
    """Do the work of `offer`, without handling errors of the library."""
    x = VIEWS[view](fresh(device))
    try:
        other = library.bridge.convert_to(x, False)
        library.cells[view] = "shared"
    except gi.GpuInteropError as error:
        library.refuse(view, error)
        try:
            with gi.count_copies() as copies:
                other = library.bridge.convert_to(x, True)
        except gi.GpuInteropError:
            return
        library.cells[view] = "refused, copied"
        if not library.copy and view != PLAIN:
            cls = type(other)
            kind = f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")
            library.copy = f"a copy of {copies.bytes} bytes, with the same elements: {kind}"
    if not alike(library.bridge.values(other), np.asarray(x)):
        library.cells[view] = "WRONG"


def show_refusal(here: list[Library]) -> None:
    """Print one refusal in full, then the outcome with copyif=True."""
    for library in here:
        if library.refusal is not None:
            view, error = library.refusal
            show(f"gpuinterop.to({view}, {library.name!r})", error)
            print(f"   >>> gpuinterop.to({view}, {library.name!r}, copyif=True)")
            print(f"   {library.copy or 'also refused: a copy does not help'}")
            return
    # These libraries accept all views. No library can share strides that are not multiples of the itemsize.
    packed = np.zeros(3, [("tag", "u1"), ("value", "f4")])["value"]
    try:
        gi.from_any(packed)
    except gi.GpuInteropError as error:
        show(
            "gpuinterop.from_any(numpy.zeros(3, [('tag', 'u1'), ('value', 'f4')])['value'])", error
        )
    print(f"   >>> gpuinterop.from_any(..., copyif=True)\n   {gi.from_any(packed, copyif=True)!r}")


def show(call: str, error: gi.GpuInteropError) -> None:
    """Print a call and its error, indented."""
    print(f"   >>> {call}")
    print(f"   {type(error).__name__}:", str(error).replace("\n", "\n   "))


# ---- the outcome ---------------------------------------------------------------------------------


def table(here: list[Library]) -> str:
    """Return a table with a row for each library, a column for each layout, and totals."""
    lines = [["library", "version", *VIEWS]]
    lines += [[lib.name, lib.bridge.version, *(lib.cells[view] for view in VIEWS)] for lib in here]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    lines.insert(1, ["-" * width for width in widths])
    words = [word for lib in here for cell in lib.cells.values() for word in cell.split(", ")]
    totals = ", ".join(f"{words.count(word)} {word}" for word in ("shared", "refused", "copied"))
    rows = ["  ".join(map(str.ljust, line, widths)) for line in lines]
    failures = [f"{lib.name} failed: {lib.failure}" for lib in here if lib.failure]
    return "\n".join(f"   {row}".rstrip() for row in [*rows, "", totals, *failures])


def data(
    here: list[Library], left_out: dict[str, str], broken: dict[str, str], device: Any, ok: bool
) -> dict[str, Any]:
    """Return the outcome for ``--json``."""
    rows = []
    for lib in here:
        view, error = lib.refusal or ("", None)
        words = {name: getattr(error, name, "") for name in ("expected", "got", "fix")}
        rows.append(
            {
                "name": lib.name, "version": lib.bridge.version, "one_memory": lib.story,
                "outcomes": lib.cells, "refused_view": view, **words, "failure": lib.failure,
            }
        )  # fmt: skip
    return {
        "schema": "gpuinterop.demo/1", "gpuinterop": gi.__version__, "device": str(device), "ok": ok,
        "libraries": rows, "left_out": left_out, "broken": broken,
        "not_installed": [name for name, why in left_out.items() if why == ABSENT],
    }  # fmt: skip
