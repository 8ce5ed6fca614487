"""``gpuinterop.doctor()``: a report on the installation, to paste into a bug report.

It works with a broken driver, with broken installations and without a GPU; parts that fail become
warnings. It imports no other library and creates no context; versions come from package metadata.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import gpuinterop.devices as devices
from gpuinterop import _core
from gpuinterop._version import __version__
from gpuinterop.devices import find_libraries
from gpuinterop.devices.device_spec import device_from_variable
from gpuinterop.devices.foreign_handles import CUDA
from gpuinterop.errors import GpuInteropError, printable
from gpuinterop.errors.arguments import require_bool
from gpuinterop.errors.messages import not_one_of
from gpuinterop.exchange import package_versions, registry

from .rules import Facts, Finding, diagnose

__all__ = ["SCHEMA", "Report", "doctor", "show_config"]

SCHEMA = "gpuinterop.doctor/1"

# Libraries whose default stream is the per-thread one if the variable is 1.
PER_THREAD = {
    "CuPy": "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM",
    "Numba": "NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM",
    "cuda-python": "CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM",
}
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_HOME", "CUDA_PATH",
    "CUDA_MODULE_LOADING", "JAX_PLATFORMS", "JAX_ENABLE_X64", "XLA_PYTHON_CLIENT_PREALLOCATE",
    "LD_LIBRARY_PATH", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "GNUMPY_USE_GPU",
    *PER_THREAD.values(),
)  # fmt: skip


@dataclass
class Report(Facts):
    """The result of `doctor`; prints as a page, and `to_json` returns JSON."""

    findings: list[Finding] = field(default_factory=list)

    @property
    def warnings(self) -> list[Finding]:
        """The findings that break something, each with `text` and `fix`."""
        return [finding for finding in self.findings if finding.level == "warning"]

    @property
    def hints(self) -> list[Finding]:
        """The findings that only cost speed or a feature."""
        return [finding for finding in self.findings if finding.level == "hint"]

    @property
    def ok(self) -> bool:
        """Whether there are no warnings. A machine without a GPU causes none."""
        return not self.warnings

    def to_json(self, indent: int | None = None) -> str:
        """The report as JSON of the schema "gpuinterop.doctor/1"."""
        return json.dumps({"schema": SCHEMA, "ok": self.ok, **asdict(self)}, indent=indent)

    def text(self, verbose: bool = False) -> str:
        """The report as a page: one line for each library, or with `verbose` everything."""
        return printable("\n".join(_page(self, verbose)))

    def __str__(self) -> str:
        return self.text()


def doctor(trial: bool = False) -> Report:
    """Examine driver, devices, contexts, streams, libraries and memory, without changing them.

    With `trial`, a separate process imports every installed library that has arrays on the default device,
    and exchanges an array with it, which takes seconds and, on a GPU, memory. Without it no library is imported.

    Examples
    --------
    >>> import gpuinterop
    >>> report = gpuinterop.doctor()
    >>> all(warning.fix for warning in report.warnings)
    True
    """
    shown = {  # an empty variable counts as unset
        name: value
        for name, value in sorted(os.environ.items())
        if value and (name in _VARIABLES or name.startswith("GPUINTEROP_"))
    }
    report = Report(environment=shown)
    trial = require_bool(trial, "trial", "doctor")
    parts = (_system, _driver, _devices, _streams, _libraries, _runtime, _memory)
    for part in (*parts, _trial) if trial else parts:
        try:
            part(report)
        except Exception as error:  # any part may be broken; the report lists it as a warning
            what = part.__name__.strip("_")
            why = f"{type(error).__name__}: {error}"
            report.failures.append(f"the {what} could not be described: {why}")
    report.findings = diagnose(report)
    return report


def show_config(mode: str = "stdout") -> dict[str, Any] | None:
    """Print the report of `doctor` with every detail, or return it with ``mode="dicts"``."""
    if mode not in ("stdout", "dicts"):
        fix = 'pass mode="dicts" for a dict'
        raise not_one_of("show_config", "mode", ("stdout", "dicts"), mode, fix)
    report = doctor()
    if mode == "dicts":
        return asdict(report)
    print(report.text(verbose=True))
    return None


# ---- parts --------------------------------------------------------------------------------------


def _system(report: Report) -> None:
    report.system = {
        "gpuinterop": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "machine": platform.machine(),
    }


def _driver(report: Report) -> None:
    version, available = _core.cuda_driver_version(), bool(_core.cuda_available())
    report.driver = {
        "available": available,
        "cuda": f"{version // 1000}.{version % 1000 // 10}" if version else None,
        "library": _core.cuda_library_path() or None,
        "reason": "" if available else _core.cuda_unavailable_reason(),
        "kernel_module": _kernel_module(),
        "forked": bool(_core.cuda_forked()),
        "autoinit": "pycuda.autoinit" in sys.modules,
    }
    wish = os.environ.get("GPUINTEROP_DEVICE", "").strip()
    if wish:
        try:
            device_from_variable(wish)
        except GpuInteropError as error:
            report.driver["default_device_fault"] = error.got


def _kernel_module() -> str:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.partition("\n")[0].removeprefix("NVRM version:").strip()


def _devices(report: Report) -> None:
    count = _core.cuda_device_count()
    driver = ctypes.CDLL(_core.cuda_library_path()) if count else None
    for index in range(count):
        known = _core.cuda_device_properties(index)  # which starts no device
        row = {
            "device": f"cuda:{index}",
            "name": known["name"],
            "compute": f"{known['major']}.{known['minor']}",
            "total_bytes": known["totalGlobalMem"],
            **_context(driver, index),
        }
        if _core.cuda_started(index):
            row["free_bytes"] = _core.cuda_mem_info(index)[0]
        report.devices.append(row)


def _context(driver: Any, index: int) -> dict[str, Any]:
    """Return whether the primary context is active, and whether it is the thread's current context.

    `current` is whether some context of this device is current in the calling thread.
    """
    flags, active, current, device, primary = (
        ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p(),
    )  # fmt: skip
    driver.cuDevicePrimaryCtxGetState(index, ctypes.byref(flags), ctypes.byref(active))
    driver.cuCtxGetCurrent(ctypes.byref(current))
    same = False
    # Retaining a context that is not active would create it.
    retain = driver.cuDevicePrimaryCtxRetain
    if current.value and active.value and retain(ctypes.byref(primary), index) == 0:
        same = primary.value == current.value
        driver.cuDevicePrimaryCtxRelease_v2(index)
    here = same
    if current.value and not same:
        here = driver.cuCtxGetDevice(ctypes.byref(device)) == 0 and device.value == index
    return {"primary_active": bool(active.value), "current": here, "primary": same}


def _started(report: Report) -> list[int]:
    return [index for index in range(len(report.devices)) if _core.cuda_started(index)]


def _streams(report: Report) -> None:
    handles = {0: "legacy default", 1: "legacy default", 2: "per-thread default"}
    report.streams = {
        "per_thread_default": {
            library: os.environ.get(variable, "0").strip() not in ("", "0")
            for library, variable in PER_THREAD.items()
        },
        "current": {
            f"cuda:{i}": handles.get(h := _core.current_stream_handle(i), hex(h))
            for i in _started(report)
        },
    }


def _libraries(report: Report) -> None:
    # Imports that failed in this process; nothing is imported for the report.
    failed = {name: f"its import fails: {why}" for name, why in registry.failures.items()}
    found = package_versions.scan()
    rows = [replace(row, broken=failed.get(row.library, row.broken)) for row in found]
    for name in failed.keys() - {row.library for row in rows}:
        rows.append(package_versions.Installed(name, name, "", broken=failed[name]))
    report.libraries = rows
    report.disabled_converters = dict(registry.broken_converters)


def _runtime(report: Report) -> None:
    for name in find_libraries.NAMES:
        unneeded = "not searched: not needed without a GPU"
        report.runtime[name] = find_libraries.describe(name) if report.devices else unneeded


def _memory(report: Report) -> None:
    report.memory["gpuinterop on cpu"] = dict(devices.memory_stats("cpu"))
    for index in _started(report):
        report.memory[f"gpuinterop on cuda:{index}"] = dict(_core.memory_statistics(CUDA, index))
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    if cupy is not None and report.devices and hasattr(cupy, "get_default_memory_pool"):
        pool = cupy.get_default_memory_pool()
        report.memory["cupy"] = {"live_bytes": pool.used_bytes(), "pool_bytes": pool.total_bytes()}
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            report.memory[f"torch on cuda:{index}"] = {
                "live_bytes": torch.cuda.memory_allocated(index),
                "pool_bytes": torch.cuda.memory_reserved(index),
            }
    for place in _jax_devices():
        held = place.memory_stats() or {}  # the CPU has no statistics
        if held:
            live = held["bytes_in_use"]
            report.memory[f"jax on {place.platform}:{place.id}"] = {
                "live_bytes": live, "pool_bytes": held.get("pool_bytes", live),
            }  # fmt: skip


def _jax_devices() -> list[Any]:
    """Return JAX's devices if JAX was used, because the query would start it otherwise."""
    jax, bridge = sys.modules.get("jax"), sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", None)
    return list(jax.local_devices()) if jax is not None and started and started() else []


def _trial(report: Report) -> None:
    """Run the demo, which exchanges an array with every library; with each alone if one ends the process."""
    try:
        runs = [_demo()]
    except RuntimeError:
        runs = []
        for name in registry.names():
            try:
                runs.append(_demo("--only", name))
            except RuntimeError as error:
                report.failing[name] = str(error)
        if not report.failing:
            raise
    for run in runs:
        for row in run["libraries"]:
            if row["broken"]:
                report.failing[row["name"]] = row["why"]
        for cell in run["cells"]:
            for fault in cell["faults"]:
                report.failing.setdefault(cell["library"], f"{fault['check']}: {fault['got']}")


def _demo(*words: str) -> Any:
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-m", "gpuinterop", "demo", "--json", *words], env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True, errors="replace", timeout=300, check=False,
    )  # fmt: skip
    if words and done.returncode == 2:  # not installed, or without arrays on the default device
        return {"libraries": [], "cells": []}
    try:
        return json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise RuntimeError(f"gpuinterop demo ended with code {done.returncode}: {last}") from None


# ---- the page -----------------------------------------------------------------------------------


def _bytes(n: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.4g} {unit}"
        n /= 1024
    return f"{n:.1f} GiB"


def _page(report: Report, verbose: bool) -> list[str]:
    system = {"gpuinterop": "?", "python": "?", "platform": "?", **report.system}
    lines = ["gpuinterop {gpuinterop}, Python {python}, {platform}".format_map(system)]
    lines += [f"{name:11} {text}" for name, text in _places(report)]
    lines.append("")
    for row in report.libraries:
        built = {None: "", 0: "without CUDA"}.get(row.cuda, f"CUDA {row.cuda}")
        broken = f"BROKEN: {row.broken}" if row.broken else ""
        notes = ", ".join(filter(None, (built, "loaded" if row.loaded else "", broken)))
        lines.append(f"{row.library:16} {row.version or '?':14} {notes}".rstrip())
    lines.append("")
    if verbose:
        lines += [*_all_values("", asdict(report)), ""]
    lines += [str(finding) for finding in report.findings]
    lines.append(_counts(report))
    return lines


def _places(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the driver, the devices, their streams and libraries, and the memory that is in use."""
    driver = report.driver
    reason = (driver.get("reason") or "unknown").partition(";")[0]
    yield "driver", (
        f"CUDA {driver['cuda']}, {driver['library']}" if driver.get("available")
        else f"none, arrays are in host memory ({reason})"
    )  # fmt: skip
    for row in report.devices:
        context = "primary context active" if row["primary_active"] else "no context"
        if row["current"]:
            context += ", current" if row["primary"] else ", ANOTHER CONTEXT IS CURRENT"
        free = f"{_bytes(row['free_bytes'])} free of " if "free_bytes" in row else ""
        total = _bytes(row["total_bytes"])
        yield row["device"], f"{row['name']}, compute {row['compute']}, {free}{total}, {context}"
    for place, name in report.streams.get("current", {}).items():
        yield "stream", f"{name} on {place}"
    flags = [name for name, on in report.streams.get("per_thread_default", {}).items() if on]
    if flags:
        yield "per-thread", ", ".join(flags)
    yield from report.runtime.items() if report.devices else ()
    for name, held in report.memory.items():
        live, pool = held.get("live_bytes", 0), held.get("pool_bytes", held.get("cached_bytes", 0))
        if live or pool:
            yield "memory", f"{name}: {_bytes(live)} in use, {_bytes(pool)} in its pool"


def _all_values(name: str, value: Any) -> Iterator[str]:
    """Yield a line for every value of the JSON, named by its keys."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _all_values(f"{name}.{key}".lstrip("."), item)
    else:
        yield f"{name}={value}"


def _counts(report: Report) -> str:
    if not report.findings:
        return "no problems found"
    parts = (("warning", len(report.warnings)), ("hint", len(report.hints)))
    return ", ".join(f"{n} {word}{'s' * (n != 1)}" for word, n in parts)
