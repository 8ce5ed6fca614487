"""The bit generator: the place in the sequence of random numbers, as numpy.random.Philox keeps it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np

from gpuinterop.errors import ArgumentTypeError, short_repr
from gpuinterop.errors.messages import not_an_int

_WORDS = 4  # of a block
_MASK = (1 << 64) - 1
_JUMP = 1 << 128  # blocks, as in NumPy


def _as_words(value: int, count: int) -> tuple[int, ...]:
    """Return a number as words of 64 bits, the lowest first."""
    return tuple(value >> 64 * i & _MASK for i in range(count))


def _as_number(words: Sequence[Any]) -> int:
    return sum(int(word) << 64 * i for i, word in enumerate(words))


class Philox:
    """The generator Philox 4x64-10, with the seeds, keys and counters of ``numpy.random.Philox``.

    It computes blocks of four 64-bit words, each from the block's number and a key. Every call of a
    `Generator` begins with a new block. Threads may share a generator: each call takes blocks of its own.

    Parameters
    ----------
    seed : an int, a sequence of ints, a ``numpy.random.SeedSequence``, or None for an unpredictable one.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> ours = gpuinterop.random.Philox(5)
    >>> bool((ours.state["state"]["key"] == numpy.random.Philox(5).state["state"]["key"]).all())
    True
    """

    __slots__ = ("_blocks", "_key", "_lock", "seed_seq")

    def __init__(self, seed: Any = None) -> None:
        try:
            given = isinstance(seed, np.random.SeedSequence)
            self.seed_seq: Any = seed if given else np.random.SeedSequence(seed)
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(
                where="random", expected="a seed: None, an int of 0 or more, or a sequence of them",
                got=short_repr(seed), fix="pass an int: gpuinterop.random.default_rng(0)",
            ) from error  # fmt: skip
        self._key = tuple(map(int, self.seed_seq.generate_state(2, np.uint64)))
        self._blocks = 0
        self._lock = Lock()

    def take(self, blocks: int) -> bytes:
        """Return the place before the next blocks, as kernels read it, and move behind them."""
        with self._lock:
            before = self._blocks
            self._blocks = before + blocks
        if before >> 64:
            return struct.pack("<6Q", *_as_words(before, 4), *self._key)
        return struct.pack("<6Q", before, 0, 0, 0, *self._key)

    @property
    def state(self) -> dict[str, Any]:
        """The place in the sequence, as a dict that ``numpy.random.Philox`` takes and gives as its state.

        Examples
        --------
        >>> import gpuinterop
        >>> rng = gpuinterop.random.default_rng(0, device="cpu")
        >>> before = rng.bit_generator.state
        >>> x = rng.random(3)
        >>> rng.bit_generator.state = before
        >>> bool((rng.random(3) == x).all())
        True
        """
        words = np.array(_as_words(self._blocks, 4), np.uint64)
        return {
            "bit_generator": "Philox",
            "state": {"counter": words, "key": np.array(self._key, np.uint64)},
            "buffer": np.zeros(_WORDS, np.uint64),
            "buffer_pos": _WORDS,
            "has_uint32": 0,
            "uinteger": 0,
        }

    @state.setter
    def state(self, value: Any) -> None:
        try:
            if value["bit_generator"] != "Philox":
                raise ValueError(value["bit_generator"])
            counter, key = value["state"]["counter"], value["state"]["key"]
            if len(counter) != _WORDS or len(key) != 2:
                raise ValueError
            blocks, own = _as_number(counter), tuple(int(word) & _MASK for word in key)
        except (TypeError, KeyError, ValueError) as error:
            raise ArgumentTypeError(
                where="state", expected="the state of a Philox generator", got=short_repr(value),
                fix="pass what another generator's bit_generator.state returned",
            ) from error  # fmt: skip
        with self._lock:
            self._blocks, self._key = blocks, own

    def advance(self, delta: int) -> Philox:
        """Move by a number of blocks, of four 64-bit words each, and return the generator.

        Examples
        --------
        >>> import gpuinterop
        >>> bits = gpuinterop.random.Philox(0).advance(10)
        >>> int(bits.state["state"]["counter"][0])
        10
        """
        if isinstance(delta, bool) or not hasattr(delta, "__index__"):
            raise not_an_int("advance", "delta", delta)
        with self._lock:
            self._blocks = (self._blocks + delta.__index__()) % (1 << 256)
        return self

    def jumped(self, jumps: int = 1) -> Philox:
        """Return a generator that is ahead by `jumps` times 2^128 blocks.

        Examples
        --------
        >>> import gpuinterop
        >>> gpuinterop.random.Philox(0).jumped().state["state"]["counter"].tolist()
        [0, 0, 1, 0]
        """
        copy = self._copied()
        return copy.advance(jumps * _JUMP)

    def spawn(self, n_children: int) -> list[Philox]:
        """Return new generators whose sequences are independent of this one and of each other.

        Examples
        --------
        >>> import gpuinterop
        >>> len(gpuinterop.random.Philox(0).spawn(2))
        2
        """
        return [Philox(child) for child in self.seed_seq.spawn(n_children)]

    def _copied(self) -> Philox:
        copy = object.__new__(type(self))
        copy.__setstate__(self.__getstate__())
        return copy

    def __getstate__(self) -> Any:
        with self._lock:
            return self.seed_seq, self._blocks, self._key

    def __setstate__(self, state: Any) -> None:
        self.seed_seq, self._blocks, self._key = state
        self._lock = Lock()
