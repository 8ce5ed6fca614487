// Counts the elements that the mask selects in each tile.
extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_compact_count(const Params p) {
  __shared__ u32 shared[GI_THREADS];
  const u32 own = gi_ones(gi_piece(p, gi_first(0))) + gi_ones(gi_piece(p, gi_first(1)));
  const u32 all = gi_sum_up_to_here(shared, own);
  if (threadIdx.x == GI_THREADS - 1) p.offsets[blockIdx.x] = all;
  gi_scan_in_last_block(p.offsets, p.tiles, p.finished);
}

// Repeats: p.mask has p.step counts of type i64, in tiles of GI_COUNTS.
#define GI_EACH 8
#define GI_COUNTS (GI_EACH * GI_THREADS)
#define GI_RESULTS 4096  // of a block

// The counts of this thread in a tile, and their sum.
GI_FN i64 gi_counts(const Params& p, i64 tile, i64 (&counts)[GI_EACH]) {
  const i64 first = tile * GI_COUNTS + threadIdx.x * GI_EACH;
  i64 own = 0;
#pragma unroll
  for (int k = 0; k < GI_EACH; ++k) {
    counts[k] = first + k < p.step ? ((const i64*)p.mask)[first + k] : 0;
    if ((u64)counts[k] > GI_MOST) counts[k] = GI_MOST;
    own += counts[k];
  }
  return own;
}

// Adds the counts of each tile, up to GI_MOST. A negative count makes the sum GI_MOST.
extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_compact_repeat_count(const Params p) {
  __shared__ i64 shared[GI_THREADS];
  i64 counts[GI_EACH];
  const i64 all = gi_sum_up_to_here(shared, gi_counts(p, blockIdx.x, counts));
  if (threadIdx.x == GI_THREADS - 1) p.offsets[blockIdx.x] = all < GI_MOST ? all : GI_MOST;
  gi_scan_in_last_block(p.offsets, p.tiles, p.finished);
}

// Writes for each of p.n results the index of its count. A block searches for the tile of its first result, adds
// that tile's counts up in shared memory, and searches there for its first and last result, and between them for
// each result; then for the next tile.
extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_compact_repeat_write(const Params p) {
  __shared__ i64 shared[GI_THREADS], sums[GI_COUNTS];
  i64 at = (i64)blockIdx.x * GI_RESULTS;
  const i64 end = at + GI_RESULTS < p.n ? at + GI_RESULTS : p.n;
  while (at < end) {
    const i64 tile = gi_last_up_to(p.offsets, p.tiles, at), base = p.offsets[tile], next = p.offsets[tile + 1];
    i64 counts[GI_EACH];
    const i64 own = gi_counts(p, tile, counts);
    i64 sum = gi_sum_up_to_here(shared, own) - own;
#pragma unroll
    for (int k = 0; k < GI_EACH; ++k) {
      sums[threadIdx.x * GI_EACH + k] = sum;
      sum += counts[k];
    }
    __syncthreads();
    const i64 stop = next < end ? next : end;
    const int first = gi_last_up_to(sums, GI_COUNTS, at - base);
    const int several = gi_last_up_to(sums + first, GI_COUNTS - first, stop - 1 - base) + 1;
    for (i64 k = at + threadIdx.x; k < stop; k += GI_THREADS)
      ((GI_INDEX*)p.outs[0])[k] = tile * GI_COUNTS + first + gi_last_up_to(sums + first, several, k - base);
    at = stop;
    __syncthreads();  // before the sums of the next tile are written
  }
}
