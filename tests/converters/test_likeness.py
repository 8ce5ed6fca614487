"""Objects known by their attributes: looked at without running anything, and quickly."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

from gpuinterop.converters import foreign_layout, registry

PYCUDA = {"mem_size": 8, "strides": (4,), "dtype": "f4", "shape": (2,), "flags": 1, "ptr": 8}


class Trap:
    """Answers every name, by code that must not run."""

    def __getattr__(self, name):
        raise AssertionError(name)


class TrapDict(Trap):
    @property
    def __dict__(self):
        raise AssertionError("was run")


class CountingDict(dict):
    def get(self, *args):
        raise AssertionError("was run")


class Slots:
    __slots__ = ("empty", "ptr")

    def __init__(self):
        self.ptr = 1


class Base:
    ptr = 1
    shape = None
    strides = property(lambda self: 1 / 0)
    method = len


class Derived(Base):
    ptr = None


class Data:
    def __get__(self, obj, owner):
        raise AssertionError("was run")

    def __set__(self, obj, value):
        raise AssertionError("was run")


class Managed:
    ptr = Data()


def with_names(cls, **names):
    made = cls()
    vars(made).update(names)
    return made


def with_dict(mapping):
    made = SimpleNamespace()
    other = Base()
    other.__dict__ = mapping
    return made, other


OBJECTS = [
    Trap(), TrapDict(), Slots(), Base(), Derived(), with_names(Base, ptr=None, shape=3),
    with_names(Derived, ptr=5), with_names(Managed, ptr=None), Base, Derived, 1, "text", None,
    SimpleNamespace(ptr=3), *with_dict(CountingDict(ptr=None, shape=2)), np.ones(2), len,
]  # fmt: skip


@pytest.mark.parametrize("name", ["ptr", "shape", "strides", "method", "empty", "absent", "dtype"])
def test_an_attribute_is_found_where_the_standard_library_finds_it(name):
    missing = object()
    for obj in OBJECTS:
        expected = inspect.getattr_static(obj, name, missing)
        assert foreign_layout.has_attributes(name)(obj) == (
            expected is not missing and expected is not None
        )


def test_a_class_is_looked_up_once_and_its_objects_each_time(monkeypatch):
    class Mix:
        pass

    asked = []
    named = registry._entry_of_class
    monkeypatch.setattr(registry, "_entry_of_class", lambda cls: asked.append(cls) or named(cls))
    for _ in range(3):
        assert registry.find_backend(Mix()) is None
        assert registry.find_backend(with_names(Mix, **PYCUDA)).name == "pycuda"
    assert asked == [Mix]


def test_attributes_that_a_class_gets_later_are_seen():
    class Late:
        pass

    assert registry.find_backend(Late()) is None
    for name, value in PYCUDA.items():
        setattr(Late, name, value)
    assert registry.find_backend(Late()).name == "pycuda"
    del Late.ptr
    assert registry.find_backend(Late()) is None
