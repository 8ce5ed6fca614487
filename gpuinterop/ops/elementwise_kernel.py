"""Kernels of one's own from an expression over elements."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.dtypes import NAMES
from gpuinterop.errors import ArgumentTypeError, DeviceError, DTypeError, ShapeError
from gpuinterop.jit.codegen import NAMESPACE, STORAGE, WORKING
from gpuinterop.jit.spec import Body

from .core_callbacks import CustomOperation, add_operation
from .dtype_promotion import name_of_kind, row_of_kind
from .kernel_parameters import (
    numbers_as_arrays,
    require_held_numbers,
    require_safe_arrays,
    require_text,
)

__all__ = ["ElementwiseKernel"]

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


def _working(dtype: str) -> str:
    """The type that an element is computed in, as text outside of the library's own names it."""
    name = WORKING[dtype]
    return name if name in ("bool", "float", "double") else f"{NAMESPACE}::{name}"


class _Expression(CustomOperation):
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
            name = NAMES[row_of_kind(given)]
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
        function = f"GI_FN void user_{self.name}_element"
        types = [f"const {_working(t)}" for t in ins] + [f"{_working(t)}&" for t in outs]
        named = (name for _, name in (*self.ins, *self.outs))
        parameters = ", ".join(map(" ".join, zip(types, named, strict=True)))
        letters = " ".join(f"typedef {_working(t)} {k};" for k, t in self._letters(kinds).items())
        # A comment would hide what follows it in the line.
        end = "\n;" if "//" in self.text.rpartition("\n")[2] else ";"
        declared = f"{function}({', '.join(types)});"
        defined = (
            f'#line 1 "{self.name}.preamble"\n{self.preamble}\n'
            f'#line 1 "{self.name}.parameters"\n{function}({parameters}) {{ {letters}\n'
            f'#line 1 "{self.name}"\n{self.text}{end}\n#line 1 "end"\n}}'
        )
        given = [f"a{i}" for i in range(len(ins))] + [f"o{j}" for j in range(len(outs))]
        call = f"user_{self.name}_element({', '.join(given)});"
        return Body(f"user_{self.name}", ins, outs, call, declared, defined, once=True)

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
        if not require_text(name, "name", where).isidentifier() or not name.isascii():
            raise ArgumentTypeError(where="ElementwiseKernel", expected="a name of letters and digits",
                                    got=repr(name), fix="choose another")  # fmt: skip
        require_text(operation, "operation", where)
        require_text(preamble, "preamble", where)
        ins = _parameters(require_text(inputs, "inputs", where), name)
        outs = _parameters(require_text(outputs, "outputs", where), name)
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
        self._operation = add_operation(
            _Expression(name, ins, outs, operation.strip().rstrip(";"), preamble, host)
        )[1]

    def __repr__(self) -> str:
        ins, outs = (", ".join(map(" ".join, declared)) for declared in self._declared)
        return f"<ElementwiseKernel {self.name}({ins}) -> {outs}>"

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Run it; returns new C-ordered arrays, or `out`."""
        arrays = [isinstance(value, _core.Array) for value in args]
        if False in arrays:
            require_held_numbers(self.name, self._declared[0], args)
        if True not in arrays:
            args = numbers_as_arrays(self.name, self._declared[0], args)
            return self._operation(*args, out=out)
        return self._operation(*args, out=out)
