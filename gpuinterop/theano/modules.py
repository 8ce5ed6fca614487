"""Theano's modules, with names of PyTensor and gpuinterop."""

from __future__ import annotations

import importlib
import inspect
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.gradient
import pytensor.graph.op
import pytensor.graph.replace
import pytensor.printing
import pytensor.scalar
import pytensor.tensor
from pytensor.compile.io import In, Out
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor import blas
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise

try:
    from pytensor.conditional.op import ifelse
except ImportError:  # PyTensor before 3.3
    from pytensor.ifelse import ifelse

import gpuinterop as gi
from gpuinterop import pytensor as backend
from gpuinterop.pytensor.device_op import class_for
from gpuinterop.pytensor.device_variables import GpuArrayConstant, GpuArrayVariable
from gpuinterop.pytensor.shared import GpuArraySharedVariable, device_shared_constructor

from . import nnet, profiles, tensor
from .configuration import Configuration
from .missing import explain
from .printing import debugprint
from .random import RandomStreams

__all__ = ["Op", "modules"]


class Op(pytensor.graph.op.Op):
    """Theano's Op: `perform` is optional, and `make_thunk` may have four parameters."""

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no perform()")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        old = cls.__dict__.get("make_thunk")
        if old is not None and len(inspect.signature(old).parameters) < 6:

            def make_thunk(self: Any, *arguments: Any, impl: Any = None) -> Any:
                return old(self, *arguments[:4])

            cls.make_thunk = make_thunk


class _Module(types.ModuleType):
    """A module with its own names and those of the first of `sources` that has them."""

    def __init__(self, name: str, *sources: Any, **names: Any) -> None:
        super().__init__(name)
        self.__dict__.update({"__path__": [], "__gpuinterop__": True, **names}, _sources=sources)

    def __getattr__(self, name: str) -> Any:
        sources = self.__dict__["_sources"]
        if (
            name == "__all__"
        ):  # read by `from theano import *`; modules without the list have foreign names
            lists = (
                vars(s) if hasattr(s, "__path__") else getattr(s, "__all__", ()) for s in sources
            )
            return sorted(n for n in {*vars(self)}.union(*lists) if not n.startswith("_"))
        if not name.startswith("__"):
            for source in sources:
                if hasattr(source, name):
                    return getattr(source, name)
        raise AttributeError(explain(f"{self.__name__}.{name}"))


def _imported(names: str) -> list[types.ModuleType]:
    """Import PyTensor's modules by their names."""
    return [importlib.import_module(f"pytensor.{name}") for name in names.split()]


# Modules that have the names of their package: `theano.tensor.basic` is `theano.tensor`.
_ALIASES = {
    "theano.tensor": "basic elemwise blas var type subtensor sharedvar extra_ops nlinalg slinalg sort",
    "theano.tensor.nnet": "nnet sigm",
    "theano.compile": "mode io debugmode nanguardmode function_module sharedvalue ops pfunc builders",
    "theano.gof": "op graph type utils",
    "theano.scalar": "basic",
}
# The modules of theano.misc that convert arrays, and their functions, which are gpuinterop's.
_CONVERTERS = {
    "pycuda_utils": "to_gpuarray to_cudandarray",
    "cudamat_utils": "cudandarray_to_cudamat cudamat_to_cudandarray",
    "gnumpy_utils": "cudandarray_to_garray garray_to_cudandarray",
}


class _Modules(dict[str, types.ModuleType]):
    """The modules by their names."""

    def add(self, name: str, *sources: Any, **names: Any) -> None:
        """Make a module, which is an attribute of its package."""
        module = self[name] = _Module(name, *sources, **names)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(self[parent], child, module)

    def alias(self, name: str, module: str) -> None:
        """Let a name stand for another module. Functions of that name remain, such as `theano.tensor.var`."""
        self[name] = self[module]
        parent, _, child = name.rpartition(".")
        if isinstance(getattr(self[parent], child, None), types.ModuleType | None):
            setattr(self[parent], child, self[module])


def modules(configuration: Configuration) -> dict[str, types.ModuleType]:
    """Return the modules by their names."""
    found = _Modules()
    _add_graphs(found, configuration)
    _add_devices(found, configuration)
    for package, names in _ALIASES.items():
        for name in names.split():
            found.alias(f"{package}.{name}", package)
    # A folder, so that the import of theano.misc.pycuda_init runs that file.
    found.add("theano.misc", __path__=[str(Path(__file__).with_name("misc"))])
    for name, functions in _CONVERTERS.items():
        found.add(f"theano.misc.{name}", **{text: getattr(gi, text) for text in functions.split()})
    found.add("theano.tests")
    found.add("theano.tests.unittest_tools", seed_rng=lambda: None, fetch_seed=lambda: None,
              assert_allclose=np.testing.assert_allclose, verify_grad=tensor.verify_grad)  # fmt: skip
    return found


def _add_graphs(found: _Modules, configuration: Configuration) -> None:
    """Add the modules that build and compile graphs."""

    def function(
        inputs: Any, outputs: Any = None, mode: Any = None, *rest: Any, **options: Any
    ) -> Any:
        mode, profiled = configuration.mode_of(mode)
        if profiled or options.get("profile"):
            profiles.install()
            options["profile"] = options.get("profile") or True
        return pytensor.function(inputs, outputs, mode, *rest, **options)

    compiling = {
        "function": function, "Mode": configuration.mode_with, "get_default_mode": lambda: pytensor.config.mode,
        "get_mode": lambda mode: configuration.mode_of(mode)[0],
    }  # fmt: skip
    graphs = {"Op": Op, "Apply": Apply, "Variable": Variable, "Constant": Constant}
    found.add("theano", pytensor, *_imported("scan.views"), In=In, Out=Out, config=configuration,
              grad=pytensor.gradient.grad, dot=pytensor.tensor.dot, pp=pytensor.printing.pp, __version__="0.8.2",
              clone=pytensor.graph.replace.clone_replace, **graphs, **compiling)  # fmt: skip
    parts = "math basic subtensor shape extra_ops nlinalg slinalg variable type elemwise sharedvar blas".split()
    found.add(
        "theano.tensor",
        tensor,
        pytensor.tensor,
        *_imported(" ".join(f"tensor.{part}" for part in parts)),
    )
    found.add("theano.tensor.nnet", nnet)
    found.add("theano.tensor.shared_randomstreams", RandomStreams=RandomStreams)
    found.add("theano.sandbox")
    found.add("theano.sandbox.rng_mrg", MRG_RandomStreams=RandomStreams)
    found.add("theano.scalar", pytensor.scalar)
    found.add("theano.ifelse", ifelse=ifelse)
    found.add("theano.gradient", pytensor.gradient)
    found.add("theano.scan_module", *_imported("scan scan.utils scan.views"))
    found.add("theano.compile", pytensor.compile, *_imported("compile.debug.debugmode compile.debug.nanguardmode"),
              SharedVariable=pytensor.compile.sharedvalue.SharedVariable, **compiling)  # fmt: skip
    found.add("theano.gof", pytensor.graph, **graphs)
    found.add("theano.printing", pytensor.printing, debugprint=debugprint)


def _add_devices(found: _Modules, configuration: Configuration) -> None:
    """Add the modules of Theano's two GPU backends."""

    def use(device: str, **options: Any) -> None:
        configuration.use(device, **options)
        cuda["cuda_enabled"] = configuration.on_gpu

    operations = {
        "gpu_from_host": backend.gpu_from_host, "host_from_gpu": backend.host_from_gpu,
        "as_cuda_ndarray_variable": backend.as_device_variable, "GpuFromHost": backend.GpuFromHost,
        "HostFromGpu": backend.HostFromGpu, "gpu_contiguous": backend.gpu_contiguous,
        "GpuElemwise": class_for(Elemwise), "GpuCAReduce": class_for(CAReduce), "GpuDimShuffle": class_for(DimShuffle),
    }  # fmt: skip
    found.add("theano.sandbox.cuda", CudaNdarray=gi.CudaNdarray, CudaNdarrayType=backend.CudaNdarrayType,
        dot=gi.dot, dimshuffle=gi.dimshuffle, from_gpu_pointer=gi.from_gpu_pointer, mem_info=gi.mem_info,
        synchronize=gi.synchronize, use=use, unuse=lambda: use("cpu"), filter=gi.CudaNdarray,
        cuda_available=bool(gi.devices()[1:]), cuda_enabled=configuration.on_gpu,
        shared_constructor=device_shared_constructor, float32_shared_constructor=device_shared_constructor,
        **operations)  # fmt: skip
    cuda = vars(found["theano.sandbox.cuda"])
    found.add("theano.sandbox.cuda.basic_ops", **operations)
    products = {f"Gpu{name}": class_for(getattr(blas, name)) for name in ("Gemm", "Gemv", "Dot22")}
    found.add("theano.sandbox.cuda.blas", **products)
    found.add("theano.sandbox.cuda.var", CudaNdarrayVariable=GpuArrayVariable,
              CudaNdarrayConstant=GpuArrayConstant, CudaNdarraySharedVariable=GpuArraySharedVariable,
              float32_shared_constructor=device_shared_constructor)  # fmt: skip
    found.add("theano.sandbox.cuda.type", CudaNdarrayType=backend.CudaNdarrayType)
    found.add("theano.sandbox.cuda.cuda_ndarray")
    found.alias("theano.sandbox.cuda.cuda_ndarray.cuda_ndarray", "theano.sandbox.cuda")
    found.add("theano.sandbox.gpuarray", GpuArrayType=backend.GpuArrayType, **operations)
    found.add("theano.sandbox.gpuarray.basic_ops", **operations)
