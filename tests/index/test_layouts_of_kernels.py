"""Arrays that are large enough for each class of kernels: rows, transposed tiles, wide elements, vectors."""

import numpy as np
import pytest
from helpers.layouts import LAYOUTS

import gpuinterop as gi

SHAPES = [(70, 40), (9, 33, 64), (40, 3, 48), (200, 4), (6, 2, 2)]


def strided(host: np.ndarray, layout: str, device) -> gi.GpuArray:
    return LAYOUTS[layout](host, lambda a: gi.GpuArray(a, device=device))


@pytest.mark.parametrize("dtype", ["uint8", "float32", "complex128"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_columns_and_elements(device, shape, layout, dtype):
    random = np.random.default_rng(len(shape))
    host = random.integers(0, 99, shape).astype(dtype)
    for key in (
        (random.integers(-shape[0], shape[0], 50),),
        (slice(None), random.permutation(shape[1])[: shape[1] // 2 + 1]),
        (random.integers(0, shape[0], (20, 3)), slice(None), *[None] * (len(shape) == 2)),
        (random.permutation(shape[0])[:2, None], random.permutation(shape[1])[None, :2]),
    ):
        x = strided(host, layout, device)
        given = tuple(
            gi.GpuArray(k, device=device) if isinstance(k, np.ndarray) else k for k in key
        )
        np.testing.assert_array_equal(x[given].get(), host[key], strict=True)
        out = gi.empty(host[key].shape[::-1], dtype, device=device).T
        if len(key) == 1:
            gi.take(x, given[0], axis=0, out=out)
            np.testing.assert_array_equal(out.get(), host[key], strict=True)
        # Equal values wherever an element is written twice.
        values = (np.arange(host.size).reshape(shape)[key] % 83).astype(dtype)
        expected = host.copy()
        expected[key] = values
        x[given] = strided(values, layout, device)
        np.testing.assert_array_equal(x.get(), expected, strict=True)
        np.add.at(expected, key, np.ones_like(values))
        gi.add.at(x, given, 1)
        np.testing.assert_array_equal(x.get(), expected, strict=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_index_arrays_of_every_layout(device, layout):
    random = np.random.default_rng(1)
    host = random.standard_normal((64, 50)).astype("f4")
    places = random.integers(0, 64, (64, 50))
    i, x = strided(places, layout, device), gi.GpuArray(host, device=device)
    np.testing.assert_array_equal(x[i, 3].get(), host[places, 3])
    np.testing.assert_array_equal(
        gi.take_along_axis(x, i, 0).get(), np.take_along_axis(host, places, 0)
    )
    values = (places % 7).astype("f4")
    expected = host.copy()
    expected[places, 5] = values
    x[i, 5] = strided(values, layout, device)
    np.testing.assert_array_equal(x.get(), expected)
    np.add.at(expected, (places, 0), 1)
    gi.add.at(x, (i, 0), 1)
    np.testing.assert_allclose(x.get(), expected, rtol=1e-6)
