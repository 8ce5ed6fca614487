"""Arrays that share memory with other GPU libraries, or raise an error with the reason.

Importing this module loads no driver, starts no thread and loads no other array library; names
are resolved on first use.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from gpuinterop._version import __version__

# The module of each public name; a module is loaded on the first use of one of its names.
_MODULES: dict[str, str] = {
    "gpuinterop.ndarray": "CudaNdarray GpuArray",
    "gpuinterop.creation": (
        "arange array asarray broadcast_to dimshuffle empty empty_like eye from_gpu_pointer full "
        "full_like linspace ones ones_like zeros zeros_like"
    ),
    "gpuinterop.arrays.pinned": "copy_async pinned_empty",
    "gpuinterop.devices": (
        "Device Event Stream default_device device devices empty_cache mem_info memory_stats "
        "synchronize"
    ),
    "gpuinterop.errors": (
        "ArgumentTypeError ArrayIndexError AxisError BoundsError CaptureError CompileError ContextError "
        "ContiguityError ConversionTypeError CopyForbiddenError CudaError DTypeError DeviceError "
        "DeviceMismatchError ExchangeError ExportError GpuInteropError IndexKindError "
        "LibraryNotFoundError LinAlgError MissingLibraryError MissingNameError OutOfMemoryError ProtocolError "
        "RangeError ReadOnlyError ScalarIndexError ShapeError StreamError UnsupportedError"
    ),
    "gpuinterop.elementwise.functions": (
        "abs absolute acos acosh add arccos arccosh arcsin arcsinh arctan arctan2 "
        "arctanh asin asinh astype atan atan2 atanh bitwise_and bitwise_invert "
        "bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor cbrt "
        "ceil clip conj conjugate copysign cos cosh deg2rad degrees digamma divide "
        "divmod equal erf erfc erfinv exp exp2 expm1 fabs float_power floor "
        "floor_divide fmax fmin fmod gamma gammaln gcd greater greater_equal heaviside "
        "hypot invert isfinite isinf isnan left_shift less less_equal lgamma log log10 "
        "log1p log2 logaddexp logical_and logical_not logical_or logical_xor maximum "
        "minimum mod multiply negative not_equal positive pow power psi rad2deg radians "
        "reciprocal remainder right_shift rint round rsqrt sigmoid sign signbit sin "
        "sinh softplus sqrt square subtract tan tanh true_divide trunc where"
    ),
    "gpuinterop.index.take_put": (
        "argwhere compress flatnonzero nonzero put put_along_axis repeat take take_along_axis"
    ),
    "gpuinterop.numpy_api.equality": "allclose",
    "gpuinterop.numpy_api.names": (
        "append array_split atleast_1d atleast_2d atleast_3d average broadcast_arrays choose column_stack "
        "concat count_nonzero cross diag diagonal diff dsplit dstack einsum expand_dims flip fliplr "
        "flipud hsplit hstack imag interp isclose kron log_softmax matrix_transpose matvec meshgrid moveaxis "
        "nan_to_num nanmax nanmin nextafter outer pad permute_dims ptp ravel real reshape roll rollaxis rot90 "
        "softmax squeeze swapaxes tensordot tile trace transpose tril triu unstack vecdot vecmat "
        "vsplit vstack"
    ),
    "gpuinterop.array_api": "broadcast_shapes can_cast finfo iinfo isdtype result_type",
    "gpuinterop.fusion.builder": "CudaText Expression",
    "gpuinterop.fusion.fuse": "fuse",
    "gpuinterop.exchange.library_streams": "stream",
    "gpuinterop.fusion.elementwise_kernel": "ElementwiseKernel",
    "gpuinterop.jit.raw_kernel": "RawKernel strided",
    "gpuinterop.exchange.sharing": "explain may_share_memory shares_memory",
    "gpuinterop.drawing.draw": "Drawing draw",
    "gpuinterop.reduce.functions": (
        "all amax amin any argmax argmin max mean min norm prod reduce_sum std sum var"
    ),
    "gpuinterop.index.join_split": "concatenate join split stack",
    "gpuinterop.product.functions": (
        "addmm allow_tf32 dot gemm gemv ger inner matmul product_precision set_product_precision vdot"
    ),
    "gpuinterop.sorting.sort": "argpartition argsort partition sort",
    "gpuinterop.sorting.scan": "cumprod cumsum cumulative_prod cumulative_sum",
    "gpuinterop.sorting.search": (
        "isin searchsorted unique unique_all unique_counts unique_inverse unique_values"
    ),
    "gpuinterop.captures": "Capture capture",
    "gpuinterop.processes.handles": "Handle share shared_empty",
    "gpuinterop.borrowed.via": "via",
    "gpuinterop.arrays.copy_tracking": "count_copies downloads log_transfers no_copies",
    "gpuinterop.doctor": "doctor show_config",
    "gpuinterop.converters": (
        "cudamat_to_cudandarray cudandarray_to_cudamat cudandarray_to_garray from_any from_dlpack "
        "garray_to_cudandarray to to_cudandarray to_gpuarray"
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOMES)]


# Modules with the name of the function that they contain. An import sets the package's attribute of that
# name to the module, so the module itself can be called like the function.
_BOTH = frozenset(name for name, home in _HOMES.items() if home == f"gpuinterop.{name}")


# Packages that are also attributes, as in gpuinterop.converters.to_torch.
_PACKAGES = frozenset(
    "array_api collectives converters fft linalg pytensor random testing theano".split()
)


# Held while a name is loaded, and by a fork: the child does not have the threads that would finish an
# import, so it would wait forever for a module that one of them was loading.
_loading = RLock()
_held_for_fork: list[bool] = []


def _before_fork() -> None:
    # Wait for a limited time, because that import may need a module that the forking thread is loading.
    _held_for_fork.append(_loading.acquire(timeout=10))


def _after_fork_in_parent() -> None:
    if _held_for_fork.pop():
        _loading.release()


def _after_fork_in_child() -> None:
    global _loading
    _held_for_fork.clear()
    _loading = RLock()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if name == "_core":
        return _import_core()
    if home is None and name not in _PACKAGES:
        raise _missing(name)
    with _loading:
        return _load(name, home)


def _missing(name: str) -> AttributeError:
    # `from gpuinterop import devices` reads the attribute before it imports the module.
    if name.startswith("__") or (
        name != "ndarray" and PathFinder.find_spec(f"{__name__}.{name}", __path__)
    ):
        return AttributeError(f"module 'gpuinterop' has no attribute {name!r}")
    missing_names, call = import_module("gpuinterop.elementwise.missing_names"), ""
    if name.startswith(("to_", "from_")) and hasattr(import_module("gpuinterop.converters"), name):
        call = "gpuinterop.from_any(x)" if name[0] == "f" else f'gpuinterop.to(x, "{name[3:]}")'
    if name in ("cuda", "version"):
        call = {"cuda": "gpuinterop.devices()", "version": "gpuinterop.__version__"}[name]
    error: AttributeError = missing_names.missing_name(f"gpuinterop.{name}", name, _HOMES, call)
    error.name, error.obj = name, _this  # Python prints "Did you mean: 'zeros'?"
    return error


def _import_core() -> ModuleType:
    try:
        return import_module("gpuinterop._core")
    except ModuleNotFoundError as error:
        if error.name != "gpuinterop._core":
            raise
        raise ImportError(
            "gpuinterop: expected the compiled core in the folder of the package\n"
            f"  got: no core for this Python in {__path__[0]}\n"
            "  fix: in a clone run `make demo` and start .venv/bin/python; after `pip install .` start Python "
            "outside the clone",
            name="gpuinterop._core",
        ) from error


def _load(name: str, home: str | None) -> Any:
    if home is None:
        return import_module(f"gpuinterop.{name}")
    module = import_module(home)
    if name in _BOTH:
        return module
    value = getattr(module, name)
    globals()[name] = value
    return value


class _Module(ModuleType):
    def __reduce__(self) -> tuple[Any, ...]:
        # pickle and cloudpickle know only the class of ordinary modules, and functions refer to this one.
        return import_module, (self.__name__,)


class _CallableModule(_Module):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    @property
    def __wrapped__(self) -> Any:
        """The function, under the name that inspect.signature reads."""
        return getattr(self, self.__name__.rpartition(".")[2])


class _Package(_Module):
    def __setattr__(self, name: str, value: Any) -> None:
        if name == "ndarray":  # in NumPy a class: `__getattr__` names those of gpuinterop
            return
        if name in _BOTH and isinstance(value, ModuleType):
            value.__class__ = _CallableModule
        elif name in _PACKAGES and type(value) is ModuleType:
            value.__class__ = _Module
        super().__setattr__(name, value)


# Programs that import the package anew remove it from sys.modules, and may keep this one.
_this = sys.modules[__name__]
_this.__class__ = _Package


# The modules that pickles of earlier versions name, and where their classes and functions are today.
_EARLIER: dict[str, str] = {
    "gpuinterop.copy_tracking": "gpuinterop.arrays.copy_tracking",
    "gpuinterop.device_spec": "gpuinterop.devices.device_spec",
    "gpuinterop.installed_libraries": "gpuinterop.exchange.package_versions",
    "gpuinterop.pinned": "gpuinterop.arrays.pinned",
    "gpuinterop.sharing": "gpuinterop.exchange.sharing",
    "gpuinterop.streams": "gpuinterop.devices.streams",
    "gpuinterop.converters.library_streams": "gpuinterop.exchange.library_streams",
    "gpuinterop.converters.registry": "gpuinterop.exchange.registry",
    "gpuinterop.ops": "gpuinterop",
    "gpuinterop.ops.capture": "gpuinterop.captures",
    "gpuinterop.ops.concat_split": "gpuinterop.index.join_split",
    "gpuinterop.ops.cuda_text": "gpuinterop.fusion.cuda_text",
    "gpuinterop.ops.elementwise_kernel": "gpuinterop.fusion.elementwise_kernel",
    "gpuinterop.ops.equality": "gpuinterop.numpy_api.equality",
    "gpuinterop.ops.expression": "gpuinterop.fusion.builder",
    "gpuinterop.ops.functions": "gpuinterop.elementwise.functions",
    "gpuinterop.ops.fuse": "gpuinterop.fusion.fuse",
    "gpuinterop.ops.index_functions": "gpuinterop.index.take_put",
    "gpuinterop.ops.raw_kernel": "gpuinterop.jit.raw_kernel",
    "gpuinterop.ops.reductions": "gpuinterop.reduce.functions",
}


class _Earlier:
    """Finds and makes the modules of `_EARLIER`, each with the names of today's module."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        return type(__spec__)(name, _Earlier, is_package=True) if name in _EARLIER else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: Any) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        home = import_module(_EARLIER[module.__name__])
        vars(module)["__getattr__"] = home.__getattribute__


sys.meta_path.append(_Earlier)  # type: ignore[arg-type]


def __dir__() -> list[str]:
    # Names for completion, without the imports of this file.
    own = {name for name in globals() if name.startswith("__")}
    # help() imports what is listed here, and PyTensor may not be installed.
    return sorted({*own, *__all__, *_PACKAGES - {"pytensor"}})
