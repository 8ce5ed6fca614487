"""The lines that errors recommend: each one runs, on an object of the library that it is for."""

from __future__ import annotations

import array

import numpy as np
import pytest

import gpuinterop
from gpuinterop.converters.registry import library_of
from gpuinterop.converters.suggested_fixes import cast_line, copy_line, move_line


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
    made = run(copy_line(library_of(x)), x)
    assert made.is_c_contiguous()
    assert made.ptr % 64 == 0
    assert not gpuinterop.shares_memory(made, before)
    assert np.array_equal(made.get(), before.get())
    if made.ndim == 2:
        assert run(copy_line(library_of(x), "F"), x).is_f_contiguous()


@pytest.mark.parametrize("kind", KINDS)
def test_a_cast_has_the_dtype_and_the_values(kind):
    x = objects(kind)
    before = gpuinterop.from_any(x).get()
    made = gpuinterop.from_any(run(cast_line(library_of(x), np.dtype("int32")), x))
    assert made.dtype == np.int32
    assert np.array_equal(made.get(), before)
    assert cast_line(library_of(x), "int32") == cast_line(library_of(x), np.dtype("int32"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_move_makes_an_array_there(kind):
    x = objects(kind)
    made = run(move_line(library_of(x), "cpu"), x)
    assert made.device == "cpu"
    assert np.array_equal(made.get(), gpuinterop.from_any(x).get())


def test_lines_by_the_name_of_the_library():
    assert copy_line("gpuinterop") == "x.copy()"
    assert copy_line("numpy", name="a") == "gpuinterop.from_any(a, copyif=True).copy()"
    assert cast_line("numpy", "float32", name="a") == "a.astype('float32')"
