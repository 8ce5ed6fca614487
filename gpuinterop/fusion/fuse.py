"""`fuse`: compiles a Python function of arrays to one kernel, or to a few if it reduces."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.arrays.numpy_views import as_scalar
from gpuinterop.elementwise import results as output_arrays
from gpuinterop.elementwise.operands import is_foreign_array
from gpuinterop.errors import ArgumentTypeError, GpuInteropError, type_name
from gpuinterop.errors.arguments import argument_key
from gpuinterop.errors.messages import out_is_no_array

from .compiled import ANY_NUMBER, CompiledExpression, Kernels, shape_of
from .graph import is_strict
from .trace import NumbersRead, Scalar, Trace, Tracer, cannot_be_fused, refuse_out

# The compiled expression, its operands, as `_core.PreparedCalls._add` takes them, the function that
# makes the returned object from its results, if that is not the results themselves, and the 0-d NumPy arrays
# whose values the trace contains.
_Traced = tuple[CompiledExpression, list[tuple[int, Any]], Callable[[Any], Any] | None, NumbersRead]
# In place of the position of an operand among the arguments.
_CAPTURED, _COMPUTED = _core.CAPTURED, _core.COMPUTED

_DECORATOR: Any = object()  # in place of the function: fuse(static_argnames=...) is a decorator
# In place of a trace: the function reads shapes, so there is one trace for each.
_BY_SHAPE = object()

# The name in errors of functions that do not support `fuse`.
_TRACER = f"{Tracer.__module__}.{Tracer.__qualname__}"


class Fused(_core.PreparedCalls):
    """A function that runs as one kernel, or as a few if it reduces; made by `fuse`.

    Attributes
    ----------
    __wrapped__ : the Python function.
    """

    def __init__(
        self, function: Callable[..., Any], static_argnames: str | Sequence[str] = ()
    ) -> None:
        super().__init__(binds=True)
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(
                where="fuse", expected="a Python function of arrays",
                got=type_name(function),
                fix="write @gpuinterop.fuse before a def, or call fuse(lambda x, y: x + y)",
            ) from error  # fmt: skip
        functools.update_wrapper(self, function)
        self._signature = signature
        self._name = getattr(function, "__name__", "fuse")
        names: Any = (static_argnames,) if isinstance(static_argnames, str) else static_argnames
        names = names if isinstance(names, Iterable) else (names,)
        unknown = [name for name in names if name not in [*self._signature.parameters]]
        if unknown:
            raise ArgumentTypeError(
                where="fuse", expected=f"names of the parameters {self._signature} in static_argnames=",
                got=", ".join(sorted(map(repr, unknown))), fix="pass the names as they are declared",
            )  # fmt: skip
        self._static = {*names}
        parameters = signature.parameters.items()
        self._changing = {name for name, p in parameters if _can_change(p.default)}
        self._traces = Kernels()
        self._kernels = Kernels()

    def __repr__(self) -> str:
        return f"<fused function {getattr(self, '__qualname__', self._name)}{self._signature}>"

    def __copy__(self) -> Fused:
        return self  # as functions are

    def __deepcopy__(self, memo: dict[int, Any]) -> Fused:
        return self

    def __reduce_ex__(self, protocol: Any) -> str | tuple[Any, ...]:
        function = self.__wrapped__  # type: ignore[attr-defined]
        name = getattr(self, "__qualname__", "")
        if _by_name(self.__module__, name) is self:
            if protocol < 4 or not isinstance(function, FunctionType):
                return str(name)
            function = self._named
        return _unpickle, (function, sorted(self._static))

    @functools.cached_property
    def _named(self) -> FunctionType:
        """A copy of the function under the name of this attribute.

        The name of a decorated function leads to this object, so pickle refuses the function itself. pickle
        sends the copy's name. cloudpickle sends its code if the module is ``__main__``, which a worker does not have.
        """
        f = self.__wrapped__  # type: ignore[attr-defined]
        named = FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
        for name in ("__module__", "__doc__", "__annotations__", "__kwdefaults__"):
            setattr(named, name, getattr(f, name))
        vars(named).update(vars(f))
        named.__qualname__ = f"{f.__qualname__}._named"
        return named

    def _prepare(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Handle a call that is not cached."""
        if {Tracer, Scalar} & {*map(type, args), *map(type, kwargs.values())}:
            refuse_out(self._name, out)
            return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]
        values, names, keywords = self._bind(args, kwargs)
        is_array = [isinstance(x, _core.Array) or is_foreign_array(x) for x in values]
        originals = [x for x, array in zip(values, is_array, strict=True) if array]
        if not originals:
            raise ArgumentTypeError(
                where=self._name, expected="at least one array among the arguments of a fused function",
                got=", ".join(type(x).__name__ for x in values) or "none",
                fix="pass an array, such as gpuinterop.asarray(value), or call the function without fuse",
            )  # fmt: skip
        arrays = output_arrays.as_operands(self._name, *originals)
        converted = iter(arrays)
        values = tuple(
            next(converted) if array else x for x, array in zip(values, is_array, strict=True)
        )
        key = (keywords, *map(self._key, values, names, is_array))
        trace = self._traces.recall(key)
        if trace is None or trace is _BY_SHAPE or trace[3].changed():
            shapes = (key, *map(shape_of, arrays))
            trace = self._traces.recall(shapes)
            if trace is None or trace[3].changed():
                trace, reads_shape = self._trace(values, names, keywords, is_array)
                self._traces[shapes if reads_shape else key] = trace
                if reads_shape:
                    self._traces[key] = _BY_SHAPE
        compiled, places, rebuild, numbers = trace
        operands = [values[i] if i >= 0 else x(values) if i == _COMPUTED else x for i, x in places]
        operation = compiled.operation(operands)
        positional = len(values) == len(args) and not (keywords or numbers)
        if positional and all(isinstance(x, _core.Array) for x in originals):
            are_numbers = map(self._is_operand, values, names)
            limits = [ANY_NUMBER if number else None for number in are_numbers]
            by_shape = compiled.needs_shapes or self._traces.get(key) is _BY_SHAPE
            self._add(values, limits, places, operation, rebuild, by_shape)
        results = operation(*operands, out=out)
        return results if rebuild is None else rebuild(results)

    def _bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], list[str], tuple[str, ...]]:
        """Return the values of the arguments, their parameters, and the names of the keyword-only ones."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentTypeError(
                where=self._name, expected=f"the arguments {self._signature}",
                got=str(error).removeprefix("got "),
                fix="call it as it is declared, with at most out= in addition",
            ) from error  # fmt: skip
        # A default that can change is an argument of each call. Other defaults are constants of the function.
        bound.arguments = {
            name: bound.arguments.get(name, parameter.default)
            for name, parameter in self._signature.parameters.items()
            if name in bound.arguments or name in self._changing
        }
        names: list[str] = []
        for name, value in bound.arguments.items():
            several = self._signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            names += [name] * (len(value) if several else 1)
        names = names[: len(bound.args)] + list(bound.kwargs)
        values = (
            as_scalar(x, self._name) if isinstance(x, np.ndarray) else x
            for x in (*bound.args, *bound.kwargs.values())
        )  # fmt: skip
        return tuple(values), names, tuple(bound.kwargs)

    def _is_operand(self, x: Any, name: str) -> bool:
        """Return whether an argument is a number that each call passes to the kernel."""
        return type(x) in (int, float, complex) and name not in self._static

    def _key(self, x: Any, name: str, is_array: bool) -> Any:
        """Return a key that is equal for arguments that share one trace."""
        if is_array:
            cls = is_strict(x) if isinstance(x, _core.Array) else type(x)
            return cls, str(getattr(x, "dtype", None)), len(shape_of(x))
        if self._is_operand(x, name):
            return type(x)
        return argument_key(x, self._name, "fused")

    def _trace(
        self,
        values: Sequence[Any],
        names: Sequence[str],
        keywords: Sequence[str],
        is_array: Sequence[bool],
    ) -> tuple[_Traced, bool]:
        """Call the function with placeholders; return the trace, and whether the function read a shape."""
        trace = Trace([x for x, array in zip(values, is_array, strict=True) if array])
        inputs = iter(list(trace.graph.inputs))
        placeholders = [
            Tracer(trace, next(inputs)) if array
            else Scalar(trace, name, x, operator.itemgetter(i), i) if self._is_operand(x, name)
            else x
            for i, (x, name, array) in enumerate(zip(values, names, is_array, strict=True))
        ]  # fmt: skip
        count = len(placeholders) - len(keywords)
        keyword_arguments = dict(zip(keywords, placeholders[count:], strict=True))
        try:
            returned = self.__wrapped__(*placeholders[:count], **keyword_arguments)  # type: ignore[attr-defined]
        except GpuInteropError as error:
            if _TRACER not in error.got:
                raise
            if getattr(error, "builder", (None,))[0] is out_is_no_array:
                refuse_out(error.where, True)
            raise cannot_be_fused(error.where) from None
        several = isinstance(returned, (tuple, list))
        results = list(returned) if several else [returned]
        for value in results:
            if not isinstance(value, Tracer):
                raise ArgumentTypeError(
                    where=self._name, expected="a function that returns arrays computed from its arguments",
                    got=type(value).__name__, fix="return one array or a tuple of arrays",
                )  # fmt: skip
        compiled = CompiledExpression(
            trace.graph, [value.value for value in results], self._name, self._kernels
        )
        trace.arrays = ()
        places = [(i, None) for i, array in enumerate(is_array) if array]
        places += map(_place_of, trace.captured)
        return (compiled, places, _rebuilder(returned), trace.numbers), trace.reads_shape


def _by_name(module: str, name: str) -> Any:
    """Return what has a dotted name in a loaded module, or None."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _unpickle(function: Any, static: Sequence[str]) -> Fused:
    """Return the module's fused function if pickle found `function` by its name, else fuse it."""
    name, ending, _ = getattr(function, "__qualname__", "").rpartition("._named")
    if ending:
        owner = _by_name(function.__module__, name)
        if isinstance(owner, Fused) and owner._named is function:
            return owner
        function.__qualname__ = name
    return Fused(function, static)


def _can_change(default: Any) -> bool:
    """Return whether a default may change after `fuse`: gpuinterop's arrays are read by each call anyway.

    Slices are not hashable before Python 3.12, but never change; a placeholder is not an argument of a call.
    """
    lasting = isinstance(default, (_core.Array, Tracer, slice))
    return not lasting and getattr(type(default), "__hash__", None) is None


def _place_of(captured: Any) -> tuple[int, Any]:
    """Return an operand that a trace adds to the arrays among the arguments: an array or a number."""
    if type(captured) is not Scalar:
        return _CAPTURED, captured
    return (captured.key, None) if isinstance(captured.key, int) else (_COMPUTED, captured.of)


def _rebuilder(returned: Any) -> Callable[[Any], Any] | None:
    """Return the function that makes an object like `returned` from the results of the operation."""
    cls = type(returned)
    if not isinstance(returned, (tuple, list)) or (cls is tuple and len(returned) > 1):
        return None
    single = len(returned) == 1

    def rebuild(results: Any) -> Any:
        values = (results,) if single else results
        return cls(*values) if hasattr(cls, "_fields") else cls(values)

    return rebuild


def fuse(
    function: Callable[..., Any] = _DECORATOR, *, static_argnames: str | Sequence[str] = ()
) -> Any:
    """Compile `function` to one kernel, which has no temporaries and reads every operand once.

    The function is traced once for each combination of the arrays' classes, dtypes and numbers of
    dimensions. A new Python number (int, float, complex) needs no new trace, because it is an operand of
    the kernel. The function must not read it; list the numbers that it reads in `static_argnames`. All other
    arguments, such as booleans, text and `self`, are constants. They must be hashable, and each new value is
    traced.

    The function may return several arrays. It may use

    - operators, elementwise functions of this package and of NumPy, and other fused functions
    - sum, prod, mean, min, max, any and all, over any axes, and products with vectors
    - ``x.T``, ``x.transpose(...)``, ``x.swapaxes(...)``, ``x[:, None]``
    - ``x.shape``, ``x.size`` and ``len(x)``: it is then traced for each shape

    A reduction ends a kernel. Operations on the reduced value that keep its shape run in the same kernel,
    operations of a larger shape in the next one. A softmax of rows is three kernels.

    Globals, closures and attributes keep the values that they have during the trace. Each call reads the
    memory of an array among them. A 0-d NumPy array among them is a constant, and the function is traced again
    when it has changed. A default that can change, such as an array, is an argument of each call.

    Results have the shapes and dtypes that they have without `fuse`, and are the same bit for bit. One
    exception: on CUDA, sums of floats may differ in the last bit.

    Examples
    --------
    >>> import gpuinterop
    >>> @gpuinterop.fuse
    ... def both(x, y):
    ...     return x + y, x - y
    >>> x = gpuinterop.asarray([1.0, 2.0], device="cpu")
    >>> [r.tolist() for r in both(x, x)]
    [[2.0, 4.0], [0.0, 0.0]]
    >>> float(gpuinterop.fuse(lambda x, y: (x * y).sum())(x, x))
    5.0
    >>> @gpuinterop.fuse(static_argnames="order")
    ... def taylor(x, order):
    ...     return sum(x**n / 2**n for n in range(1, order))
    >>> taylor(x, 3).tolist()
    [0.75, 2.0]
    """
    if function is _DECORATOR:
        return functools.partial(fuse, static_argnames=static_argnames)
    if isinstance(function, Fused) and not static_argnames:
        return function
    return Fused(function, static_argnames)
