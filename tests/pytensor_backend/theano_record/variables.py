"""The values of the variables of values.json, in the language that Python 2.7 and 3 share."""

import __future__

import numpy as np

INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
DTYPES = INTEGERS + "float32 float64".split()


def _limits(dtype):
    if dtype.startswith("float"):
        return [-2.5, -1.5, -0.5, 0.0, 0.5, 2.5]
    info = np.iinfo(dtype)
    return [info.min, info.min + 3, 0, 7, info.max - 1, info.max]


def _small(dtype):
    """Values of both signs without 0, to divide by and to multiply with."""
    return [1, 2, 3, 5, 2, 7] if dtype.startswith("u") else [1, -2, 3, -5, 2, -7]


def values():
    """Return the arrays of the variables by their names."""
    found = {"{}_limits".format(t): np.array(_limits(t), t) for t in DTYPES}
    found.update(("{}_small".format(t), np.array(_small(t), t)) for t in DTYPES)
    found.update(("{}_few".format(t), np.array([9, 4, 0, 3, 250, 1]).astype(t)) for t in DTYPES)
    found.update(("{}_0d".format(t), np.array(_small(t)[5], t)) for t in DTYPES)
    real = np.array([[0.5, -1.25, 2, 0.75], [1.5, 0.25, -0.5, 3], [-2.25, 1, 0, 0.125]])
    found.update(
        x=np.array([-2.5, -1.5, -1, -0.5, -0.25, 0, 0.25, 0.5, 1, 1.5, 2.5, 3.5], "float32"),
        y=np.array([-2, 1.5, -3, 0.5, 4, 0, -1, 0.5, 2, 1.5, -2.5, 3], "float32"),
        p=np.array([0.125, 0.25, 0.5, 0.75, 0.875], "float32"),
        special=np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1], "float32"),
        big=np.array([1e30, -1e30, 100, -100, 30, -30], "float32"),
        m=real.astype("float32"),
        n=real.T[:, :2].astype("float32").copy(),
        square=np.array([[4, 1, 0.5], [1, 3, 0.25], [0.5, 0.25, 2]], "float32"),
        d=real,
        k=np.array([[3, -1, 2, 0], [1, 5, -4, 3], [3, 3, -1, 2]], "int32"),
        t=(np.arange(24).reshape((2, 3, 4)) * 0.25 - 2).astype("float32"),
        u=(np.arange(24).reshape((2, 4, 3)) * -0.5 + 3).astype("float32"),
        q=(np.arange(96).reshape((1, 2, 6, 8)) % 7 * 0.5 - 1).astype("float32"),
        w=(np.arange(36).reshape((2, 2, 3, 3)) % 5 * 0.25 - 0.5).astype("float32"),
        row=np.array([[1, 2, 3, 4]], "float32"),
        col=np.array([[1], [2], [3]], "float32"),
        s=np.array(1.5, "float32"),
        r=np.array(-3, "int32"),
        zero=np.array(0, "int32"),
        labels=np.array([2, 0, 3], "int32"),
        bits=np.array([0, 1, 1], "int8"),
        choice=np.array([[0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]], "int32"),
        z=np.array([1 + 2j, -1.5j, 3, -2 - 0.5j], "complex64"),
    )  # fmt: skip
    return found


def compiled(text):
    """Compile an expression whose `/` divides integers to floats."""
    return compile(text, text, "eval", __future__.division.compiler_flag)
