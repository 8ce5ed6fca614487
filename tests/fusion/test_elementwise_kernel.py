"""ElementwiseKernel: what it declares, takes, refuses beforehand and computes on either device."""

import gc

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError


def test_several_results_of_broadcast_operands(device):
    axpy = gi.ElementwiseKernel(
        "float32 a, T x, T y", "T z, bool big", "z = a * x + y; big = z > 3", "axpy",
        host=lambda a, x, y: (a * x + y, a * x + y > 3),
    )  # fmt: skip
    x = gi.GpuArray(np.arange(12, dtype=np.float32).reshape(3, 4), device=device)
    z, big = axpy(2.0, x[:, ::-1], x[:, :1])
    expected = 2 * x.get()[:, ::-1] + x.get()[:, :1]
    np.testing.assert_array_equal(z.get(), expected)
    np.testing.assert_array_equal(big.get(), expected > 3)
    for count in (1, 2, 31, 32, 40):
        with pytest.raises(ArgumentTypeError):
            axpy(*[x] * count)
    with pytest.raises(gi.ConversionTypeError):
        axpy(2.0, None, x)
    only = gi.ElementwiseKernel("T x", "T y", "y = x", "only")
    if device == "cpu":
        with pytest.raises(gi.DeviceError, match="CUDA text"):
            only(x)


@pytest.mark.parametrize(
    "arguments",
    [("floaty x", "T y", "y = x"), (3, "T y", "y = x"), ("T x", 3, "y = x"), ("T x", "T y", 3),
     ("T x", "T y", "y = x", 3), ("T x", "T y", "y = x", "k", "", 3), ("", "T y", ""), ("T x", "", ""),
     ("float32 x, T x", "T y", ""), ("T x", "T x", ""), ("T x", "T y", "y = x\0"),
     ("T x", "T y", "y = x", "k", "\n\n\ud800")],
)  # fmt: skip
def test_wrong_declarations(arguments):
    with pytest.raises(ArgumentTypeError):
        gi.ElementwiseKernel(*arguments)


@pytest.mark.parametrize(
    ("declared", "numbers", "dtype"),
    [("float32 a, float32 b", (2.0, 3.0), "float32"), ("int32 a, int64 b", (2, 3), "int64"),
     ("float32 a, float32 b", (2, np.float64(3)), "float32"), ("T a, T b", (2.0, 3), "float32"),
     ("T a, T b", (2, 3), "float32"), ("T a, T b", (np.int16(2), 3), "int16"),
     ("T a, T b", (np.float32(2), np.float64(3)), "float64"), ("float16 a, T b", (2, 3), "float32"),
     ("bool a, uint8 b", (True, 3), "uint8"), ("int32 a, T b", (np.asarray(2), 3.0), "float32")],
)  # fmt: skip
def test_numbers_alone(device, declared, numbers, dtype):
    second = declared.split()[2]
    kernel = gi.ElementwiseKernel(declared, f"{second} z", "z = a + b", host=lambda a, b: a + b)
    found = kernel(*numbers)
    assert found.dtype == dtype
    assert found.item() == sum(int(n) for n in numbers)
    with pytest.raises(gi.DTypeError, match="parameter b"):
        kernel(numbers[0], 1j)


@pytest.mark.parametrize(
    ("declared", "number"),
    [("int32", 2**40), ("int8", -129), ("float32", 1e300), ("float16", 70000), ("float64", 1j),
     ("int32", float("nan")), ("int32", np.int64(2**40)), ("float32", np.asarray(1e300)), ("T", 1e300)],
)  # fmt: skip
def test_numbers_follow_the_rule_of_asarray(device, declared, number):
    kernel = gi.ElementwiseKernel(f"T x, {declared} s", "T z", "z = x", "held", host=lambda x, s: x)
    with pytest.raises(gi.DTypeError):
        gi.asarray(np.asarray(number).item(), dtype=declared.replace("T", "float32"), device="cpu")
    with pytest.raises(gi.DTypeError, match="held, parameter s"):
        kernel(gi.GpuArray(np.ones(2, np.float32), device=device), number)


def test_numbers_that_a_parameter_holds(device):
    kernel = gi.ElementwiseKernel("float32 x, int32 n, float32 s", "float32 z", "z = x * n + s",
                                  host=lambda x, n, s: x * n + s)  # fmt: skip
    x = gi.GpuArray(np.ones(1, np.float32), device=device)
    assert kernel(x, 3, 0.1).tolist() == [float(np.float32(3) + np.float32(0.1))]
    assert kernel(x, np.int64(3), np.float64(2)).tolist() == [5]
    assert kernel(x, 1.5, float("inf")).tolist() == [np.inf]
    assert kernel(x, True, 1).tolist() == [2]


@pytest.mark.parametrize(
    ("given", "value", "declared"),
    [("int64", 2**40 + 5, "int32"), ("float32", 1.7, "int32"), ("float64", 1e300, "float32"),
     ("complex64", 1 + 2j, "float32"), ("int32", -1, "uint32"), ("float32", 0.5, "bool")],
)  # fmt: skip
def test_no_array_is_narrowed_silently(device, given, value, declared):
    kernel = gi.ElementwiseKernel(f"{declared} x", f"{declared} z", "z = x", host=lambda x: x)
    with pytest.raises(gi.DTypeError) as caught:
        kernel(gi.GpuArray(np.asarray([value], given), device=device))
    assert f"astype('{declared}')" in caught.value.fix


@pytest.mark.parametrize(
    ("given", "declared"), [("bool", "int8"), ("int32", "int64"), ("uint8", "int16"), ("float32", "float64"),
                            ("float32", "complex64"), ("int16", "float32"), ("int64", "float64")],
)  # fmt: skip
def test_arrays_are_widened(device, given, declared):
    kernel = gi.ElementwiseKernel(f"{declared} x", f"{declared} z", "z = x", host=lambda x: x)
    values = np.asarray([0, 1, 1], given)
    found = kernel(gi.GpuArray(values, device=device)).get()
    np.testing.assert_array_equal(found, values.astype(declared), strict=True)


@pytest.mark.parametrize(
    "names", [("a1", "a0", "z"), ("s0", "r0", "a0"), ("o0", "a1", "r0"), ("e", "k", "x")]
)
def test_any_names_are_good_for_parameters(device, names):
    x, y, z = names
    kernel = gi.ElementwiseKernel(
        f"float32 {x}, float32 {y}", f"float32 {z}, float32 o1", f"{z} = {x} - 2 * {y}; o1 = {y}",
        f"named_{x}_{y}_{z}", host=lambda a, b: (a - 2 * b, b),
    )  # fmt: skip
    a, b = (gi.asarray(np.array(v, "float32"), device=device) for v in ([1, 2], [10, 30]))
    assert [f.tolist() for f in kernel(a, b)] == [[-19, -58], [10, 30]]


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize(
    "given",
    [None, (), "text", np.ones(7), np.ones(1), np.ones((1, 3)), np.float64(6), 1.0, (np.ones(3),) * 3,
     (np.ones(3), None), np.ones(3) * 1j, np.ma.masked_less(np.ones(3), 2),
     (np.ones(3), np.ma.masked_equal(np.ones(3), 1))],
    ids=repr,
)  # fmt: skip
def test_invalid_result_of_a_host_function_is_refused(outputs, given):
    declared = ", ".join(f"float32 z{i}" for i in range(outputs))
    kernel = gi.ElementwiseKernel("float32 x", declared, "", "halve", host=lambda x: given)
    with pytest.raises(gi.GpuInteropError, match="host=") as caught:
        kernel(gi.ones(3, device="cpu"))
    assert caught.value.where == "halve"


def test_ways_to_give_results_on_the_host():
    x = gi.asarray([1.0, 4.0], device="cpu")
    for host in (lambda x: (x,), lambda x: [x], lambda x: x):
        kernel = gi.ElementwiseKernel("float32 x", "float32 z", "z = x", host=host)
        assert kernel(x).tolist() == [1, 4]
    for host in (lambda x: (x, -x), lambda x: [x, -x], lambda x: np.stack([x, -x])):
        kernel = gi.ElementwiseKernel(
            "float32 x", "float32 z, float32 w", "z = x; w = -x", host=host
        )
        assert [v.tolist() for v in kernel(x)] == [[1, 4], [-1, -4]]


def test_host_function_is_called_with_blocks_of_elements():
    called = []

    def host(a, x, y):
        called.append((a.shape, x.shape, y.shape))
        assert not any(values.flags.writeable for values in (a, x, y))
        return a * x + y

    axpy = gi.ElementwiseKernel("T a, T x, T y", "T z", "z = a * x + y", host=host)
    values = np.arange(3 * 5 * 4096.0).reshape(3, 5, 4096)
    x = gi.GpuArray(values, device="cpu")
    expected = 2 * values.T[::-1] + values[:, :1].T
    np.testing.assert_array_equal(axpy(2.0, x.T[::-1], x[:, :1].T).get(), expected)
    assert all(len({*shapes}) == 1 and len(shapes[0]) == 1 for shapes in called)
    assert len(called) > 1
    assert axpy(2.0, x[0, 0, :1].reshape(()), 1).shape == ()
    axpy(2.0, x, x, out=x)
    np.testing.assert_array_equal(x.get(), 3 * values)


def test_replay_calls_the_host_function_of_a_destroyed_kernel():
    def recorded(x):
        kernel = gi.ElementwiseKernel("T x", "T z", "z = x + 1", host=lambda x: x + 1)
        return gi.capture(lambda: kernel(x))

    x = gi.zeros(3, device="cpu")
    graph = recorded(x)
    gc.collect()
    x.fill(4)
    assert graph().tolist() == [5, 5, 5]


@pytest.mark.gpu
def test_a_preamble_with_any_names_computes():
    kernel = gi.ElementwiseKernel(
        "float32 x, int32 m", "float32 z", "f16 two = {2}; z = two.a * more(x) + n + m", "user_kernel",
        "#define n 5\n#define data\nstruct f16 { int a; };\n"
        "__device__ float more(float v) { return v + 1; }",
    )  # fmt: skip
    x = gi.asarray(np.arange(1000), dtype="float32", device="cuda:0")
    assert kernel(x, 7).tolist() == (2 * (np.arange(1000) + 1) + 12).tolist()
    assert kernel(x[::-3], 7).tolist() == (2 * (np.arange(1000)[::-3] + 1) + 12).tolist()


def test_text_can_be_compiled_without_a_gpu(nvrtc):
    arch = nvrtc.supported_archs()[-1]
    kernel = gi.ElementwiseKernel(
        "T a, float32 b",
        "T z",
        "z = a * b + helper()",
        preamble="__device__ int helper() { return 1; }",
    )
    assert kernel.compile(arch) != kernel.compile(arch, T="float64")
    assert kernel.compile(arch)[:4] == b"\x7fELF"
    wrong = gi.ElementwiseKernel("T a", "T z", "z = a +;", host=lambda a: a)
    with pytest.raises(gi.CompileError, match="expected an expression"):
        wrong.compile(arch)
    for call in (
        lambda: kernel.compile(90.0),
        lambda: kernel.compile(arch, S="float32"),
        lambda: kernel.compile(True),
    ):
        with pytest.raises(ArgumentTypeError):
            call()
    with pytest.raises(gi.DTypeError):
        kernel.compile(arch, T="U3")
