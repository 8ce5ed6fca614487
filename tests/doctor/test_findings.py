"""Every mix that is known to break, one at a time: the finding, and what its fix names."""

import re
from pathlib import Path

import pytest

from gpuinterop.doctor import Report
from gpuinterop.doctor.rules import RULES, diagnose
from gpuinterop.exchange.package_versions import Installed

WELL = [Installed("ml_dtypes", "ml_dtypes", "0.6.0")]


def lib(library, version, cuda=None, distribution="", broken=""):
    return Installed(library, distribution or library, version, cuda, False, broken)


DRIVER = {"cuda": "13.0"}
GPU = {"device": "cuda:0", "current": True, "primary": True}


def found(*libraries, **facts):
    known = {"driver": DRIVER, "devices": [GPU], "libraries": [*WELL, *libraries]}
    return diagnose(Report(**{**known, **facts}))


def only(findings):
    assert len(findings) == 1, "\n".join(map(str, findings))
    assert findings[0].fix
    assert findings[0].fix in str(findings[0])
    return findings[0]


def test_consistent_libraries_cause_no_warning():
    assert not found(
        lib("torch", "2.11.0", 13), lib("cupy", "14.2.0", 13, "cupy-cuda13x"),
        lib("jax", "0.11"), lib("jax plugin", "0.11", 13, "jax-cuda13-plugin"),
        lib("cuda.core", "1.2"), lib("cuda.bindings", "13.5", 13),
    )  # fmt: skip
    assert not found(lib("torch", "2.11.0+cu126", 12), lib("cupy", "13.6", 12, "cupy-cuda12x"))
    assert not found(lib("torch", "2.13.0+cpu", 0), **NO_DRIVER)
    assert not found(environment={"CUDA_LAUNCH_BLOCKING": "0"})


CUPY_13 = lib("cupy", "14", 13, "cupy-cuda13x")
CUPY_TWICE = (lib("cupy", "13", None, "cupy"), lib("cupy", "13", 12, "cupy-cuda12x"))
BROKEN_WARP = lib("warp", "1.0", None, "warp-lang", broken="its module is missing")
NO_DRIVER = {"driver": {}, "devices": []}


def driver(**facts):
    return {"driver": {**DRIVER, **facts}}


def missing(name, cuda="13.0"):
    return {**driver(cuda=cuda), "runtime": {name: "missing: no file"}}


# The libraries, the facts, then the code and the level of the only finding, and words of its fix.
MIXES = {
    "a driver that is too old": ((CUPY_13,), driver(cuda="12.8"), "driver-old", "warning", "CUDA 12"),
    "cupy for CUDA 12 beside torch": (
        (lib("torch", "2.11.0", 13), lib("cupy", "13.6", 12, "cupy-cuda12x")), {}, "cuda-majors", "warning",
        "pip uninstall cupy-cuda12x; pip install cupy-cuda13x",
    ),
    "jax for CUDA 13 beside torch": (
        (lib("torch", "2.10.0+cu128", 12), lib("jax plugin", "0.10", 13, "jax-cuda13-plugin")), {}, "cuda-majors",
        "warning", "jax[cuda12]",
    ),
    "cuda.bindings for CUDA 12": (
        (CUPY_13, lib("cuda.bindings", "12.9", 12)), {}, "cuda-majors", "warning", "cuda-bindings==13",
    ),
    "cupy twice": (CUPY_TWICE, {}, "cupy", "warning", "pip uninstall cupy cupy-cuda12x"),
    "a foreign context": (
        (), {"devices": [{**GPU, "primary": False}]}, "context", "warning", "pycuda.autoprimaryctx",
    ),
    "three products on Ampere": (
        (), {"devices": [{**GPU, "compute": "8.0"}], "product_precision": "tf32x3"}, "tf32x3", "hint", "exact",
    ),
    "no nvrtc": ((), missing("nvrtc"), "nvrtc", "warning", 'pip install "gpuinterop[cu13]"'),
    "no cublas, CUDA 12": ((), missing("cublas", "12.4"), "cublas", "warning", 'pip install "gpuinterop[cu12]"'),
    "no cublas, CUDA 14": ((), missing("cublas", "14.1"), "cublas", "warning", 'pip install "gpuinterop[cu13]"'),
    "no ml_dtypes": ((), {"libraries": []}, "ml_dtypes", "hint", "pip install ml_dtypes"),
    "launches that wait": ((), {"environment": {"CUDA_LAUNCH_BLOCKING": "1"}}, "blocking", "hint", "unset"),
    "a gnumpy for Python 2": (
        (lib("gnumpy", "0.2", broken="its import fails: SyntaxError"),), {}, "installation", "warning", "npmat.py",
    ),
    "old torch": ((lib("torch", "2.9.1", 13),), {}, "torch-old", "hint", ""),
    "torch without CUDA": ((lib("torch", "2.13.0+cpu", 0),), {}, "torch-cpu", "hint", "for CUDA 13"),
    "jax without its plugin": ((lib("jax", "0.11"),), {}, "jax-cpu", "hint", "jax[cuda13]"),
    "a broken library": ((BROKEN_WARP,), {}, "installation", "warning", "--force-reinstall warp-lang"),
    "a driver that does not answer": (
        (), {"driver": {"kernel_module": "580", "reason": "no libcuda"}, "devices": []}, "driver", "warning", "",
    ),
    "a forked process": ((), driver(forked=True), "fork", "warning", "spawn"),
    "a default device that does not exist": (
        (), driver(default_device_fault="'cpuu': no device"), "device", "warning", "unset GPUINTEROP_DEVICE",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXES)
def test_versions_that_do_not_work_together_are_reported_with_a_fix(name):
    libraries, facts, code, level, fix = MIXES[name]
    finding = only(found(*libraries, **facts))
    assert (finding.code, finding.level) == (code, level)
    assert fix in finding.fix
    driver_facts = facts.get("driver", {})
    assert driver_facts.get("reason", "") in finding.text
    assert driver_facts.get("default_device_fault", "") in finding.text


def test_the_fixes_name_extras_of_the_package():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    for name in ("nvrtc", "cublas", "cusolver", "cufft"):
        for cuda in ("12.4", "13.0"):
            extra = re.search(r"\[(.+)\]", only(found(**missing(name, cuda))).fix)[1]
            assert re.search(rf"^{extra} = .*nvidia-(cuda-)?{name}", text, re.MULTILINE)


def test_a_driver_before_cuda_12():
    libraries = lib("torch", "2.13.0+cpu", 0), lib("jax", "0.11")
    findings = {f.code: f for f in found(*libraries, **missing("nvrtc", "11.4"))}
    assert set(findings) == {"driver-old", "nvrtc", "torch-cpu", "jax-cpu"}
    assert findings["driver-old"].level == "warning"
    assert "11.4" in findings["driver-old"].text
    assert findings["jax-cpu"].fix.endswith("pip install 'jax[cuda12]'")
    assert findings["nvrtc"].fix == 'pip install "gpuinterop[cu12]"'
    assert only(found(CUPY_13, **driver(cuda="11.8"))).code == "driver-old"


def test_warnings_come_first():
    findings = found(lib("torch", "2.9.1", 13), **missing("nvrtc"))
    assert [f.level for f in findings] == ["warning", "hint"]


def test_the_page_of_the_doctor_has_each_finding():
    page = Path(__file__).parents[2] / "docs" / "reference" / "doctor.md"
    named = re.findall(r"`([\w.-]+)`", page.read_text(encoding="utf-8"))
    assert {rule.code for rule in RULES} <= set(named)
