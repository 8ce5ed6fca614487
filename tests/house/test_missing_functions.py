"""docs/not-here.md names the functions of NumPy that gpuinterop does not compute: all of them, and no others."""

import re

import numpy as np
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
