"""A converter of another package that returns something else, or does not work, is named and harms no other."""

import sys
import types

import numpy as np
import pytest
from doubles import internals, toy_library
from doubles.toy_library import ToyArray

import gpuinterop as gi
from gpuinterop import converters
from gpuinterop.converters.plan import ArrayInfo, Plan, share


def toy():
    return ToyArray(np.arange(3, dtype=np.float32))


def gpuinterop_array():
    return gi.zeros(3, device="cpu")


@pytest.mark.parametrize(
    ("made", "got"),
    [(None, "None"), (np.ones(3), "array("),
     ("x", "'x'"), ("itself", "ToyArray")],
    ids=["none", "numpy", "text", "itself"],
)  # fmt: skip
def test_from_function_without_a_gpuinterop_array_is_reported(clean, made, got):
    toy_library.register(
        from_toy=lambda obj, copyif=False: (
            obj if isinstance(made, str) and made == "itself" else made
        )
    )
    for ask in (
        gi.from_any,
        gi.asarray,
        lambda obj: gi.to(obj, "numpy"),
        lambda obj: gi.shares_memory(obj, obj),
    ):
        with pytest.raises(gi.ArgumentTypeError, match="converter of 'toy'") as raised:
            ask(toy())
        assert got in raised.value.got


def test_a_to_that_makes_nothing(clean):
    toy_library.register(to_toy=lambda x, copyif=False: None)
    for source in (gpuinterop_array(), np.ones(3)):
        with pytest.raises(gi.ArgumentTypeError, match="to_toy") as raised:
            gi.to(source, "toy")
        assert raised.value.got == "None"


@pytest.mark.parametrize("made", [None, True, "shared"])
@pytest.mark.parametrize(
    ("name", "kind", "ask"),
    [
        ("plan_from", "Plan", lambda: gi.explain(toy())),
        ("plan_to", "Plan", lambda: gi.explain(gpuinterop_array(), "toy")),
    ],
)
def test_a_plan_of_another_type(clean, name, kind, ask, made):
    functions = {name: lambda x, copyif=False: made}
    toy_library.register(**functions)
    with pytest.raises(gi.errors.ArgumentTypeError, match=rf"\(toy\).*{kind} from {name}"):
        ask()


def test_plugin_functions_receive_the_documented_arguments(clean):
    given = []

    def plan_to(info, copyif=False):
        given.append((info, copyif))
        return share("toy", "to_toy")

    toy_library.register(plan_to=plan_to)
    assert isinstance(gi.explain(np.ones((2, 3), ">i4"), "toy", copyif=True), Plan)
    [(info, copyif)] = given
    assert isinstance(info, ArrayInfo)
    assert (info.shape, info.strides, info.dtype, info.device) == (
        (2, 3),
        (12, 4),
        "int32",
        "cpu",
    )
    assert info.c_contiguous
    assert copyif is True


# ---- converters that do not work ----------------------------------------------------------------


class Subclass(np.ndarray):
    pass


def subclass_array():
    return np.ones(3, np.float32).view(Subclass)


@pytest.fixture
def plugin(clean, monkeypatch):
    """An entry point whose module cannot be imported, of a library that is loaded."""

    def load():
        raise ModuleNotFoundError("No module named 'not_installed'")

    point = types.SimpleNamespace(name="mylib", value="mylib.interop", load=load)
    internals.install_entry_points(monkeypatch, point)
    monkeypatch.setitem(sys.modules, "mylib", types.ModuleType("mylib"))


def test_a_plugin_that_cannot_be_imported_is_disabled_with_one_warning(plugin):
    with pytest.warns(RuntimeWarning, match="'mylib' .*not_installed"):
        assert gi.from_any(subclass_array()).tolist() == [1, 1, 1]
    # Once: another warning would be an error here.
    assert gi.explain(subclass_array(), "numpy").shared
    assert gi.from_any(gi.ones(3, device="cpu").__dlpack__()).tolist() == [1, 1, 1]
    with pytest.raises(gi.ConversionTypeError):
        gi.from_any(object())
    findings = [found for found in gi.doctor().findings if found.code == "converter"]
    assert len(findings) == 1
    assert "mylib" in findings[0].text
    assert "not_installed" in findings[0].text


def test_a_plugin_that_cannot_be_imported_is_refused_by_name(plugin):
    for ask in (gi.to, gi.explain):
        with pytest.raises(gi.MissingLibraryError, match=r"mylib[\s\S]*not_installed"):
            ask(gi.ones(3, device="cpu"), "mylib")
    assert not hasattr(converters, "to_mylib")
    assert not hasattr(converters, "from_mylib")
    with pytest.raises(AttributeError, match="not_installed"):
        converters.to_mylib  # noqa: B018


def test_matches_that_raises_disables_the_converter(clean):
    def ask(obj):
        raise KeyError("of its own")

    converters.register(converters.Backend("mylib", "mylib", matches=ask))
    with (
        pytest.raises(gi.ConversionTypeError),
        pytest.warns(RuntimeWarning, match="'mylib'.*matches.*of its own"),
    ):
        gi.from_any(object())
    for _ in range(2):
        assert gi.from_any(subclass_array()).tolist() == [1, 1, 1]
        with pytest.raises(gi.ConversionTypeError, match="none of these"):
            gi.from_any(object())
    converters.register(converters.Backend("mylib", "mylib"))  # repaired
    assert gi.from_any(subclass_array()).tolist() == [1, 1, 1]
    assert not [f for f in gi.doctor().findings if "mylib" in f.text]


@pytest.mark.parametrize(("name", "short"), [("to_toy", "to"), ("from_toy", "from_")])
def test_a_function_that_the_converter_lacks_is_named(clean, name, short):
    toy_library.register(**{short: None})
    assert not hasattr(converters, name)
    with pytest.raises(AttributeError, match=f"define {name} in the converter"):
        getattr(converters, name)
