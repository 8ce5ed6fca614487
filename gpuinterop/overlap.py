"""Decide whether two strided arrays have a byte in common, exactly, in integers.

Array A touches the bytes ``a + sum(s_i * x_i) + u`` with ``0 <= x_i < n_i`` and ``0 <= u < itemsize``,
and B likewise. Flipping the sign of B's terms and of negative strides turns the question into: has

    sum(c_i * x_i) = rest,   0 <= x_i <= m_i,   c_i > 0

a solution? That is a bounded linear Diophantine equation with few terms. It is solved by descending
over the coefficients, largest first, with two exact cuts at every level: what the remaining terms can
still reach, and the greatest common divisor of their coefficients.
"""

from __future__ import annotations

import math

from gpuinterop.errors import BoundsError

__all__ = ["byte_range", "share_bytes"]

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
    terms = _merged(_terms(*a[1:]) + _terms(*b[1:]))
    return _solvable(terms, b_high - 1 - a_low, budget)


def _merged(terms: Terms) -> Terms:
    """Merge equal coefficients, and those that fill each other's gaps; the largest comes first."""
    largest: dict[int, int] = {}
    for c, m in terms:
        largest[c] = largest.get(c, 0) + m
    merged: Terms = []
    for c in sorted(largest):
        m = largest[c]
        # c2 = k * c with k <= m + 1: every multiple of c up to the common reach is reached, so the
        # two terms together are one of coefficient c. This is the usual nested layout.
        if merged:
            c0, m0 = merged[-1]
            if c % c0 == 0 and c // c0 <= m0 + 1:
                merged[-1] = (c0, m0 + m * (c // c0))
                continue
        merged.append((c, m))
    merged.reverse()
    return merged


def _solvable(terms: Terms, rest: int, budget: int) -> bool:
    n = len(terms)
    reach = [0] * (n + 1)  # largest sum of terms[i:]
    divisor = [0] * (n + 1)
    for i in range(n - 1, -1, -1):
        c, m = terms[i]
        reach[i] = reach[i + 1] + c * m
        divisor[i] = math.gcd(divisor[i + 1], c)
    steps = 0
    stack = [(0, rest)]
    while stack:
        i, rest = stack.pop()
        if rest == 0:
            return True
        if rest < 0 or rest > reach[i] or rest % divisor[i]:
            continue
        c, m = terms[i]
        if i == n - 1:  # divisible by c and within reach: solved
            return True
        low = max(0, -((reach[i + 1] - rest) // c))  # ceil((rest - reach) / c)
        high = min(m, rest // c)
        # Only multiples that leave a rest divisible by the remaining divisor can work.
        g = divisor[i + 1]
        d = math.gcd(c, g)
        if rest % d:
            continue
        period = g // d
        start = (rest // d) * pow(c // d, -1, period) % period if period > 1 else 0
        first = start + -(-(low - start) // period) * period
        count = (high - first) // period + 1 if first <= high else 0
        if count <= 0:
            continue
        steps += count
        if steps > budget:
            raise BoundsError(
                where="shares_memory",
                expected=f"strides whose overlap is decided within {budget} steps",
                got=f"terms (stride, count) {terms}",
                fix="pass a larger budget, or call may_share_memory(a, b), which compares address ranges",
            )
        stack.extend((i + 1, rest - c * x) for x in range(first, high + 1, period))
    return False
