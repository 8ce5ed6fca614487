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
        if not name.startswith("__"):
            for source in self.__dict__["_sources"]:
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


def modules(configuration: Configuration) -> dict[str, types.ModuleType]:
    """Return the modules by their names."""
    found: dict[str, types.ModuleType] = {}

    def add(name: str, *sources: Any, **names: Any) -> types.ModuleType:
        module = found[name] = _Module(name, *sources, **names)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(found[parent], child, module)
        return module

    def function(
        inputs: Any, outputs: Any = None, mode: Any = None, *rest: Any, **options: Any
    ) -> Any:
        mode, profiled = configuration.mode_of(mode)
        if profiled or options.get("profile"):
            profiles.install()
            options["profile"] = options.get("profile") or True
        return pytensor.function(inputs, outputs, mode, *rest, **options)

    compiling = {
        "function": function, "Mode": configuration.mode_with, "get_default_mode": lambda: configuration.mode,
        "get_mode": lambda mode: configuration.mode_of(mode)[0],
    }  # fmt: skip
    add("theano", pytensor, *_imported("scan.views"), Op=Op, Apply=Apply, Variable=Variable, Constant=Constant,
        In=In, Out=Out, config=configuration, grad=pytensor.gradient.grad, dot=pytensor.tensor.dot,
        clone=pytensor.graph.replace.clone_replace, pp=pytensor.printing.pp, __version__="0.8.2",
        **compiling)  # fmt: skip
    parts = (
        "math basic subtensor shape extra_ops nlinalg slinalg variable type elemwise sharedvar blas"
    )
    add(
        "theano.tensor",
        tensor,
        pytensor.tensor,
        *_imported(" ".join(f"tensor.{part}" for part in parts.split())),
    )
    add("theano.tensor.nnet", nnet)
    for name in ("theano.tensor.shared_randomstreams", "theano.sandbox.rng_mrg"):
        if "rng_mrg" in name:
            add("theano.sandbox")
        add(name, None, RandomStreams=RandomStreams, MRG_RandomStreams=RandomStreams)
    add("theano.scalar", pytensor.scalar)
    add("theano.ifelse", ifelse=ifelse)
    add("theano.gradient", pytensor.gradient)
    add("theano.scan_module", *_imported("scan scan.utils scan.views"))
    add("theano.compile", pytensor.compile, *_imported("compile.debug.debugmode compile.debug.nanguardmode"),
        SharedVariable=pytensor.compile.sharedvalue.SharedVariable, **compiling)  # fmt: skip
    add("theano.gof", pytensor.graph, Op=Op, Apply=Apply, Variable=Variable, Constant=Constant)
    add("theano.printing", pytensor.printing, debugprint=debugprint)
    for package, names in _ALIASES.items():
        for name in names.split():
            found[f"{package}.{name}"] = found[package]
            if isinstance(
                getattr(found[package], name, None), types.ModuleType | None
            ):  # no function, as T.var is
                setattr(found[package], name, found[package])
    add("theano.sandbox")
    add("theano.sandbox.cuda", None, CudaNdarray=gi.CudaNdarray, CudaNdarrayType=backend.CudaNdarrayType,
        dot=gi.dot, dimshuffle=gi.dimshuffle, from_gpu_pointer=gi.from_gpu_pointer, mem_info=gi.mem_info,
        synchronize=gi.synchronize, use=configuration.use, unuse=backend.unuse,
        cuda_available=bool(gi.devices()[1:]), cuda_enabled=configuration.on_gpu)  # fmt: skip
    operations = {
        "gpu_from_host": backend.gpu_from_host, "host_from_gpu": backend.host_from_gpu,
        "as_cuda_ndarray_variable": backend.as_device_variable, "GpuFromHost": backend.GpuFromHost,
        "HostFromGpu": backend.HostFromGpu, "gpu_contiguous": backend.gpu_contiguous,
        "GpuElemwise": class_for(Elemwise), "GpuCAReduce": class_for(CAReduce), "GpuDimShuffle": class_for(DimShuffle),
    }  # fmt: skip
    add("theano.sandbox.cuda.basic_ops", None, **operations)
    for name, value in operations.items():
        setattr(found["theano.sandbox.cuda"], name, value)
    products = {f"Gpu{name}": class_for(getattr(blas, name)) for name in ("Gemm", "Gemv", "Dot22")}
    add("theano.sandbox.cuda.blas", None, **products)
    add("theano.sandbox.cuda.var", None, CudaNdarrayVariable=GpuArrayVariable,
        CudaNdarrayConstant=GpuArrayConstant, CudaNdarraySharedVariable=GpuArraySharedVariable,
        float32_shared_constructor=device_shared_constructor)  # fmt: skip
    for name in ("shared_constructor", "float32_shared_constructor"):
        setattr(found["theano.sandbox.cuda"], name, device_shared_constructor)
    setattr(found["theano.sandbox.cuda"], "filter", gi.CudaNdarray)  # noqa: B010
    add("theano.sandbox.cuda.type", None, CudaNdarrayType=backend.CudaNdarrayType)
    add("theano.sandbox.cuda.cuda_ndarray")
    setattr(found["theano.sandbox.cuda.cuda_ndarray"], "cuda_ndarray", found["theano.sandbox.cuda"])  # noqa: B010
    found["theano.sandbox.cuda.cuda_ndarray.cuda_ndarray"] = found["theano.sandbox.cuda"]
    add("theano.sandbox.gpuarray", None, GpuArrayType=backend.GpuArrayType, **operations)
    add("theano.sandbox.gpuarray.basic_ops", None, **operations)
    # A folder, so that the import of theano.misc.pycuda_init runs that file.
    add("theano.misc", None, __path__=[str(Path(__file__).with_name("misc"))])
    add(
        "theano.misc.pycuda_utils",
        None,
        to_gpuarray=gi.to_gpuarray,
        to_cudandarray=gi.to_cudandarray,
    )
    add("theano.misc.cudamat_utils", None, cudandarray_to_cudamat=gi.cudandarray_to_cudamat,
        cudamat_to_cudandarray=gi.cudamat_to_cudandarray)  # fmt: skip
    add("theano.misc.gnumpy_utils", None, cudandarray_to_garray=gi.cudandarray_to_garray,
        garray_to_cudandarray=gi.garray_to_cudandarray)  # fmt: skip
    add("theano.tests")
    add("theano.tests.unittest_tools", None, seed_rng=lambda: None, fetch_seed=lambda: None,
        assert_allclose=np.testing.assert_allclose, verify_grad=tensor.verify_grad)  # fmt: skip
    return found
