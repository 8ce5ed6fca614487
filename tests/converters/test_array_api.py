"""Namespaces of the array API: what their from_dlpack does silently is found out, and plan_conversion."""

import ctypes
import types

import numpy as np
import pytest
from helpers.cases import agree

import gpuinterop as gi
from gpuinterop import converters


def namespace(from_dlpack, name="somebodys"):
    return types.SimpleNamespace(__name__=name, from_dlpack=from_dlpack)


COPIES = namespace(lambda x: np.array(np.from_dlpack(x)))
NARROWS = namespace(lambda x: np.from_dlpack(x).astype("float32"))
OPAQUE = namespace(lambda x: object())


def writable(x):
    seen = np.from_dlpack(x)
    block = (ctypes.c_float * seen.size).from_address(x.ptr)
    block.owner = x  # NumPy's array keeps the block, and with it the memory
    return np.lib.stride_tricks.as_strided(np.ctypeslib.as_array(block), seen.shape, seen.strides)


DROPS_THE_MARK = namespace(writable)


def gpuinterop_array(dtype="float32", n=6):
    return gi.from_any(np.arange(n, dtype=dtype))


def refused(x, xp, error, copyif=False):
    _, _, raised = agree(x, "array_api", copyif, xp=xp)
    assert type(raised) is error


def test_a_namespace_that_copies_is_refused_or_its_copy_counted():
    x, xp = gpuinterop_array(), COPIES
    refused(x, xp, gi.errors.ExportError)
    plan, _, _ = agree(x, "array_api", True, xp=xp)
    assert (plan.outcome, plan.bytes) == ("copied", 24)
    with gi.no_copies():
        refused(x, xp, gi.CopyForbiddenError, True)


def test_a_namespace_that_narrows_is_refused_even_when_copies_are_allowed():
    for copyif in (False, True):
        refused(gpuinterop_array("float64"), NARROWS, gi.DTypeError, copyif)


def test_a_namespace_that_drops_the_read_only_mark_is_given_a_copy():
    x = gpuinterop_array()
    x.flags.writeable = False
    refused(x, DROPS_THE_MARK, gi.ReadOnlyError)
    with gi.count_copies() as copied:
        made = gi.to(x, "array_api", True, xp=DROPS_THE_MARK)
    made[:] = 7
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    assert copied.count == 1
    assert gi.explain(x, "array_api", xp=DROPS_THE_MARK, allow_readonly=True).shared
    assert gi.to(x, "array_api", xp=DROPS_THE_MARK, allow_readonly=True)[1] == 1


def test_axes_of_one_element_and_empty_arrays_are_not_copies():
    odd = namespace(lambda x: np.lib.stride_tricks.as_strided(np.from_dlpack(x), x.shape, (400, 4)))
    assert gi.explain(gpuinterop_array().reshape(1, 6), "array_api", xp=odd).shared
    empty = namespace(lambda x: np.empty(x.shape, x.dtype))
    assert gi.explain(gpuinterop_array(n=0), "array_api", xp=empty).shared


@pytest.mark.parametrize("xp", ["numpy", "not a name", 5, None])
def test_invalid_namespace_is_refused(xp):
    refused(gpuinterop_array(), xp, gi.errors.ArgumentTypeError)


def test_namespace_of_a_known_library_uses_its_converter():
    jnp = pytest.importorskip("jax.numpy")
    unaligned = gi.arange(65, device="cpu")[1:]
    plan = gi.explain(unaligned, "array_api", xp=jnp)
    assert plan.refused
    assert "64 bytes" in plan.reason
    with gi.no_copies(), pytest.raises(gi.CopyForbiddenError):
        gi.to(unaligned, "array_api", True, xp=jnp)
    with pytest.raises(gi.DTypeError, match="narrow"):
        gi.to(gi.from_any(np.array([2**40 + 1])), "array_api", xp=jnp)


def test_torch_is_not_given_read_only_memory_as_a_namespace():
    torch = pytest.importorskip("torch")
    x = gi.broadcast_to(gi.zeros(3, device="cpu"), (1, 3))
    assert gi.explain(x, "array_api", xp=torch).refused
    with pytest.raises(gi.ReadOnlyError):
        converters.to_array_api(x, xp=torch)
    made = gi.to(x, "array_api", xp=torch, allow_readonly=True)
    assert isinstance(made, torch.Tensor)
    assert made.data_ptr() == x.ptr


SWAPPED = np.arange(12, dtype=">f8").reshape(3, 4)


def no_empty(x):
    seen = np.from_dlpack(x)
    if not seen.size:
        raise BufferError("an empty array")
    return seen


NAMESPACES = {
    "shares": namespace(np.from_dlpack),
    "copies": COPIES,
    "narrows": NARROWS,
    "no empty arrays": namespace(no_empty),
    "none": namespace(lambda x: None),
}


def test_trial_of_a_copied_source_has_zeros():
    seen = []
    xp = namespace(lambda x: seen.append(np.from_dlpack(x).copy()) or np.from_dlpack(x))
    for _ in range(3):
        gi.explain(SWAPPED, "array_api", True, xp=xp)
    assert len(seen) == 3
    assert not np.any(seen)


@pytest.mark.parametrize("source", [SWAPPED, SWAPPED[:, ::2], SWAPPED.astype("f8")[:, ::2]])
@pytest.mark.parametrize("name", NAMESPACES)
def test_conversion_of_a_copied_source_is_predicted(name, source):
    xp = NAMESPACES[name]
    _, made, error = agree(source, "array_api", True, xp=xp)
    if error is not None:
        assert "(0, 0)" not in error.got
        return
    assert np.array_equal(made, source)


@pytest.mark.parametrize("xp", [OPAQUE, NAMESPACES["none"]])
def test_a_namespace_that_makes_no_array_is_refused(xp):
    for copyif in (False, True):
        refused(gpuinterop_array(), xp, gi.errors.ExportError, copyif)


@pytest.mark.filterwarnings("ignore:The 2021.12 version")
@pytest.mark.parametrize("version", ["2021.12", "2022.12", "2023.12"])
def test_a_namespace_may_play_an_older_standard(version):
    strict = pytest.importorskip("array_api_strict")
    x = gi.ones((2, 3), device="cpu")
    strict_array = strict.asarray([1.0, 2.0])
    with strict.ArrayAPIStrictFlags(api_version=version):
        # NumPy 2.1 imports it read-only, and cannot export it again.
        if np.from_dlpack(np.ones(1)).flags.writeable:
            assert gi.explain(x, "array_api_strict").shared
            assert gi.shares_memory(gi.to(x, "array_api_strict"), x)
        assert gi.explain(strict_array, "numpy").shared
        assert gi.from_any(strict_array).tolist() == [1, 2]
    frozen = np.zeros(3, "f4")
    frozen.flags.writeable = False
    newer = strict.asarray(frozen, copy=False)  # which only a newer capsule can hand over
    assert gi.from_any(newer).readonly


def test_capsule_is_offered_in_its_current_layout():
    only_dense = namespace(lambda x: np.from_dlpack(x) if x.is_c_contiguous() else 1 / "strided")
    x = gpuinterop_array(n=8)[::2]
    assert gi.explain(x.__dlpack__(), "array_api", xp=only_dense).refused
    assert gi.explain(gpuinterop_array().__dlpack__(), "array_api", xp=only_dense).shared


@pytest.mark.parametrize(
    ("dtype", "fix"),
    [
        ("complex32", "x.astype('complex64')"),
        ("complex128", "x.astype('complex64')"),
        ("complex64", "x.get().view('float32')"),
        ("float16", "x.astype('float32')"),
    ],
)
def test_a_dtype_that_a_namespace_lacks_is_cast_to_one_of_its_kind(dtype, fix):
    def none(x):
        raise BufferError("no")

    if dtype == "complex32" and not hasattr(pytest.importorskip("ml_dtypes"), dtype):
        pytest.skip("needs ml_dtypes 0.6")
    xp, x = namespace(none), gi.zeros(2, dtype=dtype, device="cpu")
    for copyif in (False, True):
        plan = gi.explain(x, "array_api", copyif, xp=xp)
        assert fix in plan.fix
        refused(x, xp, gi.ExportError, copyif)
