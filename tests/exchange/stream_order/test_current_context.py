"""The caller's current context is the same after every conversion, whatever the other library does.

The producers here make the primary context current and leave it so, as CUDA's runtime does for the
libraries that are built on it. On the fake driver, because no real library does this on request.
"""

import ctypes
from ctypes import c_void_p

import pytest
from doubles import driver, internals
from peers import (
    CUDA,
    TO_OBJECT,
    TO_STRUCT,
    WORK_STREAM,
    Producer,
    addressof,
    capsule,
    exchange_table,
    interface,
    struct,
)

import gpuinterop as gi

pytestmark = pytest.mark.fake_driver


def intrude():
    driver.call("cuCtxSetCurrent", c_void_p(driver.primary()))


class Intruder(Producer):
    """Leaves its context current when it exports a capsule."""

    def __dlpack__(self, **keywords):
        intrude()
        return super().__dlpack__(**keywords)


def foreign_type(x):
    """A type with a C exchange API over the memory of x, which leaves its context current."""

    def from_object(obj, out):
        out[0] = addressof(struct(device=CUDA, data=x.ptr))
        return 0

    def to_object(managed, out):
        intrude()
        made = ctypes.py_object(object())
        ctypes.pythonapi.Py_IncRef(made)
        out[0] = c_void_p.from_buffer(made).value
        return 0

    def stream(kind, device, out):
        intrude()
        out[0] = 1
        return 0

    table = exchange_table(TO_STRUCT(from_object), TO_OBJECT(to_object), WORK_STREAM(stream))
    return type("ForeignType", (), {"__dlpack_c_exchange_api__": table})


def refused(x):
    with pytest.raises(gi.GpuInteropError):
        gi.from_dlpack(capsule(device=CUDA, data=64))


CONVERSIONS = {
    "a capsule": lambda x: gi.from_dlpack(capsule(device=CUDA, data=x.ptr)),
    "a dictionary": lambda x: gi.from_any(interface(data=(x.ptr, False), stream=1)),
    "__dlpack__": lambda x: gi.from_dlpack(Intruder(device=CUDA, data=x.ptr)),
    "another library's table": lambda x: gi.from_dlpack(foreign_type(x)()),
    "another library's object": lambda x: internals.export_via(x, foreign_type(x)),
    "gpuinterop's capsule": lambda x: x.__dlpack__(stream=1, max_version=(1, 3)),
    "gpuinterop's dictionary": lambda x: x.__cuda_array_interface__,
    "upload and download": lambda x: gi.array(x.tolist(), device="cuda:0").tolist(),
    "a copy to another device": lambda x: x.to_device("cuda:1"),
    "a refusal": refused,
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", CONVERSIONS)
def test_context_is_the_same_after_a_conversion(name, inside):
    x = gi.zeros((2, 3), device="cuda:0")
    context = driver.new_context() if inside else None
    driver.push(context)
    try:
        kept = CONVERSIONS[name](x)
        assert driver.current_context() == context
        del kept
        assert driver.current_context() == context
    finally:
        driver.pop()
