"""How many files of the package a first call passes, and how often it returns to a file that it had left."""

import sys

import pytest
from doubles import driver
from pages import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from house_figures import program_of

MOST = [
    pytest.param("to", 6, 4, marks=pytest.mark.torch),
    pytest.param("explain", 9, 3, marks=pytest.mark.torch),
    pytest.param("refused", 8, 5, marks=pytest.mark.torch),
    pytest.param("add", 8, 10),
    pytest.param("sum", 8, 8),
]


@pytest.mark.parametrize(("name", "most_files", "most_returns"), MOST)
def test_a_first_call_passes_few_files(name, most_files, most_returns):
    files, returns, *path = driver.run(program_of(name), timeout=120).split()
    assert int(files) <= most_files, path
    assert int(returns) <= most_returns, path
