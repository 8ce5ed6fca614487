"""Layouts by name, and Hypothesis strategies: the same strided view on both sides."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

import gpuinterop as gi

# An array equal to the first argument, as a view of what the second makes of a C-ordered array.
LAYOUTS = {
    "C": lambda a, to: to(a),
    "F": lambda a, to: to(a.T.copy()).T,
    "reversed": lambda a, to: to(np.flip(a).copy())[(slice(None, None, -1),) * a.ndim],
    "misaligned": lambda a, to: to(np.concatenate([a[..., :1], a], axis=-1))[..., 1:],
    "steps": lambda a, to: to(np.repeat(a, 2, axis=-1))[..., ::2],
}


def values(dtype, shape, seed: int = 0) -> np.ndarray:
    """Small integers, or normal numbers."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -6, 7, shape).astype(dtype)
    found = rng.normal(size=shape)
    if dtype.kind == "c":
        found = found + 1j * rng.normal(size=shape)
    return np.asarray(found).astype(dtype)


def views(host):
    """Views of a three-dimensional array: orders, steps, broadcasts, odd bases, a 0-d and an empty one."""
    yield host
    yield host[::-1, :, ::-2]
    yield host.transpose(2, 0, 1)
    yield np.broadcast_to(host[:, :1], host.shape)
    yield np.broadcast_to(host[0, 0], (5, *host.shape[1:]))
    yield host.ravel()[1:]
    yield host[0, 0, 0:1].reshape(())
    yield host[:0]
    yield host[:, :, :3].transpose(1, 0, 2)


@dataclass(frozen=True)
class Recipe:
    """A view of a larger array: permuted axes, steps, an offset, and axes of extent 1."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    steps: tuple[int, ...]
    skips: tuple[int, ...]
    repeated: tuple[bool, ...]

    def view(self, base):
        keys = []
        for axis in self.order:
            n, step, skip = self.extent(axis), self.steps[axis], self.skips[axis]
            if step > 0:
                keys.append(slice(skip, skip + (n - 1) * step + 1 if n else skip, step))
            else:
                top = skip + (n - 1) * -step
                stop = skip - 1 if skip else None
                keys.append(slice(top, stop, step) if n else slice(0, 0))
        back = tuple(int(i) for i in np.argsort(self.order))
        return base[(*keys, ...)].transpose(back)

    def extent(self, axis: int) -> int:
        return 1 if self.repeated[axis] else self.shape[axis]

    def base_shape(self) -> tuple[int, ...]:
        return tuple(
            self.skips[a] + max(self.extent(a) - 1, 0) * abs(self.steps[a]) + 1 + self.skips[a] % 2
            for a in self.order
        )


@st.composite
def recipes(draw, shape: tuple[int, ...], *, may_repeat: bool = True) -> Recipe:
    n = len(shape)
    plain = draw(st.booleans())
    order = tuple(range(n)) if plain else tuple(draw(st.permutations(range(n))))
    step = st.just(1) if plain else st.sampled_from([1, 1, 1, 2, -1, -2, 3])
    steps = tuple(draw(step) for _ in shape)
    skips = tuple(0 if plain else draw(st.integers(0, 4)) for _ in shape)
    repeated = tuple(may_repeat and draw(st.integers(0, 4)) == 0 for _ in shape)
    return Recipe(shape, order, steps, skips, repeated)


EXTENTS = st.sampled_from([1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 40, 64, 70])


@st.composite
def shapes(draw, largest: int = 30_000) -> tuple[int, ...]:
    ndim = draw(st.integers(0, 4))
    shape: list[int] = []
    for _ in range(ndim):
        extent = draw(EXTENTS)
        shape.append(extent if extent * int(np.prod(shape, initial=1)) <= largest else 2)
    if draw(st.integers(0, 30)) == 0 and shape:
        shape[draw(st.integers(0, ndim - 1))] = 0
    return tuple(shape)


def pair(recipe: Recipe, dtype, seed: int, device: str, cls=gi.GpuArray):
    """(host base, host view, base, view) with equal values."""
    random = np.random.default_rng(seed)
    host = random.integers(-50, 50, recipe.base_shape()).astype(dtype)
    base = cls(host, device=device)
    return host, recipe.view(host), base, recipe.view(base)
