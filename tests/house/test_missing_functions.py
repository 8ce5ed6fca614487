"""docs/not-here.md names the functions of NumPy that gpuinterop does not compute: all of them, and no others."""

import re

import numpy as np
import pytest
from pages import ROOT

import gpuinterop as gi


def listed() -> set[str]:
    """The names in the first column of the page's first table."""
    text = (ROOT / "docs" / "not-here.md").read_text(encoding="utf-8")
    table = text.partition("## NumPy's functions")[2].partition("## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \|", table, flags=re.M)
    return {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}


# Names that NumPy had before 2.5.
OLD = {"in1d", "trapz", "row_stack"}


def functions() -> dict[str, object]:
    """NumPy's functions that another library's array can take over, and its ufuncs."""
    found = {}
    for prefix, module in (("", np), ("linalg.", np.linalg), ("fft.", np.fft)):
        for name in set(dir(module)) - OLD:
            function = getattr(module, name)
            if hasattr(function, "_implementation") or isinstance(function, np.ufunc):
                found[prefix + name] = function
    return found


def is_missing(function) -> bool:
    x = gi.asarray([1, 2], dtype="int32", device="cpu")
    try:
        if isinstance(function, np.ufunc):
            x.__array_ufunc__(function, "__call__", *[x] * function.nin)
        else:
            x.__array_function__(function, (type(x),), (x,), {})
    except gi.ArgumentTypeError as error:
        return "a function that gpuinterop computes" in error.expected
    except (TypeError, ValueError, IndexError):
        pass  # it wants other arguments
    return False


def test_the_page_lists_the_missing_functions():
    missing = {name for name, function in functions().items() if is_missing(function)}
    names, page = functions(), listed()
    # Some names are not in every version of NumPy.
    assert sorted(missing - page) == []
    assert sorted(name for name in page - missing if name in names) == []


@pytest.mark.parametrize("name", ["cumsum", "real", "sort", "numpy", "clone"])
def test_error_for_a_missing_attribute_suggests_a_replacement(name):
    x = gi.zeros(3, device="cpu")
    for owner in (x, type(x), gi.GpuArray([1], device="cpu")):
        with pytest.raises(gi.MissingNameError, match=f"x.{name}: ") as caught:
            getattr(owner, name)
        assert "not-here.md" in caught.value.fix
        assert not hasattr(owner, name)
    assert name not in dir(x)


TORCH = (
    "clone contiguous detach double expand float half int long numpy permute to unsqueeze".split()
)


@pytest.mark.parametrize("name", [*TORCH, "sort", "real", "cumsum", "mT", "trace"])
def test_the_call_for_an_absent_attribute_runs(name):
    x = gi.zeros((3, 3), device="cpu")
    with pytest.raises(gi.MissingNameError) as caught:
        getattr(x, name)
    call = caught.value.fix.partition(", or ")[0].removeprefix("write ")
    names = {"x": x, "numpy": np, "shape": (2, 3, 3)}
    assert np.size(eval(call.partition(" or ")[2] or call, names)) >= 1


def test_a_subclass_may_define_an_absent_attribute():
    class Sub(gi.CudaNdarray):
        def sort(self):
            return "sorted"

    s = Sub([1], device="cpu")
    s.real = 3
    assert (s.sort(), s.real) == ("sorted", 3)


def test_error_for_a_missing_name_suggests_a_replacement():
    with pytest.raises(gi.MissingNameError, match=r"gpuinterop\.sort: ") as caught:
        getattr(gi, "sort")  # noqa: B009
    assert (caught.value.name, caught.value.obj) == ("sort", gi)
    assert not hasattr(gi, "__wrapped__")
    assert getattr(gi, "tensor", None) is None


@pytest.mark.parametrize("name", ["trace", "isclose"])
def test_an_absent_function_that_numpy_computes_is_named(name):
    x = gi.ones((2, 2), device="cpu")
    with pytest.raises(gi.MissingNameError) as caught:
        getattr(gi, name)
    assert f", or numpy.{name}(x) if" in caught.value.fix
    arguments = (x,) if name == "trace" else (x, x)
    assert isinstance(getattr(np, name)(*arguments), gi.CudaNdarray | gi.GpuArray)


@pytest.mark.parametrize("name", ["to_torch", "from_numpy", "float32", "finfo"])
def test_a_name_of_another_package_is_written_with_its_package(name):
    with pytest.raises(gi.MissingNameError, match="fix: write ") as caught:
        getattr(gi, name)
    call = caught.value.fix.removeprefix("write ").partition(", or ")[0]
    assert eval(call, {"gpuinterop": gi, "numpy": np}).__name__ == name


def test_python_can_suggest_the_name_of_a_misspelled_converter():
    with pytest.raises(AttributeError) as caught:
        getattr(gi.converters, "to_tourch")  # noqa: B009
    assert (caught.value.name, caught.value.obj) == ("to_tourch", gi.converters)
