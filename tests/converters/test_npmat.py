"""CUDAMat and gnumpy in CPU mode: npmat-style objects share host memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
from doubles import fake_cudamat, fake_pycuda

import gpuinterop as gi
from gpuinterop import converters


def host(*shape, order="C"):
    return np.asarray(np.arange(np.prod(shape), dtype="float32").reshape(shape), order=order)


@pytest.fixture(params=[False, True], ids=["takes over", "copies"])
def npmat(monkeypatch, request):
    module = fake_cudamat.npmat(copies=request.param)
    fake_pycuda.installed(monkeypatch, module)
    return module


@pytest.mark.parametrize("shape", [(3, 4), (1, 5), (5, 1), (0, 3)])
def test_matrices_share_both_ways(npmat, shape):
    m = npmat.CUDAMatrix(host(*shape, order="F"))
    x = converters.from_cudamat(m)
    assert np.array_equal(x.get(), host(*shape))
    if x.size:
        x[0, 0] = 9
        assert m.numpy_array[0, 0] == 9
    back = converters.to_cudamat(x)
    assert back.shape == shape
    if x.size:
        back.numpy_array[-1, -1] = 8
        assert x[-1, -1].item() == 8


def test_nothing_is_copied_on_the_way(npmat):
    x = gi.ones((2, 3), device="cpu")
    with gi.no_copies():
        assert gi.shares_memory(gi.to(x.T, "cudamat"), x)
    before = npmat.CUDAMatrix.__init__
    given = []

    def counting(self, array, ref=True):
        given.append(array.size)
        before(self, array, ref)

    npmat.CUDAMatrix.__init__ = counting
    m = converters.to_cudamat(x.T)
    m.numpy_array[2, 1] = 7
    assert x[1, 2].item() == 7
    assert set(given) == {1}


def test_the_documents_names_reinterpret(npmat):
    x = converters.from_numpy(host(3, 4))
    m = gi.cudandarray_to_cudamat(x)
    assert m.shape == (3, 4)
    assert np.array_equal(m.asarray().T.reshape(3, 4), host(3, 4))
    back = gi.cudamat_to_cudandarray(m)
    assert back.ptr == x.ptr
    assert np.array_equal(back.get(), host(3, 4))


def test_trans_needs_a_flag_that_npmat_lacks(npmat):
    x = converters.from_numpy(host(3, 4))
    with pytest.raises(ValueError, match="copyif") as raised:
        converters.to_cudamat(x, trans=True)
    assert "trans" not in raised.value.fix
    m = converters.to_cudamat(x, copyif=True, trans=True)
    assert np.array_equal(m.asarray(), host(3, 4))


def test_a_matrix_that_exchanges_its_array_leaves_ours_alone(npmat):
    m = npmat.CUDAMatrix(host(3, 4, order="F"))
    x = converters.from_cudamat(m)
    m.set_trans(True)
    gc.collect()
    assert np.array_equal(x.get(), host(3, 4))


def test_double_precision_npmat_is_not_narrowed(monkeypatch):
    module = fake_cudamat.npmat("float64")
    fake_pycuda.installed(monkeypatch, module)
    m = module.CUDAMatrix(np.ones((2, 3), order="F"))
    assert converters.from_cudamat(m).dtype == np.float64
    with pytest.raises(ValueError, match="float32"):
        gi.cudamat_to_cudandarray(m)
    x = converters.from_numpy(host(2, 3, order="F"))
    with pytest.raises(ValueError, match="GNUMPY_CPU_PRECISION"):
        converters.to_cudamat(x)
    gnumpy = fake_cudamat.gnumpy(module)
    for library, options in (("cudamat", {}), ("gnumpy", {"module": gnumpy})):
        for y in (x, x.T, x[::-1]):
            plan = gi.explain(y, library, copyif=True, **options)
            assert plan.refused
            with gi.count_copies() as made, pytest.raises(gi.DTypeError) as raised:
                gi.to(y, library, copyif=True, **options)
            assert str(raised.value) == str(plan.exception())
            assert made.count == 0


def test_a_gnumpy_that_is_not_loaded_yet_is_foretold(tmp_path):
    source = "import sys\nfrom doubles import fake_cudamat as them\n"
    source += 'sys.modules["gnumpy"] = them.gnumpy(them.npmat("float64"))\n'
    (tmp_path / "gnumpy.py").write_text(source, encoding="utf-8")
    program = (
        "import gpuinterop as gi\n"
        "x = gi.ones((2, 3), device='cpu')\n"
        "plan = gi.explain(x, 'gnumpy')\n"
        "try:\n"
        "    gi.to(x, 'gnumpy')\n"
        "except gi.DTypeError as error:\n"
        "    assert str(error) == str(plan.exception()), plan\n"
        "else:\n"
        "    raise AssertionError(plan)\n"
    )
    here = str(Path(__file__).parents[1])
    path = os.pathsep.join([str(tmp_path), here, os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr


SHAPES = [(7,), (3, 4), (2, 3, 4), (1, 3), (3, 1), (), (0, 3)]


@pytest.mark.parametrize("shape", SHAPES)
def test_garrays_share_both_ways(gnumpy, shape):
    x = converters.from_numpy(host(*shape))
    g = gi.cudandarray_to_garray(x)
    assert g.shape == shape
    assert np.array_equal(g.ndarray, host(*shape))
    back = gi.garray_to_cudandarray(g)
    assert np.array_equal(back.get(), host(*shape))
    if x.size:
        assert back.ptr == x.ptr
        x[...] = 3
        assert (g.ndarray == 3).all()


def test_the_reuse_cache_in_cpu_mode(gnumpy):
    g = gnumpy.garray(host(8))
    x = gi.from_any(g)
    del g
    gc.collect()
    scratch = gnumpy.empty((8,))
    scratch._base.numpy_array[...] = -1
    assert np.array_equal(x.get(), host(8))


def test_recognised_by_structure_under_other_names():
    npmat = fake_cudamat.npmat(name="mymat")
    gnumpy = fake_cudamat.gnumpy(npmat, name="mynumpy")
    assert gi.converters.registry.find_backend(npmat.CUDAMatrix(host(2, 2))).name == "cudamat"
    assert gi.converters.registry.find_backend(gnumpy.garray(host(2, 2))).name == "gnumpy"
    x = converters.from_numpy(host(2, 3))
    assert converters.to_gnumpy(x, module=gnumpy).shape == (2, 3)
    assert converters.to_cudamat(x.T, module=npmat).shape == (3, 2)


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("library", ["cudamat", "gnumpy"])
@pytest.mark.parametrize("module", [3, np])
def test_a_module_of_another_library_is_refused(library, module, order):
    x = converters.from_numpy(np.zeros((2, 3), np.float32, order))
    for ask in (gi.to, gi.explain):
        with pytest.raises(gi.ArgumentTypeError, match="omit module"):
            ask(x, library, module=module)


@pytest.mark.parametrize("layout", [np.array(["logical", "memory"]), [], "C"])
def test_a_layout_is_one_of_two_words(layout):
    x = converters.from_numpy(host(2, 3))
    for ask in (gi.to, gi.explain):
        with pytest.raises(gi.ArgumentTypeError, match="layout 'logical' or 'memory'"):
            ask(x, "cudamat", layout=layout)


class Matrix:
    """A CUDAMatrix, as far as its memory's owner is asked; all of them are equal, and without a hash."""

    def __init__(self):
        self.mat = types.SimpleNamespace(owns_data=1)

    def __eq__(self, other):
        return np.ones(3) == 1

    __hash__ = None


def pinned(matrix):
    return converters.cudamat.FreeGuard(matrix, matrix, matrix.mat)


def test_matrices_are_told_apart_by_what_they_are():
    first, second = Matrix(), Matrix()
    pins = [pinned(first), pinned(first), pinned(second)]
    assert (first.mat.owns_data, second.mat.owns_data) == (0, 0)
    del pins[0]
    assert (first.mat.owns_data, second.mat.owns_data) == (0, 0)
    del pins[0]
    assert (first.mat.owns_data, second.mat.owns_data) == (1, 0)
    pins.clear()
    assert second.mat.owns_data == 1
    assert not converters.cudamat._guards


def test_a_matrix_over_memory_that_it_does_not_own_stays_so():
    matrix = Matrix()
    matrix.mat.owns_data = 0
    pins = [pinned(matrix), pinned(matrix)]
    pins.clear()
    assert matrix.mat.owns_data == 0


def test_a_matrix_may_be_collected_while_another_is_pinned():
    """A collection in between runs a finalizer in the same thread, which must not wait for itself."""
    matrix = Matrix()
    pin = [pinned(matrix)]

    def within():
        with converters.cudamat._guards_lock:
            pin.clear()

    thread = threading.Thread(target=within, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert matrix.mat.owns_data == 1


def test_a_fix_names_a_call_that_matrices_have(npmat):
    """An npmat matrix is no NumPy array: it has no astype."""

    def none(x):
        raise BufferError("no")

    m = npmat.CUDAMatrix(host(2, 3, order="F"))
    m.numpy_array = np.ones((2, 3), "float64", order="F")
    namespace = types.SimpleNamespace(__name__="somebodys", from_dlpack=none)
    fix = gi.explain(m, "array_api", xp=namespace).fix
    line = "gpuinterop.from_any(x, copyif=True).astype('float32')"
    assert line in fix
    assert eval(line, {"gpuinterop": gi, "x": m}).dtype == np.float32
