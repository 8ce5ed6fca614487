"""Converters with one small mistake each: the compatibility suite finds every one of them.

A mutant changes the parts (address, shape, strides, dtype, read-only mark, owner) that a sound converter passes on. The
same mistake is made in both directions.
"""

from dataclasses import replace

import numpy as np
import pytest
from doubles import faulty_libraries as faulty

import gpuinterop as gi
from gpuinterop.testing import matrix

GAPS = {"pitch", "F-pitch", "flipped", "planes", "block"}


@pytest.fixture(autouse=True)
def tidy(monkeypatch):
    monkeypatch.setattr("gpuinterop.testing.verdict._PATIENCE", 0.0)
    yield
    kept.clear()


kept = []  # by converters that leak


def c_steps(shape, size):
    return tuple(size * int(np.prod(shape[i + 1 :])) for i in range(len(shape)))


class Parts:
    """What a conversion passes on; a mutant changes it."""

    def __init__(self, address, shape, strides, dtype, readonly):
        self.address, self.shape, self.strides = address, tuple(shape), tuple(strides)
        self.dtype, self.readonly, self.size, self.ndim = (
            dtype,
            readonly,
            dtype.itemsize,
            len(shape),
        )
        self.empty, self.forward = 0 in shape, all(s > 0 for s in strides)
        # Whether rows and columns have no gaps inside.
        self.rows = self.ndim > 1 and strides[-1] == self.size
        self.columns = self.ndim == 2 and strides[0] == self.size
        self.c, self.f = c_steps(shape, self.size), c_steps(shape[::-1], self.size)[::-1]

    @property
    def changes(self):
        return {
            "shape": self.shape,
            "strides": self.strides,
            "dtype": self.dtype,
            "readonly": self.readonly,
        }


def setting(where=lambda p: True, **rules):
    """A mutant that replaces parts of some arrays, each by a function of the old ones."""

    def change(p):
        if where(p):
            for name, new in {name: rule(p) for name, rule in rules.items()}.items():
                setattr(p, name, new)

    return change


def strides(rule, where=lambda p: True):
    return setting(lambda p: p.ndim and not p.empty and where(p), strides=lambda p: tuple(rule(p)))


def stride(i, rule):
    return strides(
        lambda p: [rule(p, s) if j == i % p.ndim else s for j, s in enumerate(p.strides)]
    )


def retyped(old, new):
    return setting(lambda p: p.dtype.name == old, dtype=lambda p: np.dtype(new))


def cube(p):
    return p.ndim == 3 and p.rows and 1 not in p.shape


def gap(p):
    return p.ndim == 2 and p.rows and p.strides[0] > p.shape[1] * p.size


RETYPED = {
    "float32": "int32", "int8": "uint8", "bool": "uint8", "float16": "int16", "complex64": "float64",
}  # fmt: skip
MUTANTS = {
    "the row pitch is ignored": strides(lambda p: p.c, lambda p: p.rows and p.forward),
    "the row pitch of a matrix is ignored": strides(lambda p: p.c, gap),
    "the pitch is rounded up to 8 elements": strides(lambda p: [8 * p.size, p.size], gap),
    "the column pitch is ignored": strides(lambda p: p.f, lambda p: p.columns),
    "the row pitch of reversed rows is ignored": strides(
        lambda p: [-p.c[0], p.size], lambda p: p.rows and p.strides[0] < 0
    ),
    "planes follow each other without gaps": strides(
        lambda p: [p.shape[1] * p.strides[1], *p.strides[1:]], cube
    ),
    "rows have the pitch of planes": strides(
        lambda p: [p.strides[0], p.strides[0] // p.shape[1], p.size], cube
    ),
    "gaps between planes alone are ignored": strides(
        lambda p: p.c, lambda p: p.ndim > 1 and p.forward and p.strides[1:] == p.c[1:]
    ),
    "all strides are those of C": strides(lambda p: p.c),
    "all strides are those of F": strides(lambda p: p.f),
    "the inner stride is the itemsize": stride(-1, lambda p, s: p.size),
    "the inner stride is an element too long": stride(-1, lambda p, s: s + p.size),
    "the outer stride is an element too long": stride(0, lambda p, s: s + p.size),
    "strides count elements": strides(lambda p: [s // p.size for s in p.strides]),
    "strides are multiplied twice": strides(lambda p: [s * p.size for s in p.strides]),
    "strides are absolute": strides(lambda p: map(abs, p.strides)),
    "the first axis is not reversed": stride(0, lambda p, s: abs(s)),
    "the last axis is not reversed": stride(-1, lambda p, s: abs(s)),
    "a stride of 0 is replaced": strides(lambda p: p.c, lambda p: 0 in p.strides),
    "the step of a vector is ignored": strides(lambda p: p.c, lambda p: p.ndim == 1),
    "strides are in the reverse order": strides(lambda p: p.strides[::-1]),
    "two axes are exchanged": setting(
        lambda p: p.ndim > 1,
        shape=lambda p: (p.shape[1], p.shape[0], *p.shape[2:]),
        strides=lambda p: (p.strides[1], p.strides[0], *p.strides[2:]),
    ),
    "the axes of a cube are sorted": setting(
        lambda p: p.ndim == 3 and p.forward,
        shape=lambda p: [n for _, n in sorted(zip(p.strides, p.shape, strict=True))][::-1],
        strides=lambda p: sorted(p.strides)[::-1],
    ),
    "axes of length 1 are dropped": setting(
        shape=lambda p: tuple(n for n in p.shape if n != 1),
        strides=lambda p: tuple(s for n, s in zip(p.shape, p.strides, strict=True) if n != 1),
    ),
    "0-d becomes 1-d": setting(
        lambda p: p.ndim == 0, shape=lambda p: (1,), strides=lambda p: (p.size,)
    ),
    "an empty array is flat": setting(
        lambda p: p.empty, shape=lambda p: (0,), strides=lambda p: (p.size,)
    ),
    "the last row is missing": setting(
        lambda p: p.ndim and p.shape[0] > 1, shape=lambda p: (p.shape[0] - 1, *p.shape[1:])
    ),
    "the address is rounded down": setting(address=lambda p: p.address // 16 * 16),
    "the address is an element too high": setting(address=lambda p: p.address + p.size),
    "the address is that of no memory": setting(address=lambda p: faulty.NOWHERE),
    "the address is the lowest": setting(
        address=lambda p: (
            p.address + sum((n - 1) * min(s, 0) for n, s in zip(p.shape, p.strides, strict=True))
        )
    ),
    "the offset in a row is dropped": setting(
        lambda p: cube(p) and p.strides != p.c, address=lambda p: p.address - 2 * p.size
    ),
    **{f"{old} is {new}": retyped(old, new) for old, new in RETYPED.items()},
    "the read-only mark is dropped": setting(readonly=lambda p: False),
}


def to_mutant(change):
    def to(x, copyif=False):
        plan = faulty.plan_to(x, copyif)
        if plan.refused and not plan.reason.startswith("strides"):
            raise plan.exception()
        p = Parts(x.ptr, x.shape, x.strides, x.dtype, x.readonly)
        change(p)
        if p.empty:
            return faulty.Toy(np.empty(p.shape, p.dtype))
        return faulty.same(x, address=p.address, **p.changes)

    return to


def from_mutant(change):
    def from_(toy, copyif=False):
        w = toy.window
        p = Parts(
            w.__array_interface__["data"][0], w.shape, w.strides, w.dtype, not w.flags.writeable
        )
        change(p)
        if p.empty:
            return gi.converters.from_numpy(np.empty(p.shape, p.dtype))
        return faulty.gpuinterop_array(toy, ptr=p.address, **p.changes)

    return from_


def copying(where):
    """A converter that copies arrays of some kind without a word."""
    return lambda x, copyif=False: faulty.Toy(np.array(view(x))) if where(x) else faulty.same(x)


def view(x):
    return gi.converters.to_numpy(x)


def copy_made(rule):
    """A converter that refuses reversed arrays and makes a wrong copy of them."""

    def to(x, copyif=False):
        plan = faulty.plan_to(x, copyif)
        if plan.refused:
            raise plan.exception()
        return faulty.Toy(rule(x)) if plan.copied else faulty.same(x)

    return to


def kept_after(x, copyif=False):
    try:
        return faulty.to_toy(x, copyif)
    except gi.GpuInteropError:
        kept.append(x)
        raise


# Mistakes in ownership and copies beyond those of faulty_libraries, of the direction "to".
OTHER_MUTANTS = {
    "strided arrays are copied": copying(lambda x: not x.is_c_contiguous()),
    "read-only arrays are copied": copying(lambda x: x.readonly),
    "small arrays are copied": copying(lambda x: x.size < 2),
    "the copy is the source": copy_made(lambda x: view(x)),
    "the copy has the source's memory, reversed": copy_made(lambda x: view(x)[::-1]),
    "the copy is zero": copy_made(lambda x: np.zeros_like(view(x.copy()))),
    "the copy has the order of memory": copy_made(lambda x: view(x.copy())[::-1]),
    "the copy is flat": copy_made(lambda x: view(x.copy()).ravel()),
    "the copy has another dtype": copy_made(lambda x: view(x.copy()).astype("float64")),
    "a refused array is kept": kept_after,
}

# A library with every layout, whose sound converter passes all parts on.
TOY = replace(
    faulty.SOUND, explain=None, promises=None,
    make=lambda flat, layout, device: faulty.Toy(layout.of(flat)),
)  # fmt: skip
DIRECTIONS = {"to": to_mutant, "from": from_mutant}


def faults(direction, converter, dtype="float32"):
    """The layouts and the checks that find the mistakes of a converter."""
    name = "to" if direction == "to" else "from_"
    m = matrix([replace(TOY, **{name: converter})], ["cpu"], dtypes=[dtype])
    assert {cell.direction for cell in m.wrong} <= {direction}, str(m)
    checks = {fault["check"] for cell in m.wrong for fault in cell.faults}
    return {cell.layout for cell in m.wrong}, checks


@pytest.mark.parametrize("dtype", RETYPED)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_converter_without_a_mistake_passes(direction, dtype):
    assert faults(direction, DIRECTIONS[direction](lambda p: None), dtype) == (set(), set())


ONLY_BY_GAPS = {
    "the row pitch of a matrix is ignored", "the pitch is rounded up to 8 elements", "rows have the pitch of planes",
    "the row pitch of reversed rows is ignored", "gaps between planes alone are ignored",
    "the offset in a row is dropped",
    "the row pitch is ignored", "the column pitch is ignored", "planes follow each other without gaps",
}  # fmt: skip
FOUND_WITH = {
    # Of float32 no layout has strides of which a quarter are whole elements; such are refused.
    "strides count elements": "float16",
    **{f"{old} is {new}": old for old, new in RETYPED.items()},
}
FINDERS = {
    "all strides are those of C": {"strides", "bounds"}, "the address is that of no memory": {"address"},
    "the read-only mark is dropped": {"readonly"}, "float32 is int32": {"dtype"},
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_mutant_is_found(direction, name):
    dtype = FOUND_WITH.get(name, "float32")
    found, checks = faults(direction, DIRECTIONS[direction](MUTANTS[name]), dtype)
    assert found
    assert (found <= GAPS) == (name in ONLY_BY_GAPS)
    assert FINDERS.get(name, set()) <= checks


@pytest.mark.parametrize("name", OTHER_MUTANTS)
def test_every_mistake_in_ownership_and_copies_is_found(name):
    assert faults("to", OTHER_MUTANTS[name])[0]


@pytest.mark.driver
def test_an_array_on_another_device_is_found():
    moved = lambda toy, copyif=False: faulty.from_toy(toy).to_device("cuda")  # noqa: E731
    m = matrix([replace(TOY, from_=moved)], ["cpu"], layouts=["C"], dtypes=["float32"])
    assert "device" in {fault["check"] for cell in m.wrong for fault in cell.faults}
