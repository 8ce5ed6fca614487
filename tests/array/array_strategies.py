"""Random arrays, keys and shapes for the property tests; NumPy is the oracle throughout."""

from __future__ import annotations

import os

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# GPUINTEROP_SOAK multiplies the number of examples: the quick suite runs half of them, `make soak` many
# more, and CI a fraction where it repeats the suite on another build.
SOAK = float(os.environ.get("GPUINTEROP_SOAK", "0.5"))


def examples(count: int):
    return settings(
        max_examples=max(1, int(count * SOAK)),
        deadline=None,
        derandomize=SOAK <= 1,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


shapes = st.lists(st.integers(0, 4), min_size=0, max_size=5).map(tuple)
filled_shapes = st.lists(st.integers(1, 4), min_size=0, max_size=5).map(tuple)


def numbers(shape: tuple[int, ...], start: int = 1) -> np.ndarray:
    """Distinct values, so that a misplaced element shows."""
    return (np.arange(int(np.prod(shape, dtype=np.int64))) + start).astype("float32").reshape(shape)


@st.composite
def keys(draw, shape: tuple[int, ...], new_axes: bool = True):
    """A key of ints, slices, Ellipsis and None that fits `shape`."""
    parts = []
    used = draw(st.integers(0, len(shape)))
    ellipsis_at = draw(st.integers(0, used)) if draw(st.booleans()) else None
    # With an Ellipsis, the parts behind it index the last axes.
    axes = [
        i if ellipsis_at is None or i < ellipsis_at else len(shape) - used + i for i in range(used)
    ]
    for position, axis in enumerate(axes):
        if position == ellipsis_at:
            parts.append(Ellipsis)
        n = shape[axis]
        if n and draw(st.integers(0, 3)) == 0:
            parts.append(draw(st.integers(-n, n - 1)))
        else:
            bound = st.none() | st.integers(-n - 2, n + 2)
            step = st.none() | st.integers(-3, 3).filter(bool)
            parts.append(slice(draw(bound), draw(bound), draw(step)))
        if new_axes and draw(st.integers(0, 5)) == 0:
            parts.append(None)
    if ellipsis_at == used:
        parts.append(Ellipsis)
    if len(parts) == 1 and draw(st.booleans()):
        return parts[0]
    return tuple(parts)


@st.composite
def view_chains(draw, pair, steps: int = 3):
    """Apply the same random chain of views to a (NumPy, ours) pair."""
    theirs, ours = pair
    for _ in range(draw(st.integers(0, steps))):
        kind = draw(st.integers(0, 4))
        if kind <= 1:
            key = draw(keys(theirs.shape))
            # With an Ellipsis NumPy gives a 0-d view where it would give a scalar, a copy.
            parts = key if isinstance(key, tuple) else (key,)
            whole = parts if Ellipsis in parts else (*parts, Ellipsis)
            theirs, ours = theirs[whole], ours[key]
        elif kind == 2:
            axes = draw(st.permutations(range(theirs.ndim)))
            theirs, ours = theirs.transpose(axes), ours.transpose(axes)
        elif kind == 3 and theirs.ndim:
            a, b = (draw(st.integers(-theirs.ndim, theirs.ndim - 1)) for _ in range(2))
            theirs, ours = theirs.swapaxes(a, b), ours.swapaxes(a, b)
        elif kind == 4 and theirs.ndim < 6:
            at = draw(st.integers(0, theirs.ndim))
            theirs, ours = np.expand_dims(theirs, at), ours.expand_dims(at)
    return theirs, ours


def assert_same(ours, theirs: np.ndarray) -> None:
    """Values, shape and, where they have a meaning, strides."""
    for name in ("shape", "ndim", "size", "nbytes", "itemsize", "dtype"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.mem_size == ours.size
    assert ours.gpudata == ours._dev_data == ours.ptr
    assert bool(ours.ptr) == bool(ours.size)
    np.testing.assert_array_equal(ours.get(), theirs)
    if theirs.size:
        for n, mine, yours in zip(theirs.shape, ours.strides, theirs.strides, strict=True):
            assert n == 1 or mine == yours
        for n, step, elements in zip(ours.shape, ours.strides, ours._strides, strict=True):
            assert elements == (0 if n == 1 else step // ours.itemsize)
    assert ours.flags.c_contiguous == ours.is_c_contiguous() == theirs.flags.c_contiguous
    assert ours.flags.f_contiguous == ours.is_f_contiguous() == theirs.flags.f_contiguous
