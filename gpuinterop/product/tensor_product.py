"""Products of float32 on Hopper's tensor cores by three products of TF32: when they are faster, and their kernels.

The core calls this once for each shape and layout, fills in the addresses and launches it
(native/product/tensor_product.cpp).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gpuinterop import _core
from gpuinterop.jit import kernel_text
from gpuinterop.jit.compiler import loaded_kernels, multiprocessors
from gpuinterop.jit.nvrtc import Target
from gpuinterop.jit.texts import program

# wgmma and setmaxnreg are in this architecture alone, without a promise for later ones.
HOPPER = Target(90, True, "a")
_HEIGHT, _STEP = 128, 32  # of a tile; along the inner dimension
_RING_BYTES = 200 * 1024  # of shared memory, of which a multiprocessor of Hopper has 227 KiB
_ALIGNMENT = 1024  # of swizzled panels

# Time of a tile by its width, in relation to the widest.
_WIDTHS = {128: 1.0, 96: 0.8, 64: 0.6}
_OVERLAPS = True  # whether the product starts while the kernels before it end

# The rule that chooses: estimates of both times on an H200, in microseconds, fitted to 600 shapes that
# benchmarks/bench_tensor_products.py --grid measured. None of those that it chooses was slower than cuBLAS.
LEAST_WORK = 4.5e8  # operations; smaller products differ too much from the estimates
# The bias of positive data is 1.2e-7. With 64 elements it is 1.55 times the median error of cuBLAS, with fewer more.
LEAST_INNER = 96
# Of three products: of all kernels, of a tile, of a step of a tile.
_START, _TILE, _TILE_STEP = 10.0, 4.0, 0.75
_BYTES = 3e6  # that the kernels before the product move in a microsecond
_OPERATIONS = 47.5e6  # of cuBLAS in a microsecond, if its tiles occupy all multiprocessors twice
# The edge of a tile of cuBLAS, and the elements of the inner dimension from which cuBLAS divides it.
_CUBLAS_TILE, _CUBLAS_PART = 64, 640


class TensorProduct(NamedTuple):
    """Kernels and geometry of a product.

    Attributes
    ----------
    exchange : whether the first matrix takes the place of b in the kernel, and the second that of a.
    width : of a tile.
    shared_bytes : dynamic shared memory of a block.
    blocks : at most, one for each multiprocessor.
    overlaps : whether the product starts while the kernels before it end.
    """

    multiply: Any
    split: Any
    copy: Any
    exchange: bool
    width: int
    shared_bytes: int
    blocks: int
    overlaps: bool


def is_faster(m: int, n: int, k: int, batch: int, moved: int, waves: float, blocks: int) -> bool:
    """Return whether the product is faster than cuBLAS's.

    `moved` are the bytes that the kernels before it read and write, `waves` is the time of all tiles, in widest ones.
    """
    work = 2 * m * n * k * batch
    three = _START + moved / _BYTES + waves * (_TILE + -(-k // _STEP) * _TILE_STEP)
    tiles = -(-m // _CUBLAS_TILE) * -(-n // _CUBLAS_TILE) * batch
    occupied = tiles / (2 * blocks) * max(1, k / _CUBLAS_PART)
    return work >= LEAST_WORK and k >= LEAST_INNER and work / _OPERATIONS / min(1, occupied) > three


def _stages(width: int) -> tuple[int, int]:
    """Return the number of stages of the ring, and the bytes of each: a panel of a, two of b."""
    stage = 4 * _STEP * (_HEIGHT + 2 * width)
    return _RING_BYTES // stage, stage


def _width(tall: int, n: int, batch: int, blocks: int) -> tuple[float, int]:
    """Return the time of all tiles, in tiles of the widest kind, and the width of tiles for which it is least."""
    times = {w: -(-tall * -(-n // w) * batch // blocks) * each for w, each in _WIDTHS.items()}
    width = min(times, key=times.__getitem__)
    return times[width], width


def tensor_product(
    device: int, m: int, n: int, k: int, batch: int, inner: tuple[bool, bool], aligned: tuple[bool, bool],
    repeats: tuple[bool, bool],
) -> TensorProduct | None:  # fmt: skip
    """Return the launch of (m, k) @ (k, n), or None if cuBLAS computes it.

    Parameters
    ----------
    inner : for each operand, whether neighbours in memory are neighbours along the inner dimension.
    aligned : whether its lines begin at multiples of 16 bytes.
    repeats : whether all products of the batch have the same matrix.
    """
    if _core._compute_capability(device) != HOPPER.arch:
        return None
    # Bytes that the kernels before the product read and write: the planes of b, and a copy of a.
    sizes = [
        lines * k * (1 if once else batch) for lines, once in zip((m, n), repeats, strict=True)
    ]
    costs = [12 * sizes[1 - a] + (0 if aligned[a] else 8 * sizes[a]) for a in (0, 1)]
    exchange = costs[1] <= costs[0]
    tall, wide = (n, m) if exchange else (m, n)
    blocks = multiprocessors(device)
    waves, width = _width(-(-tall // _HEIGHT), wide, batch, blocks)
    if not is_faster(tall, wide, k, batch, costs[exchange], waves, blocks):
        return None
    stages, stage_bytes = _stages(width)
    multiply = loaded_kernels(
        device, text(width, inner[exchange]), ["gi_tensor_product"], HOPPER
    )[0]  # fmt: skip
    split, copy = loaded_kernels(device, before_text(), ["gi_tensor_split", "gi_tensor_copy"])
    shared_bytes = stages * stage_bytes + _ALIGNMENT
    return TensorProduct(multiply, split, copy, exchange, width, shared_bytes, blocks, _OVERLAPS)


def _multiply_text(width: int) -> str:
    """Return gi_multiply: 64 x 8 of a in registers times 8 x width of b in shared memory, added unless `keep` is 0."""
    n = width // 2
    sums = ", ".join(f"%{i}" for i in range(n))
    operands = ", ".join(f"%{n + i}" for i in range(4))
    written = ", ".join(f'"+f"(d[{i}])' for i in range(n))
    read = ", ".join(f'"r"(a[{i}])' for i in range(4))
    return f"""GI_FN void gi_multiply(float (&d)[{n}], const u32* a, u64 b, int keep) {{
  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{n + 5}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{width}k8.f32.tf32.tf32 "
      "{{{sums}}}, {{{operands}}}, %{n + 4}, p, 1, 1;\\n}}" : {written} : {read}, "l"(b), "r"(keep));
}}"""


def text(width: int, inner: bool) -> str:
    """Return the program that multiplies with tiles of this width."""
    values = {"WIDTH": width, "A_INNER": int(inner), "STAGES": _stages(width)[0]}
    files = map(kernel_text, ("product/tf32.cuh", "product/tensor_product.cuh"))
    return program(values, _multiply_text(width), *files)


def before_text() -> str:
    """Return the program of the kernels that run before the product."""
    return program({}, *map(kernel_text, ("product/tf32.cuh", "product/tensor_product_split.cuh")))
