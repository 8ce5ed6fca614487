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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("side", [201, 224])
def test_copies(device, dtype, side):
    host, x = matrices(dtype, device, side)
    for view in VIEWS.values():
        for result in RESULTS.values():
            expected = np.zeros(ROWS * 240, dtype)
            canvas = gi.zeros(ROWS * 240, dtype=dtype, device=device)
            result(expected)[...] = view(host)
            result(canvas)[...] = view(x)
            np.testing.assert_array_equal(canvas.get(), expected)


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


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(3, 37, 65), (2, 3, 35, 41), (5, 1, 67, 33)])
def test_permutations_of_three_and_four_axes(device, dtype, shape):
    """Among them NCHW to NHWC and back."""
    host = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    x = gi.GpuArray(host, device=device)
    n = len(shape)
    orders = {
        (0, *range(2, n), 1),
        (0, n - 1, *range(1, n - 1)),
        tuple(range(n))[::-1],
        (n - 1, *range(n - 1)),
    }
    for order in sorted(orders):
        np.testing.assert_array_equal(x.transpose(order).copy().get(), host.transpose(order))
        np.testing.assert_array_equal(
            gi.add(x.transpose(order), 1, order="C").get(), host.transpose(order) + 1
        )


def test_take_along_odd_rows(device):
    """The kernel reads an address of each element, which it must not compute outside of the rows."""
    host, x = matrices("float32", device, 201)
    indices = np.arange(0, 201, 2)
    taken = x[1:, 1:].take(gi.asarray(indices[:99], device=device), axis=1, mode="clip")
    np.testing.assert_array_equal(taken.get(), host[1:, 1:].take(indices[:99], axis=1, mode="clip"))


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
