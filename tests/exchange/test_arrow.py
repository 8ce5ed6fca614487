"""Columns of pyarrow and polars over the memory of arrays, and arrays over theirs."""

import sys

import numpy as np
import pytest

import gpuinterop as gi


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "float64"])
def test_columns_share_memory_or_count_a_copy(dtype):
    pa = pytest.importorskip("pyarrow")
    x = gi.asarray(np.arange(6).astype(dtype), device="cpu")
    with gi.count_copies() as copies:
        column = pa.array(x)
    assert column.to_pylist() == x.tolist()
    if dtype == "bool":  # which Arrow packs
        assert copies.count == 1
        return
    assert copies.count == 0
    assert column.buffers()[1].address == x.ptr
    back = gi.from_any(column)
    assert (back.ptr, back.readonly, back.dtype) == (x.ptr, True, x.dtype)
    with gi.count_copies() as copies:
        assert pa.array(x[::-2]).to_pylist() == x.tolist()[::-2]
    assert copies.count == 1
    with gi.no_copies(), pytest.raises(gi.CopyForbiddenError):
        pa.array(x[::-2])
    del x
    assert column[5].as_py() == 5
    assert pa.array(gi.zeros(0, dtype, device="cpu")).type == pa.from_numpy_dtype(dtype)


def test_tables_of_polars_and_pyarrow():
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    x = gi.asarray(np.arange(3.0), device="cpu")
    assert pa.table({"x": x}).to_pydict() == {"x": [0, 1, 2]}
    assert pl.DataFrame({"x": x, "y": pl.Series(x)}).to_dict(as_series=False) == {
        "x": [0, 1, 2],
        "y": [0, 1, 2],
    }
    for column in (pl.Series(x), pa.array([0.0, 1.0, 2.0])):
        assert gi.from_any(column).tolist() == [0, 1, 2]


def test_tables_of_pandas():
    pd = pytest.importorskip("pandas")
    x = gi.asarray(np.arange(6.0).reshape(2, 3), device="cpu")
    frame = pd.DataFrame(x, columns=[*"abc"]).assign(d=x[:, 0])
    assert frame.to_numpy().tolist() == np.concatenate([x.get(), x.get()[:, :1]], axis=1).tolist()
    assert (
        pd.Series(x[1]).tolist()
        == gi.asarray(frame.iloc[1, :3], device="cpu").tolist()
        == [3, 4, 5]
    )


def test_what_is_no_column(device, monkeypatch):
    x = gi.zeros((2, 3), device=device)
    if x.device.type != "cpu":
        with pytest.raises(gi.DeviceMismatchError, match=r"x\.to_device"):
            x[0].__arrow_c_array__()
        return
    for wrong in (x, x[0, 0]):
        with pytest.raises(gi.ShapeError, match="one axis"):
            wrong.__arrow_c_array__()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(gi.MissingLibraryError, match=r"numpy\.asarray"):
            x[0].__arrow_c_array__()
    pytest.importorskip("pyarrow")
    with pytest.raises(gi.ExportError, match="complex64"):
        x[0].astype("complex64").__arrow_c_array__()
