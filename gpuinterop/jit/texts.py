"""Texts of kernels, and how they make a program."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=64)
def kernel_text(name: str) -> str:
    """Return the source code in <folder>/kernels/<file>, where `name` is "folder/file"; without a folder, of jit."""
    folder, _, file = name.rpartition("/")
    path = Path(__file__).parents[1] / (folder or "jit") / "kernels" / file
    return path.read_text(encoding="utf-8")


# Namespace of all generated code, so that a user's functions and types may have any names.
NAMESPACE = "gpuinterop_kernel"


def nan_signs(*statements: str) -> int:
    """Return 1 if the statements read the signs of NaNs, which conversions of float16 then keep."""
    reads = any(f"{name}(" in text for text in statements for name in ("signbit", "copysign"))
    return int(reads)


def program(definitions: Mapping[str, object], *parts: str) -> str:
    """Return a program: macros GI_<name>, the element types, and the parts, in the namespace of generated code."""
    return "\n".join([
        *(f"#define GI_{name} {value}" for name, value in definitions.items()),
        kernel_text("device.cuh"),
        f"namespace {NAMESPACE} {{",
        *map(kernel_text, ("rounding.cuh", "integers.cuh", "prelude.cuh")),
        *parts,
        "}\n",
    ])  # fmt: skip
