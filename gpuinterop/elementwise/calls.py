"""Callbacks of the core for calls that are not cached: dtypes, classes, kernels, and programs for the host.

The core keeps each result, so a later call runs none of this.
"""

from __future__ import annotations

import atexit
import weakref
from importlib import import_module
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.dtypes import (
    NAMES,
    WITHOUT_KERNELS,
    as_supported_dtype,
    dtype_from_id,
    dtype_id,
)
from gpuinterop.arrays.numpy_views import as_scalar
from gpuinterop.arrays.scalars import is_scalar_or_list
from gpuinterop.errors import (
    ArgumentTypeError,
    ConversionTypeError,
    DTypeError,
    short_repr,
    type_name,
)
from gpuinterop.errors.messages import integer_out_of_range, negative_exponent
from gpuinterop.exchange.incoming import as_input_array
from gpuinterop.jit import EXACT, compile_source

from .codegen import KernelSpec, render
from .examples import example_of
from .host_program import row_program
from .operands import as_array_or_none, general_class, operand, result_class
from .promotion import (
    body_for,
    check_casts,
    core_body,
    id_of_code,
    is_extended,
    letter_of,
    name_of_code,
    require_exact_in,
)
from .table import ROWS, Row

# By id: rows of the table, and the operations of compiled expressions (`ElementwiseOperation`). Their functions
# keep these, because a user's host= may refer to the function.
_entries: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
FUNCTIONS: dict[str, Any] = {}
# The functions for the core's hooks `prepare` and `call`, by subject or name. Reductions and products
# add entries of their own when their modules are imported.
PREPARE: dict[str, Any] = {}
CALLS: dict[str, Any] = {}
# The modules of higher folders that fill names of CALLS, imported when such a name is called for the first time.
HOMES = {
    "array namespace": "gpuinterop.array_api",
    "from start": "gpuinterop.fusion.composed",
    "rounding": "gpuinterop.fusion.composed",
    "function of cast operands": "gpuinterop.fusion.composed",
    "selected reduction": "gpuinterop.fusion.composed",
    "add at": "gpuinterop.index.getitem",
    "arange": "gpuinterop.creation",
    "asarray": "gpuinterop.creation",
    **dict.fromkeys(("cross", "tensordot", "vecdot"), "gpuinterop.numpy_api.contractions"),
}


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a function of `CALLS`, which a higher folder may define."""
    return (CALLS.get(name) or _fill(name))(*args, **kwargs)


def _fill(name: str) -> Any:
    import_module(HOMES[name])
    return CALLS[name]


# ---- dtypes and classes -----------------------------------------------------------------------


def _resolve(
    op: int, codes: tuple[int, ...], classes: tuple[Any, ...], out_ids: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    entry = _entries[op]
    owners = [c for c in classes if c is not None]
    special = result_class(owners) if owners else None
    if getattr(special, "_only", None) is None:
        special = None
    custom = not isinstance(entry, Row)
    strict = entry.strict(codes) if custom else None
    if special is not None and entry.name != "cast" and strict is None:
        require_exact_in(entry.name, special._only, codes)
    for code in codes if custom else ():
        if code >= 0 and name_of_code(code) in WITHOUT_KERNELS:
            raise DTypeError(
                where=entry.name,
                expected="operands of dtypes that kernels accept",
                got=name_of_code(code),
                fix=f"cast first: x.astype('{'complex64' if letter_of(id_of_code(code)) == 'c' else 'int32'}')",
            )
    # A dtype without a kernel is not computed on the host either, so that both devices refuse it.
    ins, outs = entry.loop(codes) if custom else body_for(entry, codes)[1]
    if entry.name != "cast":
        check_casts(entry.name, outs, out_ids)
    strict = strict or [True] * len(outs)
    pairs = zip(outs, strict, strict=True)
    return ins, outs, tuple(_class_for(i, special if s else None, owners) for i, s in pairs)


def _class_for(type_id: int, special: Any, owners: list[Any]) -> Any:
    """Return CudaNdarray if an operand is one and it can hold the result, else the class of the other operands."""
    dtype = dtype_from_id(type_id)
    if special is not None and special._only == dtype:
        return special
    return general_class(owners)


# ---- machine code ---------------------------------------------------------------------------------


def _build(
    op: int, name: str, stored: tuple[str, ...], capability: int, **form: Any
) -> tuple[bytes, str]:
    """Return machine code of an operation, and the kernel's name; `form` has the other fields of a KernelSpec."""
    entry = _entries.get(op)
    if entry is None:
        body = core_body(name, stored)
    else:
        inputs = tuple(map(NAMES.index, stored[: entry.inputs]))
        body = body_for(entry, inputs)[0] if isinstance(entry, Row) else entry.body(inputs)
    spec = KernelSpec(body, stored, **form)
    return _machine_code(spec, capability), spec.symbol


def compile_operation(entry: Any, codes: tuple[int, ...], capability: int) -> bytes:
    """Return machine code of an operation outside the table for C-contiguous arrays of these dtypes."""
    body = entry.body(codes)
    stored = (*body.loop_in, *body.loop_out)
    return _machine_code(KernelSpec(body, stored, "C" * len(stored), "flat", 0, 1, 1), capability)


def _machine_code(spec: KernelSpec, capability: int) -> bytes:
    return compile_source(render(spec), capability, options=EXACT, name=f"{spec.body.name}.cu")


# ---- the host -------------------------------------------------------------------------------------


def _host_program(
    op: int, codes: tuple[int, ...], stored: tuple[int, ...], results: tuple[int, ...], in_place: bool
) -> Any:  # fmt: skip
    entry = _entries[op]
    if isinstance(entry, Row):
        return row_program(entry, codes, stored, results, in_place)
    return entry.host_program(codes, stored, results, in_place)


# ---- calls with keywords or unknown operands --------------------------------------------------------


def _call(op: int | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Carry out a call with further keywords, wrong arguments, or operands of unknown classes."""
    if isinstance(op, str):  # as `call` does, with one function less in a loop
        return (CALLS.get(op) or _fill(op))(*args, **kwargs)
    entry = _entries[op]
    operands, outs, casts = bind_keywords(entry, args, kwargs)
    out = kwargs.get("out")
    for x in operands:
        if isinstance(entry, Row) and hasattr(type(x), "__gpuinterop_trace__"):
            return x.__gpuinterop_trace__(
                entry, operands, next((o for o in outs if o is not None), out)
            )
        known = isinstance(x, (_core.Array, bool, int, float, complex))
        if not known and operand(x, None, entry.name) is NotImplemented:
            if not is_scalar_or_list(x) or isinstance(x, np.generic):
                # The error that lists the dtypes, or that of an object that is not an array.
                as_input_array(np.asarray(x) if isinstance(x, np.generic) else x, None, entry.name)
            raise ConversionTypeError(
                where=entry.name,
                expected="an array or a number",
                got=type_name(x),
                fix="convert it first: gpuinterop.asarray(value)",
            )
    function = FUNCTIONS[entry.name]
    if casts:
        function = call("function of cast operands", entry.name, casts, operands)
    return function(*operands, *outs, out=out, order=kwargs.get("order", "K"))


# ---- the table ------------------------------------------------------------------------------------


def add_operation(entry: Any) -> tuple[int, Any]:
    """Register an operation outside the table with the core: return its id and the function to call.

    The operation is removed when the function is destroyed.
    """
    op = _core._add_op(entry.name, entry.inputs, entry.results)
    _entries[op] = entry
    function = _core._op_function(op, entry.name, entry.__doc__ or "", entry)
    weakref.finalize(function, _core._drop_op, op).atexit = False
    return op, function


def _prepare(subject: str, request: dict[str, Any]) -> Any:
    """Prepare a call for which the call cache has no entry; the core keeps the result."""
    return PREPARE[subject](**request)


def _register() -> None:
    PREPARE.update(
        {
            "types": _resolve,
            "kernel": _build,
            "host program": _host_program,
            "operation": lambda op: _entries[op],
        }
    )
    # Plans are Python objects, so the core releases them before the interpreter shuts down.
    atexit.register(_core._forget_calls)
    for row in ROWS:
        ufunc = row.numpy if isinstance(row.numpy, np.ufunc) and row.name != "cast" else None
        op = _core._add_op(row.name, row.inputs, row.results, row.compares, ufunc, once=True)
        _entries[op] = row
        names = ", ".join(row.operands[: row.inputs])
        doc = (
            f"{row.name}({names}, /, out=None, *, dtype=None, order='K')\n--\n\n{row.doc}\n\n"
            "Accepts any strides, and broadcasts. The work is queued on the current stream. The result is a\n"
            "new array in the operands' order in memory, or in C order with ``order='C'``. `out` may be an\n"
            "operand, or overlap one. `dtype` is the dtype of the computation, as for NumPy's ufuncs."
            + example_of(row.name)
        )
        FUNCTIONS[row.name] = _core._op_function(op, row.name, doc)
    # Last: an import that is interrupted before is repeated.
    _core.set_hooks(prepare=_prepare, call=_call)


_register()


# ---- NumPy's further keywords: dtype= and order= work, others raise an error --------------------


# The accepted values of further keywords; all but order="C" request the default behaviour.
_ACCEPTED: dict[str, tuple[Any, ...]] = {
    "where": (True,), "casting": ("same_kind",), "order": ("K", "C"), "subok": (True,),
    "signature": (None,),
}  # fmt: skip
_NUMBERS = (int, float, complex)  # bool is an int


def bind_keywords(
    entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[np.dtype[Any] | None, ...]]:
    """Return the operands and positional outs of the call, and the dtypes to which it casts array operands."""
    name, n = entry.name, entry.inputs
    names = [parameter for _, parameter in getattr(entry, "ins", ())] or "xyzuvw"
    if not n <= len(args) <= n + entry.results or ("out" in kwargs and len(args) > n):
        indices = ", or nonzero(x) for indices" if name == "where" else ""
        raise ArgumentTypeError(
            where=name,
            expected=f"{n} operand{'s' if n != 1 else ''}, and optionally out=",
            got=f"{len(args)}",
            fix=f"call {name}({', '.join(names[i % len(names)] for i in range(n))}){indices}",
        )
    for key, value in kwargs.items():
        if key in ("out", "dtype") or any(
            value is v or (isinstance(value, str) and value == v) for v in _ACCEPTED.get(key, ())
        ):
            continue
        raise ArgumentTypeError(
            where=name,
            expected="the keywords out, dtype and order ('K' or 'C')",
            got=f"{key}={short_repr(value)}",
            fix="select elements with gpuinterop.where, or write into a view: out=y[::2]"
            if key == "where"
            else f"omit {key}=",
        )
    dtype = kwargs.get("dtype")
    if dtype is None:
        return args[:n], args[n:], ()
    operands, casts = _cast(entry, args[:n], as_supported_dtype(dtype, name))
    return operands, args[n:], casts


def _cast(
    row: Row, operands: tuple[Any, ...], result_dtype: np.dtype[Any]
) -> tuple[tuple[Any, ...], tuple[np.dtype[Any] | None, ...]]:
    """Return the operands, and the dtypes of NumPy's loop with results `result_dtype`, to which the kernel casts."""
    like = next((x for x in operands if isinstance(x, _core.Array)), None)
    values = []
    for x in operands:
        x = as_scalar(x, row.name)
        if not isinstance(x, (np.generic, *_NUMBERS)) and not hasattr(x, "__gpuinterop_trace__"):
            x = as_array_or_none(x, like, row.name)
        if x is None:
            return operands, ()  # the plain call raises the error
        values.append(x)
    types = [
        _dtype_of_rules(x.dtype) if hasattr(x, "dtype")
        else np.dtype(np.bool_) if isinstance(x, bool)
        else next(t for t in _NUMBERS if isinstance(x, t))  # takes the dtype of another operand
        for x in values
    ]  # fmt: skip
    loop_types = _loop(row, types, result_dtype)
    numbers = not any(hasattr(x, "dtype") for x in values)
    if row.name == "power" and loop_types[0].kind == "i" and isinstance(values[1], int):
        if values[1] < 0:
            raise negative_exponent(row.name)
        numbers = True  # a kernel that casts does not check the sign of an int
    cast, dtypes = [], []
    for x, dtype in zip(values, loop_types, strict=True):
        in_kernel = (
            isinstance(x, _core.Array)
            and x.dtype != dtype
            and not {x.dtype.name, dtype.name} & set(WITHOUT_KERNELS)
        )
        dtypes.append(dtype if in_kernel else None)
        if hasattr(x, "dtype"):
            x = x.astype(dtype, "K") if x.dtype != dtype and not in_kernel else x
        elif numbers and isinstance(x, _NUMBERS):
            # No other operand determines the dtype, so give the number this dtype.
            try:
                x = dtype.type(x)
            except (OverflowError, TypeError):  # TypeError: of a dtype of ml_dtypes
                wider = "int64" if dtype.kind in "iu" else ""
                raise integer_out_of_range(row.name, x, dtype, wider) from None
        cast.append(x)
    return tuple(cast), tuple(dtypes) if any(dtypes) else ()


def _dtype_of_rules(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype, or float16 for a dtype without NumPy loops, which follows the rules of float16."""
    return np.dtype(np.float16) if is_extended(dtype_id(dtype)) else dtype


def _loop(row: Row, types: list[Any], result_dtype: np.dtype[Any]) -> list[np.dtype[Any]]:
    """Return the dtypes to which NumPy casts the operands for results of a dtype."""
    rule, requested = row.rule, _dtype_of_rules(result_dtype)
    # The operands of clip and where all have the result's dtype.
    candidates = [types] if rule.nin == row.inputs else [[types[0], one] for one in types[1:]]
    loop_types: list[np.dtype[Any]] = []
    try:
        for operands in candidates:
            if not any(isinstance(one, np.dtype) for one in operands):
                operands = [np.result_type(one(0)) for one in operands]
            signature: Any = (*[None] * rule.nin, *[requested] * rule.nout)
            resolved = rule.resolve_dtypes(
                (*operands, *[None] * rule.nout), signature=signature, casting="same_kind"
            )
            loop_types = [*resolved[: rule.nin]]
    except TypeError as error:
        names = ", ".join(str(one) if isinstance(one, np.dtype) else one.__name__ for one in types)
        raise DTypeError(
            where=row.name,
            expected=f"dtype= in which NumPy computes {row.name} of {names}",
            got=f"dtype={result_dtype}",
            fix=f"omit dtype= and cast the result: {row.name}(...).astype('{result_dtype}')",
        ) from error
    loop_types = loop_types if rule.nin == row.inputs else [requested] * row.inputs
    return [result_dtype if one == requested else one for one in loop_types]
