// Writes p.n ranks to their places, which are a permutation: p.out[places[i]] = ranks[i]. Sweeps in between put places that have
// all but their low bits in common side by side, because scattered writes to far places are slow.
#define GI_TILE 4096  // elements of a block; at most as many places have the same high bits

struct Params {
  u32 *words, *starts;  // of the sweeps, see sweeps.cuh: `starts` by digit, then the turn of each sweep
  const u32 *places, *ranks;
  i64* out;
  i64 n;
  int shift, sweeps;  // of the first sweep; each has 8 bits more
};

extern "C" __global__ void __launch_bounds__(256) gi_inverse_clear(const Params p) {
  p.words[(i64)blockIdx.x * 256 + threadIdx.x] = 0;
  if (blockIdx.x > 0) return;
  const i64 digit = threadIdx.x;
  for (int sweep = 0; sweep < p.sweeps; ++sweep) {
    const int shift = p.shift + 8 * sweep;
    const i64 rest = p.n & (((i64)256 << shift) - 1), before = digit << shift;
    p.starts[shift / 8 * 256 + digit] = (u32)(digit * (p.n >> (shift + 8) << shift) + (before < rest ? before : rest));
  }
  if (digit < p.sweeps) p.starts[1024 + digit] = 0;
}

extern "C" __global__ void __launch_bounds__(256) gi_inverse_write(const Params p) {
  __shared__ u32 ranks[GI_TILE];
  const i64 start = (i64)blockIdx.x * GI_TILE;
#pragma unroll
  for (int k = 0; k < GI_TILE; k += 256) {
    const i64 i = start + k + threadIdx.x;
    if (i < p.n) ranks[p.places[i] - start] = p.ranks[i];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < GI_TILE; k += 256) {
    const i64 i = start + k + threadIdx.x;
    if (i < p.n) p.out[i] = ranks[k + threadIdx.x];
  }
}
