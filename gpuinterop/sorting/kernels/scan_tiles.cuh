// Scans lines that are contiguous, in tiles of GI_CHUNKS chunks of GI_THREADS vectors. If a line has several tiles, gi_scan_totals
// joins each tile and gi_scan_running_totals these totals before gi_scan_tiles computes the results.
#define GI_WARPS (GI_THREADS / 32)
#define GI_PARTS (GI_CHUNKS * GI_WARPS)  // of a tile: those of a chunk in a warp
#define GI_EACH ((GI_PARTS + 31) / 32)
#define GI_TILE (GI_THREADS * GI_CHUNKS * GI_V)

struct Params {
  const In* in;
  Out* out;
  Acc* totals;
  i64 lines, n, tiles;  // of a line
};

template <class T>
struct alignas(sizeof(T) * GI_V) Pack {
  T v[GI_V];
};

// Streams a vector past the cache, which keeps the elements that gi_scan_totals has read.
GI_FN void gi_store(Out* at, const Pack<Out>& pack) {
  if constexpr (sizeof(pack) == 16)
    __stcs((int4*)at, *(const int4*)&pack);
  else
    *(Pack<Out>*)at = pack;
}

struct Tile {
  Acc x[GI_CHUNKS][GI_V];
  Acc before[GI_CHUNKS];  // the earlier lanes of the warp, joined; not for lane 0
};

// The elements of this thread; behind the end of the line any.
GI_FN void gi_load(Tile& tile, const In* in, i64 left) {
#pragma unroll
  for (int c = 0; c < GI_CHUNKS; ++c) {
    const i64 at = (i64)(c * GI_THREADS + threadIdx.x) * GI_V;
    if (GI_ALIGNED && at + GI_V <= left) {
      const Pack<In> pack = *(const Pack<In>*)(in + at);
#pragma unroll
      for (int k = 0; k < GI_V; ++k) tile.x[c][k] = gi_value(pack.v[k]);
    } else {
#pragma unroll
      for (int k = 0; k < GI_V; ++k) tile.x[c][k] = at + k < left ? gi_value(in[at + k]) : gi_to<Acc>(0);
    }
  }
}

// Joins the elements of a vector up to each, and sets `up_to` to all parts up to each part.
GI_FN void gi_join_tile(Tile& tile, Acc (&up_to)[GI_EACH * 32]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int c = 0; c < GI_CHUNKS; ++c) {
#pragma unroll
    for (int k = 1; k < GI_V; ++k) tile.x[c][k] = gi_join(tile.x[c][k - 1], tile.x[c][k]);
    const Acc joined = gi_join_in_warp(tile.x[c][GI_V - 1]);
    tile.before[c] = gi_from_before(joined, 1);
    if (lane == 31) up_to[c * GI_WARPS + warp] = joined;
  }
  __syncthreads();
  if (warp == 0) {
    Acc parts[GI_EACH];
#pragma unroll
    for (int k = 0; k < GI_EACH; ++k) {
      parts[k] = up_to[lane * GI_EACH + k];
      if (k) parts[k] = gi_join(parts[k - 1], parts[k]);
    }
    const Acc before = gi_from_before(gi_join_in_warp(parts[GI_EACH - 1]), 1);
#pragma unroll
    for (int k = 0; k < GI_EACH; ++k) up_to[lane * GI_EACH + k] = lane ? gi_join(before, parts[k]) : parts[k];
  }
  __syncthreads();
}

// Joins each tile but the last one of its line, in an order of its own, which is the same in every run.
extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_scan_totals(const Params p) {
  __shared__ Acc warps[GI_WARPS];
  const u32 tiles = (u32)p.tiles, line = blockIdx.x / tiles, number = blockIdx.x % tiles;
  if (number == tiles - 1) return;
  Tile tile;
  gi_load(tile, p.in + line * p.n + (i64)number * GI_TILE, GI_TILE);
  Acc own;
#pragma unroll
  for (int c = 0; c < GI_CHUNKS; ++c)
#pragma unroll
    for (int k = 0; k < GI_V; ++k) own = c || k ? gi_join(own, tile.x[c][k]) : tile.x[c][k];
  own = gi_join_in_warp(own);
  if (threadIdx.x % 32 == 31) warps[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x) return;
  Acc all = warps[0];
  for (int w = 1; w < GI_WARPS; ++w) all = gi_join(all, warps[w]);
  p.totals[blockIdx.x] = all;
}

// Replaces the total of each tile by that of the tiles up to it. One block of 1024 threads for each line.
#define GI_TOTALS 4  // of a thread
extern "C" __global__ void __launch_bounds__(1024) gi_scan_running_totals(const Params p) {
  __shared__ Acc warps[32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Acc* const totals = p.totals + blockIdx.x * p.tiles;
  Acc before;  // the totals of earlier rounds, joined
  for (i64 round = 0; round < p.tiles; round += 1024 * GI_TOTALS) {
    const i64 at = round + threadIdx.x * GI_TOTALS;
    Acc values[GI_TOTALS];
#pragma unroll
    for (int k = 0; k < GI_TOTALS; ++k) {
      values[k] = at + k < p.tiles - 1 ? totals[at + k] : gi_to<Acc>(0);
      if (k) values[k] = gi_join(values[k - 1], values[k]);
    }
    const Acc joined = gi_join_in_warp(values[GI_TOTALS - 1]);
    const Acc in_warp = gi_from_before(joined, 1);
    if (lane == 31) warps[warp] = joined;
    __syncthreads();
    if (warp == 0) {
      const Acc up_to_here = gi_join_in_warp(warps[lane]);
      __syncwarp();
      warps[lane] = up_to_here;
    }
    __syncthreads();
    Acc all = in_warp;  // what comes before the values of this thread
    if (warp) all = lane ? gi_join(warps[warp - 1], in_warp) : warps[warp - 1];
    if (round) all = warp || lane ? gi_join(before, all) : before;
    before = round ? gi_join(before, warps[31]) : warps[31];
#pragma unroll
    for (int k = 0; k < GI_TOTALS; ++k) {
      if (round || warp || lane) values[k] = gi_join(all, values[k]);
      if (at + k < p.tiles - 1) totals[at + k] = values[k];
    }
    __syncthreads();
  }
}

// The tiles in reverse, because the cache still has the last ones that gi_scan_totals has read.
extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_scan_tiles(const Params p) {
  __shared__ Acc up_to[GI_EACH * 32];
  const u32 block = gridDim.x - 1 - blockIdx.x, tiles = (u32)p.tiles, line = block / tiles, number = block % tiles;
  const i64 base = (i64)number * GI_TILE, left = p.n - base;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Tile tile;
  gi_load(tile, p.in + line * p.n + base, left);
  gi_join_tile(tile, up_to);
  Out* const out = p.out + line * p.n + base;
#pragma unroll
  for (int c = 0; c < GI_CHUNKS; ++c) {
    const int part = c * GI_WARPS + warp;
    Acc all = tile.before[c];
    if (part) all = lane ? gi_join(up_to[part - 1], all) : up_to[part - 1];
    if (number) {
      const Acc earlier = p.totals[(i64)block - 1];
      all = part || lane ? gi_join(earlier, all) : earlier;
    }
    if (part || lane || number) {
#pragma unroll
      for (int k = 0; k < GI_V; ++k) tile.x[c][k] = gi_join(all, tile.x[c][k]);
    }
    const i64 at = (i64)(c * GI_THREADS + threadIdx.x) * GI_V;
    if (GI_ALIGNED && at + GI_V <= left) {
      Pack<Out> pack;
#pragma unroll
      for (int k = 0; k < GI_V; ++k) pack.v[k] = gi_to<Out>(tile.x[c][k]);
      gi_store(out + at, pack);
    } else {
#pragma unroll
      for (int k = 0; k < GI_V; ++k)
        if (at + k < left) out[at + k] = gi_to<Out>(tile.x[c][k]);
    }
  }
}
