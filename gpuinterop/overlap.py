"""Decide whether two strided arrays have a byte in common, exactly, in integers.

Array A touches the bytes ``a + sum(s_i * x_i) + u`` with ``0 <= x_i < n_i`` and ``0 <= u < itemsize``,
and B likewise. Flipping the sign of B's terms and of negative strides turns the question into: has

    sum(c_i * x_i) = rest,   0 <= x_i <= m_i,   c_i > 0

a solution? The core searches for one, as it does for the operands of its own kernels.
"""

from __future__ import annotations

from gpuinterop import _core
from gpuinterop.errors import BoundsError

Terms = list[tuple[int, int]]  # (coefficient > 0, largest multiple >= 1)


def byte_range(
    ptr: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, int]:
    """Return the address of the first byte and the one after the last; ``(0, 0)`` when empty. Strides in bytes."""
    if 0 in shape:
        return 0, 0
    low = high = ptr
    for n, s in zip(shape, strides, strict=True):
        reach = (n - 1) * s
        if reach < 0:
            low += reach
        else:
            high += reach
    return low, high + itemsize


def _terms(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Terms:
    terms = [(abs(s), n - 1) for n, s in zip(shape, strides, strict=True) if n > 1 and s]
    if itemsize > 1:
        terms.append((1, itemsize - 1))
    return terms


def share_bytes(
    a: tuple[int, tuple[int, ...], tuple[int, ...], int],
    b: tuple[int, tuple[int, ...], tuple[int, ...], int],
    budget: int = 1_000_000,
) -> bool:
    """Return whether two ``(ptr, shape, strides in bytes, itemsize)`` have a byte in common.

    Raises
    ------
    BoundsError
        More than `budget` steps would be needed to be certain.
    """
    a_low, a_high = byte_range(*a)
    b_low, b_high = byte_range(*b)
    if a_low >= b_high or b_low >= a_high or a_low == a_high or b_low == b_high:
        return False
    # Byte a_low + sum(terms of A) must equal byte b_high - 1 - sum(terms of B): all signs positive.
    rest = b_high - 1 - a_low
    terms = [(c, min(m, rest // c)) for c, m in _terms(*a[1:]) + _terms(*b[1:]) if c <= rest]
    found = None if rest >> 63 else _core._reaches(terms, rest, min(budget, (1 << 63) - 1))
    if found is None:
        raise BoundsError(
            where="shares_memory",
            expected=f"strides whose overlap is decided within {budget} steps",
            got=f"terms (stride, count) {terms}",
            fix="pass a larger budget, or call may_share_memory(a, b), which compares address ranges",
        )
    return bool(found)
