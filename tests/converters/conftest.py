"""The converters' tests import their helpers by name."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from doubles import fake_cudamat, fake_pycuda

pytest.register_assert_rewrite("cases")


@pytest.fixture
def npmat(monkeypatch):
    module = fake_cudamat.npmat()
    fake_pycuda.installed(monkeypatch, module)
    return module


@pytest.fixture
def gnumpy(monkeypatch, npmat):
    module = fake_cudamat.gnumpy(npmat)
    fake_pycuda.installed(monkeypatch, module)
    return module
