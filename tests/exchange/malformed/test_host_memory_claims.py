"""Memory on the host that is not what its owner says, or no memory at all."""

import numpy as np
import pytest
from helpers.cases import Fresh, refused

import gpuinterop as gi

# ---- npmat and gnumpy ---------------------------------------------------------------------------


def test_a_garray_over_read_only_memory_is_read_only(npmat, gnumpy):
    frozen = np.ones((6, 1), np.float32)
    frozen.flags.writeable = False
    g = gnumpy.garray(npmat.CUDAMatrix(frozen), (2, 3), gnumpy.garray(np.zeros(1)))
    assert gi.from_any(g).readonly
    there = gi.to(gi.from_any(frozen), "gnumpy", allow_readonly=True)
    assert gi.from_any(there).readonly
    assert not gi.from_any(gnumpy.garray(np.ones(3))).readonly


@pytest.mark.parametrize("shape", [(1000,), (5,), (2, 3), (50_000_000,)])
def test_a_garray_larger_than_its_matrix_is_refused(gnumpy, shape):
    g = gnumpy.garray(np.ones(4, np.float32))
    g.shape = shape
    refused(g, gi.ExchangeError, "at most 4 elements")
    g.shape = (1, 3)
    assert gi.from_any(g).tolist() == [[1, 1, 1]]


def test_the_layout_memory_needs_memory_without_gaps(npmat):
    m = npmat.CUDAMatrix(np.ones((2, 2), np.float32))
    dense = np.arange(16, dtype=np.float32).reshape(4, 4)
    for host in (dense[::2, ::2], dense[::-1, ::-1], dense[:, :2]):
        m.numpy_array = host
        assert np.array_equal(gi.from_any(m), host)
        refused(m, gi.ExchangeError, "without gaps", layout="memory")
        with pytest.raises(gi.ExchangeError, match="without gaps"):
            gi.cudamat_to_cudandarray(m)


def test_host_memory_of_npmat_is_validated(npmat, gnumpy):
    m, g = npmat.CUDAMatrix(np.ones((2, 2), np.float32)), gnumpy.garray(np.ones(4, np.float32))
    for host, error, words in (
        (np.arange(4, dtype=">f4").reshape(2, 2), gi.DTypeError, ">f4"),
        (np.arange(4, dtype="f4"), gi.ExchangeError, r"\(4,\)"),
        (
            np.ma.array([[1.0, 2], [3, 4]], "f4", mask=[[1, 0], [0, 0]]),
            gi.UnsupportedError,
            "mask",
        ),
    ):
        m.numpy_array = g._base.numpy_array = host
        refused(m, error, words)
        refused(m, error, words, layout="memory")
        refused(g, error, words)


# ---- no memory ----------------------------------------------------------------------------------


def test_scalars_share_no_memory():
    assert not gi.shares_memory(np.float32(3), np.float32(3))
    assert not gi.shares_memory(np.float64(3), np.complex128(3))
    assert not gi.may_share_memory(np.int8(1), np.float32(2))


def test_tensor_without_storage_shares_no_memory():
    torch = pytest.importorskip("torch")
    meta = [torch.empty(3, device="meta") for _ in range(2)]
    assert not gi.shares_memory(*meta)
    assert not gi.may_share_memory(*meta)
    emptied = [torch.ones(3) for _ in range(2)]
    for tensor in emptied:
        tensor.untyped_storage().resize_(0)
    assert not gi.shares_memory(*emptied)


def test_memory_allocated_at_each_export_is_not_shared():
    assert not gi.shares_memory(Fresh(), Fresh())
    assert not gi.may_share_memory(Fresh(), Fresh())


# ---- one place for several elements -------------------------------------------------------------


def test_several_values_for_one_place_are_refused():
    one = np.zeros(1, np.float32)
    x = gi.from_any(np.lib.stride_tricks.as_strided(one, (4,), (0,)))
    assert not x.readonly  # as its producer says
    with pytest.raises(gi.ContiguityError, match="do not overlap"):
        x[...] = np.arange(4, dtype=np.float32)
    with pytest.raises(gi.ContiguityError, match="do not overlap"):
        x[1:] = [1, 2, 3]
    assert one.tolist() == [0]
    x[...] = 5
    x[1:] = np.float32(6)
    x[2] = gi.ones((), device="cpu")
    x[...] = gi.full((1, 1), 7, device="cpu")
    assert one.tolist() == [7]
