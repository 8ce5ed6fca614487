"""The rules of the doctor: one function for each group of findings.

A rule reads only the `SystemFacts`, so that tests can check combinations that are not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gpuinterop.installed_libraries import BY_HAND, Installed, numbers

__all__ = ["SystemFacts", "Finding", "diagnose"]

# Published packages, by CUDA version; the fixes recommend only these.
TORCH_INDEXES = ((11, 8), (12, 1), (12, 4), (12, 6), (12, 8), (12, 9), (13, 0))
JAX_MAJORS = (12, 13)
RUNTIME_WHEELS = {
    12: {"nvrtc": "nvidia-cuda-nvrtc-cu12", "cublas": "nvidia-cublas-cu12"},
    13: {"nvrtc": "'nvidia-cuda-nvrtc==13.*'", "cublas": "'nvidia-cublas==13.*'"},
}
OLDEST = 12  # the oldest supported CUDA major version

_UPDATE = f"update the driver to one of CUDA {OLDEST} or later"


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
class SystemFacts:
    """The facts about the machine that the rules read."""

    driver: tuple[int, ...] = ()  # (13, 0); () without a driver
    driver_reason: str = ""
    device_fault: str = ""  # why the default device does not exist, or ""
    stand_in: str = ""  # GPUINTEROP_LIBCUDA
    nvidia_files: bool = False  # the kernel module is loaded
    forked: bool = False
    devices: int = 0
    contexts: list[dict[str, Any]] = field(default_factory=list)
    libraries: list[Installed] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # of NVRTC and cuBLAS, and why
    per_thread: dict[str, bool] = field(default_factory=dict)  # library -> flag
    environment: dict[str, str] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()  # loaded modules that affect contexts
    disabled_converters: dict[str, str] = field(
        default_factory=dict
    )  # converters of other packages, with the reason
    failures: list[str] = field(default_factory=list)  # parts that could not be described

    def find(self, library: str) -> list[Installed]:
        return [row for row in self.libraries if row.library == library]


def diagnose(facts: SystemFacts) -> list[Finding]:
    """Return all findings, warnings first."""
    found = [finding for rule in _RULES for finding in rule(facts)]
    return sorted(found, key=lambda f: f.level != "warning")


def _named(row: Installed) -> str:
    return f"{row.distribution} {row.version}"


# ---- driver and contexts ------------------------------------------------------------------------


def _driver(facts: SystemFacts) -> Iterator[Finding]:
    if not facts.driver and facts.nvidia_files:
        yield Finding(
            "driver",
            f"there is an NVIDIA GPU, but its driver does not work: {facts.driver_reason}",
            "reboot after a driver update, or install the driver's libcuda.so.1 (in a container: "
            "start it with --gpus all)",
        )
    wanted = facts.environment.get("GPUINTEROP_DEVICE", "").lower()
    if not facts.devices and wanted.startswith(("cuda", "gpu")):
        yield Finding(
            "device",
            f"GPUINTEROP_DEVICE is {wanted!r}, but there is no CUDA device",
            "unset GPUINTEROP_DEVICE, or set it to cpu",
        )
    elif facts.device_fault:
        yield Finding(
            "device",
            f"GPUINTEROP_DEVICE names a device that does not exist: {facts.device_fault}",
            "unset GPUINTEROP_DEVICE, or set it to cpu, cuda or cuda:1",
        )
    if facts.driver and facts.driver[0] < OLDEST:
        yield Finding(
            "driver-old",
            f"the driver supports CUDA {'.'.join(map(str, facts.driver))}, which is too old: NVRTC, cuBLAS, "
            f"CuPy and JAX are built for CUDA {OLDEST} or later",
            _UPDATE,
        )
    if facts.forked:
        yield Finding(
            "fork",
            "a parent process had used CUDA before it forked this one, where CUDA cannot work",
            'start workers with multiprocessing.get_context("spawn")',
        )
    if facts.stand_in:
        yield Finding(
            "stand-in",
            f"GPUINTEROP_LIBCUDA names the driver's library: {facts.stand_in}",
            "unset GPUINTEROP_LIBCUDA to use the system's driver",
            "hint",
        )
    for name, why in facts.disabled_converters.items():
        yield Finding(
            "converter", f"the converter {name!r} is disabled: {why}",
            "repair or uninstall the package that provides it",
        )  # fmt: skip
    for failure in facts.failures:
        yield Finding("report", failure, "run with --verbose and report the output")


def _contexts(facts: SystemFacts) -> Iterator[Finding]:
    if "pycuda.autoinit" in facts.modules:
        yield Finding(
            "context",
            "pycuda.autoinit is loaded: it made a separate context, in which the memory and streams "
            "of all other libraries are invalid",
            "import pycuda.autoprimaryctx instead of pycuda.autoinit",
        )
        return
    for row in facts.contexts:
        if row.get("current") and not row.get("primary"):
            yield Finding(
                "context",
                f"the current context on {row['device']} is not the primary one, which other "
                "libraries use",
                "with PyCUDA: import pycuda.autoprimaryctx; elsewhere: cuDevicePrimaryCtxRetain and "
                "cuCtxSetCurrent",
            )


# ---- installed libraries ------------------------------------------------------------------------


def _broken(facts: SystemFacts) -> Iterator[Finding]:
    for row in facts.libraries:
        if row.broken:
            yield Finding(
                "installation",
                f"{row.distribution}: {row.broken}",
                BY_HAND.get(row.library) or f"pip install --force-reinstall {row.distribution}",
            )
    if not facts.find("numpy"):
        yield Finding("numpy", "NumPy is not installed", "pip install numpy")
    if not facts.find("ml_dtypes"):
        yield Finding(
            "ml_dtypes",
            "ml_dtypes is not installed: no bfloat16 and no 8-bit floats",
            "pip install ml_dtypes",
            "hint",
        )
    if facts.find("cuda.core") and not facts.find("cuda.bindings"):
        yield Finding(
            "cuda.core",
            "cuda-core is installed without cuda-bindings, and cannot be imported",
            "pip install cuda-bindings",
        )


def _duplicates(facts: SystemFacts) -> Iterator[Finding]:
    rows = facts.find("cupy")
    if len(rows) > 1:
        names = " ".join(row.distribution for row in rows)
        yield Finding(
            "cupy",
            f"CuPy is installed {len(rows)} times ({names}); the files overwrite each other",
            f"pip uninstall {names}, then pip install one of them",
        )


def _majors(facts: SystemFacts) -> Iterator[Finding]:
    rows = [
        row for name in ("torch", "cupy", "jax plugin", "cuda.bindings") for row in facts.find(name)
    ]
    rows = [row for row in rows if row.cuda]
    torch = next((row for row in facts.find("torch") if numbers(row.version) >= (2, 11)), None)
    old_cupy = next((row for row in facts.find("cupy") if row.cuda == 12), None)
    if torch and old_cupy and torch.cuda not in (0, 12):
        yield Finding(
            "cuda-majors",
            f"{_named(torch)} loads CUDA 13 and {_named(old_cupy)} CUDA 12: CuPy's casts fail in "
            "such a process",
            f"pip uninstall {old_cupy.distribution}; pip install cupy-cuda13x",
        )
        rows.remove(old_cupy)
    majors = sorted({row.cuda for row in rows if row.cuda})
    if len(majors) > 1:
        leader = next((row for row in rows if row.library == "torch"), None)
        target = leader.cuda if leader else majors[-1]
        others = [row for row in rows if row.cuda != target]
        yield Finding(
            "cuda-majors",
            "libraries for two CUDA majors are installed, and the first import decides which one is "
            "loaded: " + ", ".join(f"{_named(row)} (CUDA {row.cuda})" for row in rows),
            "; ".join(_same_major(row, target or majors[-1]) for row in others),
        )
    newest = majors[-1] if majors else 0
    if facts.driver and facts.driver[0] >= OLDEST and newest > facts.driver[0]:
        names = ", ".join(_named(row) for row in rows if row.cuda == newest)
        yield Finding(
            "driver-old",
            f"the driver supports CUDA {facts.driver[0]}, and is too old for {names} (CUDA {newest})",
            f"update the driver, or install builds for CUDA {facts.driver[0]}",
        )


def _same_major(row: Installed, major: int) -> str:
    if row.library == "cupy":
        return f"pip uninstall {row.distribution}; pip install cupy-cuda{major}x"
    if row.library == "jax plugin":
        return f"pip uninstall {row.distribution}; {_jax_for(major)}"
    if row.library == "cuda.bindings":
        return f"pip install 'cuda-bindings=={major}.*'"
    return f"install a build of {row.distribution} for CUDA {major}"


def _torch_for(driver: tuple[int, ...]) -> str:
    fitting = [version for version in TORCH_INDEXES if not driver or version <= driver]
    if not fitting:
        return f"{_UPDATE}, then install torch anew"
    index = "".join(map(str, fitting[-1]))
    return (
        "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/"
        f"cu{index}"
    )


def _jax_for(major: int) -> str:
    fitting = [known for known in JAX_MAJORS if known <= major]
    command = f"pip install 'jax[cuda{(fitting or JAX_MAJORS)[-1 if fitting else 0]}]'"
    return command if fitting else f"{_UPDATE}, then {command}"


def _without_cuda(facts: SystemFacts) -> Iterator[Finding]:
    for row in facts.find("torch"):
        if facts.devices and row.cuda == 0:
            yield Finding(
                "torch-cpu",
                f"{_named(row)} is built without CUDA: it cannot share arrays on a GPU",
                _torch_for(facts.driver),
                "hint",
            )
        if numbers(row.version) and numbers(row.version) < (2, 10):
            yield Finding(
                "torch-old",
                f"{_named(row)} has no C interface for exchange: conversions take 5 us instead of 0.5",
                "pip install 'torch>=2.10'",
                "hint",
            )
    if facts.devices and facts.find("jax") and not facts.find("jax plugin"):
        yield Finding(
            "jax-cpu",
            "JAX is installed without its CUDA plug-in, and there are GPUs",
            _jax_for(facts.driver[0] if facts.driver else JAX_MAJORS[-1]),
            "hint",
        )


def _runtime(facts: SystemFacts) -> Iterator[Finding]:
    major = max(OLDEST, min(facts.driver[0] if facts.driver else 13, max(RUNTIME_WHEELS)))
    for name, why in facts.missing.items():
        needs = {"nvrtc": "kernels cannot be compiled", "cublas": "matrices cannot be multiplied"}[
            name
        ]
        yield Finding(
            name,
            f"{ {'nvrtc': 'NVRTC', 'cublas': 'cuBLAS'}[name] } is missing, so {needs} on the GPU: {why}",
            f"pip install {RUNTIME_WHEELS[major][name]}",
        )


# ---- streams ------------------------------------------------------------------------------------


def _streams(facts: SystemFacts) -> Iterator[Finding]:
    on = sorted(library for library, flag in facts.per_thread.items() if flag)
    here = {"CuPy": "cupy", "Numba": "numba-cuda", "cuda-python": "cuda.bindings"}
    off = sorted(
        library
        for library, flag in facts.per_thread.items()
        if not flag and facts.find(here.get(library, library))
    )
    if on and off:
        yield Finding(
            "streams",
            f"{', '.join(on)} works on the per-thread default stream, {', '.join(off)} on the legacy "
            "one: in threads, work that is passed on as a bare pointer is not ordered",
            "set the flag for all of them or for none; conversions through gpuinterop are ordered "
            "either way",
            "hint",
        )
    if facts.environment.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        yield Finding(
            "blocking",
            "CUDA_LAUNCH_BLOCKING is set: every launch waits for its kernel",
            "unset CUDA_LAUNCH_BLOCKING when the error is found",
            "hint",
        )


_RULES: tuple[Callable[[SystemFacts], Iterator[Finding]], ...] = (
    _driver,
    _contexts,
    _broken,
    _duplicates,
    _majors,
    _without_cuda,
    _runtime,
    _streams,
)
