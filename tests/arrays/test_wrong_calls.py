"""Wrong calls: each raises an error of this library that names the call, the rule, the value and a fix."""

import functools
import pickle

import numpy as np
import pytest

import gpuinterop as gi

# The call, the class of its error and the name in its message, and words of the message.
CALLS = [
    # creation
    ("gi.zeros(10**5000)", "BoundsError: zeros"),
    ("gi.zeros(3, 10**5000)", "DTypeError: zeros"),
    ('gi.zeros(3, "cpu")', "DTypeError: zeros", "device='cpu'"),
    ("gi.empty(3, 3)", "DTypeError: empty"),
    *(
        (call, f"DTypeError: {call[3:].partition('(')[0]}", "gpuinterop.zeros((2, 3))")
        for call in (
            "gi.zeros(2, 3)",
            "gi.ones(2, 3)",
            "gi.full(2, 3, 4)",
            "gi.GpuArray(3, 4)",
            "gi.arange(1, 2, 3, 4)",
        )
    ),
    ("gi.CudaNdarray(3, 4)", "ArgumentTypeError: CudaNdarray", "CudaNdarray.zeros((3, 4))"),
    ('gi.zeros(3, "foo")', "DTypeError: zeros", "'float32'"),
    ("gi.full(3)", "ArgumentTypeError: full", "pass fill_value"),
    (
        "gi.GpuArray()",
        "ArgumentTypeError: GpuArray",
        "GpuArray(value, dtype=None, device=None)",
        "pass value",
    ),
    ("gi.CudaNdarray(3, 4, 5)", "ArgumentTypeError: CudaNdarray", "by name"),
    (
        "gi.array([1], copy=False)",
        "ArgumentTypeError: array",
        "gpuinterop.asarray(value, copy=False)",
    ),
    ("gi.array([1], ndmin=2)", "ArgumentTypeError: array", "x[None]"),
    ("gi.array([1], dtpye=2)", "ArgumentTypeError: array", "write dtype="),
    ('gi.asarray(n, "float32", "cpu")', "ArgumentTypeError: asarray", "*, device=None"),
    ('gi.to("torch", x)', "ConversionTypeError: gpuinterop.to", "swap the arguments"),
    *(
        (f"gi.via({args})", "ArgumentTypeError: via", "write gpuinterop.via.torch.sort(x)")
        for args in ("x", "'torch', len")
    ),
    ("gi.to(x)", "ConversionTypeError: gpuinterop.to", "numpy, torch"),
    ("x.reshape(3, 2, foo=1)", "ArgumentTypeError: reshape", "omit foo"),
    ("gi.CudaNdarray.zeros(2, 63)", "DeviceError: CudaNdarray.zeros"),
    ("gi.CudaNdarray.zeros(-1)", "ShapeError: CudaNdarray.zeros"),
    ("gi.zeros(3, device=10**5000)", "DeviceError: zeros"),
    ('gi.device("cuda:" + "9" * 5000)', "DeviceError: device"),
    ('gi.eye(3, k="a")', "ArgumentTypeError: eye"),
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
    ('gi.arange(float("nan"))', "ShapeError: arange"),
    ("gi.arange(3, dtype=bool)", "DTypeError: arange"),
    ("gi.arange(2**63)", "ShapeError: arange"),
    ('gi.arange(2**64, 2**64 + 2, dtype="uint64")', "DTypeError: arange"),
    ('gi.linspace("a", 1)', "ShapeError: linspace"),
    ("gi.linspace(0, 1, -1)", "ShapeError: linspace"),
    # values
    ("gi.CudaNdarray(np.ndarray)", "ConversionTypeError: CudaNdarray"),
    ('gi.CudaNdarray([1, 2], "float32")', "DeviceError: CudaNdarray", "dtype='float32'"),
    ('gi.CudaNdarray(large, device="cpu")', "OutOfMemoryError: CudaNdarray"),
    ("gi.GpuArray([1j])", "DTypeError: GpuArray", "dtype='complex64'"),
    ('gi.asarray([3], device="nowhere")', "DeviceError: asarray"),
    ('gi.asarray(large, copy=True, device="cpu")', "OutOfMemoryError: asarray"),
    ("gi.asarray(gi.GpuArray)", "ConversionTypeError: asarray"),
    ('gi.asarray(["a"])', "ConversionTypeError: asarray"),
    *(
        (f"gi.asarray({value}, {dtype!r})", "DTypeError: asarray", fix)
        for value, dtype, fix in [
            ("float('nan')", "int32", "replace NaN"),
            ("[float('-inf')]", "uint8", "float dtype"),
            ("2**70", "int64", "'float64', which rounds it"),
            ("300", "int8", "'uint16'"),
            ("[-1]", "uint8", "'int8'"),
            ("1e300", "float32", "'float64'"),
            ("10**400", "float64", "float('inf')"),
        ]
    ),
    ("v.fill([1, 2])", "ConversionTypeError: fill"),
    ("v.get(3)", "ArgumentTypeError: get"),
    ('v[0].view("int8")', "ShapeError: view"),
    *(
        (f"gi.{join}(x, x)", f"ArgumentTypeError: {join}", f"pass a list: {join}([x, y])")
        for join in ("concatenate", "stack")
    ),
    ("gi.concatenate([huge, huge])", "OutOfMemoryError: concatenate"),
    ("huge.expand_dims(1).sum(axis=1)", "OutOfMemoryError: sum"),
    ('f"{x:.2f}"', "ShapeError: format", "set_printoptions"),
    ("bool(x)", "ShapeError: bool", "x.any()"),
    # out=
    (
        "np.exp(x, out=np.zeros((2, 3), 'f'))",
        "ArgumentTypeError: exp",
        "ndarray",
        "out=gpuinterop.from_any(out)",
    ),
    (
        "gi.exp(x, out=np.zeros((2, 3), '>f4'))",
        "ArgumentTypeError: exp",
        "omit out=, and copy the result",
    ),
    ("gi.exp(v, out=large[:3])", "ArgumentTypeError: exp", "omit out=, and copy the result"),
    ("gi.exp(x, out=range(3))", "ArgumentTypeError: exp", "omit out=, and copy the result"),
    # names of other libraries
    ("x.sum(dim=0)", "ArgumentTypeError: sum", "write axis="),
    ("gi.mean(x, keepdim=True)", "ArgumentTypeError: mean", "write keepdims="),
    ("x.sum(foo=0)", "ArgumentTypeError: sum", "omit optional arguments"),
    ("x.view((3, 2))", "ArgumentTypeError: view", "x.reshape"),
    ("x.view(3, 2)", "ArgumentTypeError: view", "x.reshape"),
    # byte order
    ('gi.zeros(3, ">f4")', "DTypeError: zeros", "pass dtype='float32'"),
    ('x.sum(dtype=">f8")', "DTypeError: sum", "pass dtype='float64'"),
    # shapes and axes
    ("gi.ones(0).reshape(0, -1)", "ShapeError: reshape"),
    ("x.swapaxes(0, 10**5000)", "BoundsError: swapaxes"),
    ("x.squeeze((0, -2))", "ShapeError: squeeze"),
    ("x.expand_dims(7)", "AxisError: expand_dims"),
    ("x.dimshuffle(0, 0, 1)", "ShapeError: dimshuffle"),
    ("gi.dimshuffle(np.zeros((2, 3)), (0, 1))", "ArgumentTypeError: dimshuffle", "asarray"),
    ('x._set_stride("a", 1)', "ArgumentTypeError: _set_stride"),
    ('x._set_shape_i(0, "a")', "ArgumentTypeError: _set_shape_i"),
    ("x._restrided((2,), (1,), 1.5)", "ArgumentTypeError: as_strided"),
    ("x.squeeze(2)", "AxisError: squeeze", "-2 to 1"),
    ("x.take([0], 2)", "AxisError: take", "-2 to 1"),
    ("gi.concatenate([x, x], -3)", "AxisError: concatenate", "-2 to 1"),
    ("x.swapaxes(True, 0)", "ArgumentTypeError: swapaxes"),
    ("gi.concatenate([x, x], True)", "ArgumentTypeError: concatenate"),
    # keys
    ("x[10**5000]", "ArrayIndexError: x[key]"),
    ("del x[0]", "ArgumentTypeError: del x[key]", "deletion"),
    ("x[::0]", "ShapeError: x[key]"),
    ('x[:"a"]', "ArgumentTypeError: x[key]"),
    ("x[0, 1.5:]", "ArgumentTypeError: x[key]"),
    ("x[5] = 1", "ArrayIndexError: x[key] = value", "fix: correct the indices"),
    ("x[[0], 5] = 1", "ArrayIndexError: x[key] = value", "index 5 on axis 1"),
    ("x[::0] = 1", "ShapeError: x[key] = value"),
    ("x[10**5000] = 1", "ArrayIndexError: x[key] = value"),
    ("x[..., ...] = 1", "ArrayIndexError: x[key] = value"),
    ("x[[0.0, 1.0]]", "IndexKindError: x[key]", "fix: pass ints or bools"),
    ("x[np.ones(2)]", "IndexKindError: x[key]", "astype"),
    ("gi.add.at(x, (0, 5), 1)", "ArrayIndexError: add.at", "index 5 on axis 1"),
    ("gi.add.at(x, slice(0, 2, 0), 1)", "ShapeError: add.at"),
    ("gi.add.at(x, slice(0, 2), [1, 2])", "ShapeError: add.at"),
    ('gi.add.at(x.astype("int8"), [0], 1000)', "DTypeError: add.at"),
    ('x.astype("int8").set(1000)', "DTypeError: set"),
    ("gi.zeros(0)[0]", "ArrayIndexError: x[key]", "the axis is empty"),
    ("gi.capture(gi.nonzero, x)", "CaptureError: nonzero", "true or not zero"),
    ("iter(gi.asarray(3))", "ArgumentTypeError: iter"),
    ("x.item()", "ShapeError: item", "x.any()"),
    ("x.item(10**5000)", "ArrayIndexError: item"),
    ("gi.zeros((0, 2)).item()", "ShapeError: item", "x.size"),
    # pointers
    ("pointer(2**64 - 4, (2,))", "ExchangeError: from_gpu_pointer"),
    ("pointer(64, (2,), (2**61 - 1,))", "ExchangeError: from_gpu_pointer"),
    ("pointer(64, (2,), (-(2**40),))", "ExchangeError: from_gpu_pointer"),
    ("pointer(-4, (1,))", "BoundsError: from_gpu_pointer"),
    ("pointer(64, (1,), nbytes=-5)", "BoundsError: from_gpu_pointer"),
    ("pointer(64, (1,), nbytes=2.5)", "ArgumentTypeError: from_gpu_pointer"),
    ("pointer(8, (2,), (1, 1))", "ShapeError: from_gpu_pointer"),
    ('pointer("abc", (4, 5))', "ArgumentTypeError: from_gpu_pointer", "int"),
    ("pointer(x.ptr, (2, 3), (2**62, 1), x)", "BoundsError: from_gpu_pointer", "4611686"),
    ("pointer(x.ptr, (2, 3), (1.5, 1), x)", "ArgumentTypeError: from_gpu_pointer", "strides"),
    (
        'pointer(x.ptr, 6, None, x, readonly="no")',
        "ArgumentTypeError: from_gpu_pointer",
        "readonly",
    ),
    (
        "gi.CudaNdarray.from_pointer(x.ptr, (-1,), None, x)",
        "ShapeError: CudaNdarray.from_pointer",
        "-1",
    ),
    ('gi.CudaNdarray.from_pointer("a", 3)', "ArgumentTypeError: CudaNdarray.from_pointer"),
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
    ("(x > 3) << 1.0", "DTypeError: left_shift"),
    ('x * "a"', "ConversionTypeError: multiply", "type str"),
    ('b"a" * x', "ConversionTypeError: multiply", "type bytes"),
    ("gi.put(np.zeros(2), [0], 1)", "ArgumentTypeError: put", "gpuinterop.from_any(x)"),
    ("gi.divmod(x, 2, out=x)", "ArgumentTypeError: divmod", "an object of type"),
    ("x.dot(x, x, x, x, x, x, x, x)", "ArgumentTypeError: dot"),
    ("gi.allow_tf32(None)", "ArgumentTypeError: allow_tf32"),
    ("gi.gemm(n, n, alpha=2)", "DTypeError: gemm", "alpha=2.0 and beta=1.0 for int32"),
    ("kernel(x, foo=1)", "ArgumentTypeError: double", "foo=..."),
    ("kernel()", "ArgumentTypeError: double", "call double(x)"),
    ("gi.fuse(lambda a: a.sort())(x)", "ArgumentTypeError: fuse", "call x.sort() outside"),
    (
        "gi.fuse(lambda a: np.cumsum(a))(x)",
        "ArgumentTypeError: fuse",
        "call numpy.cumsum outside",
    ),
    ("v += np.arange(3)", "DTypeError: x += y", "fix: cast the operand: y.astype('float32')"),
    ("np.zeros(3).__iadd__(v)", "ArgumentTypeError: numpy.add", "numpy.asarray(x)"),
    ("compiled(x, foo=1)", "ArgumentTypeError: negative", "foo=..."),
    ("gi.allclose(1.0, 1.0)", "ArgumentTypeError: allclose", "asarray"),
    ("x.any(0, None, True, 1)", "ArgumentTypeError: any"),
    ("np.std(x, correction=1, ddof=1)", "ArgumentTypeError: numpy.std"),
    # libraries, streams
    ("gi.from_dlpack(np.ndarray)", "ConversionTypeError: from_dlpack"),
    ("gi.from_dlpack(np.ones(2), cls=np.ndarray)", "ArgumentTypeError: from_dlpack"),
    ('gi.from_dlpack(np.ones(2), cls="CudaNdarray")', "ArgumentTypeError: from_dlpack"),
    ("v.__dlpack__(max_version=(1, -1))", "BoundsError: __dlpack__", "max_version"),
    (
        'gi.to(v, "numpy", device="cpu")',
        "ArgumentTypeError: to(x, 'numpy')",
        "asarray(x, device='cpu')",
    ),
    (
        'gi.from_any(np.ones(2), dtype="int8")',
        "ArgumentTypeError: from_any",
        "asarray(x, dtype='int8')",
    ),
    ('gi.to(np.array(["a"]), "buffer")', "DTypeError: to(x, 'buffer')"),
    ("gi.to(v, 5)", "ConversionTypeError: gpuinterop.to"),
    ('gi.to(v, "torch", strided=True)', "ArgumentTypeError: to(x, 'torch')"),
    ('gi.explain(v, "torch", strided=True)', "ArgumentTypeError: explain(x, 'torch')"),
    ('gi.explain(b"abc", strict=True)', "ArgumentTypeError: explain(x, 'gpuinterop')"),
    ("gi.converters.pointer_arguments(v).__enter__()", "ArgumentTypeError: pointer_arguments"),
    ("gi.copy_async(v, [1, 2, 3])", "ArgumentTypeError: copy_async", "pinned_empty"),
    # numbers that Python does not print, and text that is not UTF-8
    ("x.round(10**5000)", "BoundsError: round"),
    ("x.round(400)", "BoundsError: round"),
    ("x.round(None)", "ArgumentTypeError: round"),
    ("gi.to(x, 10**5000)", "ConversionTypeError: gpuinterop.to"),
    ("gi.exp(x, order=10**5000)", "ArgumentTypeError: exp"),
    ("gi.split(x, 10**5000)", "ShapeError: split"),
    ("gi.fuse(10**5000)", "ArgumentTypeError: fuse"),
    ("gi.capture(lambda a: a.sum())", "ArgumentTypeError: capture", "capture(f, x)"),
    ("gi.capture(10**5000)", "ArgumentTypeError: capture"),
    ("gi.capture(lambda y, n: y, x, 1)(x, 10**5000)", "CaptureError: Capture"),
    ("gi.capture(lambda y: y, x)([10**5000])", "ShapeError: Capture"),
    ("gi.fuse(lambda y, c: y)(x, memoryview(bytearray(2)))", "ArgumentTypeError: <lambda>"),
    ("gi.capture(lambda y, c: y + 1, x, memoryview(bytearray(2)))", "ArgumentTypeError: capture"),
    ("gi.sum(object())", "ConversionTypeError: sum", "pass numbers"),
    ("gi.add(x, object())", "ConversionTypeError: add", "pass numbers"),
    ('gi.to(x, "numpy", **{"\\ud800": 1})', "ArgumentTypeError: to(x, 'numpy')", "\\ud800"),
    ('gi.RawKernel("", "f")(1, 1, np.datetime64("2020"))', "DTypeError: f", "M8"),
    ('gi.RawKernel("", "f")(1, 1, np.void(b"ab"))', "DTypeError: f"),
    ('np.copyto(x, x, casting="\\ud800")', "ArgumentTypeError: numpy.copyto"),
    ('gi.RawKernel("", "f")(1, 1, x)', "DeviceError: f", "GPU"),
    ('gi.RawKernel(10**5000, "f")', "ArgumentTypeError: RawKernel"),
    ('gi.ElementwiseKernel(10**5000, "T z", "")', "ArgumentTypeError: ElementwiseKernel"),
    ("gi.Expression().apply(10**5000)", "ArgumentTypeError: apply"),
    ('gi.Expression().apply("sqr")', "ArgumentTypeError: apply", "pass 'sqrt'"),
    ('x.copy("\\ud800")', "ShapeError: copy"),
]


def names() -> dict[str, object]:
    graph = gi.Expression()
    return {
        "kernel": gi.ElementwiseKernel("float32 x", "float32 z", "z = x * 2", "double"),
        "compiled": graph.compile([graph.apply("negative", graph.input())], "negative"),
        "n": gi.ones((2, 2), "int32", device="cpu"),
        "gi": gi,
        "np": np,
        "x": gi.asarray(np.arange(6, dtype="float32").reshape(2, 3), device="cpu"),
        "v": gi.zeros(3, device="cpu"),
        "huge": gi.ones(1, device="cpu").broadcast_to(1 << 46),  # more than there is memory for
        "large": np.broadcast_to(np.float32(1), 1 << 46),
        "pointer": functools.partial(gi.from_gpu_pointer, device="cpu"),
    }


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row[0])
def test_wrong_call_raises_an_error_that_is_complete(row):
    call, summary, *words = row
    with pytest.raises(gi.GpuInteropError) as caught:
        exec(call, names())
    error = caught.value
    assert f"{type(error).__name__}: {error.where}" == summary
    assert all(word in str(error) for word in words)
    assert str(error).encode()  # any text can be printed


@pytest.mark.parametrize(
    ("call", "function"),
    [
        ("gi.add.at(x, 0)", "add.at()"),
        ("x.compress()", "compress()"),
        ("x.take([0], foo=1)", "take: expected take(x, indices, axis=..., out=..., mode=..., max_threads=...)\n"),
        ("x.item(foo=1)", "GpuArray.item()"),
        ("x.norm(foo=1)", "GpuArray.norm()"),
    ],
)  # fmt: skip
def test_type_error_of_python_names_a_public_function(call, function):
    with pytest.raises(TypeError) as caught:
        exec(call, names())
    assert str(caught.value).startswith(function)


def test_methods_of_arrays_can_be_pickled():
    for method in (gi.GpuArray.reshape, gi.CudaNdarray.item, gi.GpuArray.to_device):
        assert pickle.loads(pickle.dumps(method)) is method
