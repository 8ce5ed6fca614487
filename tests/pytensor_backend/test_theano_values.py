"""Theano's names give the dtypes and values of Theano 0.8.2, which theano_record/values.json records."""

import json
from pathlib import Path

import pytest
from doubles import driver
from doubles.on_fake import FAKE

pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)

from old_programs import run
from test_graphs import CASTS_WRAP

# What is different on purpose: the reason, and all expressions that it concerns.
DIFFERENT = {
    "Theano's optimizer took & and | with a constant for logical operations": """
        T.and_(k,3)
        T.or_(k,3)
        bits|2
    """,
    "Theano converted 64-bit integers to float64 and back": """
        T.ceil(int64_limits)
        T.ceil(uint64_limits)
        T.floor(int64_limits)
        T.floor(uint64_limits)
        T.trunc(int64_limits)
        T.trunc(uint64_limits)
    """,
    "a negative power of an integer raises, as in NumPy": """
        T.pow(2,k)
        int16_few ** int16_small
        int32_few ** int32_small
        int64_few ** int64_small
        int8_few ** int8_small
    """,
    "equal elements are sorted in any order": """
        T.argsort(k)
        T.argsort(k,axis=None)
    """,
    "Theano combined the bits of integers": """
        T.all(uint8_small)
        T.any(int8_few)
        T.any(uint8_limits)
    """,
    "a float divided by 0 with // is infinite, as in Theano's C code": """
        -7//x
        T.int_div(p,bits[0])
        d//zero
        p//zero
    """,
    "Theano lost an axis of length 1": """
        col[:,None]
    """,
    "Theano's optimizer moved signs of integers to where they do not wrap, or from there": """
        -(-uint8_limits/d[0,0])
        -uint8_small*d[0,0]
        uint16_small*-1
        uint8_limits*-1
    """,
    "the deviation of one element, and the mean of none of the constants 0, is the constant 0": """
        T.grad(T.std(s*s),s)
        T.mean(T.isnan(k[:0]))
    """,
    "Theano's optimizer found the largest element before the logarithm, which made others nan": """
        T.argmax(T.log(y))
    """,
    "Theano gave float64 for float32": """
        T.angle(z)
        T.grad(T.sum(T.log10(p)), p)
        T.grad(T.sum(T.log2(p)), p)
    """,
}


def compared(device, floats="float32", mode="", share=1) -> dict[str, str]:
    """What is different, by expression, in a process whose PyTensor has Theano's names."""
    kernels = "from doubles import host_kernels; host_kernels.install(); " if FAKE else ""
    code = f"{kernels}from theano_record import compare; compare.main({device!r}, {floats!r}, {mode!r}, {share})"
    done = driver.python(
        "-W",
        "ignore",
        "-c",
        code,
        cwd=Path(__file__).parent,
        PYTENSOR_FLAGS="cxx=,blas__ldflags=",
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("share", [8, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("floats", "mode"), [("float32", ""), ("float64", ""), ("float32", "GPU")])
def test_names_of_theano_have_its_dtypes_and_values(floats, mode, share) -> None:
    """Every eighth expression, or all."""
    expected = {line.strip() for lines in DIFFERENT.values() for line in lines.strip().splitlines()}
    found = compared("cpu", floats, mode, share)
    if not CASTS_WRAP:
        found = {text: why for text, why in found.items() if not why.startswith("OverflowError")}
    assert {text: why for text, why in found.items() if text not in expected} == {}
    assert share > 1 or not expected - found.keys(), "remove these expressions from the table"


@pytest.mark.driver
def test_names_of_theano_have_its_values_on_a_gpu() -> None:
    expected = {line.strip() for lines in DIFFERENT.values() for line in lines.strip().splitlines()}
    found = compared("gpu", share=8 if FAKE else 1)  # g++ compiles the kernels of the fake driver
    assert {text: why for text, why in found.items() if text not in expected} == {}


CLASSES = """\
import numpy as np, theano, theano.tensor as T
from theano.tensor.var import TensorVariable
x, shared = T.matrix(), theano.shared(np.ones((2, 2), 'float32'))
print [isinstance(v, T.TensorVariable) for v in (x, x + 1, x[0], shared, shared + 1, T.constant(1), 1)]
print T.TensorVariable is TensorVariable
try:
    if x > 0: pass
except TypeError, error:
    print 'refused'
print bool(x), bool(T.eq(x, 0))
"""


def test_shared_variables_and_constants_are_no_tensor_variables(script) -> None:
    lines = run(script(CLASSES), device="cpu")[0].splitlines()
    assert lines[0] == "[True, True, True, False, True, False, False]"
    assert lines[1:] == ["True", "refused", "True True"]
