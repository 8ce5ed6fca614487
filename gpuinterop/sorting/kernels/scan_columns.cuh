// Scans the columns of matrices of p.n rows and p.inner columns. A block has 32 columns, one for each lane, and its 32 warps take
// neighbouring pieces of GI_ROWS rows.
#define GI_ROWS 8

struct Params {
  const In* in;
  Out* out;
  i64 lines, n, inner;
};

extern "C" __global__ void __launch_bounds__(1024) gi_scan_columns(const Params p) {
  __shared__ Acc pieces[32][33];  // of a column in each warp, joined; a column more than needed, against conflicts
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 groups = (p.inner + 31) / 32, column = blockIdx.x % groups * 32 + lane;
  const bool inside = column < p.inner;
  const i64 start = blockIdx.x / groups * p.n * p.inner + column;
  Acc before;  // the rows of earlier rounds, joined
  for (i64 round = 0; round < p.n; round += 32 * GI_ROWS) {
    const i64 first = round + warp * GI_ROWS;
    Acc values[GI_ROWS];
#pragma unroll
    for (int k = 0; k < GI_ROWS; ++k)
      values[k] = inside && first + k < p.n ? gi_value(p.in[start + (first + k) * p.inner]) : gi_to<Acc>(0);
#pragma unroll
    for (int k = 1; k < GI_ROWS; ++k) values[k] = gi_join(values[k - 1], values[k]);
    pieces[warp][lane] = values[GI_ROWS - 1];
    __syncthreads();
    const Acc joined = gi_join_in_warp(pieces[lane][warp]);  // of column `warp`
    __syncwarp();
    pieces[lane][warp] = joined;
    __syncthreads();
    if (round || warp) {
      Acc all = round ? before : pieces[warp - 1][lane];
      if (round && warp) all = gi_join(all, pieces[warp - 1][lane]);
#pragma unroll
      for (int k = 0; k < GI_ROWS; ++k) values[k] = gi_join(all, values[k]);
    }
    before = round ? gi_join(before, pieces[31][lane]) : pieces[31][lane];
#pragma unroll
    for (int k = 0; k < GI_ROWS; ++k)
      if (inside && first + k < p.n) p.out[start + (first + k) * p.inner] = gi_to<Out>(values[k]);
    __syncthreads();
  }
}
