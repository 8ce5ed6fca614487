"""The first use in a process: any function may come first, and imports in progress are waited for."""

import sys
import threading
import time
import types

import pytest
from doubles import driver

from gpuinterop import _core, converters
from gpuinterop.devices import foreign_handles
from gpuinterop.exchange import library_streams, registry

FIRST = [
    *(
        (f"type(x := {entry_point}).__name__ == 'CudaNdarray' and (x + 1).tolist() == [2, 2, 2]")
        for entry_point in (
            "gi.from_any(a)",
            "gi.asarray(a, device='cpu')",
            "gi.from_dlpack(a)",
            "gi.to_cudandarray(a)",
            "gi.converters.from_numpy(a)",
            "gi.converters.from_buffer(memoryview(a))",
        )
    ),
    "gi.exp(0.0) == 1",
    "gi.add(1, 2) == 3",
    "gi.multiply(a, 3)[0] == 3",
    "gi.fuse(lambda x: x + 1)(a)[0] == 2",
    "gi.pinned_empty(3).shape[0] == 3",
    "pickle.loads(pickle.dumps(gi.exp))(0.0) == 1",
]


@pytest.mark.parametrize("claim", FIRST)
def test_any_function_may_be_called_first_in_a_process(claim):
    imports = "import pickle, numpy as np, gpuinterop as gi\na = np.ones(3, 'float32')\n"
    driver.run(f"{imports}assert {claim}\n")


# ---- imports in progress ------------------------------------------------------------------------


SLOW = "import time\ntime.sleep(0.3)\ncomplete = True\n"


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """The name of a module whose import another thread has begun."""
    name = f"slow_to_import_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SLOW)
    monkeypatch.syspath_prepend(str(tmp_path))
    thread = threading.Thread(target=__import__, args=(name,))
    thread.start()
    end = time.monotonic() + 10
    while name not in sys.modules and time.monotonic() < end:
        time.sleep(0.001)
    assert foreign_handles.is_being_imported(name)
    yield name
    thread.join()
    sys.modules.pop(name, None)


def test_loaded_module_is_complete(slow):
    assert foreign_handles.loaded_module(slow).complete
    assert not foreign_handles.is_being_imported(slow)
    assert foreign_handles.loaded_module("nobody_has_a_module_of_this_name") is None


def test_a_conversion_waits(slow):
    assert registry.import_package(registry.Backend(slow, slow), slow, "here").complete


def test_a_stream_is_not_entered_in_half_a_library(slow, monkeypatch):
    entered = []
    monkeypatch.setitem(
        library_streams.ENTERS, slow, lambda module, *_: entered.append(module.complete) or []
    )
    stream = types.SimpleNamespace(
        device=types.SimpleNamespace(type="cuda", index=0), handle=library_streams.LEGACY
    )
    for name in list(library_streams.ENTERS):
        if name != slow:
            monkeypatch.delitem(library_streams.ENTERS, name)
    library_streams.changes_in_libraries(stream)
    assert entered == [True]


@pytest.mark.parametrize("library", ["torch", "jax", "tvm_ffi", "array_api_strict"])
def test_the_first_conversion_may_come_from_several_threads_at_once(library):
    pytest.importorskip(library)
    program = (
        "import threading, gpuinterop as gi\n"
        "x = gi.zeros((3, 4), device='cpu')\n"
        "start, made = threading.Barrier(4), []\n"
        "def convert():\n"
        "    start.wait()\n"
        f"    made.append(gi.to(x, {library!r}))\n"
        "threads = [threading.Thread(target=convert) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert len(made) == 4\n"
    )
    done = driver.python("-c", program)
    assert done.returncode == 0, done.stderr


def test_a_library_that_is_installed_later_is_seen(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "gpuinterop_test_of_late_packages"
    assert not registry.installed(name)
    assert not registry.installed(name)
    (tmp_path / f"{name}.py").touch()
    assert registry.installed(name)
    assert name not in sys.modules
    later, other = tmp_path / "later", name + "_2"
    later.mkdir()
    (later / f"{other}.py").touch()
    assert not registry.installed(other)
    monkeypatch.syspath_prepend(str(later))
    assert registry.installed(other)


def test_the_decorators_take_one_function():
    def stranger(x):
        return x

    assert _core.imports()(stranger)(3) == 3
    assert _core.exports("a library")(stranger)(3) == 3
    for wrong in ((), (stranger, stranger)):
        with pytest.raises(TypeError):
            _core.imports()(*wrong)
    with pytest.raises(TypeError):
        type(converters.from_any)()
