"""Malformed structs and capsules on the host, and geometry and dtypes that are refused (1 to 30)."""

from __future__ import annotations

import ctypes
import gc
import sys

import numpy as np
from malformed_table import BOTH, accepted, case, is_plain, refused, take
from peers import (
    ADDRESS,
    Producer,
    api,
    capsule,
    consume,
    content,
    forever,
    freed,
    interface,
    name_of,
    with_table,
)

import gpuinterop as gi
from gpuinterop import _core

READS_FLAGS = np.from_dlpack(np.ones(1)).flags.writeable  # not in NumPy 2.1

# ---- 1 to 10: capsules ---------------------------------------------------------------------------

case("1 no protocol", TypeError, "__cuda_array_interface__")(lambda: take([1.0, 2.0]))
case("1 no protocol, None", TypeError, "DLPack")(lambda: take(None))
case("2 __dlpack__ returns None", TypeError, "capsule")(lambda: take(Producer(lambda **_: None)))
case("2 __dlpack__ returns an array", TypeError, "capsule")(
    lambda: take(Producer(lambda **_: np.zeros(3)))
)
case("3 a name that is not UTF-8", ValueError, r"tensor\xff")(
    lambda: take(capsule(name=b"tensor\xff"))
)
case("3 another name", ValueError, "tensor_of_mine")(lambda: take(capsule(name=b"tensor_of_mine")))
case("3 no name", ValueError, "a DLPack capsule")(
    lambda: take(api.PyCapsule_New(ADDRESS, None, None))
)


@case("4 used twice", ValueError, "consumed already")
def _():
    cap = capsule()
    forever(take(cap))
    assert name_of(cap) == b"used_dltensor_versioned"
    take(cap)


@case("4 used elsewhere", ValueError, "consumed already")
def _():
    x = gi.zeros((2, 3), device="cpu")
    cap = x.__dlpack__()
    consume(cap)
    take(cap)


@case("5 the same capsule from two calls", ValueError, "consumed already")
def _():
    cap = capsule()
    producer = Producer(lambda **_: cap)
    first = take(producer)
    is_plain(first)
    try:
        take(producer)
    finally:
        del first
        gc.collect()
        assert freed() == 1


@case("5 the destructor is cleared")
def _():
    cap = gi.zeros(3, device="cpu").__dlpack__()
    assert api.PyCapsule_GetDestructor(cap)
    take(cap)
    assert not api.PyCapsule_GetDestructor(cap)


@case("6 another major version", BufferError, "version 2.0")
def _():
    cap = capsule(version=(2, 0))
    try:
        take(cap)
    finally:
        assert freed() == 0
        assert name_of(cap) == b"dltensor_versioned"


@case("6 another major version from a table, and a deleter that throws", BufferError, "version 2.3")
def _():
    try:
        take(with_table(10))
    finally:
        assert freed() == 1


accepted("6 a deleter that throws", is_plain, deleter="throw")


accepted("7 a higher minor", is_plain, version=(1, 99))
refused(
    "7 a higher minor with a new dtype",
    BufferError,
    "unknown code 42",
    version=(1, 99),
    dtype=(42, 8, 1),
)
refused(
    "7 a higher minor with a new device",
    BufferError,
    "DLPack type 77",
    version=(1, 99),
    device=(77, 0),
)
accepted("8 unknown flag bits", is_plain, flags=0xFF00)


@case("8 padded four-bit integers")
def _():
    x = take(capsule(flags=4, dtype=(0, 4, 1)))
    assert x.itemsize == 1
    assert x.nbytes == 6


case("8 padded flag with a type nobody knows", BufferError, "3 bits")(
    lambda: take(capsule(flags=4, dtype=(0, 3, 1)))
)


@case("9 no deleter")
def _():
    class Owner(Producer):
        pass

    producer = Owner(lambda **_: capsule(deleter=None))
    x = take(producer)
    is_plain(x)
    count = sys.getrefcount(producer)
    y = x[1:]
    del x
    gc.collect()
    assert y.base is producer
    # A consumer of ours must keep the object too, for nothing else keeps the memory.
    held = y.__dlpack__()
    del y
    gc.collect()
    assert sys.getrefcount(producer) == count
    del held
    gc.collect()
    assert sys.getrefcount(producer) == count - 1


case("10 success without a tensor", BufferError, "success without a tensor")(
    lambda: take(with_table(3))
)

# ---- 11 to 23: geometry and memory ----------------------------------------------------------------

refused("11 ndim -1", BOTH, "-1", ndim=-1)
refused("11 ndim 65", BOTH, "65", shape=(1,) * 65, strides=(1,) * 65)
refused("11 ndim 2**31-1", BOTH, "2147483647", ndim=2**31 - 1)
accepted("11 ndim 64", lambda x: x.shape == (1,) * 64 or 1 / 0, shape=(1,) * 64, strides=(1,) * 64)
refused("12 no shape", BOTH, "null pointer", shape=None, strides=None, ndim=2)
refused("13 a negative extent", BOTH, "(-2, 3)", shape=(-2, 3))
refused("13 a negative extent beside an empty one", BOTH, "(0, -3)", shape=(0, -3))
refused("14 extents that overflow", BOTH, "63 bits", shape=(2**62, 2**62), strides=(1, 1))
refused(
    "14 extents that overflow beside an empty one",
    BOTH,
    "63 bits",
    shape=(2**62, 0, 2**62),
    strides=(1, 1, 1),
)
refused("14 a span in bytes that overflows", BOTH, "address space", shape=(2**61,), strides=(1,))
accepted("15 strides NULL", is_plain, strides=None)
accepted("15 strides NULL, 0-d", lambda x: x.shape == () or 1 / 0, shape=(), strides=None)
refused("16 strides that overflow", BOTH, "63 bits", shape=(3, 3), strides=(2**62, 2**62))
refused("16 strides below address 0", BOTH, "address space", shape=(2,), strides=(-(2**60),))
refused("16 strides of -2**63", BOTH, "", shape=(2,), strides=(-(2**63),))


@case("17 negative strides come in and go to torch", BOTH, "negative", needs="torch")
def _():
    import torch

    x = take(capsule(data=ADDRESS + 40, strides=(-3, -1), dtype=(2, 64, 1)))
    assert np.from_dlpack(x)[0, 0] == 5
    assert np.from_dlpack(x)[1, 2] == 0
    torch.from_dlpack(x)


@case("17 negative strides by the C interface", BOTH, "negative", needs="torch")
def _():
    import torch

    _core.export_via(take(np.arange(6.0)[::-1]), torch.Tensor)


@case("17 negative strides to jax", RuntimeError, "tride", needs="jax")
def _():
    import jax

    jax.dlpack.from_dlpack(take(np.arange(6.0)[::-1]))


@case("18 overlapping memory is readable")
def _():
    x = take(capsule(strides=(0, 1), dtype=(2, 64, 1)))
    assert np.from_dlpack(x).tolist() == [[0, 1, 2], [0, 1, 2]]


@case("18 overlapping memory goes out for reading")
def _():
    for strides in ((0, 1), (3, 0), (0, 0)):
        x = take(capsule(strides=strides, dtype=(2, 64, 1)))
        assert not x.readonly
        assert not np.from_dlpack(x).flags.writeable
        assert not np.asarray(x).flags.writeable
        assert content(x.__dlpack__(max_version=(1, 3))).flags == 1
        assert content(x.__dlpack__()).tensor.ndim == 2  # which cannot say so
        assert not READS_FLAGS or np.from_dlpack(x, copy=True).flags.writeable


@case("18 a stride of 0 that repeats nothing goes out for writing")
def _():
    for shape, strides in (((1, 3), (0, 1)), ((0, 3), (0, 0)), ((1,), (0,)), ((1, 1), (0, 0))):
        x = take(capsule(shape=shape, strides=strides, dtype=(2, 64, 1)))
        assert not READS_FLAGS or np.from_dlpack(x).flags.writeable
        assert content(x.__dlpack__(max_version=(1, 3))).flags == 0


@case("18 torch itself refuses to write to it", RuntimeError, "single memory location", "torch")
def _():
    import torch

    t = _core.export_via(take(capsule(strides=(0, 1), dtype=(2, 64, 1))), torch.Tensor)
    t += 1


@case("18 overlapping memory takes no results", ValueError, "do not overlap")
def _():
    x = gi.from_dlpack(capsule(strides=(0, 1)))
    x += 1


case("19 strides of part elements", BufferError, "whole elements")(
    lambda: take(interface("__array_interface__", strides=(12, 6)))
)


@case("19 a field of a structured array", BufferError, "whole elements")
def _():
    take(np.zeros(4, dtype="f4,i2")["f0"])


refused("20 byte_offset beyond the address space", BOTH, "byte_offset", byte_offset=2**64 - 8)
refused("20 byte_offset far away", BOTH, "address space", byte_offset=2**60)
refused("20 byte_offset of part elements", BufferError, "aligned", byte_offset=2)
accepted("20 byte_offset 8 is added", lambda x: x.ptr == ADDRESS + 8 or 1 / 0, byte_offset=8)
refused("21 data NULL", BufferError, "null pointer", data=None)
refused("21 data NULL and an offset", BufferError, "null pointer", data=None, byte_offset=64)


accepted(
    "22 empty, with junk",
    lambda x: (x.shape, x.ptr) == ((0, 3), 0) or 1 / 0,
    shape=(0, 3),
    data=0xDEAD0001,
    strides=(2**62, -(2**62)),
)
accepted(
    "22 empty, without anything",
    lambda x: x.shape == (2, 0) or 1 / 0,
    shape=(2, 0),
    data=None,
    strides=None,
)
refused("23 a misaligned pointer", BufferError, "aligned", data=ADDRESS + 1)


@case("23 a misaligned pointer, copied")
def _():
    raw = bytearray(25)
    wanted = np.arange(6, dtype="float32")
    raw[1:] = wanted.tobytes()
    address = ctypes.addressof(ctypes.c_char.from_buffer(raw))
    x = take(capsule(data=address + 1), copy=True)
    assert np.from_dlpack(x).ravel().tolist() == wanted.tolist()
    assert x.ptr % 4 == 0
    assert x.base is None


# ---- 24 to 30: dtypes --------------------------------------------------------------------------

refused("24 lanes 2", BufferError, "lanes", dtype=(2, 32, 2))
refused("25 lanes 0", BufferError, "lane", dtype=(2, 32, 0))
refused("25 bits 0", BufferError, "bit", dtype=(2, 0, 1))
refused("25 float24", BufferError, "24 bits", dtype=(2, 24, 1))
refused("25 bool of 16 bits", BufferError, "16 bits", dtype=(6, 16, 1))
refused("25 complex of 16 bits", BufferError, "16 bits", dtype=(5, 16, 1))
refused("25 bfloat of 32 bits", BufferError, "32 bits", dtype=(4, 32, 1))
refused("26 bool of 1 bit", BufferError, "1 bits", dtype=(6, 1, 1))
refused("26 packed int4", BufferError, "packed", dtype=(0, 4, 1))
refused("26 packed float4", BufferError, "packed", dtype=(17, 4, 1))
refused("26 packed float6", BufferError, "packed", dtype=(15, 6, 1))


# NumPy's own refusal: nothing in a capsule's request tells who asks.
@case("27 float8 to NumPy", BufferError, "dtype")
def _():
    try:
        np.from_dlpack(take(capsule(dtype=(10, 8, 1))))
    except RuntimeError as error:  # its class before NumPy 2.5
        raise BufferError(str(error)) from None


@case("27 padded float4 to torch", BufferError, "whole bytes", needs="torch")
def _():
    import torch

    _core.export_via(take(capsule(dtype=(17, 4, 1), flags=4)), torch.Tensor)


refused("28 opaque handles", BufferError, "opaque handle", dtype=(3, 64, 1))
case("29 big-endian numpy", ValueError, "native byte order")(lambda: take(np.zeros(3, ">f4")))
case("29 big-endian typestr", ValueError, "native byte order")(
    lambda: take(interface("__array_interface__", typestr=">f4"))
)
for bad in (
    np.zeros(2, "f4,i4"),
    np.array([None]),
    np.array(["2026-11-20"], dtype="M8[D]"),
    np.array([1], dtype="m8[s]"),
    np.array(["text"]),
    np.array([b"text"]),
):
    case(f"30 dtype {bad.dtype}", TypeError, "a numeric dtype")(lambda bad=bad: take(bad))
