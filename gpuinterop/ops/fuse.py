"""A Python function of arrays as one kernel."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import ArgumentTypeError, GpuInteropError, ShapeError

from .core_callbacks import add_operation, is_foreign_array
from .fuse_methods import BoundFused, Instances, unbound
from .fuse_names import FIXED, Outside, told_apart
from .fuse_numbers import OPEN, More, Number, argument
from .fuse_operation import FusedOperation
from .fuse_recent import Recent
from .fuse_reduce import FusedReduction
from .fuse_stages import Stages, part_of, stages_of, unfit_numbers
from .fuse_tracer import Tracer, cannot_be_fused, refuse_out
from .fuse_warm import add_warm
from .operand_conversion import as_scalar
from .trace import Graph, is_strict

__all__ = ["Fused", "fuse"]

# The operation, what it takes beside the arguments, what its results become if they are not returned as
# they are, whether numbers are open.
Trace = tuple[Any, list[Any], Callable[[Any], Any] | None, bool]

_NO_MORE = More(frozenset(), False)

# What functions that know nothing of `fuse` say they were given.
_TRACER = f"{Tracer.__module__}.{Tracer.__qualname__}"


def _refuse_computed(captured: Sequence[Any]) -> None:
    """Refuse arrays that were made while the function was traced: they would stay as they are then.

    Nothing but the graph holds such an array by now; a view of one from outside has an owner there.
    """
    probe = [object()]
    alone = sys.getrefcount(probe[0])
    for i in range(len(captured)):
        if type(captured[i]) is Number:
            continue
        if sys.getrefcount(captured[i]) > alone:
            continue
        owners = [captured[i].base]
        # The view holds its owner too. Memory of another library is shared and not computed.
        if owners[0] is None or (
            isinstance(owners[0], _core.Array) and sys.getrefcount(owners[0]) <= alone + 1
        ):
            raise ArgumentTypeError(
                where="fuse",
                expected="arrays from outside as they are: nothing is computed while it is traced",
                got=f"an array of shape {captured[i].shape} that the function made without an argument",
                fix="pass what it is made from as an argument, or make it before the function is called",
            )


class Fused:
    """A function that runs as one kernel, or as a few if it reduces; made by `fuse`.

    Attributes
    ----------
    __wrapped__ : the Python function.
    """

    def __init__(self, function: Callable[..., Any], binds: type | None = None) -> None:
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(
                where="fuse", expected="a Python function of arrays",
                got=f"an object of type {type(function).__name__}",
                fix="@gpuinterop.fuse in front of a def, or fuse(lambda x, y: x + y)",
            ) from error  # fmt: skip
        functools.update_wrapper(self, function)
        self._name = getattr(function, "__name__", "fuse")
        self._positional = [
            p.default is inspect.Parameter.empty
            for p in self._signature.parameters.values()
            if p.kind
            in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        ]
        self._open = any(
            p.kind is inspect.Parameter.VAR_POSITIONAL for p in self._signature.parameters.values()
        )
        self._outside = Outside(function)
        self._kernels = Recent()
        self._instances: Instances | None = None
        self._owner: type | None = None  # the class that it is a method of
        self._binds = binds  # staticmethod or classmethod, if it is to be one

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if self._binds is classmethod:
            instance = type(instance) if owner is None else owner
        elif instance is None or self._binds is staticmethod:
            return self
        if isinstance(instance, _core.Array):
            return types.MethodType(self, instance)
        if self._instances is None:
            self._instances = Instances(self.__wrapped__, self._alike)  # type: ignore[attr-defined]
        return BoundFused(self, instance, self._instances)

    def _bound(self, instance: Any) -> BoundFused:
        """Together with an instance that nothing else needs to keep alive."""
        function = self.__wrapped__  # type: ignore[attr-defined]
        self._instances = Instances(function, self._alike, keeps=True)
        return BoundFused(self, instance, self._instances)

    def _alike(self, function: Callable[..., Any]) -> Fused:
        """A fused function that has the kernels of this one."""
        made = Fused(function)
        made._kernels = self._kernels
        made._outside = Outside(self.__wrapped__)  # type: ignore[attr-defined]
        return made

    def __repr__(self) -> str:
        return f"<fused function {getattr(self, '__qualname__', self._name)}{self._signature}>"

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        if not kwargs:
            warm = self._outside.warm
            found = NotImplemented if warm is None else warm(args, out)
            if found is not NotImplemented:
                return found
        return self._looked_up(args, out, kwargs)

    def _looked_up(self, args: tuple[Any, ...], out: Any, kwargs: dict[str, Any]) -> Any:
        if self._owner and args and isinstance(args[0], self._owner):
            method = self.__get__(args[0])
            if isinstance(method, BoundFused):  # Class.method(instance, x), as Python has it
                return method(*args[1:], out=out, **kwargs)
        if Tracer in map(type, args) or Tracer in map(type, kwargs.values()):
            refuse_out(self._name, out)
            return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]
        names: tuple[str, ...] = ()
        if kwargs or not self._fits(len(args)):
            try:
                bound = self._signature.bind(*args, **kwargs)
                names = tuple(bound.kwargs)  # those that have no position
                args = (*bound.args, *bound.kwargs.values())
            except TypeError as error:
                raise ArgumentTypeError(
                    where=self._name, expected=f"the arguments {self._signature}", got=str(error),
                    fix="call it as it is declared; out= is the only further argument",
                ) from error  # fmt: skip
        args = tuple(
            as_scalar(a, self._name) if isinstance(a, np.ndarray) else a for a in args
        )  # as numbers, which they are without `fuse`
        # Floats are open until the function turns out to look at them; other numbers are constants.
        key = tuple(
            (float, OPEN)
            if type(a) is float
            else (type(a), told_apart(a) if isinstance(a, FIXED) else None)
            for a in args
        )
        arrays = [a for a, (_, k) in zip(args, key, strict=True) if k is None]
        known: tuple[Any, ...] = (names, *key)
        traces, warm = self._outside.traces()
        found = traces[known]
        more = _NO_MORE
        while type(found) is More:
            more = found
            found = traces[more.key(known, args, arrays)]
        if found is None:
            found = self._trace(args, key, names, more)
        elif warm is not None and not kwargs and not more.shapes:
            add_warm(warm, args, key, more.fixed, *found[:3])
        operation, captured, rebuild, has_numbers = found
        if has_numbers:
            captured = [c.of(args) if type(c) is Number else c for c in captured]
        made = operation(*arrays, *captured, out=out)
        return made if rebuild is None else rebuild(made)

    def _fits(self, n: int) -> bool:
        """Whether `n` positional arguments are what the function is declared with."""
        return sum(self._positional) <= n and (self._open or n <= len(self._positional))

    def _trace(
        self, args: tuple[Any, ...], key: tuple[Any, ...], names: tuple[str, ...], more: More
    ) -> Trace:
        """A new trace, which depends at least on `more`."""
        arrays = [a for a, (_, k) in zip(args, key, strict=True) if k is None]
        if not arrays:
            raise ArgumentTypeError(
                where=self._name, expected="at least one array among the arguments of a fused function",
                got=", ".join(type(a).__name__ for a in args) or "none",
                fix="pass an array, such as gpuinterop.asarray(value), or call the function without fuse",
            )  # fmt: skip
        for value in arrays:
            if not (isinstance(value, _core.Array) or is_foreign_array(value)):
                raise ArgumentTypeError(
                    where=self._name, expected="arrays, numbers, text, None, or tuples of constants as "
                    "arguments of a fused function", got=f"an object of type {type(value).__name__}",
                    fix="convert data first: gpuinterop.asarray(value); let the function mention "
                    "what is no data: fuse(lambda x: function(x))",
                )  # fmt: skip
        first = (names, *key)
        known = more.key(first, args, arrays)
        numbers = frozenset(i for i, (_, k) in enumerate(key) if k is OPEN)
        while True:
            traces = self._outside.watch()
            graph, found = Graph(given=arrays), None
            if not self._outside.leaves_open():
                graph.read |= numbers - more.fixed
            try:
                if not graph.read:
                    found = self._traced(graph, args, key, names, numbers - more.fixed)
            except Exception:
                if more.fixed == numbers:
                    raise
                # Perhaps only what stands for a number raises it. The next round has the numbers
                # themselves, and raises what the function does.
                graph.read |= numbers
            wanted = More(more.fixed | graph.read, more.shapes or graph.asked)
            if wanted != more:
                traces[known] = more = wanted
                known = more.key(first, args, arrays)
            if found is not None and not graph.read:
                traces[known] = found
                return found

    def _traced(
        self,
        graph: Graph,
        args: tuple[Any, ...],
        key: tuple[Any, ...],
        names: tuple[str, ...],
        numbers: frozenset[int],
    ) -> Trace:
        """The trace with these arguments as numbers that each call gives, unless one has been looked at."""
        tracers = [
            Tracer(graph, graph.add_input()) if k is None
            else argument(a, i, graph.read) if i in numbers else a
            for i, (a, (_, k)) in enumerate(zip(args, key, strict=True))
        ]  # fmt: skip
        positional = len(tracers) - len(names)
        named = dict(zip(names, tracers[positional:], strict=True))
        try:
            returned = self.__wrapped__(*tracers[:positional], **named)  # type: ignore[attr-defined]
        except GpuInteropError as error:
            if _TRACER not in error.got:
                raise
            if error.expected.endswith("as out"):
                refuse_out(error.where, True)
            raise cannot_be_fused(error.where) from None
        _refuse_computed(graph.captured)
        several = isinstance(returned, (tuple, list))
        results = list(returned) if several else [returned]
        for value in results:
            if not isinstance(value, Tracer):
                raise ArgumentTypeError(
                    where=getattr(self, "__name__", "fuse"),
                    expected="a function that returns arrays computed from its arguments",
                    got=type(value).__name__,
                    fix="return one array or a tuple of arrays",
                )
        kind, single = type(returned), len(results) == 1

        def rebuild(x: Any) -> Any:
            values = (x,) if single else x
            return kind(*values) if hasattr(kind, "_fields") else kind(values)

        graph.read |= unfit_numbers(graph, [r.node for r in results])
        operation = None if graph.read else self._operation(graph, results)
        graph.given = ()
        as_it_is = not several or (kind is tuple and not single)
        return (
            operation,
            graph.captured,
            None if as_it_is else rebuild,
            any(n.weak for n in graph.inputs),
        )

    def _operation(self, graph: Graph, results: Sequence[Tracer]) -> Any:
        """What computes the results from the arguments and the captured arrays."""
        stages = stages_of(graph, [r.node for r in results], self._elementwise, self._reduction)
        if len(stages) == 1 and not stages[0].reduces:
            part, leaves = part_of([r.node for r in results])
            if [leaf.index for leaf in leaves] == list(range(len(graph.inputs))):
                given = (*graph.given, *graph.captured)
                return self._kernel(replace(part, strict=tuple(map(is_strict, given))))
        return Stages(stages, [r.node for r in results])

    def _elementwise(self, part: Graph) -> Callable[..., Any]:
        """The function of a stage; which of its operands are CudaNdarrays is seen when it is called."""
        known: dict[tuple[bool, ...], Any] = {}

        def run(*operands: Any, out: Any = None) -> Any:
            strict = tuple(map(is_strict, operands))
            found = known.get(strict)
            if found is None:
                found = known[strict] = self._kernel(replace(part, strict=strict))
            return found(*operands, out=out)

        return run

    def _kernel(self, part: Graph) -> Any:
        """The core's operation for a graph; equal ones have one, so that new shapes cost nothing."""
        key = part.signature()
        found = self._kernels[key]
        if found is None:
            name = getattr(self, "__name__", "function")
            try:
                found = self._kernels[key] = add_operation(FusedOperation(name, part))[1]
            except ShapeError as error:
                raise ShapeError(
                    where=self._name, expected=f"{error.expected}, in one kernel",
                    got=f"{error.got}; a reduced value counts as an input of what is computed from it",
                    fix="fuse it in parts of fewer arrays, results and reduced values, and combine what "
                    "they return without fuse, for example by gpuinterop.stack(values).sum(0)",
                ) from None  # fmt: skip
        return found

    def _reduction(self, part: Graph, reduction: tuple[str, Any, bool]) -> FusedReduction:
        key = (*part.signature(), repr(reduction))
        found: FusedReduction | None = self._kernels[key]
        if found is None:
            found = FusedReduction(part, reduction, self._elementwise(part))
            self._kernels[key] = found
        return found


def fuse(function: Callable[..., Any]) -> Fused | BoundFused:
    """Return `function` as one kernel: traced once, no temporaries, every operand read once.

    Inside, arrays stand for single elements: use operators, the functions of this package or
    NumPy's, numbers, and arrays from outside, which are read anew by every call. It is traced anew when
    a closure cell or a global that it names is bound to something else. What lies deeper, such as
    ``settings.rate`` or what a helper function mentions, is fixed by the first call: pass it as an
    argument. An array that is made inside from no argument is refused. The function may return
    several arrays. Results have the shapes and dtypes that they have without `fuse`, and are the same
    bit for bit. A float among the arguments is given to the kernel by each call, unless the function
    looks at its value or reduces what is computed from it: then it becomes part of the kernel, like
    other numbers, text, None and tuples of these among the arguments. So do shapes and dtypes once the
    function asks for them (``x.shape``, ``x.ndim``, ``x.size``, ``len(x)``, ``x.dtype``), and it is
    traced anew for others.

    Values may be reduced: ``(x * y).sum()``, likewise prod, mean, min, max, any and all, over all axes
    or ``axis=``. Each reduction is one kernel that reads the operands once and stores nothing but its
    result; what is computed from reduced values is one kernel after those. A softmax of rows is
    three. Sums of floats are as accurate as those of `CudaNdarray.sum`, but may be joined in another
    order and so differ in the last bit on CUDA. Fused functions may call one another.

    On a method, `self` is what it is in Python, also in ``fuse(model.step)`` and in an object that is
    called. Each instance is traced by itself, and again when an attribute that the method names, or a
    property or fused method that it names, the instance's or the class's, has been assigned anew;
    ``self.settings.rate`` lies deeper.

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
    >>> gpuinterop.fuse(lambda x: x / x.sum() * 3)(x).tolist()
    [1.0, 2.0]
    """
    if isinstance(function, (Fused, BoundFused)):
        return function
    if isinstance(function, (staticmethod, classmethod)):
        return Fused(function.__func__, type(function))
    found = unbound(function)
    return Fused(function) if found is None else Fused(found[0])._bound(found[1])
