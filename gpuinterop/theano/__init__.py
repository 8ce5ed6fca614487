"""Theano's names for old programs: ``gpuinterop run script.py``, or `install` before the imports."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Mapping

__all__ = ["install"]

# Beginnings of warnings that advise the author of a program to use PyTensor's newer names.
_ADVICE = (
    "Scan return signature will change", "RandomVariable Ops will stop hiding", ".* should implement `pullback`",
    r"(Setting )?\S+ is deprecated", "The `mode` argument of `scan` is deprecated",
    "Loop fusion failed because",  # of the arithmetic of shapes, which convolutions of unknown shapes have much of
)  # fmt: skip


def install(environment: Mapping[str, str] | None = None, *, replace: bool = False) -> None:
    """Make `import theano` find PyTensor and gpuinterop under Theano's names.

    Reads THEANO_FLAGS and .theanorc. A `theano` package that is installed is used instead, unless `replace`.
    """
    if not replace and _is_installed():
        return
    importlib.import_module("gpuinterop.pytensor")  # its error names what is missing
    from . import functions
    from .configuration import Configuration
    from .finder import Finder
    from .flags import read_flags
    from .modules import modules
    from .printing import install as print_as_theano

    for advice in _ADVICE:
        warnings.filterwarnings("ignore", advice)
    sys.modules.update(modules(Configuration(read_flags(environment))))
    print_as_theano()
    functions.install()
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.append(Finder())


def _is_installed() -> bool:
    """Return whether the real Theano is there, and not gpuinterop's names or a folder without __init__.py."""
    present = sys.modules.get("theano")
    if getattr(present, "__gpuinterop__", False):
        return False
    spec = present.__spec__ if present else importlib.util.find_spec("theano")
    return bool(spec.origin if spec else present)
