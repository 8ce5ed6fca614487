"""Kernels of one's own: an expression over elements, or a whole CUDA C++ text."""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import NAMES, dtype_of, row_of
from gpuinterop.errors import (
    ArgumentTypeError,
    ContiguityError,
    DeviceError,
    DTypeError,
    ShapeError,
)
from gpuinterop.geometry import real
from gpuinterop.jit import compile_source
from gpuinterop.jit.codegen import STORAGE, WORKING
from gpuinterop.jit.spec import Body

from .kernel_arguments import require_held_numbers, require_safe_arrays
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


def _text(value: Any, what: str, where: str) -> str:
    if not isinstance(value, str):
        raise ArgumentTypeError(where=where, expected=f"text as {what}", got=repr(value),
                                fix="pass a str")  # fmt: skip
    return value


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
        ins, outs = self._types(self.ins, kinds), self._types(self.outs, kinds)
        require_safe_arrays(self.name, self.ins, ins, kinds)
        return tuple(NAMES.index(t) for t in ins), tuple(NAMES.index(t) for t in outs)

    def body(self, kinds: tuple[int, ...]) -> Body:
        ins, outs = self._types(self.ins, kinds), self._types(self.outs, kinds)
        # A function of its own: the text sees the declared names, and none of the generator's.
        named = zip((*ins, *outs), (*self.ins, *self.outs), strict=True)
        parameters = ", ".join(
            f"const {WORKING[t]} {name}" if i < len(ins) else f"{WORKING[t]}& {name}"
            for i, (t, (_, name)) in enumerate(named)
        )
        types = " ".join(f"typedef {WORKING[t]} {k};" for k, t in self._letters(kinds).items())
        function = (
            f"{self.preamble}\nGI_FN void user_{self.name}_element({parameters}) {{ {types}\n"
            f'#line 1 "{self.name}"\n{self.text};\n#line 1 "end"\n}}'
        )
        given = [f"a{i}" for i in range(len(ins))] + [f"o{j}" for j in range(len(outs))]
        call = f"user_{self.name}_element({', '.join(given)});"
        return Body(f"user_{self.name}", ins, outs, call, function, once=True)

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
        for out, value in zip(results, self._returned(found), strict=True):
            try:
                out[...] = np.asarray(value).astype(out.dtype, copy=False)
            except (TypeError, ValueError):
                raise ShapeError(
                    where=self.name, expected=f"numbers of shape {out.shape} from host=",
                    got=f"{type(value).__name__} of shape {np.shape(value)}",
                    fix="return an array for each output, of the inputs' broadcast shape",
                ) from None  # fmt: skip

    def _returned(self, found: Any) -> tuple[Any, ...]:
        """What host= gave, one value for each output."""
        rows = self.results > 1 and isinstance(found, np.ndarray) and found.ndim > 1
        values = tuple(found) if rows or isinstance(found, (tuple, list)) else (found,)
        if len(values) == self.results and not any(value is None for value in values):
            return values
        got = type(found).__name__
        if isinstance(found, (tuple, list)):
            got += f" of {', '.join(type(value).__name__ for value in values) or 'nothing'}"
        one = self.results == 1
        raise ArgumentTypeError(
            where=self.name,
            expected="an array from host="
            if one
            else f"a tuple of {self.results} arrays from host=",
            got=got,
            fix=f"return {', '.join(name for _, name in self.outs)}",
        )


class ElementwiseKernel:
    """A CUDA C++ expression for single elements, over arrays of any strides that broadcast.

    Parameters
    ----------
    inputs, outputs : declarations, "float32 x, T y": a dtype's or C's name, or a capital letter for
        any dtype, the same wherever the letter stands. An array must be of the declared dtype or of
        one that NumPy casts safely to it; numbers follow the rule of `asarray`.
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
        where = "ElementwiseKernel"
        if not _text(name, "name", where).isidentifier() or not name.isascii():
            raise ArgumentTypeError(where="ElementwiseKernel", expected="a name of letters and digits",
                                    got=repr(name), fix="choose another")  # fmt: skip
        _text(operation, "operation", where)
        _text(preamble, "preamble", where)
        ins = _parameters(_text(inputs, "inputs", where), name)
        outs = _parameters(_text(outputs, "outputs", where), name)
        names = [parameter for _, parameter in ins + outs]
        if not ins or not outs or len(set(names)) != len(names):
            raise ArgumentTypeError(
                where=where,
                expected="at least one input and one output, each with a name of its own",
                got=f"inputs {inputs!r} and outputs {outputs!r}",
                fix="declare for example 'float32 x' and 'float32 y'",
            )
        if host is not None and not callable(host):
            raise ArgumentTypeError(where=where, expected="a function of NumPy arrays as host",
                                    got=repr(host), fix="pass a function, or leave it out")  # fmt: skip
        self.name, self._declared = name, (ins, outs)
        self._operation = add_traced(
            _Expression(name, ins, outs, operation.strip().rstrip(";"), preamble, host)
        )[1]

    def __repr__(self) -> str:
        ins, outs = (", ".join(map(" ".join, declared)) for declared in self._declared)
        return f"<ElementwiseKernel {self.name}({ins}) -> {outs}>"

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Run it; returns new C-ordered arrays, or `out`."""
        require_held_numbers(self.name, self._declared[0], args)
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

    def __init__(self, array: Any) -> None:
        self.array = array


def strided(array: Any) -> Strided:
    """Pass `array` to a `RawKernel` as ``gpuinterop_strided<T, ndim>``, without copying it."""
    if not isinstance(array, _core.Array):
        raise ArgumentTypeError(where="strided", expected="an array of this library",
                                got=type(array).__name__,
                                fix="share it first: gpuinterop.asarray(x)")  # fmt: skip
    array = real(array)
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
    any_strides : the kernel finds its way in arrays of any strides, which it is told as numbers.
    """

    def __init__(
        self, source: str, name: str, options: Sequence[str] = (), *, any_strides: bool = False
    ) -> None:
        if isinstance(options, str) or not all(isinstance(o, str) for o in options):
            raise ArgumentTypeError(where="RawKernel", expected="a sequence of texts as options",
                                    got=repr(options), fix="pass for example ('-lineinfo',)")  # fmt: skip
        self.source = _text(source, "source", "RawKernel")
        self.name = _text(name, "name", "RawKernel")
        self.options, self.any_strides = tuple(options), any_strides
        self._loaded: dict[int, _core.LoadedKernel] = {}

    def __repr__(self) -> str:
        lines = self.source.count("\n") + 1
        return f"<RawKernel {self.name} of {lines} line{'s'[: lines > 1]} of CUDA C++>"

    def compile(self, arch: int) -> bytes:
        """Return machine code for a compute capability times ten; CompileError shows the line.

        It is PTX, which drivers translate, for a capability that is newer than the compiler.
        """
        if isinstance(arch, bool) or not isinstance(arch, (int, np.integer)):
            raise ArgumentTypeError(where=f"{self.name}.compile", got=repr(arch),
                                    expected="a compute capability times ten, as an int",
                                    fix="compile(90) is for capability 9.0, sm_90")  # fmt: skip
        return self._compiled(int(arch), fresh=False)

    def _compiled(self, arch: int, fresh: bool) -> bytes:
        file = f"{self.name}.cu"
        text = _STRIDED % file + self.source
        return compile_source(text, arch, options=self.options, name=file, fresh=fresh)

    def __call__(
        self, *args: Any, grid: Any = None, block: Any = None, shared: Any = 0, **unknown: Any
    ) -> None:
        """Queue a launch on the current stream: ``kernel(grid, block, *arguments)``.

        The arguments may also come as one tuple, or grid and block by name. Arrays are passed as the
        address of their first element, so they must be C-contiguous; those wrapped by `strided` go
        with their strides, whatever these are. Numbers must have a size: ``numpy.float32(0.5)``, not
        ``0.5``.
        """
        if unknown:
            raise ArgumentTypeError(where=self.name, expected="the keywords grid, block and shared",
                                    got=", ".join(sorted(unknown)),
                                    fix="choose a stream by: with stream: ...")  # fmt: skip
        if grid is None and block is None and len(args) >= 2:
            grid, block, *args = args  # type: ignore[assignment]
        if grid is None or block is None:
            raise ArgumentTypeError(where=self.name, expected="a grid and a block",
                                    got="none", fix="call kernel(grid, block, *arguments)")  # fmt: skip
        if len(args) == 1 and isinstance(args[0], (tuple, list)):
            args = tuple(args[0])
        extents = self._extents(grid, "grid"), self._extents(block, "block")
        if isinstance(shared, bool) or not isinstance(shared, int) or not 0 <= shared < 1 << 31:
            raise ArgumentTypeError(where=self.name, expected="bytes of shared memory, 0 to 2^31 - 1",
                                    got=repr(shared), fix="pass an int")  # fmt: skip
        arrays: list[Any] = []
        packed = [self._pack(a, arrays) for a in args]
        if not arrays or arrays[0].device.type != "cuda":
            raise DeviceError(where=self.name, expected="arrays on a CUDA device",
                              got="none" if not arrays else str(arrays[0].device),
                              fix="move them: x.to_device('cuda')")  # fmt: skip
        device = arrays[0].device.index
        kernel = self._loaded.get(device)
        if kernel is None:
            arch = _core._compute_capability(device)
            kernel = _core._load_kernel(
                device, lambda fresh: self._compiled(arch, fresh), self.name
            )
            self._loaded[device] = kernel
        kernel.launch(*extents, shared, packed, arrays)

    def _extents(self, value: Any, what: str) -> tuple[int, ...]:
        given = value if isinstance(value, (tuple, list)) else (value,)
        try:
            return tuple(map(operator.index, given))
        except TypeError:
            raise ArgumentTypeError(
                where=self.name,
                expected=f"a {what} of one to three ints",
                got=repr(value),
                fix="call kernel((blocks,), (threads,), *arguments)",
            ) from None

    def _pack(self, value: Any, arrays: list[Any]) -> bytes:
        """The argument's bytes; an array joins `arrays`, as the library's own class knows it."""
        if isinstance(value, _core.Array):
            array = real(value)
            if not (self.any_strides or array.is_c_contiguous()):
                raise ContiguityError(
                    where=self.name,
                    expected="C-contiguous arrays: a kernel gets nothing but their address",
                    got=f"shape {array.shape} with strides {array._strides} (elements)",
                    fix="pass gpuinterop.strided(x) to a kernel that takes gpuinterop_strided, a copy "
                    "(x.copy()), or make the kernel with any_strides=True",
                )
            arrays.append(array)
            return struct.pack("Q", array.ptr)
        if isinstance(value, Strided):
            array = value.array
            arrays.append(array)
            return struct.pack(f"Q{2 * array.ndim}q", array.ptr, *array.shape, *array._strides)
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
