"""Rows that are not aligned: odd lengths, odd offsets, transposed and reversed operands. NumPy is the oracle,
and no byte outside the result is written."""

import numpy as np
import pytest

import gpuinterop as gi

DTYPES = ["int8", "float16", "float32", "float64", "complex128"]
ROWS, COLUMNS = 131, 197  # more than a tile both ways, and odd

# From a matrix to an operand of shape (ROWS, COLUMNS); each has rows with alignments of its own.
VIEWS = {
    "odd rows": lambda m: m[:ROWS, :COLUMNS],
    "an offset": lambda m: m[1 : ROWS + 1, 3 : COLUMNS + 3],
    "reversed": lambda m: m[1 : ROWS + 1, COLUMNS:0:-1],
    "upside down": lambda m: m[ROWS:0:-1, 1 : COLUMNS + 1],
    "one row": lambda m: m[:1, 1 : COLUMNS + 1],
    "transposed": lambda m: m.T[1 : ROWS + 1, 2 : COLUMNS + 2],
    "transposed and reversed": lambda m: m.T[ROWS:0:-1, COLUMNS:0:-1],
}
# From a canvas to the result.
RESULTS = {
    "odd rows": lambda c: c[: ROWS * COLUMNS].reshape(ROWS, COLUMNS),
    "an odd start": lambda c: c[7 : 7 + ROWS * COLUMNS].reshape(ROWS, COLUMNS),
    "part of even rows": lambda c: c[: ROWS * 224].reshape(ROWS, 224)[:, 3 : 3 + COLUMNS],
}


def matrices(dtype, device, side):
    host = (np.arange(side * side) % 113 - 50).reshape(side, side).astype(dtype)
    return host, gi.GpuArray(host, device=device)


@pytest.mark.parametrize("other", ["odd rows", "an offset", "reversed", "transposed", "one row"])
@pytest.mark.parametrize(
    "dtypes", [("float32", "float32"), ("int16", "float32"), ("float32", "float64")]
)
def test_operations_of_two_operands(device, other, dtypes):
    """The results are fresh, wider or narrower than the operands, or in an odd place."""
    (hx, x), (hy, y) = (matrices(dtype, device, 201) for dtype in dtypes)
    for view in VIEWS.values():
        h, g = (view(hx), VIEWS[other](hy)), (view(x), VIEWS[other](y))
        np.testing.assert_array_equal((g[0] + g[1]).get(), h[0] + h[1])
        np.testing.assert_array_equal((g[0] > g[1]).get(), h[0] > h[1])
        expected = np.zeros(ROWS * 240, np.result_type(*dtypes))
        canvas = gi.zeros(ROWS * 240, dtype=expected.dtype, device=device)
        np.subtract(*h, out=RESULTS["an odd start"](expected))
        gi.subtract(*g, out=RESULTS["an odd start"](canvas))
        np.testing.assert_array_equal(canvas.get(), expected)


def test_several_results_with_different_alignments(device):
    host, x = matrices("float32", device, 201)
    canvases = [np.zeros(ROWS * 240, np.float32) for _ in range(2)]
    ours = [gi.zeros(ROWS * 240, device=device) for _ in range(2)]
    for name in ("an offset", "transposed"):
        for places in (("odd rows", "an odd start"), ("part of even rows", "odd rows")):
            view = VIEWS[name]
            outs = tuple(RESULTS[p](c) for p, c in zip(places, canvases, strict=True))
            np.divmod(view(host), 7, out=outs)
            gi.divmod(
                view(x), 7, out=tuple(RESULTS[p](c) for p, c in zip(places, ours, strict=True))
            )
            for expected, canvas in zip(canvases, ours, strict=True):
                np.testing.assert_array_equal(canvas.get(), expected)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
@pytest.mark.parametrize("n", [3, 2051])
def test_vectors_at_every_offset(device, dtype, n):
    host, x = matrices(dtype, device, 201)
    host, x = host.ravel(), x.ravel()
    for first in range(1, 9):
        for start in (0, 1, 4):
            expected, canvas = np.zeros(n + 16, dtype), gi.zeros(n + 16, dtype, device=device)
            here = slice(start, start + n)
            expected[here] = host[first : first + n] + host[8 : 8 + n]
            gi.add(x[first : first + n], x[8 : 8 + n], out=canvas[here])
            np.testing.assert_array_equal(canvas.get(), expected)
            expected[here] = host[first : first + n]
            canvas[here] = x[first : first + n]
            np.testing.assert_array_equal(canvas.get(), expected)
        wide = np.float32(host[first : first + n]) + np.arange(n, dtype="f4")
        got = x[first : first + n] + gi.arange(n, device=device)
        np.testing.assert_array_equal(got.get(), wide)
    # The last elements of the memory.
    tail = gi.GpuArray(host[:n], device=device)[1:]
    np.testing.assert_array_equal((tail + tail).get(), host[1:n] + host[1:n])
