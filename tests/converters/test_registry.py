"""How objects find their converter, and how other packages add theirs."""

from __future__ import annotations

import gc
import operator
import subprocess
import sys
import threading
import types
import weakref
from importlib import metadata
from unittest import mock

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import cli, converters, inventory
from gpuinterop.converters import absence, presence, registry


def test_recognising_imports_nothing():
    program = """
import sys, numpy
import gpuinterop as gi
from gpuinterop.converters import registry
class Plain: pass
registry.recognise(numpy.ones(3)), registry.recognise(Plain()), registry.recognise([1])
foreign = {"torch", "cupy", "jax", "numba", "pycuda", "tensorflow", "warp", "tvm_ffi", "gnumpy"}
print(sorted(foreign & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"


def test_known_classes_and_their_subclasses():
    class Mine(np.ndarray):
        pass

    assert registry.recognise(np.ones(2)).name == "numpy"
    assert registry.recognise(np.ones(2).view(Mine)).name == "numpy"
    assert registry.recognise(np.float32(3)).name == "numpy"
    assert registry.recognise(gi.from_any(np.ones(2))) is None


def test_a_mock_is_no_array():
    assert registry.recognise(mock.MagicMock()) is None


def test_properties_are_not_run_to_recognise():
    class Trap:
        @property
        def shape(self):
            raise AssertionError("was run")

        _base = mat = gpudata = numpy_array = shape

    assert registry.recognise(Trap()) is None


def test_what_attributes_tell_is_told_of_one_object():
    class Mix:
        pass

    def built(**attributes):
        made = Mix()
        vars(made).update(attributes)
        return made

    like_gnumpy = built(_base=1, shape=(2,), _is_alias_of=None)
    like_pycuda = built(mem_size=8, strides=(4,), dtype="f4", shape=(2,), flags=1, ptr=8)
    assert registry.recognise(like_gnumpy).name == "gnumpy"
    assert registry.recognise(like_pycuda).name == "pycuda"
    assert registry.recognise(Mix()) is None
    host = np.ones(2, np.float32)
    speaks = built(__array_interface__=host.__array_interface__, host=host)
    assert gi.from_any(speaks).tolist() == [1, 1]
    with pytest.raises(gi.ConversionTypeError):
        gi.from_any(Mix())


def test_what_matches_is_asked_of_every_object(clean):
    module = toy_module()
    ours = ToyArray(np.ones(3, np.float32))
    other = ToyArray(None)
    converters.register(
        converters.Backend("toy", "toy", converter=module, matches=lambda obj: obj is ours)
    )
    assert registry.recognise(ours).name == "toy"
    assert registry.recognise(other) is None


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
    module.from_ = lambda obj, copyif=False: obj.tag
    module.matches = lambda obj: isinstance(obj, Tagged) and obj.tag is not None
    return module


def test_what_matches_is_asked_before_a_base_of_a_known_library_is_believed(clean):
    module = tag_module()
    assert gi.from_any(tagged("early")).tolist() == [1, 1, 1]  # not remembered beyond the change
    converters.register(converters.Backend("toy", "toy", converter=module, matches=module.matches))
    for tag in ("first", "second"):
        assert gi.from_any(tagged(tag)) == tag
        assert gi.from_any(tagged(None)).tolist() == [1, 1, 1]


def test_rows_that_match_are_asked_in_the_order_of_their_registration(clean):
    for name in ("toy", "toy2"):
        converters.register(
            converters.Backend(name, name, converter=tag_module(), matches=tag_module().matches)
        )
    assert registry.recognise(tagged(1)).name == "toy"


def test_what_matches_is_not_asked_of_the_very_class_of_a_known_library(clean):
    asked = []
    converters.register(converters.Backend("toy", "toy", matches=asked.append))
    for _ in range(2):
        assert gi.from_any(np.ones(2, np.float32)).tolist() == [1, 1]
        assert registry.recognise(np.ones(2)).name == "numpy"
    assert not asked
    assert registry.recognise(tagged(1)).name == "numpy"
    assert len(asked) == 1


def test_a_plugin_is_asked_of_subclasses_too_once_its_library_is_there(clean, monkeypatch):
    point = types.SimpleNamespace(name="toy", load=tag_module)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
    registry._entry_points = None
    for _ in range(2):
        assert gi.from_any(tagged("ours")).tolist() == [1, 1, 1]
    monkeypatch.setitem(sys.modules, "toy", types.ModuleType("toy"))
    for _ in range(2):
        assert gi.from_any(tagged("ours")) == "ours"


def test_the_memory_of_types_does_not_keep_them_alive():
    def once():
        class Mine(np.ndarray):
            pass

        registry.recognise(np.ones(2).view(Mine))
        return weakref.ref(Mine), id(Mine)

    watch, number = once()
    gc.collect()
    assert watch() is None
    assert number not in registry._of_type


@pytest.fixture
def clean():
    rows, aliases = dict(registry._rows), dict(registry._aliases)
    yield
    registry.register(rows["numpy"])  # as after any change, nothing stays remembered
    for table, saved in ((registry._rows, rows), (registry._aliases, aliases)):
        table.clear()
        table.update(saved)
    registry._entry_points = None
    for name in ("to_toy", "from_toy"):
        vars(converters).pop(name, None)


class ToyArray:
    def __init__(self, host):
        self.host = host


def toy_module():
    module = types.ModuleType("toy_converter")
    module.matches = lambda obj: isinstance(obj, ToyArray)
    module.to = lambda x, copyif=False: ToyArray(converters.to_numpy(x))
    module.from_ = lambda obj, copyif=False: converters.from_numpy(obj.host)
    return module


def test_a_row_makes_a_converter(clean):
    module = toy_module()
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
    assert "has no plan_to" in str(plan)
    assert str(plan).startswith("to_toy: unknown")
    assert cli.main(["explain", "--to", "toy", "--device", "cpu"]) == 3


def test_a_converter_under_a_known_name_replaces_every_door(clean):
    x = converters.from_numpy(np.ones(2, np.float32))  # the functions of before are in use
    converters.to_numpy(x)
    mine = types.ModuleType("my_numpy")
    mine.to_numpy = lambda x, copyif=False: "to mine"
    mine.from_numpy = lambda obj, copyif=False: "from mine"
    row = converters.Backend("numpy", "numpy", ("ndarray", "generic"), converter=mine)
    converters.register(row)
    host = np.ones(2, np.float32)
    assert converters.from_any(host) == "from mine"
    assert converters.from_numpy(host) == "from mine"
    assert converters.to(x, "numpy") == "to mine"
    assert converters.to_numpy(x) == "to mine"


def test_a_converter_replaced_while_an_object_is_looked_at_is_forgotten(clean, monkeypatch):
    looking, go_on = threading.Event(), threading.Event()
    is_class_of = registry._is_class_of
    monkeypatch.setattr(ToyArray, "__module__", "toy.arrays")
    old, new = (
        converters.Backend("toy", "toy", ("ToyArray",), converter=toy_module()) for _ in range(2)
    )

    def slow(row, cls):
        answer = is_class_of(row, cls)
        if row is old:
            looking.set()
            assert go_on.wait(30)
        return answer

    monkeypatch.setattr(registry, "_is_class_of", slow)
    toy = ToyArray(np.ones(3, np.float32))
    found = []
    converters.register(old)
    thread = threading.Thread(target=lambda: found.append(registry.recognise(toy)))
    thread.start()
    assert looking.wait(30)
    converters.register(new)
    go_on.set()
    thread.join()
    assert found == [old]
    assert registry.recognise(toy) is new


def test_a_name_of_a_library_takes_no_function_of_the_package(clean):
    from_any = converters.from_any
    for _ in range(2):
        converters.register(converters.Backend("any", "any", converter=toy_module()))
    assert converters.from_any is from_any


def test_an_entry_point_makes_a_converter(clean, monkeypatch):
    module = toy_module()
    loads = []

    class Point:
        name = "toy"

        @staticmethod
        def load():
            loads.append(1)
            return module

    monkeypatch.setattr(metadata, "entry_points", lambda group: [Point] if group else [])
    registry._entry_points = None
    assert "toy" in converters.names()
    toy = ToyArray(np.ones(3, np.float32))
    with pytest.raises(gi.ConversionTypeError):
        gi.from_any(toy)
    assert loads == []  # its library is not loaded, so the object cannot be its own
    monkeypatch.setitem(sys.modules, "toy", types.ModuleType("toy"))
    assert gi.from_any(toy).tolist() == [1, 1, 1]
    assert gi.to(gi.from_any(toy), "toy").host.shape == (3,)
    assert loads == [1]


def test_an_entry_point_may_be_a_row(clean, monkeypatch):
    module = toy_module()
    row = converters.Backend("toy", "toy", ("ToyArray",), converter=module)

    class Point:
        name = "toy"

        @staticmethod
        def load():
            return row

    monkeypatch.setattr(metadata, "entry_points", lambda group: [Point] if group else [])
    monkeypatch.setattr(ToyArray, "__module__", "toy.arrays")
    monkeypatch.setitem(sys.modules, "toy", types.ModuleType("toy"))
    registry._entry_points = None
    toy = ToyArray(np.ones(3, np.float32))
    assert gi.from_any(toy).tolist() == [1, 1, 1]  # also the first time, by the class's name


def test_a_converter_that_cannot_plan_or_describe(clean):
    module = toy_module()
    converters.register(converters.Backend("toy", "toy", converter=module, matches=module.matches))
    toy = ToyArray(np.ones(3, np.float32))
    x = gi.from_any(toy)
    assert gi.explain(toy).shared
    assert gi.shares_memory(toy, x)
    assert not gi.shares_memory(toy, x.copy())
    packed = np.zeros(3, [("tag", "u1"), ("value", "f4")])["value"]
    assert gi.explain(ToyArray(packed)).code == "alignment"


@pytest.mark.parametrize("by_name", [False, True])
def test_a_row_is_asked_by_the_test_of_its_module(clean, monkeypatch, by_name):
    module = toy_module()
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
    module = toy_module()
    del module.matches
    monkeypatch.setattr(ToyArray, "__module__", "toy.arrays")
    converters.register(converters.Backend("toy", "toy", (name,), converter=module))
    assert gi.from_any(ToyArray(np.ones(3, np.float32))).tolist() == [1, 1, 1]
    converters.register(converters.Backend("toy", "toy", ("other.ToyArray",), converter=module))
    with pytest.raises(gi.ConversionTypeError):
        gi.from_any(ToyArray(np.ones(3, np.float32)))


def test_only_rows_are_registered():
    with pytest.raises(gi.ArgumentTypeError, match="Backend") as error:
        converters.register(3)
    assert error.value.got == "3"


@pytest.mark.parametrize(("point", "asked"), [("toy", "Toy"), ("Toy", "toy"), ("Toy", "TOY")])
def test_an_entry_point_is_found_in_capitals_or_not(clean, monkeypatch, point, asked):
    entry = types.SimpleNamespace(name=point, load=toy_module)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry])
    registry._entry_points = None
    x = gi.ones(3, device="cpu")
    for _ in range(2):  # before it is loaded, and after
        assert np.shares_memory(gi.to(x, asked).host, gi.to(x, "numpy"))


@pytest.mark.parametrize("name", ["np", "NumPy", "numpy", "NUMPY"])
def test_capitals_do_not_matter(name):
    assert isinstance(gi.to(gi.zeros(3, device="cpu"), name), np.ndarray)


@pytest.mark.parametrize("call", ["to", "explain"])
def test_a_misspelt_library_is_answered_with_the_nearest(call):
    with pytest.raises(gi.ConversionTypeError) as error:
        getattr(gi, call)(gi.zeros(3, device="cpu"), "PyTorsh")
    assert error.value.where == f"gpuinterop.{call}"
    assert error.value.expected.startswith("the name of a library: torch, numpy, ")
    assert error.value.fix == "write 'torch'"


def test_unknown_objects_list_the_protocols():
    with pytest.raises(gi.ConversionTypeError, match="__cuda_array_interface__"):
        gi.from_any(object())
    with pytest.raises(ValueError):
        gi.from_any("text")


def test_every_row_has_its_file():
    for row in converters.backends():
        for name in (f"to_{row.name}", f"from_{row.name}", "plan_to", "plan_from", "describe"):
            assert callable(getattr(row.module, name)), (row.name, name)
        assert getattr(converters, f"to_{row.name}") is row.to
        assert getattr(converters, f"from_{row.name}") is row.from_


def test_missing_libraries_name_the_package():
    x = gi.from_any(np.asfortranarray(np.ones((2, 3), np.float32)))
    with pytest.raises(gi.MissingLibraryError, match="ported to Python 3"):
        converters.to_cudamat(x)
    with pytest.raises(ImportError):
        converters.to_gnumpy(x.T)


BROKEN = {
    "gnumpy": ("print 'Python 2'\n", "SyntaxError", "ported to Python 3"),
    "warp": ("raise ImportError('libwarp.so.1: no such file')\n", "libwarp", "warp-lang"),
    "tensorflow": ("import module_that_nobody_has\n", "module_that_nobody_has", "tensorflow"),
}


@pytest.fixture
def broken(tmp_path, monkeypatch, request):
    """A library that is installed and cannot be imported."""
    name = request.param
    monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / f"{name}.py").write_text(BROKEN[name][0])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(presence, "_AT_ONCE", 0)
    yield name
    presence._found.discard(name)
    absence._failures.clear()


@pytest.mark.parametrize("broken", BROKEN, indirect=True)
def test_a_library_that_is_installed_but_broken_says_so(broken):
    x = gi.ones((2, 3), device="cpu")
    told, fix = BROKEN[broken][1:]
    plan = gi.explain(x, broken)
    assert plan.refused
    with pytest.raises(gi.MissingLibraryError, match="which is installed, to be imported") as error:
        gi.to(x, broken)
    assert told in error.value.got
    assert fix in error.value.fix
    assert "pip install gnumpy" not in error.value.fix
    assert (plan.error, plan.got, plan.fix) == (type(error.value), error.value.got, error.value.fix)
    report = gi.doctor()
    assert any(told in finding.text and broken in finding.text for finding in report.warnings)
    assert not report.ok


@pytest.mark.parametrize("broken", BROKEN, indirect=True)
def test_the_demo_goes_on_without_a_broken_library(broken, capsys):
    assert cli.main(["demo", "--device", "cpu", "--only", f"numpy,{broken}"]) == 0
    text = capsys.readouterr().out
    assert BROKEN[broken][1] in text
    assert "left out" in text
    assert "4 shared" in text


def test_a_module_of_one_file_for_python_2_is_seen_without_importing_it(tmp_path, monkeypatch):
    (tmp_path / "gnumpy.py").write_text("print 'Python 2'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    metadata_of = types.SimpleNamespace(metadata={"Name": "gnumpy", "Version": "0.2"})
    (row,) = inventory.scan([metadata_of])
    assert "SyntaxError" in row.broken
    (tmp_path / "gnumpy.py").write_text("garray = None\n")
    assert inventory.scan([metadata_of])[0].broken == ""


def test_a_library_of_the_array_api_by_its_own_name():
    xp = pytest.importorskip("array_api_strict")
    x = gi.ones((2, 3), device="cpu")
    assert gi.explain(x, "array_api_strict").shared
    made = gi.to(x, "array_api_strict")
    assert type(made) is type(xp.ones(1))
    assert gi.shares_memory(made, x)
    assert gi.to(x[::-1], "Array_API_Strict", copyif=True).shape == (2, 3)
    assert cli.main(["explain", "--to", "array_api_strict", "--device", "cpu"]) == 0
    if not registry.installed("dpnp"):
        with pytest.raises(gi.MissingLibraryError, match="pip install dpnp"):
            gi.to(x, "dpnp")
        assert gi.explain(x, "dpnp").error is gi.MissingLibraryError


@pytest.mark.parametrize("word", ["copy", "copfi", "copyfi"])
def test_a_misspelt_option_is_answered_with_the_nearest(word):
    x = gi.ones(3, device="cpu")
    for call in (gi.to, gi.explain):
        with pytest.raises(gi.ArgumentTypeError) as error:
            call(x, "torch", **{word: True})
        assert error.value.expected == "options among copyif, allow_readonly"
        assert error.value.fix == "write copyif=..., or leave it out"
    with pytest.raises(gi.ArgumentTypeError) as error:
        gi.to(x, "torch", readonly=True)
    assert error.value.expected == "options among allow_readonly, copyif"


def test_a_library_that_is_installed_later_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(presence, "_AT_ONCE", 0)
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


def test_a_bare_folder_is_no_library(tmp_path, monkeypatch):
    monkeypatch.setattr(presence, "_AT_ONCE", 0)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "gpuinterop_test_of_bare_folders"
    (tmp_path / name).mkdir()
    assert not registry.installed(name)


def test_a_missing_library_is_not_looked_for_again_and_again(monkeypatch):
    x = gi.from_any(np.ones((2, 3), np.float32))
    looks = []

    class Finder:
        def find_spec(self, name, *more):
            looks.append(name)

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    for _ in range(5):
        with pytest.raises(gi.MissingLibraryError, match="gnumpy of PyPI"):
            converters.to_gnumpy(x)
    assert looks.count("gnumpy") <= 1


def test_attributes():
    assert converters.pycuda.init.__name__ == "init"
    with pytest.raises(AttributeError, match="to_nothing"):
        operator.attrgetter("to_nothing")(converters)
