"""`a += x`, where `a` is another library's array: it writes into `a`, or raises and leaves `a` as it was."""

import operator

import numpy as np
import pytest

import gpuinterop as gi

OPERATORS = [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow]
HOST = np.array([2.0, 3.0], np.float32)


def array_api_strict_ones():
    strict = pytest.importorskip("array_api_strict")
    return strict.ones(2, dtype=strict.float32)


def pycuda_ones():
    pytest.importorskip("pycuda.autoprimaryctx")
    gpuarray = pytest.importorskip("pycuda.gpuarray")
    return gpuarray.to_gpu(np.ones(2, np.float32))


MAKERS = {
    "numpy": lambda: np.ones(2, np.float32),
    "array_api_strict": array_api_strict_ones,
    "torch": lambda: pytest.importorskip("torch").ones(2),
    "cupy": lambda: pytest.importorskip("cupy").ones(2, np.float32),
    "pycuda": pycuda_ones,
}
LIBRARIES = [
    pytest.param("numpy", "cpu", False),
    pytest.param("array_api_strict", "cpu", False),
    pytest.param("torch", "cpu", True, marks=pytest.mark.torch),
    pytest.param("cupy", "cuda", True, marks=[pytest.mark.gpu, pytest.mark.cupy]),
    pytest.param("pycuda", "cuda", False, marks=[pytest.mark.gpu, pytest.mark.pycuda]),
]


@pytest.mark.parametrize("in_place", OPERATORS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(("library", "device", "writes"), LIBRARIES)
def test_in_place_operator_writes_or_raises(library, device, writes, in_place):
    a, x = MAKERS[library](), gi.array(HOST, device=device)
    if not hasattr(a, f"__{in_place.__name__}__"):
        # Python computes `a ** x` for `a **= x`, which binds the name to a new array.
        assert in_place(a, x) is not a
        return
    values = gi.from_any(a)
    expected = np.ones(2, np.float32)
    try:
        made = in_place(a, x)
    except Exception:  # the class is the other library's choice
        assert not writes
    else:
        assert made is a
        expected = in_place(expected, HOST)
    np.testing.assert_allclose(values.get(), expected, rtol=1e-6)


def test_numpys_in_place_error_names_the_download(device):
    n, x = np.ones(2, np.float32), gi.array(HOST, device=device)
    with pytest.raises(gi.ArgumentTypeError, match=r"in-place operator") as caught:
        n += x
    assert "out" not in str(caught.value).split()
    on_host = x.device.type == "cpu"
    assert caught.value.fix == (
        "use its memory: numpy.asarray(x)" if on_host else "download it first: x.get()"
    )
    n += x.get()
    assert n.tolist() == [3, 4]


@pytest.mark.jax
def test_immutable_arrays_are_rebound_as_python_does():
    jax = pytest.importorskip("jax")
    a = before = jax.numpy.ones(2)
    a += gi.array(HOST, device="cpu")
    assert a.tolist() == [3, 4]
    assert before.tolist() == [1, 1]
