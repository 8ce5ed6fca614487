// Sorts lines of at most GI_TILE elements, one in a block, digit by digit in shared memory.
struct Params {
  const Stored* in;
  void* out;
  i64 lines, n;
};

extern "C" __global__ void __launch_bounds__(GI_THREADS, GI_BLOCKS) gi_sort_block_lines(const Params p) {
  __shared__ Shared s;
  const int n = (int)p.n, first = gi_first_place();
  const i64 start = (i64)blockIdx.x * p.n;
  Key keys[GI_ITEMS];
  u32 to[GI_ITEMS], places[GI_ITEMS];
#pragma unroll
  for (int i = 0; i < GI_ITEMS; ++i) {
    const int at = first + i * 32;
    keys[i] = at < n ? gi_key(p.in[start + at]) : GI_ONES;  // which stay behind the line
    places[i] = at;
  }
  for (int shift = 0; shift < 8 * (int)sizeof(Stored); shift += 8) {
    gi_rank(s, keys, shift, to, [](u32) {});
#pragma unroll
    for (int i = 0; i < GI_ITEMS; ++i) s.keys[to[i]] = keys[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < GI_ITEMS; ++i) keys[i] = s.keys[first + i * 32];
    __syncthreads();
#if GI_INDICES
#pragma unroll
    for (int i = 0; i < GI_ITEMS; ++i) s.places[to[i]] = places[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < GI_ITEMS; ++i) places[i] = s.places[first + i * 32];
    __syncthreads();
#endif
  }
#pragma unroll
  for (int i = 0; i < GI_ITEMS; ++i) {
    const int at = first + i * 32;
    if (at >= n) continue;
#if GI_INDICES
    ((i64*)p.out)[start + at] = places[i];
#else
    ((Stored*)p.out)[start + at] = gi_unkey(keys[i]);
#endif
  }
}
