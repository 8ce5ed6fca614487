"""Libraries and dtypes stand in several tables, which agree."""

import sys
from pathlib import Path

import numpy as np
import pytest

from gpuinterop import _core
from gpuinterop.arrays import dtypes
from gpuinterop.cli import STRICT
from gpuinterop.exchange import package_versions, registry
from gpuinterop.testing import peers

HOUSE = Path(__file__).parents[1] / "house"
ROWS = {row.name: row for row in registry._BUILT_IN}
# Names that differ from the backend entry: package_versions uses the names that users write.
NAMED = {"cuda_core": "cuda.core"}
# Python's own, and the array API, which is many libraries.
NO_LIBRARY = {"buffer", "array_api"}


def packages():
    """The module that each library is imported as."""
    return {name: row.package for name, row in ROWS.items() if name not in NO_LIBRARY}


def test_every_converter_has_a_bridge():
    assert set(peers._BUILDERS) == set(ROWS)
    assert set(peers._PACKAGES) <= set(ROWS)
    assert peers._PACKAGES["array_api"] == (STRICT,)
    assert STRICT in registry.NAMESPACES


def test_doctor_covers_every_library():
    known = package_versions._KNOWN
    for name, package in packages().items():
        assert known[NAMED.get(name, name)][1] == package, name
    assert (known["numba-cuda"][1],) == peers._PACKAGES["numba"]


@pytest.mark.parametrize("name", sorted(packages()))
def test_doctor_covers_every_recommended_package(name):
    import re

    install = ROWS[name].install
    patterns = [pattern for pattern, _ in package_versions._KNOWN.values()]
    if install and "://" not in install:
        assert any(re.fullmatch(pattern, install.split()[0]) for pattern in patterns), install


def test_light_import_test_covers_every_library(monkeypatch):
    monkeypatch.syspath_prepend(HOUSE)
    sys.modules.pop("test_light_import", None)
    from test_light_import import FOREIGN

    roots = {package.partition(".")[0] for package in packages().values()} - {"numpy"}
    assert roots | {STRICT} <= set(FOREIGN), sorted((roots | {STRICT}) - set(FOREIGN))


def test_the_dtype_tables_of_core_and_python_agree():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for i, name in enumerate(dtypes.NAMES):
        if name not in dtypes.NUMPY_NAMES and not hasattr(ml_dtypes, name):
            continue
        dtype = dtypes.dtype_from_id(i)
        assert dtype.name == name
        assert dtypes.dtype_id(dtype) == dtypes.dtype_id(name) == i
        made = _core.empty(_core.Array, (1,), i, 1, 0)  # by the core's row
        assert (made.dtype, made.itemsize) == (dtype, dtype.itemsize)
        if name in dtypes.NUMPY_NAMES:
            assert np.from_dlpack(made).dtype == dtype
