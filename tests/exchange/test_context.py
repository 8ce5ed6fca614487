"""The caller's current context is the same after every conversion, whatever the other library does.

The peers here make the primary context current and leave it so, as CUDA's runtime does for the
libraries that are built on it. On the fake driver, because no real peer can be told to.
"""

from __future__ import annotations

import pytest
from doubles import driver, fake_driver
from peers import environment, has_compiler, library

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

SETUP = """
import ctypes, os, sys
from ctypes import CFUNCTYPE, POINTER, byref, c_int, c_void_p, py_object
import gpuinterop as gi
from gpuinterop import _core
from peers import CUDA, Producer, addressof, api, capsule, forever, interface, struct

driver = ctypes.CDLL(os.environ["GPUINTEROP_LIBCUDA"])
primary, other = c_void_p(), c_void_p()
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(byref(primary), 0)
driver.cuCtxCreate_v2(byref(other), 0, 0)
driver.cuCtxPopCurrent_v2(byref(c_void_p()))

def current():
    now = c_void_p()
    assert driver.cuCtxGetCurrent(byref(now)) == 0
    return now.value

def intrude():
    assert driver.cuCtxSetCurrent(primary) == 0

x = gi.zeros((2, 3), device="cuda:0")
assert current() is None

def made(**more):
    return capsule(device=CUDA, data=x.ptr, **more)

class Dict:
    @property
    def __cuda_array_interface__(self):
        return {"shape": (2, 3), "typestr": "<f4", "data": (x.ptr, False), "version": 3, "stream": 1}

class Intruder(Producer):
    "Leaves its context current in both methods."
    def __dlpack__(self, **keywords):
        intrude()
        return super().__dlpack__(**keywords)

TO = CFUNCTYPE(c_int, c_void_p, POINTER(py_object))
STREAM = CFUNCTYPE(c_int, c_int, ctypes.c_int32, POINTER(c_void_p))

@TO
def to_py_object(managed, out):
    intrude()
    result = object()
    ctypes.pythonapi.Py_IncRef(py_object(result))
    ctypes.cast(out, POINTER(c_void_p))[0] = id(result)
    return 0

@STREAM
def current_work_stream(kind, device, out):
    intrude()
    out[0] = 1
    return 0

class Table(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("prev", c_void_p),
                ("allocate", c_void_p), ("from_", c_void_p), ("to", c_void_p),
                ("borrow", c_void_p), ("stream", c_void_p)]

FROM = CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p))

@FROM
def from_py_object(obj, out):
    out[0] = addressof(struct(device=CUDA, data=x.ptr))
    return 0

forever((to_py_object, current_work_stream, from_py_object))
as_pointer = lambda f: ctypes.cast(f, c_void_p).value
table = forever(Table(1, 3, None, None, as_pointer(from_py_object), as_pointer(to_py_object), None,
                      as_pointer(current_work_stream)))
class ForeignType:
    __dlpack_c_exchange_api__ = api.PyCapsule_New(addressof(table), forever(b"dlpack_exchange_api"), None)

def conversions():
    yield "a capsule", lambda: gi.from_dlpack(made())
    yield "a dictionary", lambda: gi.from_any(Dict())
    yield "__dlpack__", lambda: gi.from_dlpack(Intruder(device=CUDA, data=x.ptr))
    yield "asarray", lambda: gi.asarray(Intruder(device=CUDA, data=x.ptr))
    yield "our capsule", lambda: x.__dlpack__(stream=1, max_version=(1, 3))
    yield "our dictionary", lambda: x.__cuda_array_interface__
    yield "another library's object", lambda: _core.export_via(x, ForeignType)
    yield "upload and download", lambda: gi.array(x.tolist(), device="cuda:0").tolist()
    yield "a copy", lambda: x.copy()
    yield "a refusal", lambda: refused(lambda: gi.from_dlpack(capsule(device=CUDA, data=64)))

def refused(call):
    try:
        call()
    except gi.GpuInteropError:
        return
    raise AssertionError("was not refused")
"""

PROGRAMS = {
    "none before, none after": """
for name, convert in conversions():
    kept = convert()
    assert current() is None, name
    del kept
    assert current() is None, name
""",
    "another before, the same after": """
assert driver.cuCtxPushCurrent_v2(other) == 0
for name, convert in conversions():
    kept = convert()
    assert current() == other.value, name
    del kept
    assert current() == other.value, name
""",
    "the table of another library, which is asked for its stream": """
for before in (None, other):
    if before:
        driver.cuCtxPushCurrent_v2(before)
    y = _core.import_any(None, ForeignType())
    assert y.ptr == x.ptr
    assert current() == (before.value if before else None)
    del y
    assert current() == (before.value if before else None)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_context(name):
    library()
    driver.run(SETUP + PROGRAMS[name], fake_driver.library(), **environment())
