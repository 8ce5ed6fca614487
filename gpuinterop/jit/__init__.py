"""Kernels from source code: the code generator, NVRTC, and the cache of compiled kernels."""

from .compiler import (
    EXACT,
    clear_cache,
    compile_source,
    compiler_version,
    kernel_text,
    supported_archs,
)
from .nvrtc import symbol_of

__all__ = [
    "EXACT",
    "clear_cache",
    "compile_source",
    "compiler_version",
    "kernel_text",
    "supported_archs",
    "symbol_of",
]
