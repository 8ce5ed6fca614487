// Reductions whose results are neighbours in memory. Each thread owns GI_VEC columns, and GI_TEAM threads
// cover a stripe of columns. The GI_BLOCK / GI_TEAM rows of threads of a block share the reduced axes. Macros as
// in rows.cuh; steps are along the innermost kept dimension. GI_APART: the columns of a thread are
// GI_TEAM apart, so that neighbouring threads access neighbours; otherwise they are one vector. GI_RAGGED: some
// thread owns fewer columns.
constexpr int kApart = GI_APART ? GI_TEAM : 1;

__device__ inline void gi_column_load(const Params& p, const Index (&base)[GI_INS], Index r, int live,
                                      Packs<GI_VEC>& packs) {
  Index at[GI_INS];
#pragma unroll
  for (int i = 0; i < GI_INS; ++i) at[i] = base[i];
  gi_offsets(p.red, p.red_strides, r, at);
#define GI_LOAD(i, T, STEP) \
  gi_load<STEP>((const T*)p.in[i] + at[i], Index(p.kept_strides[i][GI_KEPT - 1]) * kApart, packs.v##i, live);
  GI_INPUTS(GI_LOAD)
#undef GI_LOAD
}

template <int N>
__device__ inline void gi_column_push(Acc (&acc)[GI_VEC], const Packs<GI_VEC> (&packs)[N], const Fixed& fixed,
                                      Index r, Index step) {
#pragma unroll
  for (int k = 0; k < GI_VEC; ++k) {
    Value v[N];
#pragma unroll
    for (int u = 0; u < N; ++u) v[u] = gi_map(packs[u], fixed, k);
    Op::push(acc[k], v, r, step);
  }
}

// Merge the accumulators of the threads of each column; the result is in row 0 of the block.
__device__ inline void gi_column_merge(Acc (&acc)[GI_VEC], int tx, int ty) {
  __shared__ Acc shared[GI_BLOCK / 2 * GI_VEC];
#pragma unroll
  for (int half = GI_BLOCK / GI_TEAM / 2; half > 0; half /= 2) {
    if (ty >= half && ty < 2 * half) {
#pragma unroll
      for (int k = 0; k < GI_VEC; ++k) shared[((ty - half) * GI_VEC + k) * GI_TEAM + tx] = acc[k];
    }
    __syncthreads();
    if (ty < half) {
#pragma unroll
      for (int k = 0; k < GI_VEC; ++k) Op::merge(acc[k], shared[(ty * GI_VEC + k) * GI_TEAM + tx]);
    }
    __syncthreads();
  }
}

// Merge the parts of SIDE neighbouring columns; `o` is this thread's column, `here` whether it exists. The
// threads of the block share the parts of each column. Each thread loads four parts at a time, because
// the parts are in the cache and latency is the only cost.
template <int SIDE>
__device__ inline void gi_join_columns(const Params& p, Index o, bool here) {
  __shared__ Acc shared[GI_BLOCK];
  const int rows = GI_BLOCK / SIDE;
  const int ty = threadIdx.x / SIDE;
  Acc acc = Op::init();
  if (here) {
    const Acc* parts = (const Acc*)p.scratch + o;
    Index s = ty;
    for (; s + 3 * rows < Index(p.splits); s += 4 * rows) {
      Acc next[4];
#pragma unroll
      for (int u = 0; u < 4; ++u) next[u] = parts[(s + u * rows) * Index(p.n_out)];
#pragma unroll
      for (int u = 0; u < 4; ++u) Op::merge(acc, next[u]);
    }
    for (; s < Index(p.splits); s += rows) Op::merge(acc, parts[s * Index(p.n_out)]);
  }
#pragma unroll
  for (int half = rows / 2; half > 0; half /= 2) {
    if (ty >= half && ty < 2 * half) shared[threadIdx.x] = acc;
    __syncthreads();
    if (ty < half) Op::merge(acc, shared[threadIdx.x + half * SIDE]);
    __syncthreads();
  }
  if (ty == 0 && here) gi_store(p, o, acc);
}

extern "C" __global__ void __launch_bounds__(GI_BLOCK) gi_reduce_columns(const Params p) {
  const int rows = GI_BLOCK / GI_TEAM;
  const int tx = threadIdx.x % GI_TEAM, ty = threadIdx.x / GI_TEAM;
  const Index batch = Index(blockIdx.x) / Index(p.tiles);
  const Index tile = Index(blockIdx.x) - batch * Index(p.tiles);
  const Index width = Index(p.kept[GI_KEPT - 1]);
  const Index column = tile * (GI_TEAM * GI_VEC) + tx * (GI_APART ? 1 : GI_VEC);
  const Index o = batch * width + column;
  const bool cut = GI_RAGGED && width - column <= (GI_VEC - 1) * kApart;
  const int live = cut ? (int(width - column) + kApart - 1) / kApart : GI_VEC;
  const Index begin = Index(blockIdx.y) * Index(p.chunk);
  Index end = begin + Index(p.chunk) < Index(p.n_red) ? begin + Index(p.chunk) : Index(p.n_red);
  Index base[GI_INS];
#pragma unroll
  for (int i = 0; i < GI_INS; ++i) base[i] = 0;
  if (column < width) {
    gi_offsets(p.kept, p.kept_strides, o, base);
  } else {
    end = begin;  // this thread has no column, but the barriers below need every thread
  }

  Fixed fixed;
  if (begin < end) {
#define GI_LOAD(i, T, STEP) \
  gi_load<STEP>((const T*)p.in[i] + base[i], Index(p.kept_strides[i][GI_KEPT - 1]) * kApart, fixed.v##i, live);
    GI_FIXED(GI_LOAD)
#undef GI_LOAD
  }
  Acc acc[GI_VEC];
#pragma unroll
  for (int k = 0; k < GI_VEC; ++k) acc[k] = Op::init();
  Index r = begin + ty;
  for (; r + Index(GI_UNROLL - 1) * rows < end; r += Index(GI_UNROLL) * rows) {
    Packs<GI_VEC> packs[GI_UNROLL];
#pragma unroll
    for (int u = 0; u < GI_UNROLL; ++u) gi_column_load(p, base, r + Index(u) * rows, live, packs[u]);
    gi_column_push<GI_UNROLL>(acc, packs, fixed, r, Index(rows));
  }
  if (r < end) {  // the rest of a round, again with all loads first
    Packs<GI_VEC> packs[GI_UNROLL][1];
#pragma unroll
    for (int u = 0; u < GI_UNROLL - 1; ++u)
      if (r + Index(u) * rows < end) gi_column_load(p, base, r + Index(u) * rows, live, packs[u][0]);
#pragma unroll
    for (int u = 0; u < GI_UNROLL - 1; ++u)
      if (r + Index(u) * rows < end)
        gi_column_push<1>(acc, packs[u], fixed, r + Index(u) * rows, Index(rows));
  }

  gi_column_merge(acc, tx, ty);
  if (ty == 0 && column < width) {
#pragma unroll
    for (int k = 0; k < GI_VEC; ++k) {
      if (k >= live) break;
      if (p.splits > 1) {
        ((Acc*)p.scratch)[Index(blockIdx.y) * Index(p.n_out) + o + k * kApart] = acc[k];
      } else {
        gi_store(p, o + k * kApart, acc[k]);
      }
    }
  }
#if GI_ONE_LAUNCH
  if (gi_is_last((unsigned*)p.block_counters + blockIdx.x, gridDim.y)) {
    const int columns = GI_TEAM * GI_VEC;
    const int side = columns < GI_BLOCK ? columns : GI_BLOCK;
    for (int c = threadIdx.x % side; c < columns; c += side) {
      const Index mine = tile * columns + c;
      gi_join_columns<side>(p, batch * width + mine, mine < width);
    }
  }
#endif
}

// The second launch, if the parts are merged in a separate launch: GI_FINISH_TEAM columns per block.
extern "C" __global__ void __launch_bounds__(GI_BLOCK) gi_finish_columns(const Params p) {
  const Index o = Index(blockIdx.x) * GI_FINISH_TEAM + threadIdx.x % GI_FINISH_TEAM;
  gi_join_columns<GI_FINISH_TEAM>(p, o, o < Index(p.n_out));
}
