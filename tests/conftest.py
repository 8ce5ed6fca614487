"""What all tests share: the `device` fixture, what each marker needs, and no silent skip.

A process has one driver. ``pytest`` runs the tests of "cpu", and those of "cuda:0" if there is a GPU.
``pytest --driver=fake`` runs the tests of "cuda:0" on the fake driver (tests/doubles), and no others.

A skip is allowed for the reasons in allowed_skips.txt only; any other fails the run, and so does an
allowed one whose category is required on the command line.
"""

import ctypes
import fcntl
import functools
import gc
import importlib.util
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is slow, which is not a fault of the code; what fails in CI must fail again there.
settings.register_profile("gpuinterop", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("gpuinterop")

# JAX takes three quarters of a GPU's memory when it is first used, which leaves too little for the
# tests of the other libraries. Read when JAX is imported, and by child processes.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Each process of the tests multiplies with one thread, because the threads of several would wait for one
# another's cores. Read when NumPy and PyTorch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

pytest.register_assert_rewrite("helpers.cases", "helpers.products")

LIBRARY_MARKERS = ("torch", "jax", "cupy", "pycuda", "numba")
# What a test needs: a device, real or fake; a real one; two real ones; the inside of the fake driver.
DRIVER_MARKERS = ("driver", "gpu", "multi_gpu", "fake_driver")
# Folders whose tests compile a kernel for each case, by g++ on the fake driver: minutes.
SLOW_ON_FAKE = {
    "arrays", "product", "examples", "index", "elementwise", "fusion", "numpy_api", "reduce", "sorting"
}  # fmt: skip
NOT_ON_FAKE = Path(__file__).with_name("doubles") / "not_on_fake.txt"
ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")


def pytest_addoption(parser):
    group = parser.getgroup("gpuinterop")
    group.addoption(
        "--require-cuda",
        action="store_true",
        help="fail, not skip, what needs a CUDA device, NVRTC or cuBLAS",
    )
    group.addoption(
        "--require",
        default="",
        metavar="CATEGORY,...",
        help="categories of allowed_skips.txt whose skips are failures here",
    )
    group.addoption(
        "--driver",
        choices=("real", "fake"),
        default="real",
        help="fake: run the tests of CUDA devices, and only them, on the driver in tests/doubles",
    )
    group.addoption(
        "--without",
        metavar="FILE",
        help="leave out what passed in the runs that had this file's name in GPUINTEROP_PASSED",
    )


# ---- devices ------------------------------------------------------------------------------------


@functools.cache
def cuda_devices() -> tuple[int, str]:
    """How many devices the real driver shows, and why not when it shows none.

    Asked of the driver itself, so that a mistake in the library cannot hide a GPU from its tests.
    """
    if os.environ.get("GPUINTEROP_LIBCUDA"):
        return 0, "GPUINTEROP_LIBCUDA names another driver"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return 0, str(error)
    status = driver.cuInit(0)
    if status != 0:
        return 0, f"cuInit returned {status}"
    count = ctypes.c_int()
    status = driver.cuDeviceGetCount(ctypes.byref(count))
    if status != 0 or count.value == 0:
        return 0, f"cuDeviceGetCount returned {status} and {count.value} devices"
    return count.value, ""


def on_fake(config) -> bool:
    return config.getoption("--driver") == "fake"


@pytest.fixture(autouse=True, scope="module")
def quick_garbage_collection():
    """Spare the many collections of garbage in the tests all that earlier modules have left."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def errors_are_complete():
    """Each error in any test has the rule, the value and a fix, none of which is long."""
    from gpuinterop import GpuInteropError

    init = GpuInteropError.__init__

    def checked(self, **parts):
        init(self, **parts)
        named = [bool(parts[name]) for name in ("expected", "got", "fix")]
        assert all(named) or not any(named), parts  # none yet in an error that is being unpickled
        assert len(str(self)) < 1000

    GpuInteropError.__init__ = checked


@pytest.fixture(autouse=True, scope="session")
def real_libraries_enter_no_fake_streams(request):
    """The real PyTorch and CuPy, which may be imported, do not work on the fake driver."""
    if on_fake(request.config):
        from doubles import internals

        internals.leave_streams_of("torch", "cupy")


def wants_cuda(config) -> bool:
    """Whether the tests of CUDA devices run. Under --require-cuda, a missing device fails them."""
    return cuda_devices()[0] > 0 or config.getoption("--require-cuda")


@pytest.fixture(scope="module")
def device(request) -> str:
    """Each device there is: "cpu" always, and "cuda:0" where a driver works; on the fake driver "cuda:0" alone."""
    return request.param


@pytest.fixture(scope="session")
def nvrtc():
    """The module `gpuinterop.jit`, where NVRTC is installed."""
    from gpuinterop import LibraryNotFoundError, jit

    try:
        jit.compiler_version()
    except LibraryNotFoundError as error:
        pytest.skip(f"no NVRTC: {error.got}")
    return jit


def pytest_ignore_collect(collection_path, config):
    """Spare the fake driver the folders that have nothing for it, and the quick suite the slow ones."""
    left_out = {"house", "cli", "doctor", "typing"}
    if "not slow" in (config.getoption("markexpr") or ""):
        left_out |= SLOW_ON_FAKE
    return True if on_fake(config) and collection_path.name in left_out else None


def pytest_generate_tests(metafunc):
    listed = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    named = {n for names in listed for n in (names.split(",") if isinstance(names, str) else names)}
    if "device" in metafunc.fixturenames and "device" not in map(str.strip, named):
        cuda = pytest.param("cuda:0", marks=pytest.mark.driver)
        if on_fake(metafunc.config) or metafunc.definition.get_closest_marker("driver"):
            there = [cuda]
        else:
            there = ["cpu", cuda] if wants_cuda(metafunc.config) else ["cpu"]
        metafunc.parametrize("device", there, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave out what needs another driver than this run has, so that no test runs on the wrong one."""
    for item in items:
        if item.path.parent.name == "fake_driver":
            item.add_marker(pytest.mark.fake_driver)
        if on_fake(config) and SLOW_ON_FAKE.intersection(item.path.parts):
            item.add_marker(pytest.mark.slow)
    passed = passed_before(config)
    chosen, others = [], []
    for item in items:
        (chosen if belongs(item, config) and item.nodeid not in passed else others).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=others)


def passed_before(config) -> set[str]:
    """The tests that --without leaves out of a run on this driver."""
    file, driver = config.getoption("--without"), config.getoption("--driver")
    rows = Path(file).read_text(encoding="utf-8").splitlines() if file else []
    return {row.removeprefix(f"{driver} ") for row in rows if row.startswith(f"{driver} ")}


def belongs(item, config) -> bool:
    needs = {name for name in DRIVER_MARKERS if item.get_closest_marker(name)}
    if on_fake(config):
        left_out = not_on_fake() & {item.nodeid, item.nodeid.split("[")[0]}
        return bool(needs) and not needs & {"gpu", "multi_gpu"} and not left_out
    return "fake_driver" not in needs and (not needs or wants_cuda(config))


@functools.cache
def not_on_fake() -> frozenset[str]:
    lines = NOT_ON_FAKE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.strip() and not line.startswith("#")]
    return frozenset(line.split(" | ")[0] for line in rows)


def pytest_configure(config):
    if on_fake(config):
        from doubles import fake_driver

        fake_driver.use()
        return
    # One run of GPU tests at a time: two would measure and exhaust each other's memory.
    if hasattr(config, "workerinput") or cuda_devices()[0] == 0:
        return
    lock = (Path(tempfile.gettempdir()) / f"gpuinterop-tests-{os.getuid()}.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = f"waiting for the end of another run of GPU tests, which has locked {lock.name}"
        print(text, file=sys.stderr, flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    config.add_cleanup(lock.close)


@functools.cache
def failing() -> dict[str, str]:
    """The installed libraries that fail when an array is exchanged with them, as the doctor finds them."""
    import gpuinterop

    return gpuinterop.doctor(trial=True).failing


def missing(item) -> str:
    """Why this test cannot run on this machine, or "" when it can."""
    for name in LIBRARY_MARKERS:
        if item.get_closest_marker(name) and importlib.util.find_spec(name) is None:
            return f"{name} is not installed"
    if on_fake(item.config) or not any(item.get_closest_marker(name) for name in DRIVER_MARKERS):
        return ""
    count, reason = cuda_devices()
    if count == 0:
        return f"no CUDA device: {reason}"
    if count == 1 and item.get_closest_marker("multi_gpu"):
        return "one CUDA device only"
    if item.get_closest_marker("numba") and "numba" in failing():
        return f"numba fails in use: {failing()['numba']}"
    return ""


def pytest_runtest_setup(item):
    reason = missing(item)
    if reason:
        pytest.skip(reason)


# ---- skips --------------------------------------------------------------------------------------


@functools.cache
def allowed_skips() -> tuple[tuple[str, re.Pattern[str]], ...]:
    lines = ALLOWED_SKIPS.read_text(encoding="utf-8").splitlines()
    rows = (line.split("|", 1) for line in lines if line.strip() and not line.startswith("#"))
    return tuple((name.strip(), re.compile(pattern.strip(), re.DOTALL)) for name, pattern in rows)


def category_of(reason: str) -> str:
    for name, pattern in allowed_skips():
        if pattern.fullmatch(reason):
            return name
    return ""


def required(config) -> set[str]:
    names = set(filter(None, config.getoption("--require").split(",")))
    if config.getoption("--require-cuda"):
        names |= {"gpu", "nvrtc", "cublas"}
    unknown = names - {name for name, _ in allowed_skips()}
    if unknown:
        raise pytest.UsageError(f"--require: no such category: {', '.join(sorted(unknown))}")
    return names


def skip_reason(report) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def skips_by_reason(config) -> Counter[str]:
    reporter = config.pluginmanager.getplugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    return Counter(skip_reason(report) for report in skipped)


def refused_skips(config) -> list[str]:
    needed = required(config)
    return [
        reason
        for reason in skips_by_reason(config)
        if category_of(reason) == "" or category_of(reason) in needed
    ]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"):
        return
    if refused_skips(session.config) and session.exitstatus in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def append(config, variable: str, lines) -> None:
    """Write lines to the file that an environment variable names, if it does."""
    file = os.environ.get(variable)
    if file and not hasattr(config, "workerinput"):
        with Path(file).open("a", encoding="utf-8") as output:
            output.writelines(lines)


def pytest_terminal_summary(terminalreporter, config):
    stats, driver = terminalreporter.stats, config.getoption("--driver")
    # `make test` adds up the counts of its runs.
    counts = (f"{kind} {len(got)}\n" for kind, got in stats.items() if kind)
    append(config, "GPUINTEROP_COUNTS", counts)
    passed = (report.nodeid for report in stats.get("passed", []))
    append(config, "GPUINTEROP_PASSED", (f"{driver} {name}\n" for name in passed))
    if not on_fake(config) and not wants_cuda(config):
        terminalreporter.write_line(
            f"tests of CUDA devices are left out, no CUDA device: {cuda_devices()[1]}"
        )
    reasons = skips_by_reason(config)
    if not reasons:
        return
    refused = set(refused_skips(config))
    terminalreporter.section("skipped, and why")
    for reason, count in sorted(reasons.items(), key=lambda row: -row[1]):
        note = "  <- not allowed here (tests/allowed_skips.txt)" if reason in refused else ""
        terminalreporter.write_line(
            f"{count:6} {category_of(reason) or '?':10} {reason.splitlines()[0]}{note}",
            red=bool(note),
        )


@pytest.fixture
def clean():
    """Puts the registry back as it was, and forgets the names of the tests' own library."""
    from doubles import internals

    saved = internals.save_registry()
    yield
    internals.restore_registry(saved)


@pytest.fixture
def npmat(monkeypatch):
    """CUDAMat's module for NumPy's memory, as an installed library."""
    from doubles import fake_cudamat, fake_pycuda

    module = fake_cudamat.npmat()
    fake_pycuda.installed(monkeypatch, module)
    return module


@pytest.fixture
def gnumpy(monkeypatch, npmat):
    from doubles import fake_cudamat, fake_pycuda

    module = fake_cudamat.gnumpy(npmat)
    fake_pycuda.installed(monkeypatch, module)
    return module
