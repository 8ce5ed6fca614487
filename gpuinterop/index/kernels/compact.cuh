// The elements that a mask selects, in their order; tiles.cuh precedes, compact_count.cuh or compact_write.cuh follows. The
// mask is C-contiguous.
#define GI_TILE (32 * GI_THREADS)  // two pieces of 16 elements a thread

struct Params {
  const u8* mask;
  i64 n, tiles;
  i64* offsets;  // tiles + 1: counts, then their exclusive sums, and the total
  unsigned* finished;  // the blocks that have counted
  // gi_compact_write only:
  const void* source;
  i64 step;  // between the values that are assigned, or between the indices of one axis
  i64 extents[GI_ND], strides[GI_ND];
  void* outs[GI_ND];  // the first one, or those of the indices of each axis
};

// A piece of 16 elements as bytes; those behind the end are false.
struct GiPiece {
  u64 half[2];
};
GI_FN GiPiece gi_piece(const Params& p, i64 first) {
  GiPiece piece = {{0, 0}};
  if (first + 16 <= p.n && ((u64)p.mask & 15) == 0) {
    const u128 all = *(const u128*)(p.mask + first);
    piece.half[0] = all.lo;
    piece.half[1] = all.hi;
  } else {
    for (int k = 0; k < 16 && first + k < p.n; ++k)
      piece.half[k / 8] |= (u64)p.mask[first + k] << k % 8 * 8;
  }
  for (int k = 0; k < 2; ++k) {  // each byte that is not 0 becomes 1
    const u64 low = 0x7f7f7f7f7f7f7f7full;
    piece.half[k] = (((piece.half[k] & low) + low | piece.half[k]) & ~low) >> 7;
  }
  return piece;
}
GI_FN u32 gi_ones(const GiPiece& piece) {
  return (u32)((piece.half[0] + piece.half[1]) * 0x0101010101010101ull >> 56);
}
GI_FN i64 gi_first(int piece) {
  return (i64)blockIdx.x * GI_TILE + piece * (GI_TILE / 2) + (i64)threadIdx.x * 16;
}
