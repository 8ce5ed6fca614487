"""Kernels of one's own: an expression over elements, or a whole CUDA C++ text."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import NAMES, dtype_of, row_of
from gpuinterop.errors import ArgumentTypeError, DeviceError, DTypeError
from gpuinterop.jit import compile_source
from gpuinterop.jit.codegen import STORAGE, WORKING
from gpuinterop.jit.spec import Body

from .rules import name_of_kind
from .runtime import Traced, add_traced

__all__ = ["ElementwiseKernel", "RawKernel", "Strided", "strided"]

_C_NAMES = {
    "float": "float32", "double": "float64", "char": "int8", "short": "int16", "int": "int32",
    "long long": "int64", "unsigned char": "uint8", "unsigned short": "uint16",
    "unsigned int": "uint32", "unsigned long long": "uint64", "half": "float16",
}  # fmt: skip
_PARAMETER = re.compile(r"^(?:const )?(?P<type>[A-Za-z_][\w ]*?) +(?P<name>[A-Za-z_]\w*)$")


def _parameters(text: str, where: str) -> list[tuple[str, str]]:
    """[(dtype name or a single capital letter, parameter name)]"""
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _PARAMETER.match(" ".join(part.split()))
        kind = _C_NAMES.get(match["type"], match["type"]) if match else ""
        if not match or not ((kind in STORAGE and kind in NAMES) or re.fullmatch("[A-Z]", kind)):
            raise ArgumentTypeError(
                where=where,
                expected="parameters such as 'float32 x, T y', T standing for any dtype",
                got=repr(part),
                fix=f"write one of {', '.join(NAMES[:15])} or a capital letter, then a name",
            )
        found.append((kind, match["name"]))
    return found


class _Expression(Traced):
    def __init__(
        self, name: str, ins: list[tuple[str, str]], outs: list[tuple[str, str]], text: str,
        preamble: str, host: Callable[..., Any] | None,
    ) -> None:  # fmt: skip
        self.name, self.ins, self.outs = name, ins, outs
        self.inputs, self.results = len(ins), len(outs)
        self.text, self.preamble, self.numpy = text, preamble, host

    def _letters(self, kinds: tuple[int, ...]) -> dict[str, str]:
        letters: dict[str, str] = {}
        for (kind, _), given in zip(self.ins, kinds, strict=True):
            if len(kind) > 1 or given < 0:
                continue
            name = NAMES[given % 64]
            if letters.setdefault(kind, name) != name:
                raise DTypeError(
                    where=self.name,
                    expected=f"one dtype for all parameters of type {kind}",
                    got=f"{letters[kind]} and {name}",
                    fix="cast one of them: x.astype(...)",
                )
        return letters

    def _types(self, parameters: list[tuple[str, str]], kinds: tuple[int, ...]) -> tuple[str, ...]:
        letters = self._letters(kinds)
        try:
            return tuple(kind if len(kind) > 1 else letters[kind] for kind, _ in parameters)
        except KeyError as error:
            raise DTypeError(
                where=self.name,
                expected=f"an array argument that says what dtype {error.args[0]} is",
                got=", ".join(name_of_kind(k) for k in kinds),
                fix="pass an array, or name the dtype in the parameter list",
            ) from None

    def loop(self, kinds: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (
            tuple(NAMES.index(t) for t in self._types(self.ins, kinds)),
            tuple(NAMES.index(t) for t in self._types(self.outs, kinds)),
        )

    def body(self, kinds: tuple[int, ...]) -> Body:
        ins, outs = self._types(self.ins, kinds), self._types(self.outs, kinds)
        # Inputs by value, results as local variables of their working type.
        names = [
            f"const {WORKING[t]} {name} = a{i};"
            for i, (t, (_, name)) in enumerate(zip(ins, self.ins, strict=True))
        ]
        names += [f"{WORKING[t]} {name};" for t, (_, name) in zip(outs, self.outs, strict=True)]
        names += [f"typedef {WORKING[t]} {kind};" for kind, t in self._letters(kinds).items()]
        stores = " ".join(f"o{j} = {name};" for j, (_, name) in enumerate(self.outs))
        declared = " ".join(names)
        text = f'{{ {declared}\n#line 1 "{self.name}"\n{self.text};\n#line 1 "stores"\n{stores} }}'
        return Body(f"user_{self.name}", ins, outs, text, self.preamble)

    def host(self, inputs: list[Any], results: list[Any], kinds: tuple[int, ...]) -> None:
        if self.numpy is None:
            raise DeviceError(
                where=self.name,
                expected="arrays on a CUDA device, because the kernel is CUDA text",
                got="arrays on cpu",
                fix="pass host=, a function of NumPy arrays that computes the same",
            )
        ins = self._types(self.ins, kinds)
        found = self.numpy(*(np.asarray(x).astype(t) for x, t in zip(inputs, ins, strict=True)))
        for out, value in zip(results, found if self.results > 1 else (found,), strict=True):
            out[...] = value


class ElementwiseKernel:
    """A CUDA C++ expression for single elements, over arrays of any strides that broadcast.

    Parameters
    ----------
    inputs, outputs : declarations, "float32 x, T y": a dtype's or C's name, or a capital letter for
        any dtype, the same wherever the letter stands.
    operation : statements that set the outputs from the inputs; small floats are floats here.
    name : of the kernel in profiles and messages.
    preamble : functions that the operation calls.
    host : a function of NumPy arrays that computes the same on device "cpu".

    Examples
    --------
    >>> import gpuinterop
    >>> axpy = gpuinterop.ElementwiseKernel(
    ...     "float32 a, float32 x, float32 y", "float32 z", "z = a * x + y", "axpy",
    ...     host=lambda a, x, y: a * x + y)
    >>> x = gpuinterop.asarray([1.0, 2.0], device="cpu")
    >>> axpy(2.0, x, x).tolist()
    [3.0, 6.0]
    """

    def __init__(
        self,
        inputs: str,
        outputs: str,
        operation: str,
        name: str = "kernel",
        preamble: str = "",
        host: Callable[..., Any] | None = None,
    ) -> None:
        if not name.isidentifier() or not name.isascii():
            raise ArgumentTypeError(where="ElementwiseKernel", expected="a name of letters and digits",
                                    got=repr(name), fix="choose another")  # fmt: skip
        ins, outs = _parameters(inputs, name), _parameters(outputs, name)
        self.name = name
        self._operation = add_traced(
            _Expression(name, ins, outs, operation.strip().rstrip(";"), preamble, host)
        )[1]

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Run it; returns new C-ordered arrays, or `out`."""
        return self._operation(*args) if out is None else self._operation(*args, out=out)


# Kernel text may take arrays with their strides: gpuinterop_strided<float, 2> x, then x(i, j).
_STRIDED = """\
template <class T, int N> struct gpuinterop_strided {
  T* data; long long shape[N], strides[N];
  template <class... I> __device__ T& operator()(I... index) const {
    const long long at[N] = {(long long)index...}; long long offset = 0;
    for (int d = 0; d < N; ++d) offset += at[d] * strides[d];
    return data[offset];
  }
};
#line 1 "%s"
"""


class Strided:
    """An array as a kernel's argument together with its shape and its strides in elements."""

    def __init__(self, array: _core.Array) -> None:
        self.array = array


def strided(array: _core.Array) -> Strided:
    """Pass `array` to a `RawKernel` as ``gpuinterop_strided<T, ndim>``, without copying it."""
    if array.ndim == 0:
        raise ArgumentTypeError(where="strided", expected="an array of at least one dimension",
                                got=type(array).__name__, fix="pass x.reshape(1)")  # fmt: skip
    return Strided(array)


class RawKernel:
    """A kernel from a whole CUDA C++ text, such as one written for PyCUDA's SourceModule.

    The text is compiled by NVRTC on the first launch, and kept in the cache. The kernel must be
    declared ``extern "C" __global__``.

    Parameters
    ----------
    source : the text; it finds no headers.
    name : the kernel in it.
    options : further options for NVRTC.
    """

    def __init__(self, source: str, name: str, options: Sequence[str] = ()) -> None:
        self.source, self.name, self.options = source, name, tuple(options)
        self._loaded: dict[int, _core.LoadedKernel] = {}

    def compile(self, arch: int) -> bytes:
        """Return machine code for a compute capability times ten; CompileError shows the line."""
        file = f"{self.name}.cu"
        text = _STRIDED % file + self.source
        return compile_source(text, arch, options=self.options, name=file)

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], *args: Any, shared: int = 0
    ) -> None:
        """Queue a launch on the current stream.

        Arrays are passed as the address of their first element, wrapped by `strided` with their
        strides. Numbers must have a size: ``numpy.float32(0.5)``, not ``0.5``.
        """
        packed = [self._pack(a) for a in args]
        used = [a.array if isinstance(a, Strided) else a for a in args]
        arrays = [a for a in used if isinstance(a, _core.Array)]
        if not arrays or arrays[0].device.type != "cuda":
            raise DeviceError(where=self.name, expected="arrays on a CUDA device",
                              got="none" if not arrays else str(arrays[0].device),
                              fix="move them: x.to_device('cuda')")  # fmt: skip
        device = arrays[0].device.index
        kernel = self._loaded.get(device)
        if kernel is None:
            code = self.compile(_core._compute_capability(device))
            code = code if code.startswith(b"\x7fELF") else code + b"\0"
            kernel = self._loaded[device] = _core._load_kernel(device, code, self.name)
        kernel.launch(grid, block, shared, packed, arrays)

    def _pack(self, value: Any) -> bytes:
        if isinstance(value, _core.Array):
            return struct.pack("Q", value.ptr)
        if isinstance(value, Strided):
            a, size = value.array, value.array.itemsize
            steps = [s // size for s in a.strides]
            return struct.pack(f"Q{2 * a.ndim}q", a.ptr, *a.shape, *steps)
        if isinstance(value, np.generic):
            return np.asarray(value, dtype_of(row_of(value.dtype))).tobytes()
        raise ArgumentTypeError(
            where=self.name,
            expected="arrays, strided arrays, and numbers of a certain size",
            got=type(value).__name__,
            fix=f"say which: numpy.int32({value!r})"
            if isinstance(value, int)
            else "wrap it in a NumPy type",
        )
