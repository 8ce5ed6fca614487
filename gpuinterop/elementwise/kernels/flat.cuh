// One dimension: every operand is a run of elements, forward, backward, strided, or one element.
// A block computes GI_THREADS * GI_V * GI_U elements and issues all loads before the first computation.
struct GI_PARAMS {
  char* p[GI_K];
  i64 s[GI_K];
  i64 n;
};

extern "C" __global__ void __launch_bounds__(GI_THREADS) GI_NAME(const GI_PARAMS a) {
  const int lane = (int)threadIdx.x * GI_V;
#define GI_AT(i, T, M) \
  (T*)a.p[i] + Gi##M<T, GI_V>::offset(first, a.s[i]) + \
      Gi##M<T, GI_V>::offset((i64)(u * (GI_THREADS * GI_V) + lane), a.s[i])
  const i64 first = (i64)blockIdx.x * (GI_THREADS * GI_V * GI_U);
  const i64 left = a.n - first;
#define GI_DECLARE(i, T, M) Gi##M<T, GI_V> r##i[GI_U];
  GI_LOADS(GI_DECLARE)
  GI_STORES(GI_DECLARE)
#undef GI_DECLARE
  if (left >= GI_THREADS * GI_V * GI_U) {
#define GI_LOAD(i, T, M) r##i[u].load(GI_AT(i, T, M), a.s[i]);
#pragma unroll
    for (int u = 0; u < GI_U; ++u) {
      GI_LOADS(GI_LOAD)
    }
#undef GI_LOAD
#pragma unroll
    for (int u = 0; u < GI_U; ++u) {
#pragma unroll
      for (int k = 0; k < GI_V; ++k) {
        GI_CALL([u], k)
      }
    }
#define GI_STORE(i, T, M) r##i[u].store(GI_AT(i, T, M), a.s[i]);
#pragma unroll
    for (int u = 0; u < GI_U; ++u) {
      GI_STORES(GI_STORE)
    }
#undef GI_STORE
  } else {
#pragma unroll
    for (int u = 0; u < GI_U; ++u) {
      const i64 count = left - (u * (GI_THREADS * GI_V) + lane);
      if (count <= 0) break;
#define GI_LOAD(i, T, M) r##i[u].load_part(GI_AT(i, T, M), a.s[i], 0, count);
      GI_LOADS(GI_LOAD)
#undef GI_LOAD
#pragma unroll
      for (int k = 0; k < GI_V; ++k) {
        GI_WHERE(k < count) { GI_CALL([u], k) }
      }
#define GI_STORE(i, T, M) r##i[u].store_part(GI_AT(i, T, M), a.s[i], 0, count);
      GI_STORES(GI_STORE)
#undef GI_STORE
    }
  }
#undef GI_AT
}
