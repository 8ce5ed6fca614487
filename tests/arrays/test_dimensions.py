"""The dimensions that operands have in common, and gaps in memory."""

import random
from itertools import permutations, product

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import _core
from gpuinterop.exchange.plan import ArrayInfo, first_noncontiguous_axis

VIEWS = [
    np.empty(shape, "f4").transpose(order)[tuple(slice(None, None, s) for s in steps)]
    for shape in ((2, 3, 4), (1, 3, 1), (2, 0, 3))
    for order in permutations(range(3))
    for steps in ((1, 1, 1), (1, 1, 2), (-1, 1, 1))
]


def test_contiguity_is_numpys():
    for host in (*VIEWS, np.empty(()), np.broadcast_to(np.float32(1), (2, 3))):
        info = ArrayInfo(host.shape, host.strides, "float32", host.itemsize, "cpu")
        orders = [host.transpose(order) for order in permutations(range(host.ndim))]
        assert (info.c_contiguous, info.f_contiguous, info.compact) == (
            host.flags.c_contiguous, host.flags.f_contiguous, any(v.flags.c_contiguous for v in orders),
        )  # fmt: skip
    gaps = ArrayInfo((2, 3, 4), (104, 32, 8), "float64", 8, "cpu")
    assert (first_noncontiguous_axis(gaps), first_noncontiguous_axis(gaps, "F")) == (0, 0)
    with pytest.raises(ValueError, match="a stride of each axis"):
        _core._first_gap((2, 3), (4,), 4, True)


def test_merged_dimensions_visit_the_same_elements_in_the_same_order():
    x = gi.GpuArray(np.arange(240.0).reshape(2, 3, 1, 4, 10), device="cpu")
    for order in permutations(range(5)):
        for view in (x.transpose(order), x[::-1].transpose(order), x[..., ::2].transpose(order)):
            shape, strides = _core._merged(view)
            first = (view.ptr - x.ptr) // 8
            steps = [[k * s for k in range(n)] for n, s in zip(shape, strides, strict=True)]
            assert [first + sum(at) for at in product(*steps)] == np.asarray(view).ravel().tolist()
            assert 1 not in shape
            for outer, inner, n in zip(strides, strides[1:], shape[1:], strict=False):
                assert outer != inner * n


def test_the_geometry_of_a_reduction_covers_every_element_once():
    rng = random.Random(1)
    for _ in range(200):
        host = np.arange(np.prod(shape := [rng.randint(1, 4) for _ in range(4)])).reshape(shape)
        order, back = (
            rng.sample(range(4), 4),
            [slice(None, None, rng.choice((1, -1))) for _ in shape],
        )
        view = host.transpose(order)[tuple(back)]
        axes = [axis for axis in range(4) if rng.random() < 0.5]
        steps = tuple(s // 8 for s in view.strides)
        g = _core._reduced_dimensions(
            view.shape, sum(1 << a for a in axes), [steps], [8], rng.random() < 0.5
        )
        first = int(view.flat[0]) + g["in_shifts"][0]
        kept, red = (
            [
                sum(at)
                for at in product(*([k * s for k in range(n)] for n, s in zip(*dims, strict=True)))
            ]
            for dims in ((g["kept"], g["kept_strides"][0]), (g["red"], g["red_strides"][0]))
        )
        found = sorted(sum(first + k + r for r in red) for k in kept)
        assert found == sorted(view.sum(tuple(axes)).ravel().tolist())
    for strides, itemsizes in (([], []), ([(1,)], []), ([(1, 2)], [4]), ([(1,)] * 65, [4])):
        with pytest.raises(ValueError, match="strides of 1 to 64 operands"):
            _core._reduced_dimensions((3,), 1, strides, itemsizes, False)


def test_one_dimension_too_many(device):
    x = gi.ones((1,) * 64, device=device)
    for call in (lambda: x.expand_dims(0), lambda: gi.stack((x, x)), lambda: x.expand_dims(-1)):
        with pytest.raises(gi.ShapeError, match="64 dimensions"):
            call()


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_dir_of_an_array_shows_only_what_it_has(device, shape, dtype):
    x = gi.zeros(shape, dtype, device=device)
    names = dir(x)
    assert [name for name in names if not hasattr(x, name)] == []
    assert ("mT" in names) == (len(shape) > 1)
