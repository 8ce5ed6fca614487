"""Captures and arrays of other devices, on the two GPUs of the fake driver."""

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import CaptureError

pytestmark = pytest.mark.fake_driver

DEVICES = ("cpu", "cuda:0", "cuda:1")
PAIRS = [(own, other) for own in DEVICES for other in DEVICES if own != other]


def array(device: str):
    return gi.CudaNdarray(np.ones((3, 3), "f4"), device=device)


WORK = {
    "an operator": lambda x: x * 2,
    "in place": lambda x: x.__iadd__(x),
    "a function": gi.exp,
    "a fused function": gi.fuse(lambda x: x * 2 + 1),
    "a sum": lambda x: x.sum(),
    "a product": lambda x: x @ x[0],
    "take": lambda x: x.take([0, 1]),
    "elements set": lambda x: x.__setitem__([0, 2], 3),
    "put": lambda x: x.put([0, 4], 3),
    "added": lambda x: gi.add.at(x, [0, 0], 1),
    "masked": lambda x: x.__setitem__(np.ones((3, 3), bool), 3),
    "cast, the same": lambda x: x.astype("float32"),
    "filled": lambda x: x.fill(3),
    "assigned": lambda x: x.__setitem__(0, x[1]),
    "cast": lambda x: x.astype("float64"),
}


@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize(("own", "other"), PAIRS)
def test_work_on_another_device_is_refused(own: str, other: str, name: str) -> None:
    x = array(other)
    before = x.tolist()
    with gi.capture(device=own) as graph:
        with pytest.raises(CaptureError) as error:
            WORK[name](x)
        text = str(error.value)
        assert f"work on {own}, which" in text
        assert f"got: work on {other}" in text
        assert f'device="{other}"' in error.value.fix
        assert f'x.to_device("{own}")' in error.value.fix
    assert graph.nodes == 0
    assert x.tolist() == before
    assert gi.ones(2, device=own).tolist() == [1, 1]  # the thread computes again


@pytest.mark.parametrize(("own", "other"), PAIRS)
def test_moving_and_replaying_across_devices_is_refused(own: str, other: str) -> None:
    x = array(other)
    inner = gi.capture(lambda: x.fill(2), device=other)
    with gi.capture(device=own):
        with pytest.raises(CaptureError, match=f"work on {other}"):
            inner.replay()
        if other != "cpu":  # from the host, a copy is part of a graph
            with pytest.raises(CaptureError, match=f"work on {other}"):
                x.to_device(own)


def test_arguments_decide_the_device() -> None:
    for device in DEVICES:
        x = array(device)
        graph = gi.capture(lambda a: a.fill(2), x)
        assert str(graph.device) == device
        graph()
        assert x.tolist() == [[2] * 3] * 3
        with pytest.raises(CaptureError, match=f'device="{device}"'):
            gi.capture(lambda: x.fill(3), device="cpu" if device != "cpu" else "cuda:0")  # noqa: B023


def test_looking_at_the_host_is_allowed_in_a_capture_of_a_gpu() -> None:
    h = array("cpu")
    with gi.capture(device="cuda:0"):
        assert h.tolist() == h.get().tolist() == np.asarray(h).tolist() == [[1] * 3] * 3
        assert h[0, 0].item() == 1
