"""How the tables of malformed inputs are written: each case is a function and the answer it must get.

The answer is None (it returns), or exception classes and words of the message. The number in front of
a name groups the cases of one fault; what belongs to no group bears a 0.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from peers import ADDRESS, capsule, freed, name_of

import gpuinterop as gi
from gpuinterop import _core

BOTH = (ValueError, BufferError)


@dataclass(frozen=True)
class Case:
    """A function, and classes and words of the error that it must raise; without classes it must return.

    `needs` names the library without which it cannot run, torch or jax; `cuda` is that of a CUDA driver.
    """

    name: str
    run: Callable[[], object]
    expected: tuple[type[BaseException], ...]
    words: str
    needs: str
    cuda: bool


CASES: dict[str, Case] = {}


def case(name: str, expected: Any = None, words: str = "", needs: str = "", cuda: bool = False):
    """Register a case; `expected` is None or a class, or several of which the error is each."""
    name = f"cuda {name}" if cuda else name
    classes = () if expected is None else expected if isinstance(expected, tuple) else (expected,)

    def keep(function):
        assert name not in CASES
        CASES[name] = Case(name, function, classes, words, needs, cuda)
        return function

    return keep


def take(obj, cls=_core.Array, **options):
    return gi.from_dlpack(obj, cls=cls, **options)


def refused(name: str, expected: Any, words: str = "", **fields):
    """Two cases in one: a struct with these fields, in both layouts, freed once by its capsule."""
    for legacy in (False, True):

        def run(legacy=legacy):
            cap = capsule(legacy=legacy, **fields)
            before = name_of(cap)
            try:
                take(cap)
            finally:
                # Nothing was touched: the producer's own destructor would free it.
                assert name_of(cap) == before
                assert freed() == 0

        case(f"{name}{' legacy' if legacy else ''}", expected, words)(run)


def accepted(name: str, check, **fields):
    for legacy in (False, True):

        def run(legacy=legacy):
            x = take(capsule(legacy=legacy, **fields))
            check(x)
            del x
            gc.collect()
            assert freed() == 1

        case(f"{name}{' legacy' if legacy else ''}")(run)


def is_plain(x):
    assert x.shape == (2, 3)
    assert x.strides == (12, 4)
    assert x.ptr == ADDRESS
