"""After another library has reset the device's context every call raises ContextError, and nothing crashes."""

import pytest
from doubles import driver

pytestmark = pytest.mark.driver

PROGRAM = """
import gc, sys
from ctypes import byref, c_void_p
from doubles import driver, fake_driver
from doubles.on_fake import FAKE

if FAKE:
    fake_driver.use()
import numpy as np
import gpuinterop as gi

CUDA = "cuda:0"
retained = {retained}
stream, blocking, event = gi.Stream(CUDA), gi.Stream(CUDA, blocking=True), gi.Event(CUDA)
lent = gi.devices.as_stream(driver.new_stream())
with stream:
    x, y = gi.ones((16, 16), device=CUDA), gi.ones((16, 16), device=CUDA)
    v = gi.ones(16, device=CUDA)
    shared = gi.from_dlpack(x)
    graph = gi.capture(lambda a: a + a, x)
    graph()
    gi.matmul(x, y), x.sum(), x + y, x.T.copy()
    stream.record(event)
with lent:
    z = x * 2
pinned = gi.pinned_empty((16, 16), device=CUDA)
gi.copy_async(pinned, x)
unfinished = gi.capture(device=CUDA)
unfinished.__enter__()
half = x + 1
gi.devices.legacy_stream(CUDA)
stream.synchronize()
driver.call("cuDevicePrimaryCtxReset_v2", 0)
if retained:
    context = c_void_p()
    driver.call("cuDevicePrimaryCtxRetain", byref(context), 0)
    driver.call("cuCtxSetCurrent", context)
def begin():
    with gi.capture(device=CUDA):
        pass
calls = {{
    "end": lambda: unfinished.__exit__(None, None, None),
    "elementwise": lambda: gi.add(x, y, out=y),
    "fresh": lambda: x + y,
    "zeros": lambda: gi.zeros(3, device=CUDA),
    "large": lambda: gi.empty(1 << 20, device=CUDA),
    "sum": x.sum,
    "product": lambda: x @ y,
    "vector": lambda: x @ v,
    "copy": lambda: x.copy(),
    "transposed": lambda: x.T.copy(),
    "fill": lambda: x.fill(1),
    "item": lambda: x[0, 0].item(),
    "numpy": lambda: np.asarray(x),
    "assign": lambda: x.__setitem__(0, np.ones(16, "float32")),
    "asarray": lambda: gi.asarray([1.0], device=CUDA),
    "async": lambda: gi.copy_async(x, pinned),
    "replay": graph.replay,
    "nodes": lambda: graph.nodes,
    "capture": begin,
    "synchronize": gi.synchronize,
    "empty_cache": gi.empty_cache,
    "mem_info": lambda: gi.mem_info(CUDA),
    "stream.synchronize": stream.synchronize,
    "stream.query": stream.query,
    "stream.wait": lambda: stream.wait(blocking),
    "stream.record": lambda: stream.record(event),
    "stream.is_capturing": lambda: stream.is_capturing,
    "enter": stream.__enter__,
    "lent": lent.__enter__,
    "event.query": event.query,
    "event.synchronize": event.synchronize,
    "as_stream": lambda: gi.devices.as_stream(lent.handle),
    "new stream": lambda: gi.Stream(CUDA, priority=-1),
    "new event": lambda: gi.Event(CUDA),
    "dlpack": lambda: x.__dlpack__(stream=lent.handle),
    "dlpack to the host": lambda: x.__dlpack__(dl_device=(1, 0)),
    "interface": lambda: z.__cuda_array_interface__,
    "pinned": lambda: gi.pinned_empty((1 << 20,), device=CUDA),
}}
for name, call in calls.items():
    try:
        call()
    except gi.errors.ContextError as error:
        assert "reset" in str(error), error
    else:
        print(name, "raised nothing")
for name in ("memory_stats",):
    gi.memory_stats(CUDA)
del x, y, z, v, half, shared, graph, unfinished, stream, blocking, lent, event, pinned, calls
gc.collect()
print(fake_driver.faults() if FAKE else "", end="")
print("end", flush=True)
"""


@pytest.mark.parametrize("retained", [False, True], ids=["gone", "made anew"])
def test_a_reset_context_is_an_error(retained):
    assert driver.run(PROGRAM.format(retained=retained), timeout=60) == "end\n"
