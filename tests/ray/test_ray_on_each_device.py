"""Two actors of Ray on one device: the receiver has the sender's memory, after its work, and nothing is copied.

On a GPU each actor has half of it, so that both run on the same one.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from doubles.on_fake import FAKE

pytest.importorskip("ray.experimental")  # "ray" is also a folder of the tests

PROGRAM = """
import json, sys
import numpy as np
import ray
import gpuinterop as gi
import gpuinterop.ray
from ray.experimental.rdt.util import get_tensor_transport_manager

device, n = sys.argv[1], int(sys.argv[2])
gpus = 0 if device == "cpu" else 0.5

class Actor:
    def begin(self, fake):
        if fake:
            from doubles import host_kernels
            host_kernels.install()
        import gpuinterop.ray  # Ray registers the transport from another thread, perhaps later
        # The transport's steps, which may run in another thread than the methods.
        self.moved = []
        manager = get_tensor_transport_manager("GPUINTEROP")
        for name in ("extract_tensor_transport_metadata", "recv_multiple_tensors"):
            setattr(manager, name, self.counted(name, getattr(manager, name)))

    def counted(self, name, step):
        def body(*arguments, **options):
            with gi.log_transfers() as log, gi.count_copies() as copies:
                result = step(*arguments, **options)
            self.moved.append([name, log.bytes, copies.bytes])
            return result
        return body

    def steps(self):
        return self.moved

@ray.remote(enable_tensor_transport=True, num_gpus=gpus)
class Owner(Actor):
    def __init__(self):
        self.x = gi.shared_empty((n, n), device=device)
        self.y = gi.shared_empty((4, 6), "int32", device=device)
        self.y[...] = np.arange(24, dtype="int32").reshape(4, 6)

    @ray.method(tensor_transport="gpuinterop")
    def views(self):
        frozen = self.y[::2, 1]
        frozen.readonly = True
        return [self.y.T, self.y[::-1, ::-2], frozen]

    @ray.method(tensor_transport="gpuinterop")
    def late(self):
        made = gi.CudaNdarray(np.arange(n * n, dtype="float32").reshape(n, n) % 97, device=device)
        one = gi.CudaNdarray(np.eye(n, dtype="float32"), device=device)
        for _ in range(50):
            made = made @ one
        self.x[...] = made  # queued, and on a GPU not done when the method returns
        return self.x

    def own(self):
        return self.y.get().tolist()

@ray.remote(enable_tensor_transport=True, num_gpus=gpus)
class Reader(Actor):
    def look(self, views):
        seen = [[str(v.device), v.shape, v.strides, v.readonly, v.get().tolist()] for v in views]
        views[0][...] = np.full((6, 4), 7, "int32")
        gi.synchronize(device)
        return seen

    def values(self, x):
        return np.array_equal(x.get(), np.arange(n * n).reshape(n, n) % 97)

    def place(self):
        return ray.get_gpu_ids()

ray.init(num_cpus=2, num_gpus=1, include_dashboard=False)
owner, reader = Owner.remote(), Reader.remote()
ray.get([actor.begin.remote(sys.argv[3] == "fake") for actor in (owner, reader)])
seen = {"late": ray.get(reader.values.remote(owner.late.remote()))}
views = owner.views.remote()
seen["views"] = ray.get(reader.look.remote(views))
seen["written"] = ray.get(owner.own.remote())
seen["steps"] = ray.get(owner.steps.remote()) + ray.get(reader.steps.remote())
seen["gpus"] = ray.get(reader.place.remote())
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen(device):
    options = {
        "AUTH_MODE": "disabled",
        "USAGE_STATS_ENABLED": "0",
        "raylet_start_wait_time_s": "120",
    }
    environment = os.environ | {f"RAY_{name}": value for name, value in options.items()}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])  # for the actors on the fake driver
    words = (
        [device, "64", "fake"] if FAKE else [device, "64" if device == "cpu" else "4096", "real"]
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], env=environment, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_receiver_sees_work_that_was_queued_before(seen):
    assert seen["late"]


def test_views_arrive_on_the_device_with_their_layouts(seen, device):
    y = np.arange(24, dtype="int32").reshape(4, 6)
    expected = [(y.T, False), (y[::-1, ::-2], False), (y[::2, 1], True)]
    assert seen["views"] == [
        [device, [*v.shape], [*v.strides], readonly, v.tolist()] for v, readonly in expected
    ]
    assert len(seen["gpus"]) == (device != "cpu")


def test_the_sender_sees_writes_of_the_receiver(seen):
    assert seen["written"] == np.full((4, 6), 7).tolist()


def test_no_step_of_the_transport_copies(seen):
    names = [name for name, *_ in seen["steps"]]
    assert [names.count(name) for name in dict.fromkeys(names)] == [2, 2]
    assert [moved for _, *moved in seen["steps"]] == [[0, 0]] * 4
