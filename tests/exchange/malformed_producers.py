"""Devices, flags, copies, streams, and producers that misbehave, on the host (31 to 67)."""

from __future__ import annotations

import gc
import sys
from typing import ClassVar

import numpy as np
from malformed_table import BOTH, case, is_plain, refused, take
from peers import (
    ADDRESS,
    CUDA,
    PINNED,
    Producer,
    capsule,
    freed,
    with_table,
)

import gpuinterop as gi
from gpuinterop import _core

# ---- 31 to 45: devices, flags, copies --------------------------------------------------------------

for code in (0, 4, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 99, -1):
    refused(f"31 device type {code}", BufferError, "", device=(code, 0))
case("31 __dlpack_device__ of another kind", BufferError, "ROCm")(
    lambda: take(Producer(device=(10, 0)))
)
case("33 the method says cpu, the capsule cuda", BufferError, "cuda:0")(
    lambda: take(Producer(lambda **_: capsule(device=CUDA), device=(1, 0)))
)
case("38 pinned by the method, cpu in the capsule")(
    lambda: is_plain(take(Producer(lambda **_: capsule(), device=PINNED)))
)
case("38 pinned in the capsule, cpu by the method")(
    lambda: is_plain(take(Producer(lambda **_: capsule(device=PINNED))))
)
case("38 pinned in both")(lambda: is_plain(take(Producer(device=PINNED))))
case("38 pinned is host memory")(lambda: is_plain(take(capsule(device=PINNED))))


@case("39 read-only memory refuses writing", BOTH, "read-only")
def _():
    x = take(capsule(flags=1))
    assert x.readonly
    x[...] = 0


@case("39 read-only survives views and export")
def _():
    x = take(capsule(flags=1))
    assert x[1:].readonly
    assert not np.from_dlpack(x[1:]).flags.writeable
    assert not np.asarray(x).flags.writeable


@case("39 read-only memory to torch", BOTH, "read-only", needs="torch")
def _():
    import torch

    _core.export_via(take(capsule(flags=1)), torch.Tensor)


case("40 read-only to an old consumer", BufferError, "read-only")(
    lambda: take(capsule(flags=1)).__dlpack__()
)
case("41 copy=False on another device", BOTH, "copy=False")(
    lambda: gi.zeros(3, device="cpu").__dlpack__(dl_device=(2, 0), copy=False)
)


@case("42 copy=True that the producer ignores")
def _():
    producer = Producer()
    x = take(producer, copy=True)
    assert x.ptr != ADDRESS
    assert x.base is None
    assert freed() == 1


@case("42 a copy that the producer made")
def _():
    producer = Producer(flags=2)
    x = take(producer, copy=True)
    assert x.ptr == ADDRESS


case("44 stream 0", ValueError, "not 0")(lambda: gi.zeros(3, device="cpu").__dlpack__(stream=0))
case("44 stream -2", ValueError, "-2")(lambda: gi.zeros(3, device="cpu").__dlpack__(stream=-2))
case("44 stream 2**64", ValueError, "")(lambda: gi.zeros(3, device="cpu").__dlpack__(stream=2**64))
case("44 stream -2**70", ValueError, "")(
    lambda: gi.zeros(3, device="cpu").__dlpack__(stream=-(2**70))
)
case("44 a bool as stream", TypeError, "True")(
    lambda: gi.zeros(3, device="cpu").__dlpack__(stream=True)
)
case("44 a string as stream", TypeError, "'1'")(
    lambda: gi.zeros(3, device="cpu").__dlpack__(stream="1")
)
case("44 a float as stream", TypeError, "1.0")(
    lambda: gi.zeros(3, device="cpu").__dlpack__(stream=1.0)
)
case("45 a stream for host memory", ValueError, "stream=None")(
    lambda: gi.zeros(3, device="cpu").__dlpack__(stream=1)
)
case("45 -1 for host memory", ValueError, "stream=None")(
    lambda: gi.zeros(3, device="cpu").__dlpack__(stream=-1)
)


class CudaStream:
    def __init__(self, answer):
        self.answer = answer

    def __cuda_stream__(self):
        return self.answer


case("48 __cuda_stream__ of another length", ValueError, "length 3")(
    lambda: gi.devices.as_stream(CudaStream((0, 16, 3)), gi.devices.device_from_dlpack(2, 0))
)
case("48 __cuda_stream__ with a text", ValueError, "handle is not an int")(
    lambda: gi.devices.as_stream(CudaStream((0, "16")), gi.devices.device_from_dlpack(2, 0))
)

case("48 __cuda_stream__ that is no tuple", ValueError, "not a tuple")(
    lambda: gi.devices.as_stream(CudaStream(16), gi.devices.device_from_dlpack(2, 0))
)
case("48 __cuda_stream__ of version 1", ValueError, "version 1")(
    lambda: gi.devices.as_stream(CudaStream((1, 16)), gi.devices.device_from_dlpack(2, 0))
)

# ---- 64 to 69: producers that misbehave --------------------------------------------------------------


class Inner:
    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        raise TypeError("cannot add a str to an int")

    def __dlpack_device__(self):
        return (1, 0)


case("64 an inner TypeError", TypeError, "cannot add a str")(lambda: take(Inner()))


class Old:
    calls: ClassVar[list] = []

    def __dlpack__(self, stream=None):
        Old.calls.append(stream)
        return capsule(legacy=True)

    def __dlpack_device__(self):
        return (1, 0)


@case("64 an older signature")
def _():
    is_plain(take(Old()))
    assert Old.calls == [None]


class Moody:
    """Read-only memory, which only a struct that bears a version can tell."""

    def __init__(self, fails=False):
        self.fails = fails

    def __dlpack__(self, *, stream=None, max_version=None):
        if self.fails and max_version:
            raise TypeError("sorted() got an unexpected keyword argument 'by'")
        return capsule(flags=1) if max_version else capsule(legacy=True)

    def __dlpack_device__(self):
        return (1, 0)


@case("64 an error of one object is not kept for its class")
def _():
    take(Moody(fails=True))
    assert take(Moody()).readonly


class Oldest:
    def __dlpack__(self):
        return capsule(legacy=True)

    def __dlpack_device__(self):
        return (1, 0)


case("64 no keywords at all")(lambda: is_plain(take(Oldest())))
case("64 any exception passes", ZeroDivisionError, "")(lambda: take(Producer(lambda **_: 1 // 0)))
for claim in (
    None,
    1,
    (1,),
    (1, 0, 0),
    ("cpu", 0),
    (1.0, 0),
    (1, None),
    (2**40, 0),
    [1, 0],
):
    case(f"65 __dlpack_device__ {claim!r}", TypeError, "__dlpack_device__")(
        lambda claim=claim: take(Producer(device=claim))
    )


class Speaks:
    """A fallback for the tables below."""

    def __dlpack__(self, **_):
        return capsule()

    def __dlpack_device__(self):
        return (1, 0)


FALLBACK = {"__dlpack__": Speaks.__dlpack__, "__dlpack_device__": Speaks.__dlpack_device__}


@case("66 a table that works")
def _():
    x = take(with_table(0))
    assert np.from_dlpack(x).tolist() == [[0, 1, 2], [3, 4, 5]]
    del x
    gc.collect()
    assert freed() == 1


case("66 another capsule name")(lambda: is_plain(take(with_table(0, b"another", **FALLBACK))))
case("66 no functions")(lambda: is_plain(take(with_table(1, **FALLBACK))))
case("66 -1 without an exception, with a fallback")(
    lambda: is_plain(take(with_table(2, **FALLBACK)))
)
# As every protocol of an object that fails, and after it no other that works.
case("66 -1 without an exception", BufferError, "no exception was set")(lambda: take(with_table(2)))
case("66 an int instead of a capsule")(
    lambda: is_plain(take(type("P", (), {"__dlpack_c_exchange_api__": 4096, **FALLBACK})()))
)
case("66 a major version of its own")(lambda: is_plain(take(with_table(6, **FALLBACK))))
case("66 our major version behind it")(lambda: take(with_table(7)))


@case("66 a tensor of another major version", BufferError, "version 2.3")
def _():
    try:
        take(with_table(8))
    finally:
        assert freed() == 1


@case("66 a target that refuses without an exception", SystemError, "refused")
def _():
    x = gi.zeros((2, 3), device="cpu")
    count = sys.getrefcount(x)
    try:
        _core.export_via(x, type(with_table(9)))
    finally:
        assert sys.getrefcount(x) == count


@case("66 a target that takes the struct and gives no object", SystemError, "without an object")
def takes_the_struct(table=12):
    x = take(with_table(0))
    try:
        _core.export_via(x, type(with_table(table)))
    finally:
        assert freed() == 0
        assert np.from_dlpack(x).tolist() == [[0, 1, 2], [3, 4, 5]]
        del x
        gc.collect()
        assert freed() == 1


case("66 a target that takes the struct and refuses", SystemError, "refused")(
    lambda: takes_the_struct(13)
)
case("66 a target without the function", BufferError, "C exchange API")(
    lambda: _core.export_via(gi.zeros(3, device="cpu"), type(with_table(0)))
)
case("66 an interrupt, with a fallback", KeyboardInterrupt)(
    lambda: take(with_table(11, **FALLBACK))
)


class Interrupts:
    """Raises where it is asked what it is. All else about it works."""

    __array_interface__: ClassVar = {
        "shape": (2, 3), "typestr": "<f4", "data": (ADDRESS, False), "version": 3,
    }  # fmt: skip

    @property
    def __array_struct__(self):
        raise KeyboardInterrupt


class InterruptsMro(type):
    @property
    def __mro__(cls):
        raise KeyboardInterrupt


case("66 an interrupt in __array_struct__", KeyboardInterrupt)(lambda: take(Interrupts()))
case("66 an interrupt in a metaclass", KeyboardInterrupt)(
    lambda: take(InterruptsMro("C", (Speaks,), {})())
)
case("67 a C++ exception", BufferError, "peer fell over")(lambda: take(with_table(4)))
case("67 a C++ exception that is no exception", BufferError, "C++ exception")(
    lambda: take(with_table(5))
)


for text in ("no", 0, 1.0, []):
    case(f"0 {text!r} for copy", TypeError, "True, False or None")(
        lambda text=text: gi.zeros(3, device="cpu").__dlpack__(copy=text)
    )
case("0 a bool of NumPy's for copy")(
    lambda: gi.zeros(3, device="cpu").__dlpack__(copy=np.True_, max_version=(1, 3))
)
case("31 dl_device without a driver", BufferError, "dl_device")(
    lambda: gi.zeros(3, device="cpu").__dlpack__(dl_device=CUDA)
)
case("0 dl_device beyond 32 bits", BufferError, "4294967296")(
    lambda: gi.zeros(3, device="cpu").__dlpack__(dl_device=(2, 2**32))
)


@case("0 the class goes while its object is asked")
def _():
    n = np.arange(3, dtype=np.float32)

    def make(after):
        class Before:
            def __dlpack_device__(self):
                self.__class__ = after
                gc.collect()
                return (1, 0)

            def __dlpack__(self, **_):
                self.__class__ = after
                gc.collect()
                return n.__dlpack__()

        return Before()

    for _i in range(20):
        after = type("After", (), {"__dlpack__": lambda self, **_: n.__dlpack__()})
        assert take(make(after)).ptr == n.ctypes.data
