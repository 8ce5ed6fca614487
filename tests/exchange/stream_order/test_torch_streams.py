"""Memory from torch is released in the order of torch's current stream, if torch owns that stream.

torch never destroys its own streams. The owner of an ExternalStream may destroy it while memory that was imported
on it is still in use. On the fake driver, with a test double of torch that publishes a C exchange API.
"""

import pytest
from peers import run

pytestmark = pytest.mark.fake_driver

TORCH = """
import sys, types
from ctypes import addressof
import gpuinterop as gi
from doubles import driver, fake_driver
from doubles.driver import Gate
from peers import CUDA, TO_STRUCT, WORK_STREAM, counting, exchange_table, struct
from queued import gated, soon_synchronized, syncs, use, waits

x, own_stream, other_stream = gi.zeros((64,), device="cuda:0"), gi.Stream("cuda:0"), gi.Stream("cuda:0")
legacy = gi.devices.legacy_stream("cuda:0")

def from_py_object(obj, out):
    out[0] = addressof(struct(device=CUDA, data=x.ptr, shape=(64,), strides=(1,)))
    return 0

def current_work_stream(kind, device, out):
    out[0] = current.cuda_stream or None
    return 0

table = exchange_table(TO_STRUCT(from_py_object), None, WORK_STREAM(current_work_stream))
Tensor = type("Tensor", (), {
    "requires_grad": False, "is_neg": lambda self: False,
    "__module__": "torch", "__torch_dispatch__": None, "__dlpack_c_exchange_api__": table})
torch = types.ModuleType("torch")
torch.Tensor, torch.version = Tensor, types.SimpleNamespace(cuda=None)
asked = []
torch.cuda = types.SimpleNamespace(current_stream=lambda device=None: asked.append(device) or current)
sys.modules["torch"] = torch
# The test double lacks the attributes that torch's own converter reads.
gi.converters.register(gi.converters.Backend("torch", "torch", ("Tensor",), converter=types.ModuleType("none")))

class Stream:
    "torch shows its own by a small number, and one from outside by its handle."
    def __init__(self, handle, number=None):
        self.cuda_stream = handle
        self.stream_id = handle if number is None else number

freed = counting()
"""

PROGRAMS = {
    "a stream from outside that its maker has destroyed": """
for used_on in (own_stream, legacy):
    freed, handle = counting(), driver.new_stream()
    current = Stream(handle)
    y = gi.from_dlpack(Tensor())
    driver.destroy_stream(handle)
    gate = gated(used_on, y)
    before = waits()
    del y
    assert (waits(), freed()) == (before, 0)
    gate.open()
    used_on.synchronize()
    assert soon_synchronized(lambda: freed() == 1)
    assert fake_driver.faults() == ""
""",
    "one of torch's own, which is made to wait": """
handle = driver.new_stream()
current = Stream(handle, 3)
for count in (1, 2):
    y = gi.from_dlpack(Tensor())
    gate = gated(own_stream, y)
    before = syncs()
    del y
    # The tensor may have been allocated on another stream, so it is released after the work on it.
    assert (freed(), syncs()) == (count - 1, before)
    assert not driver.is_done(handle)
    gate.open()
    gi.synchronize()
    assert freed() == count
assert asked == [0], asked
""",
    "torch ignores the stream of a dictionary, so its current stream is made to wait": """
current = Stream(driver.new_stream(), 3)
gate = gated(own_stream, x)
before = syncs()
assert x.__cuda_array_interface__["stream"] == own_stream.handle
assert syncs() == before
assert not driver.is_done(current.cuda_stream)
gate.open()
gi.synchronize()
""",
    "memory that gpuinterop does not use waits for nothing, and its address waits once": """
current = Stream(driver.new_stream(), 3)
gi.from_dlpack(Tensor())
assert waits() == 0
y = gi.from_dlpack(Tensor())
assert y.ptr == y.ptr == x.ptr
assert waits() == 1
""",
    "memory that only torch has used is released at once, even while torch's stream is busy": """
handle = driver.new_stream()
current = Stream(handle, 3)
gate = Gate(handle)
y = gi.from_dlpack(Tensor())
view = y[1:]
del y, view
assert (freed(), waits(), syncs()) == (1, 0, 0)
y = gi.from_dlpack(Tensor())
capsule = y.__dlpack__(stream=handle)  # a consumer works there, and torch may have allocated it elsewhere
del y, capsule
assert freed() == 1
assert not driver.is_done(handle)
gate.open()
assert soon_synchronized(lambda: freed() == 2)
""",
    "memory that gpuinterop uses waits for torch's stream, at the first use": """
handle = driver.new_stream()
current = Stream(handle, 3)
gate = Gate(handle)
y = gi.from_dlpack(Tensor())
with own_stream:
    copy = y.copy()
assert not own_stream.record().query()
gate.open()
own_stream.synchronize()
""",
    "torch's default stream and gpuinterop streams need no call of torch.cuda.current_stream": """
for current in (Stream(0), Stream(own_stream.handle)):
    y = gi.from_dlpack(Tensor())
    use(other_stream, y)
    del y
assert asked == []
""",
    "a torch without torch.cuda": """
torch.cuda = None
current = Stream(driver.new_stream(), 3)
y = gi.from_dlpack(Tensor())
gate = gated(own_stream, y)
del y
assert freed() == 0
gate.open()
assert soon_synchronized(lambda: freed() == 1)
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_stream_of_torch(program):
    run(TORCH + program)
