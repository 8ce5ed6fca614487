"""Calls a function once another library is imported, for libraries whose tables a program must enter by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any


def after_import(name: str, function: Callable[[], None]) -> None:
    """Call the function now if the module `name` is loaded, else after its import."""
    if name in sys.modules:
        import_module(name)  # waits while another thread imports it
        function()
    else:
        sys.meta_path.insert(0, _AfterImport(name, function))


class _AfterImport:
    """A finder that calls a function after the import of a module."""

    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self.name, self.function = name, function

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec that later finders have for the module, with a loader that calls the function."""
        # A wrapper that stands in its place in the list would find this finder again.
        if name != self.name or self not in sys.meta_path:
            return None
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found: Any = (finder.find_spec(name, path, target) for finder in later)
        spec: Any = next(filter(None, found), None)
        if spec is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            self.function()
            # Only now, because a program may try again an import that fails. A second spec finds it removed.
            with suppress(ValueError):
                sys.meta_path.remove(self)

        spec.loader.exec_module = exec_module
        return spec
