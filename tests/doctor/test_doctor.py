"""The report: here, with everything broken, and as JSON."""

import json
import sys
import types

import pytest
from doubles import driver, internals

import gpuinterop as gi
import gpuinterop.doctor as module
from gpuinterop import _core
from gpuinterop.exchange import registry


def test_doctor_imports_no_other_library():
    driver.run(
        "import sys, gpuinterop\n"
        "r = gpuinterop.doctor(); str(r); r.text(verbose=True); r.to_json()\n"
        "heavy = {'torch', 'jax', 'cupy', 'numba', 'tvm_ffi', 'pycuda'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )


def test_json_and_text_contain_the_same():
    report = gi.doctor()
    data = json.loads(report.to_json())
    assert data["schema"] == module.SCHEMA
    assert data["ok"] == report.ok
    assert all(f.fix and f.text and f.code for f in report.findings)
    assert {"system", "driver", "devices", "libraries", "runtime", "memory",
            "environment", "findings"} < set(data)  # fmt: skip
    text = str(report)
    assert all(f"\n{row['library']:16} {row['version']}" in text for row in data["libraries"])
    assert report.to_json(indent=1) in report.text(verbose=True)
    assert text.endswith("no problems found") == (not report.findings)
    assert f"gpuinterop {gi.__version__}" in text


def test_no_driver(tmp_path):
    out = driver.run(
        "import gpuinterop\nr = gpuinterop.doctor()\nprint(r)\n"
        "assert not r.driver['available'] and not r.devices",
        tmp_path / "libcuda.so",
    )
    assert "driver      none, arrays are in host memory" in out


def test_every_part_may_fail(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("out of order")

    for name in ("cuda_driver_version", "cuda_device_count", "memory_statistics"):
        monkeypatch.setattr(_core, name, broken)
    monkeypatch.setattr(module.package_versions, "scan", broken)
    monkeypatch.setattr(module.platform, "platform", broken)
    report = gi.doctor()
    texts = [w.text for w in report.warnings if w.code == "report"]
    assert len(texts) >= 4
    assert all("out of order" in text for text in texts)
    assert not report.ok
    assert str(report).endswith(f"{len(report.warnings)} warnings, 1 hint")
    assert json.loads(report.to_json())["ok"] is False


def test_pools_of_loaded_libraries(monkeypatch):
    pool = types.SimpleNamespace(used_bytes=lambda: 3 << 20, total_bytes=lambda: 1 << 30)
    cupy = types.SimpleNamespace(get_default_memory_pool=lambda: pool)
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 1,
        memory_allocated=lambda i: 5, memory_reserved=lambda i: 2048,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    report = module.Report(devices=[{}])
    monkeypatch.setattr(_core, "cuda_started", lambda index: False)
    module._memory(report)
    report.devices = []
    assert report.memory["cupy"] == {"live_bytes": 3 << 20, "pool_bytes": 1 << 30}
    assert report.memory["torch on cuda:0"] == {"live_bytes": 5, "pool_bytes": 2048}
    text = str(report)
    assert "cupy: 3 MiB in use, 1.0 GiB in its pool" in text
    assert "torch on cuda:0: 5 bytes in use, 2 KiB in its pool" in text


@pytest.mark.parametrize("wish", ["cpuu", "cuda:99"])
def test_a_wrong_default_device_is_a_finding(monkeypatch, wish):
    monkeypatch.setenv("GPUINTEROP_DEVICE", wish)
    report = gi.doctor()
    (finding,) = [f for f in report.warnings if f.code == "device"]
    assert finding.text.count(wish) == 1
    assert "builtins" not in finding.text
    assert "GPUINTEROP_DEVICE" in finding.fix
    monkeypatch.setenv("GPUINTEROP_DEVICE", " cpu ")
    assert not [f for f in gi.doctor().warnings if f.code == "device"]


CONVERTER = """
from {library} import core as {library}
import gpuinterop as gi
from gpuinterop.testing import Bridge

def to_{library}(x, copyif=False):
    return {library}.share(x)

def from_{library}(obj, copyif=False):
    return obj

def matches(obj):
    return False

testing_bridge = Bridge("{library}")
"""


def installed(folder, library, source):
    """Install a library and its converter into a folder."""
    (folder / library).mkdir(parents=True)
    (folder / library / "__init__.py").write_text("")
    (folder / library / "core.py").write_text(source)
    (folder / library / "interop.py").write_text(CONVERTER.format(library=library))
    internals.install_converter(folder, library, f"{library}.interop")


def test_a_trial_finds_libraries_that_fail_at_import_or_in_use(tmp_path):
    installed(
        tmp_path,
        "halfbroken",
        "def share(x):\n    import numpy\n    return numpy.row_stack_of_old(x)\n",
    )
    installed(tmp_path, "allbroken", "raise AttributeError('numpy has no attribute row_stack')\n")
    installed(tmp_path, "sound", "def share(x):\n    return x\n")

    def report(*words):
        words = ("-m", "gpuinterop", "doctor", "--json", *words)
        done = driver.python(*words, PYTHONPATH=str(tmp_path), GPUINTEROP_DEVICE="cpu")
        return json.loads(done.stdout), done.returncode

    found, code = report()
    assert code == 1
    assert not found["ok"]
    assert {"halfbroken", "allbroken"} <= found["failing"].keys()
    assert "sound" not in found["failing"]
    assert all("row_stack" in found["failing"][name] for name in ("halfbroken", "allbroken"))
    trials = [finding for finding in found["findings"] if finding["code"] == "trial"]
    assert len(trials) == len(found["failing"])
    assert any("demo --only halfbroken" in finding["fix"] for finding in trials)
    assert report("--quick")[0]["failing"] == {}


def test_a_trial_names_the_library_that_ends_the_process(tmp_path, monkeypatch):
    installed(tmp_path, "fatal", "import os\nos._exit(7)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("GPUINTEROP_DEVICE", "cpu")
    monkeypatch.setattr(registry, "names", lambda: ["fatal", "numpy", "cupy"])
    assert gi.doctor(trial=True).failing == {
        "fatal": "gpuinterop demo ended with code 7: no output"
    }
