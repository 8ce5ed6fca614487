// Any strides: each thread splits the index of its elements by the GI_ND extents. For arrays whose
// rows are too short for a row of threads.
struct GI_PARAMS {
  char* p[GI_K];
  i64 s[GI_K];  // the bytes of numbers (mode K); unused otherwise
  i64 n;
  GiDim d[GI_ND];  // innermost first
  i64 os[GI_ND][GI_K];
};

extern "C" __global__ void __launch_bounds__(GI_THREADS) GI_NAME(const GI_PARAMS a) {
  const i32 first = (i32)blockIdx.x * (GI_THREADS * GI_U) + threadIdx.x;
#define GI_DECLARE(i, T, M) Gi##M<T, 1> r##i[GI_U];
  GI_LOADS(GI_DECLARE)
  GI_STORES(GI_DECLARE)
#undef GI_DECLARE
  i32 o[GI_U][GI_K];
#pragma unroll
  for (int u = 0; u < GI_U; ++u) {
    i32 rest = first + u * GI_THREADS;
    if (rest >= (i32)a.n) rest = (i32)a.n - 1;
    gi_offsets<GI_ND>(rest, a.d, a.os, o[u]);
  }
#define GI_LOAD(i, T, M) r##i[u].load((const T*)a.p[i] + o[u][i], a.s[i]);
#pragma unroll
  for (int u = 0; u < GI_U; ++u) {
    GI_LOADS(GI_LOAD)
  }
#undef GI_LOAD
#pragma unroll
  for (int u = 0; u < GI_U; ++u) {
    GI_WHERE(first + u * GI_THREADS < (i32)a.n) { GI_CALL([u], 0) }
  }
#define GI_STORE(i, T, M) r##i[u].store((T*)a.p[i] + o[u][i], a.s[i]);
#pragma unroll
  for (int u = 0; u < GI_U; ++u) {
    if (first + u * GI_THREADS < (i32)a.n) {
      GI_STORES(GI_STORE)
    }
  }
#undef GI_STORE
}
