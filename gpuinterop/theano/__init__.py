"""Theano's names for old programs: ``gpuinterop run script.py``, or `install` before the imports."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping

__all__ = ["install"]


def install(environment: Mapping[str, str] | None = None, *, replace: bool = False) -> None:
    """Make `import theano` find PyTensor and gpuinterop under Theano's names.

    Reads THEANO_FLAGS and .theanorc. A `theano` package that is installed is used instead, unless `replace`.
    """
    if (
        not replace
        and "theano" not in sys.modules
        and importlib.util.find_spec("theano") is not None
    ):
        return
    from .configuration import Configuration
    from .flags import read_flags
    from .modules import modules

    sys.modules.update(modules(Configuration(read_flags(environment))))
