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
from gpuinterop.dtypes import NAMES, dtype_of
from gpuinterop.errors import ArgumentTypeError, GpuInteropError, ShapeError
from gpuinterop.geometry import broadcast_shapes
from gpuinterop.jit.spec import Body

from .fuse_methods import BoundFused, Instances, unbound
from .fuse_names import FIXED, Outside, told_apart
from .fuse_reduce import FusedReduction
from .fuse_stages import Stages, part_of, stages_of
from .fuse_tracer import Tracer, cannot_be_fused, refuse_out
from .host import run_row
from .rules import is_extended, loop_for
from .runtime import Traced, add_traced, is_foreign_array, numpy_types
from .trace import Graph, Node, described, is_strict, met, settled

__all__ = ["Fused", "fuse"]

# What functions that know nothing of `fuse` say they were given.
_TRACER = f"{Tracer.__module__}.{Tracer.__qualname__}"


class _FusedOperation(Traced):
    def __init__(self, name: str, graph: Graph) -> None:
        self.name = "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
        self.graph = graph
        self.inputs = len(graph.inputs)
        self.results = len(graph.results)

    def loop(self, kinds: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return kinds, self.graph.result_rows(kinds)

    def strict(self, kinds: tuple[int, ...]) -> tuple[bool, ...]:
        return self.graph.strict_results(kinds)

    def body(self, kinds: tuple[int, ...]) -> Body:
        outs = self.graph.result_rows(kinds)
        return Body(
            f"fused_{self.name}",
            tuple(NAMES[k] for k in kinds),
            tuple(NAMES[k] for k in outs),
            self.graph.statements(kinds),
        )

    def host(self, inputs: list[Any], results: list[Any], kinds: tuple[int, ...]) -> None:
        known, strict = self.graph.kinds(kinds)
        values: dict[int, Any] = {}
        for node in self.graph.order():
            values[id(node)] = self._value(node, inputs, values, known, strict)
        with np.errstate(all="ignore"):
            for out, node in zip(results, self.graph.results, strict=True):
                out[...] = values[id(node)]

    @staticmethod
    def _value(
        node: Node,
        inputs: list[Any],
        values: dict[int, Any],
        known: dict[int, int],
        strict: set[int],
    ) -> Any:
        if node.index >= 0:
            return np.asarray(inputs[node.index])
        if node.row is None:
            return np.asarray(node.number)
        operands = [values[id(o)] for o in node.operands]
        if node.cast_to >= 0:
            with np.errstate(all="ignore"):
                return operands[0].astype(dtype_of(node.cast_to))
        kinds = met(node, known, strict)
        types, _ = numpy_types(node.row, kinds)
        numbers = settled(node, loop_for(node.row, kinds)[0])
        if numbers is not None:
            operands = [
                np.full(o.shape, n, t) for o, n, t in zip(operands, numbers, types, strict=False)
            ]
        shape = broadcast_shapes([o.shape for o in operands], node.row.name)
        outs = [np.empty(shape, t) for t in types[node.row.inputs :]]
        run_row(node.row, operands, outs, types)
        found = outs[node.result]
        held = known[id(node)]
        return found.astype(dtype_of(held)) if is_extended(held) else found


def _refuse_computed(captured: Sequence[Any]) -> None:
    """Refuse arrays that were made while the function was traced: they would stay as they are then.

    Nothing but the graph holds such an array by now; a view of one from outside has an owner there.
    """
    probe = [object()]
    alone = sys.getrefcount(probe[0])
    for i in range(len(captured)):
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
        self._kernels: dict[tuple[Any, ...], Any] = {}
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
        # Numbers are fixed in the kernel: they may decide what the function does.
        args = tuple(
            a[()] if isinstance(a, np.ndarray) and a.ndim == 0 else a for a in args
        )  # as numbers, which they are without `fuse`
        key = tuple((type(a), told_apart(a) if isinstance(a, FIXED) else None) for a in args)
        arrays = [a for a, (_, k) in zip(args, key, strict=True) if k is None]
        known = (names, *key)
        # None where the trace depends on shapes and dtypes, which are in the key then.
        traces = self._outside.traces()
        found = traces.get(known)
        if found is None and known in traces:
            found = traces.get((*known, *map(described, arrays)))
        if found is None:
            found = self._trace(args, key, names)
        operation, captured, rebuild = found
        result = operation(*arrays, *captured, out=out)
        return rebuild(result)

    def _fits(self, n: int) -> bool:
        """Whether `n` positional arguments are what the function is declared with."""
        return sum(self._positional) <= n and (self._open or n <= len(self._positional))

    def _trace(
        self, args: tuple[Any, ...], key: tuple[Any, ...], names: tuple[str, ...]
    ) -> tuple[Any, list[Any], Any]:
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
        traces = self._outside.watch()
        graph = Graph(given=arrays)
        tracers = [
            Tracer(graph, graph.add_input()) if k is None else a
            for a, (_, k) in zip(args, key, strict=True)
        ]
        positional = len(tracers) - len(names)
        named = dict(zip(names, tracers[positional:], strict=True))
        try:
            returned = self.__wrapped__(*tracers[:positional], **named)  # type: ignore[attr-defined]
        except GpuInteropError as error:
            if _TRACER not in error.got:
                raise
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
            if not several:
                return x
            values = (x,) if single else x
            return kind(*values) if hasattr(kind, "_fields") else kind(values)

        known: tuple[Any, ...] = (names, *key)
        found = (self._operation(graph, results), graph.captured, rebuild)
        if graph.asked:
            traces[known] = None
            known = (*known, *map(described, arrays))
        graph.given = ()
        traces[known] = found
        return found

    def _operation(self, graph: Graph, results: Sequence[Tracer]) -> Any:
        """What computes the results from the arguments and the captured arrays."""
        stages = stages_of(graph, [r.node for r in results], self._elementwise, self._reduction)
        if len(stages) == 1 and not stages[0].reduces:
            part, leaves = part_of([r.node for r in results])
            if [leaf.index for leaf in leaves] == list(range(len(graph.inputs))):
                given = (*graph.given, *graph.captured)
                return self._kernel(replace(part, strict=tuple(map(is_strict, given))))
        return Stages(stages, len(results))

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
        found = self._kernels.get(key)
        if found is None:
            name = getattr(self, "__name__", "function")
            try:
                found = self._kernels[key] = add_traced(_FusedOperation(name, part))[1]
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
        found = self._kernels.get(key)
        if found is None:
            made = FusedReduction(part, reduction, self._elementwise(part))
            found = self._kernels[key] = made
        return found


def fuse(function: Callable[..., Any]) -> Fused | BoundFused:
    """Return `function` as one kernel: traced once, no temporaries, every operand read once.

    Inside, arrays stand for single elements: use operators, the functions of this package or
    NumPy's, numbers, and arrays from outside, which are read anew by every call. It is traced anew when
    a closure cell or a global that it names is bound to something else. What lies deeper, such as
    ``settings.rate`` or what a helper function mentions, is fixed by the first call: pass it as an
    argument. An array that is made inside from no argument is refused. The function may return
    several arrays. Results have the shapes and dtypes that they have without `fuse`, and are the same
    bit for bit. Numbers, text, None and tuples of these among the arguments become part of the kernel;
    so do shapes and dtypes once the function asks for them (``x.shape``, ``x.ndim``, ``x.size``,
    ``len(x)``, ``x.dtype``), and it is traced anew for others.

    Values may be reduced: ``(x * y).sum()``, likewise prod, mean, min, max, any and all, over all axes
    or ``axis=``. Each reduction is one kernel that reads the operands once and stores nothing but its
    result; what is computed from reduced values is one kernel after those. A softmax of rows is
    three. Sums of floats are as accurate as those of `CudaNdarray.sum`, but may be joined in another
    order and so differ in the last bit on CUDA. Fused functions may call one another.

    On a method, `self` is what it is in Python, also in ``fuse(model.step)`` and in an object that is
    called. Each instance is traced by itself, and again when an attribute that the method or a property
    of it names, the instance's or the class's, has been assigned anew; ``self.settings.rate`` lies
    deeper.

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
