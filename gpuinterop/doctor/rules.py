"""The doctor's findings: one row for each, with its condition, its text and its fix.

A condition reads only the report, so that tests can check combinations that are not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from gpuinterop.devices.find_libraries import MISSING
from gpuinterop.exchange.package_versions import Installed, how_to_repair, numbers

# The wheels that the fixes recommend, by the driver's CUDA major version.
RUNTIME_WHEELS = {
    12: {"nvrtc": "nvidia-cuda-nvrtc-cu12", "cublas": "nvidia-cublas-cu12"},
    13: {"nvrtc": "'nvidia-cuda-nvrtc==13.*'", "cublas": "'nvidia-cublas==13.*'"},
}
OLDEST, NEWEST = min(RUNTIME_WHEELS), max(RUNTIME_WHEELS)


@dataclass(frozen=True)
class Finding:
    """A problem and its fix. A warning breaks something; a hint costs speed or a dtype."""

    code: str  # an error code for programs
    text: str
    fix: str
    level: str = "warning"  # or "hint"

    def __str__(self) -> str:
        return f"{self.level}: {self.text}\n  fix: {self.fix}"


@dataclass
class Facts:
    """The data that the conditions read; its fields are those of the doctor's JSON."""

    system: dict[str, str] = field(default_factory=dict)
    driver: dict[str, Any] = field(default_factory=dict)
    devices: list[dict[str, Any]] = field(default_factory=list)
    streams: dict[str, Any] = field(default_factory=dict)
    libraries: list[Installed] = field(default_factory=list)
    runtime: dict[str, str] = field(default_factory=dict)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    # Converters of other packages that are disabled, and parts of the report that failed, with the reasons.
    disabled_converters: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    # Libraries and converters that failed in the trial, with the error.
    failing: dict[str, str] = field(default_factory=dict)

    def find(self, library: str) -> list[Installed]:
        """Return the installed distributions of a library."""
        return [row for row in self.libraries if row.library == library]

    @property
    def cuda(self) -> tuple[int, ...]:
        """The driver's CUDA version, as in (13, 0); () without a driver."""
        return numbers(self.driver.get("cuda") or "")

    @property
    def wheels(self) -> int:
        """The CUDA major version of the wheels that the driver runs."""
        return max(OLDEST, min(self.cuda[0], NEWEST)) if self.cuda else NEWEST


class Rule(NamedTuple):
    """A finding for each case. Text and fix name the case as {it}, the report as {facts}, and {oldest}."""

    code: str
    cases: Callable[[Facts], Iterable[Any]]
    text: str
    fix: str
    level: str = "warning"


def diagnose(facts: Facts) -> list[Finding]:
    """Return all findings, warnings first."""
    found = []
    for rule in _RULES:
        for it in rule.cases(facts):
            text, fix = (s.format(it=it, facts=facts, oldest=OLDEST) for s in (rule.text, rule.fix))
            found.append(Finding(rule.code, text, fix, rule.level))
    return sorted(found, key=lambda f: f.level != "warning")


def _if(value: Any) -> list[Any]:
    return [value] if value else []


# How to install a library for a CUDA major version.
_FOR_MAJOR = {
    "cupy": "pip uninstall {row.distribution}; pip install cupy-cuda{major}x",
    "jax plugin": "pip uninstall {row.distribution}; pip install 'jax[cuda{major}]'",
    "cuda.bindings": "pip install 'cuda-bindings=={major}.*'",
    "torch": "install a build of torch for CUDA {major}",
}


def _built_for_cuda(facts: Facts) -> tuple[list[Installed], list[int]]:
    """Return the libraries that were built for a CUDA major version, and these versions."""
    rows = [row for name in _FOR_MAJOR for row in facts.find(name) if row.cuda]
    return rows, sorted({row.cuda for row in rows if row.cuda})


def _two_majors(facts: Facts) -> list[Any]:
    rows, majors = _built_for_cuda(facts)
    leader = next((row for row in rows if row.library == "torch"), None)
    target = leader.cuda if leader else max(majors, default=0)
    fixes = [
        _FOR_MAJOR[row.library].format(row=row, major=target) for row in rows if row.cuda != target
    ]
    names = ", ".join(f"{row.distribution} {row.version} (CUDA {row.cuda})" for row in rows)
    return [(names, "; ".join(fixes))] if fixes else []


def _newer_than_driver(facts: Facts) -> list[Any]:
    rows, majors = _built_for_cuda(facts)
    newest = max(majors, default=0)
    names = ", ".join(f"{row.distribution} {row.version}" for row in rows if row.cuda == newest)
    return [(names, newest)] if facts.cuda and OLDEST <= facts.cuda[0] < newest else []


def _mixed_streams(facts: Facts) -> list[Any]:
    flags = facts.streams.get("per_thread_default", {})
    installed = {"CuPy": "cupy", "Numba": "numba-cuda", "cuda-python": "cuda.bindings"}
    on = sorted(library for library, flag in flags.items() if flag)
    off = sorted(name for name, flag in flags.items() if not flag and facts.find(installed[name]))
    return [(", ".join(on), ", ".join(off))] if on and off else []


def _missing(facts: Facts, library: str) -> list[Any]:
    where, wheel = facts.runtime.get(library, ""), RUNTIME_WHEELS[facts.wheels][library]
    return [(where.removeprefix(MISSING), wheel)] if where.startswith(MISSING) else []


def _other_contexts(facts: Facts) -> list[Any]:
    rows = [row for row in facts.devices if row["current"] and not row["primary"]]
    return [] if facts.driver.get("autoinit") else rows


_AUTOPRIMARY = "import pycuda.autoprimaryctx instead of pycuda.autoinit"
_RULES = (
    Rule("driver", lambda f: _if(not f.cuda and f.driver.get("kernel_module")),
         "there is an NVIDIA GPU, but its driver does not work: {facts.driver[reason]}",
         "reboot after a driver update, or install the driver's libcuda.so.1 (in a container: start it with "
         "--gpus all)"),
    Rule("driver-old", lambda f: _if(f.cuda and f.cuda[0] < OLDEST),
         "the driver supports CUDA {facts.driver[cuda]}, which is too old: NVRTC, cuBLAS, CuPy and JAX are built for "
         "CUDA {oldest} or later",
         "update the driver to one of CUDA {oldest} or later"),
    Rule("device", lambda f: _if(f.driver.get("default_device_fault")),
         "GPUINTEROP_DEVICE names a device that does not exist: {it}",
         "unset GPUINTEROP_DEVICE, or set it to cpu, cuda or cuda:1"),
    Rule("fork", lambda f: _if(f.driver.get("forked")),
         "a parent process had used CUDA before it forked this one, where CUDA cannot work",
         'start workers with multiprocessing.get_context("spawn")'),
    Rule("stand-in", lambda f: _if(f.environment.get("GPUINTEROP_LIBCUDA")),
         "GPUINTEROP_LIBCUDA names the driver's library: {it}",
         "unset GPUINTEROP_LIBCUDA to use the system's driver", "hint"),
    Rule("context", lambda f: _if(f.driver.get("autoinit")),
         "pycuda.autoinit is loaded: it made a separate context, in which the memory and streams of all other "
         "libraries are invalid", _AUTOPRIMARY),
    Rule("context", _other_contexts,
         "the current context on {it[device]} is not the primary one, which other libraries use",
         f"with PyCUDA: {_AUTOPRIMARY}; elsewhere: cuDevicePrimaryCtxRetain"),
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
    Rule("numpy", lambda f: _if(not f.find("numpy")), "NumPy is not installed", "pip install numpy"),
    Rule("ml_dtypes", lambda f: _if(not f.find("ml_dtypes")),
         "ml_dtypes is not installed: no bfloat16 and no 8-bit floats", "pip install ml_dtypes", "hint"),
    Rule("cuda.core", lambda f: _if(f.find("cuda.core") and not f.find("cuda.bindings")),
         "cuda-core is installed without cuda-bindings, and cannot be imported", "pip install cuda-bindings"),
    Rule("cuda-majors", _two_majors,
         "libraries for two CUDA majors are installed, and the first import decides which one is loaded: {it[0]}",
         "{it[1]}"),
    Rule("driver-old", _newer_than_driver,
         "the driver supports CUDA {facts.cuda[0]}, and is too old for {it[0]} (CUDA {it[1]})",
         "update the driver, or install builds for CUDA {facts.cuda[0]}"),
    Rule("torch-cpu", lambda f: [row for row in f.find("torch") if f.devices and row.cuda == 0],
         "{it.distribution} {it.version} is built without CUDA: it cannot share arrays on a GPU",
         "install a build of torch for CUDA {facts.wheels}: https://pytorch.org/get-started/locally", "hint"),
    Rule("torch-old", lambda f: [row for row in f.find("torch") if () < numbers(row.version) < (2, 10)],
         "{it.distribution} {it.version} has no C interface for exchange: conversions take 5 us instead of 0.5",
         "pip install 'torch>=2.10'", "hint"),
    Rule("jax-cpu", lambda f: _if(f.devices and f.find("jax") and not f.find("jax plugin")),
         "JAX is installed without its CUDA plug-in, and there are GPUs",
         "pip install 'jax[cuda{facts.wheels}]'", "hint"),
    Rule("nvrtc", partial(_missing, library="nvrtc"),
         "libnvrtc is missing, so kernels cannot be compiled on the GPU: {it[0]}", "pip install {it[1]}"),
    Rule("cublas", partial(_missing, library="cublas"),
         "libcublas is missing, so matrices cannot be multiplied on the GPU: {it[0]}", "pip install {it[1]}"),
    Rule("streams", _mixed_streams,
         "{it[0]} works on the per-thread default stream, {it[1]} on the legacy one: in threads, work that is passed "
         "on as a bare pointer is not ordered",
         "set the flag for all of them or for none; conversions through gpuinterop are ordered either way", "hint"),
    Rule("blocking", lambda f: _if(f.environment.get("CUDA_LAUNCH_BLOCKING", "0") != "0"),
         "CUDA_LAUNCH_BLOCKING is set: every launch waits for its kernel",
         "unset CUDA_LAUNCH_BLOCKING when the error is found", "hint"),
)  # fmt: skip
