"""``gpuinterop demo``: one array shared with every library that is installed, on the default device.

Ends with a table of the outcomes: shared, copied or refused. For each shared array the demo writes on
one side and reads on the other. The exit code is 0 if all of these reads see the writes and no library
failed. The error of a library that fails is a line of the table; the demo continues with the others.
``--json`` prints the table and the refusals as JSON of the schema "gpuinterop.demo/1".
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import gpuinterop as gi
from gpuinterop import converters
from gpuinterop.cli import STRICT, words_of
from gpuinterop.converters import availability, registry
from gpuinterop.installed_libraries import version_of

# Layouts that libraries disagree about.
VIEWS: dict[str, Callable[[Any], Any]] = {
    "x": lambda x: x,
    "x.T": lambda x: x.T,
    "x[:, ::2]": lambda x: x[:, ::2],
    "x[:, ::-1]": lambda x: x[:, ::-1],
}
PLAIN = "x"

# Their arrays only describe memory, so they cannot read or write elements.
DESCRIBE_ONLY = ("cuda_core", "tvm_ffi")
IMMUTABLE = ("jax",)

# Outcomes that break a promise.
BAD = ("BROKEN", "WRONG", "FAILED")


@dataclass
class Library:
    """A library, how to convert to it, and what happened."""

    name: str
    package: str
    converter: str = ""  # where it is not the name
    cells: dict[str, str] = field(default_factory=dict)  # a word for each of VIEWS
    refusal: tuple[str, gi.GpuInteropError] | None = None  # the first view refused, and why
    story: str = ""  # what was seen of one memory
    copy: str = ""  # what copyif=True made of the first view refused
    failure: str = ""  # the first error that was no refusal

    def convert(self, x: Any, copyif: bool = False) -> Any:
        return gi.to(x, library=self.converter or self.name, copyif=copyif)

    def version(self) -> str:
        if self.package == "builtins":
            return platform.python_version()
        return version_of(self.package)

    def refuse(self, view: str, error: gi.GpuInteropError) -> None:
        self.cells[view] = "refused"
        if self.refusal is None and view != PLAIN:
            self.refusal = view, error

    def fail(self, view: str, error: Exception) -> None:
        self.cells[view] = "FAILED"
        words = str(error).strip().partition("\n")[0]
        self.failure = self.failure or f"{type(error).__name__}: {words}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which device, which libraries."""
    parser.epilog = (
        "exit code: 0 all shared arrays were seen to share memory; 1 one was not, or a library failed; "
        "2 an\nargument is wrong\n\nexample: gpuinterop demo --only numpy,torch --device cpu\n"
    )
    parser.add_argument("--device", help="instead of the default device")
    parser.add_argument("--only", metavar="LIBRARY,...", help="these libraries only")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; return 1 if a promise was broken or a library failed."""
    # JAX would take three quarters of the GPU's memory at its first use and starve the others.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # Libraries warn that arrays of twelve elements do not fill a GPU.
    warnings.simplefilter("ignore")
    device = gi.device(arguments.device) if arguments.device else gi.default_device()
    here, left_out = libraries(device, chosen(arguments.only))
    tell = _nothing if arguments.json else print

    tell(f"gpuinterop {gi.__version__} on {device}")
    tell("\n1. One memory: write on one side, read on the other")
    for library in here:
        library.story = share(library, device)
        tell(f"   {library.name:16} {library.story}")

    tell("\n2. A strided view is shared with those who can hold it, and refused to the others")
    for library in here:
        if library.cells:  # it could be imported
            for view in list(VIEWS)[1:]:
                offer(library, view, device)
    ok = not any(word in BAD for library in here for word in library.cells.values())
    if arguments.json:
        print(json.dumps(data(here, left_out, device, ok), indent=1))
        return int(not ok)
    show_refusal(here)

    print("\n3. What was shared, refused, and copied with copyif=True\n")
    print(table(here))
    for why in dict.fromkeys(left_out.values()):
        print(f"   {why}: {', '.join(name for name in left_out if left_out[name] == why)}")
    return int(not ok)


def _nothing(*words: object) -> None:
    """Print nothing, in place of the text that is not part of the JSON."""


ABSENT = "not installed"


def chosen(only: str | None) -> list[str] | None:
    """Return the registered names of the libraries in ``--only``; None for all."""
    words = words_of(only, "--only")
    return words and [registry.backend(word, "--only").name for word in words]


def libraries(device: Any, only: list[str] | None) -> tuple[list[Library], dict[str, str]]:
    """Return the installed libraries with arrays on `device`, and why others are omitted."""
    here: list[Library] = []
    left_out: dict[str, str] = {}
    installs: list[str] = []
    for row in converters.backends():
        if only and row.name not in only:
            continue
        # NumPy is always installed, so on a GPU it shows a download: refused, or a copy.
        fits = device.type in row.devices or row.name == "numpy"
        package, converter = row.package, ""
        if row.name == "array_api":
            # The converter serves many libraries; every test run has this one.
            package = converter = STRICT
            fits = device.type == "cpu"
        install = availability.how_to_install(row, package)
        if not availability.installed(package):
            left_out[row.name] = ABSENT
            installs += [install] * fits
        elif not fits:
            left_out[row.name] = f"no arrays on {device.type}"
        else:
            here.append(Library(row.name, package, converter))
    if only and not here:
        raise gi.ConversionTypeError(
            where="gpuinterop demo", expected=f"a library that is installed and has arrays on {device}",
            got=", ".join(f"{name} ({why})" for name, why in left_out.items()),
            fix="; ".join(installs) or "omit --only, or pass another --device",
        )  # fmt: skip
    return here, left_out


# ---- one memory ---------------------------------------------------------------------------------


def fresh(device: Any) -> Any:
    """Return a new array, 3 x 4, of different values."""
    return gi.CudaNdarray(np.arange(12, dtype=np.float32).reshape(3, 4), device=device)


def share(library: Library, device: Any) -> str:
    """Write on each side and read on the other; describe the result."""
    x = fresh(device)
    try:
        other = library.convert(x)
        seen = observe(library, x, other)
    except gi.MissingLibraryError as error:
        library.failure = f"{error.got}\n      fix: {error.fix}"
        return f"left out: {error.got.splitlines()[0]}"
    except gi.GpuInteropError as error:
        library.refuse(PLAIN, error)
        offer(library, PLAIN, device)
        return f"{library.cells[PLAIN]}: {error.expected}"
    except Exception as error:  # whatever a foreign library may raise
        library.fail(PLAIN, error)
        return f"FAILED: {library.failure}"
    library.cells[PLAIN] = "shared" if all(ok for _, ok in seen) else "BROKEN"
    return ", ".join(words if ok else f"NOT: {words}" for words, ok in seen)


def observe(library: Library, x: Any, other: Any) -> list[tuple[str, bool]]:
    """Return whether each side sees the other's writes, with a description."""
    seen = []
    if library.name not in DESCRIBE_ONLY:
        x[1, 2] = 100.0
        gi.synchronize()
        seen.append(("our write seen there", read(other) == 100.0))
    if library.name not in (*DESCRIBE_ONLY, *IMMUTABLE):
        write(other, 200.0)
        gi.synchronize()
        seen.append(("its write seen here", x[1, 2].item() == 200.0))
    back = gi.from_any(other)
    seen.append(("same address on the way back", back.ptr == x.ptr))
    return seen


def read(other: Any) -> float:
    """Read element [1, 2] with the library."""
    element = other[1, 2]
    # PyCUDA's element is an array without dimensions, which is no number.
    return float(element.get() if hasattr(element, "get") else element)


def write(other: Any, value: float) -> None:
    """Set element [1, 2] with the library."""
    # PyCUDA assigns arrays only.
    pycuda = type(other).__module__.partition(".")[0] == "pycuda"
    other[1, 2] = np.array(value, np.float32) if pycuda else value


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
        other = library.convert(x)
        library.cells[view] = "shared"
    except gi.GpuInteropError as error:
        library.refuse(view, error)
        try:
            with gi.count_copies() as copies:
                other = library.convert(x, copyif=True)
        except gi.GpuInteropError:
            return
        library.cells[view] = "refused, copied"
        if not library.copy and view != PLAIN:
            library.copy = f"a copy of {copies.bytes} bytes, with the same elements: {kind(other)}"
    if not np.array_equal(np.asarray(gi.from_any(other)), np.asarray(x)):
        library.cells[view] = "WRONG"


def kind(other: Any) -> str:
    """Return the class of a library's array, as its users write it."""
    cls = type(other)
    root = cls.__module__.partition(".")[0]
    return cls.__qualname__ if root == "builtins" else f"{root}.{cls.__qualname__}"


def show_refusal(here: list[Library]) -> None:
    """Print one refusal in full, then the outcome with copyif=True."""
    for library in here:
        if library.refusal is not None:
            view, error = library.refusal
            name = library.converter or library.name
            show(f"gpuinterop.to({view}, {name!r})", error)
            print(f"   >>> gpuinterop.to({view}, {name!r}, copyif=True)")
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
    lines += [[lib.name, lib.version(), *(lib.cells.get(v, "-") for v in VIEWS)] for lib in here]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    lines.insert(1, ["-" * width for width in widths])
    words = [word for lib in here for cell in lib.cells.values() for word in cell.split(", ")]
    totals = ", ".join(f"{words.count(word)} {word}" for word in ("shared", "refused", "copied"))
    rows = ["  ".join(map(str.ljust, line, widths)) for line in lines]
    failures = [f"{lib.name} failed: {lib.failure}" for lib in here if lib.failure]
    return "\n".join(f"   {row}".rstrip() for row in [*rows, "", totals, *failures])


def data(here: list[Library], left_out: dict[str, str], device: Any, ok: bool) -> dict[str, Any]:
    """Return the outcome for ``--json``."""
    rows = []
    for lib in here:
        view, error = lib.refusal or ("", None)
        rows.append(
            {
                "name": lib.name, "version": lib.version(), "one_memory": lib.story,
                "outcomes": lib.cells, "refused_view": view,
                "expected": error.expected if error else "", "got": error.got if error else "",
                "fix": error.fix if error else "", "failure": lib.failure,
            }
        )  # fmt: skip
    return {
        "schema": "gpuinterop.demo/1", "gpuinterop": gi.__version__, "device": str(device), "ok": ok,
        "libraries": rows, "left_out": left_out,
        "not_installed": [name for name, why in left_out.items() if why == ABSENT],
    }  # fmt: skip
