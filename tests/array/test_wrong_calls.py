"""Wrong calls: each raises an error of this library that names the call, the rule, the value and a fix."""

import functools

import numpy as np
import pytest

import gpuinterop as gi

# The call, the class of its error and the name in its message, and words of the message.
CALLS = [
    # creation
    ('gi.empty(3, order="K")', "ShapeError: empty"),
    ('gi.empty("a")', "ArgumentTypeError: empty"),
    ("gi.empty(-1)", "ShapeError: empty"),
    ("gi.zeros(10**5000)", "BoundsError: zeros"),
    ("gi.ones(1 << 62)", "ShapeError: ones"),
    ("gi.zeros(3, 10**5000)", "DTypeError: zeros"),
    ('gi.zeros(3, "flaot32")', "DTypeError: zeros"),
    ("gi.zeros(3, object)", "DTypeError: zeros"),
    ('gi.zeros(3, "cpu")', "DTypeError: zeros", "device='cpu'"),
    ("gi.empty(3, 3)", "DTypeError: empty"),
    ("gi.CudaNdarray.zeros(2, 63)", "DeviceError: CudaNdarray.zeros"),
    ("gi.CudaNdarray.zeros(3, 99)", "DeviceError: CudaNdarray.zeros"),
    ("gi.CudaNdarray.zeros(-1)", "ShapeError: CudaNdarray.zeros"),
    ("gi.zeros(3, device=10**5000)", "DeviceError: zeros"),
    ('gi.device("graphics")', "DeviceError: device"),
    ('gi.device("cuda:" + "9" * 5000)', "DeviceError: device"),
    ('gi.eye(3, k="a")', "ArgumentTypeError: diagonal"),
    ('gi.full((2,), "a")', "ConversionTypeError: full"),
    ("gi.zeros_like(3)", "ArgumentTypeError: zeros_like"),
    ("gi.full_like([1, 2], 0)", "ArgumentTypeError: full_like"),
    ('gi.full_like(v, "a")', "ConversionTypeError: full_like"),
    ("gi.empty_like(huge)", "OutOfMemoryError: empty_like"),
    ('gi.pinned_empty((2, -3), device="cpu")', "ShapeError: pinned_empty"),
    ('x.to_device("cude")', "DeviceError: to_device"),
    ('gi.pinned_empty(3, device="cpu:1")', "DeviceError: pinned_empty"),
    ('gi.capture(lambda y: y + 1, x, device="cude")', "DeviceError: capture"),
    ('gi.from_dlpack(x, device="cpu:1")', "DeviceError: from_dlpack"),
    # ranges
    ("gi.arange(0, 3, 0)", "ShapeError: arange"),
    ('gi.arange("a")', "ShapeError: arange"),
    ("gi.arange(2**70)", "ShapeError: arange"),
    ('gi.arange(float("nan"))', "ShapeError: arange"),
    ("gi.arange(2**24, 2**24 + 4)", "DTypeError: arange"),
    ("gi.arange(3, dtype=bool)", "DTypeError: arange"),
    ("gi.arange(2**63)", "ShapeError: arange"),
    ("gi.arange(2**63, 2**63 + 3)", "DTypeError: arange"),
    ('gi.arange(2**64, 2**64 + 2, dtype="uint64")', "DTypeError: arange"),
    ('gi.linspace("a", 1)', "ShapeError: linspace"),
    ("gi.linspace(0, 1, -1)", "ShapeError: linspace"),
    # values
    ('gi.CudaNdarray("abc")', "ConversionTypeError: CudaNdarray"),
    ('gi.CudaNdarray(np.array(["a"]))', "DTypeError: CudaNdarray"),
    ("gi.CudaNdarray(np.ndarray)", "ConversionTypeError: CudaNdarray"),
    ('gi.CudaNdarray([1], dtype="int32")', "DTypeError: CudaNdarray"),
    ('gi.CudaNdarray([1, 2], "float32")', "DeviceError: CudaNdarray", "dtype='float32'"),
    ('gi.CudaNdarray(large, device="cpu")', "OutOfMemoryError: CudaNdarray"),
    ('gi.GpuArray([3], "O")', "DTypeError: GpuArray"),
    ("gi.GpuArray([1j])", "DTypeError: GpuArray", "dtype='complex64'"),
    ('gi.asarray([3], device="nowhere")', "DeviceError: asarray"),
    ('gi.asarray(large, copy=True, device="cpu")', "OutOfMemoryError: asarray"),
    ("gi.asarray(gi.GpuArray)", "ConversionTypeError: asarray"),
    ('gi.asarray(["a"])', "ConversionTypeError: asarray"),
    ('gi.asarray(np.zeros(3, "V3"))', "DTypeError: asarray"),
    ('gi.asarray(np.zeros(3, ">M8[s]"))', "DTypeError: asarray"),
    ('gi.asarray(x, copy="never")', "ArgumentTypeError: asarray", "copy=False"),
    ("v[...] = MASKED", "UnsupportedError: x[key] = value"),
    ("v[...] = 1e39", "DTypeError: x[key] = value"),
    ("v.fill(10**400)", "DTypeError: fill"),
    ("gi.full(2, 1e39)", "DTypeError: full"),
    ("v.fill([1, 2])", "ConversionTypeError: fill"),
    ("v.get(3)", "ArgumentTypeError: get"),
    ('v.astype("O")', "DTypeError: astype"),
    ("v.copy(order=5)", "ShapeError: copy"),
    ('v.view("int32")', "UnsupportedError: view"),
    ('huge.astype("int8")', "OutOfMemoryError: astype"),
    ("gi.concatenate([huge, huge])", "OutOfMemoryError: concatenate"),
    ("huge.expand_dims(1).sum(axis=1)", "OutOfMemoryError: sum"),
    ('f"{x:.2f}"', "ShapeError: format", "x.item(0)"),
    # shapes and axes
    ("v.shape = (3, 1)", "UnsupportedError: shape"),
    ("x.reshape((5, 5))", "ShapeError: reshape"),
    ("x.reshape((-1, 7))", "ShapeError: reshape"),
    ('x.reshape((3, 2), "F")', "ArgumentTypeError: reshape", "order='F'"),
    ("gi.ones(12).reshape(7, -1)", "ShapeError: reshape"),
    ("gi.ones(0).reshape(0, -1)", "ShapeError: reshape"),
    ("without_copies(lambda: x.T.reshape(6))", "CopyForbiddenError: reshape"),
    ("x.transpose((0, 0, 1))", "ShapeError: transpose"),
    ("x.swapaxes(0, 3)", "ShapeError: swapaxes"),
    ("x.swapaxes(0, 10**5000)", "ShapeError: swapaxes"),
    ("x.squeeze(0)", "ShapeError: squeeze"),
    ("x.squeeze((0, -2))", "ShapeError: squeeze"),
    ("x.expand_dims(7)", "ShapeError: expand_dims"),
    ("x.expand_dims((0, 0))", "ShapeError: expand_dims"),
    ("x.broadcast_to(2, 4)", "ShapeError: broadcast_to"),
    ("v.broadcast_to(1 << 62)", "ShapeError: broadcast_to"),
    ("x.diagonal(0, 1, 1)", "ShapeError: diagonal"),
    ("x.dimshuffle(0, 0, 1)", "ShapeError: dimshuffle"),
    ("x.dimshuffle(0, 1, 1.5)", "ShapeError: dimshuffle"),
    ("gi.dimshuffle(np.zeros((2, 3)), (0, 1))", "ArgumentTypeError: dimshuffle", "asarray"),
    ("x.strides = (4, 3)", "BoundsError: strides"),
    ("x.strides = (100, 4)", "BoundsError: strides"),
    ("x._strides = (25, 1)", "BoundsError: _strides"),
    ('x._set_stride("a", 1)', "ArgumentTypeError: _set_stride"),
    ('x._set_shape_i(0, "a")', "ArgumentTypeError: _set_shape_i"),
    ("x._restrided((2,), (1,), 1.5)", "ArgumentTypeError: as_strided"),
    ("x.swapaxes(True, 0)", "ArgumentTypeError: swapaxes"),
    ("x.squeeze(True)", "ArgumentTypeError: squeeze"),
    ("gi.concatenate([x, x], True)", "ArgumentTypeError: concatenate"),
    # keys
    ("x[0, (1, 2.5)]", "IndexKindError: x[key]"),
    ("x[10**5000]", "ArrayIndexError: x[key]"),
    ("x[::0]", "ShapeError: x[key]"),
    ('x[:"a"]', "ArgumentTypeError: x[key]"),
    ("x[0, 1.5:]", "ArgumentTypeError: x[key]"),
    ("x[1.0]", "IndexKindError: x[key]", "x[int(key)]"),
    ("x[[0, 0.5]]", "IndexKindError: x[key]", "int("),
    ('x.item("a")', "ArgumentTypeError: item"),
    ("x.item()", "ShapeError: item", "x.any()"),
    ("x.item(9)", "ArrayIndexError: item"),
    ("x.item(1, 2, 3)", "ArrayIndexError: item"),
    ("x.item((1, 2, 3))", "ArrayIndexError: item"),
    ("x.item(10**5000)", "ArrayIndexError: item"),
    ("gi.zeros((0, 2)).item()", "ShapeError: item", "x.size"),
    ('x.take(np.array([2**64 - 1], "uint64"))', "ArrayIndexError: take", "18446744073709551615"),
    ('x.take([0, 1], out=np.zeros(2, "float32"))', "ArgumentTypeError: take"),
    # pointers
    ("pointer(2**64 - 4, (2,))", "BoundsError: from_gpu_pointer"),
    ("pointer(64, (2,), (2**61 - 1,))", "BoundsError: from_gpu_pointer"),
    ("pointer(64, (2,), (-(2**40),))", "BoundsError: from_gpu_pointer"),
    ("pointer(-4, (1,))", "BoundsError: from_gpu_pointer"),
    ("pointer(64, (1,), nbytes=-5)", "BoundsError: from_gpu_pointer"),
    ("pointer(64, (1,), nbytes=2.5)", "ArgumentTypeError: from_gpu_pointer"),
    ("pointer(8, (2,), (1, 1))", "ShapeError: from_gpu_pointer"),
    ("pointer(v, (2,))", "ArgumentTypeError: from_gpu_pointer"),
    ('pointer("abc", (4, 5))', "ArgumentTypeError: from_gpu_pointer", "int"),
    ("pointer(x.ptr, (2**40, 2**40), None, x)", "ShapeError: from_gpu_pointer"),
    ("pointer(x.ptr, (2, 3), (2**62, 1), x)", "BoundsError: from_gpu_pointer", "4611686"),
    ("pointer(x.ptr, (2, 3), (1.5, 1), x)", "ArgumentTypeError: from_gpu_pointer", "strides"),
    (
        'pointer(x.ptr, 6, None, x, readonly="no")',
        "ArgumentTypeError: from_gpu_pointer",
        "readonly",
    ),
    ("pointer(x.ptr, (7,), None, x)", "BoundsError: from_gpu_pointer", "inside"),
    ("pointer(x.ptr, (4,), (-1,), x)", "BoundsError: from_gpu_pointer", "inside"),
    (
        'gi.GpuArray.from_pointer(x.ptr, (4,), "float64", None, x)',
        "BoundsError: GpuArray.from_pointer",
        "inside",
    ),
    (
        "gi.CudaNdarray.from_pointer(x.ptr, (2, 4), (4, 1), x)",
        "BoundsError: CudaNdarray.from_pointer",
        "inside",
    ),
    (
        "gi.CudaNdarray.from_pointer(x.ptr, (-1,), None, x)",
        "ShapeError: CudaNdarray.from_pointer",
        "-1",
    ),
    ('gi.CudaNdarray.from_pointer("a", 3)', "ArgumentTypeError: CudaNdarray.from_pointer"),
    ('gi.GpuArray.from_pointer(8, 3, "O")', "DTypeError: GpuArray.from_pointer"),
    (
        'gi.GpuArray.from_pointer(8, 2, "float32", (4, 4), device="cpu")',
        "ShapeError: GpuArray.from_pointer",
    ),
    ("x._dev_data = 2**64", "BoundsError: _dev_data"),
    ("x._dev_data = x.ptr + 2", "BoundsError: _dev_data", "aligned"),
    ('x._dev_data = "here"', "ArgumentTypeError: _dev_data"),
    ("del x._dev_data", "ArgumentTypeError: _dev_data"),
    ("del x.readonly", "ArgumentTypeError: readonly"),
    # operators and functions
    ("(x > 3) - (x > 3)", "DTypeError: subtract"),
    ("-(x > 3)", "DTypeError: negative"),
    ("(x > 3) << 1.0", "DTypeError: left_shift"),
    ('gi.floor(x.astype("complex64"))', "DTypeError: floor", "x.astype('float32')"),
    ('x.astype("uint64") & x.astype("int64")', "DTypeError: bitwise_and", "x.astype('int64')"),
    ("gi.exp(x, out=v)", "ShapeError: exp"),
    ('gi.exp(10**5000, dtype="float32")', "RangeError: exp"),
    ("gi.divmod(x, 2, out=(x.copy(), v))", "ShapeError: divmod"),
    ("gi.fuse(lambda x: x + 1)(3)", "ArgumentTypeError: <lambda>"),
    ("gi.allclose([1.0], [1.0])", "ArgumentTypeError: allclose", "asarray"),
    ("x.sum(axes=0)", "ArgumentTypeError: sum", "axis=0"),
    ("x.sum(keepdim=True)", "ArgumentTypeError: sum"),
    ("x.var(correction=1)", "ArgumentTypeError: var"),
    ("x.any(0, None, True, 1)", "ArgumentTypeError: any"),
    ("x.sum(0, axis=0)", "ArgumentTypeError: sum"),
    ("np.std(x, correction=1, ddof=1)", "ArgumentTypeError: numpy.std"),
    ("x.sum(where=None)", "DTypeError: sum"),
    # libraries, streams
    ("gi.shares_memory(v, 3)", "ConversionTypeError: shares_memory"),
    ("gi.from_dlpack(np.ndarray)", "ConversionTypeError: from_dlpack"),
    ("gi.from_dlpack(np.ones(2), cls=np.ndarray)", "ArgumentTypeError: from_dlpack"),
    ('gi.from_dlpack(np.ones(2), cls="CudaNdarray")', "ArgumentTypeError: from_dlpack"),
    ("v.__dlpack__(max_version=(1, -1))", "BoundsError: __dlpack__", "max_version"),
    ("gi.to(v, 5)", "ConversionTypeError: gpuinterop.to"),
    ("gi.explain(v, [])", "ConversionTypeError: gpuinterop.explain"),
    ('gi.to(v, "torch", strided=True)', "ArgumentTypeError: to(x, 'torch')"),
    ('gi.explain(v, "torch", strided=True)', "ArgumentTypeError: explain(x, 'torch')"),
    ('gi.from_any(np.zeros(3), layout="F")', "ArgumentTypeError: from_any"),
    ('gi.explain(b"abc", strict=True)', "ArgumentTypeError: explain(x, 'gpuinterop')"),
    ("gi.converters.pointer_arguments(v).__enter__()", "ArgumentTypeError: pointer_arguments"),
    ("gi.copy_async(v, [1, 2, 3])", "ArgumentTypeError: copy_async", "pinned_empty"),
    # numbers that Python does not print, and text that is not UTF-8
    ("x.round(10**5000)", "BoundsError: round"),
    ("np.linalg.norm(x, 10**5000)", "ShapeError: numpy.linalg.norm"),
    ("gi.to(x, 10**5000)", "ConversionTypeError: gpuinterop.to"),
    ("gi.explain(x, 10**5000)", "ConversionTypeError: gpuinterop.explain"),
    ("gi.exp(x, order=10**5000)", "ArgumentTypeError: exp"),
    ("gi.exp(x, where=10**5000)", "ArgumentTypeError: exp"),
    ("gi.split(x, 10**5000)", "ShapeError: split"),
    ("gi.fuse(10**5000)", "ArgumentTypeError: fuse"),
    ("gi.capture(10**5000)", "ArgumentTypeError: capture"),
    ("gi.capture(lambda y, n: y, x, 1)(x, 10**5000)", "CaptureError: Capture"),
    ("gi.capture(lambda y: y, x)([10**5000])", "ShapeError: Capture"),
    ('gi.RawKernel(10**5000, "f")', "ArgumentTypeError: RawKernel"),
    ('gi.ElementwiseKernel(10**5000, "T z", "")', "ArgumentTypeError: ElementwiseKernel"),
    ("gi.MapReduce(10**5000, np.exp)", "ArgumentTypeError: MapReduce"),
    ("gi.Expression().apply(10**5000)", "ArgumentTypeError: apply"),
    ('x.copy("\\ud800")', "ShapeError: copy"),
    ('gi.show_config(mode="dict")', "ArgumentTypeError: show_config", 'mode="dicts"'),
]


def without_copies(call):
    with gi.no_copies():
        return call()


def names() -> dict[str, object]:
    return {
        "gi": gi,
        "np": np,
        "x": gi.asarray(np.arange(6, dtype="float32").reshape(2, 3), device="cpu"),
        "v": gi.zeros(3, device="cpu"),
        "huge": gi.ones(1, device="cpu").broadcast_to(1 << 46),  # more than there is memory for
        "MASKED": np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False], dtype="float32"),
        "large": np.broadcast_to(np.float32(1), 1 << 46),
        "pointer": functools.partial(gi.from_gpu_pointer, device="cpu"),
        "without_copies": without_copies,
    }


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row[0])
def test_wrong_call_raises_an_error_that_is_complete(row):
    call, summary, *words = row
    with pytest.raises(gi.GpuInteropError) as caught:
        exec(call, names())
    error = caught.value
    assert f"{type(error).__name__}: {error.where}" == summary
    assert error.expected
    assert error.got
    assert error.fix
    assert all(word in str(error) for word in words)
    assert len(str(error)) < 1000  # however many digits a number has
