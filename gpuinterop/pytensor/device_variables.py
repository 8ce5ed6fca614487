"""Symbolic arrays on the device: their types, variables and constants, and transfers from and to the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.type import HasDataType, HasShape, Type
from pytensor.tensor import _as_tensor_variable
from pytensor.tensor.basic import as_tensor_variable
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstantSignature, _tensor_py_operators

import gpuinterop as gi
from gpuinterop import _core

from . import settings

_NAMES = {
    (): "scalar", (False,): "vector", (False, False): "matrix", (True, False): "row", (False, True): "col",
}  # fmt: skip


def dimensions(kind: Any) -> str:
    """Return how Theano called the number of dimensions of a type."""
    return _NAMES.get(kind.broadcastable, f"{kind.ndim}D")


class GpuArrayType(Type, HasDataType, HasShape):
    """Arrays of one dtype and number of dimensions; `shape` has the lengths that are known, else None."""

    __props__ = ("dtype", "shape")
    array_class: Any = gi.GpuArray

    def __init__(self, dtype: str, shape: Iterable[Any] = (), name: str | None = None) -> None:
        self.numpy_dtype = np.dtype(dtype)
        self.dtype = str(self.numpy_dtype)
        # Theano described a shape by broadcastable flags: True is length 1, False any length.
        known = {True: 1, False: None}
        self.shape = tuple(known[n] if isinstance(n, bool) else n for n in shape)
        self._known = [(i, n) for i, n in enumerate(self.shape) if n is not None]
        self.ndim = len(self.shape)
        self.broadcastable = tuple(n == 1 for n in self.shape)
        self.name = name

    def clone(self, dtype: str | None = None, shape: Any = None, **_: Any) -> GpuArrayType:
        return device_type(dtype or self.dtype, self.shape if shape is None else shape, type(self))

    def host(self) -> TensorType:
        """Return the same type in host memory."""
        return TensorType(self.dtype, self.shape)

    def filter(self, data: Any, strict: bool = False, allow_downcast: bool | None = None) -> Any:
        if not isinstance(data, (gi.CudaNdarray, gi.GpuArray)):
            if strict:
                raise TypeError(
                    f"expected a {self.array_class.__name__}, got {type(data).__name__}"
                )
            host = self.host().filter(data, allow_downcast=allow_downcast)
            data = self.array_class(host, device=settings.device())
        # This runs at each call with the array as an argument: no text of a dtype, no generators.
        if data.dtype != self.numpy_dtype or not isinstance(data, self.array_class):
            raise TypeError(f"expected {self}, got {type(data).__name__} of dtype {data.dtype}")
        shape = data.shape
        if len(shape) != self.ndim or [i for i, n in self._known if shape[i] != n]:
            raise TypeError(f"expected shape {self.shape}, got {shape}")
        there = settings.device()
        if data.device is not there:
            raise TypeError(
                f"expected an array on {there}, got one on {data.device}; move it: x.to_device({str(there)!r})"
            )
        return data

    def in_same_class(self, other: Any) -> bool:
        return (
            type(other) is type(self)
            and other.dtype == self.dtype
            and (other.broadcastable == self.broadcastable)
        )

    def is_super(self, other: Any) -> bool:
        return (
            type(other) is type(self)
            and other.dtype == self.dtype
            and other.ndim == self.ndim
            and all(n is None or n == m for n, m in zip(self.shape, other.shape, strict=True))
        )

    def filter_variable(self, other: Any, allow_convert: bool = True) -> Any:
        """Convert a variable for `updates` and `givens`; a tensor is transferred to the device."""
        if not isinstance(other, Variable):
            other = self.constant_type(type=self, data=other)
        if isinstance(other.type, TensorType) and other.type.dtype == self.dtype:
            other = as_device_variable(other)
        if self.is_super(other.type):
            return other
        raise TypeError(f"expected a variable of {self}, got {other.type}; cast it to {self.dtype}")

    def convert_variable(self, var: Any) -> Any:
        return var if self.is_super(var.type) else None

    @staticmethod
    def values_eq(a: Any, b: Any) -> bool:
        return bool(np.array_equal(*map(_on_host, (a, b))))

    @staticmethod
    def values_eq_approx(a: Any, b: Any, **options: Any) -> bool:
        return bool(TensorType.values_eq_approx(*map(_on_host, (a, b)), **options))

    @staticmethod
    def may_share_memory(a: Any, b: Any) -> bool:
        arrays = (gi.CudaNdarray, gi.GpuArray)
        return isinstance(a, arrays) and isinstance(b, arrays) and gi.may_share_memory(a, b)

    def get_shape_info(self, obj: Any) -> Any:
        return obj.shape

    def get_size(self, info: Any) -> int:
        return int(np.prod(info)) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"GpuArray<{self.dtype}>"

    __repr__ = __str__


class CudaNdarrayType(GpuArrayType):
    """Float32 arrays, Theano's first type on a GPU."""

    array_class = gi.CudaNdarray

    def __init__(
        self, broadcastable: Iterable[Any] = (), name: str | None = None, dtype: str | None = None
    ) -> None:
        if dtype not in (None, "float32"):
            raise TypeError(f"CudaNdarrayType holds float32, got {dtype}")
        super().__init__("float32", broadcastable, name)

    def __str__(self) -> str:
        return f"CudaNdarrayType(float32, {dimensions(self)})"

    __repr__ = __str__


def device_type(
    dtype: str, shape: Iterable[Any], like: type[GpuArrayType] = CudaNdarrayType
) -> GpuArrayType:
    """Return the type of a result: with `CudaNdarrayType`, float32 is a CudaNdarray, any other dtype a GpuArray."""
    if issubclass(like, CudaNdarrayType) and dtype == "float32":
        return CudaNdarrayType(tuple(shape))
    return GpuArrayType(dtype, shape)


def current_type() -> type[GpuArrayType]:
    """Return the class of types that `use` chose."""
    return GpuArrayType if settings.any_dtype() else CudaNdarrayType


def is_device(variable: Any) -> bool:
    """Return whether the values of a variable are device arrays."""
    return isinstance(variable.type, GpuArrayType)


class GpuArrayVariable(_tensor_py_operators, Variable):
    """PyTensor's operators and functions accept it, because it converts to a tensor by `HostFromGpu`."""


class GpuArrayConstant(GpuArrayVariable, Constant):
    """A constant on the device."""

    def __init__(self, type: GpuArrayType, data: Any, name: str | None = None) -> None:
        data = type.filter(data)
        Constant.__init__(self, type.clone(shape=data.shape), data, name)

    def signature(self) -> Any:
        return _Signature((self.type, self.data.get()))

    def __str__(self) -> str:
        return self.name or f"{self.type.array_class.__name__}Constant{{{self.data.get()}}}"

    __repr__ = __str__


class _Signature(TensorConstantSignature):
    """Equal for constants of one type and equal values."""


GpuArrayType.variable_type = GpuArrayVariable
GpuArrayType.constant_type = GpuArrayConstant


@_as_tensor_variable.register(GpuArrayVariable)
def _tensor_of(
    x: Any, name: str | None = None, ndim: int | None = None, dtype: Any = None, **_: Any
) -> Any:
    host = host_from_gpu(x)
    if dtype is not None and dtype != host.dtype:
        host = host.astype(dtype)
    return host if ndim is None or ndim == host.ndim else as_tensor_variable(host, ndim=ndim)


# ---- operations -----------------------------------------------------------------------------------


class DeviceOp(Op):
    """An Op with arrays on the device: `runner` returns the function of input values and output cells of a node."""

    def runner(self, node: Any) -> Callable[[Any, Any], None]:
        """Return ``run(inputs, outputs)``, which may change the list of inputs."""
        raise NotImplementedError

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        self.runner(node)(list(inputs), outputs)
        for cell, cls in zip(outputs, _classes_of(node), strict=True):
            _convert(cell, cls)

    def make_thunk(
        self, node: Any, storage_map: Any, compute_map: Any, no_recycling: Any, impl: Any = None
    ) -> Any:
        run = self.runner(node)
        inputs = [storage_map[v] for v in node.inputs]
        outputs = [storage_map[v] for v in node.outputs]
        flags = [compute_map[v] if compute_map else [False] for v in node.outputs]
        results = list(zip(outputs, _classes_of(node), flags, strict=True))

        def thunk() -> None:
            run([cell[0] for cell in inputs], outputs)
            for cell, cls, flag in results:
                if type(cell[0]) is not cls:
                    _convert(cell, cls)
                flag[0] = True  # that it is computed: NanGuardMode checks it then

        return thunk


def _on_host(x: Any) -> Any:
    return x.get() if isinstance(x, (gi.CudaNdarray, gi.GpuArray)) else x


def _classes_of(node: Any) -> list[Any]:
    return [o.type.array_class if is_device(o) else None for o in node.outputs]


def _convert(cell: Any, cls: Any) -> None:
    """Make a result an array of the class of its type; None: it is not on the device."""
    if cls is not None and type(cell[0]) is not cls:
        cell[0] = _core.view(cls, cell[0])


# ---- transfers ----------------------------------------------------------------------------------


class _Transfer(DeviceOp):
    __props__: tuple[str, ...] = ()

    def runner(self, node: Any) -> Any:
        return partial(self.move, node)

    def move(self, node: Any, inputs: Any, outputs: Any) -> None:
        """Compute the result."""
        raise NotImplementedError

    def infer_shape(self, node: Any, shapes: Any) -> Any:
        return shapes

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        # The host type on both sides: the gradient of a shared variable has the type that it has on the host.
        return [as_tensor_variable(cotangents[0])]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> Any:
        return [as_tensor_variable(tangents[0])]


class GpuFromHost(_Transfer):
    """Copy a tensor to the device."""

    def make_node(self, x: Any) -> Any:
        x = as_tensor_variable(x)
        return Apply(self, [x], [device_type(x.type.dtype, x.type.shape, current_type())()])

    def move(self, node: Any, inputs: Any, outputs: Any) -> None:
        (x,), cell = inputs, outputs[0]
        old = cell[0]
        if old is not None and old.shape == x.shape and old.flags.c_contiguous:
            old[...] = x
        else:
            cell[0] = node.outputs[0].type.array_class(x, device=settings.device())


class HostFromGpu(_Transfer):
    """Copy an array from the device to a new NumPy array."""

    __props__ = ("any_dtype",)

    def __init__(self, any_dtype: bool = False) -> None:
        self.any_dtype = (
            any_dtype  # True: the type is not Theano's first one, which the Op's text shows
        )

    def make_node(self, x: Any) -> Any:
        if not is_device(x):
            raise TypeError(f"expected a variable on the device, got {x.type}")
        op = self if isinstance(x.type, CudaNdarrayType) else HostFromGpu(any_dtype=True)
        return Apply(op, [x], [x.type.host()()])

    def move(self, node: Any, inputs: Any, outputs: Any) -> None:
        outputs[0][0] = inputs[0].get()

    def __str__(self) -> str:
        return "HostFromGpu(gpuarray)" if self.any_dtype else "HostFromGpu"


gpu_from_host, host_from_gpu = GpuFromHost(), HostFromGpu()


def as_device_variable(x: Any) -> Any:
    """Return a variable on the device: the source of a `HostFromGpu`, a constant, or a transfer."""
    if not isinstance(x, Variable):
        x = as_tensor_variable(x)
    if is_device(x):
        return x
    if x.owner is not None and isinstance(x.owner.op, HostFromGpu):
        return x.owner.inputs[0]
    if isinstance(x, Constant):
        kind = device_type(x.type.dtype, x.type.shape, current_type())
        return kind.make_constant(np.asarray(x.data))
    return gpu_from_host(x)


class GpuContiguous(_Transfer):
    """Return a C-contiguous array: the same one, or a copy."""

    view_map = {0: [0]}  # noqa: RUF012 (PyTensor reads it from the class)

    def make_node(self, x: Any) -> Any:
        x = as_device_variable(x)
        return Apply(self, [x], [x.type()])

    def move(self, node: Any, inputs: Any, outputs: Any) -> None:
        (x,) = inputs
        outputs[0][0] = x if x.flags.c_contiguous else x.copy()


gpu_contiguous = GpuContiguous()
