// What a product on tensor cores needs before it: b split into two planes of TF32 numbers, high and low, and a copy of an
// a that the copy engine cannot read, because its lines do not begin at multiples of 16 bytes.

// ---- the planes of b: [batch][high, low][line][inner], the inner length padded to a multiple of 32 by zeros -----------

constexpr int kTile = 64, kThreads = 256, kSide = 16;  // a block splits kTile lines by kTile elements

struct Split {
  const float* from;
  float* to;
  i64 line, inner, batch;  // strides of `from`; line or inner is 1
  int lines, length, padded, down, across;  // down x across tiles of a matrix
};

// Four elements from `from` on, of which `left` exist.
GI_FN float4 gi_four(const float* from, i64 left, bool aligned) {
  if (aligned && left >= 4) return *reinterpret_cast<const float4*>(from);
  return make_float4(left > 0 ? from[0] : 0, left > 1 ? from[1] : 0, left > 2 ? from[2] : 0, left > 3 ? from[3] : 0);
}

// One access of 16 bytes. The compiler makes four of an assignment in these kernels.
GI_FN void gi_store_four(float* to, float x, float y, float z, float w) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}

// A finite number has finite parts, an infinity is high alone, and a NaN stays one.
struct Parts {
  float high, low;
};
GI_FN Parts gi_split(float x) {
  const u32 bits = gi_bits(x), top = bits & 0x7f800000u;
  u32 rounded = gi_round_to_tf32(bits);
  if (top == 0x7f800000u)
    rounded = x == x ? bits : 0x7fffe000u;
  else if ((rounded & 0x7f800000u) == 0x7f800000u)
    rounded = bits & ~0x1fffu;
  const float high = gi_float(rounded);
  return {high, top == 0x7f800000u ? 0 : gi_float(gi_round_to_tf32(gi_bits(x - high)))};
}

// The next kernel may start as soon as multiprocessors have room for it. It waits for the results.
GI_FN void gi_let_next_start() { asm volatile("griddepcontrol.launch_dependents;"); }

extern "C" __global__ void __launch_bounds__(kThreads) gi_tensor_split(const Split p) {
  gi_let_next_start();
  __shared__ float shared[kTile][kTile + 1];
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  const int each = p.down * p.across, index = blockIdx.x % each;
  const i64 batch = blockIdx.x / each;
  const bool inner = p.inner == 1;
  // Neighbouring blocks read neighbours in memory.
  const i64 line = (i64)(inner ? index / p.across : index % p.down) * kTile;
  const i64 first = (i64)(inner ? index % p.across : index / p.down) * kTile;
  const float* from = p.from + batch * p.batch;
  const i64 pitch = inner ? p.line : p.inner;
  const bool aligned = pitch % 4 == 0 && p.batch % 4 == 0 && (u64)p.from % 16 == 0;
  float4 v[kTile / kSide];
#pragma unroll
  for (int i = 0; i < kTile / kSide; ++i) {
    const i64 row = (inner ? line : first) + y + kSide * i, column = (inner ? first : line) + 4 * x;
    const i64 rows = inner ? p.lines : p.length, columns = inner ? p.length : p.lines;
    v[i] = gi_four(from + row * pitch + column, row < rows ? columns - column : 0, aligned);
  }
  if (!inner) {
#pragma unroll
    for (int i = 0; i < kTile / kSide; ++i) {
      float* to = &shared[y + kSide * i][4 * x];
      to[0] = v[i].x, to[1] = v[i].y, to[2] = v[i].z, to[3] = v[i].w;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile / kSide; ++i) {
      const int at = y + kSide * i;
      v[i] = make_float4(shared[4 * x][at], shared[4 * x + 1][at], shared[4 * x + 2][at], shared[4 * x + 3][at]);
    }
  }
#pragma unroll
  for (int i = 0; i < kTile / kSide; ++i) {
    const i64 row = line + y + kSide * i, k = first + 4 * x, plane = (i64)p.lines * p.padded;
    if (row >= p.lines || k >= p.padded) continue;
    const Parts s = gi_split(v[i].x), t = gi_split(v[i].y), u = gi_split(v[i].z), w = gi_split(v[i].w);
    float* to = p.to + 2 * batch * plane + row * p.padded + k;
    gi_store_four(to, s.high, t.high, u.high, w.high);
    gi_store_four(to + plane, s.low, t.low, u.low, w.low);
  }
}

// ---- the copy of a: [batch][line][pitch], the pitch a multiple of 4 -----------------------------------------------------

struct Copy {
  const float* from;
  float* to;
  i64 line, batch, total;  // strides of `from`; lines of all matrices
  int lines, length, pitch;
  int threads, across;  // threads beside each other on a line, a power of two; blocks beside each other
};

extern "C" __global__ void __launch_bounds__(kThreads) gi_tensor_copy(const Copy p) {
  gi_let_next_start();
  const i64 line = (i64)(blockIdx.x / p.across) * (kThreads / p.threads) + threadIdx.x / p.threads;
  const i64 at = 4 * ((i64)(blockIdx.x % p.across) * p.threads + threadIdx.x % p.threads);
  if (line >= p.total || at >= p.pitch) return;
  const float* from = p.from + line / p.lines * p.batch + line % p.lines * p.line;
  const float4 v = gi_four(from + at, p.length - at, false);
  gi_store_four(p.to + line * p.pitch + at, v.x, v.y, v.z, v.w);
}
