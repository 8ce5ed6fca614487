"""Malformed inputs on CUDA devices, against the fake driver: pointers, ordinals, contexts, streams."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import time
from ctypes import byref, c_size_t, c_void_p

import malformed_table
import numpy as np
from malformed_table import BOTH, take
from peers import ADDRESS, CUDA, MANAGED, Producer, capsule, freed, interface, name_of

import gpuinterop as gi
from gpuinterop import _core

case = functools.partial(malformed_table.case, cuda=True)
driver = ctypes.CDLL(os.environ["GPUINTEROP_LIBCUDA"])
CAPTURE_RELAXED = 2


def call(name: str, *args) -> None:
    assert getattr(driver, name)(*args) == 0, name


def other_context() -> c_void_p:
    context = c_void_p()
    call("cuCtxCreate_v2", byref(context), 0, 0)
    call("cuCtxPopCurrent_v2", byref(c_void_p()))
    return context


def primary(device: int = 0) -> c_void_p:
    context = c_void_p()
    call("cuDevicePrimaryCtxRetain", byref(context), device)
    return context


def foreign_memory(context: c_void_p, nbytes: int = 64) -> int:
    call("cuCtxPushCurrent_v2", context)
    address = c_void_p()
    call("cuMemAlloc_v2", byref(address), c_size_t(nbytes))
    call("cuCtxPopCurrent_v2", byref(c_void_p()))
    return address.value


def on(device: int = 0, fields=(2, 3)):
    return gi.zeros(fields, device=f"cuda:{device}")


KEPT = [on(0), on(1)]
THERE = [x.ptr for x in KEPT]


def is_on(device, x):
    assert str(x.device) == f"cuda:{device}"


def is_there(x, device=0):
    assert x.shape == (2, 3)
    assert x.ptr == THERE[device]
    is_on(device, x)


for number in (0, 1):
    case(f"0 live memory of cuda:{number}")(
        lambda n=number: is_there(take(capsule(device=(2, n), data=THERE[n])), n)
    )
case("0 a dictionary finds its device by the pointer")(
    lambda: is_there(take(interface(data=(THERE[1], False))), 1)
)
case("22 empty CUDA memory asks the driver nothing")(
    lambda: (
        str(take(capsule(device=(2, 1), shape=(0,), strides=(1,), data=3)).device) == "cuda:1"
        or 1 / 0
    )
)
case("22 an empty dictionary")(lambda: take(interface(shape=(0, 3), data=(0, False))))
case("21 a null pointer with elements", BufferError, "null pointer")(
    lambda: take(interface(data=(0, False)))
)

for ordinal in (2, 99, -1):
    case(f"32 cuda:{ordinal}", ValueError, "cuda:1")(
        lambda n=ordinal: take(capsule(device=(2, n), data=THERE[0]))
    )
    case(f"32 cuda:{ordinal} by the method", ValueError, "")(
        lambda n=ordinal: take(Producer(device=(2, n), data=THERE[0]))
    )
case("33 the method says cuda, the capsule cpu", BufferError, "cpu")(
    lambda: take(Producer(lambda **_: capsule(), device=CUDA))
)
case("33 the method says cuda:1, the capsule cuda:0", BufferError, "cuda:1")(
    lambda: take(Producer(lambda **_: capsule(device=CUDA, data=THERE[0]), device=(2, 1)))
)
case("34 memory of cuda:1 claimed for cuda:0", BufferError, "cuda:1")(
    lambda: take(capsule(device=CUDA, data=THERE[1]))
)
case("35 host memory claimed for cuda", ValueError, "does not know")(
    lambda: take(capsule(device=CUDA, data=ADDRESS))
)
case("35 host memory in a dictionary", ValueError, "does not know")(lambda: take(interface()))


@case("35 freed memory", ValueError, "does not know")
def _():
    address = c_void_p()
    gone = foreign_memory(primary())
    address.value = gone
    call("cuCtxPushCurrent_v2", primary())
    call("cuMemFree_v2", address)
    call("cuCtxPopCurrent_v2", byref(c_void_p()))
    take(capsule(device=CUDA, data=gone))


case("16 strides beyond the allocation", BOTH, "allocation")(
    lambda: take(capsule(device=CUDA, data=THERE[0], shape=(1 << 20, 3)))
)
case("36 memory of another context", RuntimeError, "primary context")(
    lambda: take(capsule(device=CUDA, data=foreign_memory(other_context())))
)
case("36 a dictionary from another context", RuntimeError, "primary context")(
    lambda: take(interface(data=(foreign_memory(other_context()), False)))
)


@case("37 managed memory is where the driver says")
def _():
    call("cuCtxPushCurrent_v2", primary(1))
    address = c_void_p()
    call("cuMemAllocManaged", byref(address), c_size_t(64), 1)
    call("cuCtxPopCurrent_v2", byref(c_void_p()))
    x = take(capsule(device=MANAGED, data=address.value))
    assert x.memory == "managed"
    is_on(1, x)


@case("43 device memory for the host is copied here")
def _():
    assert take(Producer(device=CUDA, data=THERE[0]), device="cpu").device.type == "cpu"


@case("43 a producer that refuses to move is moved here")
def _():
    def make(dl_device=None, **_):
        if dl_device is not None:
            raise BufferError("cannot move")
        return capsule(device=CUDA, data=THERE[0])

    KEPT[0].fill(3)
    x = take(Producer(make, device=CUDA), device="cpu")
    assert np.asarray(x).tolist() == [[3, 3, 3], [3, 3, 3]]


case("41 copy=False on the wrong device", BOTH, "copy=False")(
    lambda: take(
        Producer(lambda **_: capsule(device=CUDA, data=THERE[0]), device=CUDA),
        device="cuda:1",
        copy=False,
    )
)
case("41 copy=False from the host", BOTH, "copy=False")(
    lambda: take(np.zeros(3), device="cuda:0", copy=False)
)


def refused_twice(**options):
    """A refused capsule of a device stays as it was, and can be taken afterwards."""
    cap = capsule(device=CUDA, data=THERE[0])
    before = name_of(cap)
    try:
        take(cap, **options)
    finally:
        assert name_of(cap) == before
        assert freed() == 0
        is_there(take(cap))


case("41 copy=False leaves the capsule", BOTH, "copy=False")(
    lambda: refused_twice(device="cuda:1", copy=False)
)
for name, stream in (("0", 0), ("-2", -2), ("2**64", 2**64)):
    case(f"44 stream {name}", ValueError, "stream")(lambda s=stream: on().__dlpack__(stream=s))
case("44 a bool as stream", TypeError, "True")(lambda: on().__dlpack__(stream=True))
case("44 a text as stream", TypeError, "'1'")(lambda: on().__dlpack__(stream="1"))
case("45 a stream for a copy on the host", ValueError, "stream=None")(
    lambda: on().__dlpack__(stream=1, dl_device=(1, 0))
)


def stream_in(context: c_void_p) -> int:
    call("cuCtxPushCurrent_v2", context)
    made = c_void_p()
    call("cuStreamCreateWithPriority", byref(made), 1, 0)
    call("cuCtxPopCurrent_v2", byref(c_void_p()))
    return made.value


case("46 a stream of another device", ValueError, "cuda:0")(
    lambda: on().__dlpack__(stream=gi.Stream("cuda:1").handle)
)
case("46 a stream of another context", ValueError, "cuda:0")(
    lambda: on().__dlpack__(stream=stream_in(other_context()))
)
case("46 a stream of another device in a dictionary", ValueError, "cuda:0")(
    lambda: take(interface(data=(THERE[0], False), stream=gi.Stream("cuda:1").handle))
)
case("46 a foreign stream of the right context")(
    lambda: on().__dlpack__(stream=stream_in(primary()))
)


case("51 version 4", TypeError, "version 3")(
    lambda: take(interface(data=(THERE[0], False), version=4))
)


case("54 stream 0", TypeError, "stream")(lambda: take(interface(data=(THERE[0], False), stream=0)))


def capture(body) -> None:
    """Run `body` while a stream of ours is captured; the capture must survive it."""
    x = on()
    stream = gi.Stream("cuda:0")
    handle = c_void_p(stream.handle)
    with stream:
        x.fill(1)
        call("cuCtxPushCurrent_v2", primary())
        call("cuStreamBeginCapture_v2", handle, CAPTURE_RELAXED)
        try:
            body(x, stream)
        finally:
            call("cuStreamEndCapture", handle, byref(c_void_p()))
            call("cuCtxPopCurrent_v2", byref(c_void_p()))


case("47 a copy to the host in a capture", RuntimeError, "captured")(
    lambda: capture(lambda x, s: x.__dlpack__(dl_device=(1, 0)))
)
case("47 export to another stream in a capture", RuntimeError, "captur")(
    lambda: capture(lambda x, s: (x.fill(2), x.__dlpack__(stream=1)))
)
case("47 export without order in a capture")(lambda: capture(lambda x, s: x.__dlpack__(stream=-1)))
case("47 export to the captured stream")(
    lambda: capture(lambda x, s: x.__dlpack__(stream=s.handle))
)


@case("47 import in a capture asks for no order")
def _():
    producer = Producer(lambda **_: capsule(device=CUDA, data=THERE[0]), device=CUDA)
    capture(lambda x, s: take(producer))
    assert producer.calls[0]["stream"] == -1


def in_a_fork(body) -> None:
    """What a forked child says of `body`, as a RuntimeError here."""
    read, write = os.pipe()
    gi.synchronize()
    # AddressSanitizer's own locks are lost in a fork beside a thread that is at work.
    time.sleep(0.1)
    child = os.fork()
    if child == 0:
        try:
            body()
        except RuntimeError as error:
            os.write(write, str(error).encode()[:4000])
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    raise RuntimeError(os.read(read, 4096).decode() or "no such error in the child")


USED = on()
USED.fill(1)
for name, body in {
    "an import": lambda: take(capsule(device=CUDA, data=THERE[0])),
    "an export": lambda: USED.__dlpack__(),
    "an export in no order": lambda: USED.__dlpack__(stream=-1),
    "a dictionary": lambda: USED.__cuda_array_interface__,
    "the C interface": lambda: _core.export_via(USED, _core.Array),
}.items():
    case(f"70 {name} after a fork", RuntimeError, "fork")(functools.partial(in_a_fork, body))

for place in ((2, 2), (2, 99), (2, -1)):
    case(f"31 dl_device {place}", BufferError, "dl_device")(
        lambda place=place: gi.zeros(3, device="cpu").__dlpack__(dl_device=place)
    )
    case(f"31 dl_device {place} from a device", BufferError, "dl_device")(
        lambda place=place: on().__dlpack__(dl_device=place)
    )


def settle() -> None:
    """Wait until nothing ends any more: late releases come with later imports."""
    quiet, last = 0, -1
    while quiet < 5:
        gi.synchronize()
        time.sleep(0.01)
        take(capsule(device=CUDA, data=THERE[0]))
        now = freed()
        quiet, last = (quiet + 1 if now == last + 1 else 0), now


@case("69 CUDA memory is freed once")
def _():
    settle()  # what other cases left comes late
    before = freed()
    x = take(capsule(device=CUDA, data=THERE[0]))
    assert freed() == before
    del x
    assert freed() == before + 1


def wrapped(stride: int, itemsize: int) -> int:
    """A negative stride in elements as unsigned arithmetic makes it from bytes."""
    return (2**64 + stride * itemsize) // itemsize


def values(x) -> np.ndarray:
    """Element by element, which asks for no kernel."""
    out = [x[at].item() for at in np.ndindex(*x.shape)]
    return np.array(out).reshape(x.shape)


@case("16 negative strides that were divided as unsigned numbers")
def _():
    whole = gi.asarray(np.arange(48, dtype=np.float32).reshape(6, 8), device="cuda:0")
    expected = np.arange(48, dtype=np.float32).reshape(6, 8)
    rows = {"data": whole.ptr + 5 * 32, "shape": (6, 8), "strides": (wrapped(-8, 4), 1)}
    x = gi.from_dlpack(capsule(device=CUDA, **rows))
    assert x._strides == (-8, 1)
    assert (values(x) == expected[::-1]).all()
    both = {
        "data": whole.ptr + 47 * 4,
        "shape": (6, 8),
        "strides": (wrapped(-8, 4), wrapped(-1, 4)),
    }
    assert (values(gi.from_dlpack(capsule(device=CUDA, **both))) == expected[::-1, ::-1]).all()
    old = gi.from_dlpack(capsule(device=CUDA, legacy=True, **rows))
    assert (values(old) == expected[::-1]).all()


@case("16 such strides in doubles and complex numbers")
def _():
    for dtype, code in ((np.float64, (2, 64, 1)), (np.complex128, (5, 128, 1))):
        numbers = np.arange(12).astype(dtype)
        whole = gi.asarray(numbers, device="cuda:0")
        last = whole.ptr + 11 * numbers.itemsize
        stride = wrapped(-1, numbers.itemsize)
        x = gi.from_dlpack(
            capsule(device=CUDA, data=last, dtype=code, shape=(12,), strides=(stride,))
        )
        assert (values(x) == numbers[::-1]).all()


SMALL = gi.zeros((48,), device="cuda:0")
for where, data in (("before", SMALL.ptr + 4 * 32), ("behind", SMALL.ptr + 8 * 32)):
    case(f"16 such strides that lead out of the allocation, {where} it", BufferError, "")(
        lambda data=data: take(
            capsule(device=CUDA, data=data, shape=(6, 8), strides=(wrapped(-8, 4) - 2**20, 1))
        )
    )
case("16 such strides on the host", BufferError, "reach fits")(
    lambda: take(capsule(data=ADDRESS + 160, shape=(6, 8), strides=(wrapped(-8, 4), 1)))
)
case("16 other strides that do not fit", BufferError, "address space")(
    lambda: take(capsule(device=CUDA, data=THERE[0], shape=(2, 3), strides=(2**61, 1)))
)


case("39 read-only memory", BOTH, "read-only")(
    lambda: take(capsule(device=CUDA, data=THERE[0], flags=1)).__setitem__(..., 0)
)
case("40 read-only to an old consumer", BufferError, "read-only")(
    lambda: take(capsule(device=CUDA, data=THERE[0], flags=1)).__dlpack__()
)


@case("39 read-only in the dictionary")
def _():
    x = take(capsule(device=CUDA, data=THERE[0], flags=1))
    assert x.__cuda_array_interface__["data"] == (THERE[0], True)


@case("0 the context is as before")
def _():
    call("cuCtxPushCurrent_v2", primary(1))
    for n in (0, 1):
        x = take(Producer(lambda n=n, **_: capsule(device=(2, n), data=THERE[n]), device=(2, n)))
        _core.import_any(None, x.__dlpack__(stream=1))
        now = c_void_p()
        call("cuCtxGetCurrent", byref(now))
        assert now.value == primary(1).value
    call("cuCtxPopCurrent_v2", byref(c_void_p()))


class Emptying:
    """An int of a dictionary that empties the dictionary when it is read."""

    def __init__(self, fields):
        self.fields = fields

    def __index__(self):
        self.fields.clear()
        gc.collect()
        self.reused = [(0, True) for _ in range(1000)]  # the memory of what was in it
        return 2


@case("0 a dictionary that is emptied while it is read")
def _():
    fields = {"typestr": "<f4", "data": (THERE[0], False), "version": 3}
    fields["shape"] = (Emptying(fields), 3)
    is_there(take(type("Emptied", (), {"__cuda_array_interface__": fields})()))


case("13 a negative extent in a dictionary", ValueError)(
    lambda: take(interface(data=(THERE[0], False), shape=(-2, 3)))
)
case("14 extents of 2**70 in a dictionary", ValueError)(
    lambda: take(interface(data=(THERE[0], False), shape=(2**70, 3)))
)
case("53 too few strides in a dictionary", ValueError)(
    lambda: take(interface(data=(THERE[0], False), strides=(4,)))
)
case("30 an unknown typestr in a dictionary", ValueError)(
    lambda: take(interface(data=(THERE[0], False), typestr="<x4"))
)
