"""Malformed structs, capsules and C exchange API tables: a Python error, and nothing freed twice or never."""

import gc
import sys

import numpy as np
import pytest
from doubles import internals
from peers import (
    ADDRESS,
    CUDA,
    PINNED,
    Producer,
    api,
    capsule,
    consume,
    content,
    name_of,
    run,
    with_table,
)

import gpuinterop as gi

PLAIN = {"shape": (2, 3), "strides": (12, 4), "ptr": ADDRESS}


def looks(x, **changes):
    return {name: getattr(x, name) for name in changes} == changes


# Fields of a struct, and a word of the error's message.
REFUSED = [
    ({"version": (1, 99), "dtype": (42, 8, 1)}, "42"),
    ({"version": (1, 99), "device": (77, 0)}, "77"),
    *[({"device": (code, 0)}, "") for code in (0, 4, 7, 10, 14, 99, -1)],
    ({"ndim": -1}, "-1"),
    ({"ndim": 2**31 - 1}, "2147483647"),
    ({"shape": (1,) * 65, "strides": (1,) * 65}, "65"),
    ({"shape": None, "strides": None, "ndim": 2}, "null"),
    ({"shape": (-2, 3)}, "(-2, 3)"),
    ({"shape": (0, -3)}, "(0, -3)"),
    ({"shape": (2**62, 2**62), "strides": (1, 1)}, "63"),
    ({"shape": (2**62, 0, 2**62), "strides": (1, 1, 1)}, "63"),
    ({"shape": (2**61,), "strides": (1,)}, "address"),
    ({"shape": (3, 3), "strides": (2**62, 2**62)}, "63"),
    ({"shape": (2,), "strides": (-(2**60),)}, "address"),
    ({"shape": (2,), "strides": (-(2**63),)}, ""),
    ({"data": ADDRESS + 160, "shape": (6, 8), "strides": (2**62 - 8, 1)}, "reach"),
    ({"shape": (0, 2**61), "strides": None}, "fit"),
    ({"shape": (2**61,), "strides": (0,)}, "fit"),
    ({"byte_offset": 2**64 - 8}, "byte_offset"),
    ({"byte_offset": 2**60}, "address"),
    ({"byte_offset": 2}, "aligned"),
    ({"data": ADDRESS + 1}, "aligned"),
    ({"data": None}, "null"),
    ({"data": None, "byte_offset": 64}, "null"),
    *[({"dtype": (2, 32, lanes)}, "lane") for lanes in (0, 2)],
    *[({"dtype": (code, bits, 1)}, f"{bits} bits") for code, bits in ((2, 24), (6, 16), (5, 16), (4, 32), (6, 1))],
    ({"dtype": (2, 0, 1)}, "0 bits"),
    *[({"dtype": (code, bits, 1)}, "whole bytes") for code, bits in ((0, 4), (17, 4), (15, 6))],
    ({"dtype": (3, 64, 1)}, "DLPack type 3"),
]  # fmt: skip


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(("fields", "word"), REFUSED)
def test_malformed_struct_is_refused_and_left_to_its_capsule(fields, word, legacy, freed):
    cap = capsule(legacy=legacy, **fields)
    before = name_of(cap)
    with pytest.raises(BufferError) as caught:
        gi.from_dlpack(cap)
    assert word in str(caught.value)
    assert (name_of(cap), freed()) == (before, 0)


ACCEPTED = [
    ({"version": (1, 99)}, {}),
    ({"flags": 0xFF00}, {}),
    ({"deleter": "throw"}, {}),
    ({"device": PINNED}, {}),
    ({"strides": None}, {}),
    ({"shape": (), "strides": None}, {"shape": (), "strides": ()}),
    ({"shape": (1,) * 64, "strides": (1,) * 64}, {"shape": (1,) * 64, "strides": (4,) * 64}),
    ({"byte_offset": 8}, {"ptr": ADDRESS + 8}),
    (
        {"shape": (0, 3), "data": 0xDEAD0001, "strides": (2**62, -(2**62))},
        {"shape": (0, 3), "ptr": 0},
    ),
    ({"shape": (2, 0), "data": None, "strides": None}, {"shape": (2, 0), "strides": (4, 4), "ptr": 0}),
]  # fmt: skip


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(("fields", "seen"), ACCEPTED)
def test_unusual_struct_is_accepted_and_freed_once(fields, seen, legacy, freed):
    x = gi.from_dlpack(capsule(legacy=legacy, **fields))
    assert looks(x, **{**PLAIN, **seen})
    del x
    gc.collect()
    assert freed() == 1


def test_integers_of_four_bits_are_accepted_when_they_are_padded():
    x = gi.from_dlpack(capsule(flags=4, dtype=(0, 4, 1)))
    assert (x.itemsize, x.nbytes) == (1, 6)
    with pytest.raises(BufferError, match="3 bits"):
        gi.from_dlpack(capsule(flags=4, dtype=(0, 3, 1)))


def test_struct_of_another_major_version_is_left_to_its_capsule(freed):
    cap = capsule(version=(2, 0))
    with pytest.raises(BufferError, match=r"version 2\.0"):
        gi.from_dlpack(cap)
    assert (name_of(cap), freed()) == (b"dltensor_versioned", 0)


def test_struct_without_a_deleter_keeps_its_producer():
    class Owner(Producer):
        pass

    producer = Owner(lambda **_: capsule(deleter=None))
    x = gi.from_dlpack(producer)
    count = sys.getrefcount(producer)
    y = x[1:]
    del x
    gc.collect()
    assert y.base is producer
    # A consumer of gpuinterop's capsule keeps it too, for nothing else keeps the memory.
    held = y.__dlpack__()
    del y
    gc.collect()
    assert sys.getrefcount(producer) == count
    del held
    gc.collect()
    assert sys.getrefcount(producer) == count - 1


# ---- capsules -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: capsule(name=b"tensor\xff"), r"tensor\xff"),
        (lambda: capsule(name=b"tensor_of_mine"), "tensor_of_mine"),
        (lambda: api.PyCapsule_New(ADDRESS, None, None), "DLPack"),
    ],
)
def test_capsule_of_another_name_is_refused(make, word):
    with pytest.raises(ValueError) as caught:
        gi.from_dlpack(make())
    assert word in str(caught.value)


def test_capsule_is_consumed_once(freed):
    cap = capsule()
    producer = Producer(lambda **_: cap)
    first = gi.from_dlpack(producer)
    assert looks(first, **PLAIN)
    assert name_of(cap) == b"used_dltensor_versioned"
    other = gi.zeros(3, device="cpu").__dlpack__()
    assert api.PyCapsule_GetDestructor(other)
    consume(other)
    for used in (cap, producer, other):
        with pytest.raises(ValueError, match="consumed"):
            gi.from_dlpack(used)
    del first, used
    gc.collect()
    assert freed() == 1
    exported = gi.zeros(3, device="cpu").__dlpack__()
    gi.from_dlpack(exported)
    assert not api.PyCapsule_GetDestructor(exported)


# ---- refused because of the caller's arguments ----------------------------------------------------


def assigned(shape, dtype):
    return lambda cap: gi.zeros(shape, dtype, device="cpu").__setitem__(..., cap)


REFUSALS = {
    "the class by from_dlpack": (lambda cap: gi.from_dlpack(cap, cls=gi.CudaNdarray), TypeError),
    "the class itself": (lambda cap: gi.CudaNdarray(cap, device="cpu"), TypeError),
    "to_cudandarray": (gi.to_cudandarray, TypeError),
    "a copy as CudaNdarray": (lambda cap: gi.to(cap, "cudandarray", copyif=True), TypeError),
    "to a library": (lambda cap: gi.to(cap, "cupy"), gi.GpuInteropError),
    "no cast": (lambda cap: gi.asarray(cap, "int32", device="cpu", copy=False), BufferError),
    "assigned to another dtype": (assigned((2, 3), "float32"), TypeError),
    "assigned to another shape": (assigned((4, 5), "float64"), ValueError),
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", REFUSALS)
def test_refused_capsule_can_still_be_consumed(name, legacy, freed):
    refuse, error = REFUSALS[name]
    cap = capsule(dtype=(2, 64, 1), legacy=legacy)
    before = name_of(cap)
    with pytest.raises(error):
        refuse(cap)
    assert (name_of(cap), freed()) == (before, 0)
    x = gi.from_dlpack(cap)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    del x
    assert freed() == 1


# ---- overlapping elements -------------------------------------------------------------------------


def test_overlapping_elements_are_exported_for_reading():
    for strides in ((0, 1), (3, 0)):
        x = gi.from_dlpack(capsule(strides=strides, dtype=(2, 64, 1)))
        assert not x.readonly
        assert not np.from_dlpack(x).flags.writeable
        assert content(x.__dlpack__(max_version=(1, 3))).flags == 1
    assert np.from_dlpack(x).tolist() == [[0, 0, 0], [3, 3, 3]]
    with pytest.raises(ValueError, match="overlap"):
        x += 1
    for shape, strides in (((1, 3), (0, 1)), ((0, 3), (0, 0)), ((1,), (0,))):  # repeats nothing
        x = gi.from_dlpack(capsule(shape=shape, strides=strides, dtype=(2, 64, 1)))
        assert content(x.__dlpack__(max_version=(1, 3))).flags == 0


# ---- tables of the C exchange API -----------------------------------------------------------------


FALLBACK = {"__dlpack__": lambda *_, **__: capsule(), "__dlpack_device__": lambda _: (1, 0)}
# Tables of doubles/peer/peer.cpp, and how an object without another protocol is refused.
TABLES = {
    "no functions": (1, TypeError, ""),
    "-1 without an exception": (2, BufferError, "exception"),
    "success": (3, BufferError, "success"),
    "a C++ exception": (4, BufferError, "peer fell over"),
    "a C++ exception that is no exception": (5, BufferError, "C++ exception"),
    "another major version": (6, TypeError, ""),
    "a tensor of another major version": (8, BufferError, "version 2.3"),
    "the same, whose deleter throws": (10, BufferError, "version 2.3"),
    "an interrupt": (11, KeyboardInterrupt, ""),
}


@pytest.mark.parametrize("name", TABLES)
def test_table_that_fails(name, freed):
    index, error, word = TABLES[name]
    live = gi.devices.memory_stats("cpu")["live_arrays"]
    for _ in range(3):
        with pytest.raises(error) as caught:
            gi.from_dlpack(with_table(index))
        assert word in str(caught.value)
    assert freed() == (3 if index in (8, 10) else 0)
    del caught
    gc.collect()
    assert gi.devices.memory_stats("cpu")["live_arrays"] == live
    if error is KeyboardInterrupt:
        with pytest.raises(error):
            gi.from_dlpack(with_table(index, **FALLBACK))
    elif index in (1, 2, 6):
        assert looks(gi.from_dlpack(with_table(index, **FALLBACK)), **PLAIN)


def test_table_that_works(freed):
    x = gi.from_dlpack(with_table(0))
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    del x
    gc.collect()
    assert freed() == 1
    no_capsule = type("NoCapsule", (), {"__dlpack_c_exchange_api__": 4096, **FALLBACK})()
    for other in (with_table(0, b"another", **FALLBACK), no_capsule):
        assert looks(gi.from_dlpack(other), **PLAIN)


# Tables that refuse an array of gpuinterop; the last two have ended its struct before.
@pytest.mark.parametrize(
    ("index", "error", "word"),
    [
        (0, BufferError, "exchange"),
        (9, SystemError, "refused"),
        (12, SystemError, "object"),
        (13, SystemError, "refused"),
    ],
)
def test_refused_export_leaves_the_array(index, error, word, freed):
    x = gi.from_dlpack(with_table(0))
    count = sys.getrefcount(x)
    with pytest.raises(error, match=word):
        internals.export_via(x, type(with_table(index)))
    assert (sys.getrefcount(x), freed()) == (count, 0)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    del x
    gc.collect()
    assert freed() == 1


def test_a_refused_export_describes_the_array():
    x = gi.ones((2, 3), device="cpu")
    x.readonly = True
    with pytest.raises(gi.ExportError) as refused:
        internals.export_via(x, gi.GpuArray)
    assert refused.value.got == "float32, read-only, shape (2, 3) with strides (3, 1) (elements)"


NO_DRIVER = """
import gpuinterop as gi
from peers import CUDA, Producer, capsule, counting

for make in (lambda: capsule(device=CUDA), lambda: Producer(device=CUDA)):
    freed, kept = counting(), make()
    try:
        gi.from_dlpack(kept)
    except gi.GpuInteropError as error:
        assert "driver" in str(error) and error.fix, error
    else:
        raise AssertionError("CUDA memory was accepted without a driver")
    assert freed() == 0
"""


def test_memory_of_a_device_without_a_driver_is_refused(tmp_path):
    run(NO_DRIVER, tmp_path / "libcuda.so.1")
    with pytest.raises(BufferError, match="cuda:0"):
        gi.from_dlpack(Producer(lambda **_: capsule(device=CUDA), device=(1, 0)))
