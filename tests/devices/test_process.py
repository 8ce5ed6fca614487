"""Broken drivers, forks, process exit: each in a process of its own."""

import subprocess

import pytest
from doubles import fake_driver
from doubles.driver import run


@pytest.fixture(scope="session")
def fake():
    return fake_driver.library()


def compiled(path, source):
    """A small library, for drivers that are not what they should be."""
    path.with_suffix(".c").write_text(source)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", str(path.with_suffix(".c")), "-o", str(path)], check=True
    )
    return path


WITHOUT = """
import gpuinterop as gi
from gpuinterop import _core
assert not _core.cuda_available() and _core.cuda_device_count() == 0
assert [str(d) for d in gi.devices()] == ["cpu"] and str(gi.default_device()) == "cpu"
assert gi.ones((3,)).tolist() == [1, 1, 1]
with gi.Stream() as s:
    assert s.query() and s.handle == 0
gi.synchronize()
gi.empty_cache()
for call in (lambda: gi.device("cuda"), lambda: gi.zeros((3,), device="cuda:0"), lambda: gi.mem_info(0)):
    try:
        call()
    except gi.DeviceError as error:
        assert _core.cuda_unavailable_reason() in str(error), str(error)
        assert error.fix
    else:
        raise SystemExit("no error")
try:
    _core.cuda_mem_info(0)
except (gi.LibraryNotFoundError, gi.CudaError) as error:
    assert error.fix
print(_core.cuda_unavailable_reason())
"""


def test_files_that_are_not_a_driver(tmp_path):
    text = tmp_path / "libcuda.so.1"
    text.write_bytes(b"not ELF at all")
    for path in (tmp_path / "missing" / "libcuda.so", text):
        assert str(path) in run(WITHOUT, path)
    path = compiled(tmp_path / "libcuda.so", "int cuInit(unsigned f) { return 0; }")
    assert "it lacks cuDriverGetVersion" in run(WITHOUT, path)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ("cuInit=100", "cuInit returned CUDA_ERROR_NO_DEVICE"),
        ("cuInit=34", "CUDA_ERROR_STUB_LIBRARY"),
        ("cuDeviceGetCount=999", "cuDeviceGetCount"),
    ],
)
def test_driver_that_fails(fake, failure, words):
    assert words in run(WITHOUT, fake, FAKECUDA_FAIL=failure)


def test_driver_without_devices(fake):
    assert "no device" in run(WITHOUT, fake, FAKECUDA_DEVICES="0")


BEYOND = """
import gpuinterop as gi
from doubles import driver
print(len(gi.devices.devices()) - 1)
for device in (63, 64):
    for memory in (driver.allocate(16, driver.primary(device)), driver.allocate_managed(16, device)):
        try:
            print(gi.CudaNdarray.from_pointer(memory, (4,)).device)
        except gi.DeviceError as error:
            print(error.expected)
"""


def test_memory_of_a_gpu_beyond_the_64th_is_refused(fake):
    refused = ["a CUDA device number from 0 to 63"] * 2
    lines = ["64", "cuda:63", "cuda:63", *refused]
    assert run(BEYOND, fake, FAKECUDA_DEVICES="70").splitlines() == lines


PROGRAMS = {
    "context that cannot be made": """
    import gpuinterop as gi
    try:
        gi.zeros((3,), device="cuda:0")
    except gi.CudaError as error:
        assert "cuDevicePrimaryCtxRetain" in str(error), error
    else:
        raise SystemExit("no error")
    assert gi.ones((3,), device="cpu").tolist() == [1, 1, 1]
    """,
    "import touches no driver": """
    import threading
    import gpuinterop as gi
    from doubles import fake_driver
    from gpuinterop import _core, devices
    from gpuinterop.devices import find_libraries as cuda_libraries
    gi.ones((3,), device="cpu").copy()
    assert fake_driver.log() == []
    assert threading.active_count() == 1
    """,
    "only what needs a context starts a device": """
    import gpuinterop as gi
    from gpuinterop import _core, devices
    found = devices.device_properties("cuda:0")
    assert found["major"] >= 3 and found["totalGlobalMem"] > 0, found
    gi.zeros((3,), device="cuda:1")
    gi.devices(), gi.device("cuda:0"), gi.synchronize(), gi.empty_cache()
    assert _core.cuda_started(1) and not _core.cuda_started(0)
    assert gi.mem_info("cuda:0")[1] > 0
    assert _core.cuda_started(0)  # free memory is a question to a context
    """,
    "fork before cuda is used": """
    import os
    import gpuinterop as gi
    child = os.fork()
    assert gi.ones((3,), device="cuda:0").tolist() == [1, 1, 1]
    if child:
        assert os.waitpid(child, 0)[1] == 0
    """,
    "arrays streams and events may outlive the interpreter": """
    import atexit, sys, threading
    import gpuinterop as gi
    from gpuinterop import devices
    class Owner:
        def __init__(self, handle): self.cuda_stream = handle
    s, e = gi.Stream(), gi.Event()
    with s:
        x = gi.ones((1000,), device="cuda:0")
    sys.modules["keeps"] = [x, s, e, devices.as_stream(Owner(s.handle))]
    cycle = [gi.ones((10,), device="cuda:1")]
    cycle.append(cycle)
    entered = gi.Stream().__enter__()
    atexit.register(lambda: gi.ones((5,), device="cuda:0").copy().tolist())
    threading.Thread(target=lambda: None).start()
    """,
    "exit inside a capture": """
    import gpuinterop as gi
    from doubles import driver
    s = gi.Stream()
    with s:
        x = gi.ones((1000,), device="cuda:0")
        capture = driver.Capture(s.handle)
        y = x.copy()
    """,
    "exit beside compilations": """
    import itertools, threading, time
    import gpuinterop as gi
    from gpuinterop import jit
    number = itertools.count()

    def compile():
        while True:
            gi.RawKernel(f'extern "C" __global__ void f() {{ int x = {next(number)}; }}', "f").compile(90)

    for _ in range(3):
        threading.Thread(target=compile, daemon=True).start()
    time.sleep(0.3)
    """,
    "exit beside daemon threads": """
    import threading, time
    import numpy
    import gpuinterop as gi

    def synchronize():
        while True:
            gi.synchronize("cuda:0")

    def download():
        x = gi.ones((1000,), device="cuda:0")
        while True:
            x.tolist()

    def copy():
        x = gi.ones((600, 600), device="cpu")
        while True:
            x.T.copy()

    def upload_and_download():
        host = numpy.ones(1 << 19, "float32")
        while True:
            gi.asarray(host, device="cuda:0").get()

    for work in (synchronize, download, copy, upload_and_download):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.2)
    """,
}
VARIABLES = {
    "context that cannot be made": {"FAKECUDA_FAIL": "cuDevicePrimaryCtxRetain=999"},
    "arrays streams and events may outlive the interpreter": {"PYTHONMALLOC": "debug"},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_a_process_of_its_own(fake, name):
    run(PROGRAMS[name], fake, **VARIABLES.get(name, {}))


def test_error_names_a_default_device_that_does_not_exist(fake, tmp_path):
    code = """
    import gpuinterop as gi
    for _ in range(2):
        try:
            gi.zeros(3)
        except gi.DeviceError as error:
            print(error.got)
    """
    missing = tmp_path / "libcuda.so.1"
    assert run(code, missing, GPUINTEROP_DEVICE="cuda").count(str(missing)) == 2
    for wish in ("cuda:5", "nonsense"):
        assert run(code, fake, GPUINTEROP_DEVICE=wish).count(f"'{wish}'") == 2


# ---- fork ---------------------------------------------------------------------------------------

FORK = """
import gc, os, sys, time
import gpuinterop as gi
from gpuinterop import _core, devices
class Producer:
    pass
x = gi.ones((1000,), device="cuda:0")
producer = Producer()
producer.__cuda_array_interface__ = {**x.__cuda_array_interface__, "owner": x}
take = lambda: gi.from_any(producer)
s, e = gi.Stream(), gi.Event()
gi.synchronize()
time.sleep(0.1)  # AddressSanitizer's own locks are lost in a fork beside a thread that is at work
child = os.fork()
if child == 0:
    status = 1
    try:
        assert _core.cuda_forked() and not _core.cuda_available()
        for call in (lambda: gi.zeros((3,), device="cuda:0"), lambda: gi.zeros(3), x.copy, s.synchronize,
                     s.query, e.record, s.__enter__, lambda: gi.Stream("cuda"),
                     lambda: gi.mem_info(0), lambda: x.tolist(), lambda: s.is_capturing,
                     lambda: x.__dlpack__(), lambda: x.__dlpack__(stream=-1), lambda: x.__cuda_array_interface__,
                     take):
            try:
                call()
            except gi.GpuInteropError as error:
                assert "fork" in str(error) and (call is take or "spawn" in str(error)), error
            else:
                raise AssertionError("no error")
        assert "__cuda_array_interface__" in dir(x)  # which reads no attribute
        del x, s, e
        gc.collect()
        assert gi.ones((3,), device="cpu").tolist() == [1, 1, 1]
        status = 0
    finally:
        sys.stdout.flush()
        os._exit(status) if EXIT else sys.exit(status)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert x.copy().tolist() == [1.0] * 1000
print("fine")
"""


@pytest.mark.parametrize("how", ["os._exit", "sys.exit"])
def test_forked_child_raises_an_error_and_the_parent_continues(fake, how):
    assert run(f"EXIT = {how == 'os._exit'}\n" + FORK, fake).endswith("fine\n")


@pytest.mark.parametrize(
    "body",
    [
        "x + x",
        "gi.from_any(Plain())",
        "refused(lambda: x.reshape(7, 7))",
        *(pytest.param(body, marks=pytest.mark.slow) for body in ("gi.exp(x)", "x.sum()", "x @ x")),
    ],
)
def test_exit_beside_daemon_threads_that_run_python(body):
    """Python code called from the core is where the interpreter ends such a thread."""
    code = f"""
    import threading, time
    import numpy as np
    import gpuinterop as gi

    class Plain:
        kept = np.ones(3, "float32")
        @property
        def __array_interface__(self):
            return self.kept.__array_interface__

    x = gi.ones((100,), device="cpu")

    def refused(call):
        try:
            call()
        except gi.GpuInteropError:
            return
        raise SystemExit("no error")

    def work():
        while True:
            {body}

    {body}
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.2)
    """
    run(code)


# ---- other interpreters -------------------------------------------------------------------------

SECOND_INTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:  # before Python 3.13
    import _xxsubinterpreters as interpreters
import gpuinterop as gi
from gpuinterop import _core

x = gi.ones(3, device="cpu")
other = interpreters.create()
try:
    # From Python 3.13 on what was raised is returned.
    said = interpreters.run_string(other, "import gpuinterop._core")
except Exception as error:
    said = error
assert "ImportError" in str(said) and "interpreter" in str(said), said
interpreters.destroy(other)
assert x.tolist() == [1, 1, 1]
assert isinstance(x, _core.Array)
assert gi.ones(2, device="cpu").tolist() == [1, 1]
"""


def test_second_interpreter_is_refused_and_the_first_continues():
    run(SECOND_INTERPRETER)


def test_a_second_load_gets_the_core_of_the_first():
    run("""
    import importlib.util, sys
    import gpuinterop as gi
    from gpuinterop import _core
    x = gi.ones(3, device="cpu")
    spec = importlib.util.spec_from_file_location("gpuinterop._core", _core.__file__)
    spec.loader.exec_module(again := importlib.util.module_from_spec(spec))
    assert again.Array is _core.Array and again.__doc__ == _core.__doc__
    for name in [name for name in sys.modules if name.startswith("gpuinterop")]:
        del sys.modules[name]
    import gpuinterop
    assert gpuinterop is not gi and isinstance(x, gpuinterop._core.Array)
    assert (x + 1).tolist() == (gpuinterop.ones(3, device="cpu") + x).tolist() == [2, 2, 2]
    try:
        gpuinterop.ones(-1, device="cpu")
    except gpuinterop.GpuInteropError as error:
        assert error.fix
    """)
