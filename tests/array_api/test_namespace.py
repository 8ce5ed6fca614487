"""`gpuinterop.array_api`: the standard's names, dtypes, classes and semantics, compared with NumPy's namespace."""

import inspect
import itertools
import subprocess
import sys

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import array_api as xp

MAIN = """
    abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 atanh bitwise_and
    bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor bool broadcast_arrays
    broadcast_shapes broadcast_to can_cast ceil clip complex128 complex64 concat conj copysign cos cosh
    count_nonzero cumulative_prod cumulative_sum diff divide e empty empty_like equal exp expand_dims expm1 eye
    finfo flip float32 float64 floor floor_divide from_dlpack full full_like greater greater_equal hypot iinfo imag
    inf int16 int32 int64 int8 isdtype isfinite isin isinf isnan less less_equal linspace log log10 log1p log2
    logaddexp logical_and logical_not logical_or logical_xor matmul matrix_transpose max maximum mean meshgrid min
    minimum moveaxis multiply nan negative newaxis nextafter nonzero not_equal ones ones_like permute_dims pi
    positive pow prod real reciprocal remainder repeat reshape result_type roll round searchsorted sign signbit sin
    sinh sort sqrt square squeeze stack std subtract sum take take_along_axis tan tanh tensordot tile tril triu
    trunc uint16 uint32 uint64 uint8 unique_all unique_counts unique_inverse unique_values unstack var vecdot where
    zeros zeros_like __array_namespace_info__ fft linalg
"""
SQUARE = np.array([[4, 1, 0.5], [1, 3, 0.25], [0.5, 0.25, 2]])
ROW = np.array([3.0, 1.0, 2.0])
PATTERNS = [(SQUARE,), (ROW,), (SQUARE, SQUARE), (ROW, ROW), (SQUARE, 1), ([ROW, ROW],)]
SEQUENCES = ("concat", "stack")


def test_every_name_is_there():
    assert {*MAIN.split()} <= {*dir(xp)}
    for name in MAIN.split():
        getattr(xp, name)
    assert not any(hasattr(part, "loadtxt") for part in (xp, xp.linalg, xp.fft))
    assert [getattr(part, name).__name__ for part in (xp.linalg, xp.fft) for name in part.__all__]


def test_arrays_name_their_namespace():
    for x in (gi.zeros(2, device="cpu"), gi.zeros(2, "int8", device="cpu")):
        assert x.__array_namespace__() is x.__array_namespace__(api_version="2023.12") is xp
        with pytest.raises(gi.ArgumentTypeError, match=r"2025\.12"):
            x.__array_namespace__(api_version="2020.01")


def test_numpys_other_functions_of_arrays_are_there():
    """Programs look for them in the namespace, as xarray does for pad and cumsum."""
    x, stacked = gi.array(ROW, device="cpu"), gi.array(SQUARE, device="cpu")
    for found, expected in (
        (xp.pad(x, 1), np.pad(ROW, 1)),
        (xp.cumsum(x), np.cumsum(ROW)),
        (xp.vstack([x, x]), np.vstack([ROW, ROW])),
        (xp.linalg.lstsq(stacked, x)[0], np.linalg.lstsq(SQUARE, ROW)[0]),
        (xp.fft.fft2(stacked), np.fft.fft2(SQUARE)),
    ):
        assert type(found) is gi.GpuArray
        np.testing.assert_allclose(found.get(), expected)


def flat(value):
    if isinstance(value, (tuple, list)):
        return [array for item in value for array in flat(item)]
    return [value]


def on(value, dtype):
    if isinstance(value, list):
        return [on(item, dtype) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    return gi.array(value if value.dtype == bool else value.astype(dtype), device="cpu")


def host(value, dtype):
    if isinstance(value, list):
        return [host(item, dtype) for item in value]
    if not isinstance(value, np.ndarray) or value.dtype == bool:
        return value
    return value.astype(dtype)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_functions_of_arrays_give_numpys_values_in_wide_arrays(dtype):
    """float32 arrays are CudaNdarray, and their results are not."""
    seen, wrong = 0, []
    parts = [(xp, np, MAIN.split())]
    parts += [(getattr(xp, p), getattr(np, p), getattr(xp, p).__all__) for p in ("linalg", "fft")]
    for own, numpys, names in parts:
        for name, pattern in itertools.product(names, PATTERNS):
            # Others are not NumPy's. NumPy takes a list for an array.
            if not hasattr(inspect.unwrap(getattr(own, name)), "__signature__") or (
                isinstance(pattern[0], list) and name not in SEQUENCES
            ):
                continue
            try:
                expected = flat(getattr(numpys, name)(*(host(x, dtype) for x in pattern)))
            except Exception:  # what NumPy refuses is refused here too
                with pytest.raises(Exception):  # noqa: B017
                    getattr(own, name)(*(on(x, dtype) for x in pattern))
                continue
            try:
                got = flat(getattr(own, name)(*(on(x, dtype) for x in pattern)))
            except Exception as error:
                wrong += [f"{name} of {len(pattern)} arguments: {type(error).__name__}: {error}"]
                continue
            seen += 1
            for a, b in zip(got, map(np.asarray, expected), strict=True):
                if not isinstance(a, gi.GpuArray) and name in ("broadcast_arrays", "matrix_rank"):
                    continue  # of a number, or of a vector
                right = type(a) is gi.GpuArray and a.dtype == b.dtype and a.shape == b.shape
                close = right and np.allclose(a.get(), b, rtol=1e-5, atol=1e-6, equal_nan=True)
                wrong += [] if close else [f"{name} of {len(pattern)} arguments: {a!r} for {b!r}"]
    assert wrong == [], "\n".join(wrong)
    assert seen > 150


@pytest.mark.parametrize(
    ("made", "dtype", "values"),
    [
        (lambda: xp.asarray([1, 2], device="cpu"), "int64", [1, 2]),
        (lambda: xp.asarray(True, device="cpu"), "bool", True),
        (lambda: xp.asarray(1j, device="cpu"), "complex128", 1j),
        (lambda: xp.asarray([], device="cpu"), "float64", []),
        (lambda: xp.arange(3, device="cpu"), "int64", [0, 1, 2]),
        (lambda: xp.arange(0, step=1.0, device="cpu"), "float64", []),
        (lambda: xp.arange(1, 2, 0.5, dtype=xp.float32, device="cpu"), "float32", [1, 1.5]),
        (lambda: xp.linspace(0, 1, 3, device="cpu"), "float64", [0, 0.5, 1]),
        (lambda: xp.linspace(0, 1j, 2, device="cpu"), "complex128", [0, 1j]),
        (lambda: xp.linspace(0, 1, 2, endpoint=False, dtype=xp.float32, device="cpu"), "float32", [0, 0.5]),
        (lambda: xp.full(2, 7, device="cpu"), "int64", [7, 7]),
        (lambda: xp.full((), False, device="cpu"), "bool", False),
        (lambda: xp.full(2, xp.asarray(0.5, device="cpu"), dtype=xp.float32, device="cpu"), "float32", [0.5, 0.5]),
        (lambda: xp.full_like(gi.zeros(2, device="cpu"), xp.asarray(0.5, device="cpu")), "float32", [0.5, 0.5]),
        (lambda: xp.zeros(2, device="cpu"), "float64", [0, 0]),
        (lambda: xp.ones(1, dtype=xp.int8, device="cpu"), "int8", [1]),
        (lambda: xp.eye(2, 3, k=1, device="cpu"), "float64", [[0, 1, 0], [0, 0, 1]]),
        (lambda: xp.zeros_like(gi.ones(2, device="cpu")), "float32", [0, 0]),
        (lambda: xp.ones_like(gi.zeros(2, device="cpu"), dtype=xp.int16), "int16", [1, 1]),
        (lambda: xp.full_like(gi.zeros(2, device="cpu"), 3), "float32", [3, 3]),
        (lambda: xp.fft.fftfreq(4, d=0.5, device="cpu"), "float64", [0, 0.5, -1, -0.5]),
        (lambda: xp.fft.rfftfreq(4, dtype=xp.float32, device="cpu"), "float32", [0, 0.25, 0.5]),
    ],
)  # fmt: skip
def test_makers_have_the_standards_default_dtypes(made, dtype, values):
    x = made()
    assert (type(x), x.dtype, x.device.type) == (gi.GpuArray, dtype, "cpu")
    assert x.tolist() == values
    assert xp.empty_like(x).shape == xp.empty(x.shape, device="cpu").shape == x.shape


@pytest.mark.parametrize("value", [[gi.ones(2, device="cpu")], 1.0, np.ones(2)])
def test_other_values_are_refused(value):
    for function in (xp.abs, xp.linalg.det, xp.fft.fft):
        with pytest.raises(TypeError, match="gpuinterop array"):
            function(value)


def test_a_subclass_counts_as_its_class():
    class Own(gi.GpuArray):
        pass

    x = Own([[1, 2]], device="cpu")
    for found in (xp.reshape(x, (2,)), xp.exp(x), xp.concat([x, x]), xp.sum(x, axis=0)):
        assert type(found) is gi.GpuArray


@pytest.mark.parametrize("function", [xp.concat, xp.sum, xp.exp])
def test_a_list_that_contains_itself_is_refused(function):
    items = [gi.ones(2, device="cpu")]
    items.append(items)
    with pytest.raises(RecursionError):
        function(items)


def test_memory_is_shared_where_it_may_be():
    n = np.arange(3.0)
    assert gi.shares_memory(xp.asarray(n, device="cpu"), n)
    assert gi.shares_memory(xp.from_dlpack(n), n)
    x = gi.ones(3, device="cpu")
    assert gi.shares_memory(xp.astype(x, xp.float32, copy=False), x)
    assert not gi.shares_memory(xp.astype(x, xp.float32, device=x.device), x)


@pytest.mark.parametrize("value", [[1, 2], (), 1.5, [np.ones(2, "float32")]])
def test_asarray_refuses_values_that_have_to_be_copied(device, value):
    with pytest.raises(ValueError):
        np.asarray(value, copy=False)
    with pytest.raises(gi.CopyForbiddenError):
        xp.asarray(value, device=device, copy=False)
    with pytest.raises(gi.DTypeError, match="asarray"):
        xp.asarray(value, dtype="flaot32", device=device)


def test_sorting():
    x = xp.asarray([[2, 1, 2, 3], [1, 1, 0, 0]], device="cpu")
    n = x.get()
    for axis in (0, 1, -1):
        assert xp.sort(x, axis=axis).tolist() == np.sort(n, axis).tolist()
        assert xp.sort(x, axis=axis, descending=True).tolist() == (-np.sort(-n, axis)).tolist()
        found = xp.argsort(x, axis=axis, descending=True)
        assert (
            found.tolist() == np.argsort(-n, axis, stable=True).tolist()
        )  # equal elements keep their order
    assert xp.unique_values(x).tolist() == [0, 1, 2, 3]
    assert xp.unique_values(xp.asarray([np.nan, np.nan], device="cpu")).shape == (2,)


def test_real_matrices_have_complex_eigenvalues():
    found = xp.linalg.eig(gi.asarray(SQUARE, dtype="float32", device="cpu"))
    assert found.eigenvalues.dtype == found.eigenvectors.dtype == "complex64"
    values = xp.linalg.eigvals(xp.asarray(SQUARE, device="cpu"))
    np.testing.assert_allclose(np.sort(values.get().real), np.linalg.eigvalsh(SQUARE))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("result_type('bfloat16', 'int8')", "bfloat16"),
        ("result_type('bfloat16', 'float16')", "float32"),
        ("can_cast('bfloat16', 'float32')", "True"),
        ("finfo('bfloat16').bits", "16"),
        ("iinfo('uint16').max", "65535"),
    ],
)
def test_names_of_dtypes_need_no_import_of_ml_dtypes(call, expected):
    pytest.importorskip("ml_dtypes")
    command = [sys.executable, "-c", f"import gpuinterop.array_api as xp; print(xp.{call})"]
    assert subprocess.run(command, capture_output=True, text=True).stdout.strip() == expected


@pytest.mark.parametrize("name", ["can_cast", "finfo", "iinfo", "result_type"])
def test_a_name_of_no_dtype_raises_the_error_of_every_entry(name):
    with pytest.raises(gi.DTypeError) as raised:
        getattr(xp, name)(*["flaot32"] * (1 + (name == "can_cast")))
    assert raised.value.where == name


def test_dtypes_and_limits():
    x = gi.zeros(1, device="cpu")
    assert xp.result_type(x, xp.int64) == "float64"
    assert xp.can_cast(x, xp.float64) is True
    assert xp.finfo(x).eps == xp.finfo(xp.complex64).eps == np.finfo("float32").eps
    assert type(xp.finfo(x).max) is float
    assert xp.iinfo(xp.int8).max == 127
    assert xp.isdtype(xp.int8, ("real floating", "signed integer")) is True
    assert xp.broadcast_shapes((3, 1), (2,)) == (3, 2)
    assert xp.clip(x, 1).tolist() == xp.clip(x, min=xp.asarray(1.0, device="cpu")).tolist() == [1]


def test_what_the_namespace_says_of_itself():
    info = xp.__array_namespace_info__()
    assert info.default_device() == gi.default_device()
    assert info.devices() == tuple(gi.devices())
    assert info.default_dtypes()["indexing"] == "int64"
    assert info.dtypes(kind="complex floating").keys() == {"complex64", "complex128"}
    assert len(info.dtypes()) == 13
    assert xp.float16 == "float16"  # which is not the standard's
    assert info.capabilities()["max dimensions"] == 64


def test_transposed_matrices():
    x = gi.asarray(SQUARE[:2], device="cpu", dtype="float64")
    assert x.mT.tolist() == SQUARE[:2].T.tolist()
    assert gi.shares_memory(x.mT, x)
    assert not hasattr(x[0], "mT")
    with pytest.raises(gi.MissingNameError, match="two or more axes"):
        x[0].mT  # noqa: B018


@pytest.mark.driver
@pytest.mark.parametrize("pair", [[1, True], [2.5, 1j]])
def test_a_list_with_arrays_on_a_gpu_becomes_an_array_there(pair):
    x, i = (gi.array(v, device="cuda:0") for v in (np.float64(0.5), np.int64(3)))
    with gi.downloads("refuse"), gi.log_transfers() as log:
        found = xp.asarray([x, i, *pair])
        nested = xp.asarray([(x, i), pair], dtype=xp.complex64)
    assert {transfer.kind for transfer in log} == {"host_to_device"}
    expected = np.asarray([0.5, np.int64(3), *pair])
    assert (type(found), str(found.device)) == (gi.GpuArray, "cuda:0")
    np.testing.assert_array_equal(found.get(), expected, strict=True)
    expected = np.asarray([(0.5, 3), pair], "complex64")
    np.testing.assert_array_equal(nested.get(), expected, strict=True)
    assert xp.asarray([x, i], device="cpu").device.type == "cpu"
