// Operands with unit strides along different axes. The results are contiguous along x. The operands of
// GI_TILED are contiguous along y: they are read along y and transposed in shared memory. Each block
// computes a tile of GI_TILE x GI_TILE elements, with accesses of GI_V elements on both sides.
struct GI_PARAMS {
  char* p[GI_K];
  i64 s[GI_K];  // strides along x
  i64 t[GI_K];  // strides along y; for GI_TILED operands 1 when GI_V > 1
  i64 nx, ny;
  i64 tiles_x, tiles_y;
  GiDim d[GI_ND + 1];  // the remaining dimensions, innermost first; the last entry is unused
  i64 os[GI_ND + 1][GI_K];
};

extern "C" __global__ void __launch_bounds__(GI_THREADS) GI_NAME(const GI_PARAMS a) {
  constexpr int kLanes = GI_TILE / GI_V;              // threads along a line of the tile
  constexpr int kLines = GI_THREADS / kLanes;         // lines at once
  constexpr int kTurns = GI_TILE / kLines;
#define GI_SHARED(i, T, M) __shared__ T tile##i[GI_TILE * (GI_TILE + 1)];
  GI_TILED(GI_SHARED)
#undef GI_SHARED
  u32 block = blockIdx.x;
  const u32 bx = block % (u32)a.tiles_x;
  block /= (u32)a.tiles_x;
  const u32 by = block % (u32)a.tiles_y;
  GI_INDEX rest = (GI_INDEX)(block / (u32)a.tiles_y);
  GI_INDEX o[GI_K];
#pragma unroll
  for (int k = 0; k < GI_K; ++k) o[k] = 0;
#pragma unroll
  for (int d = 0; d < GI_ND; ++d) {
    const GI_INDEX q = d + 1 < GI_ND ? gi_quotient(rest, a.d[d]) : 0;
    const GI_INDEX at = rest - q * (GI_INDEX)a.d[d].extent;
    rest = q;
#pragma unroll
    for (int k = 0; k < GI_K; ++k) o[k] += at * (GI_INDEX)a.os[d][k];
  }
  const int lane = (int)(threadIdx.x % kLanes) * GI_V, line = (int)(threadIdx.x / kLanes);
  const GI_INDEX x0 = (GI_INDEX)bx * GI_TILE, y0 = (GI_INDEX)by * GI_TILE;
  const i64 left_x = a.nx - x0, left_y = a.ny - y0;

#define GI_DECLARE(i, T, M) Gi##M<T, GI_V> r##i[kTurns];
  GI_LOADS(GI_DECLARE)
  GI_STORES(GI_DECLARE)
#undef GI_DECLARE
#define GI_DECLARE(i, T, M) Gi##M<T, GI_V> w##i[kTurns];
  GI_TILED(GI_DECLARE)
#undef GI_DECLARE

  // Issue all loads before the first use of a loaded value.
#define GI_TURNED(i, T)                                                                       \
  (T*)a.p[i] + (o[i] + (x0 + line + u * kLines) * (GI_INDEX)a.s[i] + (y0 + lane) * (GI_INDEX)a.t[i])
#define GI_AT(i, T, M)                                                                        \
  (T*)a.p[i] + (o[i] + Gi##M<T, GI_V>::offset(x0 + lane, (GI_INDEX)a.s[i]) +                  \
                (y0 + line + u * kLines) * (GI_INDEX)a.t[i])
  const bool whole = left_x >= GI_TILE && left_y >= GI_TILE;
  if (whole) {
#define GI_LOAD(i, T, M) w##i[u].load(GI_TURNED(i, T), a.t[i]);
#pragma unroll
    for (int u = 0; u < kTurns; ++u) {
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
#define GI_LOAD(i, T, M)                                                                      \
  if (line + u * kLines < left_x && lane < left_y)                                            \
    w##i[u].load_part(GI_TURNED(i, T), a.t[i], left_y - lane);
#pragma unroll
    for (int u = 0; u < kTurns; ++u) {
      GI_TILED(GI_LOAD)
    }
#undef GI_LOAD
#define GI_LOAD(i, T, M)                                                                      \
  if (line + u * kLines < left_y && lane < left_x)                                            \
    r##i[u].load_part(GI_AT(i, T, M), a.s[i], left_x - lane);
#pragma unroll
    for (int u = 0; u < kTurns; ++u) {
      GI_LOADS(GI_LOAD)
    }
#undef GI_LOAD
  }
#define GI_TURN(i, T, M)                                                                      \
  for (int k = 0; k < GI_V; ++k)                                                              \
    tile##i[(lane + k) * (GI_TILE + 1) + line + u * kLines] = w##i[u].at(k);
#pragma unroll
  for (int u = 0; u < kTurns; ++u) {
    GI_TILED(GI_TURN)
  }
#undef GI_TURN
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kTurns; ++u) {
#define GI_FETCH(i, T, M)                                                                     \
  Gi##M<T, GI_V> r##i[1];                                                                     \
  for (int k = 0; k < GI_V; ++k)                                                              \
    r##i[0].at(k) = tile##i[(line + u * kLines) * (GI_TILE + 1) + lane + k];
    GI_TILED(GI_FETCH)
#undef GI_FETCH
#pragma unroll
    for (int k = 0; k < GI_V; ++k) {
      GI_WHERE(line + u * kLines < left_y && lane + k < left_x) { GI_CALL_TILED([u], k) }
    }
#define GI_STORE(i, T, M)                                                                     \
  if (whole)                                                                                  \
    r##i[u].store(GI_AT(i, T, M), a.s[i]);                                                    \
  else if (line + u * kLines < left_y && lane < left_x)                                       \
    r##i[u].store_part(GI_AT(i, T, M), a.s[i], left_x - lane);
    GI_STORES(GI_STORE)
#undef GI_STORE
  }
#undef GI_AT
#undef GI_TURNED
}
