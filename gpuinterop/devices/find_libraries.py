"""Finds NVRTC, cuBLAS, cuSOLVER and cuFFT: in a wheel, in a CUDA toolkit, or already loaded.

cuda-pathfinder searches; it is imported on the first search. The variables GPUINTEROP_LIBNVRTC,
GPUINTEROP_LIBCUBLAS, GPUINTEROP_LIBCUBLASLT, GPUINTEROP_LIBCUSOLVER and GPUINTEROP_LIBCUFFT name a file to load
instead.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import NamedTuple

from gpuinterop.errors import LibraryNotFoundError

NAMES = ("nvrtc", "cublas", "cusolver", "cufft")  # shown in reports; cuBLASLt comes with cuBLAS
MISSING = "missing: "  # how a description of a library that was not found begins
_TITLES = {
    "nvrtc": "NVRTC, the CUDA compiler",
    "cublas": "cuBLAS",
    "cublasLt": "cuBLASLt, a part of cuBLAS",
    "cusolver": "cuSOLVER",
    "cufft": "cuFFT",
}
# The first words of the package's extra that installs it.
EXTRAS = {"cusolver": "linalg-", "cufft": "fft-"}
_FIX = (
    'pip install "gpuinterop[{extra}cu13]" (or "gpuinterop[{extra}cu12]" for a CUDA 12 driver), install a CUDA '
    "toolkit, or set {variable} to the file"
)


class Library(NamedTuple):
    """A shared library that has been loaded into the process."""

    name: str
    path: str
    found_via: str
    handle: int  # of dlopen


_found: dict[str, Library] = {}
_lock = threading.Lock()


def find(name: str) -> Library:
    """Load and return the library of a name of `_TITLES`; it is never unloaded.

    Raises
    ------
    LibraryNotFoundError
        Lists every path that was searched.
    """
    library = _found.get(name)
    if library is None:
        with _lock:
            library = _found.get(name) or _search(name)
            _found[name] = library
    return library


def decided_by(name: str) -> str:
    """Return the settings on which the result of `find` depends, without a search."""
    override = os.environ.get(_variable(name))
    # The paths that cuda-pathfinder searches.
    searched = (os.environ.get(v, "") for v in ("CUDA_PATH", "CUDA_HOME", "LD_LIBRARY_PATH"))
    return override or "\n".join((sys.prefix, *searched)).rstrip("\n")


def _variable(name: str) -> str:
    return f"GPUINTEROP_LIB{name.upper()}"


def describe(name: str) -> str:
    """Return the library's path and how it was found, or the first line of the error."""
    try:
        library = find(name)
    except LibraryNotFoundError as error:
        return MISSING + (error.got.partition("\n")[0] or "not found")
    return f"{library.path} ({library.found_via})"


def _search(name: str) -> Library:
    variable = _variable(name)
    override = os.environ.get(variable)
    if override:
        try:
            handle = ctypes.CDLL(override)._handle
        except (
            OSError,
            UnicodeError,
        ) as error:  # UnicodeError: the loader's message has the path's bytes
            raise _missing(name, f"{variable}={override}: {error}") from None
        return Library(name, override, variable, handle)
    try:
        from cuda import pathfinder  # noqa: PLC0415
    except ImportError as error:
        raise _missing(name, f"cuda-pathfinder, which would search for it: {error}") from None
    try:
        loaded = pathfinder.load_nvidia_dynamic_lib(name)
    except (pathfinder.DynamicLibNotFoundError, OSError, RuntimeError) as error:
        # Its message lists each path: wheels, conda, CUDA_PATH, the system's search path.
        raise _missing(name, str(error)) from error
    path = loaded.abs_path or name
    return Library(name, path, loaded.found_via, int(loaded._handle_uint))


def _missing(name: str, tried: str) -> LibraryNotFoundError:
    return LibraryNotFoundError(
        where=f"lib{name}",
        expected=f"{_TITLES[name]} (lib{name}.so)",
        got=tried.strip(),
        fix=_FIX.format(variable=_variable(name), extra=EXTRAS.get(name, "")),
    )
