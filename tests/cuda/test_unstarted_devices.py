"""Asking about a device is not using it: only what needs a context makes one."""

from __future__ import annotations

import pytest
from doubles import driver

import gpuinterop as gi
from gpuinterop import _core, devices

pytestmark = pytest.mark.driver

PROGRAM = """
import gpuinterop as gi
from gpuinterop import _core, devices
found = devices.device_properties("cuda:0")
assert found["major"] >= 3 and found["totalGlobalMem"] > 0, found
assert not _core.cuda_started(0)
assert gi.mem_info("cuda:0")[1] > 0
assert _core.cuda_started(0)  # free memory is a question to a context
"""


def test_properties_need_no_context():
    driver.run(PROGRAM)


def test_properties_of_a_device_that_is_not_there():
    with pytest.raises(gi.DeviceError, match="device"):
        _core.cuda_device_properties(_core.cuda_device_count())
    with pytest.raises(gi.DeviceError):
        devices.device_properties("cuda:99")
