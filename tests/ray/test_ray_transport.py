"""Actors of Ray hand arrays over in shared memory: one program with two actors, and what it saw."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("ray.experimental")  # "ray" is also a folder of the tests

PROGRAM = """
import json, time
import numpy as np
import ray
import gpuinterop as gi
import gpuinterop.ray
from ray.experimental.rdt.util import get_tensor_transport_manager

@ray.remote(enable_tensor_transport=True)
class Owner:
    def __init__(self):
        self.x = gi.shared_empty((3, 4), device="cpu")
        self.x[...] = np.arange(12, dtype="float32").reshape(3, 4)
        self.y = gi.shared_empty(4, "int32", device="cpu")
        self.y[...] = [1, 2, 3, 4]

    @ray.method(tensor_transport="gpuinterop")
    def views(self):
        frozen = self.y[::2]
        frozen.readonly = True
        return {"x": self.x.T, "y": [self.y[::-1], frozen], "number": 5}

    @ray.method(tensor_transport="gpuinterop")
    def nothing(self):
        return 7

    @ray.method(tensor_transport="gpuinterop")
    def ordinary(self, forbidden=False):
        if forbidden:
            gi.no_copies().__enter__()
        self.ordinary_memory = gi.arange(6, dtype="float32", device="cpu")
        return self.ordinary_memory

    def pickled(self):
        return self.x.T

    def own(self):
        return self.x.tolist(), self.y.tolist()

    def live(self):
        return len(get_tensor_transport_manager("GPUINTEROP")._handles)

@ray.remote(enable_tensor_transport=True)
class Reader:
    def look(self, given):
        x, (y, frozen) = given["x"], given["y"]
        seen = [[type(a).__name__, a.shape, a.strides, a.readonly, a.tolist()] for a in (x, y, frozen)]
        x[0, 0], y[0] = 50, 60
        return seen

    def total(self, x):
        x[0] = 100
        return x.sum().item()

ray.init(num_cpus=2, include_dashboard=False)
owner, reader = Owner.remote(), Reader.remote()
seen = {}
views = owner.views.remote()
seen["views"] = ray.get(reader.look.remote(views))
seen["written"] = ray.get(owner.own.remote())
given = ray.get(views)
seen["driver"] = given["x"].tolist(), given["number"]
seen["ordinary"] = ray.get(reader.total.remote(owner.ordinary.remote()))
seen["nothing"] = ray.get(owner.nothing.remote())
pickled = ray.get(owner.pickled.remote())
seen["pickled"] = type(pickled).__name__, pickled.strides, pickled.tolist()
seen["live"] = ray.get(owner.live.remote()) > 0
del views
end = time.monotonic() + 60
while ray.get(owner.live.remote()) and time.monotonic() < end:
    time.sleep(0.1)
seen["freed"] = ray.get(owner.live.remote())
seen["kept"] = given["y"][0].tolist()  # the memory stays as long as the array
manager = get_tensor_transport_manager("GPUINTEROP")
try:
    manager.recv_multiple_tensors("id", gpuinterop.ray.Shared([], None, [], "another machine"), None)
except gi.ExchangeError as error:
    seen["elsewhere"] = str(error)
try:
    ray.get(reader.total.remote(owner.ordinary.remote(True)))
except Exception as error:
    seen["forbidden"] = str(error)
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen():
    options = {
        "AUTH_MODE": "disabled",
        "USAGE_STATS_ENABLED": "0",
        "raylet_start_wait_time_s": "120",
    }
    environment = os.environ | {f"RAY_{name}": value for name, value in options.items()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


X = [[0.0, 4.0, 8.0], [1.0, 5.0, 9.0], [2.0, 6.0, 10.0], [3.0, 7.0, 11.0]]


def test_an_actor_gets_the_same_views(seen):
    assert seen["views"] == [
        ["CudaNdarray", [4, 3], [4, 16], False, X],
        ["GpuArray", [4], [-4], False, [4, 3, 2, 1]],
        ["GpuArray", [2], [8], True, [1, 3]],
    ]


def test_both_actors_and_the_driver_see_writes(seen):
    x, y = seen["written"]
    assert (x[0][0], y[3]) == (50, 60)
    assert seen["driver"] == [[[50.0, *X[0][1:]], *X[1:]], 5]


def test_ordinary_memory_is_copied_once_and_not_where_copies_are_forbidden(seen):
    assert seen["ordinary"] == 115
    assert "CopyForbiddenError" in seen["forbidden"]


def test_other_values_and_other_methods_need_no_transport(seen):
    assert seen["nothing"] == 7
    assert seen["pickled"] == ["CudaNdarray", [4, 16], seen["driver"][0]]


def test_handles_end_with_the_object_and_open_memory_stays(seen):
    assert (seen["live"], seen["freed"]) == (True, 0)
    assert seen["kept"] == [60, 3, 2, 1]


def test_actors_on_two_machines_are_refused(seen):
    assert "two machines" in seen["elsewhere"]
