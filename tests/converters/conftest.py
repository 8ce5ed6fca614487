"""The converters' tests import their helpers by name."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from doubles import fake_cudamat, fake_pycuda

from gpuinterop import converters
from gpuinterop.converters import availability, registry

pytest.register_assert_rewrite("cases")


@pytest.fixture
def clean():
    """Puts the registry back as it was, and forgets the names of the tests' own library."""
    rows, aliases = dict(registry._entries), dict(registry._aliases)
    yield
    registry.register(rows["numpy"])  # as after any change, nothing stays remembered
    for table, saved in ((registry._entries, rows), (registry._aliases, aliases)):
        table.clear()
        table.update(saved)
    registry._entry_points = None
    availability.broken_converters.clear()
    for name in ("to_toy", "from_toy"):
        vars(converters).pop(name, None)


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
