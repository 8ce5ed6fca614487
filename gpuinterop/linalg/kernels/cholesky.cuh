// The lower factor of a Hermitian matrix, from its lower triangle, one matrix in a block.

struct Params {
  Stack a;
  T* factor;  // row by row
  i32* info;  // 0, or the number of the first row at which the matrix is not positive definite
  i32 rows;
};

extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_cholesky(const Params p) {
  __shared__ T tile[GI_ROOM];  // in rows of an odd length
  const i32 rows = p.rows, step = rows | 1;
  const i32 me = threadIdx.x, lane = me % 32, warp = me / 32;
  i32 status = 0;
  for (i32 i = warp; i < rows; i += kWarps)
    for (i32 j = lane; j < rows; j += 32) tile[i * step + j] = j <= i ? p.a.at(blockIdx.x, i, j) : gi_number(0);
  __syncthreads();
  for (i32 k = 0; k < rows && !status; ++k) {
    const auto square = gi_real(tile[k * step + k]), root = sqrt(square);
    if (!(square > 0)) status = k + 1;  // NaN too
    for (i32 i = k + 1 + me; i < rows; i += GI_THREADS) tile[i * step + k] = ((decltype(root))1 / root) * tile[i * step + k];
    __syncthreads();
    if (me == 0) tile[k * step + k] = gi_to<T>(root);
    for (i32 i = k + 1 + warp; i < rows; i += kWarps) {
      const T factor = tile[i * step + k];
      for (i32 j = k + 1 + lane; j <= i; j += 32)
        tile[i * step + j] = tile[i * step + j] - factor * gi_mirrored(tile[j * step + k]);
    }
    __syncthreads();
  }
  T* const factor = p.factor + (i64)blockIdx.x * rows * rows;
  for (i32 i = warp; i < rows; i += kWarps)
    for (i32 j = lane; j < rows; j += 32) factor[i * rows + j] = tile[i * step + j];
  if (me == 0) p.info[blockIdx.x] = status;
}
