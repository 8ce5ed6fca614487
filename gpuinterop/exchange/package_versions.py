"""Versions and CUDA majors of installed array libraries, from package metadata; imports none of them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Installed:
    """One installed distribution of an array library.

    `cuda` is the CUDA major that it was built for, 0 for a build without CUDA, None if unknown.
    `broken` describes a fault of the installation, or is "".
    """

    library: str  # "cupy"
    distribution: str  # "cupy-cuda13x"
    version: str
    cuda: int | None = None
    loaded: bool = False
    broken: str = ""


# Library -> (pattern of its distributions' names, module to look for).
_KNOWN: dict[str, tuple[str, str]] = {
    "numpy": ("numpy", "numpy"),
    "ml_dtypes": ("ml-dtypes", "ml_dtypes"),
    "torch": ("torch", "torch"),
    "cupy": (r"cupy(-cuda\d+x|-rocm-.*)?", "cupy"),
    "jax": ("jax", "jax"),
    "jax plugin": (r"jax-cuda\d+-plugin", ""),
    "numba": ("numba", "numba"),
    "numba-cuda": ("numba-cuda", "numba_cuda"),
    "pycuda": ("pycuda", "pycuda"),
    "cudamat": ("cudamat", "cudamat"),
    "gnumpy": ("gnumpy", "gnumpy"),
    "cuda.core": ("cuda-core", "cuda.core"),
    "cuda.bindings": ("cuda-bindings", "cuda.bindings"),
    "cuda-pathfinder": ("cuda-pathfinder", "cuda.pathfinder"),
    "tvm_ffi": ("apache-tvm-ffi", "tvm_ffi"),
    "warp": ("warp-lang", "warp"),
    "tensorflow": (r"tensorflow(-cpu|-gpu)?", "tensorflow"),
    "pyopencl": ("pyopencl", "pyopencl"),
    "triton": ("triton", "triton"),
    "pytensor": ("pytensor", "pytensor"),
    "nvrtc": (r"nvidia-cuda-nvrtc(-cu\d+)?", ""),
    "cublas": (r"nvidia-cublas(-cu\d+)?", ""),
}


_PORTED = (
    "put a gnumpy.py and an npmat.py that are ported to Python 3 on sys.path, because the gnumpy of PyPI "
    "is for Python 2"
)
# Packages that no index has for Python 3, with instructions.
BY_HAND = {"gnumpy": _PORTED, "npmat": _PORTED}


def how_to_repair(package: str, distribution: str = "") -> str:
    """Return the fix for a package that is installed but cannot be imported."""
    again = f"pip install --force-reinstall {distribution or package}"
    return BY_HAND.get(package) or f"repair it, or install it again: {again}"


def canonical(name: str) -> str:
    """Return the normalized name, as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    if package in sys.modules:
        return sys.modules[package] is not None
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # a parent package is missing, or a stub module has no spec
        return False
    # Without an origin it is a bare folder of that name.
    return spec is not None and spec.origin is not None


def version_of(package: str) -> str:
    """Return the installed version without importing the package."""
    found = importlib.metadata.packages_distributions().get(package.partition(".")[0], [])
    # Several distributions can share a namespace package, as cuda-core provides cuda.core.
    own = [name for name in found if canonical(name) == canonical(package)]
    chosen = own or ([] if "." in package else found)
    return importlib.metadata.version(chosen[0]) if chosen else ""


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: "2.11.0+cu130" is (2, 11, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else ()


def scan(distributions: Iterable[Any] | None = None) -> list[Installed]:
    """Return the installed libraries of the table above; one entry for each distribution."""
    found: dict[str, list[Installed]] = {library: [] for library in _KNOWN}
    seen: set[str] = set()
    for distribution in (
        importlib.metadata.distributions() if distributions is None else distributions
    ):
        name = _metadata(distribution, "Name")
        if not name or canonical(name) in seen:
            # Python imports the first on the path. Without a name it is the remains of a package.
            continue
        seen.add(canonical(name))
        for library, (pattern, module) in _KNOWN.items():
            if re.fullmatch(pattern, canonical(name)):
                found[library].append(_describe(library, name, module, distribution))
    return [row for rows in found.values() for row in rows]


def _metadata(distribution: Any, key: str) -> str:
    try:
        metadata = distribution.metadata
        return str(metadata[key] or "") if metadata is not None else ""
    except (KeyError, OSError, ValueError, TypeError, AttributeError):
        # Unreadable or damaged files: report the rest.
        return ""


def _describe(library: str, name: str, module: str, distribution: Any) -> Installed:
    version = _metadata(distribution, "Version")
    broken = "" if version else "its metadata has no version"
    if module and not broken and not installed(module):
        broken = f"the package is installed, but its module {module} is missing"
    return Installed(
        library, name, version, _cuda(library, canonical(name), version, distribution),
        module in sys.modules, broken,
    )  # fmt: skip


def _cuda(library: str, name: str, version: str, distribution: Any) -> int | None:
    """Return the CUDA major that a distribution was built for, None if unknown."""
    in_name = re.search(r"(?:-cu|-cuda)(\d\d)", name)
    if in_name:
        return int(in_name.group(1))
    if library in ("cuda.bindings", "nvrtc", "cublas"):
        return (numbers(version) or (None,))[0]
    if library == "torch":
        return _cuda_of_torch(version, distribution)
    return None


def _cuda_of_torch(version: str, distribution: Any) -> int | None:
    local = version.partition("+")[2]
    if local == "cpu":
        return 0
    if re.fullmatch(r"cu\d{3}", local):
        return int(local[2:4])
    try:
        text = distribution.read_text("../torch/version.py") or ""
    except (OSError, ValueError, AttributeError):
        text = ""
    found = re.search(r"^cuda\b[^=]*=\s*(?:'(\d+)|(None))", text, re.MULTILINE)
    if found:
        return int(found.group(1)) if found.group(1) else 0
    return None
