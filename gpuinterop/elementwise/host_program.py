"""Programs of inner loops, which compute an operation in host memory.

A program is a list of steps over values. Each step is an inner loop of a NumPy ufunc, a cast, a choice between
two values, or a call of Python. The core runs the steps block by block (native/elementwise/host_program.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import NAMES, NUMPY_NAMES, dtype_from_id
from gpuinterop.arrays.numpy_views import as_numpy_view
from gpuinterop.arrays.scalars import cast_once, element_words

from .promotion import is_extended, letter_of, loop_dtypes
from .table import Row

_BOOL, _FLOAT32, _FLOAT64, _BFLOAT16 = (
    NAMES.index(name) for name in ("bool", "float32", "float64", "bfloat16")
)
# NumPy has two integer types of 8 bytes, and loops of comparisons for only one of them.
_LETTERS = {
    NAMES.index(name): [np.dtype(name).char, *({"int64": "lq", "uint64": "LQ"}.get(name, ""))]
    for name in NUMPY_NAMES
}
# The core adds these to accumulators of other dtypes, without a cast.
_SUMS = {
    NAMES.index(name): NAMES.index(total)
    for total, names in (
        ("int64", ("bool", "int8", "int16", "int32")),
        ("uint64", ("uint8", "uint16", "uint32")),
        ("float64", ("float32",)),
    )
    for name in names
}
# The ufunc of np.clip is private. maximum and minimum give the same results, slowly with a number.
_CLIP: Any = getattr(np._core.umath, "clip", None)  # type: ignore[attr-defined]


@dataclass(eq=False)
class HostValue:
    """An operand, a constant, or the result of a step."""

    dtype: int
    number: Any = None  # of a constant
    register: int = -1  # once the program is finished


class Step(NamedTuple):
    """A step, which the core reads by these names (read_program in native/elementwise/host_program.cpp).

    Attributes
    ----------
    owner : the ufunc of the loop, a Python function of core arrays, or None for a loop of the core.
    loop : the loop's index among those of the ufunc; its name (own_loop in native/elementwise/host_loops.hpp);
        None for a Python function.
    squares : whether a single exponent of 2 squares, as for NumPy's operator.
    """

    owner: Any
    loop: int | str | None
    inputs: tuple[HostValue, ...]
    outputs: tuple[HostValue, ...]
    squares: bool = False


class HostProgram:
    """A program while it is built: steps over the inputs of these dtypes."""

    def __init__(self, inputs: Sequence[int]) -> None:
        self.inputs = [HostValue(dtype) for dtype in inputs]
        self._steps: list[Step] = []
        self._constants: dict[Any, HostValue] = {}

    def constant(self, number: Any, dtype: int) -> HostValue:
        """Return a number as a value, rounded to the dtype."""
        with np.errstate(all="ignore"):
            element = cast_once(np.array(number), dtype_from_id(dtype))
        return self._constants.setdefault(
            (dtype, element.tobytes()), HostValue(dtype, number=element)
        )

    def _step(
        self, owner: Any, loop: int | str | None, inputs: Sequence[HostValue], dtypes: Sequence[int],
        squares: bool = False,
    ) -> tuple[HostValue, ...]:  # fmt: skip
        outputs = tuple(HostValue(dtype) for dtype in dtypes)
        self._steps.append(Step(owner, loop, tuple(inputs), outputs, squares))
        return outputs

    def own(self, loop: str, *operands: HostValue, dtype: int) -> HostValue:
        """Return the result, of this dtype, of a loop of the core."""
        return self._step(None, loop, operands, (dtype,))[0]

    def cast(self, value: HostValue, dtype: int, *, copy: bool = False) -> HostValue:
        """Return the value in another dtype."""
        if value.number is not None and not copy:
            return self.constant(value.number, dtype)
        if value.dtype == dtype and not copy:
            return value
        if value.dtype == dtype or max(value.dtype, dtype) <= _BFLOAT16:
            return self.own("cast", value, dtype=dtype)
        return self.call(partial(cast_once, dtype=dtype_from_id(dtype)), (value,), (dtype,))[0]

    def loop(
        self, ufunc: np.ufunc, operands: Sequence[HostValue], dtypes: Sequence[int]
    ) -> tuple[HostValue, ...]:
        """Return the results, of these dtypes, of a ufunc's loop for the dtypes of the operands."""
        index = _loop_index(ufunc, tuple(o.dtype for o in operands), tuple(dtypes))
        if index is None:
            return self.call(ufunc, operands, dtypes)
        squares = ufunc is np.power and dtypes[0] in (_FLOAT32, _FLOAT64)
        return self._step(ufunc, index, operands, dtypes, squares)

    def choose(self, condition: HostValue, x: HostValue, y: HostValue) -> HostValue:
        """Return x where the condition is true, y elsewhere."""
        return self.own("choose", condition, x, y, dtype=x.dtype)

    def call(
        self, function: Callable[..., Any], operands: Sequence[HostValue], dtypes: Sequence[int]
    ) -> tuple[HostValue, ...]:
        """Return the results of a Python function of NumPy arrays, in these dtypes."""
        # The arrays that the function receives own their memory: an operand's owner might release its memory.
        inside = {id(output) for step in self._steps for output in step.outputs}
        args = [o if id(o) in inside else self.cast(o, o.dtype, copy=True) for o in operands]
        return self._step(_caller(function, len(args)), None, args, dtypes)

    def finish(
        self, results: Sequence[HostValue], dtypes: Sequence[int], in_place: bool
    ) -> _core.HostProgram:
        """Return the program, in the core's form, that stores the results in arrays of these dtypes.

        `in_place`: the results may have the same addresses as the inputs, so they are stored after the
        inputs have been read.
        """
        values = [self.cast(value, dtype) for value, dtype in zip(results, dtypes, strict=True)]
        reads = [i for i, step in enumerate(self._steps) if set(step.inputs) & set(self.inputs)]
        # Python functions read and write only temporaries.
        in_python = {v for step in self._steps if step.loop is None
                     for v in (*step.inputs, *step.outputs)}  # fmt: skip
        made_by = {
            output: i for i, step in enumerate(self._steps) for output in step.outputs
            if output not in in_python
        }  # fmt: skip
        last_read = max(reads, default=-1) if in_place else -1
        places: dict[HostValue, int] = {value: i for i, value in enumerate(self.inputs)}
        stores = [i for i, value in enumerate(values)
                  if made_by.get(value, -2) < last_read or value not in made_by
                  or value in values[:i]]  # fmt: skip
        if in_place and any(values[i] in self.inputs for i in stores):
            # The store of an input must not follow the store of a result at the same address.
            stores = list(range(len(values)))
            values = [self.cast(v, v.dtype, copy=True) if v in self.inputs else v for v in values]
        for i, value in enumerate(values):
            if i in stores:
                values[i] = self.cast(value, value.dtype, copy=True)
            places[values[i]] = len(self.inputs) + i
        return self._allocate(places, len(values))

    def finish_joined(self, ufunc: np.ufunc, value: HostValue, dtype: int) -> _core.HostProgram:
        """Return the program, in the core's form, that joins a value to accumulators of a dtype."""
        before = HostValue(dtype)
        if ufunc is np.add and dtype == _SUMS.get(value.dtype):
            after = self.own("add", before, value, dtype=dtype)
        else:
            (after,) = self.loop(ufunc, (before, self.cast(value, dtype)), (dtype,))
        places = {v: i for i, v in enumerate(self.inputs)}
        places[before] = places[after] = len(self.inputs)
        return self._allocate(places, 1)

    def _allocate(self, places: dict[HostValue, int], results: int) -> _core.HostProgram:
        """Give every value a register; temporaries of one dtype reuse registers that are no longer needed."""
        last_use = {value: i for i, step in enumerate(self._steps) for value in step.inputs}
        operands = len(self.inputs) + results
        temporaries: list[int] = []
        free: dict[int, list[int]] = {}
        for i, step in enumerate(self._steps):
            released = [v for v in dict.fromkeys(step.inputs)
                        if places.get(v, -1) >= operands and last_use[v] == i]  # fmt: skip
            # A loop reads an element before it writes that one, unless it has several outputs.
            if len(step.outputs) == 1:
                for value in released:
                    free.setdefault(value.dtype, []).append(places[value])
            for output in step.outputs:
                if output in places:
                    continue
                if free.get(output.dtype):
                    places[output] = free[output.dtype].pop()
                else:
                    places[output] = operands + len(temporaries)
                    temporaries.append(output.dtype)
            unused = [v for v in step.outputs if v not in last_use and places[v] >= operands]
            for value in unused + (released if len(step.outputs) > 1 else []):
                free.setdefault(value.dtype, []).append(places[value])
        constants = list(self._constants.values())
        for value in constants:
            places[value] = operands + len(temporaries) + constants.index(value)
        for value, place in places.items():
            value.register = place
        words = [element_words(value.number) for value in constants]
        return _core.HostProgram(len(self.inputs), results, temporaries, words, self._steps)


@lru_cache(maxsize=4096)
def _loop_index(ufunc: np.ufunc, ins: tuple[int, ...], outs: tuple[int, ...]) -> int | None:
    """Return the index of the loop for these dtypes, or None if the core cannot call it."""
    letters = [_LETTERS.get(dtype, []) for dtype in (*ins, *outs)]
    for found in product(*letters):
        text = f"{''.join(found[: len(ins)])}->{''.join(found[len(ins) :])}"
        if text in ufunc.types:
            index = ufunc.types.index(text)
            return index if _core._has_loop(ufunc, index) else None
    return None


def _caller(function: Callable[..., Any], inputs: int) -> Callable[..., Callable[[], None]]:
    """Return the function as a step, which takes core arrays, its operands and then its results, and returns a call."""

    def bind(*arrays: Any) -> Callable[[], None]:
        views = [as_numpy_view(x, written=True) for x in arrays]

        def run() -> None:
            with np.errstate(all="ignore"):
                returned = function(*views[:inputs])
                results = returned if isinstance(returned, tuple) else (returned,)
                for out, value in zip(views[inputs:], results, strict=True):
                    np.copyto(out, value, casting="unsafe")

        return run

    return bind


def row_program(
    row: Row, codes: tuple[int, ...], stored: Sequence[int], results: Sequence[int], in_place: bool
) -> _core.HostProgram:
    """Return the program of a row for operands of these type codes, whose elements have the dtypes `stored`."""
    program = HostProgram(stored)
    values: Sequence[HostValue] = program.inputs  # of a cast
    if row.name != "cast":
        values = row_results(program, row, values, codes)
    return program.finish(values, results, in_place)


def row_results(
    program: HostProgram, row: Row, values: Sequence[HostValue], codes: tuple[int, ...]
) -> list[HostValue]:
    """Add the steps of a row for operands of these type codes, and return its results."""
    loop = loop_dtypes(row, codes)
    ins, outs = loop if row.name == "where" else map(_loop_ids, loop)
    read = [program.cast(value, dtype) for value, dtype in zip(values, ins, strict=True)]
    results = _row_steps(program, row, read, outs)
    return [program.cast(value, dtype) for value, dtype in zip(results, loop[1], strict=True)]


def _loop_ids(dtypes: Sequence[int]) -> tuple[int, ...]:
    """Return the dtypes of NumPy's loop: float32 replaces a small type."""
    return tuple(_FLOAT32 if is_extended(dtype) else dtype for dtype in dtypes)


def _row_steps(
    program: HostProgram, row: Row, values: Sequence[HostValue], outs: Sequence[int]
) -> Sequence[HostValue]:
    if row.name == "where":
        return (program.choose(*values),)
    if row.name == "clip":
        dtypes = tuple(value.dtype for value in values)
        if _CLIP is not None and _loop_index(_CLIP, dtypes, tuple(outs)) is not None:
            return program.loop(_CLIP, values, outs)
        above = program.loop(np.maximum, values[:2], outs)
        return program.loop(np.minimum, (*above, values[2]), outs)
    letter, dtype = letter_of(values[0].dtype), values[0].dtype
    zero = program.constant(0, dtype) if letter in "iu" else None
    if row.name == "reciprocal" and zero is not None:
        # In NumPy 1 / 0 depends on the processor. gpuinterop returns 0 on both devices.
        (is_zero,) = program.loop(np.equal, (values[0], zero), (_BOOL,))
        divisor = program.choose(is_zero, program.constant(1, dtype), values[0])
        (quotient,) = program.loop(np.reciprocal, (divisor,), outs)
        return (program.choose(is_zero, zero, quotient),)
    if row.name == "power" and letter in "iu":
        # Negative exponents give the same results as in a kernel.
        return (program.own("power", *values, dtype=dtype),)
    if letter == "c" and row.name in _COMPLEX:
        return program.call(_COMPLEX[row.name], values, outs)
    if isinstance(row.numpy, np.ufunc):
        return program.loop(row.numpy, values, outs)
    if row.name in ("rsqrt", "sigmoid", "softplus"):
        return (_formula(program, row.name, values[0]),)
    wide = [program.cast(value, _FLOAT64) for value in values]
    if row.numpy is None:
        return (program.own(row.name, *wide, dtype=_FLOAT64),)
    return program.call(row.numpy, wide, (_FLOAT64,) * len(outs))


def _complex_expm1(z: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return exp(z) - 1. NumPy's loop has NaN where a part is infinite."""
    x, y = z.real, z.imag
    out: np.ndarray[Any, Any] = np.exp(z)
    out.real -= 1  # of the part alone: a difference of complex numbers loses the sign of a zero
    finite = np.isfinite(x) & np.isfinite(y)
    out.real[finite] = (np.expm1(x) * np.cos(y) - 2 * np.square(np.sin(y / 2)))[finite]
    real = y == 0
    out.real[real], out.imag[real] = np.expm1(x)[real], y[real]
    return out


def _complex_log1p(z: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return log(1 + z). NumPy's loop loses the digits of small numbers."""
    x, y = z.real, z.imag
    sum_ = z.copy()
    sum_.real += 1  # of the part alone: a sum of complex numbers loses the sign of a zero
    out: np.ndarray[Any, Any] = np.log(sum_)
    near = np.log1p(x * (2 + x) + y * y) / 2
    out.real[...] = np.where((np.abs(x) < 0.5) & (np.abs(y) < 0.5), near, out.real)
    return out


_COMPLEX = {"expm1": _complex_expm1, "log1p": _complex_log1p}


def _formula(program: HostProgram, name: str, x: HostValue) -> HostValue:
    """Return 1 / sqrt(x), t / (1 + t) or log(1 + t), where t is exp(x), by the loops of float32 or float64."""
    dtype = _FLOAT64 if x.dtype == _FLOAT64 else _FLOAT32

    def loop(ufunc: np.ufunc, *operands: HostValue) -> HostValue:
        return program.loop(ufunc, operands, (dtype,))[0]

    x = program.cast(x, dtype)
    if name == "rsqrt":
        return loop(np.divide, program.constant(1, dtype), loop(np.sqrt, x))
    if name == "sigmoid":
        t = loop(np.exp, program.own("limit", x, dtype=dtype))
        return program.own("odds", t, dtype=dtype)
    return program.own("straighten", loop(np.log1p, loop(np.exp, x)), x, dtype=dtype)
