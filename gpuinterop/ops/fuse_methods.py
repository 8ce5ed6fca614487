"""Fused functions as methods: `self` is a Python object, and each instance has traces of its own.

A trace holds numbers and arrays that the function read from `self`. So it is made anew when one of the
instance's attributes that the function names has been assigned something else. Only the last trace of
an instance is kept, and none keeps the instance alive.
"""

from __future__ import annotations

import contextlib
import inspect
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpuinterop.errors import ArgumentTypeError

__all__ = ["BoundFused", "Instances", "FIXED", "told_apart"]

FIXED = (bool, int, float, complex, str, np.generic)


def told_apart(value: Any) -> Any:
    """The value as part of a key: 0.0 equals -0.0 and a NaN nothing, but kernels differ in them."""
    return repr(value) if isinstance(value, (float, complex, np.generic)) else value


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


class Instances:
    """The fused functions of one method, one for each living instance."""

    def __init__(self, function: Callable[..., Any], fused: Callable[[Any], Any]) -> None:
        self._function, self._fused = function, fused
        self._names = frozenset(_names(getattr(function, "__code__", None)))
        # By identity: instances may be equal, or have no hash.
        self._known: dict[int, tuple[Any, list[tuple[str, Callable[[Any], bool]]], Any]] = {}

    def fused(self, instance: Any) -> Any:
        """The instance's own, with what it traced before while its attributes are the same."""
        read = list(self._read(instance))
        found = self._known.get(id(instance))
        if found is not None and found[0]() is instance and _is_as_before(found[1], read):
            return found[2]
        ref = self._reference(instance)
        made = self._fused(_weakly(self._function, ref, instance))
        self._known[id(instance)] = (ref, [(name, _question(v)) for name, v in read], made)
        return made

    def _read(self, instance: Any) -> Iterator[tuple[str, Any]]:
        """The attributes that the function names and the instance has, in its dict or its slots."""
        attributes = getattr(instance, "__dict__", {})
        for name in self._names:
            if name in attributes:
                yield name, attributes[name]
            elif isinstance(getattr(type(instance), name, None), types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # a slot that is not set
                    yield name, getattr(instance, name)

    def _reference(self, instance: Any) -> Any:
        key, known = id(instance), self._known

        def forget(ref: Any) -> None:
            if known.get(key, (None,))[0] is ref:
                del known[key]

        try:
            return weakref.ref(instance, forget)
        except TypeError as error:
            raise ArgumentTypeError(
                where=getattr(self._function, "__qualname__", "fuse"),
                expected="a method of objects that can be referred to weakly",
                got=f"an object of type {type(instance).__name__}",
                fix="add '__weakref__' to the __slots__ of the class, or fuse a function of the arrays",
            ) from error  # fmt: skip


def _is_as_before(
    known: list[tuple[str, Callable[[Any], bool]]], read: list[tuple[str, Any]]
) -> bool:
    return len(known) == len(read) and all(
        name == now and is_same(value)
        for (name, is_same), (now, value) in zip(known, read, strict=True)
    )


def _question(value: Any) -> Callable[[Any], bool]:
    """Whether another value is this one, asked without keeping it alive where that can be.

    What cannot be referred to weakly is kept: another object could take its place in memory.
    """
    if isinstance(value, FIXED):
        kind, key = type(value), told_apart(value)
        return lambda other: type(other) is kind and told_apart(other) == key
    try:
        ref = weakref.ref(value)
    except TypeError:
        return lambda other: other is value
    return lambda other: other is not None and ref() is other


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
