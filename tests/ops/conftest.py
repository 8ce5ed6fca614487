"""Where the operations' tests run: host memory, a GPU, or (in a child process) the fake driver.

With GPUINTEROP_TEST_FAKE=1 and GPUINTEROP_LIBCUDA naming the fake driver, "cuda:0" is host memory and
kernels are compiled by g++: see hostkernels.py and test_on_fake_driver.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from ops_place import FAKE

if FAKE:
    import hostkernels

    hostkernels.install()


@pytest.fixture(
    params=["cuda:0"] if FAKE else ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)]
)
def device(request) -> str:
    return request.param
