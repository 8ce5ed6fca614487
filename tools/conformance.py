#!/usr/bin/env python3
"""Run the tests of a project that takes arrays by the standard: ``conformance.py SUITE [--library NAME] [options]``.

SUITE is a row of `SUITES`. ``--checkout FOLDER`` is a source tree of array-api-tests, with array-api in its folder of
that name; the tests of SciPy and scikit-learn are in their packages. ``--library numpy`` runs the same tests with
another namespace. ``--downloads refuse`` refuses hidden downloads from a GPU, except by functions that compare; tests
in which the project asks for one count as refused. ``--record`` writes the outcome of a complete run to
benchmarks/results, from which docs/reference/conformance.md is made. conformance.txt, beside this file, lists the tests
that may fail with gpuinterop: suite, or suite on device, ``|``, the end of the test's name, with parameters or without,
``|``, the reason. They count as failed, and do not fail the run. What follows ``--`` goes to pytest.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import importlib.util
import inspect
import itertools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "benchmarks" / "results"
OPTIONS = "GPUINTEROP_CONFORMANCE"  # suite, library and others, for the processes of pytest
# The namespaces by name, and the packages whose versions count.
LIBRARIES = {
    "gpuinterop": ("gpuinterop.array_api", "gpuinterop"),
    "numpy": ("numpy", "numpy"),
    "array_api_strict": ("array_api_strict", "array-api-strict"),
    "torch": ("array_api_compat.torch", "torch"),
    "jax": ("jax.numpy", "jax"),
    "cupy": ("array_api_compat.cupy", "cupy-cuda13x"),
}
# Installed packages whose tests run, and the word in the files of tests that take a namespace.
PACKAGES = {
    "scipy": ("scipy", r"\bxp\b"),
    "scikit-learn": ("sklearn", "yield_namespace_device_dtype_combinations"),
    "xarray": ("xarray", r"^NAMESPACE_ARRAYS|^xp = "),
    "einops": ("einops", "collect_test_backends"),
}
# Modules whose functions compare arrays for the tests, or download them on purpose, and the names of these functions.
COMPARING = {
    "numpy.testing": r"assert_(?!raises|warns|no_)",
    "scipy._lib._array_api": r"(xp_)?assert_|_xp_copy_to_numpy",
    "sklearn.utils._array_api": "_convert_to_numpy",
}
CHECKOUTS = {"array-api-tests": "array_api_tests", "array-api-extra": "tests/main"}
SUITES = (*CHECKOUTS, *PACKAGES)


def main(arguments: list[str]) -> int:
    own, _, rest = (arguments, "", []) if "--" not in arguments else _split(arguments)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--library", choices=LIBRARIES, default="gpuinterop")
    parser.add_argument("--checkout", type=Path)
    parser.add_argument("--device", default="cpu", help="where gpuinterop's arrays are")
    parser.add_argument(
        "--part", nargs="+", help="only these files, as scipy/stats or array_api_tests/test_fft.py"
    )
    parser.add_argument("--examples", type=int, default=20, help="of each test of array-api-tests")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--downloads", choices=("allow", "refuse"), default="allow")
    given = parser.parse_args(own)
    if given.downloads == "refuse" and given.library != "gpuinterop":
        parser.error("--downloads refuse is for gpuinterop")
    module = LIBRARIES[given.library][0]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "benchmarks"), os.environ.get("PYTHONPATH", "")]),
        "ARRAY_API_TESTS_MODULE": module, "ARRAY_API_TESTS_VERSION": "2025.12", "JAX_ENABLE_X64": "1",
        "JAX_PLATFORMS": "cpu" if given.device == "cpu" else "", "SCIPY_ARRAY_API": "1",
        "SCIPY_DEVICE": given.device.partition(":")[0],
        OPTIONS: json.dumps([given.suite, given.library, given.device, given.record, given.downloads]),
    }  # fmt: skip
    if given.suite in PACKAGES:
        folder, files = files_of(given.suite)
        rest = [
            "-W",
            "default",
            *rest,
        ]  # an environment in this folder has its settings, which raise them
        files = [f for f in files if f.startswith(tuple(given.part))] if given.part else files
    elif given.checkout is None:
        parser.error(f"{given.suite} needs --checkout")
    else:
        folder, files = given.checkout, given.part or [CHECKOUTS[given.suite]]
        environment["PYTHONPATH"] += f"{os.pathsep}{folder.resolve() / 'src'}"
    if given.suite == "array-api-tests":
        rest = [f"--max-examples={given.examples}", "--disable-deadline", *rest]
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "conformance", "-p", "no:cacheprovider"]
    return subprocess.call([*pytest, *files, *rest], cwd=folder, env=environment)


def _split(arguments: list[str]) -> tuple[list[str], str, list[str]]:
    i = arguments.index("--")
    return arguments[:i], "--", arguments[i + 1 :]


def files_of(suite: str) -> tuple[Path, list[str]]:
    """Return the folder of an installed package, and its files of tests that take a namespace."""
    package, word = PACKAGES[suite]
    folder = Path(importlib.util.find_spec(package).origin).parent
    found = sorted(folder.rglob("tests/test_*.py"))
    chosen = [f for f in found if re.search(word, f.read_text(encoding="utf-8"), re.MULTILINE)]
    return folder.parent, [str(f.relative_to(folder.parent)) for f in chosen]


def reasons_to_fail(suite: str, device: str) -> dict[str, str]:
    """Return the ends of the names of tests that may fail on a device, with their reasons."""
    lines = (HERE / "conformance.txt").read_text(encoding="utf-8").splitlines()
    rows = [[part.strip() for part in line.split("|", 2)] for line in lines if line[:1] not in "#"]
    return {end: reason for of, end, reason in rows if of in (suite, f"{suite} on {device}")}


def may_fail(name: str, end: str) -> bool:
    """Return whether a test's name has this end, perhaps before its parameters."""
    return name.endswith(end) or name.partition("[")[0].endswith(end)


# ---- in the processes of pytest -------------------------------------------------------------------

_suite, _library, _device, _record, _downloads = json.loads(
    os.environ.get(OPTIONS, '["", "", "", false, ""]')
)
_outcomes: dict[str, str] = {}
_downloaded: Counter[str] = Counter()  # bytes, by test
_transfers: list[Any] = []  # of the running test


def pytest_configure(config: Any) -> None:
    """Put the namespace where the tests of the suite take theirs from."""
    if not _suite:
        return
    if _library == "gpuinterop":
        import gpuinterop.devices

        gpuinterop.devices.set_default_device(_device)
    elif _library == "torch":
        import torch

        torch.set_default_device(_device.partition(":")[0])
    if _downloads == "refuse":
        _refuse_downloads()
    prepare = f"_for_{_suite.replace('-', '_')}"
    globals().get(prepare, id)(LIBRARIES[_library][0])


def _refuse_downloads() -> None:
    """Refuse hidden downloads in this process, except in the functions that compare, and list all transfers."""
    global _transfers
    import gpuinterop

    for name in (
        "numpy.testing",
        *(n for n in COMPARING if n.startswith(PACKAGES.get(_suite, ("-",))[0])),
    ):
        module = importlib.import_module(name)
        for found, function in inspect.getmembers(module, inspect.isfunction):
            if re.match(COMPARING[name], found):
                setattr(module, found, gpuinterop.downloads("allow")(function))
    gpuinterop.downloads("refuse")
    _transfers = gpuinterop.log_transfers().__enter__()


def pytest_runtest_makereport(item: Any, call: Any) -> None:
    """Mark a test in which the project converted an array with numpy.asarray, which gpuinterop refused."""
    if _downloads == "refuse" and call.excinfo and call.excinfo.typename == "CopyForbiddenError":
        callers = [str(entry.path) for entry in call.excinfo.traceback]
        asked = [a for a, b in itertools.pairwise(callers) if b.endswith("gpuinterop/ndarray.py")]
        if any(map(_of_project, asked)):
            item.user_properties.append(("refused", True))


def pytest_runtest_teardown(item: Any) -> None:
    """Count the bytes that the project under test downloaded, other than to compare."""
    own = [t.bytes for t in _transfers if t.kind == "device_to_host" and _of_project(t.caller)]
    item.user_properties.append(("downloaded", sum(own)))
    _transfers.clear()


def _of_project(path: str) -> bool:
    """Return whether a file is of the project under test, and neither a test nor a function that compares."""
    return f"/{PACKAGES.get(_suite, ('-',))[0]}/" in path and not re.search(
        "/tests/|_array_api.py", path
    )


def pytest_load_initial_conftests(early_config: Any) -> None:
    """Spare the processes of pytest the start of all libraries that SciPy's tests know."""
    if _suite != "scipy":
        return
    others = {"torch", "jax", "dask", "cupy"} - {_library, *sys.modules}
    sys.modules.update(dict.fromkeys(others))
    importlib.import_module("scipy.conftest")
    for other in others:
        del sys.modules[other]


def _for_scipy(name: str) -> None:
    import pytest
    import scipy.conftest

    known = {param.values[0].__name__: param for param in scipy.conftest.xp_available_backends}
    if _library != "gpuinterop":
        _set_params(scipy.conftest.xp, known[_plain(name)])
        return
    marks = pytest.mark.array_api_backends
    namespace = pytest.param(importlib.import_module(name), id=_library, marks=marks)
    _set_params(scipy.conftest.xp, namespace)
    # Names outside of this set are not skipped where SciPy's tests are for NumPy alone.
    scipy.conftest.xp_known_backends.add(name)
    # SciPy's own fixture adds a list to the devices, which are a tuple since version 2025.12.
    scipy.conftest.devices = pytest.fixture(_devices)


def _plain(name: str) -> str:
    """Return a library's own namespace, for projects that have array_api_compat in them."""
    return name.removeprefix("array_api_compat.")


def _for_scikit_learn(name: str) -> None:
    import sklearn.utils._array_api as of_tests

    place = _device.partition(":")[0] if _library == "torch" else None

    def combinations(include_numpy_namespaces: bool = True) -> list[tuple[str, Any, str]]:
        return [(_plain(name), place, dtype) for dtype in ("float64", "float32")]

    of_tests.yield_namespaces = lambda **_: [_plain(name)]
    of_tests.yield_namespace_device_dtype_combinations = combinations


def _for_array_api_extra(name: str) -> None:
    import pytest

    backend = importlib.import_module("array_api_extra._lib._backends").Backend
    found = backend.__members__.get(_library.upper())
    if found is None:  # a member that the enumeration does not list
        found = object.__new__(backend)
        found._name_, found._value_ = _library.upper(), name
    tests = importlib.import_module("tests.main.conftest")
    _set_params(tests.library, pytest.param(found, id=_library))


def _for_xarray(name: str) -> None:
    of_standard = importlib.import_module("xarray.tests.test_array_api")
    of_standard.xp = importlib.import_module(name)
    of_standard.Array = type(of_standard.xp.zeros(1))
    wrapping = importlib.import_module("xarray.tests.test_duck_array_wrapping")
    wrapping.NAMESPACES[:] = [_library if _library == "gpuinterop" else name]
    classes = {"array": of_standard.Array.__name__, "constructor": "asarray"}
    wrapping.NAMESPACE_ARRAYS.setdefault(wrapping.NAMESPACES[0], {"attrs": classes, "xfails": {}})


def _for_einops(name: str) -> None:
    import einops.tests

    if _library == "gpuinterop":  # the backend that the documentation offers
        page = HERE.parent / "docs" / "how-to" / "use-einops-and-xarray.md"
        code = page.read_text(encoding="utf-8").partition("```python einops\n")[2]
        exec(code.partition("```")[0], {"__name__": "page"})
    os.environ[einops.tests.ENVVAR_NAME] = _library
    found = {cls.framework_name: cls for cls in _subclasses(einops.tests._backends.AbstractBackend)}

    def backends(symbolic: bool = False, layers: bool = False) -> list[Any]:
        return [] if symbolic or layers else [found[_library]()]

    einops.tests.collect_test_backends = backends


def _subclasses(cls: type) -> list[Any]:
    return [found for sub in cls.__subclasses__() for found in (sub, *_subclasses(sub))]


def _set_params(fixture: Any, *params: Any) -> None:
    object.__setattr__(fixture._fixture_function_marker, "params", params)


def _devices(xp: Any) -> list[Any]:
    return [*xp.__array_namespace_info__().devices(), None]


# Parameters of scikit-learn's tests that list some libraries themselves.
_OF_ONE_LIBRARY = {"library", "converter", "expected_types"}


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Keep the tests that are run for each namespace, and let those fail that conformance.txt lists."""
    import pytest

    ends = reasons_to_fail(_suite, _device) if _library == "gpuinterop" else {}
    module, chosen, other = LIBRARIES.get(_library, ("", ""))[0], [], []
    for item in items:
        values = getattr(getattr(item, "callspec", None), "params", {})
        by_namespace = {
            "array-api-tests": True,
            "scipy": "xp" in values,
            "array-api-extra": "library" in values,
            "scikit-learn": _plain(module) in [v for v in values.values() if isinstance(v, str)]
            and not values.keys() & _OF_ONE_LIBRARY,
        }.get(_suite, True)
        (chosen if by_namespace else other).append(item)
        for end, reason in ends.items():
            if may_fail(item.nodeid, end):
                item.add_marker(
                    pytest.mark.xfail(reason=f"conformance.txt: {reason}", strict=False)
                )
    items[:] = chosen
    config.hook.pytest_deselected(items=other)


def pytest_runtest_logreport(report: Any) -> None:
    """Keep the worst outcome of the phases of a test."""
    order = ("passed", "skipped", "refused", "failed")
    expected = getattr(report, "wasxfail", "")
    listed = "conformance.txt" in expected and report.outcome == "skipped"
    outcome = "failed" if listed else report.outcome
    if outcome == "failed" and dict(report.user_properties).get("refused"):
        outcome = "refused"
    name = report.nodeid.rpartition("site-packages/")[2]  # wherever the environment is
    _outcomes[name] = max(_outcomes.get(name, "passed"), outcome, key=order.index)
    if report.when == "teardown":
        _downloaded[name] += dict(report.user_properties).get("downloaded", 0)


def pytest_sessionfinish(session: Any) -> None:
    """Add the counts of this library to the record of the suite, in the process that hands the tests out."""
    if not (_suite and _record) or hasattr(session.config, "workerinput") or not _outcomes:
        return
    if session.exitstatus not in (0, 1):  # interrupted
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
    examples = session.config.getoption("hypothesis_max_examples", None)  # of array-api-tests
    key = _library if _downloads == "allow" else f"{_library}, downloads refused"
    row = record["rows"].get(key, {})
    if row.get("examples") != examples:  # do not sum up parts of different runs
        row = {}
    row = record["rows"][key] = row | {
        "version": importlib.metadata.version(LIBRARIES[_library][1]),
        "device": on,
        "date": datetime.date.today().isoformat(),
        "commit": importlib.import_module("bench_common").commit(),
    }
    if examples is not None:
        row["examples"] = examples
    _add_counts(row)
    record["python"] = sys.version.split()[0]
    if _suite in PACKAGES:
        record["version"] = importlib.metadata.version(_suite)
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _add_counts(row: dict[str, Any]) -> None:
    """Add the outcomes of the folders that ran, for a suite that runs in pieces, and sum up all folders."""
    folders = {name: _folder(name) for name in _outcomes}
    counts: dict[str, Counter[str]] = {folder: Counter() for folder in folders.values()}
    for name, outcome in _outcomes.items():
        counts[folders[name]][outcome] += 1
        if _downloads == "refuse":
            counts[folders[name]]["downloaded"] += _downloaded[name]
    parts = row["parts"] = {**row.get("parts", {}), **counts}
    for outcome in (
        "passed",
        "failed",
        "skipped",
        *(("refused", "downloaded") if _downloads == "refuse" else ()),
    ):
        row[outcome] = sum(part.get(outcome, 0) for part in parts.values())
    failed = {name for name, outcome in _outcomes.items() if outcome == "failed"}
    before = {
        name for name in row.get("failures", ()) if _folder(name) in parts.keys() - counts.keys()
    }
    row["failures"] = sorted(failed | before)


def _folder(name: str) -> str:
    """Return the first two parts of a test's path, such as scipy/stats."""
    return "/".join(name.partition("::")[0].split("/")[:2])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
