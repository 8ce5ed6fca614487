"""What was pickled before the modules moved loads today: arrays, devices, errors, functions, classes, plans.

``python tests/arrays/test_earlier_pickles.py`` pickles the values with the installed version.
"""

import base64
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import gpuinterop as gi


@gi.fuse
def doubled(x):
    return x * 2


NAMES = """abs clip round astype add sum matmul where norm concatenate split take nonzero allclose full zeros gemm
explain stream to from_any fuse capture count_copies no_copies log_transfers pinned_empty copy_async Device Stream
Event CudaText Expression ElementwiseKernel RawKernel Capture""".split()

MISSING = "nosuch"


def raised(call) -> Exception:
    with pytest.raises(gi.GpuInteropError) as caught:
        call()
    return caught.value


def values() -> dict[str, object]:
    x = gi.CudaNdarray(np.arange(6, dtype="float32").reshape(2, 3)[:, ::-1], device="cpu")
    found = {
        "CudaNdarray": x,
        "GpuArray": gi.asarray(np.arange(6, dtype="int16"), device="cpu"),
        "device": gi.device("cpu"),
        "shapes differ": raised(lambda: x + gi.zeros((4, 5), device="cpu")),
        "no array": raised(lambda: gi.CudaNdarray("x")),
        "no such name": raised(lambda: getattr(gi, MISSING)),
        "plan": gi.explain(x, "numpy"),
        "rules": gi.converters.cupy.RULES,
        "kernel": gi.ElementwiseKernel("float32 x", "float32 y", "y = x * 2", "twice"),
        "converter": gi.converters.to_numpy,
        "fused": doubled,
        "own stream": gi.devices.legacy_stream,
    }
    return found | {name: getattr(gi, name) for name in NAMES}


FILE = Path(__file__).with_name("earlier_pickles.json")
PICKLES = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def test_every_value_is_there():
    assert PICKLES.keys() == values().keys()


@pytest.mark.parametrize("name", PICKLES)
def test_an_earlier_pickle_loads(name):
    now, then = values()[name], pickle.loads(base64.b85decode(PICKLES[name]))
    assert type(then) is type(now)
    if isinstance(now, gi.GpuArray | gi.CudaNdarray):
        assert then.dtype == now.dtype
        assert np.array_equal(then, now)
    elif isinstance(now, gi.GpuInteropError):
        assert (then.where, then.expected, then.reason) == (now.where, now.expected, now.reason)
    elif name in ("plan", "kernel"):
        assert str(then).partition("(")[0] == str(now).partition("(")[0]
    else:
        assert then is now or then == now


if __name__ == "__main__":
    import test_earlier_pickles as this  # not __main__, which the pickles would name

    made = {
        name: base64.b85encode(pickle.dumps(x, 4)).decode() for name, x in this.values().items()
    }
    FILE.write_text(json.dumps(made, indent=0) + "\n", encoding="utf-8")
