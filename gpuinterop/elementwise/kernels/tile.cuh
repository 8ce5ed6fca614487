// Operands with unit strides along different axes. The results are contiguous along x. The operands of
// GI_TILED are contiguous along y: they are read along y, GI_ACROSS elements at once, and transposed in shared
// memory. Each block computes a tile of GI_TILE x GI_TILE elements, with accesses of GI_V elements along x.
// With GI_SKEW > 1 each row of the tile starts up to GI_SKEW - 1 elements further to the left, so that the
// first result is written in whole vectors and sectors although its rows are not aligned.
struct GI_PARAMS {
  char* p[GI_K];
  i64 s[GI_K];  // strides along x
  i64 t[GI_K];  // strides along y; for GI_TILED operands 1 when GI_ACROSS > 1
  i64 nx, ny;
  i64 tiles_x, tiles_y;
  GiDim d[GI_ND + 1];  // the remaining dimensions, innermost first; the last entry is unused
  i64 os[GI_ND + 1][GI_K];
};

extern "C" __global__ void __launch_bounds__(GI_THREADS) GI_NAME(const GI_PARAMS a) {
  constexpr int kLanes = GI_TILE / GI_V;              // threads along a row of the tile
  constexpr int kRows = GI_THREADS / kLanes;          // rows at once
  constexpr int kTurns = GI_TILE / kRows;
  constexpr int kLanesAcross = GI_TILE / GI_ACROSS;   // the same along y, in columns of the tile
  constexpr int kColumns = GI_THREADS / kLanesAcross;
  constexpr int kLeft = GI_SKEW > 1 ? (GI_SKEW - 1 + kColumns - 1) / kColumns * kColumns : 0;
  constexpr int kTurnsAcross = (kLeft + GI_TILE) / kColumns;
#define GI_SHARED(i, T, M) __shared__ T tile##i[(kLeft + GI_TILE) * (GI_TILE + 1)];
  GI_TILED(GI_SHARED)
#undef GI_SHARED
  u32 block = blockIdx.x;
  const u32 bx = block % (u32)a.tiles_x;
  block /= (u32)a.tiles_x;
  const u32 by = block % (u32)a.tiles_y;
  i32 o[GI_K];
  gi_offsets<GI_ND>((i32)(block / (u32)a.tiles_y), a.d, a.os, o);
  const i32 x0 = (i32)bx * GI_TILE, y0 = (i32)by * GI_TILE;
  const int lane = (int)(threadIdx.x % kLanes) * GI_V, row = (int)(threadIdx.x / kLanes);
  const int along = (int)(threadIdx.x % kLanesAcross) * GI_ACROSS;
  const int column = (int)(threadIdx.x / kLanesAcross) - kLeft;
  const i64 left_x = a.nx - x0, left_y = a.ny - y0;
  const bool whole = x0 >= kLeft && left_x >= GI_TILE && left_y >= GI_TILE;

#define GI_DECLARE(i, T, M) Gi##M<T, GI_V> r##i[kTurns];
  GI_LOADS(GI_DECLARE)
  GI_STORES(GI_DECLARE)
#undef GI_DECLARE
#define GI_DECLARE(i, T, M) Gi##M<T, GI_ACROSS> w##i[kTurnsAcross];
  GI_TILED(GI_DECLARE)
#undef GI_DECLARE
  // Of each row: where this thread's elements start, relative to x0, and which of them exist.
  int start[kTurns];
#pragma unroll
  for (int u = 0; u < kTurns; ++u) {
#define GI_MISALIGNED(i, T, M) \
  (int)((u64)((T*)a.p[i] + (o[i] + (y0 + row + u * kRows) * (i32)a.t[i])) / sizeof(T) % GI_SKEW)
#if GI_SKEW > 1
    start[u] = lane - GI_LEAD(GI_MISALIGNED);
#else
    start[u] = lane;
#endif
#undef GI_MISALIGNED
  }
#define GI_FROM(u) (GI_SKEW > 1 && x0 + start[u] < 0 ? -(x0 + start[u]) : 0)
#define GI_EXISTS(u) (row + u * kRows < left_y && start[u] < left_x && GI_FROM(u) < GI_V)

  // Issue all loads before the first use of a loaded value.
#define GI_TURNED(i, T)                                                                          \
  (T*)a.p[i] + (o[i] + (x0 + column + u * kColumns) * (i32)a.s[i] + (y0 + along) * (i32)a.t[i])
#define GI_AT(i, T, M)                                                                           \
  (T*)a.p[i] + (o[i] + Gi##M<T, GI_V>::offset(x0 + start[u], (i32)a.s[i]) +                 \
                (y0 + row + u * kRows) * (i32)a.t[i])
  if (whole) {
#define GI_LOAD(i, T, M) w##i[u].load(GI_TURNED(i, T), a.t[i]);
#pragma unroll
    for (int u = 0; u < kTurnsAcross; ++u) {
      GI_TILED(GI_LOAD)
    }
#undef GI_LOAD
#define GI_LOAD(i, T, M) r##i[u].load(GI_AT(i, T, M), a.s[i]);
#pragma unroll
    for (int u = 0; u < kTurns; ++u) {
      GI_LOADS(GI_LOAD)
    }
#undef GI_LOAD
  } else {
#define GI_LOAD(i, T, M)                                                                         \
  if (column + u * kColumns < left_x && x0 + column + u * kColumns >= 0 && along < left_y)       \
    w##i[u].load_part(GI_TURNED(i, T), a.t[i], 0, left_y - along);
#pragma unroll
    for (int u = 0; u < kTurnsAcross; ++u) {
      GI_TILED(GI_LOAD)
    }
#undef GI_LOAD
#define GI_LOAD(i, T, M)                                                                         \
  if (GI_EXISTS(u))                                                                              \
    gi_load_part<GI_V>(r##i[u], GI_AT(i, T, M), a.s[i], GI_FROM(u), left_x - start[u]);
#pragma unroll
    for (int u = 0; u < kTurns; ++u) {
      GI_LOADS(GI_LOAD)
    }
#undef GI_LOAD
  }
#define GI_TURN(i, T, M)                                                                         \
  for (int k = 0; k < GI_ACROSS; ++k)                                                            \
    tile##i[(kLeft + column + u * kColumns) * (GI_TILE + 1) + along + k] = w##i[u].at(k);
#pragma unroll
  for (int u = 0; u < kTurnsAcross; ++u) {
    GI_TILED(GI_TURN)
  }
#undef GI_TURN
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kTurns; ++u) {
#define GI_FETCH(i, T, M)                                                                        \
  Gi##M<T, GI_V> r##i[1];                                                                        \
  for (int k = 0; k < GI_V; ++k)                                                                 \
    r##i[0].at(k) = tile##i[(kLeft + start[u] + k) * (GI_TILE + 1) + row + u * kRows];
    GI_TILED(GI_FETCH)
#undef GI_FETCH
#pragma unroll
    for (int k = 0; k < GI_V; ++k) {
      GI_WHERE(GI_EXISTS(u) && k >= GI_FROM(u) && start[u] + k < left_x) { GI_CALL_TILED([u], k) }
    }
#define GI_STORE(i, T, M)                                                                        \
  if (whole)                                                                                     \
    r##i[u].store(GI_AT(i, T, M), a.s[i]);                                                       \
  else if (GI_EXISTS(u))                                                                         \
    gi_store_part<GI_V>(r##i[u], GI_AT(i, T, M), a.s[i], GI_FROM(u), left_x - start[u]);
    GI_STORES(GI_STORE)
#undef GI_STORE
  }
#undef GI_AT
#undef GI_TURNED
#undef GI_EXISTS
#undef GI_FROM
}
