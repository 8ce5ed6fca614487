"""Every mix that is known to break, one at a time: the finding, and what its fix names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuinterop.doctor_rules import RUNTIME_WHEELS, SystemFacts, diagnose
from gpuinterop.installed_libraries import Installed

WELL = [
    Installed("numpy", "numpy", "2.4.6"),
    Installed("ml_dtypes", "ml_dtypes", "0.6.0"),
]


def lib(library, version, cuda=None, distribution="", broken=""):
    return Installed(library, distribution or library, version, cuda, False, broken)


def found(*libraries, **facts):
    facts.setdefault("driver", (13, 0))
    facts.setdefault("devices", 1)
    return diagnose(SystemFacts(libraries=[*WELL, *libraries], **facts))


def only(findings):
    assert len(findings) == 1, "\n".join(map(str, findings))
    assert findings[0].fix
    assert findings[0].fix in str(findings[0])
    return findings[0]


def test_a_good_set_is_well():
    assert not found(
        lib("torch", "2.11.0", 13), lib("cupy", "14.2.0", 13, "cupy-cuda13x"),
        lib("jax", "0.11"), lib("jax plugin", "0.11", 13, "jax-cuda13-plugin"),
        lib("cuda.core", "1.2"), lib("cuda.bindings", "13.5", 13),
    )  # fmt: skip


def test_a_machine_without_a_gpu_is_well():
    assert not found(lib("torch", "2.13.0+cpu", 0), driver=(), devices=0)


def test_torch_2_11_beside_cupy_for_cuda_12():
    finding = only(found(lib("torch", "2.11.0", 13), lib("cupy", "13.6", 12, "cupy-cuda12x")))
    assert finding.code == "cuda-majors"
    assert finding.level == "warning"
    assert "pip uninstall cupy-cuda12x; pip install cupy-cuda13x" in finding.fix
    # A torch built for CUDA 12 beside it is a good set.
    assert not found(lib("torch", "2.11.0+cu126", 12), lib("cupy", "13.6", 12, "cupy-cuda12x"))


def test_two_majors_follow_torch():
    finding = only(
        found(lib("torch", "2.10.0+cu128", 12), lib("jax plugin", "0.10", 13, "jax-cuda13-plugin"))
    )
    assert "jax-cuda13-plugin 0.10 (CUDA 13)" in finding.text
    assert "jax[cuda12]" in finding.fix
    finding = only(found(lib("cupy", "14", 13, "cupy-cuda13x"), lib("cuda.bindings", "12.9", 12)))
    assert "cuda-bindings==13" in finding.fix


def test_a_driver_that_is_too_old():
    finding = only(found(lib("cupy", "14", 13, "cupy-cuda13x"), driver=(12, 8)))
    assert finding.code == "driver-old"
    assert "CUDA 12" in finding.fix


def test_cupy_twice():
    findings = found(lib("cupy", "13", None, "cupy"), lib("cupy", "13", 12, "cupy-cuda12x"))
    assert "pip uninstall cupy cupy-cuda12x" in only(findings).fix


def test_pycuda_autoinit():
    finding = only(found(modules=frozenset({"pycuda.autoinit"})))
    assert finding.code == "context"
    assert "pycuda.autoprimaryctx" in finding.fix
    assert not found(modules=frozenset({"pycuda.autoprimaryctx"}))


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ({"current": True, "primary": False}, True),
        ({"current": True, "primary": True}, False),
        ({"current": False, "primary": False}, False),
    ],
)
def test_contexts(row, wrong):
    assert bool(found(contexts=[{"device": "cuda:0", **row}])) == wrong


def test_missing_runtime_libraries_come_with_the_pip_line():
    finding = only(found(missing={"nvrtc": "no file"}))
    assert finding.fix == "pip install 'nvidia-cuda-nvrtc==13.*'"
    finding = only(found(missing={"cublas": "no file"}, driver=(12, 4)))
    assert finding.fix == "pip install nvidia-cublas-cu12"
    finding = only(found(missing={"cublas": "no file"}, driver=(14, 1)))
    assert finding.fix == "pip install 'nvidia-cublas==13.*'"


def test_the_wheels_are_those_of_the_extras():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    for major, wheels in RUNTIME_WHEELS.items():
        (row,) = [line for line in text.splitlines() if line.startswith(f"cu{major} = ")]
        named = {re.split("[<>=]", word)[0] for word in re.findall(r'"([^"]+)"', row)}
        assert named == {wheel.strip("'").partition("=")[0] for wheel in wheels.values()}


@pytest.mark.parametrize(
    ("driver", "index"),
    [
        ((11, 8), "cu118"), ((12, 0), "cu118"), ((12, 4), "cu124"), ((12, 5), "cu124"),
        ((12, 8), "cu128"), ((13, 0), "cu130"), ((13, 1), "cu130"), ((14, 2), "cu130"),
    ],
)  # fmt: skip
def test_torch_is_had_from_an_index_that_exists(driver, index):
    (finding,) = [
        f for f in found(lib("torch", "2.13.0+cpu", 0), driver=driver) if f.code == "torch-cpu"
    ]
    assert finding.fix.endswith(f"download.pytorch.org/whl/{index}")


def test_a_driver_before_cuda_12():
    libraries = lib("torch", "2.13.0+cpu", 0), lib("jax", "0.11")
    findings = {f.code: f for f in found(*libraries, driver=(11, 4), missing={"nvrtc": "no file"})}
    assert set(findings) == {"driver-old", "nvrtc", "torch-cpu", "jax-cpu"}
    assert findings["driver-old"].level == "warning"
    assert "11.4" in findings["driver-old"].text
    for code in ("driver-old", "torch-cpu", "jax-cpu"):
        assert findings[code].fix.startswith("update the driver to one of CUDA 12")
    assert findings["jax-cpu"].fix.endswith("pip install 'jax[cuda12]'")
    assert findings["nvrtc"].fix == "pip install nvidia-cuda-nvrtc-cu12"
    assert [f.code for f in found(lib("cupy", "14", 13, "cupy-cuda13x"), driver=(11, 8))] == [
        "driver-old"
    ]


def test_old_torch_and_torch_without_cuda_are_hints():
    finding = only(found(lib("torch", "2.9.1", 13)))
    assert (finding.code, finding.level) == ("torch-old", "hint")
    finding = only(found(lib("torch", "2.13.0+cpu", 0)))
    assert (finding.code, finding.level) == ("torch-cpu", "hint")
    assert "cu130" in finding.fix


def test_jax_without_its_plugin():
    assert "jax[cuda13]" in only(found(lib("jax", "0.11"))).fix


def test_missing_numpy_and_ml_dtypes():
    findings = diagnose(SystemFacts())
    assert [(f.code, f.level) for f in findings] == [("numpy", "warning"), ("ml_dtypes", "hint")]


def test_broken_installations():
    finding = only(found(lib("warp", "1.0", None, "warp-lang", broken="its module is gone")))
    assert "--force-reinstall warp-lang" in finding.fix
    assert "cuda-bindings" in only(found(lib("cuda.core", "1.2"))).fix


def test_the_driver_that_does_not_answer():
    finding = only(found(driver=(), devices=0, nvidia_files=True, driver_reason="no libcuda"))
    assert "no libcuda" in finding.text
    assert finding.code == "driver"
    finding = only(found(driver=(), devices=0, environment={"GPUINTEROP_DEVICE": "cuda"}))
    assert "unset GPUINTEROP_DEVICE" in finding.fix
    assert "spawn" in only(found(forked=True)).fix
    assert only(found(stand_in="/x.so")).level == "hint"


def test_streams():
    flags = {"CuPy": True, "Numba": False}
    assert not found(per_thread=flags)  # nobody else is there
    finding = only(found(lib("numba-cuda", "0.30"), per_thread=flags))
    assert "CuPy works on the per-thread" in finding.text
    assert not found(lib("numba-cuda", "0.30"), per_thread={"CuPy": False, "Numba": False})
    assert only(found(environment={"CUDA_LAUNCH_BLOCKING": "1"})).code == "blocking"
    assert not found(environment={"CUDA_LAUNCH_BLOCKING": "0"})


def test_warnings_come_first():
    findings = found(lib("torch", "2.9.1", 13), missing={"nvrtc": "x"})
    assert [f.level for f in findings] == ["warning", "hint"]


def test_a_default_device_that_does_not_exist():
    environment = {"GPUINTEROP_DEVICE": "cpuu"}
    finding = only(found(environment=environment, device_fault="'cpuu': no device of that name"))
    assert finding.code == "device"
    assert "cpuu" in finding.text
    assert "unset GPUINTEROP_DEVICE" in finding.fix


def test_a_gnumpy_that_cannot_be_imported_is_not_installed_again():
    broken = lib("gnumpy", "0.2", broken="its import fails: SyntaxError")
    assert "pip install" not in only(found(broken)).fix
