"""Functions of NumPy's submodules: NumPy's own on "cpu", on the memory of the operands, and others on CUDA."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.numpy_views import as_numpy_view, to_host_array, wrap_numpy
from gpuinterop.elementwise.operands import result_class
from gpuinterop.elementwise.results import as_operands, class_for, plain
from gpuinterop.errors import (
    ArgumentTypeError,
    DTypeError,
    GpuInteropError,
    LibraryNotFoundError,
    LinAlgError,
    ShapeError,
)
from gpuinterop.errors.arguments import require_signature
from gpuinterop.exchange import registry

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
    namespace: Any, arrays: int = 1, own: bool = False, usual: bool = False,
    check: Callable[..., object] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # fmt: skip
    """Return the decorator of a function that computes on CUDA; on "cpu" `namespace` has NumPy's function of that name.

    `arrays` is the number of the first parameters that are arrays; 0: the first is a list of them. An `own` function
    computes on "cpu" too, where NumPy carries out its `usual` calls. ``check(...)`` raises for wrong arguments: on CUDA
    before the call, on "cpu" when NumPy has refused them, to name the fault. All errors name the function, whatever
    step of it raises.
    """

    def decorate(on_cuda: Callable[..., Any]) -> Callable[..., Any]:
        on_host = getattr(namespace, on_cuda.__name__)
        where = f"{namespace.__name__.partition('.')[2]}.{on_cuda.__name__}"

        accepted = inspect.signature(on_cuda)
        bind = _binder(on_cuda, accepted, arrays or 1)

        @wraps(on_cuda)
        def call(*args: Any, **options: Any) -> Any:
            try:
                return carry_out(args, options)
            except LibraryNotFoundError as error:
                raise _with_other_call(error, where, arrays) from None
            except GpuInteropError as error:
                raise error.changed(where=where) from None

        def carry_out(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            first, options = bind(args, options)
            operands = as_operands(where, *(first if arrays else first[0]))
            cls, given = result_class([type(x) for x in operands]), [plain(x) for x in operands]
            if not own:
                require_dtypes(where, *given)
            if given[0].device.type == "cpu" and not own:
                views: Any = [to_host_array(x, where) for x in given]
                try:
                    found = _on_host(where, on_host, views if arrays else [views], options)
                except (TypeError, ValueError, IndexError, AttributeError) as error:
                    if check is not None:
                        check(*given, **options)
                    raise _refused(where, error, given) from None
                made = _converted(found, _adopted, cls)
            else:
                if check is not None:
                    check(*given, **options)
                found = on_cuda(*(given if arrays else [given]), **options)
                made = _converted(found, _of_class, cls)
            return made if options.get("out") is None else options["out"]

        return _core.by_numpy(on_host, words(accepted), arrays)(call) if usual or not own else call

    return decorate


def _binder(function: Callable[..., Any], accepted: inspect.Signature, count: int) -> Any:
    """Return a function that binds a call, and returns the first `count` arguments and the others by name."""
    first, others = list(accepted.parameters)[:count], list(accepted.parameters.values())[count:]
    # Binding takes longer than a small call.
    needs_no_binding = all(one.default is not one.empty for one in others)

    def bind(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        if needs_no_binding and not options and len(args) == count:
            return list(args), {}
        try:
            options = accepted.bind(*args, **options).arguments
        except TypeError:
            require_signature(function, args, options)
            raise
        return [options.pop(name) for name in first], options

    return bind


def words(accepted: inspect.Signature) -> str:
    """Return the names of parameters for the core, with * before those that are passed by name only."""
    found: list[str] = []
    for one in accepted.parameters.values():
        found += ["*"] * (one.kind is one.KEYWORD_ONLY and "*" not in found) + [one.name]
    return " ".join(name for name in found if name != "out")


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


def _on_host(
    where: str, function: Callable[..., Any], views: list[Any], options: dict[str, Any]
) -> Any:
    # Options may be arrays too, such as a tolerance or `out`.
    options = {name: _as_numpy(x, where, name == "out") for name, x in options.items()}
    found = function(*views, **options)
    if where.startswith("fft.") and not views[0].size:
        found[...] = 0  # which NumPy's irfft leaves unset
    return found


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


def _converted(found: Any, convert: Callable[[Any, Any], Any], cls: Any) -> Any:
    """Return a result, or a tuple of them, as arrays for operands of a class."""
    if not isinstance(found, tuple):
        return convert(found, cls)
    items = [_converted(item, convert, cls) for item in found]
    return type(found)(*items) if hasattr(found, "_fields") else tuple(items)


def _adopted(found: Any, cls: Any) -> Any:
    """Return NumPy's result as an array on the same memory."""
    host = np.asarray(found)
    return _of_class(wrap_numpy(host), cls)


def _of_class(found: Any, cls: Any) -> Any:
    return _core.view(class_for(cls, found.dtype), found)
