"""Numbers become 16-bit floats by one rounding, in reductions as elsewhere."""

import ctypes
import struct
from fractions import Fraction

import numpy as np
import pytest
from doubles import host_kernels

import gpuinterop as gi

pytestmark = pytest.mark.text

DOUBLES = [
    1 + 2**-11 + 2**-40, 1 + 2**-11 - 2**-40, 1 + 2**-11, 1 + 3 * 2**-11 - 2**-45, -1 - 2**-11 - 2**-50,
    1 + 2**-8 + 2**-40, 1 + 2**-8 - 2**-40, 1 + 2**-8, -1 - 2**-8 - 2**-45, 2**-24 + 2**-60, 2**-25,
    2**-25 + 2**-70, 65519.999999, 65520.0, 1e300, -1e300, 3.38e38, 0.0, -0.0, np.inf, -np.inf, 1e-300,
]  # fmt: skip


def nearest(value: float, name: str) -> float:
    """The number of the format that is nearest to `value`, ties to even, by exact arithmetic."""
    digits, least, most = {"half": (11, -24, 65504.0), "bfloat": (8, -133, 3.3895313892515355e38)}[
        name
    ]
    if value == 0 or np.isinf(value):
        return value
    exponent = max(int(np.frexp(value)[1]) - digits, least)
    rounded = round(Fraction(value) / Fraction(2) ** exponent) * Fraction(2) ** exponent
    return float(np.copysign(np.inf, value)) if abs(rounded) > most else float(rounded)


def as_float(bits: int, name: str) -> float:
    if name == "half":
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


@pytest.fixture(scope="module")
def rounding() -> ctypes.CDLL:
    """What a reduction's store does with a value, under g++."""
    text = "".join(
        host_kernels.kernel_text(f"{name}.cuh")
        for name in ("device", "rounding", "integers", "prelude")
    )
    for kind, name in (("f16", "half"), ("bf16", "bfloat")):
        for given in ("double", "float", "long long"):
            text += (
                f'extern "C" unsigned {name}_of_{given.split()[0]}({given} x) '
                f"{{ return gi_to<{kind}>(x).bits; }}\n"
            )
    library = host_kernels.load(text)
    for name in ("half", "bfloat"):
        getattr(library, f"{name}_of_double").argtypes = [ctypes.c_double]
        getattr(library, f"{name}_of_float").argtypes = [ctypes.c_float]
        getattr(library, f"{name}_of_long").argtypes = [ctypes.c_longlong]
    return library


@pytest.mark.parametrize("name", ["half", "bfloat"])
def test_one_rounding(rounding: ctypes.CDLL, name: str) -> None:
    for value in DOUBLES:
        got = as_float(getattr(rounding, f"{name}_of_double")(value), name)
        assert struct.pack("<d", got) == struct.pack("<d", nearest(value, name)), value
    for value in map(float, np.array(DOUBLES, np.float64).clip(-1e38, 1e38).astype(np.float32)):
        got = as_float(getattr(rounding, f"{name}_of_float")(value), name)
        assert got == nearest(value, name)
    for whole in (2049, 4097, 257, 2**53 + 1, -(2**62), 2**24 + 1, 65519, 65520):
        got = as_float(getattr(rounding, f"{name}_of_long")(whole), name)
        assert got == nearest(float(whole), name)
    nan = as_float(getattr(rounding, f"{name}_of_double")(float("nan")), name)
    assert np.isnan(nan)


def test_a_reduction_rounds_its_result_once(device: str) -> None:
    x = np.array([[1 + 2**-11 + 2**-40], [1 + 2**-11 - 2**-40], [65519.999]])
    found = gi.GpuArray(x, device=device).prod(axis=1, dtype="float16")
    assert found.tolist() == [1 + 2**-10, 1, 65504]
