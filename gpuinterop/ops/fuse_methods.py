"""Fused functions as methods: `self` is a Python object, and each instance has traces of its own.

A trace holds numbers and arrays that the function read from `self`. So it is made anew when one of the
attributes that the function names, the instance's or its class's, has been assigned something else.
Of a property, and of a fused method that it calls, the attributes that those name count too. Only the last
trace of an instance is kept, and none keeps the instance alive.
"""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuinterop import _core
from gpuinterop.errors import ArgumentTypeError

from .fuse_names import Outside, fixed_or_identity, is_fixed, is_number_in_place

__all__ = ["BoundFused", "Instances", "unbound"]


class BoundFused:
    """A fused function together with the instance that it was read from."""

    def __init__(self, function: Any, instance: Any, instances: Instances) -> None:
        self.__func__, self.__self__, self._instances = function, instance, instances
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        return self._instances.fused(self.__self__)(*args, out=out, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__func__, name)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(types.MethodType(self.__func__.__wrapped__, self.__self__))

    def __repr__(self) -> str:
        return f"<fused method {self.__func__.__qualname__} of {self.__self__!r}>"


class _Partial:
    """A functools.partial of a method as a function of the instance and the further arguments."""

    def __init__(self, function: Any, partial: functools.partial[Any]) -> None:
        self._function, self._partial = function, partial
        self.__name__ = getattr(function, "__name__", "partial")
        for name in ("__code__", "__closure__", "__globals__"):  # what is looked at for names
            setattr(self, name, getattr(function, name, None))
        instance = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        others = inspect.signature(partial).parameters.values()
        self.__signature__ = inspect.Signature([instance, *others])

    def __call__(self, instance: Any, *args: Any, **kwargs: Any) -> Any:
        method = types.MethodType(self._function, instance)
        return functools.partial(method, *self._partial.args, **self._partial.keywords)(
            *args, **kwargs
        )


def unbound(function: Any) -> tuple[Any, Any] | None:
    """The function of a method, a callable object or a partial of one, and its instance."""
    if isinstance(function, functools.partial):
        found = unbound(function.func)
        return found and (_Partial(found[0], function), found[1])
    if isinstance(function, BoundFused):
        return function.__func__.__wrapped__, function.__self__
    called: Any
    if isinstance(function, types.MethodType):
        called, instance = function.__func__, function.__self__
    elif callable(function):
        called, instance = type(function).__call__, function
    else:
        return None
    called = getattr(called, "__wrapped__", called) if hasattr(called, "_outside") else called
    apart = isinstance(instance, _core.Array) or hasattr(instance, "_outside")
    return None if apart or not isinstance(called, types.FunctionType) else (called, instance)


class Instances:
    """The fused functions of one method, one for each living instance.

    With `keeps` those that cannot be referred to weakly are kept instead.
    """

    def __init__(
        self, function: Callable[..., Any], fused: Callable[[Any], Any], *, keeps: bool = False
    ) -> None:
        self._function, self._fused, self._keeps = function, fused, keeps
        self._names = frozenset(_names(getattr(function, "__code__", None)))
        # By identity: instances may be equal, or have no hash.
        self._known: dict[int, tuple[Any, _Watched, _Questions, Any]] = {}

    def fused(self, instance: Any) -> Any:
        """The instance's own, with what it traced before while its attributes are the same."""
        found = self._known.get(id(instance))
        if found is not None and found[0]() is instance:
            _, watched, questions, made = found
            if _is_as_before(questions, _read(instance, watched)):
                return made
        watched = _watched(instance, self._names)
        read = _read(instance, watched)
        ref = self._reference(instance)
        made = self._fused(_weakly(self._function, ref, instance))
        made._outside.others = _outsides(instance, watched[0])
        self._known[id(instance)] = (ref, watched, [(n, *_question(v)) for n, v in read], made)
        return made

    def _reference(self, instance: Any) -> Any:
        key, known = id(instance), self._known

        def forget(ref: Any) -> None:
            if known.get(key, (None,))[0] is ref:
                del known[key]

        try:
            return weakref.ref(instance, forget)
        except TypeError as error:
            if self._keeps:
                return lambda: instance
            raise ArgumentTypeError(
                where=getattr(self._function, "__qualname__", "fuse"),
                expected="a method of objects that can be referred to weakly",
                got=f"an object of type {type(instance).__name__}",
                fix="add '__weakref__' to the __slots__ of the class, or fuse a function of the arrays",
            ) from error  # fmt: skip


# Names to look for on the instance, and those to ask its class for: plain values, and slots.
_Watched = tuple[frozenset[str], tuple[str, ...]]
_Questions = list[tuple[str, Any, Callable[[Any], bool] | None]]
_NO_ATTRIBUTES: dict[str, Any] = {}
_ABSENT = object()
_SLOT = types.MemberDescriptorType


def _watched(instance: Any, names: frozenset[str]) -> _Watched:
    classes = _held(instance)
    new = names
    while new:
        inner = (name for _, value in _of(classes, new) for name in _names(_code(value)))
        new = frozenset(inner) - names
        names |= new
    found = {n: value for n, value in reversed(list(_of(classes, names)))}  # the first class wins
    # Not what makes a value when it is asked for, such as a method: that is another one each time.
    plain = (n for n, v in found.items() if isinstance(v, _SLOT) or not hasattr(type(v), "__get__"))
    return names, tuple(sorted(plain))


def _held(instance: Any) -> list[Mapping[str, Any]]:
    """What the classes of an instance hold, as it stands there."""
    own = instance.__mro__ if isinstance(instance, type) else ()  # of a class method
    return [vars(c) for c in (*own, *type(instance).__mro__)]


def _of(classes: list[Mapping[str, Any]], names: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """What all classes hold under these names: `super` reaches those behind the first."""
    return ((n, held[n]) for held in classes for n in names if n in held)


def _outside(value: Any) -> Any:
    """What a fused function watches, also one under staticmethod or classmethod; None for others."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    found = getattr(value, "_outside", None) if callable(value) else None
    return found if isinstance(found, Outside) else None


def _code(value: Any) -> Any:
    """The code that runs when an attribute of a class is read, or called if it is a fused method."""
    if isinstance(value, property):
        return getattr(value.fget, "__code__", None)
    found = _outside(value)
    return found and getattr(found.function, "__code__", None)


def _outsides(instance: Any, names: frozenset[str]) -> list[Any]:
    """What the fused functions watch that an instance has under these names."""
    attributes = getattr(instance, "__dict__", {})
    values = [attributes[n] for n in names if n in attributes]
    values += [value for _, value in _of(_held(instance), names)]
    return [found for found in map(_outside, values) if found is not None]


def _read(instance: Any, watched: _Watched) -> list[tuple[str, Any]]:
    attributes = getattr(instance, "__dict__", _NO_ATTRIBUTES)
    found = []  # by loops: every call comes here, and a comprehension is a function of its own
    for name in watched[0]:
        if name in attributes:
            found.append((name, attributes[name]))
    for name in watched[1]:
        if name not in attributes:
            found.append((name, getattr(instance, name, None)))
    return found


def _is_as_before(questions: _Questions, read: list[tuple[str, Any]]) -> bool:
    if len(questions) != len(read):
        return False
    for (name, held, is_same), (now, value) in zip(questions, read, strict=True):
        if name != now:
            return False
        if is_same is None:
            if value is None or held() is not value:  # a dead reference gives None
                return False
        elif held is not value and not is_same(value):
            return False
    return True


def _question(value: Any) -> tuple[Any, Callable[[Any], bool] | None]:
    """How to tell whether another value is this one, without keeping it alive where that can be.

    A weak reference; or the value, and what tells its equals. What cannot be referred to weakly is kept:
    another object could take its place in memory.
    """
    if is_number_in_place(value):
        key = fixed_or_identity(value)
        return _ABSENT, lambda other: fixed_or_identity(other) == key
    if is_fixed(value):
        key = fixed_or_identity(value)
        return value, lambda other: fixed_or_identity(other) == key
    try:
        return weakref.ref(value), None
    except TypeError:
        return value, lambda other: other is value


def _weakly(function: Callable[..., Any], ref: Any, instance: Any) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        return function(ref(), *args, **kwargs)

    method.__name__ = getattr(function, "__name__", "method")
    method.__signature__ = inspect.signature(  # type: ignore[attr-defined]
        types.MethodType(function, instance)
    )
    return method


def _names(code: Any) -> Iterator[str]:
    """The attributes that a function and those inside of it name."""
    if code is not None:
        yield from code.co_names
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                yield from _names(inner)
