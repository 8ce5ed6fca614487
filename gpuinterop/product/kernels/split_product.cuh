// Products of matrices with few rows and columns and a long inner dimension. A block multiplies a tile of
// GI_M rows of a by GI_N columns of b over one part of the inner dimension; a reduction then adds the parts.
//
// The code before this file defines: Element (in memory), Sum, GI_M, GI_N, GI_STEPS (of the inner dimension
// that a block loads at once), and for both operands whether neighbours in memory are neighbours along the
// inner dimension (GI_A_INNER, GI_B_INNER) and how many are loaded at once (GI_A_VEC, GI_B_VEC). A thread owns
// GI_OWN x GI_OWN results. GI_BLOCKS: blocks that a multiprocessor runs at once.
typedef long long Index;

struct Params {
  const Element *a, *b;
  Sum* parts;  // [part][row][column]
  Index m, n, k, chunk, tiles;  // tiles: side by side
  Index a_line, a_step, b_line, b_step;  // strides across and along the inner dimension
};

constexpr int kThreads = 256, kOwn = GI_OWN;
constexpr int kAcross = GI_N / kOwn, kGroup = GI_M / kOwn * kAcross;  // threads that share a step
constexpr int kGroups = kThreads / kGroup;
constexpr int kPad = 16 / sizeof(Sum);

struct alignas(16) Own {
  Sum x[kOwn];
};

// This thread's elements of LINES rows of a, or columns of b, and GI_STEPS steps.
template <int LINES, bool INNER, int VEC>
struct Panel {
  static constexpr int kTurns = LINES * GI_STEPS / kThreads / VEC;
  struct alignas(sizeof(Element) * VEC) Pack {
    Element x[VEC];
  } held[kTurns];

  // Packs along the inner dimension: 16 neighbouring threads load from neighbouring lines, whose elements become
  // neighbours in shared memory, so that the stores have no bank conflicts; the next 16 load the other half
  // of the same sectors. Elsewhere threads load neighbours.
  static constexpr bool kByLine = !INNER || VEC > 1;
  static constexpr int kSide = LINES < 16 ? LINES : 16, kPacks = GI_STEPS / VEC;
  __device__ static int at(int u) { return int(threadIdx.x) + u * kThreads; }
  __device__ static int line(int u) {
    return !kByLine ? at(u) / GI_STEPS
           : INNER  ? at(u) / (kSide * kPacks) * kSide + at(u) % kSide
                    : at(u) * VEC % LINES;
  }
  __device__ static int step(int u) {
    return !kByLine ? at(u) % GI_STEPS
           : INNER  ? at(u) / kSide % kPacks * VEC
                    : at(u) * VEC / LINES;
  }

  // `lines` and `steps` exist from p on; zeros take the place of the others.
  __device__ void load(const Element* p, Index lines, Index steps, Index line_stride, Index step_stride) {
#pragma unroll
    for (int u = 0; u < kTurns; ++u) {
      const Element* from = p + line(u) * line_stride + step(u) * step_stride;
      if (line(u) + (INNER ? 0 : VEC - 1) < lines && step(u) + (INNER ? VEC - 1 : 0) < steps) {
        held[u] = *reinterpret_cast<const Pack*>(from);
        continue;
      }
#pragma unroll
      for (int v = 0; v < VEC; ++v)
        held[u].x[v] =
            line(u) + (INNER ? 0 : v) < lines && step(u) + (INNER ? v : 0) < steps ? from[v] : Element();
    }
  }
  __device__ void store(Sum (*to)[LINES + kPad]) const {
#pragma unroll
    for (int u = 0; u < kTurns; ++u) {
      if constexpr (INNER || VEC == 1) {
#pragma unroll
        for (int v = 0; v < VEC; ++v) to[step(u) + v][line(u)] = gi_to<Sum>(held[u].x[v]);
      } else {
        struct alignas(sizeof(Sum) * VEC < 16 ? sizeof(Sum) * VEC : 16) Sums {
          Sum x[VEC];
        } sums;
#pragma unroll
        for (int v = 0; v < VEC; ++v) sums.x[v] = gi_to<Sum>(held[u].x[v]);
        *reinterpret_cast<Sums*>(&to[step(u)][line(u)]) = sums;
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, GI_BLOCKS) gi_split_product(const Params p) {
  constexpr int kPanels = GI_STEPS * (GI_M + GI_N + 2 * kPad), kMerge = kThreads / 2 * kOwn * kOwn;
  alignas(16) __shared__ Sum shared[kPanels > kMerge ? kPanels : kMerge];
  auto a_panel = reinterpret_cast<Sum(*)[GI_M + kPad]>(shared);
  auto b_panel = reinterpret_cast<Sum(*)[GI_N + kPad]>(shared + GI_STEPS * (GI_M + kPad));
  const int group = threadIdx.x / kGroup, down = threadIdx.x % kGroup / kAcross, across = threadIdx.x % kAcross;
  const Index row = Index(blockIdx.y) / p.tiles * GI_M, column = Index(blockIdx.y) % p.tiles * GI_N;
  const Index begin = Index(blockIdx.x) * p.chunk;
  const Index end = begin + p.chunk < p.k ? begin + p.chunk : p.k;
  const Element* a = p.a + row * p.a_line + begin * p.a_step;
  const Element* b = p.b + column * p.b_line + begin * p.b_step;
  Panel<GI_M, GI_A_INNER, GI_A_VEC> from_a;
  Panel<GI_N, GI_B_INNER, GI_B_VEC> from_b;
  Own own[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
#pragma unroll
    for (int j = 0; j < kOwn; ++j) own[i].x[j] = 0;

  from_a.load(a, p.m - row, end - begin, p.a_line, p.a_step);
  from_b.load(b, p.n - column, end - begin, p.b_line, p.b_step);
  for (Index left = end - begin; left > 0; left -= GI_STEPS) {
    from_a.store(a_panel);
    from_b.store(b_panel);
    __syncthreads();
    if (left > GI_STEPS) {  // the next panels arrive during the multiplication
      a += GI_STEPS * p.a_step;
      b += GI_STEPS * p.b_step;
      from_a.load(a, p.m - row, left - GI_STEPS, p.a_line, p.a_step);
      from_b.load(b, p.n - column, left - GI_STEPS, p.b_line, p.b_step);
    }
#pragma unroll
    for (int s = 0; s < GI_STEPS / kGroups; ++s) {
      const int step = s * kGroups + group;
      const Own x = *reinterpret_cast<const Own*>(&a_panel[step][down * kOwn]);
      const Own y = *reinterpret_cast<const Own*>(&b_panel[step][across * kOwn]);
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
#pragma unroll
        for (int j = 0; j < kOwn; ++j) own[i].x[j] = gi_fma(x.x[i], y.x[j], own[i].x[j]);
    }
    __syncthreads();
  }

#pragma unroll
  for (int half = kGroups / 2; half > 0; half /= 2) {
    const int at = int(threadIdx.x) % (half * kGroup);
#pragma unroll
    for (int x = 0; x < kOwn * kOwn; ++x)
      if (group >= half && group < 2 * half) shared[x * (kThreads / 2) + at] = own[x / kOwn].x[x % kOwn];
    __syncthreads();
#pragma unroll
    for (int x = 0; x < kOwn * kOwn; ++x)
      if (group < half) own[x / kOwn].x[x % kOwn] += shared[x * (kThreads / 2) + at];
    __syncthreads();
  }
  if (group > 0) return;
#pragma unroll
  for (int x = 0; x < kOwn * kOwn; ++x) {
    const Index i = row + down * kOwn + x / kOwn, j = column + across * kOwn + x % kOwn;
    if (i < p.m && j < p.n) p.parts[(Index(blockIdx.x) * p.m + i) * p.n + j] = own[x / kOwn].x[x % kOwn];
  }
}
