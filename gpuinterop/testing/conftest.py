"""The tests of ``pytest --pyargs gpuinterop.testing``, and the matrix at their end.

pytest reads a package's conftest after the command line, so the options are environment variables:
GPUINTEROP_LIBRARIES=torch,jax tries these libraries only; GPUINTEROP_BRIDGES=package.module:name,... tries
these bridges (and no libraries, unless they are named too); GPUINTEROP_MATRIX=FILE writes the JSON.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from gpuinterop.errors import GpuInteropError
from gpuinterop.testing.matrix_table import Cell, Matrix
from gpuinterop.testing.suite import about, bridges_named, cases, gather, named, try_case

Key = tuple[str, str, str, str]  # library, direction, device, layout


class Run:
    """The cases of this session, and the outcomes so far."""

    def __init__(self, libraries: list[Any] | None) -> None:
        self.bridges, rows = gather(libraries)
        self.groups: dict[Key, list[Any]] = {}
        for case in cases(self.bridges):
            key = (case.bridge.name, case.direction, str(case.device), case.layout.name)
            self.groups.setdefault(key, []).append(case)
        places = list(dict.fromkeys(key[2] for key in self.groups))
        self.matrix = Matrix([], rows, places, about())

    def try_group(self, key: Key) -> list[Cell]:
        """Run the cases of one test."""
        cells = [try_case(case) for case in self.groups[key]]
        self.matrix.cells += cells
        return cells


_RUN = pytest.StashKey[Run]()


def _words(variable: str) -> list[str]:
    return [word.strip() for word in os.environ.get(variable, "").split(",") if word.strip()]


def run_of(config: pytest.Config) -> Run:
    """Return the session's run, which the first call creates."""
    if _RUN not in config.stash:
        try:
            wanted = named(_words("GPUINTEROP_LIBRARIES"), "GPUINTEROP_LIBRARIES")
            wanted += bridges_named(_words("GPUINTEROP_BRIDGES"))
            config.stash[_RUN] = Run(wanted or None)
        except GpuInteropError as error:  # an environment variable is wrong, not the suite
            raise pytest.Collector.CollectError(str(error)) from None
    return config.stash[_RUN]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test for each library, direction, device and layout."""
    if "conversion" in metafunc.fixturenames:
        keys = list(run_of(metafunc.config).groups)
        metafunc.parametrize("conversion", keys, ids=["-".join(key) for key in keys])


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """Return the session's run."""
    return run_of(request.config)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the matrix."""
    if _RUN in config.stash and config.stash[_RUN].matrix.cells:
        terminalreporter.section("gpuinterop: shared, copied, refused, wrong")
        terminalreporter.write_line(str(config.stash[_RUN].matrix))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the matrix to the file in GPUINTEROP_MATRIX."""
    path = os.environ.get("GPUINTEROP_MATRIX")
    if not path or _RUN not in session.config.stash:
        return
    if hasattr(session.config, "workerinput"):
        raise pytest.UsageError("GPUINTEROP_MATRIX needs one process: run without -n")
    if session.config.stash[_RUN].matrix.cells:
        session.config.stash[_RUN].matrix.save(path)
