// Results whose number is counted on the GPU. A block counts those of one tile; the last block sums the counts up.
#define GI_THREADS 256
#define GI_MOST (1ll << 48)  // results; a larger sum counts as this one, so that no sum overflows

// The sum of `value` over this thread and those before it; all threads of the block call it.
template <class T>
GI_FN T gi_sum_up_to_here(T* shared, T value) {
  const u32 t = threadIdx.x;
  shared[t] = value;
  for (u32 distance = 1; distance < GI_THREADS; distance *= 2) {
    __syncthreads();
    const T before = t >= distance ? shared[t - distance] : (T)0;
    __syncthreads();
    value += before;
    shared[t] = value;
  }
  __syncthreads();
  return value;
}

// Replaces the count of each tile by the sum of the counts before it, and appends the total. The last block that has counted
// does it; all threads of each block call this.
GI_FN void gi_scan_in_last_block(i64* offsets, i64 tiles, unsigned* finished) {
  if (!gi_is_last(finished, gridDim.x)) return;
  constexpr int kEach = 16;
  __shared__ i64 shared[GI_THREADS];
  i64 total = 0;
  for (i64 start = 0; start < tiles; start += GI_THREADS * kEach) {
    const i64 first = start + (i64)threadIdx.x * kEach;
    i64 counts[kEach], own = 0;
    for (int k = 0; k < kEach; ++k) {
      counts[k] = first + k < tiles ? offsets[first + k] : 0;
      own += counts[k];
    }
    i64 at = total + gi_sum_up_to_here(shared, own) - own;
    total += shared[GI_THREADS - 1];
    if (total > GI_MOST) total = GI_MOST;
    for (int k = 0; k < kEach; ++k) {
      if (first + k < tiles) offsets[first + k] = at;
      at += counts[k];
    }
    __syncthreads();  // before the next sums are written
  }
  if (threadIdx.x == 0) offsets[tiles] = total;
}

// The last of n ascending sums that is not above `value`; the first one is not.
template <class I>
GI_FN I gi_last_up_to(const i64* sums, I n, i64 value) {
  I low = 0, high = n;
  while (high - low > 1) {
    const I middle = low + (high - low) / 2;
    (sums[middle] <= value ? low : high) = middle;
  }
  return low;
}
