"""Theano's modules, with names of PyTensor and gpuinterop."""

from __future__ import annotations

import abc
import builtins
import collections
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
from pytensor.compile.io import Out
from pytensor.graph.basic import Apply, Constant, Variable

import gpuinterop as gi
from gpuinterop import pytensor as backend
from gpuinterop.pytensor import settings
from gpuinterop.pytensor.device_variables import GpuArrayConstant, GpuArrayVariable
from gpuinterop.pytensor.shared import GpuArraySharedVariable, device_shared_constructor

from . import images, nnet, pkl_utils, profiles, tensor
from .configuration import Configuration
from .functions import In, MonitorMode, Param, conditional, ifelse, with_defaults
from .missing import explain, unavailable
from .old_builtins import compare
from .printing import debugprint
from .random import RandomStreams
from .renamed import DEVICE_CLASSES, renamed


class Op(pytensor.graph.op.Op):
    """Theano's Op: `perform` is optional, and `make_thunk` may have four parameters."""

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} has no perform(), and gpuinterop does not compile c_code; write perform, or use "
            "gpuinterop.pytensor.KernelOp for a kernel"
        )

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        old = cls.__dict__.get("make_thunk")
        if old is not None and len(inspect.signature(old).parameters) < 6:

            def make_thunk(self: Any, *arguments: Any, impl: Any = None) -> Any:
                return old(self, *arguments[:4])

            cls.make_thunk = make_thunk


class ProfileMode(str):
    """The name of the mode, which theano.function knows. The profile is printed when the program ends."""

    def __new__(cls, *_: Any, **options: Any) -> ProfileMode:
        return super().__new__(cls, "ProfileMode")

    def print_summary(self, *_: Any, **options: Any) -> None:
        """Do nothing: the profile follows."""


class Join(abc.ABC):  # noqa: B024 (the base of PyTensor's class, which is registered)
    """Theano's operation, which is called with the axis. PyTensor's are instances, and each has its own axis."""

    def __init__(self, view: int = -1) -> None:
        self.view = (
            view  # the number of the only operand with elements: Theano returned a view of it
        )

    def __call__(self, axis: Any, *tensors: Any) -> Any:
        """Join tensors along an axis."""
        return pytensor.tensor.join(axis, *tensors)

    def make_node(self, axis: Any, *tensors: Any) -> Any:
        """Return the node of PyTensor's operation."""
        return self(axis, *tensors).owner


Join.register(pytensor.tensor.basic.Join)


class _InPlace:
    """The functions of theano.tensor by the names of those that overwrote their operands."""

    def __getattr__(self, name: str) -> Any:
        for source in (tensor, pytensor.tensor):
            if name.endswith("_inplace") and hasattr(source, name.removesuffix("_inplace")):
                return getattr(source, name.removesuffix("_inplace"))
        raise AttributeError(name)


class Module(types.ModuleType):
    """A module with its own names and those of the first of `sources` that has them."""

    def __init__(self, name: str, *sources: Any, **names: Any) -> None:
        super().__init__(name)
        self.__dict__.update({"__path__": [], "__gpuinterop__": True, **names}, _sources=sources)

    def __getattr__(self, name: str) -> Any:
        sources = self.__dict__["_sources"]
        # Read by `from theano import *`. Without the list, a source that is not a package also has names of others.
        if name == "__all__":
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
    "theano.tensor": "basic elemwise blas blas_c var type subtensor sharedvar extra_ops nlinalg slinalg sort",
    "theano.tensor.nnet": "nnet sigm conv bn abstract_conv",
    "theano.compile": "mode io debugmode nanguardmode profilemode monitormode profiling function_module sharedvalue "
    "ops pfunc builders",
    "theano.gof": "op graph fg type utils link vm null_type",
    "theano.scalar": "basic basic_scipy",
    "theano.scan_module": "scan scan_op scan_utils scan_views",
    "theano.sandbox.linalg": "ops",
    "theano.compat": "python2x six six.moves",
    "theano.typed_list": "basic type",
    "theano.sandbox.cuda": "basic_ops blas elemwise nnet type var cuda_ndarray cuda_ndarray.cuda_ndarray",
    "theano.sandbox.gpuarray": "basic_ops blas elemwise nnet subtensor type var",
}
# Modules of PyTensor with other names; finder.py finds the others.
_PYTENSORS = {
    "theano.gof.toolbox": "graph.features", "theano.gof.destroyhandler": "graph.destroyhandler",
    "theano.tensor.opt": "raise_op", "theano.tests.breakpoint": "breakpoint", "theano.d3viz": "d3viz",
}  # fmt: skip
# The modules of theano.misc that convert arrays, and their functions, which are gpuinterop's.
_CONVERTERS = {
    "pycuda_utils": "to_gpuarray to_cudandarray",
    "cudamat_utils": "cudandarray_to_cudamat cudamat_to_cudandarray",
    "gnumpy_utils": "cudandarray_to_garray garray_to_cudandarray",
}


# Operations that programs look for in graphs, or use if a GPU or cuDNN is there.
_DNN = (
    "DnnBase GpuDnnConvDesc GpuDnnConv GpuDnnConv3d GpuDnnConvGradW GpuDnnConv3dGradW GpuDnnConvGradI "
    "GpuDnnConv3dGradI GpuDnnPoolDesc GpuDnnPool GpuDnnPoolGrad GpuDnnSoftmaxBase GpuDnnSoftmax GpuDnnSoftmaxGrad "
    "GpuDnnBatchNorm dnn_conv3d dnn_gradweight dnn_gradinput dnn_batch_normalization_train "
    "dnn_batch_normalization_test"
)
_CUDA = (
    "GpuConv GpuCorrMM_gradInputs GpuCorrMM_gradWeights GpuCorr3dMM GpuDownsampleFactorMax "
    "GpuDownsampleFactorMaxGrad"
)


class _Modules(dict[str, types.ModuleType]):
    """The modules by their names."""

    def add(self, name: str, *sources: Any, **names: Any) -> None:
        """Make a module, which is an attribute of its package."""
        module = self[name] = Module(name, *sources, **renamed(name), **names)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(self[parent], child, module)

    def alias(self, name: str, module: str) -> None:
        """Add a second name of a module. A function of that name is kept, such as `theano.tensor.var`."""
        self[name] = self[module]
        parent, _, child = name.rpartition(".")
        if isinstance(getattr(self[parent], child, None), types.ModuleType | None):
            setattr(self[parent], child, self[module])


def modules(configuration: Configuration) -> dict[str, types.ModuleType]:
    """Return the modules by their names."""
    # As in Theano, a variable needs only a type.
    Variable.__init__.__defaults__ = (None, None, None)
    found = _Modules()
    _add_graphs(found, configuration)
    _add_tensors(found)
    _add_devices(found, configuration)
    for package, names in _ALIASES.items():
        for name in names.split():
            found.alias(f"{package}.{name}", package)
    # The name of the second backend since Theano 0.9, and of the compiled module of the first one.
    for name in ["", *(f".{n}" for n in _ALIASES["theano.sandbox.gpuarray"].split())]:
        found.alias(f"theano.gpuarray{name}", "theano.sandbox.gpuarray")
    for name in ("cuda_ndarray", "cuda_ndarray.cuda_ndarray"):
        found[name] = found["theano.sandbox.cuda"]
    # A folder, so that the import of theano.misc.pycuda_init runs that file.
    found.add("theano.misc", __path__=[str(Path(__file__).with_name("misc"))])
    for name, functions in _CONVERTERS.items():
        library = name.partition("_")[0]
        available = {f"{library}_available": importlib.util.find_spec(library) is not None}
        found.add(
            f"theano.misc.{name}",
            **available,
            **{text: getattr(gi, text) for text in functions.split()},
        )
    found.add("theano.misc.pkl_utils", pkl_utils)
    found.add("theano.misc.may_share_memory", may_share_memory=gi.shares_memory)
    found.add("theano.gof.python25", collections, builtins)
    found.add("theano.tests")
    for name, module in _PYTENSORS.items():
        found.add(name, *_imported(module))
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
        return with_defaults(pytensor.function(inputs, outputs, mode, *rest, **options), inputs)

    def clone(
        output: Any, replace: Any = None, strict: bool = True, share_inputs: bool = True
    ) -> Any:
        return pytensor.graph.replace.clone_replace(output, replace, copy_inputs_over=share_inputs)

    compiling = {
        "function": function, "Mode": configuration.mode_with, "get_default_mode": lambda: pytensor.config.mode,
        "ProfileMode": ProfileMode, "get_mode": lambda mode: configuration.mode_of(mode)[0],
        "In": In, "Param": Param, "MonitorMode": MonitorMode,
    }  # fmt: skip
    graphs = {"Op": Op, "Apply": Apply, "Variable": Variable, "Constant": Constant}
    found.add("theano", pytensor, *_imported("scan.views"), Out=Out, config=configuration,
              grad=pytensor.gradient.grad, dot=pytensor.tensor.dot, pp=pytensor.printing.pp, __version__="0.8.2",
              _asarray=np.asarray, OrderedUpdates=collections.OrderedDict, as_op=pytensor.compile.ops.as_op,
              sparse_grad=lambda x: x,  # the gradient of an index array: it has the same values
              clone=clone, **graphs, **compiling)  # fmt: skip
    version = found["theano"].__version__
    found.add("theano.version", version=version, short_version=version, full_version=version)
    found.add("theano.updates", OrderedUpdates=collections.OrderedDict)
    found.add(
        "theano.compat",
        collections,
        builtins,
        izip=zip,
        imap=map,
        ifilter=filter,
        xrange=range,
        PY3=True,
        cmp=compare,
        exc_message=_exc_message,
    )
    found.add("theano.scalar", pytensor.scalar)
    found.add("theano.ifelse", conditional, ifelse=ifelse)
    found.add("theano.gradient", pytensor.gradient)
    found.add("theano.scan_module", *_imported("scan scan.utils scan.views"))
    found.add("theano.compile", pytensor.compile, *_imported("compile.debug.debugmode compile.debug.nanguardmode"),
              SharedVariable=pytensor.compile.sharedvalue.SharedVariable, **compiling)  # fmt: skip
    found.add("theano.gof", pytensor.graph, **graphs)
    found.add("theano.typed_list", *_imported("typed_list typed_list.basic typed_list.type"))
    found.add("theano.printing", pytensor.printing, debugprint=debugprint)


def _exc_message(error: BaseException) -> Any:
    """Return the first argument of an exception, or of the exception that it contains."""
    first = error.args[0]
    return _exc_message(first) if isinstance(first, BaseException) else first


def _add_tensors(found: _Modules) -> None:
    """Add the modules of symbolic arrays, neural networks and random numbers."""
    found.add("theano.sandbox")
    parts = "math basic subtensor shape extra_ops nlinalg slinalg variable type elemwise sharedvar sort blas".split()
    found.add(
        "theano.tensor",
        tensor,
        pytensor.tensor,
        *_imported(" ".join(f"tensor.{part}" for part in parts)),
        Join=Join,
    )
    found.add("theano.tensor.inplace", _InPlace())
    convolutions = _of_images("conv2d_grad_wrt_inputs conv2d_grad_wrt_weights AbstractConv2d AbstractConv2d_gradInputs "
                              "AbstractConv2d_gradWeights get_conv_output_shape")  # fmt: skip
    found.add("theano.tensor.nnet", nnet, images, **convolutions)
    found.add("theano.tensor.nnet.conv3d2d", conv3d=images.conv3d)
    neighbours = _of_images("images2neibs neibs2images")
    for name in ("theano.tensor.nnet", "theano.sandbox"):
        found.add(f"{name}.neighbours", **neighbours)
    found["theano.sandbox.neighbourhoods"] = found["theano.sandbox.neighbours"]
    pooling = {"Pool": images.Pool, "DownsampleFactorMax": images.Pool}
    found.add("theano.tensor.signal")
    found.add("theano.tensor.signal.conv", conv2d=images.signal_conv2d)
    for name in ("downsample", "pool"):
        found.add(f"theano.tensor.signal.{name}", images, **pooling)
    found.add("theano.tensor.shared_randomstreams", RandomStreams=RandomStreams)
    found.add("theano.sandbox.linalg", *_imported("tensor.nlinalg tensor.slinalg tensor.basic"))
    found.add("theano.sandbox.rng_mrg", MRG_RandomStreams=RandomStreams)


def _of_images(names: str) -> dict[str, Any]:
    return {name: getattr(images, name) for name in names.split()}


def _add_devices(found: _Modules, configuration: Configuration) -> None:
    """Add the modules of Theano's two GPU backends."""

    def use(device: str, **options: Any) -> None:
        configuration.use(device, **options)
        for module in (cuda, gpuarray):
            module["cuda_enabled"] = configuration.on_gpu

    def on_device(function: Any) -> Any:
        return lambda *arguments: backend.as_device_variable(function(*arguments))

    def properties(number: int = 0) -> dict[str, Any]:
        return gi.devices.device_properties(f"cuda:{number}")

    both = {
        "gpu_from_host": backend.gpu_from_host, "host_from_gpu": backend.host_from_gpu,
        "GpuFromHost": backend.GpuFromHost, "HostFromGpu": backend.HostFromGpu, "GpuOp": Op,
        "gpu_contiguous": backend.gpu_contiguous, "GpuContiguous": backend.GpuContiguous,
        "use": use, "unuse": lambda: use("cpu"),
        "cuda_available": bool(gi.devices()[1:]), "cuda_enabled": configuration.on_gpu,
        **{f"gpu_{name}": on_device(getattr(pytensor.tensor, name)) for name in ("alloc", "dot", "flatten", "join")},
    }  # fmt: skip
    both["gpu_dot22"] = both.pop("gpu_dot")
    patterns = {
        "scalar": (), "vector": (False,), "matrix": (False, False), "row": (True, False), "col": (False, True),
        "tensor3": (False,) * 3, "tensor4": (False,) * 4,
    }  # fmt: skip
    types = {name: backend.CudaNdarrayType(pattern) for name, pattern in patterns.items()}
    found.add("theano.sandbox.cuda", DEVICE_CLASSES, CudaNdarray=gi.CudaNdarray, as_cuda_array=gi.CudaNdarray,
        filter=gi.CudaNdarray, CudaNdarrayType=backend.CudaNdarrayType, CudaNdarrayVariable=GpuArrayVariable,
        CudaNdarrayConstant=GpuArrayConstant, CudaNdarraySharedVariable=GpuArraySharedVariable,
        as_cuda_ndarray_variable=backend.as_device_variable, shared_constructor=device_shared_constructor,
        float32_shared_constructor=device_shared_constructor, dot=gi.dot, dimshuffle=gi.dimshuffle,
        CudaNdarray_unpickler=gi.CudaNdarray, dnn_available=lambda: False,
        from_gpu_pointer=gi.from_gpu_pointer, mem_info=gi.mem_info, synchronize=gi.synchronize,
        device_properties=properties, active_device_number=lambda: settings.device().index,
        active_device_name=lambda: properties(settings.device().index)["name"],
        **types, **{f"f{name}": kind for name, kind in types.items()}, **both)  # fmt: skip
    vars(found["theano.sandbox.cuda"]).update(
        GpuCorrMM=images.GpuCorrMM, **unavailable("theano.sandbox.cuda", _CUDA)
    )
    found.add("theano.sandbox.cuda.rng_curand", CURAND_RandomStreams=RandomStreams)
    found.add("theano.sandbox.gpuarray", DEVICE_CLASSES, GpuArrayType=backend.GpuArrayType,
        GpuArrayVariable=GpuArrayVariable, GpuArrayConstant=GpuArrayConstant,
        GpuArraySharedVariable=GpuArraySharedVariable, as_gpuarray_variable=backend.as_device_variable,
        as_gpuarray=gi.asarray, gpuarray_shared_constructor=device_shared_constructor,
        pygpu_activated=both["cuda_available"], **both)  # fmt: skip
    for package in ("theano.sandbox.cuda", "theano.sandbox.gpuarray"):
        found.add(f"{package}.dnn", dnn_conv=images.dnn_conv, dnn_pool=images.dnn_pool,
                  dnn_available=lambda *_: False, version=lambda raises=True: -1,
                  **unavailable(f"{package}.dnn", _DNN))  # fmt: skip
    cuda, gpuarray = (vars(found[f"theano.sandbox.{name}"]) for name in ("cuda", "gpuarray"))
