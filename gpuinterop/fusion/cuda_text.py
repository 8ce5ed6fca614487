"""CUDA C++ text over single elements, as one operation of an expression."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpuinterop.arrays.dtypes import NAMES, dtype_from_id, is_complex
from gpuinterop.elementwise.codegen import STORAGE, WORKING
from gpuinterop.elementwise.promotion import STRONG_NUMBER, Loop, id_of_code, name_of_code
from gpuinterop.errors import ArgumentTypeError, DeviceError, DTypeError, ShapeError, short_repr
from gpuinterop.jit.compiler import require_text
from gpuinterop.jit.texts import NAMESPACE

_C_NAMES = {
    "float": "float32", "double": "float64", "char": "int8", "short": "int16", "int": "int32",
    "long long": "int64", "unsigned char": "uint8", "unsigned short": "uint16",
    "unsigned int": "uint32", "unsigned long long": "uint64", "half": "float16",
}  # fmt: skip
_PARAMETER = re.compile(r"^(?:const )?(?P<type>[A-Za-z_][\w ]*?) +(?P<name>[A-Za-z_]\w*)$")

Parameter = tuple[str, str]  # a dtype name or a single capital letter; the parameter's name


def _parameters(text: str, where: str) -> list[Parameter]:
    parameters = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _PARAMETER.match(" ".join(part.split()))
        c_type = _C_NAMES.get(match["type"], match["type"]) if match else ""
        if not match or not (
            (c_type in STORAGE and c_type in NAMES) or re.fullmatch("[A-Z]", c_type)
        ):
            raise ArgumentTypeError(
                where=where,
                expected="parameters such as 'float32 x, T y', T standing for any dtype",
                got=short_repr(part),
                fix=f"write one of {', '.join(NAMES[:15])} or a capital letter, then a name",
            )
        parameters.append((c_type, match["name"]))
    return parameters


def _working(dtype: str) -> str:
    """Return the type in which an element is computed, for text outside the generator's namespace."""
    name = WORKING[dtype]
    return name if name in ("bool", "float", "double") else f"{NAMESPACE}::{name}"


class CudaText:
    """CUDA statements that set the outputs from the inputs, for one element.

    Parameters
    ----------
    inputs, outputs : declarations such as "float32 x, T y": the name of a dtype or a C type, or a
        capital letter for any dtype.
    operation : the statements.
    name : of the operation in messages and profiles.
    preamble : functions that the statements call.
    host : a function that computes the same on device "cpu"; see ElementwiseKernel.

    Examples
    --------
    >>> from gpuinterop.fusion.cuda_text import CudaText
    >>> CudaText("T x, T y", "T z", "z = x * y").inputs
    2
    """

    compares = False

    def __init__(
        self,
        inputs: str,
        outputs: str,
        operation: str,
        name: str = "kernel",
        preamble: str = "",
        host: Callable[..., Any] | None = None,
        *,
        where: str = "CudaText",
    ) -> None:
        if not require_text(name, "name", where).isidentifier() or not name.isascii():
            raise ArgumentTypeError(where=where, expected="a name of letters and digits",
                                    got=short_repr(name), fix="pass a name such as 'axpy'")  # fmt: skip
        self.name = name
        self.text = require_text(operation, "operation", where).strip().rstrip(";")
        self.preamble = require_text(preamble, "preamble", where)
        self.ins = _parameters(require_text(inputs, "inputs", where), name)
        self.outs = _parameters(require_text(outputs, "outputs", where), name)
        self.inputs, self.results = len(self.ins), len(self.outs)
        names = {parameter for _, parameter in (*self.ins, *self.outs)}
        if not self.ins or not self.outs or len(names) != self.inputs + self.results:
            raise ArgumentTypeError(
                where=where,
                expected="at least one input and one output, with different names",
                got=f"inputs {inputs!r} and outputs {outputs!r}",
                fix="declare for example 'float32 x' and 'float32 y'",
            )
        if host is not None and not callable(host):
            raise ArgumentTypeError(where=where, expected="a function of NumPy arrays as host",
                                    got=short_repr(host), fix="pass a function, or omit host=")  # fmt: skip
        self.host = host

    def __repr__(self) -> str:
        ins, outs = (", ".join(map(" ".join, declared)) for declared in (self.ins, self.outs))
        return f"{self.name}({ins}) -> {outs}"

    # ---- dtypes -----------------------------------------------------------------------------

    def loop(self, codes: Sequence[int]) -> Loop:
        """Return the dtypes of the inputs and the outputs, for operands of these type codes."""
        letters = self._letters(codes)
        ins, outs = (self._types(declared, letters, codes) for declared in (self.ins, self.outs))
        for (_, name), dtype, code in zip(self.ins, ins, codes, strict=True):
            # Other operands are numbers, which are checked by their value.
            if 0 <= code < STRONG_NUMBER and not np.can_cast(
                dtype_from_id(code), dtype_from_id(NAMES.index(dtype)), "safe"
            ):
                raise DTypeError(
                    where=self.name,
                    expected=f"for {name} an array of a dtype that NumPy casts safely to {dtype}",
                    got=NAMES[code],
                    fix=f"cast it: {name}.astype({dtype!r}), or declare {name} as {NAMES[code]}",
                )
        return tuple(map(NAMES.index, ins)), tuple(map(NAMES.index, outs))

    def _letters(self, codes: Sequence[int]) -> dict[str, str]:
        letters: dict[str, str] = {}
        for (c_type, _), code in zip(self.ins, codes, strict=True):
            if len(c_type) > 1 or code < 0:
                continue
            name = NAMES[id_of_code(code)]
            if letters.setdefault(c_type, name) != name:
                raise DTypeError(
                    where=self.name,
                    expected=f"one dtype for all parameters of type {c_type}",
                    got=f"{letters[c_type]} and {name}",
                    fix="cast one operand: x.astype(...)",
                )
        return letters

    def _types(
        self, declared: Sequence[Parameter], letters: dict[str, str], codes: Sequence[int]
    ) -> tuple[str, ...]:
        try:
            return tuple(c_type if len(c_type) > 1 else letters[c_type] for c_type, _ in declared)
        except KeyError as error:
            raise DTypeError(
                where=self.name,
                expected=f"an array argument that determines the dtype {error.args[0]}",
                got=", ".join(name_of_code(k) for k in codes),
                fix="pass an array, or name the dtype in the parameter list",
            ) from None

    # ---- CUDA -------------------------------------------------------------------------------

    def function(self, symbol: str, codes: Sequence[int]) -> tuple[str, str]:
        """Return the declaration and the definition of a device function that contains the text.

        In this function the text can use the declared names, and no name of the generated code.
        """
        ins, outs = ([NAMES[type_id] for type_id in type_ids] for type_ids in self.loop(codes))
        types = [f"const {_working(t)}" for t in ins] + [f"{_working(t)}&" for t in outs]
        names = [name for _, name in (*self.ins, *self.outs)]
        parameters = ", ".join(map(" ".join, zip(types, names, strict=True)))
        letters = " ".join(f"typedef {_working(t)} {k};" for k, t in self._letters(codes).items())
        # A comment would hide the text that follows it in the line.
        end = "\n;" if "//" in self.text.rpartition("\n")[2] else ";"
        return (
            f"GI_FN void {symbol}({', '.join(types)});",
            f'#line 1 "{self.name}.preamble"\n{self.preamble}\n'
            f'#line 1 "{self.name}.parameters"\nGI_FN void {symbol}({parameters}) {{ {letters}\n'
            f'#line 1 "{self.name}"\n{self.text}{end}\n#line 1 "end"\n}}',
        )

    # ---- NumPy ------------------------------------------------------------------------------

    def on_host(self, outs: Sequence[int]) -> Callable[..., tuple[Any, ...]]:
        """Return the function of NumPy arrays of one shape that computes the outputs, of these dtypes."""
        if self.host is None:
            raise DeviceError(
                where=self.name,
                expected="arrays on a CUDA device, because the kernel is CUDA text",
                got="arrays on cpu",
                fix="pass host=, a function of NumPy arrays that computes the same",
            )
        dtypes = [dtype_from_id(type_id) for type_id in outs]
        # The core keeps the returned function, and `host` may refer to the kernel. Calls and captures keep the text.
        owner: Any = weakref.ref(self)

        def run(*arrays: Any) -> tuple[Any, ...]:
            text = owner()
            for values in arrays:
                values.flags.writeable = False
            return host_results(
                text.name, text.host(*arrays), arrays[0].shape, dtypes, ", that of the block,"
            )

        return run


def host_results(
    where: str, value: Any, shape: tuple[int, ...], dtypes: Sequence[np.dtype[Any]], whose: str = ""
) -> tuple[Any, ...]:
    """Return the result of a user's host= as an array for each output."""
    single = len(dtypes) == 1 and not isinstance(value, (tuple, list))
    try:
        arrays = (value,) if single else tuple(value)
        if len(arrays) != len(dtypes):
            raise ValueError(f"{len(arrays)} items")
        pairs = zip(arrays, dtypes, strict=True)
        if all(type(x) is np.ndarray and x.dtype == t and x.shape == shape for x, t in pairs):
            return arrays
        if any(np.ma.is_masked(x) for x in arrays):
            raise TypeError("an array with masked elements")
        values = [np.asarray(x) for x in arrays]
        if any(x.dtype == object for x in values):  # for example None, which NumPy converts to nan
            raise TypeError("an array of objects")
        for x, dtype in zip(values, dtypes, strict=True):
            if x.dtype != dtype and is_complex(x.dtype) and not is_complex(dtype):
                raise TypeError(f"an array of {x.dtype} for an output of {dtype}")
        if wrong := [x.shape for x in values if x.shape != shape]:
            raise TypeError(f"an array of shape {wrong[0]}")
        return tuple(x.astype(dtype, copy=False) for x, dtype in zip(values, dtypes, strict=True))
    except (TypeError, ValueError) as error:
        raise ShapeError(
            where=where,
            expected=f"{len(dtypes)} array{'s' * (len(dtypes) != 1)} of numbers of shape {shape}{whose} from host=",
            got=f"{type(value).__name__}: {error}",
            fix="return an array of this shape for each output, of dtype "
            f"{', '.join(str(dtype) for dtype in dtypes)}, several as a tuple",
        ) from None  # fmt: skip
