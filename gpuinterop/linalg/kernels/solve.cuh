// Solves real equations a x = b by Gauss's elimination with the largest pivot of each column, one matrix in a block.

struct Params {
  Stack a, b;
  T* x;       // row by row
  i32* info;  // 0, or the number of the first pivot that is 0
  i32 rows, columns;
};

// Numbers in the order of the absolute values, for pivots.
GI_FN u32 gi_size(float x) { return gi_bits(x) & 0x7fffffffu; }
GI_FN u32 gi_size(double x) {
  const u64 bits = gi_bits(x) & 0x7fffffffffffffffull;
  return (u32)(bits >> 32) + ((u32)bits != 0);
}

__shared__ T tile[GI_ROOM];     // a and b side by side, in rows of an odd length
__shared__ T factors[kMostRows];
__shared__ i32 place[kMostRows];  // of each row in the tile
__shared__ i32 status;

// Finds the pivot of a column, and by how much of its row the others are to be reduced. By the first warp.
GI_FN void gi_pivot(i32 k, i32 rows, i32 step, i32 lane) {
  u32 size = 0, row = k;
  for (i32 i = k + lane; i < rows; i += 32) {
    const u32 other = gi_size(tile[place[i] * step + k]);
    if (other > size) {
      size = other;
      row = i;
    }
  }
  for (i32 distance = 16; distance; distance /= 2) {
    const u32 other = __shfl_down_sync(~0u, size, distance, 32), at = __shfl_down_sync(~0u, row, distance, 32);
    if (other > size) {
      size = other;
      row = at;
    }
  }
  row = __shfl_sync(~0u, row, 0);
  const T pivot = tile[place[row] * step + k];
  const bool regular = pivot != gi_number(0);
  __syncwarp();
  if (lane == 0) {
    const i32 top = place[row];
    place[row] = place[k];
    place[k] = top;
    if (!regular && !status) status = k + 1;
  }
  __syncwarp();
#pragma unroll 1
  for (i32 i = k + 1 + lane; i < rows; i += 32)
    factors[i] = regular ? tile[place[i] * step + k] / pivot : gi_number(0);
}

extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_solve(const Params p) {
  const i32 rows = p.rows, width = rows + p.columns, step = width | 1;
  const i32 me = threadIdx.x, lane = me % 32, warp = me / 32;
  for (i32 i = warp; i < rows; i += kWarps)
    for (i32 j = lane; j < width; j += 32)
      tile[i * step + j] = j < rows ? p.a.at(blockIdx.x, i, j) : p.b.at(blockIdx.x, i, j - rows);
  if (me < rows) place[me] = me;
  if (me == 0) status = 0;
  __syncthreads();
  for (i32 k = 0; k < rows; ++k) {
    if (warp == 0) gi_pivot(k, rows, step, lane);
    __syncthreads();
    const T* const top = tile + place[k] * step;
    for (i32 i = k + 1 + warp; i < rows; i += kWarps) {
      T* const line = tile + place[i] * step;
      const T factor = factors[i];
      for (i32 j = k + 1 + lane; j < width; j += 32) line[j] = line[j] - factor * top[j];
    }
    __syncthreads();
  }
  for (i32 k = rows; k--;) {
    T* const top = tile + place[k] * step;
    const T pivot = top[k];
#pragma unroll 1
    for (i32 j = rows + me; j < width; j += GI_THREADS) top[j] = top[j] / pivot;
    __syncthreads();
    for (i32 i = me; i < k * p.columns; i += GI_THREADS) {
      T* const line = tile + place[i / p.columns] * step;
      const i32 j = rows + i % p.columns;
      line[j] = line[j] - line[k] * top[j];
    }
    __syncthreads();
  }
  for (i32 i = me; i < rows * p.columns; i += GI_THREADS)
    p.x[(i64)blockIdx.x * rows * p.columns + i] = tile[place[i / p.columns] * step + rows + i % p.columns];
  if (me == 0) p.info[blockIdx.x] = status;
}
