"""The policy of tests/conftest.py itself: which skips pass, which fail a run."""

import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from doubles import fake_driver

TESTS = Path(__file__).parents[1]

UNLISTED = "import pytest\ndef test(): pytest.skip('no time today')\n"
LISTED = (
    "import pytest\ndef test(): pytest.skip('pycuda is not installed')\ndef test_more(): pass\n"
)
IMPORTED = "import pytest\npytest.importorskip('cupy.no_such_part')\ndef test(): pass\n"
GPU = "import pytest\n@pytest.mark.gpu\ndef test(): pass\n"
DEVICE = "def test_of_both(device): assert device in ('cpu', 'cuda:0')\n"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs pytest on one file with a copy of the configuration."""
    monkeypatch.setenv(
        "GPUINTEROP_LIBCUDA", str(tmp_path / "libcuda.so")
    )  # no real GPU in these runs
    (tmp_path / "doubles").mkdir()
    for name in ("conftest.py", "allowed_skips.txt", "doubles/not_on_fake.txt"):
        shutil.copy(TESTS / name, tmp_path / name)
    shutil.copy(TESTS.parent / "pyproject.toml", tmp_path)

    def run(source: str, *flags: str) -> tuple[int, str]:
        (tmp_path / "test_it.py").write_text(source, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "test_it.py",
            *flags,
        ]
        output = tmp_path / "output.txt"
        with output.open("w") as file:
            done = subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, cwd=tmp_path, timeout=120
            )
        return done.returncode, output.read_text(encoding="utf-8")

    return run


# A test module, the options of the run, whether it fails, and what it prints.
RUNS = [
    (UNLISTED, ("-n", "1"), 1, "no time today  <- not allowed here"),
    (LISTED, (), 0, "skipped, and why"),
    (LISTED, ("--require", "pycuda"), 1, "pycuda is not installed  <- not allowed here"),
    (IMPORTED, ("--require", "torch,cupy"), 1, "<- not allowed here"),
    (GPU + DEVICE, ("--require-cuda",), 1, "<- not allowed here"),
    (DEVICE + GPU.replace("test(", "test_on_a_gpu("), (), 0, "1 passed, 1 deselected"),
    (GPU + DEVICE, (), 0, "tests of CUDA devices are left out, no CUDA device: "),
    (DEVICE, ("--require", "abacus"), 4, "abacus"),
]


@pytest.mark.parametrize(("source", "flags", "status", "words"), RUNS)
def test_unlisted_and_required_skips_fail_the_run(run, source, flags, status, words):
    code, text = run(source, *flags)
    assert code == status, text
    assert words in text


def test_what_passed_is_left_out_of_a_later_run(run, tmp_path, monkeypatch):
    monkeypatch.setenv("GPUINTEROP_PASSED", str(tmp_path / "passed"))
    for flags in ((), ("-n", "1")):
        assert "1 passed, 1 skipped" in run(LISTED, *flags)[1]
    assert (tmp_path / "passed").read_text() == "real test_it.py::test_more\n" * 2
    without = f"--without={tmp_path / 'passed'}"
    assert "1 skipped, 1 deselected" in run(LISTED, without)[1]
    (tmp_path / "passed").write_text("fake test_it.py::test_more\n")
    assert "1 passed, 1 skipped" in run(LISTED, without)[1]


def test_each_test_that_a_fake_driver_cannot_run_exists():
    """A renamed test would silently run there, or a stale line hide another one."""
    lines = (TESTS / "doubles" / "not_on_fake.txt").read_text().splitlines()
    for line in lines:
        if line.startswith("#"):
            continue
        test, _, reason = line.partition(" | ")
        path, *_, name = test.partition("[")[0].split("::")  # maybe a class between them
        assert f"def {name}(" in (TESTS.parent / path).read_text(), line
        assert reason


def test_a_second_run_of_gpu_tests_reports_what_it_waits_for(run, tmp_path, monkeypatch):
    (tmp_path / "libcuda.so.1").symlink_to(fake_driver.library())
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("GPUINTEROP_LIBCUDA")
    output = tmp_path / "output.txt"

    def unlock_when_it_waits():
        for _ in range(2000):
            if output.exists() and "which has locked" in output.read_text(encoding="utf-8"):
                break
            time.sleep(0.05)
        fcntl.flock(lock, fcntl.LOCK_UN)

    with (tmp_path / f"gpuinterop-tests-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        threading.Thread(target=unlock_when_it_waits).start()
        code, text = run("def test(): pass\n")
    assert code == 0, text
    assert f"another run of GPU tests, which has locked {lock.name}" in text
