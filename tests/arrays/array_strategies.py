"""Random arrays, keys and shapes for the property tests; NumPy is the oracle throughout."""

import numpy as np
from hypothesis import strategies as st

shapes = st.lists(st.integers(0, 4), min_size=0, max_size=5).map(tuple)


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
    """Apply the same random chain of views to a NumPy array and a gpuinterop array."""
    host, array = pair
    for _ in range(draw(st.integers(0, steps))):
        kind = draw(st.integers(0, 4))
        if kind <= 1:
            key = draw(keys(host.shape))
            # With an Ellipsis NumPy gives a 0-d view where it would give a scalar, a copy.
            parts = key if isinstance(key, tuple) else (key,)
            whole = parts if Ellipsis in parts else (*parts, Ellipsis)
            host, array = host[whole], array[key]
        elif kind == 2:
            axes = draw(st.permutations(range(host.ndim)))
            host, array = host.transpose(axes), array.transpose(axes)
        elif kind == 3 and host.ndim:
            a, b = (draw(st.integers(-host.ndim, host.ndim - 1)) for _ in range(2))
            host, array = host.swapaxes(a, b), array.swapaxes(a, b)
        elif kind == 4 and host.ndim < 6:
            at = draw(st.integers(0, host.ndim))
            host, array = np.expand_dims(host, at), array.expand_dims(at)
    return host, array


def assert_same(array, host: np.ndarray) -> None:
    """Values, shape and, where they have a meaning, strides."""
    for name in ("shape", "ndim", "size", "nbytes", "itemsize", "dtype"):
        assert getattr(array, name) == getattr(host, name), name
    assert array.mem_size == array.size
    assert array.gpudata == array._dev_data == array.ptr
    assert bool(array.ptr) == bool(array.size)
    np.testing.assert_array_equal(array.get(), host)
    if host.size:
        for n, stride, host_stride in zip(host.shape, array.strides, host.strides, strict=True):
            assert n == 1 or stride == host_stride
        for n, step, elements in zip(array.shape, array.strides, array._strides, strict=True):
            assert elements == (0 if n == 1 else step // array.itemsize)
    assert array.flags.c_contiguous == array.is_c_contiguous() == host.flags.c_contiguous
    assert array.flags.f_contiguous == array.is_f_contiguous() == host.flags.f_contiguous
