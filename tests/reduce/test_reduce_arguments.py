"""What reductions refuse, and whom they believe."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError, DTypeError, ShapeError


class Liar(gi.CudaNdarray):
    """Says of itself whatever would lead a kernel out of its memory."""

    shape = property(lambda self: (1 << 20, 1 << 10))
    strides = property(lambda self: (1 << 30, 4))
    _strides = property(lambda self: (1 << 28, 1))
    ptr = property(lambda self: 16)
    gpudata = property(lambda self: 16)
    dtype = property(lambda self: np.dtype(np.complex128))
    itemsize = property(lambda self: 16)
    ndim = property(lambda self: 2)
    size = property(lambda self: 1 << 30)
    device = property(lambda self: gi.devices.device("cpu"))


@pytest.mark.parametrize("name", ["sum", "max", "argmin", "var", "mean", "any"])
@pytest.mark.parametrize("axis", [None, 1])
def test_the_real_geometry_counts(device: str, name: str, axis) -> None:
    host = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    x = gi.CudaNdarray(host, device=device)
    liar = gi._core.view(Liar, x)
    expected = getattr(np, name)(host, axis=axis)
    made = np.asarray(gi._core.view(gi.GpuArray, getattr(liar, name)(axis=axis)))
    assert made.shape == expected.shape
    np.testing.assert_allclose(made, expected, rtol=1e-6)
    out = gi.empty(expected.shape, dtype=expected.dtype, device=device)
    assert getattr(gi, name)(liar, axis, out=out) is out
    np.testing.assert_allclose(np.asarray(out), expected, rtol=1e-6)
    np.testing.assert_allclose(
        np.asarray(gi._core.view(gi.GpuArray, gi.norm(liar, axis=axis))),
        np.linalg.norm(host.ravel() if axis is None else host, axis=axis), rtol=1e-6,
    )  # fmt: skip
    with pytest.raises((ShapeError, DTypeError)):
        getattr(x, name)(axis=axis, out=gi._core.view(Liar, gi.empty(7, device=device)))


def test_the_real_geometry_counts_in_kernels_of_several_operands(device: str) -> None:
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    liar = gi._core.view(Liar, gi.CudaNdarray(host, device=device))
    dot = gi.MapReduce("x0 * x1", lambda x, e: (np.sum(x[0] * x[1], axis=-1),))
    made = gi._core.view(gi.GpuArray, dot(liar, liar))
    np.testing.assert_allclose(np.asarray(made), (host * host).sum(1))


def test_an_out_whose_elements_share_memory_is_refused(device: str) -> None:
    x = gi.CudaNdarray(np.ones((4, 5), np.float32), device=device)
    store = gi.empty((5,), device=device)
    for out in (store[:1].broadcast_to((5,)), gi.empty((), device=device).broadcast_to((5,))):
        with pytest.raises((ShapeError, ValueError), match="out"):
            x.sum(axis=0, out=out)
    overlapping = gi.empty((5,), device=device)
    with pytest.raises(ValueError, match="out"):
        np.sum(x, axis=0, out=overlapping.broadcast_to((2, 5))[:, 0])


def test_an_out_whose_rows_interleave_is_taken(device: str) -> None:
    store = gi.zeros(8, device=device)
    # Strides of 3 and 2 elements: the places 0 2 4 and 3 5 7, each its own.
    out = gi.CudaNdarray.from_pointer(store.ptr, (2, 3), (3, 2), base=store, device=device)
    host = np.random.default_rng(0).standard_normal((2, 3, 40)).astype("f4")
    x = gi.CudaNdarray(host, device=device)
    for name in ("sum", "max", "mean", "var"):
        store.fill(0)
        assert getattr(x, name)(axis=2, out=out) is out
        expected = np.zeros(8)
        expected[[0, 2, 4, 3, 5, 7]] = getattr(host.astype("f8"), name)(axis=2).ravel()
        np.testing.assert_allclose(store.get(), expected, rtol=1e-5, atol=1e-6)
    dot = gi.MapReduce("x0 * x0", lambda x, e: (np.sum(x[0] * x[0], axis=-1),))
    np.testing.assert_allclose(dot(x, out=out).get(), (host.astype("f8") ** 2).sum(2), rtol=1e-5)
    shared = gi.CudaNdarray.from_pointer(store.ptr, (2, 3), (2, 1), base=store, device=device)
    with pytest.raises(ValueError, match="do not overlap"):
        x.sum(axis=2, out=shared)


def test_an_out_beside_and_on_top_of_the_operand(device: str) -> None:
    # Equal layouts of one buffer: only the distance tells them apart.
    host = np.arange(64, dtype=np.float32)
    store = gi.CudaNdarray(host, device=device)
    x = store[:16].reshape(4, 4)
    dot = gi.MapReduce("x0 * x0", lambda x, e: (np.sum(x[0] * x[0], axis=-1),))
    for at in (32, 0, 12):
        store[...] = host
        expected = host[:16].reshape(4, 4).astype(np.float64)
        x.sum(axis=0, out=store[at : at + 4])
        np.testing.assert_array_equal(np.asarray(store[at : at + 4]), expected.sum(0))
        store[...] = host
        dot(x, out=store[at : at + 4])
        np.testing.assert_array_equal(np.asarray(store[at : at + 4]), (expected**2).sum(1))


def test_numpys_arguments(device: str) -> None:
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = gi.CudaNdarray(host, device=device)
    np.testing.assert_array_equal(np.asarray(np.add.reduce(x)), host.sum(0))
    np.testing.assert_array_equal(np.asarray(np.add.reduce(x, None, where=True)), host.sum())
    np.testing.assert_array_equal(
        np.asarray(np.maximum.reduce(x, axis=1, keepdims=True)), host.max(1, keepdims=True)
    )
    np.testing.assert_array_equal(np.asarray(np.sum(x, 1, "float32")), host.sum(1))
    small = gi.GpuArray(host.astype("int8"), device=device)
    assert np.add.reduce(small, axis=None, dtype="float64").dtype == np.float64
    for call in (
        lambda: np.minimum.reduce(x, dtype="float32"),
        lambda: x.sum(0, None, None, False, 5, True, 0),
        lambda: x.sum(keepdims="no"),
        lambda: x.var(ddof="one"),
        lambda: x.var(ddof=float("nan")),
        lambda: x.sum(axis="a"),
        lambda: x.sum(axis=0.5),
        lambda: x.sum(out=np.zeros(())),
        lambda: gi.sum([1.0]),
        lambda: gi.sum(),
        lambda: gi.norm([1.0]),
        lambda: gi.norm(x, axis="a"),
        lambda: gi.reduce_sum([1.0], (1,)),
        lambda: gi.MapReduce("x0", lambda x, e: ())(),
    ):
        with pytest.raises(ArgumentTypeError, match="expected") as found:
            call()
        assert "fix:" in str(found.value)
    for call in (
        lambda: gi.norm(x, 3),
        lambda: gi.norm(x, "nuc"),
        lambda: gi.norm(x, x),
        lambda: x.sum(dtype="nonsense"),
        lambda: gi.MapReduce("x0", lambda x, e: (x[0],))(x, out=(x, x)),
    ):
        with pytest.raises((ShapeError, DTypeError), match="expected"):
            call()


@pytest.mark.parametrize("name", ["norm", "ptp", "sum"])
def test_keepdims_is_a_truth(device: str, name: str) -> None:
    x = gi.ones((2, 3), device=device)
    for wrong in ("no", [True]):
        with pytest.raises(ArgumentTypeError, match="keepdims") as caught:
            getattr(x, name)(axis=0, keepdims=wrong)
        assert caught.value.where == name
    for right in (True, np.True_, 1):
        assert getattr(x, name)(axis=0, keepdims=right).shape == (1, 3)


def test_norms_of_the_smallest_integer(device: str) -> None:
    x = gi.GpuArray(np.array([-128], np.int8), device=device)
    assert [gi.norm(x, ord).item() for ord in (None, 1, np.inf, -np.inf)] == [128] * 4


def test_norms_of_matrices_are_not_those_of_their_elements(device: str) -> None:
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = gi.GpuArray(host, device=device)
    for ord in (1, 2, np.inf, -np.inf):
        with pytest.raises(ShapeError, match="norm of a matrix"):
            np.linalg.norm(x, ord, axis=(0, 1))
    for ord in (None, "fro"):
        expected = np.linalg.norm(host, ord, axis=(0, 1))
        np.testing.assert_allclose(np.linalg.norm(x, ord, axis=(0, 1)).item(), expected, rtol=1e-6)
    assert gi.norm(x, 1, axis=(0, 1)).item() == 15


def test_norms_without_an_axis(device: str) -> None:
    """Ours is of all elements, however many axes they have; NumPy's is a matrix's, or refused."""
    host = np.arange(24, dtype=np.float32) - 7
    for shape in ((24,), (4, 6), (2, 3, 4)):
        x = gi.CudaNdarray(host.reshape(shape), device=device)
        for ord in (None, 1, 2, np.inf, -np.inf):
            expected = np.linalg.norm(host.astype(np.float64), ord)
            np.testing.assert_allclose(gi.norm(x, ord).item(), expected, rtol=1e-6)
            np.testing.assert_allclose(x.norm(ord).item(), expected, rtol=1e-6)
        for ord in (None, 1, 2, np.inf, "fro"):
            try:
                expected = np.linalg.norm(host.reshape(shape), ord)
            except ValueError:
                expected = None
            if expected is None or (len(shape) == 2 and ord not in (None, "fro")):
                with pytest.raises(ShapeError, match="norm"):
                    np.linalg.norm(x, ord)
            else:
                np.testing.assert_allclose(np.linalg.norm(x, ord).item(), expected, rtol=1e-6)
    cube = gi.CudaNdarray(host.reshape(2, 3, 4), device=device)
    with pytest.raises(ShapeError, match="one axis, or two"):
        np.linalg.norm(cube, axis=(0, 1, 2))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("sum", bool), ("prod", bool), ("mean", bool), ("mean", "int64"), ("var", "uint8"), ("std", "int8")],
)  # fmt: skip
def test_dtypes_that_hold_no_such_result(device: str, name: str, dtype) -> None:
    for source in ("float32", "int32", "bool"):
        x = gi.GpuArray(np.ones(3, source), device=device)
        with pytest.raises(DTypeError, match=f"a dtype to compute the {name}"):
            getattr(x, name)(dtype=dtype)


def test_a_map_reduce_over_nothing(device: str) -> None:
    x = gi.GpuArray(np.zeros((2, 0)), device=device)
    largest = gi.MapReduce("x0", lambda x, e: (np.max(x[0], axis=-1),), op="max")
    with pytest.raises(ShapeError, match="at least one element"):
        largest(x)
    assert np.asarray(largest(x.T)).shape == (0,)


def sums(x, e):
    return (np.sum(x[0] * x[1], axis=-1),)


def test_operands_are_counted(device: str) -> None:
    x = gi.CudaNdarray(np.ones((2, 3), np.float32), device=device)
    dot = gi.MapReduce("x0 * x1", sums)
    scaled = gi.MapReduce("x0 * x1", lambda x, e: (sums(x, e)[0] * e[0],), posts=("r * e0",))
    assert dot(x, x).tolist() == [3, 3]
    assert scaled(x, x, extras=(x[:, 0],)).tolist() == [3, 3]
    for call, said in (
        (lambda: dot(x), "2 and 0\n  got: 1 and 0"),
        (lambda: dot(x, x, x), "2 and 0\n  got: 3 and 0"),
        (lambda: dot(x, x, extras=(x,)), "2 and 0\n  got: 2 and 1"),
        (lambda: scaled(x, x), "2 and 1\n  got: 2 and 0"),
    ):
        with pytest.raises(ArgumentTypeError, match=said):
            call()


def test_what_host_gives_to_a_mapped_reduction() -> None:
    x = gi.CudaNdarray(np.ones((2, 3), np.float32), device="cpu")
    for host in (None, "x0"):
        with pytest.raises(ArgumentTypeError, match="as host"):
            gi.MapReduce("x0", host)
    for given in (np.ones(2), None, (), (1, 2), (np.ones((2, 3)),)):
        kernel = gi.MapReduce("x0", lambda x, e, given=given: given)
        with pytest.raises(ShapeError, match="from host="):
            kernel(x)


def test_outs_that_share_memory_are_refused_on_a_warm_call_too(device):
    both = gi.MapReduce(
        "x0", lambda x, e: (np.sum(x[0], axis=-1), 2 * np.sum(x[0], axis=-1)), posts=("r", "r * 2")
    )
    x, room = gi.ones((2, 3), device=device), gi.zeros(8, device=device)
    for _ in range(2):
        both(x, out=(room[:2], room[4:6]))  # a plan for these layouts is kept
        assert room.tolist() == [3, 3, 0, 0, 6, 6, 0, 0]
        for first, second in ((room[:2], room[:2]), (room[4:6], room[5:7])):
            with pytest.raises(gi.BoundsError, match="MapReduce: expected out= arrays that do not"):
                both(x, out=(first, second))
        assert room.tolist() == [3, 3, 0, 0, 6, 6, 0, 0]


@pytest.mark.parametrize("shift", [4, -4])
def test_an_out_on_top_of_an_extra_and_beside_it(device, shift):
    adding = gi.MapReduce("x0", lambda x, e: (np.sum(x[0], axis=-1) + e[0],), posts=("r + e0",))
    n = 4096
    x, room = gi.ones((n, 3), device=device), gi.empty(n + 8, device=device)
    for by in (0, shift, 0):  # of equal layouts: in place, and not
        room[...] = np.arange(n + 8, dtype="f4")
        added, out = room[4 : n + 4], room[4 + by : n + 4 + by]
        adding(x, extras=(added,), out=out)
        np.testing.assert_array_equal(out.get(), np.arange(4, n + 4) + 3)


def test_more_operands_and_outs_than_a_kernel_takes_are_refused_by_name(device):
    x = gi.ones(4, dtype="float32", device=device)
    many = gi.MapReduce(
        " + ".join(f"x{i}" for i in range(17)),
        lambda v, e: (sum(v).sum(axis=-1),),
        where="seventeen",
    )
    with pytest.raises(gi.ShapeError, match="seventeen: expected at most 16 operands\n  got: 17"):
        many(*[x] * 17)
    one = gi.MapReduce("x0", lambda v, e: (v[0].sum(axis=-1),), where="one")
    outs = tuple(gi.empty((), device=device) for _ in range(17))
    with pytest.raises(gi.ShapeError, match="one: expected at most 16 outs\n  got: 17"):
        one(x, out=outs)
    for bad in ("nosuch", "argmax"):
        with pytest.raises(gi.ShapeError, match="named: expected op sum"):
            gi.MapReduce("x0", lambda v, e: (v[0],), op=bad, where="named")


def test_an_out_in_the_making_is_refused_on_every_call(device: str) -> None:
    x = gi.CudaNdarray(np.ones((3, 4), np.float32), device=device)
    memory = gi.zeros(8, device=device)
    by_name = gi.MapReduce("x0", lambda v, e: (v[0].sum(axis=0),), axis=0, where="column sums")
    for call in (lambda out: x.sum(axis=0, out=out), lambda out: by_name(x, out=(out,))):
        for _ in range(2):  # from now on the plan is known
            call(memory[:4])
        out = memory[:4]
        out._set_shape_i(0, 9)
        with pytest.raises(gi.BoundsError, match="stay inside the memory"):
            call(out)
        out._set_shape_i(0, 4)
        call(out)
        assert out.get().tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("axis", [0, (0,), -2])
def test_no_results_of_many_elements(device, axis):
    x = gi.empty((2**31 + 3, 0), device=device)
    assert x.sum(axis=axis).shape == (0,)
    assert x.T.sum(axis=1).shape == (0,)
