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
    "gi.converters.buffer.from_buffer(memoryview(a))",
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
