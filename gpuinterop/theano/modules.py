"""Theano's modules, with names of PyTensor and gpuinterop."""

from __future__ import annotations

import inspect
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.gradient
import pytensor.graph.op
import pytensor.scalar
import pytensor.tensor
import pytensor.tensor.random.utils
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

from . import nnet
from .configuration import Configuration
from .printing import debugprint

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


def _verify_grad(function: Any, points: Any, **options: Any) -> None:
    """Compare the gradient of a function with finite differences."""
    options.setdefault("rng", np.random.default_rng(666))
    pytensor.gradient.verify_grad(function, points, **options)


class _Module(types.ModuleType):
    """A module with its own names and those of `source`."""

    def __init__(self, name: str, source: Any = None, **names: Any) -> None:
        super().__init__(name)
        self.__dict__.update({"__path__": [], **names}, _source=source)

    def __getattr__(self, name: str) -> Any:
        source = self.__dict__.get("_source")
        if source is None or name.startswith("__"):
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r} in gpuinterop"
            )
        return getattr(source, name)


def modules(configuration: Configuration) -> dict[str, types.ModuleType]:
    """Return the modules by their names."""
    found: dict[str, types.ModuleType] = {}

    def add(name: str, source: Any = None, **names: Any) -> types.ModuleType:
        module = found[name] = _Module(name, source, **names)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(found[parent], child, module)
        return module

    add("theano", pytensor, Op=Op, Apply=Apply, Variable=Variable, Constant=Constant, In=In, Out=Out,
        config=configuration, grad=pytensor.gradient.grad, __version__="0.8.2")  # fmt: skip
    add("theano.tensor", pytensor.tensor, Elemwise=Elemwise, DimShuffle=DimShuffle, CAReduce=CAReduce,
        inv=pytensor.tensor.reciprocal, grad=pytensor.gradient.grad)  # fmt: skip
    add("theano.tensor.nnet", nnet)
    add(
        "theano.tensor.shared_randomstreams",
        pytensor.tensor.random.utils,
        RandomStreams=pytensor.tensor.random.utils.RandomStream,
    )
    add("theano.scalar", pytensor.scalar)
    add("theano.ifelse", None, ifelse=ifelse)
    add("theano.gradient", pytensor.gradient)
    add(
        "theano.compile",
        pytensor.compile,
        SharedVariable=pytensor.compile.sharedvalue.SharedVariable,
    )
    add("theano.gof", pytensor.graph, Op=Op, Apply=Apply, Variable=Variable, Constant=Constant)
    add("theano.printing", pytensor.printing, debugprint=debugprint)
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
        assert_allclose=np.testing.assert_allclose, verify_grad=_verify_grad)  # fmt: skip
    return found
