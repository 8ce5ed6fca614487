"""Results keep the operands' order in memory: their strides are those of NumPy's results."""

import numpy as np
import pytest
from helpers.layouts import pair, recipes, shapes
from helpers.property_tests import examples
from hypothesis import given
from hypothesis import strategies as st

import gpuinterop as gi

QUICK = examples(150)


@st.composite
def operands(draw, shape, dtype="float32"):
    """The same view for NumPy and gpuinterop; some are broadcast, some have fewer axes."""
    leading = draw(st.integers(0, len(shape))) if draw(st.booleans()) else 0
    recipe = draw(recipes(shape[leading:]))
    spread = draw(st.booleans())

    def made(device, cls=gi.GpuArray):
        _, host, _, x = pair(recipe, dtype, 1, device, cls)
        return (np.broadcast_to(host, shape), x.broadcast_to(shape)) if spread else (host, x)

    return made


def require_equal_in_order(expected, result):
    np.testing.assert_array_equal(result.get(), expected)
    require_order_of(expected, result)


def require_order_of(expected, result):
    """Whether the strides are equal, except those of axes of length 1 and of empty arrays, which have no effect."""
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    if not expected.size:
        return
    strides = [
        (s, t)
        for n, s, t in zip(expected.shape, expected.strides, result.strides, strict=True)
        if n > 1
    ]
    assert [t for _, t in strides] == [s for s, _ in strides], (expected.strides, result.strides)
    assert result.is_c_contiguous() == expected.flags.c_contiguous
    assert result.is_f_contiguous() == expected.flags.f_contiguous


def in_numpys_order(hosts, dtype="float32"):
    """What NumPy's iterator allocates for a result of these operands."""
    flags = [["readonly"]] * len(hosts) + [["writeonly", "allocate"]]
    walk = np.nditer(
        [*hosts, None], ["zerosize_ok"], flags, op_dtypes=[None] * len(hosts) + [dtype]
    )
    return walk.operands[-1]


FUNCTIONS = {
    1: [np.negative, np.exp, np.isnan, np.sqrt],
    2: [np.add, np.less, np.maximum, np.arctan2, np.logical_and],
}


@QUICK
@given(data=st.data())
def test_ufuncs_of_one_and_two_operands(device, data):
    shape = data.draw(shapes(2000))
    count = data.draw(st.sampled_from([1, 2]))
    function = data.draw(st.sampled_from(FUNCTIONS[count]))
    made = [data.draw(operands(shape))(device) for _ in range(count)]
    with np.errstate(all="ignore"):
        expected = function(*[host for host, _ in made])
    result = getattr(gi, function.__name__)(*[x for _, x in made])
    require_order_of(np.asarray(expected), result)
    require_order_of(np.asarray(expected), function(*[x for _, x in made]))


@QUICK
@given(data=st.data())
def test_where_and_clip_and_operands_of_other_dtypes(device, data):
    shape = data.draw(shapes(2000))
    made = [data.draw(operands(shape, dtype))(device) for dtype in ("bool", "float32", "float64")]
    hosts, arrays = zip(*made, strict=True)
    require_order_of(np.asarray(np.where(*hosts)), gi.where(*arrays))
    low, high = np.minimum(hosts[1], hosts[2]), np.maximum(hosts[1], hosts[2])
    bounds = [function(*arrays[1:]) for function in (gi.minimum, gi.maximum)]
    for given_bounds, ours in (((low, high), bounds), ((-3, 3), (-3, 3))):
        require_order_of(np.asarray(np.clip(hosts[1], *given_bounds)), gi.clip(arrays[1], *ours))


@QUICK
@given(data=st.data())
def test_casts_and_copies(device, data):
    host, x = data.draw(operands(data.draw(shapes(2000))))(device)
    for dtype in ("float32", "float64", "int16"):
        for order in "CFA":
            require_equal_in_order(host.astype(dtype, order), x.astype(dtype, order))
        for ours in (x.astype(dtype), x.astype(dtype, "K"), gi.astype(x, dtype)):
            require_order_of(in_numpys_order([host], dtype), ours)
            np.testing.assert_array_equal(ours.get(), host.astype(dtype))
    # NumPy's own copies make broadcast axes the fastest ones; here they stay in place everywhere.
    require_order_of(in_numpys_order([host]), x.copy("K"))
    np.testing.assert_array_equal(x.copy("K").get(), host)
    require_equal_in_order(np.asarray(host.copy()), x.copy())
    require_equal_in_order(np.array(host, order="F"), x.copy("F"))


@QUICK
@given(data=st.data())
def test_fused_functions_and_kernels_are_one_operation(device, data):
    shape = data.draw(shapes(2000))
    made = [data.draw(operands(shape))(device, gi.CudaNdarray) for _ in range(3)]
    hosts, arrays = zip(*made, strict=True)
    expected = in_numpys_order(hosts)
    require_order_of(expected, _fused(*arrays))
    require_order_of(expected, _kernel(*arrays))
    reduced = _normalised(arrays[0])
    require_order_of(in_numpys_order(hosts[:1]), reduced)


_fused = gi.fuse(lambda x, y, z: (x + y) * z)
_normalised = gi.fuse(lambda x: x - x.sum())
_kernel = gi.ElementwiseKernel(
    "float32 x, float32 y, float32 z", "float32 w", "w = (x + y) * z",
    host=lambda x, y, z: (x + y) * z,
)  # fmt: skip


def test_a_given_out_counts_as_an_operand(device):
    host = np.arange(24, dtype="float32").reshape(2, 3, 4)
    x = gi.asarray(host, device=device)
    for axes in ((0, 1, 2), (2, 0, 1), (2, 1, 0)):
        back = tuple(int(i) for i in np.argsort(axes))
        shape = tuple(host.shape[i] for i in axes)
        out = np.empty(shape, "float32").transpose(back)
        ours = gi.empty(shape, "float32", device=device).transpose(back)
        for source, given_x in ((host, x), (host[:, :1], x[:, :1])):
            expected = np.divmod(source, 3, out=(out, None))[1]
            require_order_of(expected, gi.divmod(given_x, 3, out=(ours, None))[1])


@pytest.mark.parametrize("function", [gi.exp, np.exp, gi.add, np.add])
def test_order_c(device, function):
    x = gi.ones((3, 4, 5), device=device).transpose(2, 0, 1)
    args = (x,) if "exp" in repr(function) else (x, x)
    assert function(*args, order="K").strides == x.strides
    assert function(*args, order="C").is_c_contiguous()
    assert function(*args, order="C", dtype="float64").is_c_contiguous()
    assert function(*args, dtype="float64").strides == tuple(2 * s for s in x.strides)
    out = gi.empty((4, 5, 3), device=device).transpose(1, 2, 0)
    assert function(*args, out=out, order="C") is out
    for order in ("F", "A", "k", None, 3, x):
        with pytest.raises(gi.ArgumentTypeError):
            function(*args, order=order)


def test_numpys_functions(device):
    x = gi.ones((3, 4, 5), device=device).transpose(2, 0, 1)
    host = np.ones((3, 4, 5), "float32").transpose(2, 0, 1)
    for function in (np.copy, np.square, lambda a: np.clip(a, 0, 1), lambda a: a.round(),
                     lambda a: np.add.outer(a, a), lambda a: abs(a) + 1, lambda a: 1 - a > a):  # fmt: skip
        require_order_of(function(host), function(x))


def test_many_axes(device):
    """More axes than a layout holds inline, and an order that is a cycle of them."""
    host = np.arange(2**9, dtype="float32").reshape((2,) * 9)
    x = gi.asarray(host, device=device)
    order = (8, 0, 7, 1, 6, 2, 5, 3, 4)
    require_equal_in_order(-host.transpose(order)[..., ::-1], -x.transpose(order)[..., ::-1])
    require_equal_in_order(host.transpose(order) + host, x.transpose(order) + x)
