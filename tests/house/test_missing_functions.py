"""Errors for missing names of the package and of its arrays give a call that exists, and shares memory."""

import ast
import itertools
import re
import sys

import pytest
from doubles import driver

import gpuinterop as gi


@pytest.mark.parametrize(
    "name", ["choose", "byteswap", "numpy", "clone", "abs", "backward", "median"]
)
def test_error_for_a_missing_attribute_suggests_a_replacement(name):
    x = gi.zeros(3, device="cpu")
    for owner in (x, type(x), gi.GpuArray([1], device="cpu")):
        with pytest.raises(gi.MissingNameError, match=f"x.{name}: ") as caught:
            getattr(owner, name)
        assert "missing-functions.md" in caught.value.fix
        assert not hasattr(owner, name)
    assert name not in dir(x)


@pytest.mark.parametrize("module", [gi.linalg, gi.fft])
def test_a_module_corrects_the_spelling_of_its_names(module):
    name = next(name for name in module.__all__ if len(name) > 4)
    with pytest.raises(gi.MissingNameError, match=rf"{module.__name__}\.{name}\b"):
        getattr(module, name + name[-1])
    assert not hasattr(module, "_nothing")


def test_an_error_for_a_missing_name_names_the_loaded_library_that_has_it():
    linalg, name = pytest.importorskip("scipy.linalg"), "expm"
    with pytest.raises(gi.MissingNameError, match=r"write gpuinterop\.via\.scipy\.linalg\.expm;"):
        getattr(gi.linalg, name)
    x = gi.asarray([[0.0, 1.0], [2.0, 3.0]], "float64", device="cpu")
    assert gi.via.scipy.linalg.expm(x).tolist() == linalg.expm(x.get()).tolist()


def names_of(library: str) -> set[str]:
    module = pytest.importorskip(library)
    arrays = [getattr(module, name, None) for name in ("ndarray", "Tensor")]
    return {n for owner in (module, *arrays) for n in dir(owner) if not n.startswith("_")}


CALL = re.compile(r"(?:write|array on a GPU) (.+?)(?=, or for an array on|; see docs)")


def faults_of(call: str, name: str, names: dict[str, object]) -> list[str]:
    """What is wrong with the call that an error names: it must exist, and share where memory can be shared."""
    tree, own = ast.parse(call, mode="eval").body, call.startswith(f"x.{name}")
    if {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - {*names}:
        call = ast.unparse(tree.func)  # the other arguments are the user's
    try:
        with gi.no_copies():
            eval(call, {**names})
    except gi.CopyForbiddenError:
        return [f"{call} copies"] * (not own and call != "x.copy()")
    except (AttributeError, NameError, SyntaxError) as error:
        return [f"{call} does not exist: {error}"]
    except (TypeError, ValueError, IndexError, RuntimeError):
        pass  # an argument of NumPy's function does not fit
    absent = hasattr(names["x"], name) and not own and not call.startswith("gpuinterop")
    return [f"{call}, although x.{name} exists"] * absent


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["numpy", "torch", "cupy", "jax.numpy"])
def test_the_call_for_a_missing_name_exists_and_shares(library):
    listed = names_of(library) | {"from_pointer"}
    x, roots = gi.zeros((3, 3), device="cpu"), ("numpy", "torch", "cupy", "jax")
    names = {"x": x, "gpuinterop": gi, "shape": (2, 3, 3), "e": None}
    names |= {root: sys.modules[root] for root in roots if root in sys.modules}
    faults, found = [], 0
    for owner, name in itertools.product((gi, x), sorted(listed)):
        try:
            getattr(owner, name)
        except gi.MissingNameError as error:
            for call in CALL.findall(error.fix):
                faults += faults_of(call, name, names)
                found += 1
        except AttributeError:
            faults += [f"{name}: an error without parts"] * (owner is gi)
    assert faults == []
    assert found > 100


NAMED = {
    "gpuinterop.dump": "numpy.asarray(x).dump", "gpuinterop.flatten": "x.flatten()",
    "gpuinterop.from_pointer": "gpuinterop.GpuArray.from_pointer", "gpuinterop.cuda": "gpuinterop.devices()",
    "gpuinterop.version": "gpuinterop.__version__",
    "gpuinterop.asnumpy": "numpy.asarray(x)", "gpuinterop.tensor": "gpuinterop.array",
    "gpuinterop.median": "numpy.median(x)", "gpuinterop.float32": "numpy.float32",
    "gpuinterop.to_torch": 'gpuinterop.to(x, "torch")', "gpuinterop.from_numpy": "gpuinterop.from_any(x)",
    "gpuinterop.save": "numpy.save(file, x)",
    "gpuinterop.array_equal": "numpy.array_equal(x, y)", "gpuinterop.sorted": "gpuinterop.sort(x)",
    "gpuinterop.load": "gpuinterop.from_any(numpy.load(file))",
    "x.numpy": "numpy.asarray(x)", "x.choose": "numpy.choose(x, choices)", "x.abs": "gpuinterop.abs(x)",
    "x.add": "gpuinterop.add(x, y)", "x.where": "gpuinterop.where(condition, x, y)", "x.numel": "x.size",
    "gpuinterop.block": "numpy.block(x)",
    "x.to": 'x.to_device("cuda") or gpuinterop.to(x, "torch") or x.astype("float16")',
}  # fmt: skip


@pytest.mark.parametrize("missing", NAMED)
def test_error_for_a_missing_name_names_the_call(missing):
    owner, name = missing.split(".")
    with pytest.raises(gi.MissingNameError, match=re.escape(f"{missing}: ")) as caught:
        getattr({"gpuinterop": gi, "x": gi.zeros((3, 3), device="cpu")}[owner], name)
    assert CALL.findall(caught.value.fix)[0] == NAMED[missing]
    assert caught.value.name == name


@pytest.mark.parametrize(("name", "meant"), [("form_dlpack", "from_dlpack"), ("zeross", "zeros")])
def test_error_for_a_misspelled_name_suggests_the_name(name, meant):
    with pytest.raises(gi.MissingNameError, match=f"to gpuinterop.{meant}; ") as caught:
        getattr(gi, name)
    assert (caught.value.name, caught.value.obj) == (name, gi)


def test_error_for_a_missing_name_names_the_call_into_a_loaded_library():
    pytest.importorskip("torch")
    for name, call in [
        ("median", "torch.median(x)"),
        ("conv2d", "torch.conv2d"),
    ]:
        with pytest.raises(gi.MissingNameError) as caught:
            getattr(gi, name)
        assert CALL.findall(caught.value.fix)[-1] == f"gpuinterop.via.{call}"


@pytest.mark.parametrize("name", ["gpu", "collate"])
def test_a_name_that_resembles_none_gets_no_suggestion(name):
    with pytest.raises(gi.MissingNameError) as caught:
        getattr(gi, name)
    assert caught.value.fix.startswith("see docs/")


def test_names_of_modules_are_not_judged_before_their_import():
    # `from gpuinterop import errors` reads the attribute first.
    with pytest.raises(AttributeError) as caught:
        gi.__getattr__("creation")
    assert type(caught.value) is AttributeError


def test_a_subclass_may_define_an_absent_attribute():
    class Sub(gi.CudaNdarray):
        def sort(self):
            return "sorted"

    s = Sub([1], device="cpu")
    s.real = 3
    assert (s.sort(), s.real) == ("sorted", 3)


def test_a_question_for_a_missing_name_is_no_error():
    assert not hasattr(gi, "__wrapped__")
    assert getattr(gi, "tensor", None) is None


REMOVED = """
import re
import sys
import gpuinterop as gi

for pattern in ("gpuinterop$", "gpuinterop"):
    assert not hasattr(gi, "no_such_name")  # a first question imports modules, and the package anew
    for name in [name for name in sys.modules if re.match(pattern, name)]:
        del sys.modules[name]
    assert not any(hasattr(gi, name) for name in ("no_such_name", "to_nothing"))
    assert not hasattr(gi.converters, "to_nothing")
"""


def test_a_package_that_was_removed_from_the_modules_has_the_same_names():
    done = driver.python("-c", REMOVED)
    assert done.returncode == 0, done.stderr


def test_python_can_suggest_the_name_of_a_misspelled_converter():
    with pytest.raises(AttributeError) as caught:
        getattr(gi.converters, "to_tourch")  # noqa: B009
    assert (caught.value.name, caught.value.obj) == ("to_tourch", gi.converters)


def test_names_that_need_no_call_or_are_modules():
    x = gi.asarray([[1.0, 2.0]], device="cpu")
    for name, fix in [("errstate", "omit it"), ("detach", "omit it"), ("ndarray", "CudaNdarray"),
                      ("set_default_device", "gpuinterop.devices."),
                      ("relu", "maximum")]:  # fmt: skip
        with pytest.raises(gi.MissingNameError, match=r"write|omit") as caught:
            getattr(gi, name)
        assert fix in caught.value.fix
    with pytest.raises(gi.MissingNameError) as caught:
        x.softmax  # noqa: B018
    call = CALL.findall(caught.value.fix)[0]
    assert eval(call, {"x": x, "gpuinterop": gi}).sum().item() == 1
    module: dict = {}
    exec("from gpuinterop import ndarray", module)  # is still the module
    assert module["ndarray"].CudaNdarray is gi.CudaNdarray


def test_completion_shows_only_what_works():
    for owner in (gi, gi.zeros((3, 3), device="cpu"), gi.zeros((3, 3), "int8", device="cpu")):
        public = [name for name in dir(owner) if not name.startswith("__")]
        assert not [name for name in public if name.startswith("_") or not hasattr(owner, name)]
        assert {"asarray", "exp"} <= {*public} or {"astype", "exp"} <= {*public}
