"""Values of tests, and a check that several of them make."""

import numpy as np

import gpuinterop.pytensor as backend


def values(seed, *shape):
    """Float32 numbers of the normal distribution."""
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def is_replayed(function):
    """Whether the last call of a function replayed all that it can do on a GPU."""
    return all(part.replayed for part in backend.replays(function))
