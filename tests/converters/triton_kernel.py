"""A Triton kernel. Triton reads its source, so it needs a file."""

import triton
import triton.language as tl


@triton.jit
def multiply(dest, a, b, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(dest + i, tl.load(a + i, mask=inside) * tl.load(b + i, mask=inside), mask=inside)
