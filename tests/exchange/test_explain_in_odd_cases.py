"""What explain() says is what happens, for objects and circumstances that need two steps or are rare."""

import numpy as np
import pytest
from doubles import driver, fake_driver, toy_library
from doubles.placed import placed
from doubles.toy_library import ToyArray
from helpers.cases import Fresh, agree, frozen

import gpuinterop as gi


def conjugated():
    torch = pytest.importorskip("torch")
    return torch.ones(8, dtype=torch.complex64).conj()


def strided(shape, strides):
    return np.lib.stride_tricks.as_strided(np.zeros(99, np.float32)[9:], shape, strides)


def torch_between():
    torch = pytest.importorskip("torch")
    return torch.frombuffer(bytearray(range(20)), dtype=torch.float32, offset=1, count=4)


class Interface:
    """Of no known library, with elements between addresses."""

    def __init__(self):
        self.host = placed(np.zeros(64, "f4"))
        self.__array_interface__ = self.host.__array_interface__


SOURCES = {
    "swapped float32": lambda: np.ones(3, ">f4"),
    "swapped and empty": lambda: np.zeros((0, 3), ">f4"),
    "unaligned and reversed": lambda: placed(np.zeros(64, "f4"))[::-2],
    "reversed": lambda: np.ones((3, 4), np.float32)[:, ::-1],
    "read-only and empty": lambda: frozen(np.ones((0, 3), np.float32)),
    "axis of one element": lambda: strided((1, 3), (12, 8)),
    "empty with strides": lambda: strided((0, 3), (40, 8)),
    "field of records": lambda: np.zeros(3, [("a", "f4"), ("b", "i1")])["a"],
    "unaligned memoryview": lambda: memoryview(bytearray(range(20)))[1:17].cast("f"),
    "memoryview": lambda: memoryview(np.arange(8, dtype=">i8")),
    "interface": Interface,
    "conjugated": conjugated,
    "unaligned tensor": torch_between,
    "scalar": lambda: np.int64(3),
    "gpuinterop reversed": lambda: gi.zeros((2, 3), device="cpu")[:, ::-1],
    "new memory at each export": Fresh,
}  # fmt: skip
TARGETS = [
    "gpuinterop",
    "cudandarray",
    "jax",
    "tvm_ffi",
    "buffer",
    "torch",
    "numpy",
    "array_api_strict",
    "cupy",
]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", TARGETS)
def test_conversion_matches_explain(source, target):
    if target not in ("gpuinterop", "cudandarray", "buffer", "numpy"):
        pytest.importorskip(target)
    x = SOURCES[source]()
    for copyif in (False, True):
        allowed, made, _ = agree(x, target, copyif)
        if allowed.copied and target == "gpuinterop" and not isinstance(x, Interface):
            np.testing.assert_array_equal(made.get(), np.asarray(gi.to(x, "numpy", True)))
        with gi.no_copies():
            plan, _, error = agree(x, target, copyif)
        # An empty copy moves no bytes, so no_copies() does not count it.
        assert plan.refused == (allowed.refused or (allowed.copied and allowed.bytes > 0))
        if plan.refused and not allowed.refused:
            assert (type(error), plan.code) == (gi.CopyForbiddenError, gi.CopyForbiddenError.reason)


# ---- capsules -----------------------------------------------------------------------------------


def test_capsule_is_consumed_by_the_conversion_alone():
    x = gi.arange(3, device="cpu", dtype="float32")
    capsule = x.__dlpack__()
    for target, options in (("gpuinterop", {}), ("numpy", {}), ("array_api", {"xp": np})):
        assert gi.explain(capsule, target, **options).shared
    for ask in (gi.shares_memory, gi.may_share_memory):
        assert ask(capsule, x)
        assert not ask(capsule, gi.zeros(3, device="cpu"))
    assert gi.from_any(capsule).ptr == x.ptr
    plan = gi.explain(capsule)
    assert plan.refused
    assert "consumed" in plan.got


# ---- converters without a plan ------------------------------------------------------------------


@pytest.mark.parametrize("copyif", [False, True])
@pytest.mark.parametrize("to", ["any", "cudandarray", "numpy"])
def test_converter_that_cannot_plan_is_explained(clean, to, copyif):
    toy_library.register()
    swapped = ToyArray(np.ones(3, ">f4"))
    assert gi.explain(swapped, library=to, copyif=copyif).copied == copyif
    assert agree(ToyArray(np.ones(3, np.float32)), to, copyif)[0].shared
    with gi.no_copies():
        assert gi.explain(swapped, to, copyif).refused


# ---- names of gpuinterop's own arrays -----------------------------------------------------------


@pytest.mark.parametrize(
    ("driver_exists", "word"), [(False, "this machine has no GPU"), (True, "move it explicitly")]
)
def test_without_a_gpu_no_fix_moves_to_one(driver_exists, word, tmp_path):
    program = "import gpuinterop as gi; print(gi.explain(gi.zeros(3, device='cpu'), 'pycuda').fix)"
    library = fake_driver.library() if driver_exists else tmp_path / "libcuda.so"
    fix = driver.run(program, library).strip().partition("; and")[0]
    assert fix.startswith(word)
    assert fix.endswith("x.to_device('cuda')")


def test_plan_prints_all_its_fields():
    pytest.importorskip("torch")
    x = gi.zeros((3, 4), device="cpu")[::-1]
    fault = "stride -16 bytes on axis 0 of shape (3, 4)"
    refused, copied = gi.explain(x, "torch"), gi.explain(x, "torch", copyif=True)
    assert str(refused).splitlines() == [
        "to_torch: refused",
        "  needs: strides that are not negative, because torch has none",
        f"  has:   {fault}",
        "  fix:   pass copyif=True, or make x.copy() once and reuse it",
    ]
    # With copyif=True the fix does not suggest copyif=True.
    assert str(copied).splitlines() == [
        "to_torch: copied (48 bytes)",
        "  needs:    strides that are not negative, because torch has none",
        f"  has:      {fault}",
        "  to share: make x.copy() once and reuse it",
    ]
    assert repr(copied) == str(copied)
    assert str(gi.explain(x[::-1], "torch")) == "to_torch: shared"
