"""downloads("refuse"): what counts as a hidden download of an array on a GPU, in which threads, for how long."""

import io
import math
import pickle
import warnings

import numpy as np
import pytest
from doubles import driver
from helpers.threads import in_thread

import gpuinterop as gi

# By which NumPy would compute on the host.
HIDDEN = {
    "numpy.asarray": np.asarray,
    "numpy.array": np.array,
    "numpy.asarray with a dtype": lambda x: np.asarray(x, "float64"),
    "an assignment to a NumPy array": lambda x: np.zeros(3).__setitem__(slice(None), x),
    "a comparison of numpy.testing": lambda x: np.testing.assert_allclose(np.zeros(3), x),
}
# Which name the host, or ask for Python's values.
EXPLICIT = {
    "get": lambda x: x.get(),
    "to_device": lambda x: x.to_device("cpu"),
    "to": lambda x: gi.to(x, "numpy", copyif=True),
    "tolist": lambda x: x.tolist(),
    "float": lambda x: float(x[0]),
    "int": lambda x: int(x[0]),
    "if": lambda x: bool(x[0] > 0),
    "math": lambda x: math.sqrt(x[0]),
    "item": lambda x: x.item(1),
    "print": str,
    "repr": repr,
    "format": lambda x: f"{x[0]:.2f}",
    "tobytes": lambda x: x.tobytes(),
    "pickle": pickle.dumps,
    "numpy.save": lambda x: np.save(io.BytesIO(), x),
    "iteration": lambda x: [v * 2 for v in x],
    "sum": lambda x: np.sum(x) + x.max(),
}


@pytest.fixture
def x():
    return gi.ones(3, device="cuda")


@pytest.mark.driver
@pytest.mark.parametrize("way", HIDDEN)
def test_hidden_downloads_are_refused(x, way):
    raises = pytest.raises(gi.CopyForbiddenError)
    with gi.downloads("refuse"), gi.log_transfers() as log, raises as error:
        HIDDEN[way](x)
    assert not log
    assert "x.get()" in error.value.fix
    HIDDEN[way](x) if way != "a comparison of numpy.testing" else None


@pytest.mark.driver
@pytest.mark.parametrize("way", EXPLICIT)
def test_explicit_downloads_are_allowed(x, way):
    with gi.downloads("refuse"):
        EXPLICIT[way](x)


@pytest.mark.parametrize("name", ["downloads", "no_copies", "count_copies", "log_transfers"])
def test_a_scope_prints_as_its_call(name):
    call = f"gpuinterop.{name}({repr('allow') if name == 'downloads' else ''})"
    assert repr(eval(call, {"gpuinterop": gi})) == call


@pytest.mark.driver
def test_warnings_name_the_calling_line(x):
    with gi.downloads("warn"), pytest.warns(UserWarning, match="hidden download") as seen:
        assert np.asarray(x).tolist() == [1, 1, 1]
    assert seen[0].filename == __file__


@pytest.mark.driver
def test_scopes_nest_and_belong_to_threads(x):
    with gi.downloads("refuse"):
        with gi.downloads("allow"):
            np.asarray(x)
        in_thread(lambda: np.asarray(x))
        with pytest.raises(gi.CopyForbiddenError):
            np.asarray(x)
    np.asarray(x)

    @gi.downloads("refuse")
    def inside():
        np.asarray(x)

    with pytest.raises(gi.CopyForbiddenError):
        inside()


@pytest.mark.driver
def test_a_call_sets_the_policy_of_all_threads(x):
    gi.downloads("refuse")
    try:
        for run in (in_thread, lambda function: function()):
            with pytest.raises(gi.CopyForbiddenError):
                run(lambda: np.asarray(x))
        with gi.downloads("allow"):
            np.asarray(x)
        with pytest.raises(gi.CopyForbiddenError):
            np.asarray(x)
    finally:
        gi.downloads("allow")
    np.asarray(x)


@pytest.mark.driver
def test_a_decorated_function_leaves_the_policy_of_the_process_alone(x):
    @gi.downloads("refuse")
    def download():
        return np.asarray(x)

    np.asarray(x)
    gi.downloads("warn")
    try:
        with pytest.raises(gi.CopyForbiddenError):
            download()
        with pytest.warns(UserWarning, match="hidden download"):
            np.asarray(x)
    finally:
        gi.downloads("allow")


@pytest.mark.driver
def test_blocks_entered_in_another_order_than_called_leave_the_policy_of_the_process_alone(x):
    first, second = gi.downloads("refuse"), gi.downloads("warn")  # as two threads may call them
    for block in (first, second):
        with block:
            pass
    np.asarray(x)
    third = gi.downloads("warn")
    gi.downloads("refuse")
    try:
        with third, pytest.warns(UserWarning, match="hidden download"):
            np.asarray(x)
        with pytest.raises(gi.CopyForbiddenError):
            np.asarray(x)
    finally:
        gi.downloads("allow")


@pytest.mark.parametrize("policy", ["warn", "refuse"])
def test_host_arrays_are_shared(policy):
    x = gi.ones(3, device="cpu")
    with gi.downloads(policy), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gi.shares_memory(np.asarray(x), x)


@pytest.mark.parametrize("value", ["never", "", None, True, 1])
def test_other_policies_are_refused(value):
    with pytest.raises(gi.ArgumentTypeError, match="refuse"):
        gi.downloads(value)


@pytest.mark.driver
def test_environment_sets_the_first_policy():
    code = """
import numpy as np
import gpuinterop as gi
try:
    np.asarray(gi.ones(3, device="cuda"))
except gi.GpuInteropError as error:
    print(error)
"""
    assert "hidden download" in driver.run(code, GPUINTEROP_DOWNLOADS="refuse")
    assert "never" in driver.run(code, GPUINTEROP_DOWNLOADS="never")
    assert not driver.run(code).strip()


@pytest.mark.parametrize("name", ["no_copies", "count_copies", "log_transfers"])
def test_a_block_without_the_call_teaches(name):
    opener = getattr(gi, name)
    with pytest.raises(gi.ArgumentTypeError) as error, opener:
        pass
    assert f"with gpuinterop.{name}():" in error.value.fix
    assert pickle.loads(pickle.dumps(opener)) is opener
