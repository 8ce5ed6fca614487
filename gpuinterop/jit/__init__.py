"""Kernels: text from the operator table, NVRTC, and the caches in front of it."""

from .compiler import (
    EXACT,
    clear_cache,
    compile_source,
    compiler_version,
    kernel_text,
    supported_archs,
)
from .symbols import symbol_of

__all__ = [
    "EXACT",
    "clear_cache",
    "compile_source",
    "compiler_version",
    "kernel_text",
    "supported_archs",
    "symbol_of",
]
