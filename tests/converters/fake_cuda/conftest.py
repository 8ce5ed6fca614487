"""Stand-in libraries on the fake driver's memory."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import matrix_stand_ins
import stand_ins

import gpuinterop as gi


@pytest.fixture(scope="session")
def driver():
    return stand_ins.Driver()


@pytest.fixture
def primary(driver):
    """The primary context is current, as pycuda.autoprimaryctx makes it."""
    driver.push(driver.primary())
    yield
    driver.pop()


@pytest.fixture
def pycuda(monkeypatch, driver, primary):
    modules = stand_ins.pycuda(driver)
    stand_ins.installed(monkeypatch, modules)
    return modules["pycuda"]


@pytest.fixture
def cudamat(monkeypatch, driver, primary):
    module = matrix_stand_ins.cudamat(driver)
    stand_ins.installed(monkeypatch, module)
    return module


@pytest.fixture
def gpu():
    """Uploads a NumPy array: an array of ours on the (fake) GPU with the same strides order."""

    def upload(host):
        return gi.array(host, device="cuda")

    return upload
