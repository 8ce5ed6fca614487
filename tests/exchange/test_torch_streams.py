"""Memory from torch goes back in the order of torch's current stream, if that is one that stays.

torch's own streams do; one from outside (ExternalStream) is its maker's to destroy, also while memory that came in
under it is still in use here. On the fake driver, with a stand-in for torch that publishes a C exchange API.
"""

from __future__ import annotations

import pytest
from doubles import driver, fake_driver
from peers import environment, has_compiler
from test_late_release import SETUP
from test_stream_order import PRELUDE

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

TORCH = """
import sys
from ctypes import CFUNCTYPE, PYFUNCTYPE, POINTER, addressof, c_int, c_int32, c_uint32, c_void_p, py_object
driver.fakecuda_faults.restype = ctypes.c_char_p

@PYFUNCTYPE(c_int, py_object, POINTER(c_void_p))
def from_py_object(obj, out):
    out[0] = addressof(struct(device=CUDA, data=x.ptr, shape=(64,), strides=(1,)))
    return 0

@PYFUNCTYPE(c_int, c_int, c_int32, POINTER(c_void_p))
def current_work_stream(kind, device, out):
    out[0] = current.cuda_stream or None
    return 0

class Table(ctypes.Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32)] + [
        (name, c_void_p) for name in ("prev", "allocate", "from_", "to", "borrow", "stream")]

forever((from_py_object, current_work_stream))
as_pointer = lambda f: ctypes.cast(f, c_void_p).value
table = forever(Table(1, 3, None, None, as_pointer(from_py_object), None, None,
                      as_pointer(current_work_stream)))
Tensor = type("Tensor", (), {
    "__module__": "torch", "__torch_dispatch__": None,
    "__dlpack_c_exchange_api__": api.PyCapsule_New(addressof(table), forever(b"dlpack_exchange_api"), None)})
torch = types.ModuleType("torch")
torch.Tensor, torch.version = Tensor, types.SimpleNamespace(cuda=None)
asked = []
torch.cuda = types.SimpleNamespace(current_stream=lambda device=None: asked.append(device) or current)
sys.modules["torch"] = torch
# The stand-in has nothing that torch's own converter would judge it by.
gi.converters.register(gi.converters.Backend("torch", "torch", ("Tensor",), converter=types.ModuleType("none")))

class Stream:
    "torch shows its own by a small number, and one from outside by its handle."
    def __init__(self, handle, number=None):
        self.cuda_stream = handle
        self.stream_id = handle if number is None else number

def new_stream():
    handle = c_void_p()
    assert driver.cuStreamCreate(ctypes.byref(handle), 1) == 0
    return handle

driver.cuCtxPushCurrent_v2(context)
"""

PROGRAMS = {
    "a stream from outside that its maker has destroyed": """
for used_on in (mine, legacy):
    start_counting()
    handle = new_stream()
    current = Stream(handle.value)
    y = gi.from_dlpack(Tensor())
    assert driver.cuStreamDestroy_v2(handle) == 0
    gate = work(used_on, y)
    before = waits()
    del y
    assert waits() == before
    assert freed() == 0
    gate.open()
    used_on.synchronize()
    assert soon(lambda: (gi.synchronize(), freed() == 1)[1])
    assert driver.fakecuda_faults() == b""
""",
    "one of torch's own, which is made to wait": """
handle = new_stream()
current = Stream(handle.value, 3)
for _ in range(3):
    start_counting()
    y = gi.from_dlpack(Tensor())
    gate = work(mine, y)
    before = syncs()
    del y
    # The tensor may have been allocated on another stream, so it goes back after the work on it.
    assert freed() == 0 and syncs() == before
    assert driver.cuStreamQuery(handle) == 600
    gate.open()
    assert driver.cuStreamSynchronize(handle) == 0
    gi.synchronize()
    assert freed() == 1
assert asked == [0], asked
""",
    "memory that is not used here waits for nothing, and its address waits once": """
current = Stream(new_stream().value, 3)
gi.from_dlpack(Tensor())
assert waits() == 0
y = gi.from_dlpack(Tensor())
before = waits()
assert y.ptr == y.ptr == x.ptr
assert waits() == before + 1
z = gi.from_dlpack(Tensor())
assert z.__cuda_array_interface__["stream"] == 1 and waits() == before + 2
""",
    "memory that is used here waits for torch's stream, at the first use": """
handle = new_stream()
current = Stream(handle.value, 3)
gate = Gate(handle.value)
y = gi.from_dlpack(Tensor())
with mine:
    copy = y.copy()
assert not mine.record().query()
gate.open()
mine.synchronize()
""",
    "nobody is asked on torch's default stream, or on one of ours": """
for current in (Stream(0), Stream(mine.handle)):
    y = gi.from_dlpack(Tensor())
    use(theirs, y)
    del y
assert asked == []
""",
    "a torch that does not tell": """
torch.cuda = None
start_counting()
current = Stream(new_stream().value, 3)
y = gi.from_dlpack(Tensor())
gate = work(mine, y)
del y
assert freed() == 0
gate.open()
assert soon(lambda: (gi.synchronize(), freed() == 1)[1])
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_stream_of_torch(program):
    driver.run(PRELUDE + SETUP + TORCH + program, fake_driver.library(), **environment())
