// out = alpha * a @ b + beta * addend for float32 on Hopper's tensor cores, with the accuracy of float32.
//
// Tensor cores multiply TF32, which has 11 significant bits. A float32 is the sum of two TF32 numbers up to half a unit
// in its last place, x = high + low, so a product is
//     a b = high high + (high low + low high),         and low low is below the last place.
// The three products of GI_STEP = 32 elements of the inner dimension go into one accumulator of the tensor core. It cuts
// its sums off instead of rounding them, so it starts at zero for every step, and its result is added to sums in
// registers, which round to nearest.
//
// A block has three groups of four warps. One thread of the last group, the loader, asks the copy engine for panels; the
// other two groups multiply, each 64 rows of a tile of 128 x GI_WIDTH results. The panels go through a ring of stages in
// shared memory. Each stage has two barriers: `full` says that the bytes have arrived, `empty` that all eight warps have
// read them.
//
//         inner dimension, 32 at once                 copy engine       ring of stages          warps
//       +---------+--                                                  +--------------+
//   a   | 128 x 32| ..   as it lies in memory        ------------->    | a            |   split in registers, then
//       +---------+--                                                  |              |   3 products a step:
//       +---------+--                                                  +--------------+   low high, high low,
//   b   | W x 32  | ..   high, and another for low:  ------------->    | b high       |   high high
//       +---------+--    tensor_product_split.cuh                      | b low        |
//                                                                      +--------------+
//
// Panels of 32 floats are lines of 128 bytes. The copy engine stores them swizzled: the 16-byte piece p of line i is at
// place p ^ (i % 8) of the line. Tensor cores read b in this order. The reads of a undo it, and meet no bank twice.
//
// Infinities and NaNs are no sums of TF32 numbers. A warp whose 16 rows of results are not all finite multiplies again
// with float32 operations from the original operands, in order, which gives the infinities and NaNs of float32. One of
// them in a spoils a row, and one in b a column, so the warp multiplies only these again if they are few.
//
// The block may start while the kernels before it end (programmatic dependent launch). It waits before it reads memory.
//
// Blocks walk over the tiles of all matrices of a batch. The code before this file defines GI_WIDTH (64, 96 or 128),
// GI_A_INNER (whether neighbours of a in memory are neighbours along the inner dimension), GI_STAGES, and gi_multiply.

constexpr int kStep = 32, kHeight = 128, kWidth = GI_WIDTH;
constexpr int kSums = kWidth / 2;                     // of a thread: 64 rows by kWidth columns over 128 threads
constexpr u32 kLine = 4 * kStep;                      // bytes of 32 floats
constexpr u32 kABytes = kHeight * kLine, kBBytes = kWidth * kLine, kStageBytes = kABytes + 2 * kBBytes;
constexpr int kMultipliers = 8, kThreads = 384;       // warps that multiply; threads of a block
constexpr int kRows = 16, kPair = 2;                  // of a warp; rows r and r + 8, which the same lanes read
constexpr int kFewPairs = 2, kFewColumns = 4;         // that a warp multiplies again alone
constexpr u32 kAll = 0xffffffffu;                     // lanes

struct alignas(64) TensorMap {  // CUtensorMap
  u64 opaque[16];
};

struct Matrix {
  const float* data;
  i64 line, inner, batch;  // strides: across and along the inner dimension, and between matrices
};

struct Params {
  Matrix a, b;  // the originals, for rows that are not finite
  float* out;
  const float* addend;  // may be `out`
  i64 out_row, out_column, out_batch, addend_row, addend_column, addend_batch;
  int m, n, k, steps;           // steps: of kStep elements
  int tiles;                    // of all matrices
  int tall, wide, group;        // tiles of a matrix in both directions; rows of tiles that are walked together
  int a_repeats, b_repeats;     // one matrix for the whole batch
  float alpha, beta;            // with a beta of 0 the addend is not read
};

// ---- barriers and copies of shared memory, by address in the shared window ------------------------------------------

GI_FN u32 gi_shared(const void* p) { return (u32)__cvta_generic_to_shared(p); }

GI_FN void gi_make_barrier(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
GI_FN void gi_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
GI_FN void gi_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Waits for the end of the phase of this parity.
GI_FN void gi_wait(u32 barrier, u32 parity) {
  u32 done;
  do {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
}
GI_FN void gi_fetch(u32 to, const TensorMap& map, u32 barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}
GI_FN void gi_fetch(u32 to, const TensorMap& map, u32 barrier, int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// ---- the tensor core ------------------------------------------------------------------------------------------------

// How wgmma reads lines of 128 bytes: swizzled (1 << 62), groups of eight lines 1024 bytes apart, in units of 16 bytes.
GI_FN u64 gi_panel(u32 address) { return (u64)(address >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62; }

// The compiler may neither move reads or writes of the accumulator past this point nor keep a copy of it.
GI_FN void gi_settle(float (&x)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

// ---- the roles ------------------------------------------------------------------------------------------------------

struct Tile {
  int batch, row, column;
};
// Walks down `group` rows of tiles before it goes to the next column of tiles, so that blocks that run at the same time
// read few different panels.
GI_FN Tile gi_tile(const Params& p, int index) {
  const int each = p.tall * p.wide, band = p.group * p.wide;
  const int at = index % each, first = at / band * p.group, rest = at % band;
  const int rows = p.tall - first < p.group ? p.tall - first : p.group;
  return {index / each, (first + rest % rows) * kHeight, rest / rows * kWidth};
}

// The place in the ring, and how often its parity has changed.
struct Place {
  int stage = 0;
  u32 parity = 0;
  __device__ void advance() {
    if (++stage < GI_STAGES) return;
    stage = 0;
    parity ^= 1;
  }
};

struct Ring {
  u32 memory, full, empty;  // addresses of the first ones
  __device__ u32 a(const Place& at) const { return memory + at.stage * kStageBytes; }
  __device__ u32 b(const Place& at) const { return a(at) + kABytes; }
  __device__ u32 filled(const Place& at) const { return full + 8 * at.stage; }
  __device__ u32 freed(const Place& at) const { return empty + 8 * at.stage; }
};

GI_FN void gi_load(const Params& p, const Ring& ring, const TensorMap& a_map, const TensorMap& b_map) {
  Place at;
  for (u32 t = blockIdx.x; t < (u32)p.tiles; t += gridDim.x) {
    const Tile tile = gi_tile(p, (int)t);
    const int a_batch = p.a_repeats ? 0 : tile.batch, b_batch = p.b_repeats ? 0 : tile.batch;
    for (int step = 0; step < p.steps; ++step, at.advance()) {
      const int k = step * kStep;
      const u32 full = ring.filled(at), a = ring.a(at);
      gi_wait(ring.freed(at), at.parity ^ 1);  // passes at once in the first round
      gi_expect(full, kStageBytes);
      if (GI_A_INNER)
        gi_fetch(a, a_map, full, k, tile.row, a_batch);
      else
        for (int i = 0; i < kHeight / 32; ++i)  // 32 lines along k of 32 rows each
          gi_fetch(a + i * 32 * kLine, a_map, full, tile.row + 32 * i, k, a_batch);
      gi_fetch(ring.b(at), b_map, full, k, tile.column, 0, b_batch);  // both planes
    }
  }
}

// Where element (row, k) of a's panel is, in bytes.
GI_FN u32 gi_a_offset(u32 row, u32 k) {
  const u32 line = GI_A_INNER ? row : k, along = GI_A_INNER ? k : row % 32;
  return (GI_A_INNER ? 0 : row / 32 * 32 * kLine) + line * kLine + ((along / 4 ^ line % 8) * 4 + along % 4) * 4;
}

GI_FN void gi_write_one(const Params& p, const Tile& tile, i64 m, i64 n, float sum) {
  const float x = p.alpha * sum;
  const i64 at = tile.batch * p.addend_batch + m * p.addend_row + n * p.addend_column;
  p.out[tile.batch * p.out_batch + m * p.out_row + n * p.out_column] = p.beta == 0 ? x : fmaf(p.beta, p.addend[at], x);
}

// Multiplies kCount of 16 rows, at equal distances, by kWidth columns with float32 operations; a lane has the columns
// lane, lane + 32, ...
template <int kCount>
GI_FN void gi_rows_in_float32(const Params& p, const Tile& tile, int row, int lane) {
  constexpr int kColumns = kWidth / 32, kAhead = kCount == kPair ? 16 : 8, kApart = kRows / kCount;
  const float* a = p.a.data + tile.batch * p.a.batch;
  const float* b = p.b.data + tile.batch * p.b.batch;
  const float* column[kColumns];
  float sum[kCount][kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int n = tile.column + lane + 32 * c;
    column[c] = b + (i64)(n < p.n ? n : p.n - 1) * p.b.line;
#pragma unroll
    for (int r = 0; r < kCount; ++r) sum[r][c] = 0;
  }
  for (i64 first = 0; first < p.k; first += 32) {
    float mine[kCount];  // of column first + lane of a
#pragma unroll
    for (int r = 0; r < kCount; ++r) {
      const int m = row + r * kApart < p.m ? row + r * kApart : p.m - 1;
      mine[r] = first + lane < p.k ? a[m * p.a.line + (first + lane) * p.a.inner] : 0;
    }
#pragma unroll 1
    for (int u = 0; u < 32; u += kAhead) {
      float y[kAhead][kColumns];
#pragma unroll
      for (int v = 0; v < kAhead; ++v)
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          y[v][c] = first + u + v < p.k ? column[c][(first + u + v) * p.b.inner] : 0;
#pragma unroll
      for (int v = 0; v < kAhead; ++v)
#pragma unroll
        for (int r = 0; r < kCount; ++r) {
          const float x = __shfl_sync(kAll, mine[r], u + v);
#pragma unroll
          for (int c = 0; c < kColumns; ++c) sum[r][c] = fmaf(x, y[v][c], sum[r][c]);
        }
    }
  }
#pragma unroll
  for (int r = 0; r < kCount; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const i64 m = row + r * kApart, n = tile.column + lane + 32 * c;
      if (m < p.m && n < p.n) gi_write_one(p, tile, m, n, sum[r][c]);
    }
}

// Multiplies 16 rows by one column with float32 operations; a lane has row lane % 16, and writes it if `write`.
GI_FN void gi_column_in_float32(const Params& p, const Tile& tile, int row, int column, int lane, bool write) {
  constexpr int kAhead = 16;
  const int m = row + lane % kRows < p.m ? row + lane % kRows : p.m - 1;
  const float* a = p.a.data + tile.batch * p.a.batch + m * p.a.line;
  const float* b = p.b.data + tile.batch * p.b.batch + (i64)(column < p.n ? column : p.n - 1) * p.b.line;
  float sum = 0;
#pragma unroll 1
  for (i64 first = 0; first < p.k; first += kAhead) {
    float x[kAhead], y[kAhead];
#pragma unroll
    for (int v = 0; v < kAhead; ++v) {
      x[v] = first + v < p.k ? a[(first + v) * p.a.inner] : 0;
      y[v] = first + v < p.k ? b[(first + v) * p.b.inner] : 0;
    }
#pragma unroll
    for (int v = 0; v < kAhead; ++v) sum = fmaf(x[v], y[v], sum);
  }
  if (write && row + lane < p.m && column < p.n) gi_write_one(p, tile, row + lane, column, sum);
}

// Whether neighbours along a row can be accessed in pairs.
GI_FN bool gi_has_pairs(const float* data, i64 row, i64 column, i64 batch) {
  return column == 1 && row % 2 == 0 && batch % 2 == 0 && (u64)data % 8 == 0;
}

// A thread's sums 4 j + 2 h + i are those of row lane / 4 + 8 h and column 8 j + 2 (lane % 4) + i.
//
// All elements of a row of the addend are loaded before they are used. The results are written later, because they may
// have the same memory.
GI_FN void gi_scale(const Params& p, const Tile& tile, float (&sum)[kSums], int row, int lane) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum[i] *= p.alpha;
  if (p.beta == 0) return;
  const bool whole = gi_has_pairs(p.addend, p.addend_row, p.addend_column, p.addend_batch) &&
                     tile.column + kWidth <= p.n;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const i64 m = row + lane / 4 + 8 * h;
    if (m >= p.m) continue;
    const float* addend = p.addend + tile.batch * p.addend_batch + m * p.addend_row;
    float2 c[kWidth / 8];
    if (whole) {
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j)
        c[j] = *reinterpret_cast<const float2*>(addend + tile.column + 8 * j + 2 * (lane % 4));
    } else {
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j) {
        const i64 n = tile.column + 8 * j + 2 * (lane % 4);
        c[j].x = n < p.n ? addend[n * p.addend_column] : 0;
        c[j].y = n + 1 < p.n ? addend[(n + 1) * p.addend_column] : 0;
      }
    }
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
      float* x = &sum[4 * j + 2 * h];
      x[0] = fmaf(p.beta, c[j].x, x[0]);
      x[1] = fmaf(p.beta, c[j].y, x[1]);
    }
  }
}

GI_FN void gi_write(const Params& p, const Tile& tile, const float (&sum)[kSums], int row, int lane) {
  const bool pairs = gi_has_pairs(p.out, p.out_row, p.out_column, p.out_batch);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const i64 m = row + lane / 4 + 8 * h;
    if (m >= p.m) continue;
    float* out = p.out + tile.batch * p.out_batch + m * p.out_row;
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
      const i64 n = tile.column + 8 * j + 2 * (lane % 4);
      const float *both = &sum[4 * j + 2 * h];
      if (pairs && n + 1 < p.n) {
        *reinterpret_cast<float2*>(out + n) = make_float2(both[0], both[1]);
        continue;
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (n + i < p.n) out[(n + i) * p.out_column] = both[i];
    }
  }
}

// Writes results that are not all finite. `a_spoiled` says whether the lane read an infinity or a NaN of a, in one of its
// two rows. Finite results are written before others are multiplied again, so that no sums have to be kept.
//
// Loops have constant bounds, and votes decide what they do. A loop over the bits of a mask would hide from the compiler
// that the warp stays together. It would then keep the ring's addresses in registers of lanes instead of those of warps,
// and all products would be up to 17 % slower.
GI_FN void gi_write_not_finite(const Params& p, const Tile& tile, float (&sum)[kSums], bool a_spoiled, int row,
                               int lane) {
  const u32 lanes = __ballot_sync(kAll, a_spoiled);
  u32 pairs = 0, columns = 0;  // bit r: rows r and r + 8; bit 2 j + i: column 8 j + 2 (lane % 4) + i
#pragma unroll
  for (int r = 0; r < 8; ++r) pairs |= (u32)((lanes >> 4 * r & 15) != 0) << r;
  const bool mine = pairs >> (lane / 4) & 1;
#pragma unroll
  for (int i = 0; i < kSums / 2; ++i) {
    const float upper = sum[i / 2 * 4 + i % 2], lower = sum[i / 2 * 4 + 2 + i % 2];
    columns |= (u32)(!mine && !(fabsf(upper) <= 3.402823466e38f && fabsf(lower) <= 3.402823466e38f)) << i;
  }
#pragma unroll
  for (int other = 4; other < 32; other *= 2) columns |= __shfl_xor_sync(kAll, columns, other);
  int count = __popc(columns);
  count += __shfl_xor_sync(kAll, count, 1);
  count += __shfl_xor_sync(kAll, count, 2);
  if (__any_sync(kAll, __popc(pairs) > kFewPairs || count > kFewColumns)) {
    gi_rows_in_float32<kRows>(p, tile, row, lane);
    return;
  }
  gi_scale(p, tile, sum, row, lane);
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const i64 m = row + lane / 4 + i / 2 % 2 * 8, n = tile.column + i / 4 * 8 + 2 * (lane % 4) + i % 2;
    const bool again = mine || (columns >> (i / 4 * 2 + i % 2) & 1);
    if (!again && m < p.m && n < p.n) p.out[tile.batch * p.out_batch + m * p.out_row + n * p.out_column] = sum[i];
  }
#pragma unroll 1
  for (int r = 0; r < 8; ++r)
    if (__any_sync(kAll, pairs >> r & 1)) gi_rows_in_float32<kPair>(p, tile, row + r, lane);
#pragma unroll 1
  for (int n = 0; n < kWidth; ++n)
    if (__any_sync(kAll, lane % 4 == n % 8 / 2 && (columns >> (n / 8 * 2 + n % 2) & 1)))
      gi_column_in_float32(p, tile, row, tile.column + n, lane, lane < kRows && !(pairs >> lane % 8 & 1));
}

GI_FN void gi_multiply_tiles(const Params& p, const Ring& ring, int warp, int lane) {
  const int first = warp * 16;  // row of the tile
  float sum[kSums], step_sum[kSums] = {}, check;
  u32 x[16], high[16], low[16];  // 4 i + 2 j + h: row lane / 4 + 8 h, column 8 i + 4 j + lane % 4 of a
  Place at;
  auto read = [&] {
    const u32 a = ring.a(at);
    gi_wait(ring.filled(at), at.parity);
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const u32 from = a + gi_a_offset(first + lane / 4 + 8 * h, 4 * j + lane % 4);
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x[2 * j + h]) : "r"(from) : "memory");
      }
    // Volatile, so that it stays here, where it runs during a multiplication. NaN after an infinity or a NaN, which
    // rounding to TF32 may lose.
#pragma unroll
    for (int i = 0; i < 16; ++i) asm volatile("fma.rn.f32 %0, %1, 0f00000000, %0;" : "+f"(check) : "f"(gi_float(x[i])));
  };
  for (u32 t = blockIdx.x; t < (u32)p.tiles; t += gridDim.x) {
    const Tile tile = gi_tile(p, (int)t);
    check = 0;
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum[i] = 0;
    read();
    for (int step = 0; step < p.steps; ++step) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        high[i] = gi_round_to_tf32(x[i]);
        low[i] = gi_round_to_tf32(gi_bits(gi_float(x[i]) - gi_float(high[i])));
      }
      const u64 b_high = gi_panel(ring.b(at)), b_low = gi_panel(ring.b(at) + kBBytes);
      const u32 freed = ring.freed(at);
      gi_settle(step_sum);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      // 8 elements of the inner dimension each, 32 bytes further; the smaller products first.
#pragma unroll
      for (int i = 0; i < 4; ++i) gi_multiply(step_sum, low + 4 * i, b_high + 2 * i, i > 0);
#pragma unroll
      for (int i = 0; i < 4; ++i) gi_multiply(step_sum, high + 4 * i, b_low + 2 * i, 1);
#pragma unroll
      for (int i = 0; i < 4; ++i) gi_multiply(step_sum, high + 4 * i, b_high + 2 * i, 1);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      at.advance();
      if (step + 1 < p.steps) read();  // during the multiplication
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      gi_settle(step_sum);
      if (lane == 0) gi_arrive(freed);
#pragma unroll
      for (int i = 0; i < kSums; ++i) sum[i] += step_sum[i];
    }
    float all = check;
#pragma unroll
    for (int i = 0; i < kSums; ++i) all = fmaf(sum[i], 0.0f, all);
    const int row = tile.row + first;
    if (__any_sync(kAll, all != all)) {
      gi_write_not_finite(p, tile, sum, check != check, row, lane);
    } else {
      gi_scale(p, tile, sum, row, lane);
      gi_write(p, tile, sum, row, lane);
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    gi_tensor_product(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
                      const __grid_constant__ Params p) {
  extern __shared__ char memory[];
  __shared__ alignas(8) u64 barriers[2 * GI_STAGES];
  // Swizzled panels begin at multiples of 1024 bytes.
  const Ring ring = {(gi_shared(memory) + 1023) & ~1023u, gi_shared(barriers), gi_shared(barriers + GI_STAGES)};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < GI_STAGES; ++i) {
      gi_make_barrier(ring.full + 8 * i, 1);
      gi_make_barrier(ring.empty + 8 * i, kMultipliers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  asm volatile("griddepcontrol.wait;" ::: "memory");
  // 65,536 registers of a multiprocessor: 128 threads with 40 and 256 with 232.
  if (warp >= kMultipliers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 32 * kMultipliers) gi_load(p, ring, a_map, b_map);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    gi_multiply_tiles(p, ring, warp, lane);
  }
}
