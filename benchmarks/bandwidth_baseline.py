"""The baseline of bench_bandwidth.py: for each case a kernel written by hand only for this case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gpuinterop as gi

# Two 16-byte loads in flight for each thread, 512 of them for each block.
_FLAT = """
#define EACH(...) \\
  long long i = (long long)blockIdx.x * 512 + threadIdx.x; \\
  for (int k = 0; k < 2; ++k, i += 256) if (i < n) __VA_ARGS__
__device__ float4 exp_of(float4 a) { return make_float4(expf(a.x), expf(a.y), expf(a.z), expf(a.w)); }
__device__ float4 sum_of(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
extern "C" __global__ void exp_flat(const float4* x, float4* z, long long n) {
  long long i = (long long)blockIdx.x * 512 + threadIdx.x;
  float4 a, b;
  bool first = i < n, second = i + 256 < n;
  if (first) a = x[i];
  if (second) b = x[i + 256];
  if (first) z[i] = exp_of(a);
  if (second) z[i + 256] = exp_of(b);
}
extern "C" __global__ void add_flat(const float4* x, const float4* y, float4* z, long long n) {
  long long i = (long long)blockIdx.x * 512 + threadIdx.x;
  float4 a, b, c, d;
  bool first = i < n, second = i + 256 < n;
  if (first) { a = x[i]; c = y[i]; }
  if (second) { b = x[i + 256]; d = y[i + 256]; }
  if (first) z[i] = sum_of(a, c);
  if (second) z[i + 256] = sum_of(b, d);
}
extern "C" __global__ void add_row(const float4* x, const float4* y, float4* z, long long n, int shift) {
  EACH(z[i] = sum_of(x[i], y[i & ((1 << shift) - 1)]);)
}
extern "C" __global__ void add_column(const float4* x, const float* y, float4* z, long long n, int shift) {
  EACH({ float c = y[i >> shift]; z[i] = sum_of(x[i], make_float4(c, c, c, c)); })
}
extern "C" __global__ void exp_back(const float4* x, float4* z, long long n) {
  EACH({ float4 a = exp_of(x[n - 1 - i]); z[i] = make_float4(a.w, a.z, a.y, a.x); })
}
extern "C" __global__ void exp_half(const float4* x, float4* z, long long n) {
  EACH({ float4 a = x[2 * i], b = x[2 * i + 1]; z[i] = exp_of(make_float4(a.x, a.z, b.x, b.z)); })
}
"""

# Tiles of 64 x 64 through shared memory, so that both sides are read and written in whole lines.
_TILED = """
template <bool ADD>
__device__ void turn(const float* x, const float* y, float* z, int m) {
  __shared__ float tile[64][65];
  const int column = blockIdx.x * 64, row = blockIdx.y * 64, t = threadIdx.x & 63, s = threadIdx.x >> 6;
  for (int j = s; j < 64; j += 4) tile[j][t] = y[(long long)(column + j) * m + row + t];
  __syncthreads();
  for (int j = s; j < 64; j += 4) {
    const long long i = (long long)(row + j) * m + column + t;
    z[i] = tile[t][j] + (ADD ? x[i] : 0.0f);
  }
}
extern "C" __global__ void add_turned(const float* x, const float* y, float* z, int m) {
  turn<true>(x, y, z, m);
}
extern "C" __global__ void copy_turned(const float* y, float* z, int m) { turn<false>(y, y, z, m); }
"""


def floors(x: Any, y: Any, out: Any, m: int) -> dict[str, Callable[[], Any]]:
    """Return the baseline's calls by the name of the case. x, y and out have m * m elements, m a power of two."""
    flat = {
        name: gi.RawKernel(_FLAT, name)
        for name in ("exp_flat", "add_flat", "add_row", "add_column", "exp_back", "exp_half")
    }
    n = m * m // 4
    count, half, line = np.int64(n), np.int64(n // 2), np.int32(max(m // 4, 1).bit_length() - 1)
    blocks = (-(-n // 512),)

    def call(name: str, *given: Any) -> Callable[[], Any]:
        return lambda: flat[name](blocks, (256,), *given)

    found = {
        "exp(x)": call("exp_flat", x, out, count),
        "x + y": call("add_flat", x, y, out, count),
        "X + row": call("add_row", x, y, out, count, line),
        "X + column": call("add_column", x, y, out, count, line),
        "exp(x[::-1])": call("exp_back", x, out, count),
        "exp(x[::2])": call("exp_half", x, out, half),
    }
    if m % 64 == 0:
        add, copy = gi.RawKernel(_TILED, "add_turned"), gi.RawKernel(_TILED, "copy_turned")
        side, grid = np.int32(m), (m // 64, m // 64)
        found["X + Y.T"] = lambda: add(grid, (256,), x, y, out, side)
        found["copy of X.T"] = lambda: copy(grid, (256,), x, out, side)
    return found
