#!/usr/bin/env python3
"""Run the tests of a project that takes arrays by the standard: ``conformance.py SUITE [--library NAME] [options]``.

SUITE is a row of `SUITES`. ``--checkout FOLDER`` is a source tree of array-api-tests, with array-api in its folder of
that name; the tests of SciPy and scikit-learn are in their packages. ``--library numpy`` runs the same tests with
another namespace. ``--record`` writes the outcome to benchmarks/results, from which docs/reference/conformance.md is
made. conformance.txt, beside this file, lists the tests that do not run: suite, ``|``, the end of the test's name,
``|``, the reason. What follows ``--`` goes to pytest.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "benchmarks" / "results"
OPTIONS = "GPUINTEROP_CONFORMANCE"  # suite and library, for the processes of pytest
# The namespaces by name, and the packages whose versions count.
LIBRARIES = {
    "gpuinterop": ("gpuinterop.array_api", "gpuinterop"),
    "numpy": ("numpy", "numpy"),
    "array_api_strict": ("array_api_strict", "array-api-strict"),
    "torch": ("array_api_compat.torch", "torch"),
    "jax": ("jax.numpy", "jax"),
    "cupy": ("array_api_compat.cupy", "cupy-cuda13x"),
}
# What pytest runs: tests of installed packages, or of the checkout.
SCIPY = """
    cluster/tests/test_hierarchy.py cluster/tests/test_vq.py differentiate/tests/test_differentiate.py
    fft/tests/test_basic.py fft/tests/test_helper.py integrate/tests/test_cubature.py
    integrate/tests/test_quadrature.py integrate/tests/test_tanhsinh.py ndimage/tests/test_measurements.py
    optimize/tests/test_bracket.py optimize/tests/test_chandrupatla.py signal/tests/test_windows.py
    special/tests/test_logsumexp.py special/tests/test_support_alternative_backends.py
    stats/tests/test_continued_fraction.py stats/tests/test_correlation.py stats/tests/test_entropy.py
    stats/tests/test_quantile.py stats/tests/test_rank.py stats/tests/test_variation.py
""".split()
LEARN = """
    decomposition/tests/test_pca.py metrics/tests/test_classification.py metrics/tests/test_common.py
    metrics/tests/test_pairwise.py metrics/cluster/tests/test_common.py metrics/cluster/tests/test_supervised.py
    preprocessing/tests/test_data.py preprocessing/tests/test_label.py preprocessing/tests/test_polynomial.py
    tests/test_calibration.py tests/test_kernel_approximation.py tests/test_naive_bayes.py tests/test_pipeline.py
    mixture/tests/test_gaussian_mixture.py linear_model/tests/test_logistic.py linear_model/tests/test_ridge.py
    model_selection/tests/test_split.py model_selection/tests/test_search.py model_selection/tests/test_validation.py
    utils/tests/test_array_api.py utils/tests/test_extmath.py utils/tests/test_indexing.py
    utils/tests/test_multiclass.py utils/tests/test_stats.py utils/tests/test_validation.py
""".split()
SUITES = {
    "array-api-tests": ["array_api_tests"],
    "scipy": [f"scipy/{part}" for part in SCIPY],
    "scikit-learn": [f"sklearn/{part}" for part in LEARN],
}


def main(arguments: list[str]) -> int:
    own, _, rest = (arguments, "", []) if "--" not in arguments else _split(arguments)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--library", choices=LIBRARIES, default="gpuinterop")
    parser.add_argument("--checkout", type=Path)
    parser.add_argument("--device", default="cpu", help="where gpuinterop's arrays are")
    parser.add_argument("--examples", type=int, default=20, help="of each test of array-api-tests")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args(own)
    module = LIBRARIES[given.library][0]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        "ARRAY_API_TESTS_MODULE": module, "ARRAY_API_TESTS_VERSION": "2025.12", "JAX_ENABLE_X64": "1",
        "SCIPY_ARRAY_API": "1",
        OPTIONS: json.dumps([given.suite, given.library, given.device, given.record]),
    }  # fmt: skip
    folder = given.checkout
    if given.suite == "array-api-tests":
        if folder is None:
            parser.error("array-api-tests needs --checkout")
        rest = [f"--max-examples={given.examples}", "--disable-deadline", *rest]
    else:
        found = importlib.util.find_spec(SUITES[given.suite][0].partition("/")[0])
        folder = Path(found.origin).parents[1]
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "conformance", "-p", "no:cacheprovider"]
    return subprocess.call([*pytest, *SUITES[given.suite], *rest], cwd=folder, env=environment)


def _split(arguments: list[str]) -> tuple[list[str], str, list[str]]:
    i = arguments.index("--")
    return arguments[:i], "--", arguments[i + 1 :]


def left_out(suite: str) -> dict[str, str]:
    """Return the ends of the names of tests that do not run, with their reasons."""
    lines = (HERE / "conformance.txt").read_text(encoding="utf-8").splitlines()
    rows = [[part.strip() for part in line.split("|", 2)] for line in lines if line[:1] not in "#"]
    return {end: reason for of, end, reason in rows if of == suite}


# ---- in the processes of pytest -------------------------------------------------------------------

_suite, _library, _device, _record = json.loads(os.environ.get(OPTIONS, '["", "", "", false]'))
_outcomes: dict[str, str] = {}


def pytest_configure(config: Any) -> None:
    """Put the namespace where SciPy's and scikit-learn's tests take theirs from."""
    import pytest

    if not _suite:
        return
    if _library == "gpuinterop":
        import gpuinterop.devices

        gpuinterop.devices.set_default_device(_device)
    name = LIBRARIES[_library][0]
    if _suite == "scipy":
        import scipy.conftest

        marks = pytest.mark.array_api_backends
        namespace = pytest.param(importlib.import_module(name), id=_library, marks=marks)
        marker = scipy.conftest.xp._fixture_function_marker
        object.__setattr__(marker, "params", (namespace,))
    if _suite == "scikit-learn":
        import sklearn.utils._array_api as of_tests

        def combinations(include_numpy_namespaces: bool = True) -> list[tuple[str, Any, str]]:
            return [(name, None, dtype) for dtype in ("float64", "float32")]

        of_tests.yield_namespace_device_dtype_combinations = combinations


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Keep the tests that are run for each namespace, without those that conformance.txt lists."""
    import pytest

    ends = left_out(_suite) if _library == "gpuinterop" else {}
    module, chosen, other = LIBRARIES.get(_library, ("", ""))[0], [], []
    for item in items:
        values = getattr(getattr(item, "callspec", None), "params", {})
        by_namespace = {
            "array-api-tests": True,
            "scipy": "xp" in values,
            "scikit-learn": any(isinstance(v, str) and v == module for v in values.values()),
        }.get(_suite, True)
        (chosen if by_namespace else other).append(item)
        for end, reason in ends.items():
            if item.nodeid.endswith(end):
                item.add_marker(pytest.mark.skip(reason=f"conformance.txt: {reason}"))
    items[:] = chosen
    config.hook.pytest_deselected(items=other)


def pytest_runtest_logreport(report: Any) -> None:
    """Keep the worst outcome of the phases of a test."""
    order = ("passed", "skipped", "failed")
    outcome = "skipped" if hasattr(report, "wasxfail") else report.outcome
    before = _outcomes.get(report.nodeid, "passed")
    _outcomes[report.nodeid] = max(before, outcome, key=order.index)


def pytest_sessionfinish(session: Any) -> None:
    """Add the counts of this library to the record of the suite, in the process that hands the tests out."""
    if not (_suite and _record) or hasattr(session.config, "workerinput") or not _outcomes:
        return
    on = (
        _device
        if _library in ("gpuinterop", "torch", "jax")
        else "cuda"
        if _library == "cupy"
        else "cpu"
    )
    path = RESULTS / f"conformance-{_suite}-{_device}.json"
    record = (
        json.loads(path.read_text(encoding="utf-8"))
        if path.exists()
        else {"suite": _suite, "rows": {}}
    )
    counts = Counter(_outcomes.values())
    record["rows"][_library] = {
        "version": importlib.metadata.version(LIBRARIES[_library][1]),
        "device": on,
        "date": datetime.date.today().isoformat(),
        **{outcome: counts[outcome] for outcome in ("passed", "failed", "skipped")},
        "failures": sorted(name for name, outcome in _outcomes.items() if outcome == "failed"),
    }
    record["python"] = sys.version.split()[0]
    if _suite != "array-api-tests":
        record["version"] = importlib.metadata.version(_suite)
    record["arguments"] = [
        a for a in session.config.invocation_params.args if a.startswith("--max")
    ]
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
