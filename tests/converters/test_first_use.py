"""Whatever is called first in a process, an array comes in as a CudaNdarray or GpuArray."""

from __future__ import annotations

import subprocess
import sys

import pytest

DOORS = [
    "gi.from_any(a)",
    "gi.asarray(a, device='cpu')",
    "gi.from_dlpack(a)",
    "gi.to_cudandarray(a)",
    "gi.converters.from_any(a)",
    "gi.converters.from_numpy(a)",
    "gi.converters.from_buffer(memoryview(a))",
]


@pytest.mark.parametrize("door", DOORS)
def test_the_class_does_not_depend_on_what_was_called_before(door):
    program = (
        "import numpy, gpuinterop as gi\n"
        "a = numpy.ones((2, 3), 'float32')\n"
        f"x = {door}\n"
        "assert type(x).__name__ == 'CudaNdarray', type(x)\n"
        "assert (x + 1).tolist() == [[2, 2, 2], [2, 2, 2]]\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("call", "value"),
    [("gi.exp(0.0)", 1), ("gi.add(1, 2)", 3), ("gi.multiply(np.ones(2), 3)[0]", 3),
     ("gi.fuse(lambda x: x + 1)(np.ones(2))[0]", 2),
     ("gi.pinned_empty(3).shape[0]", 3), ("pickle.loads(pickle.dumps(gi.exp))(0.0)", 1)],
)  # fmt: skip
def test_operations_may_come_first(call, value):
    program = f"import pickle, numpy as np, gpuinterop as gi\nassert float({call}) == {value}\n"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
