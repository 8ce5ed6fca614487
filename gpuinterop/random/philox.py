"""The state of the bit generator: seeds, jumps, the place in the sequence. kernels/numbers.cuh computes the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import ArgumentTypeError, ShapeError, short_repr
from gpuinterop.errors.arguments import require_int

_NAME = "Philox4x32"
_BLOCKS, _KEYS = 1 << 128, 1 << 64
_JUMP = 1 << 64  # blocks


class Philox:
    """The generator Philox 4x32-10.

    It computes blocks of four 32-bit words, each from the block's number and a key. Every call of a
    `Generator` begins with a new block. Threads may share a generator: each call takes blocks of its own.

    Parameters
    ----------
    seed : an int, a sequence of ints, a ``numpy.random.SeedSequence``, or None for an unpredictable one.

    Examples
    --------
    >>> import gpuinterop
    >>> gpuinterop.random.Philox(5).state["counter"]
    0
    """

    __slots__ = ("_place", "seed_seq")

    def __init__(self, seed: Any = None) -> None:
        try:
            given = isinstance(seed, np.random.SeedSequence)
            self.seed_seq: Any = seed if given else np.random.SeedSequence(seed)
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(
                where="default_rng", expected="a seed: None, an int of 0 or more, or a sequence of them",
                got=short_repr(seed), fix="pass an int: gpuinterop.random.default_rng(0)",
            ) from error  # fmt: skip
        self._place = _core.PhiloxPlace(int(self.seed_seq.generate_state(1, np.uint64)[0]))

    def take(self, blocks: int) -> bytes:
        """Return the place before the next blocks, as kernels read it, and move behind them."""
        return self._place.take(blocks)

    @property
    def state(self) -> dict[str, Any]:
        """The place in the sequence: the number of the next block, and the key. An assignment moves there.

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
        low, high, key = self._place.numbers()
        return {"bit_generator": _NAME, "counter": low + high * _JUMP, "key": key}

    @state.setter
    def state(self, value: Any) -> None:
        try:
            block, key = (int(value[name].__index__()) for name in ("counter", "key"))
            known = value["bit_generator"] == _NAME and 0 <= block < _BLOCKS and 0 <= key < _KEYS
        except (AttributeError, TypeError, KeyError):
            known = False
        if not known:
            raise ArgumentTypeError(
                where="state", expected="the state of a generator of gpuinterop", got=short_repr(value),
                fix="pass what bit_generator.state returned",
            )  # fmt: skip
        self._place.move(block % _JUMP, block // _JUMP, key)

    def advance(self, delta: int) -> Philox:
        """Move by a number of blocks, of four 32-bit words each, and return the generator.

        Examples
        --------
        >>> import gpuinterop
        >>> gpuinterop.random.Philox(0).advance(10).state["counter"]
        10
        """
        blocks = require_int(delta, "delta", "advance")
        self._place.advance(blocks % _JUMP, blocks // _JUMP % _JUMP)
        return self

    def jumped(self, jumps: int = 1) -> Philox:
        """Return a generator that is ahead by `jumps` times 2^64 blocks.

        Examples
        --------
        >>> import gpuinterop
        >>> gpuinterop.random.Philox(0).jumped().state["counter"] == 2**64
        True
        """
        copy = object.__new__(type(self))
        copy.__setstate__(self.__getstate__())
        return copy.advance(jumps * _JUMP)

    def spawn(self, n_children: int) -> list[Philox]:
        """Return new generators whose sequences are independent of this one and of each other.

        Examples
        --------
        >>> import gpuinterop
        >>> len(gpuinterop.random.Philox(0).spawn(2))
        2
        """
        count = require_int(n_children, "n_children", "spawn")
        if count < 0:
            raise ShapeError(where="spawn", expected="0 children or more", got=short_repr(n_children),
                             fix="pass the number of generators")  # fmt: skip
        return [Philox(child) for child in self.seed_seq.spawn(count)]

    def __getstate__(self) -> Any:
        return self.seed_seq, self.state

    def __setstate__(self, state: Any) -> None:
        self._place = _core.PhiloxPlace(0)
        self.seed_seq, self.state = state
