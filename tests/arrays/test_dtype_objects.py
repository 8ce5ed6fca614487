"""Dtype objects of other libraries are accepted wherever a dtype is, and no library is imported for them."""

import types

import numpy as np
import pytest

import gpuinterop as gi


class PrintedDType:
    """Stands for a dtype object that NumPy cannot read: of TensorFlow, Numba, MLX or Paddle."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def warp_class(name):
    return type(name, (), {"__module__": "warp.types"})


def of(library, name):
    return lambda: getattr(pytest.importorskip(library), name)


DTYPES = {
    "torch float64": (of("torch", "float64"), "float64"),
    "torch bool": (of("torch", "bool"), "bool"),
    "torch bfloat16": (of("torch", "bfloat16"), "bfloat16"),
    "torch float8": (of("torch", "float8_e4m3fn"), "float8_e4m3fn"),
    "jax bfloat16": (of("jax.numpy", "bfloat16"), "bfloat16"),
    "jax int8": (of("jax.numpy", "int8"), "int8"),
    "ml_dtypes": (of("ml_dtypes", "bfloat16"), "bfloat16"),
    "array_api_strict": (of("array_api_strict", "int16"), "int16"),
    "cupy": (lambda: np.uint8, "uint8"),  # CuPy's dtypes are NumPy's
    "tensorflow": (lambda: PrintedDType("tf.float32"), "float32"),
    "numba": (lambda: PrintedDType("complex64"), "complex64"),
    "mlx": (lambda: PrintedDType("mlx.core.float16"), "float16"),
    "warp": (lambda: warp_class("int32"), "int32"),
}


@pytest.mark.parametrize(("make", "name"), DTYPES.values(), ids=DTYPES)
def test_functions_take_dtype_objects(make, name):
    dtype = make()
    for made in (
        gi.asarray([0, 1], dtype, device="cpu"),
        gi.GpuArray([0, 1], dtype=dtype, device="cpu"),
        gi.zeros(2, dtype, device="cpu"),
        gi.zeros_like(gi.ones(2, device="cpu"), dtype),
        np.zeros_like(gi.ones(2, device="cpu"), dtype),
        gi.ones(2, device="cpu").astype(dtype),
    ):
        assert made.dtype.name == name


@pytest.mark.parametrize("dtype", [of("torch", "float64"), lambda: PrintedDType("tf.float64")])
def test_operations_take_dtype_objects(dtype):
    x = gi.GpuArray(np.ones(3, np.float32), device="cpu")
    for result in (
        x.sum(dtype=dtype()),
        np.mean(x, dtype=dtype()),
        gi.exp(x, dtype=dtype()),
        gi.fuse(lambda a: a.astype(dtype()) + 1)(x),
    ):
        assert result.dtype == np.float64


def test_class_that_holds_one_dtype_takes_its_object():
    float32 = PrintedDType("torch.float32")
    assert gi.CudaNdarray([1], "cpu", dtype=float32).dtype == np.float32
    with pytest.raises(gi.DTypeError, match="float32"):
        gi.CudaNdarray([1], "cpu", dtype=PrintedDType("torch.int32"))


@pytest.mark.parametrize(
    ("dtype", "fix"),
    [
        (PrintedDType("torch.qint8"), "pass 'int8'"),
        (PrintedDType("tf.resource"), "pass a name such as"),
        (types.SimpleNamespace(name="float32"), "pass a name such as"),
        ("torch.float32", "pass 'float32'"),
        (object, "pass a name such as"),
    ],
)
def test_other_objects_are_refused(dtype, fix):
    with pytest.raises(gi.DTypeError, match=r"^zeros: expected a dtype of") as caught:
        gi.zeros(2, dtype, device="cpu")
    assert caught.value.fix.startswith(fix)
