"""A library that gpuinterop does not know, and its converter, as another package would have it."""

import types

import gpuinterop as gi


class ToyArray:
    """An array of the toy library: a NumPy array inside an object of a class of its own."""

    def __init__(self, host):
        self.host = host


def converter(**functions) -> types.ModuleType:
    """The module of its converter; further functions, such as to_toy, go before those named `to` and `from_`."""
    module = types.ModuleType("toy_converter")
    module.matches = lambda obj: isinstance(obj, ToyArray)
    module.to = lambda x, copyif=False: ToyArray(gi.to(x, "numpy", copyif))
    module.from_ = lambda obj, copyif=False: gi.from_any(obj.host, copyif)
    vars(module).update(functions)
    return module


def register(**functions) -> None:
    """Register the toy library with its converter."""
    row = gi.converters.Backend("toy", "toy", converter=converter(**functions))
    gi.converters.register(row)
