"""Converters of other packages: registered, found by entry points, called and replaced."""

import importlib
import sys
import types
from importlib import metadata

import numpy as np
import pytest
from doubles import internals, toy_library
from doubles.toy_library import ToyArray

import gpuinterop as gi
from gpuinterop import cli, converters
from gpuinterop.converters.plan import ArrayInfo, c_strides


@pytest.fixture
def entry_point(clean, monkeypatch):
    """Makes an entry point the only one that is installed."""

    def install(point):
        internals.install_entry_points(monkeypatch, point)

    return install


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (2, 0, 3), (0, 1)])
def test_strides_for_a_converter_are_those_of_a_new_array(shape):
    assert c_strides(shape, 4) == gi.zeros(shape, device="cpu").strides


class Tagged(np.ndarray):
    """A subclass of another library's class, as pint and astropy have."""

    tag = None


def tagged(tag):
    made = np.ones(3, np.float32).view(Tagged)
    made.tag = tag
    return made


def tag_module():
    module = types.ModuleType("toy_converter")
    module.to = lambda x, copyif=False: converters.to_numpy(x).view(Tagged)
    module.from_ = lambda obj, copyif=False: converters.from_numpy(np.full(1, len(obj.tag), "i8"))
    module.matches = lambda obj: isinstance(obj, Tagged) and obj.tag is not None
    return module


def test_matches_is_called_before_a_known_base_class_decides(clean):
    module = tag_module()
    assert gi.from_any(tagged("early")).tolist() == [1, 1, 1]  # not remembered beyond the change
    converters.register(converters.Backend("toy", "toy", converter=module, matches=module.matches))
    for tag in ("first", "second"):
        assert gi.from_any(tagged(tag)).tolist() == [len(tag)]
        assert gi.from_any(tagged(None)).tolist() == [1, 1, 1]


def test_plugin_handles_subclasses_once_its_library_is_imported(entry_point, monkeypatch):
    point = types.SimpleNamespace(name="toy", load=tag_module)
    entry_point(point)
    for _ in range(2):
        assert gi.from_any(tagged("late")).tolist() == [1, 1, 1]
    monkeypatch.setitem(sys.modules, "toy", types.ModuleType("toy"))
    for _ in range(2):
        assert gi.from_any(tagged("late")).tolist() == [4]


def test_a_registered_entry_makes_a_converter(clean):
    module = toy_library.converter()
    converters.register(
        converters.Backend("toy", "toy", converter=module, matches=module.matches, aliases=("t",))
    )
    x = gi.from_any(ToyArray(np.arange(3, dtype=np.float32)))
    assert x.tolist() == [0, 1, 2]
    assert np.shares_memory(gi.to(x, "t").host, gi.to(x, "numpy"))
    assert converters.to_toy(x).host.shape == (3,)
    assert "to_toy" in dir(converters)
    plan = gi.explain(x, "toy")  # it cannot plan, and says so
    assert plan.unknown
    assert not any([plan.shared, plan.copied, plan.refused])
    assert "plan_to" in str(plan)
    assert str(plan).startswith("to_toy: unknown")
    assert cli.main(["explain", "--to", "toy", "--device", "cpu"]) == 3


def test_describe_of_a_plugin_replaces_the_trial_conversion(clean):
    made = []

    def from_toy(obj, copyif=False):
        made.append(obj)
        return gi.from_any(obj.host, copyif)

    def describe(obj):
        host = obj.host
        return ArrayInfo(host.shape, host.strides, "float32", 4, "cpu", ptr=host.ctypes.data)

    toy_library.register(from_toy=from_toy, describe=describe)
    host = np.ones((3, 4), np.float32)
    toy = ToyArray(host[::2])
    assert gi.explain(toy, "numpy").shared
    assert gi.explain(ToyArray(host[:, ::-1]), "buffer", copyif=True).copied
    assert gi.shares_memory(toy, host)
    assert not gi.shares_memory(toy, host[1])
    assert made == []
    assert np.shares_memory(gi.to(toy, "numpy"), host)
    assert made == [toy]
    toy_library.register(from_toy=from_toy, describe=lambda obj: host)
    with pytest.raises(gi.ArgumentTypeError, match="ArrayInfo"):
        gi.explain(toy)
    with pytest.raises(gi.ArgumentTypeError, match="ArrayInfo"):
        gi.shares_memory(toy, host)


def test_converter_under_a_known_name_replaces_every_entry_point(clean):
    x = converters.from_numpy(np.ones(2, np.float32))  # the functions of before are in use
    converters.to_numpy(x)
    replacement = types.ModuleType("my_numpy")
    replacement.to_numpy = lambda x, copyif=False: "replaced"
    imported = gi.zeros(5, device="cpu")
    replacement.from_numpy = lambda obj, copyif=False: imported
    row = converters.Backend("numpy", "numpy", ("ndarray", "generic"), converter=replacement)
    converters.register(row)
    host = np.ones(2, np.float32)
    assert converters.from_any(host) is imported
    assert converters.from_numpy(host) is imported
    assert converters.to(x, "numpy") == "replaced"
    assert converters.to_numpy(x) == "replaced"


def test_an_entry_point_makes_a_converter(entry_point, monkeypatch):
    module = toy_library.converter()
    loads = []
    point = types.SimpleNamespace(name="toy", load=lambda: loads.append(1) or module)
    entry_point(point)
    assert "toy" in converters.names()
    toy = ToyArray(np.ones(3, np.float32))
    with pytest.raises(gi.ConversionTypeError):
        gi.from_any(toy)
    assert loads == []  # its library is not loaded, so the object cannot be its own
    monkeypatch.setitem(sys.modules, "toy", types.ModuleType("toy"))
    assert gi.from_any(toy).tolist() == [1, 1, 1]
    assert gi.to(gi.from_any(toy), "toy").host.shape == (3,)
    assert loads == [1]


@pytest.mark.parametrize("by_name", [False, True])
def test_backend_uses_the_matches_function_of_its_module(clean, monkeypatch, by_name):
    module = toy_library.converter()
    monkeypatch.setitem(sys.modules, "toy_converter", module)
    converters.register(
        converters.Backend("toy", "toy", converter="toy_converter" if by_name else module)
    )
    toy = ToyArray(np.ones(3, np.float32))
    if by_name:
        with pytest.raises(gi.ConversionTypeError):
            gi.from_any(toy)  # its library is not there, so the object cannot be its own
        monkeypatch.setitem(sys.modules, "toy", types.ModuleType("toy"))
    assert gi.from_any(toy).tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["ToyArray", "toy.ToyArray", "toy.arrays.ToyArray"])
def test_classes_are_named_with_or_without_their_module(clean, monkeypatch, name):
    module = toy_library.converter()
    del module.matches
    monkeypatch.setattr(ToyArray, "__module__", "toy.arrays")
    converters.register(converters.Backend("toy", "toy", (name,), converter=module))
    assert gi.from_any(ToyArray(np.ones(3, np.float32))).tolist() == [1, 1, 1]
    converters.register(converters.Backend("toy", "toy", ("other.ToyArray",), converter=module))
    with pytest.raises(gi.ConversionTypeError):
        gi.from_any(ToyArray(np.ones(3, np.float32)))


@pytest.mark.parametrize("asked", ["mylib", "ML", "ml"])
def test_an_entry_is_found_in_capitals_or_not(clean, asked):
    converters.register(
        converters.Backend("MyLib", "toy", converter=toy_library.converter(), aliases=("ML",))
    )
    x = gi.ones(3, device="cpu")
    assert np.shares_memory(gi.to(x, asked).host, gi.to(x, "numpy"))
    assert gi.explain(x, asked).unknown


LIBRARY = """
import numpy, gpuinterop
# Something that the package converts while it is imported.
ONE = gpuinterop.from_any(numpy.ones(1, "float32").view(type("Sub", (numpy.ndarray,), {})))

class Array:
    def __init__(self, host):
        self.host = host
"""
INTEROP = """
import gpuinterop
from converts_at_import import Array
matches = lambda obj: isinstance(obj, Array)
from_ = lambda obj, copyif=False: gpuinterop.from_any(obj.host, copyif)
to = lambda x, copyif=False: Array(gpuinterop.to(x, "numpy", copyif))
"""


def test_a_package_may_convert_while_it_is_imported(entry_point, monkeypatch, tmp_path):
    name = "converts_at_import"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(LIBRARY)
    (tmp_path / name / "interop.py").write_text(INTEROP)
    monkeypatch.syspath_prepend(str(tmp_path))
    point = metadata.EntryPoint(name, f"{name}.interop", "gpuinterop.converters")
    entry_point(point)
    library = importlib.import_module(name)  # a warning would be an error here
    try:
        obj = library.Array(np.ones(3, np.float32))
        assert gi.from_any(obj).tolist() == [1, 1, 1]
        assert isinstance(gi.to(gi.ones(3, device="cpu"), name), library.Array)
    finally:
        sys.modules.pop(name), sys.modules.pop(f"{name}.interop")


@pytest.mark.parametrize(
    "arguments", [{"name": ""}, {"name": None}, {"types": "Array"}, {"aliases": (1,)}]
)
def test_a_backend_with_wrong_arguments_is_refused(clean, arguments):
    row = converters.Backend(**{"name": "toy", "package": "toy", **arguments})
    with pytest.raises(gi.ArgumentTypeError, match="mylib"):
        converters.register(row)
    assert "toy" not in [entry.name for entry in converters.backends()]
    with pytest.raises(gi.ArgumentTypeError, match="Backend"):
        converters.register(3)


@pytest.mark.parametrize("converter", ["", "no_module_of_this_name", "no_module.of_this_name"])
def test_backend_without_its_module_raises_an_error(clean, converter):
    converters.register(converters.Backend("toy", "toy", converter=converter))
    for ask in (gi.to, gi.explain):
        with pytest.raises(gi.MissingLibraryError, match="No module named") as raised:
            ask(gi.ones(3, device="cpu"), "toy")
        assert "toy" in raised.value.where
        assert "converter='mylib.interop'" in raised.value.fix
