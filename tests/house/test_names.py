"""The names at the top level: all of them resolve, and none is hidden by a module of the same name."""

import importlib
import inspect
import pickle
import pydoc
from types import ModuleType

import pytest
from doubles import driver

import gpuinterop as gi
from gpuinterop import converters, errors, testing


@pytest.mark.parametrize("name", gi.__all__)
def test_name_resolves(name):
    value = getattr(gi, name)
    assert name == "__version__" or (callable(value) and inspect.getdoc(value))
    assert name in dir(gi)


def test_dir_shows_nothing_else():
    extra = {n for n in dir(gi) if not n.startswith("__")} - set(gi.__all__)
    modules = "array_api collectives converters fft linalg random testing theano"
    assert extra == set(modules.split())
    assert set(errors.__all__) <= set(gi.__all__)


@pytest.mark.parametrize("module", [converters, testing])
def test_dir_lists_the_public_names(module):
    shown = {name for name in dir(module) if not name.startswith("__")}
    converting = {f"{way}_{name}" for name in converters.names() for way in ("to", "from")}
    assert shown == {*module.__all__} | (converting if module is converters else set())


@pytest.mark.parametrize(
    "before", ["", "import gpuinterop.devices", "gi.CudaNdarray", "gi.zeros(2)"]
)
def test_function_and_module_of_one_name(before):
    code = f"import gpuinterop as gi\n{before}\nprint(*gi.devices(), gi.devices.__name__)"
    assert driver.run(code).split()[-1] == "gpuinterop.devices"
    assert isinstance(gi.devices, ModuleType)


@pytest.mark.parametrize("name", ["devices", "doctor"])
def test_help_covers_the_function_and_the_module(name):
    module = getattr(gi, name)
    assert inspect.signature(module) == inspect.signature(getattr(module, name))
    first, *rest = pydoc.render_doc(module, renderer=pydoc.plaintext).split("\n\n")[1:]
    # The name and the first line: how it is called.
    assert f"gpuinterop.{name}(" in first
    function = getattr(module, name).__doc__.partition("\n")[0]
    assert any(function in part for part in rest)


def test_everything_can_be_imported_by_star():
    driver.run("from gpuinterop import *; zeros(3); devices()")


# A name of each module that moved, by which earlier versions pickled it, and where it is today.
EARLIER = {
    "copy_tracking CopyCount": "arrays.copy_tracking",
    "device_spec Device": "",
    "installed_libraries Installed": "exchange.package_versions",
    "pinned pinned_empty": "",
    "sharing explain": "",
    "streams Stream": "",
    "converters.library_streams stream": "",
    "converters.registry Backend": "exchange.registry",
    "ops exp": "",
    "ops.capture Capture": "",
    "ops.concat_split stack": "",
    "ops.cuda_text CudaText": "",
    "ops.elementwise_kernel ElementwiseKernel": "",
    "ops.equality allclose": "",
    "ops.expression Expression": "",
    "ops.functions clip": "",
    "ops.fuse fuse": "",
    "ops.index_functions take": "",
    "ops.raw_kernel RawKernel": "",
    "ops.reductions sum": "",
}


@pytest.mark.parametrize("earlier", EARLIER)
def test_pickles_of_modules_that_moved_load(earlier):
    module, _, name = earlier.partition(" ")
    home = importlib.import_module(f"gpuinterop.{EARLIER[earlier]}".rstrip("."))
    assert pickle.loads(f"cgpuinterop.{module}\n{name}\n.".encode()) is getattr(home, name)
