// The distinct ones of p.n sorted elements; tiles.cuh precedes. A head is an element that differs from the one before it.
// GI_ORDER: 0 no order is known; 1 p.order has the places of the elements in p.x, from where they are read; 2 the same, but
// p.sorted has the elements too, except that all NaN are equal there.
#define GI_EACH 16
#define GI_WARPS (GI_THREADS / 32)
#define GI_TILE (GI_EACH * GI_THREADS)

struct Params {
  const Stored *x, *sorted;
  const Order* order;
  i64* offsets;  // tiles + 1: of heads
  i64* lasts;    // of each tile: the place of its last head
  unsigned* finished;
  Stored* values;
  i64 *indices, *inverse, *counts;  // null for those that the call does not return
  u32* ranks;  // in place of `inverse`, in the order of the sorted elements
  i64 n, tiles;
};

GI_FN Stored gi_at(const Params& p, i64 i) { return GI_ORDER == 1 ? p.x[p.order[i]] : p.sorted[i]; }

GI_FN bool gi_is_head(const Params& p, i64 i) {
  if (i >= p.n) return false;
  if (i == 0) return true;
  const auto a = gi_read(gi_at(p, i)), b = gi_read(gi_at(p, i - 1));
  return a != b && !(GI_EQUAL_NAN && a != a && b != b);
}

// A warp has GI_EACH times 32 neighbouring elements. Sets `heads` to the bits of those that are heads, and returns their number.
GI_FN u32 gi_heads(const Params& p, u32 (&heads)[GI_EACH]) {
  const i64 start = (i64)blockIdx.x * GI_TILE + threadIdx.x / 32 * 32 * GI_EACH + threadIdx.x % 32;
  u32 count = 0;
#pragma unroll
  for (int k = 0; k < GI_EACH; ++k) {
    heads[k] = __ballot_sync(0xffffffffu, gi_is_head(p, start + k * 32));
    count += __popc(heads[k]);
  }
  return count;
}

extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_unique_count(const Params p) {
  __shared__ u32 counts[GI_WARPS];
  __shared__ int lasts[GI_WARPS];  // -1 without a head
  const int warp = threadIdx.x / 32;
  u32 heads[GI_EACH];
  const u32 count = gi_heads(p, heads);
  int last = -1;
#pragma unroll
  for (int k = 0; k < GI_EACH; ++k)
    if (heads[k]) last = (warp * GI_EACH + k) * 32 + 31 - __clz(heads[k]);
  if (threadIdx.x % 32 == 0) {
    counts[warp] = count;
    lasts[warp] = last;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    u32 all = 0;
    for (int w = 0; w < GI_WARPS; ++w) {
      all += counts[w];
      if (lasts[w] >= 0) last = lasts[w];
    }
    p.offsets[blockIdx.x] = all;
    p.lasts[blockIdx.x] = (i64)blockIdx.x * GI_TILE + last;
  }
  gi_scan_in_last_block(p.offsets, p.tiles, p.finished);
}

extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_unique_write(const Params p) {
  __shared__ u32 counts[GI_WARPS];
  __shared__ u16 places[GI_TILE];  // of the heads in the tile
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const i64 base = p.offsets[blockIdx.x], start = (i64)blockIdx.x * GI_TILE;
  u32 heads[GI_EACH];
  const u32 count = gi_heads(p, heads);
  if (lane == 0) counts[warp] = count;
  __syncthreads();
  u32 rank = 0, all = 0;
  for (int w = 0; w < GI_WARPS; ++w) {
    if (w < warp) rank += counts[w];
    all += counts[w];
  }
#pragma unroll
  for (int k = 0; k < GI_EACH; ++k) {
    const int place = (warp * GI_EACH + k) * 32 + lane;
    const u32 up_to_here = rank + __popc(heads[k] & (0xffffffffu >> (31 - lane)));
    if (heads[k] >> lane & 1) places[up_to_here - 1] = (u16)place;
#if GI_ORDER
    if (start + place < p.n) {
      if (p.inverse) p.inverse[p.order[start + place]] = base + up_to_here - 1;
      if (p.ranks) p.ranks[start + place] = (u32)(base + up_to_here - 1);
    }
#endif
    rank += __popc(heads[k]);
  }
  __syncthreads();
  // The place of the last head before the tile.
  auto before = [&] { return p.lasts[gi_last_up_to(p.offsets, p.tiles, base - 1)]; };
  for (u32 k = threadIdx.x; k < all; k += GI_THREADS) {
    const i64 i = start + places[k];
    const Stored value = gi_at(p, i);
#if GI_ORDER
    const bool is_nan = gi_read(value) != gi_read(value);
    p.values[base + k] = is_nan ? p.x[p.order[i]] : value;
    if (p.indices) p.indices[base + k] = p.order[i];
#else
    p.values[base + k] = value;
#endif
    if (p.counts && base + k) p.counts[base + k - 1] = i - (k ? start + places[k - 1] : before());
  }
  if (p.counts && threadIdx.x == 0 && blockIdx.x == gridDim.x - 1)
    p.counts[base + all - 1] = p.n - (all ? start + places[all - 1] : before());
}
