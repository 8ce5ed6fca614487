"""The rules of the doctor: one function for each group of findings.

A rule reads only the `Report`, so that tests can check combinations that are not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gpuinterop.devices.find_libraries import MISSING
from gpuinterop.exchange.package_versions import BY_HAND, Installed, numbers

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
    """The data that the rules read; its fields are those of the doctor's JSON."""

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


def diagnose(facts: Facts) -> list[Finding]:
    """Return all findings, warnings first."""
    found = [finding for rule in _RULES for finding in rule(facts)]
    return sorted(found, key=lambda f: f.level != "warning")


def _named(row: Installed) -> str:
    return f"{row.distribution} {row.version}"


# ---- driver and contexts ------------------------------------------------------------------------


def _driver(facts: Facts) -> Iterator[Finding]:
    driver = facts.driver
    if not facts.cuda and driver.get("kernel_module"):
        yield Finding(
            "driver",
            f"there is an NVIDIA GPU, but its driver does not work: {driver['reason']}",
            "reboot after a driver update, or install the driver's libcuda.so.1 (in a container: "
            "start it with --gpus all)",
        )
    if facts.cuda and facts.cuda[0] < OLDEST:
        yield Finding(
            "driver-old",
            f"the driver supports CUDA {driver['cuda']}, which is too old: NVRTC, cuBLAS, CuPy and JAX "
            f"are built for CUDA {OLDEST} or later",
            f"update the driver to one of CUDA {OLDEST} or later",
        )
    if driver.get("default_device_fault"):
        yield Finding(
            "device",
            f"GPUINTEROP_DEVICE names a device that does not exist: {driver['default_device_fault']}",
            "unset GPUINTEROP_DEVICE, or set it to cpu, cuda or cuda:1",
        )
    if driver.get("forked"):
        yield Finding(
            "fork",
            "a parent process had used CUDA before it forked this one, where CUDA cannot work",
            'start workers with multiprocessing.get_context("spawn")',
        )
    if stand_in := facts.environment.get("GPUINTEROP_LIBCUDA"):
        yield Finding(
            "stand-in",
            f"GPUINTEROP_LIBCUDA names the driver's library: {stand_in}",
            "unset GPUINTEROP_LIBCUDA to use the system's driver",
            "hint",
        )
    fix = "import pycuda.autoprimaryctx instead of pycuda.autoinit"
    if driver.get("autoinit"):
        text = "pycuda.autoinit is loaded: it made a separate context, in which the memory and streams "
        yield Finding("context", f"{text}of all other libraries are invalid", fix)
        return
    for row in facts.devices:
        if row["current"] and not row["primary"]:
            text = f"the current context on {row['device']} is not the primary one, which other libraries use"
            yield Finding(
                "context", text, f"with PyCUDA: {fix}; elsewhere: cuDevicePrimaryCtxRetain"
            )


def _report(facts: Facts) -> Iterator[Finding]:
    for name, why in facts.disabled_converters.items():
        text = f"the converter {name!r} is disabled: {why}"
        yield Finding("converter", text, "repair or uninstall the package that provides it")
    for name, why in facts.failing.items():
        yield Finding(
            "trial",
            f"{name} is installed, but fails when an array is exchanged with it: {why}",
            f"install versions of {name} and of its dependencies that work together; "
            f"python -m gpuinterop demo --only {name} repeats the failure",
        )
    for failure in facts.failures:
        yield Finding("report", failure, "run with --verbose and report the output")


# ---- installed libraries ------------------------------------------------------------------------


def _broken(facts: Facts) -> Iterator[Finding]:
    for row in facts.libraries:
        if row.broken:
            again = f"pip install --force-reinstall {row.distribution}"
            text = f"{row.distribution}: {row.broken}"
            yield Finding("installation", text, BY_HAND.get(row.library) or again)
    rows = facts.find("cupy")
    if len(rows) > 1:
        names = " ".join(row.distribution for row in rows)
        yield Finding(
            "cupy",
            f"CuPy is installed {len(rows)} times ({names}); the files overwrite each other",
            f"pip uninstall {names}, then pip install one of them",
        )
    if not facts.find("numpy"):
        yield Finding("numpy", "NumPy is not installed", "pip install numpy")
    if not facts.find("ml_dtypes"):
        text = "ml_dtypes is not installed: no bfloat16 and no 8-bit floats"
        yield Finding("ml_dtypes", text, "pip install ml_dtypes", "hint")
    if facts.find("cuda.core") and not facts.find("cuda.bindings"):
        text = "cuda-core is installed without cuda-bindings, and cannot be imported"
        yield Finding("cuda.core", text, "pip install cuda-bindings")


# How to install a library for a CUDA major version.
_FOR_MAJOR = {
    "cupy": "pip uninstall {row.distribution}; pip install cupy-cuda{major}x",
    "jax plugin": "pip uninstall {row.distribution}; pip install 'jax[cuda{major}]'",
    "cuda.bindings": "pip install 'cuda-bindings=={major}.*'",
    "torch": "install a build of torch for CUDA {major}",
}


def _majors(facts: Facts) -> Iterator[Finding]:
    rows = [row for name in _FOR_MAJOR for row in facts.find(name) if row.cuda]
    majors = sorted({row.cuda for row in rows if row.cuda})
    if len(majors) > 1:
        leader = next((row for row in rows if row.library == "torch"), None)
        target = leader.cuda if leader else majors[-1]
        others = [row for row in rows if row.cuda != target]
        yield Finding(
            "cuda-majors",
            "libraries for two CUDA majors are installed, and the first import decides which one is "
            "loaded: " + ", ".join(f"{_named(row)} (CUDA {row.cuda})" for row in rows),
            "; ".join(_FOR_MAJOR[row.library].format(row=row, major=target) for row in others),
        )
    newest = majors[-1] if majors else 0
    if facts.cuda and OLDEST <= facts.cuda[0] < newest:
        names = ", ".join(_named(row) for row in rows if row.cuda == newest)
        yield Finding(
            "driver-old",
            f"the driver supports CUDA {facts.cuda[0]}, and is too old for {names} (CUDA {newest})",
            f"update the driver, or install builds for CUDA {facts.cuda[0]}",
        )


def _without_cuda(facts: Facts) -> Iterator[Finding]:
    for row in facts.find("torch"):
        if facts.devices and row.cuda == 0:
            text = f"{_named(row)} is built without CUDA: it cannot share arrays on a GPU"
            fix = f"install a build of torch for CUDA {facts.wheels}: https://pytorch.org/get-started/locally"
            yield Finding("torch-cpu", text, fix, "hint")
        if numbers(row.version) and numbers(row.version) < (2, 10):
            text = "has no C interface for exchange: conversions take 5 us instead of 0.5"
            yield Finding("torch-old", f"{_named(row)} {text}", "pip install 'torch>=2.10'", "hint")
    if facts.devices and facts.find("jax") and not facts.find("jax plugin"):
        text = "JAX is installed without its CUDA plug-in, and there are GPUs"
        yield Finding("jax-cpu", text, f"pip install 'jax[cuda{facts.wheels}]'", "hint")


def _runtime(facts: Facts) -> Iterator[Finding]:
    needs = {"nvrtc": "kernels cannot be compiled", "cublas": "matrices cannot be multiplied"}
    for name, found in facts.runtime.items():
        if found.startswith(MISSING):
            why = found.removeprefix(MISSING)
            text = f"lib{name} is missing, so {needs[name]} on the GPU: {why}"
            yield Finding(name, text, f"pip install {RUNTIME_WHEELS[facts.wheels][name]}")


# ---- streams ------------------------------------------------------------------------------------


def _streams(facts: Facts) -> Iterator[Finding]:
    flags = facts.streams.get("per_thread_default", {})
    installed = {"CuPy": "cupy", "Numba": "numba-cuda", "cuda-python": "cuda.bindings"}
    on = sorted(library for library, flag in flags.items() if flag)
    off = sorted(name for name, flag in flags.items() if not flag and facts.find(installed[name]))
    if on and off:
        yield Finding(
            "streams",
            f"{', '.join(on)} works on the per-thread default stream, {', '.join(off)} on the legacy "
            "one: in threads, work that is passed on as a bare pointer is not ordered",
            "set the flag for all of them or for none; conversions through gpuinterop are ordered "
            "either way",
            "hint",
        )
    if facts.environment.get("CUDA_LAUNCH_BLOCKING", "0") != "0":
        text = "CUDA_LAUNCH_BLOCKING is set: every launch waits for its kernel"
        yield Finding(
            "blocking", text, "unset CUDA_LAUNCH_BLOCKING when the error is found", "hint"
        )


_RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _driver, _report, _broken, _majors, _without_cuda, _runtime, _streams,
)  # fmt: skip
