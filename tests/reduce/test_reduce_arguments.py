"""What reductions refuse, and whom they believe."""

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError, DTypeError, ShapeError


def test_an_out_beside_and_on_top_of_the_operand(device: str) -> None:
    # Equal layouts of one buffer: only the distance distinguishes them.
    host = np.arange(64, dtype=np.float32)
    store = gi.CudaNdarray(host, device=device)
    x = store[:16].reshape(4, 4)
    dot = gi.fuse(lambda x: (x * x).sum(axis=-1))
    for at in (32, 0, 12):
        store[...] = host
        expected = host[:16].reshape(4, 4).astype(np.float64)
        x.sum(axis=0, out=store[at : at + 4])
        np.testing.assert_array_equal(np.asarray(store[at : at + 4]), expected.sum(0))
        store[...] = host
        dot(x, out=store[at : at + 4])
        np.testing.assert_array_equal(np.asarray(store[at : at + 4]), (expected**2).sum(1))


def test_norms_of_the_smallest_integer(device: str) -> None:
    x = gi.GpuArray(np.array([-128], np.int8), device=device)
    assert [gi.norm(x, ord).item() for ord in (None, 1, np.inf, -np.inf)] == [128] * 4


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("sum", bool), ("prod", bool), ("mean", bool), ("mean", "int64"), ("var", "uint8"), ("std", "int8")],
)  # fmt: skip
def test_dtypes_that_hold_no_such_result(device: str, name: str, dtype) -> None:
    for source in ("float32", "int32", "bool"):
        x = gi.GpuArray(np.ones(3, source), device=device)
        with pytest.raises(DTypeError, match=f"the {name} of {source}"):
            getattr(x, name)(dtype=dtype)


def test_a_fused_maximum_of_nothing(device: str) -> None:
    x = gi.GpuArray(np.zeros((2, 0)), device=device)
    largest = gi.fuse(lambda x: x.max(axis=-1))
    with pytest.raises(ShapeError, match="element"):
        largest(x)
    assert np.asarray(largest(x.T)).shape == (0,)


def test_outs_that_share_memory_are_refused_in_a_cached_call(device):
    both = gi.fuse(lambda x: (x.sum(axis=-1), x.sum(axis=-1) * 2))
    x, room = gi.ones((2, 3), device=device), gi.zeros(8, device=device)
    for _ in range(2):
        both(x, out=(room[:2], room[4:6]))  # a plan for these layouts is kept
        assert room.tolist() == [3, 3, 0, 0, 6, 6, 0, 0]
        for first, second in ((room[:2], room[:2]), (room[4:6], room[5:7])):
            with pytest.raises(gi.BoundsError, match="out="):
                both(x, out=(first, second))
        assert room.tolist() == [3, 3, 0, 0, 6, 6, 0, 0]


@pytest.mark.parametrize("shift", [4, -4])
def test_out_that_overlaps_an_extra_operand(device, shift):
    adding = gi.fuse(lambda x, y: x.sum(axis=-1) + y)
    n = 4096
    x, room = gi.ones((n, 3), device=device), gi.empty(n + 8, device=device)
    for by in (0, shift, 0):  # of equal layouts: in place, and not
        room[...] = np.arange(n + 8, dtype="f4")
        added, out = room[4 : n + 4], room[4 + by : n + 4 + by]
        adding(x, added, out=out)
        np.testing.assert_array_equal(out.get(), np.arange(4, n + 4) + 3)


WRONG = {
    "axes": (gi.ShapeError, lambda x: x.sum(axis=(0, -2))),
    "a dtype of a CudaNdarray": (DTypeError, lambda x: x.sum(dtype=np.float64)),
    "a dtype of minimum": (ArgumentTypeError, lambda x: np.minimum.reduce(x, dtype="float32")),
    "seven arguments": (ArgumentTypeError, lambda x: x.sum(0, None, None, False, 5, True, 0)),
    "keepdims": (ArgumentTypeError, lambda x: x.sum(keepdims="no")),
    "keepdims of norm": (ArgumentTypeError, lambda x: x.norm(axis=0, keepdims=[True])),
    **{f"a text as keepdims of {name}": (ArgumentTypeError, lambda x, f=f: f(x, axis=0, keepdims="no"))
       for name, f in (("norm", gi.norm), ("linalg.norm", gi.linalg.norm), ("vector_norm", gi.linalg.vector_norm))},
    "keepdims of ptp": (ArgumentTypeError, lambda x: x.ptp(axis=0, keepdims="no")),
    "ddof": (ArgumentTypeError, lambda x: x.var(ddof="one")),
    "ddof of NaN": (ArgumentTypeError, lambda x: x.var(ddof=float("nan"))),
    "a float as axis": (ArgumentTypeError, lambda x: x.sum(axis=0.5)),
    "out of NumPy": (ArgumentTypeError, lambda x: x.sum(out=np.zeros(()))),
    "nothing": (ArgumentTypeError, lambda x: gi.sum()),
    **{f"the mask {mask!r} of reduce_sum": (TypeError, lambda x, mask=mask: x.reduce_sum(mask))
       for mask in [(1,), (1, 0, 1), 1, "ab", None]},
    "a number of reduce_sum": (ArgumentTypeError, lambda x: gi.reduce_sum(1.0, (1,))),
    "ord": (ShapeError, lambda x: gi.norm(x, 3)),
    "ord of matrices": (ShapeError, lambda x: gi.norm(x, "nuc")),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(device: str, name: str) -> None:
    kind, call = WRONG[name]
    with pytest.raises(kind, match="expected"):
        call(gi.CudaNdarray(np.ones((2, 3), np.float32), device=device))


@pytest.mark.parametrize("shape", [(24,), (4, 6), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("ord", [None, 1, 2, np.inf, -np.inf, "fro"])
def test_norms_without_an_axis(device: str, shape: tuple[int, ...], ord) -> None:
    """gpuinterop's is of all elements, however many axes they have; NumPy's is a matrix's, or refused."""
    host = np.arange(24, dtype=np.float32).reshape(shape) - 7
    x = gi.CudaNdarray(host, device=device)
    if ord != "fro":
        expected = np.linalg.norm(host.ravel().astype(np.float64), ord)
        np.testing.assert_allclose(gi.norm(x, ord).item(), expected, rtol=1e-6)
        np.testing.assert_allclose(x.norm(ord).item(), expected, rtol=1e-6)
    own = ord is None or (len(shape) == 1 and ord != "fro") or (len(shape) == 2 and ord == "fro")
    if own or x.device.type == "cpu":  # NumPy computes the others there, or refuses them
        try:
            expected = np.linalg.norm(host, ord)
        except ValueError:
            with pytest.raises(ValueError, match=r"norm"):
                np.linalg.norm(x, ord)
        else:
            np.testing.assert_allclose(np.linalg.norm(x, ord).item(), expected, rtol=1e-6)
