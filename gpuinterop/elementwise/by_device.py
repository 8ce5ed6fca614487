"""Functions of NumPy's submodules: NumPy's own on "cpu", on the memory of the operands, and others on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.numpy_views import as_numpy_view, to_host_array, wrap_numpy
from gpuinterop.errors import (
    ArgumentTypeError,
    DTypeError,
    GpuInteropError,
    LibraryNotFoundError,
    LinAlgError,
    ShapeError,
)
from gpuinterop.exchange import registry

from .operands import result_class
from .results import as_operands, class_for, plain

# What a matrix lacks: expected, got and fix, with which cuSOLVER's reports and NumPy's errors are worded.
SINGULAR = (
    "matrices that are not singular", "{matrix}, singular", "use linalg.lstsq or linalg.pinv",
)  # fmt: skip
NOT_POSITIVE = (
    "matrices that are positive definite", "{matrix}, not positive definite",
    "use linalg.eigh, or add to the diagonal",
)  # fmt: skip
NOT_CONVERGED = (
    "matrices for which the iteration converges", "{matrix}, for which it did not converge",
    "check them for NaN and infinity: numpy.isfinite(x).all()",
)  # fmt: skip
# By a part of NumPy's sentence.
_LACKS = {
    "Singular": SINGULAR, "positive definite": NOT_POSITIVE, "converge": NOT_CONVERGED,
    "infs or NaNs": NOT_CONVERGED,
}  # fmt: skip

# The dtypes that NumPy's submodules compute with; integers count as float64.
_KNOWN = frozenset(np.dtype(code) for code in "?bhilqBHILQfdFD")


def require_dtypes(where: str, *operands: Any) -> None:
    """Refuse dtypes that NumPy's submodules do not have."""
    for x in operands:
        if x.dtype not in _KNOWN:
            raise DTypeError(
                where=where, expected="bool, integers, float32, float64, complex64 or complex128",
                got=str(x.dtype), fix="cast first: x.astype('float32')",
            )  # fmt: skip


def by_device(
    namespace: Any, arrays: int = 1, named: dict[str, Any] | None = None, own: bool = False,
    check: Callable[..., object] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # fmt: skip
    """Return the decorator of a function that computes on CUDA; on "cpu" `namespace` has NumPy's function of that name.

    `arrays` is the number of the first parameters that are arrays; 0: the first is a list of them. `named` has the
    tuples with names that results may be. An `own` function computes on "cpu" too. ``check(...)`` raises for wrong
    arguments: on CUDA before the call, on "cpu" when NumPy has refused them, to name the fault. All errors name the
    function, whatever steps of it raise.
    """

    def decorate(on_cuda: Callable[..., Any]) -> Callable[..., Any]:
        on_host = getattr(namespace, on_cuda.__name__)
        where = f"{namespace.__name__.partition('.')[2]}.{on_cuda.__name__}"

        code = on_cuda.__code__
        names = code.co_varnames[: code.co_argcount]

        @wraps(on_cuda)
        def call(*args: Any, **options: Any) -> Any:
            try:
                return carry_out(args, options)
            except LibraryNotFoundError as error:
                raise _with_other_call(error, where, arrays) from None
            except GpuInteropError as error:
                raise error.changed(where=where) from None

        def carry_out(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            count = arrays or 1
            if len(args) < count:
                args, options = _by_position(where, on_cuda, count, args, options)
            if names[-1] == "out" and len(args) == len(names):
                args, options = args[:-1], {**options, "out": args[-1]}
            operands = as_operands(where, *(args[:count] if arrays else args[0]))
            cls = result_class([type(x) for x in operands])
            given, rest = [plain(x) for x in operands], args[count:]
            if not own:
                require_dtypes(where, *given)
            if given[0].device.type == "cpu" and not own:
                views: Any = [to_host_array(x, where) for x in given]
                try:
                    found = _on_host(where, on_host, views if arrays else [views], rest, options)
                except (TypeError, ValueError, IndexError) as error:
                    if check is not None:
                        check(*given, *rest, **options)
                    raise _refused(where, error, given) from None
                made = _as_results(found, cls, named or {})
            else:
                if check is not None:
                    check(*given, *rest, **options)
                made = _of_class(on_cuda(*(given if arrays else [given]), *rest, **options), cls)
            return made if options.get("out") is None else options["out"]

        if own:
            return call
        words = " ".join(name for name in names if name != "out")
        usual = _core.by_numpy(on_host, words, arrays, results=named)
        return usual(call)

    return decorate


def _with_other_call(error: LibraryNotFoundError, where: str, arrays: int) -> LibraryNotFoundError:
    """Return the error with the call of a library that is installed and has the function."""
    module, _, name = where.partition(".")
    for library in ("cupy", "torch"):
        try:
            has = registry.installed(library) and hasattr(
                import_module(f"{library}.{module}"), name
            )
        except ImportError:
            continue
        if has:
            call = f"gpuinterop.via.{library}.{where}({'x, y' if arrays == 2 else 'x'})"
            found: Any = error.changed(where=where, fix=f"call {call}, or {error.fix}")
            return found  # type: ignore[no-any-return]
    return error.changed(where=where)  # type: ignore[return-value]


def _by_position(
    where: str, function: Callable[..., Any], count: int, args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    """Return the arguments with the arrays by position."""
    names = function.__code__.co_varnames[len(args) : count]
    for name in names:
        if name not in options:
            raise ArgumentTypeError(
                where=where, expected=f"an argument {name}", got="none", fix=f"pass {name}"
            )
    rest = {name: value for name, value in options.items() if name not in names}
    return (*args, *(options[name] for name in names)), rest


def _on_host(
    where: str, function: Callable[..., Any], views: list[Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Any:  # fmt: skip
    # Options may be arrays too, such as a tolerance or `out`.
    args = tuple(_as_numpy(x, where) for x in args)
    options = {name: _as_numpy(x, where, name == "out") for name, x in options.items()}
    return function(*views, *args, **options)


def _refused(where: str, error: Exception, given: list[Any]) -> Exception:
    """Return the error for operands that NumPy has refused."""
    if isinstance(error, GpuInteropError):
        return error
    reason = str(error)
    cls: type[GpuInteropError] = ArgumentTypeError if isinstance(error, TypeError) else ShapeError
    if isinstance(error, np.linalg.LinAlgError):
        cls = LinAlgError
        for part, (expected, got, fix) in _LACKS.items():
            if part in reason:
                matrix = "a matrix of the stack" if given[0].ndim > 2 else "the matrix"
                return cls(where=where, expected=expected, got=got.format(matrix=matrix), fix=fix)
    shapes = " and ".join(f"{x.dtype} of shape {x.shape}" for x in given)
    return cls(
        where=where, expected="arguments that NumPy's function takes",
        got=f"{shapes}. NumPy says: {reason}", fix=f"see help(gpuinterop.{where})",
    )  # fmt: skip


def _as_numpy(value: Any, where: str, written: bool = False) -> Any:
    if not isinstance(value, _core.Array):
        return value
    return as_numpy_view(value, where, written=True) if written else to_host_array(value, where)


def _as_results(found: Any, cls: Any, named: dict[str, Any]) -> Any:
    """Return NumPy's results as arrays on the same memory."""
    if isinstance(found, tuple):
        items = [_as_results(item, cls, named) for item in found]
        made = named.get(type(found).__name__)
        return made(*items) if made else tuple(items)
    host = np.asarray(found)
    return _core.view(class_for(cls, host.dtype), wrap_numpy(host))


def _of_class(found: Any, cls: Any) -> Any:
    """Return results of the class that the operands have."""
    if isinstance(found, tuple):
        items = [_of_class(item, cls) for item in found]
        return type(found)(*items) if hasattr(found, "_fields") else tuple(items)
    return _core.view(class_for(cls, found.dtype), found)
