"""Files of NumPy and of safetensors, there and back."""

import numpy as np
import pytest

import gpuinterop as gi

HOST = np.arange(6, dtype="float32").reshape(2, 3)


def test_numpy_writes_arrays(device, tmp_path):
    x, n = gi.asarray(HOST, device=device), gi.asarray([1, 2], "int8", device=device)
    np.save(tmp_path / "x.npy", x[:, ::-1])
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), HOST[:, ::-1], strict=True)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "all.npz", n, x=x, host=HOST)
        with np.load(tmp_path / "all.npz") as found:
            assert (found["arr_0"].dtype, found["arr_0"].tolist()) == ("int8", [1, 2])
            assert (
                gi.asarray(found["x"], device=device).tolist()
                == found["host"].tolist()
                == HOST.tolist()
            )
    np.savetxt(tmp_path / "x.txt", x, fmt="%g", header="a b c")
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "x.txt"), HOST)
    with gi.capture() as step:
        y = x + 1
        with pytest.raises(gi.CaptureError):
            np.save(tmp_path / "y.npy", y)
    step.replay()


def test_safetensors_writes_copies_of_views(tmp_path):
    files = pytest.importorskip("safetensors.numpy")
    x = gi.asarray(HOST, device="cpu")
    files.save_file({"x": np.asarray(x), "y": np.asarray(x.T[::-1].copy())}, tmp_path / "x")
    found = files.load_file(tmp_path / "x")
    assert gi.from_any(found["x"]).tolist() == HOST.tolist()
    assert gi.from_any(found["y"]).tolist() == HOST.T[::-1].tolist()
