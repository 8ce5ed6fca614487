"""Where the installed torch keeps three facts of a tensor, found by comparing test tensors word by word.

The core reads the facts before it shares a tensor's memory, because torch's DLPack table ignores them. They are
at fixed offsets in the C++ tensor, which differ between versions of torch.
"""

from __future__ import annotations

import sys
from typing import Any

from gpuinterop import _core

_PROBES = 6
_OBJECT_WORDS = 6


def find_places() -> tuple[int, ...] | None:
    """Return the fields of `Places` in native/exchange/torch_state.cpp, or None if they are not beyond doubt."""
    torch = sys.modules["torch"]
    distances: set[int] = set()
    flags: set[tuple[int, int]] = set()
    grads: set[int] = set()

    def read(tensor: Any) -> tuple[int, ...]:
        # A mode that is active makes others, such as fake tensors.
        if type(tensor) is not torch.Tensor:
            raise TypeError
        distance, _, *words = _core._tensor_words(tensor)
        distances.add(distance)
        return tuple(words)

    for i in range(_PROBES):
        size = (i + 1,) if i % 2 else (i, 3)
        dtype = torch.complex128 if i % 3 == 1 else torch.complex64
        tensor = torch.zeros(size, device="cpu", dtype=dtype)
        plain = read(tensor)
        pending = []
        for turned in (torch._neg_view, torch.conj):
            once = turned(tensor)
            pending.append(_bits(plain, read(once), read(turned(once))))
        # Two bits of one word: other words, such as the reference count, may also change twice alike.
        both = {
            (k, a | b) for k, (a, b) in enumerate(zip(*pending, strict=True)) if a and b and a != b
        }
        tracked = read(tensor.requires_grad_())
        grad = {
            k for k, a in enumerate(plain) if not a and tracked[k] > 4096 and tracked[k] % 8 == 0
        }
        flags, grads = (flags & both, grads & grad) if i else (both, grad)
    if len(flags) != 1 or len(grads) != 1 or len(distances) != 1:
        return None
    ((word, bits),) = flags
    return (*distances, word, *grads, bits, *_find_dense(torch, word))


def _bits(without: tuple[int, ...], with_it: tuple[int, ...], after: tuple[int, ...]) -> list[int]:
    """Return for each word the bit that a state of the tensor sets and clears again, else 0."""
    changed = [a ^ b for a, b in zip(without, with_it, strict=True)]
    return [
        c if not c & (c - 1) and with_it[k] & c and after[k] == without[k] else 0
        for k, c in enumerate(changed)
    ]


def _find_dense(torch: Any, word: int) -> tuple[int, int, int]:
    """Return the word of the Python object with the C++ tensor's address, and bits of dense and of meta tensors.

    They save time only: torch takes milliseconds to refuse a tensor without dense memory, because its exception
    looks up the names of the calling functions.
    """
    try:
        plain = torch.zeros((1, 1), device="cpu")
        _, address, *words = _core._tensor_words(plain)
        place = _core._read_words(id(plain), _OBJECT_WORDS).index(address, 1)

        def flags_of(tensor: Any) -> int:
            (start,) = _core._read_words(id(tensor) + 8 * place, 1)
            return int(_core._read_words(start + 8 * word, 1)[0])

        sparse = flags_of(torch.zeros((1, 1), device="cpu", layout=torch.sparse_coo))
        meta = flags_of(torch.zeros((1, 1), device="meta"))
    except Exception:  # another layout of the object, or a torch without these tensors
        return 0, 0, 0
    return place, words[word] & ~sparse, meta & ~words[word]
