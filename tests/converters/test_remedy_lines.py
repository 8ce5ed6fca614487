"""The lines that errors recommend: each one runs, on an object of the library that it is for."""

from __future__ import annotations

import array

import numpy as np
import pytest

import gpuinterop
from gpuinterop.converters import checks
from gpuinterop.converters.remedies import remedy_cast, remedy_copy, remedy_move


def objects(kind):
    host = np.arange(6, dtype="float32").reshape(2, 3)
    if kind == "ours":
        return gpuinterop.array(host, device="cpu").T
    if kind == "buffer":
        return memoryview(host)
    if kind == "array.array":
        return array.array("f", range(6))
    if kind == "torch":
        return pytest.importorskip("torch").from_numpy(host).T
    if kind == "jax":
        return pytest.importorskip("jax.numpy").asarray(host)
    if kind == "array_api_strict":
        return pytest.importorskip("array_api_strict").asarray(host)
    if kind == "tvm_ffi":
        return pytest.importorskip("tvm_ffi").from_dlpack(host)
    if kind == "unknown":
        return type("Own", (), {"__array_interface__": host.__array_interface__, "host": host})()
    return host.T


KINDS = ["ours", "numpy", "buffer", "array.array", "torch", "jax", "array_api_strict", "tvm_ffi",
         "unknown"]  # fmt: skip


def run(line, x):
    names = {"x": x, "gpuinterop": gpuinterop, "numpy": np}
    if "torch" in line:
        names["torch"] = pytest.importorskip("torch")
    return eval(line, names)


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_compact_aligned_and_apart(kind):
    x = objects(kind)
    before = gpuinterop.from_any(x)
    made = run(remedy_copy(x), x)
    assert made.is_c_contiguous()
    assert made.ptr % 64 == 0
    assert not gpuinterop.shares_memory(made, before)
    assert np.array_equal(made.get(), before.get())
    if made.ndim == 2:
        assert run(remedy_copy(x, "F"), x).is_f_contiguous()


@pytest.mark.parametrize("kind", KINDS)
def test_a_cast_has_the_dtype_and_the_values(kind):
    x = objects(kind)
    before = gpuinterop.from_any(x).get()
    made = gpuinterop.from_any(run(remedy_cast(x, np.dtype("int32")), x))
    assert made.dtype == np.int32
    assert np.array_equal(made.get(), before)
    assert remedy_cast(x, "int32") == remedy_cast(x, np.dtype("int32"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_move_makes_an_array_there(kind):
    x = objects(kind)
    made = run(remedy_move(x, "cpu"), x)
    assert made.device == "cpu"
    assert np.array_equal(made.get(), gpuinterop.from_any(x).get())


def test_a_description_is_as_good_as_the_object():
    ours = checks.describe_array(gpuinterop.ones(3, device="cpu"))
    assert remedy_copy(ours) == "x.copy()"
    theirs = gpuinterop.converters.numpy.describe(np.ones(3))
    assert remedy_copy(theirs, name="a") == "gpuinterop.from_any(a, copyif=True).copy()"
    assert remedy_cast(theirs, "float32", name="a") == "a.astype('float32')"
