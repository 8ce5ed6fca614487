// Counts the elements that the mask selects in each tile.
extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_compact_count(const Params p) {
  __shared__ u32 shared[GI_THREADS];
  const u32 own = gi_ones(gi_piece(p, gi_first(0))) + gi_ones(gi_piece(p, gi_first(1)));
  const u32 all = gi_sum_up_to_here(shared, own);
  if (threadIdx.x == GI_THREADS - 1) p.offsets[blockIdx.x] = all;
}

// Replaces the count of each tile by the sum of the counts before it, and appends the total. One block.
extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_compact_scan(const Params p) {
  constexpr int kEach = 16;
  __shared__ i64 shared[GI_THREADS];
  i64 total = 0;
  for (i64 start = 0; start < p.tiles; start += GI_THREADS * kEach) {
    const i64 first = start + (i64)threadIdx.x * kEach;
    i64 counts[kEach], own = 0;
    for (int k = 0; k < kEach; ++k) {
      counts[k] = first + k < p.tiles ? p.offsets[first + k] : 0;
      own += counts[k];
    }
    i64 at = total + gi_sum_up_to_here(shared, own) - own;
    total += shared[GI_THREADS - 1];
    for (int k = 0; k < kEach; ++k) {
      if (first + k < p.tiles) p.offsets[first + k] = at;
      at += counts[k];
    }
    __syncthreads();  // before the next sums are written
  }
  if (threadIdx.x == 0) p.offsets[p.tiles] = total;
}

// Writes for each of n results the index of its count among `tiles`, whose sums are in `offsets`.
extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_compact_repeat(const Params p) {
  for (i64 k = (i64)blockIdx.x * GI_THREADS + threadIdx.x; k < p.n; k += (i64)gridDim.x * GI_THREADS) {
    i64 low = 0, high = p.tiles;
    while (high - low > 1) {
      const i64 middle = low + (high - low) / 2;
      (p.offsets[middle] <= k ? low : high) = middle;
    }
    ((i64*)p.out)[k] = low;
  }
}
