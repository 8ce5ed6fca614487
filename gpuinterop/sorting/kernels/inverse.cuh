// Writes p.n ranks to their places, which are a permutation: p.out[places[i]] = ranks[i]. A sweep in between puts places with equal
// highest digits side by side, because scattered writes to far places are slow.
struct Params {
  u32 *words, *starts, *turn;  // of that sweep; see sweeps.cuh
  const u32 *places, *ranks;
  i64* out;
  i64 n, shift;
};

extern "C" __global__ void __launch_bounds__(256) gi_inverse_clear(const Params p) {
  p.words[(i64)blockIdx.x * 256 + threadIdx.x] = 0;
  if (blockIdx.x > 0) return;
  p.starts[threadIdx.x] = threadIdx.x << p.shift;
  if (threadIdx.x == 0) *p.turn = 0;
}

extern "C" __global__ void __launch_bounds__(256) gi_inverse_write(const Params p) {
  const i64 first = (i64)blockIdx.x * 2048 + threadIdx.x;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const i64 i = first + k * 256;
    if (i < p.n) p.out[p.places[i]] = p.ranks[i];
  }
}
