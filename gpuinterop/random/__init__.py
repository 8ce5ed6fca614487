"""Random numbers that are the same on every device: ``default_rng(seed)`` returns a `Generator`, as NumPy's does.

The generator is Philox, which computes each number from its place in the sequence alone.
"""

from typing import Any

from .generator import Generator, default_rng, missing_function
from .philox import Philox

__all__ = ["Generator", "Philox", "default_rng"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    raise missing_function("gpuinterop.random", name)
