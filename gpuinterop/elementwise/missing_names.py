"""What to write in place of a name that other libraries have and gpuinterop lacks.

One rule for `gpuinterop.<name>` and `x.<name>`: the code exists, and copies only what cannot be shared.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import MissingNameError, messages

from .calls import FUNCTIONS
from .table import ALIASES

# Names that PyTorch and CuPy have for what gpuinterop names otherwise.
OTHER_NAMES: dict[str, str] = {
    **dict.fromkeys(("convert", "share", "torch"), 'gpuinterop.to(x, "torch")'),
    **dict.fromkeys(("backward", "grad", "requires_grad"), 'gpuinterop.to(x, "torch").requires_grad_()'),
    **dict.fromkeys(("Tensor", "ndarray"), "gpuinterop.CudaNdarray or gpuinterop.GpuArray"),
    "add_": "gpuinterop.add(x, y, out=x)", "as_tensor": "gpuinterop.asarray", "asnumpy": "numpy.asarray(x)",
    "bool": 'x.astype("bool", copy=False)',
    "cast": 'x.astype("float16")', "cat": "gpuinterop.concatenate", "clone": "x.copy()",
    "contiguous": "x if x.flags.c_contiguous else x.copy()",
    "copy_": "x.set(y)", "dim": "x.ndim", "div": "gpuinterop.divide(x, y)",
    "double": 'x.astype("float64", copy=False)',
    "expand": "x.broadcast_to(shape)", "expit": "gpuinterop.sigmoid(x)", "fill_": "x.fill(value)",
    "float": 'x.astype("float32", copy=False)', "half": 'x.astype("float16", copy=False)',
    "identity": "gpuinterop.eye(3)", "int": 'x.astype("int32", copy=False)', "is_contiguous": "x.flags.c_contiguous",
    "load": "gpuinterop.from_any(numpy.load(file))", "long": 'x.astype("int64", copy=False)',
    "mul": "gpuinterop.multiply(x, y)", "manual_seed": "gpuinterop.random.default_rng(seed)",
    "mul_": "gpuinterop.multiply(x, y, out=x)", "numel": "x.size",
    "numpy": "numpy.asarray(x)", "permute": "x.transpose(1, 0)",
    "rand": "gpuinterop.random.default_rng().random(shape)",
    "randn": "gpuinterop.random.default_rng().standard_normal(shape)",
    "relu": "gpuinterop.maximum(x, 0)", "save": "numpy.save(file, x)", "savetxt": "numpy.savetxt(file, x)",
    "savez": "numpy.savez(file, x)", "savez_compressed": "numpy.savez_compressed(file, x)",
    "set_default_device": "gpuinterop.devices.set_default_device", "setflags": "x.flags",
    "softmax": "gpuinterop.softmax(x)", "log_softmax": "gpuinterop.log_softmax(x)",
    "sorted": "gpuinterop.sort(x)", "sub": "gpuinterop.subtract(x, y)", "tensor": "gpuinterop.array",
    "to": 'x.to_device("cuda") or gpuinterop.to(x, "torch") or x.astype("float16")', "unsqueeze": "x[None]",
    "where": "gpuinterop.where(condition, x, y)", "zero_": "x.fill(0)",
}  # fmt: skip

# Names that need no replacement.
_NEEDLESS = {
    **dict.fromkeys(
        ("errstate", "geterr", "seterr"),
        "omit it, because gpuinterop gives no floating-point warnings; ",
    ),
    "detach": "omit it, because gpuinterop's arrays have no gradients; ",
}


def _is_of_an_array(value: Any) -> bool:
    """Return whether this is a function of NumPy like median(a): people try it as a method."""
    code = getattr(getattr(value, "_implementation", None), "__code__", None)
    return code is not None and code.co_varnames[0] == "a"


# Names that arrays of other libraries have as attributes, or that gpuinterop has as functions.
ATTRIBUTES: set[str] = {
    *(name for name in dir(np.ndarray) if not name.startswith("_")),
    *(name for name, value in vars(np).items() if _is_of_an_array(value)),
    *OTHER_NAMES, *_NEEDLESS, *ALIASES, *FUNCTIONS,
}  # fmt: skip

# Libraries that may have what NumPy lacks, and the class of their arrays.
_LIBRARIES = {"torch": "Tensor", "cupy": "ndarray", "jax.numpy": "ndarray", "scipy": ""}

# The second array in the parameters of NumPy's functions.
_SECOND = ("a2", "ar2", "b", "m2", "x", "x2")


def missing_name(
    where: str, name: str, names: Iterable[str] = (), call: str = ""
) -> MissingNameError:
    """Return the error for a missing name: `call` replaces it, or one of the package's `names` may be meant."""
    if name in _NEEDLESS:
        return messages.missing_name(where, name, _NEEDLESS[name])
    call = call or replacement(name)
    numpy = not call or call.startswith("numpy.")
    other = _call_of_loaded_library(where.split(".")[1:-1], name, call) if numpy else ""
    fix = ", or for an array on a GPU ".join(filter(None, (call, other)))
    near = [] if fix or name.startswith("_") else difflib.get_close_matches(name, names, 1, 0.75)
    fix = f"write {fix}; " if fix else ""
    if near:
        fix = f"correct the spelling, for example to {where.removesuffix(name)}{near[0]}; "
    return messages.missing_name(where, name, fix)


def replacement(name: str) -> str:
    """Return the code that computes what another library names `name`, "" if there is none."""
    return "" if name.startswith("_") else own_call(name) or _call_of_numpy(name)


def own_call(name: str) -> str:
    """Return the code with gpuinterop's own function or method, "" if there is none."""
    arrays = _core.gpuarray_class()
    method = inspect.getattr_static(arrays, name, None)
    if isinstance(method, classmethod):
        return f"gpuinterop.{arrays.__name__}.{name}"
    if method is not None and not isinstance(method, MissingName):
        return f"x.{name}({_arguments(method)})" if callable(method) else f"x.{name}"
    function = FUNCTIONS.get(ALIASES.get(name, name))
    known = f"gpuinterop.{name}({_arguments(function, 'x')})" if function else ""
    return OTHER_NAMES.get(name, known)


def _call_of_numpy(name: str) -> str:
    """Return the code with NumPy's function, which runs on x's memory, or its method; "" if it has none."""
    found = getattr(np, name, None)
    if isinstance(found, np.ufunc) or hasattr(found, "_implementation"):
        first = "[x, y]" if name.endswith("stack") else "x"
        return f"numpy.{name}({_arguments(found, first)})"
    if hasattr(np.ndarray, name):
        return f"numpy.asarray(x).{name}"
    return f"numpy.{name}" if hasattr(np, name) else ""


def _call_of_loaded_library(inside: list[str], name: str, call: str) -> str:
    """Return the code with the function of a library that the program has loaded, "" if none has it.

    The library has it in a module as gpuinterop would: `inside` "linalg". It takes x if the library's arrays have such
    a method. Beside NumPy's `call` only these functions are named.
    """
    arguments = "(x, y)" if call.endswith("(x, y)") else "(x)"
    for library, array in _LIBRARIES.items():
        module = ".".join((library, *inside))
        names = getattr(sys.modules.get(module), "__dict__", {})
        takes_x = hasattr(names.get(array), name)
        if inspect.isroutine(names.get(name)) and (takes_x or not call):
            return f"gpuinterop.via.{module}.{name}" + arguments * takes_x
    return ""


def _arguments(function: Any, *first: str) -> str:
    """Return the arguments that a function needs: `first`, then the names of its parameters without defaults."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError):  # of C, without a signature
        parameters = []
    by_name = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in by_name]
    return ", ".join([*first, *("y" if name in _SECOND else name for name in required)])


class MissingName:
    """An attribute of other libraries' arrays that gpuinterop's do not have; reading it raises the fix.

    A `__getattr__` would slow down every search for an absent attribute: numpy.asarray(x) nearly twice.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.__doc__ = "Missing: docs/reference/missing-functions.md lists what to use."

    def __get__(self, x: Any, owner: type) -> Any:
        raise missing_name(f"x.{self.name}", self.name)
