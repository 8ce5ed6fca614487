"""Every malformed input gets a Python exception of the promised class, and none ends the process."""

from __future__ import annotations

import functools
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from doubles import driver, fake_driver
from peers import ROOT, has_compiler, library

import gpuinterop as gi

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
HERE = Path(__file__).resolve().parent


def environment(**extra: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k != "GPUINTEROP_LIBCUDA"}
    folders = [str(ROOT), str(HERE), str(HERE.parent), *filter(None, [kept.get("PYTHONPATH")])]
    path = os.pathsep.join(folders)
    return {**kept, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path, **extra}


def run_on_fake_driver(program: str) -> None:
    """Run a program in this process, which has the fake driver: for tests marked `fake_driver`."""
    exec(program, {"__name__": "program"})
    gc.collect()
    gi.synchronize()
    assert fake_driver.faults() == ""


FIRST_USE = """
import ctypes, os
from ctypes import byref, c_size_t, c_void_p
import gpuinterop as gi
from peers import ADDRESS, CUDA, capsule

driver = ctypes.CDLL(os.environ["GPUINTEROP_LIBCUDA"])
context, address = c_void_p(), c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
assert driver.cuCtxPushCurrent_v2(context) == 0
assert driver.cuMemAlloc_v2(byref(address), c_size_t(64)) == 0
assert driver.cuCtxPopCurrent_v2(byref(c_void_p())) == 0
try:
    gi.from_dlpack(capsule(device=CUDA, data=ADDRESS))
except ValueError as error:
    assert "does not know" in str(error), error
else:
    raise AssertionError("host memory was taken for the device's")
x = gi.from_dlpack(capsule(device=CUDA, data=address.value))
assert (x.ptr, str(x.device)) == (address.value, "cuda:0")
"""

NO_DRIVER = """
import gpuinterop as gi
from peers import CUDA, Producer, capsule, freed, start_counting

for make in (lambda: capsule(device=CUDA), lambda: Producer(device=CUDA)):
    start_counting()
    kept = make()
    try:
        gi.from_dlpack(kept)
    except gi.GpuInteropError as error:
        assert "driver" in str(error) and error.fix, error
    else:
        raise AssertionError("CUDA memory was accepted without a driver")
    assert freed() == 0
"""


def test_an_import_may_be_the_first_use_of_the_driver():
    """A pointer that comes before anything here has asked the driver."""
    library()
    driver.run(FIRST_USE, fake_driver.library(), **environment())


def test_a_pointer_of_a_device_that_no_driver_answers_for():
    library()
    driver.run(NO_DRIVER, "/nonexistent/libcuda.so.1", **environment())


def run_cases(program: str, names: list[str], env: dict[str, str]) -> dict[str, dict]:
    """The outcome of every case. A case that ends the process is noted, and the others go on."""
    results: dict[str, dict] = {}
    left = list(names)
    while left:
        run = subprocess.run(
            [sys.executable, str(HERE / program), *left],
            env=env,
            capture_output=True,
            text=True,
            timeout=250,
        )
        rows = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        for row in rows:
            results[row["case"]] = row
        begun = [row["case"] for row in rows if row["state"] == "begun"]
        done = {row["case"] for row in rows if row["state"] == "done"}
        for name in begun:
            if name not in done:
                results[name] = {"crash": run.returncode, "stderr": run.stderr[-2000:]}
        assert begun, run.stderr[-3000:]
        left = left[len(begun) :] if run.returncode else []
    return results


@functools.cache
def table(program: str) -> dict:
    """Classes, words and library of a program's cases by name, as the program lists them."""
    env = (
        environment(GPUINTEROP_LIBCUDA=str(fake_driver.library()))
        if "cuda" in program
        else environment()
    )
    library()
    listing = subprocess.run(
        [sys.executable, str(HERE / program), "--list"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(listing.stdout)


@functools.cache
def outcomes(program: str, needs: str) -> dict[str, dict]:
    """Those of a program's cases that need the same library, in one process."""
    env = (
        environment(GPUINTEROP_LIBCUDA=str(fake_driver.library()))
        if "cuda" in program
        else environment()
    )
    names = [name for name, row in table(program).items() if row[2] == needs]
    return run_cases(program, names, env)


def check(result: dict, expected: list[str], words: str) -> None:
    assert "crash" not in result, f"ended with status {result.get('crash')}: {result.get('stderr')}"
    if not expected:
        assert result["error"] is None, f"{result['error'][0]}: {result['message']}"
        return
    assert result["error"] is not None, "was accepted"
    assert set(expected) <= set(result["error"]), f"{result['error']}: {result['message']}"
    assert words in result["message"], result["message"]


PROGRAMS = ["hostile.py", "hostile_cuda.py"]


def pytest_generate_tests(metafunc):
    if "name" in metafunc.fixturenames and has_compiler():
        rows = [
            pytest.param(program, name, marks=getattr(pytest.mark, needs) if needs else ())
            for program in PROGRAMS
            for name, (_, _, needs) in table(program).items()
        ]
        metafunc.parametrize(("program", "name"), rows, ids=lambda v: v.removesuffix(".py"))


def test_answer(program, name):
    classes, words, needs = table(program)[name]
    check(outcomes(program, needs)[name], classes, words)


def test_every_number_has_its_case():
    numbers = {int(name.split()[0]) for program in PROGRAMS for name in table(program)}
    # Those from 56 to 63, tensors and jax arrays without plain memory, are tested with the converters.
    assert numbers >= {*range(1, 56), *range(64, 71)}
