"""Random numbers that are the same on every device: ``default_rng(seed)`` returns a `Generator`, as NumPy's does.

The generator is Philox, which computes each number from its place in the sequence alone.
"""

from .generator import Generator, default_rng
from .philox import Philox

__all__ = ["Generator", "Philox", "default_rng"]
