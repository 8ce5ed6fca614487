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
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpuinterop.devices as devices
from gpuinterop import _core
from gpuinterop._version import __version__
from gpuinterop.devices import find_libraries
from gpuinterop.devices.device_spec import device_from_variable
from gpuinterop.errors import GpuInteropError
from gpuinterop.errors.arguments import require_bool
from gpuinterop.exchange import package_versions, registry

from .report import SCHEMA, Report
from .rules import diagnose

__all__ = ["SCHEMA", "Report", "doctor", "show_config"]

_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_HOME", "CUDA_PATH",
    "CUDA_MODULE_LOADING", "JAX_PLATFORMS", "JAX_ENABLE_X64", "XLA_PYTHON_CLIENT_PREALLOCATE",
    "LD_LIBRARY_PATH", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "GNUMPY_USE_GPU",
    *(f"{library}_CUDA_PER_THREAD_DEFAULT_STREAM" for library in ("CUPY", "NUMBA", "CUDA_PYTHON")),
)  # fmt: skip


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
    parts = (_system, _driver, _devices, _libraries, _runtime, _memory)
    for part in (*parts, _trial) if trial else parts:
        try:
            part(report)
        except Exception as error:  # any part may be broken; the report lists it as a warning
            what = part.__name__.strip("_")
            why = f"{type(error).__name__}: {error}"
            report.failures.append(f"the {what} could not be described: {why}")
    report.findings = diagnose(report)
    return report


def show_config() -> None:
    """Print the report of `doctor` with every detail.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.show_config()  # doctest: +ELLIPSIS
    gpuinterop ...
    """
    print(doctor().text(verbose=True))


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
    streams = {0: "legacy default", 1: "legacy default", 2: "per-thread default"}
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
            handle = _core.current_stream_handle(index)
            row["stream"] = streams.get(handle, hex(handle))
        report.devices.append(row)


def _context(driver: Any, index: int) -> dict[str, bool]:
    """Return whether the primary context is active, and whether it, or another of the device, is current."""
    flags, active, device = ctypes.c_uint(), ctypes.c_int(), ctypes.c_int(-1)
    current, primary = _core.current_context(), ctypes.c_void_p()
    driver.cuDevicePrimaryCtxGetState(index, ctypes.byref(flags), ctypes.byref(active))
    if current:
        driver.cuCtxGetDevice(ctypes.byref(device))
        # Retaining a context that is not active would create it.
        if active.value and driver.cuDevicePrimaryCtxRetain(ctypes.byref(primary), index) == 0:
            driver.cuDevicePrimaryCtxRelease_v2(index)
    same = bool(current) and primary.value == current
    here = same or device.value == index
    return {"primary_active": bool(active.value), "current": here, "primary": same}


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
    report.product_precision = _core._current_precision()
    for name in ("cpu", *(row["device"] for row in report.devices if "stream" in row)):
        report.memory[f"gpuinterop on {name}"] = devices.memory_stats(name)
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    if cupy is not None and report.devices:
        pool = cupy.get_default_memory_pool()
        report.memory["cupy"] = {"live_bytes": pool.used_bytes(), "pool_bytes": pool.total_bytes()}
    if torch is not None and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            report.memory[f"torch on cuda:{index}"] = {
                "live_bytes": torch.cuda.memory_allocated(index),
                "pool_bytes": torch.cuda.memory_reserved(index),
            }


def _trial(report: Report) -> None:
    """Run the demo, which exchanges an array with every library; with each alone if one ends the process."""
    paths = os.pathsep.join(path for path in sys.path if path)
    for name in ("", *registry.names()):
        done = subprocess.run(
            [sys.executable, "-m", "gpuinterop", "demo", "--json", *(["--only", name] if name else ())],
            env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, errors="replace",
            timeout=300, check=False,
        )  # fmt: skip
        try:
            found = json.loads(done.stdout)
        except ValueError:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            if (
                not name or done.returncode != 2
            ):  # 2: not installed, or without arrays on the default device
                report.failing[name] = f"gpuinterop demo ended with code {done.returncode}: {last}"
            continue
        report.failing |= {row["name"]: row["why"] for row in found["libraries"] if row["broken"]}
        for cell in found["cells"]:
            for fault in cell["faults"]:
                report.failing.setdefault(cell["library"], f"{fault['check']}: {fault['got']}")
        if not name:
            return
    alone = report.failing.pop("")
    if not report.failing:
        raise RuntimeError(alone)
