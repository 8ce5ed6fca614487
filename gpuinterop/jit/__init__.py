"""Kernels from source code: the code generator, NVRTC, and the cache of compiled kernels."""

from .compiler import EXACT, compile_source, compiler_version, supported_archs
from .nvrtc import symbol_of
from .texts import kernel_text

__all__ = [
    "EXACT",
    "compile_source",
    "compiler_version",
    "kernel_text",
    "supported_archs",
    "symbol_of",
]
