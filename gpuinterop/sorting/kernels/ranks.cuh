// The places of the keys of a block in the order of one digit of 8 bits, by which equal digits keep their order. A warp
// has GI_ITEMS times 32 neighbouring keys, and each thread every 32nd of them. GI_THREADS is at least 256.
#define GI_TILE (GI_THREADS * GI_ITEMS)
#define GI_WARPS (GI_THREADS / 32)
#define GI_ALL 0xffffffffu

struct Ranks {
  u32 counts[GI_WARPS][256];  // of each digit in each warp, then the places of the next keys
  u32 lanes[GI_WARPS][256];   // the lanes whose keys have the digit
};

struct Shared {
  union {
    Ranks ranks;
    Key keys[GI_TILE];
    Place places[GI_TILE];
  };
  u32 starts[256];  // of each digit in the tile
  u32 sums[8];      // of 32 digits each
  Place offsets[256];
  u32 tile;
};

GI_FN int gi_first_place() { return threadIdx.x / 32 * 32 * GI_ITEMS + threadIdx.x % 32; }

// The sum of `value` over this lane and those before it in the warp.
GI_FN u32 gi_sum_in_warp(u32 value) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const u32 before = __shfl_up_sync(GI_ALL, value, distance);
    if (threadIdx.x % 32 >= distance) value += before;
  }
  return value;
}

// Sets `to` to the place of each key in the tile. Returns to thread t < 256 the number of keys with digit t, for which it
// calls publish(number) as early as possible.
template <class Publish>
GI_FN u32 gi_rank(Shared& s, const Key (&keys)[GI_ITEMS], int shift, u32 (&to)[GI_ITEMS], Publish publish) {
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  for (int i = t; i < (int)(sizeof(Ranks) / 4); i += GI_THREADS) ((u32*)&s.ranks)[i] = 0;
  __syncthreads();
  u32* const counts = s.ranks.counts[warp];
#pragma unroll
  for (int i = 0; i < GI_ITEMS; ++i) atomicAdd(&counts[gi_digit(keys[i], shift)], 1u);
  __syncthreads();
  u32 all = 0, up_to_here = 0;
  if (t < 256) {
#pragma unroll
    for (int w = 0; w < GI_WARPS; ++w) all += s.ranks.counts[w][t];
    publish(all);
    up_to_here = gi_sum_in_warp(all);
    if (lane == 31) s.sums[warp] = up_to_here;
  }
  const bool one_digit = __syncthreads_or(all == GI_TILE);  // such as the high ones of small integers
  if (t < 256) {
    u32 start = up_to_here - all;
    for (int w = 0; w < warp; ++w) start += s.sums[w];
    s.starts[t] = start;
#pragma unroll
    for (int w = 0; w < GI_WARPS && !one_digit; ++w) {
      const u32 count = s.ranks.counts[w][t];
      s.ranks.counts[w][t] = start;
      start += count;
    }
  }
  if (one_digit) {
#pragma unroll
    for (int i = 0; i < GI_ITEMS; ++i) to[i] = gi_first_place() + i * 32;
    return all;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < GI_ITEMS; ++i) {
    const u32 digit = gi_digit(keys[i], shift);
    u32* const lanes = &s.ranks.lanes[warp][digit];
    atomicOr(lanes, 1u << lane);
    __syncwarp();
    const u32 equal = *(volatile u32*)lanes;
    __syncwarp();
    const int leader = 31 - __clz(equal);
    u32 next = 0;
    if (lane == leader) {
      next = counts[digit];
      counts[digit] = next + __popc(equal);
      *lanes = 0;
    }
    next = __shfl_sync(GI_ALL, next, leader);
    to[i] = next + __popc(equal & ((1u << lane) - 1));
    __syncwarp();
  }
  __syncthreads();
  return all;
}
