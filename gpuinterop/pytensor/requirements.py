"""Refuses a Python that has no PyTensor, before the import of another module fails with a less clear error."""

import sys
from importlib.util import find_spec

from gpuinterop.errors import MissingLibraryError

LOWEST = "3.12"  # of the releases of PyTensor that pyproject.toml admits
if sys.version_info < tuple(map(int, LOWEST.split("."))):
    raise MissingLibraryError(
        where="gpuinterop.pytensor",
        expected=f"Python {LOWEST} or later, which PyTensor needs",
        got=f"Python {sys.version.split()[0]}",
        fix=f"install gpuinterop[pytensor] in an environment with Python {LOWEST} or later",
    )
if find_spec("pytensor") is None:
    raise MissingLibraryError(
        where="gpuinterop.pytensor",
        expected="the package pytensor",
        got="pytensor is not installed",
        fix="pip install 'gpuinterop[pytensor]'",
    )
