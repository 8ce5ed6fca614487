"""Theano's random streams over PyTensor's: the host draws the numbers, and they differ from Theano's."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
import pytensor.tensor.random as pr
from pytensor.configdefaults import config
from pytensor.tensor.random.utils import RandomStream


class RandomStreams(RandomStream):
    """Symbolic random arrays, with the arguments of Theano: the size comes first, and `floatX` is the dtype."""

    def __init__(self, seed: int | None = None, **_: Any) -> None:
        super().__init__(seed)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"RandomStreams has no {name} in gpuinterop; use pytensor.tensor.random.{name}"
        )

    def uniform(self, size: Any = None, low: Any = 0.0, high: Any = 1.0, ndim: Any = None, dtype: Any = None,
                nstreams: Any = None) -> Any:  # fmt: skip
        """Return numbers of [low, high)."""
        return self._draw(pr.uniform, (low, high), size, dtype)

    def normal(self, size: Any = None, avg: Any = 0.0, std: Any = 1.0, ndim: Any = None, dtype: Any = None,
               nstreams: Any = None) -> Any:  # fmt: skip
        """Return numbers of the normal distribution."""
        return self._draw(pr.normal, (avg, std), size, dtype)

    def binomial(self, size: Any = None, n: Any = 1, p: Any = 0.5, ndim: Any = None, dtype: Any = "int64",
                 nstreams: Any = None) -> Any:  # fmt: skip
        """Return the number of successes in n trials."""
        return self._draw(pr.binomial, (n, p), size, dtype)

    def multinomial(self, size: Any = None, n: Any = 1, pvals: Any = (0.5, 0.5), ndim: Any = None, dtype: Any = "int64",
                    nstreams: Any = None) -> Any:  # fmt: skip
        """Return how often each outcome occurs in n trials; pvals has a row of probabilities for each result."""
        p = pt.cast(
            pvals, "float64"
        )  # NumPy refuses a row whose sum exceeds 1, which rounding to float32 causes
        return self._draw(pr.multinomial, (n, p / p.sum(axis=-1, keepdims=True)), size, dtype)

    def random_integers(self, size: Any = None, low: Any = 0, high: Any = 1, ndim: Any = None,
                        dtype: Any = "int64") -> Any:  # fmt: skip
        """Return integers from low to high."""
        return self._draw(pr.integers, (low, high + 1), size, dtype)

    def permutation(
        self, size: Any = (), n: Any = 1, ndim: Any = None, dtype: Any = "int64"
    ) -> Any:
        """Return permutations of the integers below n."""
        return pt.argsort(self.gen(pr.uniform, size=(*size, n)), axis=-1).astype(dtype)

    def choice(self, size: Any = None, a: Any = 2, replace: bool = True, p: Any = None, ndim: Any = None,
               dtype: Any = "int64", nstreams: Any = None) -> Any:  # fmt: skip
        """Return elements of a vector, or of the integers below a."""
        a = pt.as_tensor_variable(a)
        n = a if a.ndim == 0 else a.shape[0]
        drawn = self.gen(pr.choice, n, size=size, replace=replace, p=p)
        return drawn.astype(dtype) if a.ndim == 0 else a[drawn]

    def _draw(self, distribution: Any, parameters: tuple[Any, ...], size: Any, dtype: Any) -> Any:
        return self.gen(distribution, *parameters, size=size).astype(dtype or config.floatX)
