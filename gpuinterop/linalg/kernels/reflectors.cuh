// Q of QR factorizations: products of Householder reflectors, 1 - scale v v^H each. A thread computes a column.

struct Params {
  const T* vectors;  // of each matrix, column by column: 1 on the diagonal, which is not stored, and what is below
  const T* scales;
  T* q;  // row by row
  i64 matrices;
  i32 rows, columns;     // of Q
  i32 width, reflectors; // columns of `vectors`, and how many of them count
};

extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_reflectors(const Params p) {
  const i64 index = (i64)blockIdx.x * GI_THREADS + threadIdx.x, matrix = index / p.columns;
  if (matrix >= p.matrices) return;
  const i32 column = (i32)(index % p.columns), rows = p.rows, step = p.columns;
  T* __restrict__ const q = p.q + matrix * rows * step + column;
  for (i32 row = 0; row < rows; ++row) q[row * step] = gi_number(row == column);
  for (i32 i = p.reflectors; i--;) {
    const T* __restrict__ const v = p.vectors + (matrix * p.width + i) * rows;
    T sum = q[i * step];
    for (i32 row = i + 1; row < rows; ++row) sum = sum + gi_mirrored(v[row]) * q[row * step];
    sum = p.scales[matrix * p.reflectors + i] * sum;
    q[i * step] = q[i * step] - sum;
    for (i32 row = i + 1; row < rows; ++row) q[row * step] = q[row * step] - v[row] * sum;
  }
}
