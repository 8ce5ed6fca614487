"""How objects and names find their converter."""

import pickle

import pytest

import gpuinterop as gi
from gpuinterop import converters
from gpuinterop.exchange import registry


def test_the_functions_of_a_library_are_kept_and_pickled_by_name():
    for entry in converters.backends():
        for name in (f"to_{entry.name}", f"from_{entry.name}"):
            function = getattr(converters, name)
            assert getattr(converters, name) is function
            assert pickle.loads(pickle.dumps(function)) is function
            assert function.__name__ == name


def test_a_library_of_the_array_api_by_its_own_name():
    xp = pytest.importorskip("array_api_strict")
    x = gi.ones((2, 3), device="cpu")
    assert gi.explain(x, "array_api_strict").shared
    made = gi.to(x, "array_api_strict")
    assert type(made) is type(xp.ones(1))
    assert gi.shares_memory(made, x)
    assert gi.to(x[::-1], "Array_API_Strict", copyif=True).shape == (2, 3)
    if not registry.installed("dpnp"):
        with pytest.raises(gi.MissingLibraryError, match="pip install dpnp"):
            gi.to(x, "dpnp")
        assert gi.explain(x, "dpnp").error is gi.MissingLibraryError


# ---- attributes ---------------------------------------------------------------------------------


class Trap:
    """Answers every name, by code that must not run."""

    def __getattr__(self, name):
        raise AssertionError(name)


def test_no_code_of_an_object_runs_to_recognise_it():
    methods = dict.fromkeys(("__array_namespace__", "__dlpack__"), len)
    assert registry.find_backend(type("Array", (Trap,), methods)()).name == "array_api"
    for obj in (Trap(), Trap, 1, "text", None, len):
        assert registry.find_backend(obj) is None
