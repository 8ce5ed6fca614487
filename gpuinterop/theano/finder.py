"""Finds the modules of ``theano`` that are imported by name and not made beforehand."""

from __future__ import annotations

import importlib.abc
import sys
import types
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from typing import Any

from .missing import explain
from .modules import Module


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of ``theano`` that PyTensor has by the same name. It is the last finder, and raises for others."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return how to load a module, and raise if the package is gpuinterop's and has none."""
        parent, _, child = name.rpartition(".")
        package = sys.modules.get(parent)
        if getattr(package, "__gpuinterop__", False):
            if isinstance(getattr(package, child, None), types.ModuleType):
                return spec_from_loader(name, self)
            # Without `name=`: `from theano import x` would replace the message of an error that names theano.x.
            raise ModuleNotFoundError(explain(name))
        return None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """Return a module with the names of PyTensor's, and of its package, to which some of them have moved."""
        parent, _, child = spec.name.rpartition(".")
        package = sys.modules[parent]
        return Module(spec.name, getattr(package, child), package)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: the module is complete."""
