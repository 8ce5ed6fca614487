"""The doctor's findings: one row for each, with its condition, its text and its fix.

A condition reads only the report, so that tests can check combinations that are not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from gpuinterop.devices.find_libraries import EXTRAS, MISSING
from gpuinterop.exchange.package_versions import how_to_repair, numbers

from .report import Finding, Report

# CUDA's libraries: what is lost without the library, and the level.
_LIBRARIES = {
    "nvrtc": ("so kernels cannot be compiled on the GPU", "warning"),
    "cublas": ("so matrices cannot be multiplied on the GPU", "warning"),
    "cusolver": ("so gpuinterop.linalg factors no matrices on the GPU", "hint"),
    "cufft": ("so gpuinterop.fft transforms nothing on the GPU", "hint"),
}
OLDEST, NEWEST = 12, 13  # CUDA major versions for which there are extras

# How to install a library for a CUDA major version.
_FOR_MAJOR = {
    "torch": "install a build of torch for CUDA {major}",
    "cupy": "pip uninstall {row.distribution}; pip install cupy-cuda{major}x",
    "jax plugin": "pip uninstall {row.distribution}; pip install 'jax[cuda{major}]'",
    "cuda.bindings": "pip install 'cuda-bindings=={major}.*'",
}


class Rule(NamedTuple):
    """A finding for each case. Text and fix name the case as {it}, the report as {facts}, and {oldest}, {wheels}."""

    code: str
    cases: Callable[[Report], Iterable[Any]]
    text: str
    fix: str
    level: str = "warning"


def diagnose(facts: Report) -> list[Finding]:
    """Return all findings, warnings first."""
    found = []
    names = {"facts": facts, "oldest": OLDEST, "wheels": _wheels(facts)}
    for rule in RULES:
        for it in rule.cases(facts):
            text, fix = (words.format(it=it, **names) for words in (rule.text, rule.fix))
            found.append(Finding(rule.code, text, fix, rule.level))
    return sorted(found, key=lambda f: f.level != "warning")


def _wheels(facts: Report) -> int:
    """Return the CUDA major version of the wheels that the driver runs."""
    return max(OLDEST, min(facts.cuda or NEWEST, NEWEST))


def _if(value: Any) -> list[Any]:
    return [value] if value else []


def _built_for_cuda(facts: Report) -> list[Any]:
    return [row for name in _FOR_MAJOR for row in facts.find(name) if row.cuda]


def _two_majors(facts: Report) -> list[Any]:
    """Return the libraries for another CUDA major version than torch's, or the newest, with the fix of each."""
    rows = _built_for_cuda(facts)
    torch = [row.cuda for row in rows if row.library == "torch"]
    major = torch[0] if torch else max((row.cuda for row in rows), default=0)
    others = [row for row in rows if row.cuda != major]
    return [(row, major, _FOR_MAJOR[row.library].format(row=row, major=major)) for row in others]


def _missing(facts: Report, library: str) -> list[Any]:
    where = facts.runtime.get(library, "")
    extra = f"{EXTRAS.get(library, '')}cu{_wheels(facts)}"
    return [(where.removeprefix(MISSING), extra)] if where.startswith(MISSING) else []


RULES = (
    Rule("driver", lambda f: _if(not f.cuda and f.driver.get("kernel_module")),
         "there is an NVIDIA GPU, but its driver does not work: {facts.driver[reason]}",
         "reboot after a driver update, or install the driver's libcuda.so.1 (in a container: start it with "
         "--gpus all)"),
    Rule("driver-old", lambda f: _if(0 < f.cuda < OLDEST),
         "the driver supports CUDA {facts.driver[cuda]}, which is too old: NVRTC, cuBLAS, CuPy and JAX are built for "
         "CUDA {oldest} or later",
         "update the driver to one of CUDA {oldest} or later"),
    Rule("device", lambda f: _if(f.driver.get("default_device_fault")),
         "GPUINTEROP_DEVICE names a device that does not exist: {it}",
         "unset GPUINTEROP_DEVICE, or set it to cpu, cuda or cuda:1"),
    Rule("fork", lambda f: _if(f.driver.get("forked")),
         "a parent process had used CUDA before it forked this one, where CUDA cannot work",
         'start workers with multiprocessing.get_context("spawn")'),
    Rule("context", lambda f: [row for row in f.devices if row["current"] and not row["primary"]],
         "the current context on {it[device]} is not the primary one, which other libraries use",
         "with PyCUDA: import pycuda.autoprimaryctx instead of pycuda.autoinit; elsewhere: cuDevicePrimaryCtxRetain"),
    Rule("converter", lambda f: f.disabled_converters.items(), "the converter {it[0]!r} is disabled: {it[1]}",
         "repair or uninstall the package that provides it"),
    Rule("trial", lambda f: f.failing.items(),
         "{it[0]} is installed, but fails when an array is exchanged with it: {it[1]}",
         "install versions of {it[0]} and of its dependencies that work together; "
         "python -m gpuinterop demo --only {it[0]} repeats the failure"),
    Rule("report", lambda f: f.failures, "{it}", "run with --verbose and report the output"),
    Rule("installation", lambda f: [(row, how_to_repair(row.library, row.distribution))
                                    for row in f.libraries if row.broken],
         "{it[0].distribution}: {it[0].broken}", "{it[1]}"),
    Rule("cupy", lambda f: _if(" ".join(row.distribution for row in f.find("cupy") if len(f.find("cupy")) > 1)),
         "CuPy is installed under several names ({it}); the files overwrite each other",
         "pip uninstall {it}, then pip install one of them"),
    Rule("ml_dtypes", lambda f: _if(not f.find("ml_dtypes")),
         "ml_dtypes is not installed: no bfloat16 and no 8-bit floats", "pip install ml_dtypes", "hint"),
    Rule("cuda-majors", _two_majors,
         "{it[0].distribution} {it[0].version} is built for CUDA {it[0].cuda}, other libraries for CUDA {it[1]}; the "
         "first import decides which one is loaded", "{it[2]}"),
    Rule("driver-old", lambda f: [row for row in _built_for_cuda(f) if OLDEST <= f.cuda < row.cuda],
         "the driver supports CUDA {facts.cuda}, and is too old for {it.distribution} {it.version} (CUDA {it.cuda})",
         "update the driver, or install a build for CUDA {facts.cuda}"),
    Rule("torch-cpu", lambda f: [row for row in f.find("torch") if f.devices and row.cuda == 0],
         "{it.distribution} {it.version} is built without CUDA: it cannot share arrays on a GPU",
         "install a build of torch for CUDA {wheels}: https://pytorch.org/get-started/locally", "hint"),
    Rule("torch-old", lambda f: [row for row in f.find("torch") if () < numbers(row.version) < (2, 10)],
         "{it.distribution} {it.version} has no C interface for exchange: conversions take 5 us instead of 0.5",
         "pip install 'torch>=2.10'", "hint"),
    Rule("jax-cpu", lambda f: _if(f.devices and f.find("jax") and not f.find("jax plugin")),
         "JAX is installed without its CUDA plug-in, and there are GPUs",
         "pip install 'jax[cuda{wheels}]'", "hint"),
    *(Rule(name, partial(_missing, library=name), f"lib{name} is missing, {lost}: {{it[0]}}",
           'pip install "gpuinterop[{it[1]}]"', level) for name, (lost, level) in _LIBRARIES.items()),
    Rule("tf32x3", lambda f: [row for row in f.devices if f.product_precision == "tf32x3" and row["compute"] != "9.0"],
         "the product precision is tf32x3, which needs a Hopper GPU: on {it[device]} cuBLAS multiplies as float32, or "
         "emulates it on Blackwell",
         "gpuinterop.set_product_precision('exact'), or 'tf32' where 10 bits suffice", "hint"),
    Rule("blocking", lambda f: _if(f.environment.get("CUDA_LAUNCH_BLOCKING", "0") != "0"),
         "CUDA_LAUNCH_BLOCKING is set: every launch waits for its kernel",
         "unset CUDA_LAUNCH_BLOCKING when the error is found", "hint"),
)  # fmt: skip
