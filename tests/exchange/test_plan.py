"""What a converter's rules make of a layout: share, copy with copyif, or refuse in words that name the reason."""

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.converters.plan import ArrayInfo, Rules, plan_layout

STRICT = {
    "dtypes": frozenset({"float32"}), "devices": frozenset({"cpu"}), "layout": "c", "negative": False, "max_ndim": 2,
    "alignment": 64,
}  # fmt: skip


def read_only(x):
    x.readonly = True
    return x


# A view of a 4 x 6 matrix of float32, the error, words of it, and whether copyif=True copies.
CASES = [
    (lambda x: x[::-1], "ContiguityError", "not negative", "stride -24 bytes on axis 0", True),
    (lambda x: x.T, "ContiguityError", "C-contiguous", "axis 1 breaks the order", True),
    (lambda x: x[:, 1:], "ContiguityError", "C-contiguous", "strides (24, 4)", True),
    (read_only, "ReadOnlyError", "writable memory", "read-only float32 array", True),
    (lambda x: x[2:], "ContiguityError", "aligned to 64 bytes", "48 bytes past a multiple", True),
    (lambda x: x.astype("float64"), "DTypeError", "float32", "dtype float64", False),
    (lambda x: x[None], "ShapeError", "0 to 2 dimensions", "3 dimensions", False),
]


@pytest.fixture
def x():
    memory = np.empty(4 * 6 * 4 + 64, "uint8")
    start = -memory.ctypes.data % 64
    x = memory[start : start + 96].view("float32").reshape(4, 6)
    x[...] = 0
    return gi.from_any(x)


@pytest.mark.parametrize(("make", "kind", "expected", "got", "copied"), CASES)
def test_copyif_decides_between_a_copy_and_a_refusal(x, make, kind, expected, got, copied):
    plan = plan_layout(ArrayInfo.of(make(x)), Rules("mylib", "to_mylib", **STRICT))
    assert plan.outcome == ("copied" if copied else "refused")
    assert plan.permit(True).outcome == plan.outcome
    refused = plan.permit(False)
    assert refused.outcome == "refused"
    assert type(refused.exception()).__name__ == kind
    assert expected in str(refused.exception())
    assert got in str(refused.exception())


def test_what_the_rules_allow_is_shared(x):
    for view in (x, x[:1], x[:0], x[0]):
        assert plan_layout(ArrayInfo.of(view), Rules("mylib", "to_mylib", **STRICT)).shared
    lenient = Rules("mylib", "to_mylib", readonly=True)
    for view in (x[::-1], x.T, read_only(x.view()), x.astype("float64"), x[None]):
        assert plan_layout(ArrayInfo.of(view), lenient).permit(False).shared
    strict = Rules("mylib", "to_mylib", **STRICT)
    assert plan_layout(ArrayInfo.of(read_only(x)), strict, allow_readonly=True).shared
