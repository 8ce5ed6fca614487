"""The suite on a GPU, real or fake: a sound toy passes, one without order is found."""

from dataclasses import replace

import pytest
from doubles import device_library, driver, internals

import gpuinterop as gi
from gpuinterop.testing import matrix

pytestmark = pytest.mark.driver
PLAIN = ["float32", "int8", "float64"]


def test_a_sound_converter_passes():
    m = matrix([device_library.bridge()], ["cuda:0"], layouts=["C", "offset", "0-d", "empty", "readonly"],
               dtypes=PLAIN)  # fmt: skip
    assert m.ok, str(m)
    assert m.outcome(direction="to", layout="C", stream="default") == "shared"
    assert m.outcome(direction="from", layout="C", stream="default") == "shared"
    assert m.outcome(direction="to", layout="readonly") == "refused"
    assert {cell.direction for cell in m.select(stream="side")} == {"to", "from"}


@pytest.mark.parametrize("direction", ["to", "from"])
def test_a_converter_without_order_is_found(direction):
    m = matrix(
        [device_library.bridge(ordered=False)], ["cuda:0"], layouts=["C"], dtypes=["float32"]
    )
    faults = {
        f["check"] for cell in m.select(direction=direction, stream="side") for f in cell.faults
    }
    assert faults == {"order"}, str(m)


def test_stream_order_is_checked_for_a_library_without_streams():
    """Such a library is read as it would read itself, not after all work on the device."""
    tvm_ffi = pytest.importorskip("tvm_ffi")

    def bare(x, copyif=False):
        window = gi.from_gpu_pointer(x.ptr, x.shape, x._strides, x)
        return tvm_ffi.from_dlpack(window)

    careless = replace(internals.bridge("tvm_ffi"), to=bare, explain=None)
    m = matrix([careless], ["cuda:0"], layouts=["C"], dtypes=["float32"])
    assert m.outcome(direction="to", stream="default") == "shared"
    (cell,) = m.select(direction="to", stream="side")
    assert {f["check"] for f in cell.faults} == {"order"}, m


def test_address_without_memory_is_not_read():
    m = matrix(
        [device_library.bridge(beside=1 << 44)], ["cuda:0"], layouts=["C"], dtypes=["float32"]
    )
    (cell,) = m.select(direction="to", stream="default")
    assert "address" in {f["check"] for f in cell.faults}
    assert any("no memory of cuda:0 at 0x" in f["got"] for f in cell.faults), cell
    assert m.outcome(direction="from", stream="default") == "shared"  # the device still works


@pytest.mark.parametrize("library", ["tvm_ffi", "cuda_core"])
def test_libraries_that_take_any_memory(library):
    """The order of streams is checked too, of arrays and of views."""
    pytest.importorskip({"cuda_core": "cuda.core"}.get(library, library))
    layouts = ["C", "sliced", "F", "reversed", "offset", "0-d"]
    m = matrix([library], ["cuda:0"], layouts=layouts, dtypes=PLAIN)
    assert m.ok, str(m)
    assert m.outcome(direction="to", layout="reversed") == "shared"
    for layout in ("C", "sliced"):
        assert m.outcome(direction="to", layout=layout, stream="side") == "shared"


def test_the_doctor_sees_the_gpu_and_starts_nothing():
    driver.run(
        "import gpuinterop as gi\n"
        "r = gi.doctor()\n"
        "assert r.devices[0]['device'] == 'cuda:0' and r.devices[0]['total_bytes'] > 0, r.devices\n"
        "assert r.devices[0]['compute'].count('.') == 1 and r.devices[0]['name']\n"
        "assert not r.devices[0]['primary_active'], 'the doctor made a context'\n"
        "assert 'free_bytes' not in r.devices[0] and 'no context' in str(r)\n"
        "x = gi.zeros((3,), device='cuda:0')\n"
        "r = gi.doctor()\n"
        "assert r.devices[0]['primary_active'] and r.devices[0]['free_bytes'] > 0\n"
        "assert r.devices[0]['stream'] == 'legacy default', r.devices\n"
        "assert r.memory['gpuinterop on cuda:0']['live_bytes'] >= 12\n"
        "assert 'primary context active' in str(r)\n"
    )


class Driver:
    """Forwards to the driver; the current context is one of device 0."""

    def __init__(self, driver):
        self.driver = driver

    def __getattr__(self, name):
        return getattr(self.driver, name)

    def cuCtxGetDevice(self, out):
        out._obj.value = 0
        return 0


def test_the_doctor_names_a_context_that_is_not_primary(monkeypatch):
    import ctypes

    gi.zeros((3,), device="cuda:0")
    assert not [w for w in gi.doctor().warnings if w.code == "context"]
    real = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda path: Driver(real(path)))
    monkeypatch.setattr("gpuinterop._core.current_context", lambda: 0xDEAD)
    report = gi.doctor()
    found = [w for w in report.warnings if w.code == "context"]
    assert len(found) == 1
    assert "cuda:0" in found[0].text
    assert "autoprimaryctx" in found[0].fix
    assert "ANOTHER CONTEXT IS CURRENT" in str(report)
    assert not report.ok
