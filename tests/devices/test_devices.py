"""Naming devices, without a driver and, in a process of its own, with the fake one."""

import asyncio
import copy
import ctypes.util
import enum
import os
import pickle
import re

import numpy as np
import pytest
from doubles import driver, fake_driver, internals
from helpers.threads import in_thread

import gpuinterop as gi
from gpuinterop import devices
from gpuinterop.errors import DeviceError, StreamError

CPU = gi.device("cpu")


class DLDeviceType(enum.IntEnum):
    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLROCM = 10
    kDLCUDAManaged = 13


class Named:  # torch.device, tvm_ffi.Device
    def __init__(self, type, index=None):
        self.type, self.index = type, index


class Platform:  # jax.Device
    def __init__(self, platform, id, local=None):
        self.platform, self.id, self.local_hardware_id = platform, id, local


def of_module(module, **attributes):
    return type("Device", (), {"__module__": module, **attributes})()


# ---- reading foreign objects --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "pair"),
    [
        ((1, 0), (1, 0)),
        ((2, None), (2, None)),
        ((DLDeviceType.kDLCUDA, 3), (2, 3)),
        ((DLDeviceType.kDLCUDAHost, 3), (1, 0)),
        ((DLDeviceType.kDLCUDAManaged, 1), (2, 1)),
        ((DLDeviceType.kDLROCM, 0), None),
        (("cuda", 1), (2, 1)),
        (("GPU", np.int64(2)), (2, 2)),
        ((2, "x"), None),
        ((2, 0, 0), None),
        (Named("cuda", 1), (2, 1)),
        (Named("cuda"), (2, None)),
        (Named("cpu", 7), (1, 0)),
        (Named("meta"), None),
        (Platform("gpu", 9, 1), (2, 1)),
        (Platform("tpu", 0), None),
        (of_module("cuda.core._device", device_id=1), (2, 1)),
        (of_module("cupy.cuda.device", id=1), (2, 1)),
        (of_module("numba.cuda.cudadrv.driver", id=2), (2, 2)),
        (of_module("warp._src.context", ordinal=1, is_cuda=True, is_cpu=False), (2, 1)),
        (of_module("warp._src.context", ordinal=-1, is_cuda=False, is_cpu=True), (1, 0)),
        (of_module("somewhere", id=1), None),
        (np.zeros(3), (1, 0)),
        (object(), None),
    ],
)
def test_device_pair(spec, pair):
    assert internals.device_pair(spec) == pair


def test_real_foreign_devices():
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    assert internals.device_pair(torch.device("cuda:1")) == (2, 1)
    assert internals.device_pair(torch.device("cuda")) == (2, None)
    assert internals.device_pair(torch.device("meta")) is None
    assert internals.device_pair(torch.zeros(2)) == (1, 0)
    assert internals.device_pair(jax.devices("cpu")[0]) == (1, 0)
    assert gi.device(torch.zeros(1, dtype=torch.int32).device) is CPU


# ---- the device itself --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", ["cpu", "CPU", " cpu ", "host", "cpu:0", "cpu0", (1, 0), (3, 1), ("cpu", 0), CPU]
)
def test_the_cpu(spec):
    assert gi.device(spec) is CPU
    assert gi.Device(spec) is CPU


def test_a_device_is_one_object_and_equals_its_name():
    assert CPU == "cpu"
    assert "cpu" == CPU  # noqa: SIM300
    assert hash(CPU) == hash("cpu")
    assert CPU != "cuda:0"
    assert CPU != 0
    assert {CPU: 1}["cpu"] == 1
    assert pickle.loads(pickle.dumps(CPU)) is CPU
    assert copy.deepcopy(CPU) is CPU
    gpu = devices.device_from_dlpack(2, 3)
    assert pickle.loads(pickle.dumps(gpu)) is gpu
    assert devices.device_from_dlpack(13, 3) is gpu
    assert devices.device_from_dlpack(3, 3) is CPU
    assert (gpu.type, gpu.index, gpu.id, gpu.type_code, str(gpu), repr(gpu)) == (
        "cuda", 3, 3, 2, "cuda:3", "Device('cuda:3')")  # fmt: skip
    assert (CPU.type, CPU.index, CPU.name) == ("cpu", 0, "cpu")


@pytest.mark.parametrize(
    "spec", ["", "tpu", "cuda:-1", "cuda:1.5", "cpu:1", True, 1.0, (1,), (10, 0), [1, 0], object()]
)
def test_invalid_device_is_refused(spec):
    with pytest.raises(DeviceError):
        gi.device(spec)


def test_device_object_is_immutable():
    for name in ("index", "type", "type_code", "other"):
        with pytest.raises(AttributeError, match="changed"):
            setattr(CPU, name, 3)
        with pytest.raises(AttributeError, match="changed"):
            delattr(CPU, name)
    assert (CPU.type, CPU.index, CPU.type_code) == ("cpu", 0, 1)
    assert devices.device_from_dlpack(1, 3) is CPU


def test_with_device_sets_the_default_of_the_block_alone():
    gpu = devices.device_from_dlpack(2, 7)
    outside = gi.default_device()
    with gpu as entered:
        assert entered is gpu
        assert gi.default_device() is gpu
        with CPU, gpu, CPU:
            assert gi.default_device() is CPU
        with pytest.raises(KeyError), CPU:
            raise KeyError
        assert gi.default_device() is gpu
        assert in_thread(gi.default_device) is outside
    assert gi.default_device() is outside


def test_with_device_holds_for_one_task():
    async def inside(place, delay):
        with place:
            await asyncio.sleep(delay)
            return gi.default_device()

    async def main():
        gpu = devices.device_from_dlpack(2, 7)
        return await asyncio.gather(inside(gpu, 0.02), inside(CPU, 0.01))

    assert [str(d) for d in asyncio.run(main())] == ["cuda:7", "cpu"]


def test_default_for_the_process():
    before = gi.default_device()
    devices.set_default_device("cpu")
    try:
        assert gi.default_device() is CPU
    finally:
        devices.set_default_device(None)
    assert gi.default_device() is before


def test_streams_and_events_of_the_cpu_do_nothing():
    s = gi.Stream("cpu")
    assert (s.handle, s.device, s.query(), s.is_capturing) == (0, "cpu", True, False)
    with s as entered, gi.Stream("cpu"):
        assert entered is s
    s.synchronize()
    s.wait(gi.Stream("cpu"))
    start, end = gi.Event("cpu", timing=True), gi.Event("cpu", timing=True)
    start.record(s)
    end.record()
    s.wait(end)
    end.wait(s)
    end.synchronize()
    assert end.query()
    assert 0 <= start.elapsed_time(end) < 1000
    with pytest.raises(StreamError):
        gi.Event("cpu").elapsed_time(end)
    with pytest.raises(TypeError):
        gi.Stream("cpu", 3)


@pytest.mark.parametrize("wrap", [lambda s: s, gi.stream, devices.stream])
def test_leaving_streams_out_of_order_is_refused(wrap, device):
    a, b = gi.Stream(device), gi.Stream(device)
    before = devices.current_stream(device)
    outer, inner = wrap(a), wrap(b)
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(StreamError, match="reverse order"):
        outer.__exit__(None, None, None)
    assert devices.current_stream(device) is b
    inner.__exit__(None, None, None)
    assert devices.current_stream(device) == before
    with pytest.raises(StreamError):
        outer.__exit__(None, None, None)


def test_a_stream_that_was_never_made():
    bare = gi.Stream.__new__(gi.Stream)
    made = gi.Stream("cpu")
    for call in (
        bare.record,
        bare.__enter__,
        bare.__exit__,
        lambda: gi.Stream.__enter__(3),
        lambda: made.record(5),
    ):
        with pytest.raises(TypeError, match=r"expected a gpuinterop\."):
            call()


def test_show_config(monkeypatch, capsys):
    monkeypatch.setenv("GPUINTEROP_CACHE_MB", "512")
    monkeypatch.setenv("GPUINTEROP_DEVICE", "")
    gi.show_config()
    printed = capsys.readouterr().out
    assert '"GPUINTEROP_CACHE_MB": "512"' in printed
    assert "GPUINTEROP_DEVICE" not in printed


# ---- with GPUs ----------------------------------------------------------------------------------


def test_spellings_with_two_gpus():
    code = """
    import numpy as np
    import gpuinterop as gi
    from gpuinterop import devices
    def name(spec): return str(gi.device(spec))
    for spec, wanted in {"cuda": 0, "gpu": 0, "cuda:1": 1, "gpu1": 1, "GPU:1": 1, 1: 1, np.int8(1): 1,
                         (2, 1): 1, (13, 1): 1, ("gpu", 1): 1}.items():
        assert name(spec) == f"cuda:{wanted}", spec
    assert [str(d) for d in gi.devices()] == ["cpu", "cuda:0", "cuda:1"]
    assert name(None) == "cuda:0"
    with gi.device("cuda:1"):
        assert name("cuda") == name(None) == "cuda:1" and gi.Stream().device == "cuda:1"
    with gi.device("cpu"):
        assert name("cuda") == "cuda:0"
        assert devices.current_stream().device == "cuda:0"
        assert gi.Stream().device == "cpu"
    for spec in ("cuda:2", 2, -1, (2, 5)):
        try:
            gi.device(spec)
        except gi.DeviceError as error:
            assert "0 to 1" in str(error) and "CUDA_VISIBLE_DEVICES" in str(error)
        else:
            raise SystemExit("no error")
    p = devices.device_properties("cuda:1")
    assert p["name"] == gi.device(1).name == "Fake GPU 1" and (p["major"], p["minor"]) == (9, 0)
    assert p["warpSize"] == 32 and p["maxThreadsDim0"] == 1024 and p["totalGlobalMem"] == 1 << 30
    """
    driver.run(code, fake_driver.library())


@pytest.mark.parametrize(
    ("wish", "found", "gpu"),
    [("cuda:1", "cuda:1", 1), ("gpu1", "cuda:1", 1), ("cuda", "cuda:0", 0), ("cpu", "cpu", 0), ("", "cuda:0", 0)],
)  # fmt: skip
def test_default_device_from_the_environment_holds_from_the_first_call_on(wish, found, gpu):
    code = f"""
    import gpuinterop as gi
    from gpuinterop import devices
    assert gi.device("cuda") == "cuda:{gpu}"
    default = gi.default_device()
    assert default == "{found}" and gi.zeros(3).device == default
    devices.set_default_device(None)
    assert gi.device("gpu") == "cuda:{gpu}" and gi.default_device() is default
    """
    driver.run(code, fake_driver.library(), GPUINTEROP_DEVICE=wish)


# ---- libraries ----------------------------------------------------------------------------------


def test_missing_library_names_each_place_and_the_command(tmp_path):
    code = f"""
    import gpuinterop as gi
    x = gi.ones((2, 2), device="cuda:0")
    try:
        x @ x
    except gi.LibraryNotFoundError as error:
        assert isinstance(error, OSError) and "{tmp_path}" in str(error), error
        assert "gpuinterop[cu13]" in error.fix, error
    else:
        raise SystemExit("no error")
    assert gi.doctor().runtime["cublas"].startswith("missing: ")
    """
    missing = str(tmp_path / "libcublas.so.13")
    driver.run(code, fake_driver.library(), GPUINTEROP_LIBCUBLAS=missing)


def test_library_named_by_the_environment():
    path = ctypes.util.find_library("m")
    code = f"""
    import gpuinterop as gi
    for _ in range(2):
        assert gi.doctor().runtime["nvrtc"] == "{path} (GPUINTEROP_LIBNVRTC)", gi.doctor().runtime
    """
    driver.run(code, fake_driver.library(), GPUINTEROP_LIBNVRTC=path)


# ---- variables whose bytes are no UTF-8 -----------------------------------------------------------

USE_EVERY_VARIABLE = """
import pickle, sys, warnings
import numpy as np
import gpuinterop as gi
from gpuinterop.devices import find_libraries as cuda_libraries
from gpuinterop import jit

warnings.simplefilter("ignore", RuntimeWarning)
SOURCE = 'extern "C" __global__ void k(int* x) { x[0] = 1; }'
calls = [
    lambda: print(gi.doctor()), lambda: gi.show_config(), lambda: gi.zeros(3),
    lambda: pickle.loads(pickle.dumps(gi.ones(3, device="cpu"))), lambda: jit.compile_source(SOURCE, 90),
    lambda: gi.asarray(np.zeros(1 << 19, "f4"), device="cuda"),
    *(lambda name=name: cuda_libraries.find(name) for name in ("nvrtc", "cublas", "cublasLt")),
]
for call in calls:
    try:
        call()
    except gi.GpuInteropError as error:
        print(error)
"""


@pytest.mark.parametrize(
    "alone", ["DEVICE", "UNPICKLE_DEVICE", "LIBCUDA", "CACHE_DIR", "XDG_CACHE_HOME", ""]
)
def test_bytes_of_a_variable_that_are_not_utf8_work_or_raise_an_error_of_ours(
    alone, tmp_path, monkeypatch
):
    """With "": all variables at once, except those without which the calls end before they read the others."""
    page = (driver.ROOT / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
    listed = [
        f"GPUINTEROP_{name}" for name in re.findall(r"^\| `GPUINTEROP_(\w+)`", page, re.MULTILINE)
    ]
    assert len(listed) > 10
    early = ["GPUINTEROP_DEVICE", "GPUINTEROP_UNPICKLE_DEVICE", "GPUINTEROP_LIBCUDA"]
    names = [
        n
        for n in [*listed, "CUDA_PATH", "CUDA_HOME", "LD_LIBRARY_PATH", "THEANORC"]
        if n not in early
    ]
    environment = {
        "GPUINTEROP_LIBCUDA": str(fake_driver.library()),
        "PYTHONIOENCODING": "utf-8:strict",
    }
    if alone:
        names = [alone if alone.startswith("XDG") else f"GPUINTEROP_{alone}"]
        monkeypatch.delenv("GPUINTEROP_CACHE_DIR", raising=False)
    environment |= dict.fromkeys(names, str(tmp_path / os.fsdecode(b"\xff\xfe")))
    driver.run(USE_EVERY_VARIABLE, **environment)
