"""Keys with index arrays and masks, as hypothesis strategies, and the forms in which their arrays are given."""

import numpy as np
from hypothesis import strategies as st

import gpuinterop as gi

INDEX_DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FORMS = ("numpy", "list", "gpuinterop", "strided", "host")

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@st.composite
def index_arrays(draw, extent: int, block: tuple[int, ...]) -> np.ndarray:
    """Indices in range, of a shape that broadcasts to `block`."""
    keep = draw(st.integers(0, len(block)))
    shape = tuple(1 if draw(st.booleans()) and draw(st.booleans()) else n for n in block[keep:])
    dtype = np.dtype(draw(st.sampled_from(INDEX_DTYPES)))
    low = -extent if dtype.kind == "i" else 0
    values = draw(
        st.lists(
            st.integers(low, extent - 1), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))
        )
    )
    return np.array(values, dtype).reshape(shape)


@st.composite
def masks(draw, shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape))
    return np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool).reshape(
        shape
    )


@st.composite
def slices(draw, extent: int) -> slice:
    parts = st.one_of(st.none(), st.integers(-extent - 1, extent + 1))
    return slice(draw(parts), draw(parts), draw(st.sampled_from([None, 1, 2, -1, -2])))


@st.composite
def keys(draw, shape: tuple[int, ...]) -> tuple:
    """A key that NumPy accepts for an array of this shape, with an index array or a mask in it."""
    block = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    key: list = []
    axis = 0
    masked = False
    ellipsis = False
    while axis < len(shape):
        kind = draw(
            st.sampled_from(
                ["array", "array", "int", "slice", "mask", "none", "flag", "ellipsis", "end"]
            )
        )
        if kind == "array":
            key.append(draw(index_arrays(shape[axis], block)))
            axis += 1
        elif kind == "int":
            key.append(draw(st.integers(-shape[axis], shape[axis] - 1)))
            axis += 1
        elif kind == "slice":
            key.append(draw(slices(shape[axis])))
            axis += 1
        elif kind == "mask" and not masked:
            axes = draw(st.integers(1, len(shape) - axis))
            key.append(draw(masks(shape[axis : axis + axes])))
            axis += axes
            masked = True
        elif kind == "none" and len(key) < 5:
            key.append(None)
        elif kind == "flag" and len(key) < 5:
            key.append(draw(st.booleans()))
        elif kind == "ellipsis" and not ellipsis:
            key.append(Ellipsis)
            ellipsis = True
        elif kind == "end":
            break
    return tuple(key)


def is_valid(array: np.ndarray, key: tuple) -> bool:
    try:
        array[key]
    except IndexError:  # index arrays that do not broadcast to a mask's
        return False
    return True


def given_as(key: tuple, form: str, device) -> tuple:
    """The key with its arrays in another form."""
    return tuple(
        _form(part, form, device) if isinstance(part, np.ndarray) else part for part in key
    )


def _form(part: np.ndarray, form: str, device):
    if form == "list" and part.size:
        return part.tolist()
    if form == "gpuinterop":
        return gi.asarray(part, device=device)
    if form == "strided" and part.ndim:
        twice = np.repeat(part, 2, axis=-1)
        return gi.asarray(twice, device=device)[..., ::2]
    if form == "host":
        return gi.asarray(part, device="cpu")
    return part
