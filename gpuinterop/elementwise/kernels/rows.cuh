// Rows: the innermost dimension as in flat.cuh, and GI_ND outer dimensions with any strides. A block
// computes a patch of blockDim.x * GI_V elements by blockDim.y * GI_U rows. With GI_SKEW > 1 each row of the
// patch starts up to GI_SKEW - 1 elements further to the left, so that the first result is written in
// whole vectors and sectors although its rows are not aligned.
struct GI_PARAMS {
  char* p[GI_K];
  i64 s[GI_K];
  i64 n;       // elements of a row
  i64 rows;
  i64 chunks;  // patches side by side
  GiDim d[GI_ND];  // innermost first
  i64 os[GI_ND][GI_K];
};

extern "C" __global__ void __launch_bounds__(GI_THREADS) GI_NAME(const GI_PARAMS a) {
  const u32 patch = blockIdx.x / (u32)a.chunks;
  const i32 x0 = (i32)((blockIdx.x - patch * (u32)a.chunks) * blockDim.x + threadIdx.x) * GI_V;
  if (x0 - (GI_SKEW - 1) >= a.n) return;
  const i32 row0 = (i32)(patch * (blockDim.y * GI_U)) + (i32)threadIdx.y;
#define GI_DECLARE(i, T, M) Gi##M<T, GI_V> r##i[GI_U];
  GI_LOADS(GI_DECLARE)
  GI_STORES(GI_DECLARE)
#undef GI_DECLARE
  i32 o[GI_U][GI_K];
  i32 from[GI_U], to[GI_U];  // of the GI_V elements, those in the row
  bool whole = true;
#pragma unroll
  for (int u = 0; u < GI_U; ++u) {
    i32 row = row0 + u * (i32)blockDim.y;
    // Rows beyond the end read the last one; they are not written.
    if (row >= (i32)a.rows) row = (i32)a.rows - 1;
    gi_offsets<GI_ND>(row, a.d, a.os, o[u]);
#define GI_MISALIGNED(i, T, M) (int)((u64)((T*)a.p[i] + o[u][i]) / sizeof(T) % GI_SKEW)
#if GI_SKEW > 1
    const i32 x = x0 - GI_LEAD(GI_MISALIGNED);
#else
    const i32 x = x0;
#endif
#undef GI_MISALIGNED
    from[u] = GI_SKEW > 1 && x < 0 ? -x : 0;
    to[u] = (i32)a.n - x;
    whole = whole && from[u] == 0 && to[u] >= GI_V;
#define GI_START(i, T, M) o[u][i] += Gi##M<T, GI_V>::offset(x, (i32)a.s[i]);
    GI_LOADS(GI_START)
    GI_STORES(GI_START)
#undef GI_START
  }
  if (whole) {
#define GI_LOAD(i, T, M) r##i[u].load((const T*)a.p[i] + o[u][i], a.s[i]);
#pragma unroll
    for (int u = 0; u < GI_U; ++u) {
      GI_LOADS(GI_LOAD)
    }
#undef GI_LOAD
  } else {
#define GI_LOAD(i, T, M) \
  if (from[u] < to[u] && from[u] < GI_V) \
    r##i[u].load_part((const T*)a.p[i] + o[u][i], a.s[i], from[u], to[u]);
#pragma unroll
    for (int u = 0; u < GI_U; ++u) {
      GI_LOADS(GI_LOAD)
    }
#undef GI_LOAD
  }
#pragma unroll
  for (int u = 0; u < GI_U; ++u) {
#pragma unroll
    for (int k = 0; k < GI_V; ++k) {
      GI_WHERE(k >= from[u] && k < to[u] && row0 + (i32)(u * blockDim.y) < (i32)a.rows) {
        GI_CALL([u], k)
      }
    }
  }
#define GI_STORE(i, T, M)                                     \
  if (whole)                                                  \
    r##i[u].store((T*)a.p[i] + o[u][i], a.s[i]);              \
  else                                                        \
    r##i[u].store_part((T*)a.p[i] + o[u][i], a.s[i], from[u], to[u]);
#pragma unroll
  for (int u = 0; u < GI_U; ++u) {
    if (row0 + (i32)(u * blockDim.y) < (i32)a.rows) {
      GI_STORES(GI_STORE)
    }
  }
#undef GI_STORE
}
