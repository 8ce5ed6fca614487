"""User kernels from complete CUDA C++ source code."""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.dtypes import dtype_from_id, dtype_id
from gpuinterop.arrays.numpy_views import as_scalar
from gpuinterop.devices.device_spec import default_device, fix_host_argument
from gpuinterop.errors import (
    ArgumentTypeError,
    ContiguityError,
    DeviceError,
    ReadOnlyError,
    short_repr,
    type_name,
)
from gpuinterop.errors.messages import not_an_array
from gpuinterop.jit import compile_source, symbol_of

from .compiler import require_arch, require_text

# Kernels may take arrays with their strides: gpuinterop_strided<float, 2> x, then x(i, j). Options such as
# -DN=4 apply to this text too, so its names are long ones that a macro is unlikely to have.
_STRIDED = """\
template <class gpuinterop_T, int gpuinterop_N> struct gpuinterop_strided {
  gpuinterop_T* data; long long shape[gpuinterop_N], strides[gpuinterop_N];
  template <class... gpuinterop_I>
  __device__ gpuinterop_T& operator()(gpuinterop_I... gpuinterop_index) const {
    const long long gpuinterop_at[gpuinterop_N] = {(long long)gpuinterop_index...};
    long long gpuinterop_offset = 0;
    for (int gpuinterop_d = 0; gpuinterop_d < gpuinterop_N; ++gpuinterop_d)
      gpuinterop_offset += gpuinterop_at[gpuinterop_d] * strides[gpuinterop_d];
    return data[gpuinterop_offset];
  }
};
"""


class Strided:
    """An array as a kernel's argument together with its shape and its strides in elements."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __reduce__(self) -> tuple[Any, ...]:
        return strided, (_core.view(_core.gpuarray_class(), self.array),)


def strided(array: Any) -> Strided:
    """Pass `array` to a `RawKernel` as ``gpuinterop_strided<T, ndim>``, without copying it.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.strided(gpuinterop.ones((2, 3), device="cpu")[:, ::-1]).array.strides
    (12, -4)
    """
    if not isinstance(array, _core.Array):
        raise not_an_array("strided", "array", type_name(array))
    array = core_view(array)
    if array.ndim == 0:
        raise ArgumentTypeError(where="strided", expected="an array of at least one dimension",
                                got=type(array).__name__, fix="pass x.reshape(1)")  # fmt: skip
    return Strided(array)


class RawKernel:
    """A kernel from complete CUDA C++ source code, such as a program for PyCUDA's SourceModule.

    The text is compiled by NVRTC on the first launch, and kept in the cache unless it includes headers,
    which may change. The kernel may be declared ``extern "C"`` or not.

    Parameters
    ----------
    source : the text; headers are searched only in the working directory and in ``-I`` folders.
    name : the kernel in it, or the symbol if several kernels have the name; the error lists the symbols.
    options : further options for NVRTC.
    any_strides : the kernel accepts arrays of any strides, which the caller passes as numbers.
    allow_readonly : the kernel does not write to read-only arrays. Without it such arrays, including
        broadcast ones, raise an error, because a kernel may write to any argument.

    Examples
    --------
    >>> import gpuinterop
    >>> x = gpuinterop.ones(4, device="cuda:0")
    >>> text = "__global__ void triple(float* x) { x[threadIdx.x] *= 3; }"
    >>> gpuinterop.RawKernel(text, "triple")((1,), (4,), (x,))
    >>> x.tolist()
    [3.0, 3.0, 3.0, 3.0]
    """

    def __init__(
        self, source: str, name: str, options: Sequence[str] | None = (), *,
        any_strides: bool = False, allow_readonly: bool = False,
    ) -> None:  # fmt: skip
        where = "RawKernel"
        options = () if options is None else options
        if isinstance(options, str) or not isinstance(options, Iterable):
            raise ArgumentTypeError(where=where, expected="a sequence of texts as options",
                                    got=short_repr(options), fix="pass for example ('-lineinfo',)")  # fmt: skip
        self.source = require_text(source, "source", where)
        self.name = require_text(name, "name", where)
        if not re.fullmatch(r"[A-Za-z_$][\w$]*", name, re.ASCII):
            raise ArgumentTypeError(where=where, expected="the name of a kernel in the text",
                                    got=short_repr(name), fix="pass only the name, as it is declared")  # fmt: skip
        self.options = tuple(require_text(option, "an option", where) for option in options)
        self.any_strides, self.allow_readonly = any_strides, allow_readonly
        self._loaded: dict[int, _core.LoadedKernel] = {}

    def __repr__(self) -> str:
        lines = self.source.count("\n") + 1
        return f"<RawKernel {self.name} of {lines} line{'s'[: lines > 1]} of CUDA C++>"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_loaded": {}}  # the source text is sent, never machine code

    def compile(self, arch: int) -> bytes:
        """Return machine code for a compute capability times ten; CompileError shows the line.

        If the capability is newer than the compiler, the result is PTX, which the driver compiles.
        """
        return self._machine_code(require_arch(arch, f"{self.name}.compile"))[0]

    def _machine_code(self, arch: int) -> tuple[bytes, str]:
        """Return machine code, and the kernel's symbol in it."""
        file = f"{self.name}.cu"
        prelude = _STRIDED if "gpuinterop_strided" in " ".join((self.source, *self.options)) else ""
        text = f'{prelude}#line 1 "{file}"\n{self.source}'
        code = compile_source(text, arch, options=self.options, name=file)
        return code, symbol_of(self.name, code, text)

    def __call__(
        self, *args: Any, grid: Any = None, block: Any = None, shared: Any = 0, **unknown: Any
    ) -> None:
        """Queue a launch on the current stream: ``kernel(grid, block, *arguments)``.

        The arguments may also be one tuple, and the grid and the block may be passed by name; without a
        grid there is one block. Arrays are passed as the address of their first element, so they must be
        C-contiguous; arrays wrapped by `strided` may have any strides and are passed with them. Numbers
        must have a size: ``numpy.float32(0.5)``, not ``0.5``. A driver of CUDA 12.4 or newer reports
        the declared parameters; a call with another number of arguments or other sizes then raises.
        """
        if unknown:
            raise ArgumentTypeError(where=self.name, expected="the keywords grid, block and shared",
                                    got=", ".join(sorted(unknown)),
                                    fix="select a stream with a block: with stream: ...")  # fmt: skip
        if grid is None and block is None and len(args) >= 2:
            grid, block, *args = args  # type: ignore[assignment]
        if block is None:
            raise ArgumentTypeError(where=self.name, expected="a grid and a block",
                                    got="none" if grid is None else "a grid alone",
                                    fix="call kernel(grid, block, *arguments)")  # fmt: skip
        if len(args) == 1 and isinstance(args[0], (tuple, list)):
            args = tuple(args[0])
        grid = 1 if grid is None else grid  # as in PyCUDA
        extents = self._extents(grid, "grid"), self._extents(block, "block")
        if isinstance(shared, bool) or not isinstance(shared, int) or not 0 <= shared < 1 << 31:
            raise ArgumentTypeError(where=self.name, expected="bytes of shared memory, 0 to 2^31 - 1",
                                    got=short_repr(shared), fix="pass an int")  # fmt: skip
        arrays: list[Any] = []
        packed = [self._pack(a, arrays) for a in args]
        device = arrays[0].device if arrays else default_device()
        if device.type != "cuda":
            raise DeviceError(where=self.name, expected="arrays on a CUDA device",
                              got=f"arrays on {device}" if arrays else f"no arrays, and {device} as the default device",
                              fix=fix_host_argument("x = x.to_device('cuda')"))  # fmt: skip
        index = device.index
        kernel = self._loaded.get(index)
        if kernel is None:
            code, symbol = self._machine_code(_core._compute_capability(index))
            kernel = _core._load_kernel(index, code, symbol, self.name)
            self._loaded[index] = kernel
        kernel.launch(*extents, shared, packed, arrays)

    def _extents(self, value: Any, what: str) -> tuple[int, ...]:
        given = value if isinstance(value, (tuple, list)) else (value,)
        try:
            return tuple(map(operator.index, given))
        except TypeError:
            raise ArgumentTypeError(
                where=self.name,
                expected=f"a {what} of one to three ints",
                got=short_repr(value),
                fix="call kernel((blocks,), (threads,), *arguments)",
            ) from None

    def _pack(self, value: Any, arrays: list[Any]) -> bytes:
        """Return the argument's bytes; append an array to `arrays`, without a subclass's overrides."""
        if isinstance(value, _core.Array):
            array = core_view(value)
            if not (self.any_strides or array.is_c_contiguous()):
                raise ContiguityError(
                    where=self.name,
                    expected="C-contiguous arrays, because a kernel receives only their address",
                    got=f"shape {array.shape} with strides {array._strides} (elements)",
                    fix="pass a copy, x.copy(), or gpuinterop.strided(x) to a kernel that takes "
                    "gpuinterop_strided, or create the kernel with any_strides=True",
                )
            self._take(array, arrays)
            return struct.pack("Q", array.ptr)
        if isinstance(value, Strided):
            array = value.array
            self._take(array, arrays)
            return struct.pack(f"Q{2 * array.ndim}q", array.ptr, *array.shape, *array._strides)
        value = as_scalar(value, self.name)
        if isinstance(value, np.generic):
            return np.asarray(value, dtype_from_id(dtype_id(value.dtype, self.name))).tobytes()
        raise ArgumentTypeError(
            where=self.name,
            expected="gpuinterop arrays, strided arrays, and numbers with a size",
            got=type(value).__name__,
            fix="share an array first, gpuinterop.asarray(x), or pass a number with a size: numpy.float32(0.5)",
        )

    def _take(self, array: Any, arrays: list[Any]) -> None:
        if array.readonly and not self.allow_readonly:
            raise ReadOnlyError(
                where=self.name,
                expected="writable memory, because a kernel may write to any argument",
                got="a read-only array",
                fix="create the kernel with allow_readonly=True if it only reads the array, or pass x.copy()",
            )
        if not self.allow_readonly:
            _core._prepare_write(array, self.name)
        arrays.append(array)
