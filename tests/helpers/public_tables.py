"""Lists of the package's names, read from what its public functions accept."""

import numpy as np

import gpuinterop as gi

_OF_ML_DTYPES = """bfloat16 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2
float8_e5m2fnuz float8_e8m0fnu float6_e2m3fn float6_e3m2fn float4_e2m1fn int4 uint4 int2 uint2 int1 uint1 complex32
bcomplex32 float16_e1 int3""".split()


def has_dtype(name: str) -> bool:
    """Whether gpuinterop has the dtype, which an ml_dtypes that is old or missing may not define."""
    try:
        gi.empty(1, name, device="cpu")
    except gi.DTypeError as error:
        return error.expected.startswith("ml_dtypes")
    return True


NUMPY_NAMES = tuple(filter(has_dtype, dict.fromkeys(np.dtype(t).name for t in np.typecodes["All"])))
ML_NAMES = tuple(filter(has_dtype, _OF_ML_DTYPES))
NAMES = NUMPY_NAMES + ML_NAMES
