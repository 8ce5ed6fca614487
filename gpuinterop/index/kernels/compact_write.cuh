// Reads or assigns the selected elements, or writes their indices, according to GI_ACTION.

// The offset, in elements, of the element at `position` in row-major order.
GI_FN i64 gi_at(const Params& p, i64 position) {
  GI_INDEX rest = (GI_INDEX)position;
  i64 at = 0;
#pragma unroll
  for (int d = GI_ND - 1; d > 0; --d) {
    const GI_INDEX q = rest / (GI_INDEX)p.extents[d];
    at += (i64)(rest - q * (GI_INDEX)p.extents[d]) * p.strides[d];
    rest = q;
  }
  return at + (i64)rest * p.strides[0];
}

// `position`: an element that the mask selects. `rank`: how many it selects before.
GI_FN void gi_act(const Params& p, i64 position, i64 rank) {
#if GI_ACTION == 0  // read
  ((T*)p.outs[0])[rank] = ((const T*)p.source)[gi_at(p, position)];
#elif GI_ACTION == 1  // assign
  ((T*)p.outs[0])[gi_at(p, position)] = ((const T*)p.source)[rank * p.step];
#else  // the index along each axis
  GI_INDEX rest = (GI_INDEX)position;
#pragma unroll
  for (int d = GI_ND - 1; d > 0; --d) {
    const GI_INDEX q = rest / (GI_INDEX)p.extents[d];
    ((i64*)p.outs[d])[rank * p.step] = rest - q * (GI_INDEX)p.extents[d];
    rest = q;
  }
  ((i64*)p.outs[0])[rank * p.step] = rest;
#endif
}

extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_compact_write(const Params p) {
  __shared__ u32 shared[GI_THREADS];
  __shared__ u16 selected[GI_TILE];  // places in the tile
  const GiPiece first = gi_piece(p, gi_first(0)), second = gi_piece(p, gi_first(1));
  // Both counts in one word, because a piece of the tile has at most 4096 elements.
  const u32 own = gi_ones(first) | gi_ones(second) << 16;
  const u32 before = gi_sum_up_to_here(shared, own) - own;
  const u32 all = shared[GI_THREADS - 1];
  u32 rank = before & 0xffff;
  for (int k = 0; k < 16; ++k)
    if (first.half[k / 8] >> k % 8 * 8 & 1) selected[rank++] = (u16)(threadIdx.x * 16 + k);
  rank = (all & 0xffff) + (before >> 16);
  for (int k = 0; k < 16; ++k)
    if (second.half[k / 8] >> k % 8 * 8 & 1) selected[rank++] = (u16)(GI_TILE / 2 + threadIdx.x * 16 + k);
  __syncthreads();
  const u32 count = (all & 0xffff) + (all >> 16);
  const i64 base = p.offsets[blockIdx.x], start = (i64)blockIdx.x * GI_TILE;
#pragma unroll 4
  for (u32 k = threadIdx.x; k < count; k += GI_THREADS) gi_act(p, start + selected[k], base + k);
}
