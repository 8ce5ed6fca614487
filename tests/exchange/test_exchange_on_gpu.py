"""Exchange on a real GPU with torch and CuPy: memory is shared, and results go back."""

import numpy as np
import pytest
from doubles import internals

import gpuinterop as gi

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


@pytest.mark.torch
def test_torch_shares_both_ways(torch):
    t = torch.arange(24, dtype=torch.float32, device="cuda").reshape(4, 6)
    for view in (t, t.T, t[1:, ::2], t[4:], t[1, 2]):
        x = gi.from_dlpack(view)
        assert x.ptr == view.data_ptr()
        np.testing.assert_array_equal(np.asarray(x.copy()), view.cpu().numpy())
        back = gi.to(x, "torch")
        assert back.data_ptr() == view.data_ptr()
        assert back.device == t.device
    with pytest.raises(gi.ContiguityError):
        torch.from_dlpack(gi.from_dlpack(t)[::-1])


@pytest.mark.cupy
def test_cupy_shares_both_ways(cupy):
    c = cupy.arange(24, dtype="float32").reshape(4, 6)
    for view in (c, c.T, c[1:, ::2], c[::-1], c[4:]):
        x = gi.from_dlpack(view)
        assert x.ptr == (view.data.ptr if view.size else 0)
        for back in (cupy.from_dlpack(x), cupy.asarray(x)):
            assert back.data.ptr == x.ptr
            np.testing.assert_array_equal(back.get(), view.get())


@pytest.mark.cupy
def test_an_ordinary_cupy_array_is_read_without_its_dlpack(cupy):
    c = cupy.arange(24, dtype="float32").reshape(4, 6)
    for view in (c, c.T, c[::-1], c[4:]):
        x = internals.share_plain(view)
        assert (type(x), x.shape, x.base) == (gi.CudaNdarray, view.shape, view)
        np.testing.assert_array_equal(np.asarray(x), view.get())
    side = cupy.cuda.Stream(non_blocking=True)
    with side:  # whose order only the capsule keeps
        assert internals.share_plain(c) is None
        np.testing.assert_array_equal(np.asarray(gi.from_any(c)), c.get())
