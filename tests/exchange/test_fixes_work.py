"""What a fix promises is done, word for word, on what was passed: the next conversion succeeds."""

import re
import types

import numpy as np
import pytest
from doubles.placed import placed
from helpers.cases import frozen

import gpuinterop
import gpuinterop as gi
from gpuinterop.converters.plan import Rules


def off_by_one(dtype="f4"):
    """Aligned elements that JAX does not share."""
    return placed(np.arange(12, dtype=dtype).reshape(3, 4), 16)


def of_torch(host):
    return pytest.importorskip("torch").from_numpy(host)


PLAIN = np.arange(12, dtype="f4").reshape(3, 4)
SOURCES = {
    "numpy, off by one": off_by_one,
    "numpy, transposed": lambda: off_by_one().T,
    "numpy, reversed": lambda: off_by_one()[::-1],
    "numpy, between elements": lambda: placed(PLAIN),
    "numpy, swapped": lambda: PLAIN.astype(">f4"),
    "numpy, complex": lambda: PLAIN + 1j * PLAIN.astype("c8"),
    "numpy, float64": lambda: PLAIN.astype("f8"),
    "numpy, frozen": lambda: frozen(PLAIN.copy()),
    "scalar": lambda: np.float32(3),
    "gpuinterop, strided": lambda: gi.from_any(off_by_one())[::-1, ::2],
    "gpuinterop, complex": lambda: gi.from_any(PLAIN + 1j * PLAIN.astype("c8")),
    "gpuinterop, float64": lambda: gi.from_any(PLAIN.astype("f8")),
    "torch, transposed": lambda: of_torch(PLAIN.copy()).T,
    "torch, off by one": lambda: of_torch(off_by_one()),
    "torch, conjugated": lambda: of_torch(PLAIN + 1j * PLAIN.astype("c8")).conj(),
    "tvm_ffi, transposed": lambda: pytest.importorskip("tvm_ffi").from_dlpack(PLAIN.copy().T),
    "array_api_strict": lambda: pytest.importorskip("array_api_strict").asarray(off_by_one()).T,
    "memoryview": lambda: memoryview(off_by_one().T),
    "memoryview, float64": lambda: memoryview(off_by_one().astype("f8")),
    "memoryview, complex": lambda: memoryview(PLAIN + 1j * PLAIN.astype("c16")),
    "bytes": lambda: PLAIN.astype("i1").tobytes(),
    "bfloat16": lambda: gi.from_any(PLAIN).astype("bfloat16"),
    "int4": lambda: gi.from_any(PLAIN[:1]).astype("int4"),
}
TARGETS = ["numpy", "torch", "jax", "tvm_ffi", "buffer", "array_api_strict", "cudandarray"]
# The lines of a fix: "make LINE once", "pass LINE", "for example LINE", "write the cast: LINE".
LINE = re.compile(
    r"(?:make|pass|example|first:|myself:|yourself:|host:|bytes:|cast:) ([a-z_.]+[(.].*?\))(?= once|,| and|$)"
)


def values(made):
    made = gi.from_any(made).get()
    return made.astype("complex64") if made.dtype.kind == "c" else made.astype("float32")


def lines_of(fix):
    return [line for line in LINE.findall(fix) if "copyif=True, or" not in line]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", TARGETS)
def test_each_way_out_works(source, target):
    if target not in ("numpy", "buffer", "cudandarray"):
        pytest.importorskip(target)
    x = SOURCES[source]()
    expected = values(gi.from_any(x, copyif=True))
    try:
        gi.to(x, target)
        return
    except gi.GpuInteropError as error:
        fix = error.fix
    ways = 0
    if "copyif=True" in fix.replace("x, copyif=True", ""):
        ways += 1
        np.testing.assert_array_equal(values(gi.to(x, target, copyif=True)), expected)
    if "allow_readonly=True" in fix:
        ways += 1
        np.testing.assert_array_equal(values(gi.to(x, target, allow_readonly=True)), expected)
    names = {"x": x, "a": x, "t": x, "gpuinterop": gpuinterop, "numpy": np}
    if "torch" in fix:
        names["torch"] = pytest.importorskip("torch")
    for line in lines_of(fix):
        ways += 1
        fixed = eval(line, names)
        if "astype" in line or ".to(" in line:  # the dtype is fixed; the device may need a fix next
            found = values(gi.to(fixed, target, copyif=True))
        else:
            found = values(gi.to(fixed, target))
        if found.shape != expected.shape:  # pairs of real numbers
            found = found.view("complex64")
        np.testing.assert_array_equal(found, expected, err_msg=f"{fix}\n{line}")
    assert ways or "with GpuArray" in fix or "jax_enable_x64" in fix, fix


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_parts_of_complex_numbers_keep_their_digits(dtype):
    x = gi.asarray(np.array([1 / 3 + 2j / 3], dtype), device="cpu")
    fix = gi.explain(x, "warp").fix  # which has float32 and float64
    [line] = lines_of(fix)
    assert eval(line, {"x": x}).tobytes() == x.tobytes()


def to_toy(**limits):
    """A function that converts to a library with these limits; its caller uses the fixture `clean`."""
    module = types.ModuleType("toy_converter")
    module.ARRAY, module.STREAM = "a toy array", "the host"
    module.RULES = Rules("toy", "to_toy", **limits)
    module.export = lambda x, library: x
    gi.converters.register(gi.converters.Backend("toy", "numpy", converter=module))
    return lambda x: gi.to(x, "toy")


@pytest.mark.parametrize("dtypes", ["float64 bool", "int32 uint8", "uint8", "float32 float64"])
def test_fix_casts_to_a_dtype_that_the_library_has(clean, dtypes):
    convert = to_toy(dtypes=frozenset(dtypes.split()))
    x = gi.from_any(PLAIN).astype("int16")
    with pytest.raises(gi.DTypeError) as raised:
        convert(x)
    [line] = lines_of(raised.value.fix)
    assert convert(eval(line, {"x": x})).get().tolist() == PLAIN.tolist()


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [(2, 2, "2 dim"), (1, 1, "1 dim"), (1, 2, "1 to 2 dim"), (3, 4, "3 to 4 dim")],
)
@pytest.mark.parametrize("shape", [(), (6,), (1, 6), (1, 2, 1, 3, 1), (0,) * 5])
def test_fix_reshapes_to_dimensions_that_the_library_has(clean, least, most, words, shape):
    convert = to_toy(min_ndim=least, max_ndim=most)
    x = gi.ones(shape, device="cpu")
    if least <= x.ndim <= most:
        return
    with pytest.raises(gi.ShapeError) as raised:
        convert(x)
    assert raised.value.expected.startswith(words)
    [line] = lines_of(raised.value.fix)
    assert convert(eval(line, {"x": x})).size == x.size


def test_fix_casts_an_unsupported_dtype_in_its_own_library():
    wide = PLAIN.astype(np.longdouble)
    for x in (wide, memoryview(wide)) if wide.itemsize > 8 else ():  # elsewhere it is float64
        with pytest.raises(gi.DTypeError) as raised:
            gi.from_any(x)
        [line] = lines_of(raised.value.fix)
        assert gi.from_any(eval(line, {"x": x, "numpy": np})).get().tolist() == PLAIN.tolist()


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_dtypes_that_only_torch_has():
    torch = pytest.importorskip("torch")
    names = ("bits8", "float4_e2m1fn_x2", "uint1")  # some are missing in older ones
    for dtype in [name for name in names if hasattr(torch, name)]:
        x = torch.empty(4, dtype=getattr(torch, dtype))
        with pytest.raises(gi.DTypeError) as raised:
            gi.from_any(x)
        [line] = lines_of(raised.value.fix)
        assert gi.from_any(eval(line, {"x": x, "t": x, "torch": torch})).size == 4
