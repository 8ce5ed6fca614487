// Reductions of elements that are neighbours along the reduced axes: GI_TEAM threads share a row.
//
// The code before this file defines: Index, Value, Acc, Op (accumulators.cuh), GI_BLOCK, GI_TEAM (a power of
// two, or GI_BLOCK), GI_VEC, GI_UNROLL, GI_KEPT and GI_RED (dimensions, >= 1, innermost last), struct Params,
// gi_store(p, o, acc), and a Pack for each input i: GI_INPUTS(X) lists X(i, storage type, step), where step is
// 1 (unit stride along the row: vector loads), 0 (broadcast) or 2 (any stride). GI_FIXED(X) lists the inputs that
// do not change along the reduced axes, which are loaded once. gi_map(packs, fixed, k) is element k of the
// mapped value. GI_PEEL: rows are not aligned, and GI_PEELED(X) is the one input with unit stride. GI_ROWS > 0: a
// thread reduces this many short rows of GI_UNROLL loads each.

template <int VEC>
__device__ inline void gi_row_load(const Params& p, const Index (&base)[GI_INS], Index r,
                                   Packs<VEC>& packs) {
  Index at[GI_INS];
#pragma unroll
  for (int i = 0; i < GI_INS; ++i) at[i] = base[i];
  gi_offsets(p.red, p.red_strides, r, at);
#define GI_LOAD(i, T, STEP) \
  gi_load<STEP>((const T*)p.in[i] + at[i], Index(p.red_strides[i][GI_RED - 1]), packs.v##i);
  GI_INPUTS(GI_LOAD)
#undef GI_LOAD
}

__device__ inline void gi_row_load_fixed(const Params& p, const Index (&base)[GI_INS], Fixed& fixed) {
#define GI_LOAD(i, T, STEP) gi_load<0>((const T*)p.in[i] + base[i], Index(0), fixed.v##i);
  GI_FIXED(GI_LOAD)
#undef GI_LOAD
}

template <int VEC>
__device__ inline void gi_row_push(Acc& acc, const Packs<VEC>& packs, const Fixed& fixed, Index r) {
  Value v[VEC];
#pragma unroll
  for (int k = 0; k < VEC; ++k) v[k] = gi_map(packs, fixed, k);
  Op::push(acc, v, r, Index(1));
}

// Merge the parts of a row in one block, in an order that does not depend on which block finished last.
__device__ inline void gi_join_row(const Params& p, Index o) {
  const Acc* parts = (const Acc*)p.scratch + o * Index(p.splits);
  Acc acc = Op::init();
  Index s = threadIdx.x;
  for (; s + 3 * GI_BLOCK < Index(p.splits); s += 4 * GI_BLOCK) {
    Acc next[4];  // loaded together, because the latency of the cache is the only cost
#pragma unroll
    for (int u = 0; u < 4; ++u) next[u] = parts[s + u * GI_BLOCK];
#pragma unroll
    for (int u = 0; u < 4; ++u) Op::merge(acc, next[u]);
  }
  for (; s < Index(p.splits); s += GI_BLOCK) Op::merge(acc, parts[s]);
  gi_team_merge<GI_BLOCK>(acc);
  if (threadIdx.x == 0) gi_store(p, o, acc);
}

extern "C" __global__ void __launch_bounds__(GI_BLOCK) gi_reduce_rows(const Params p) {
#if GI_ROWS
  const Index first = Index(blockIdx.x) * (GI_BLOCK * GI_ROWS) + threadIdx.x;
  Packs<GI_VEC> packs[GI_ROWS][GI_UNROLL];
  Fixed fixed[GI_ROWS];
#pragma unroll
  for (int j = 0; j < GI_ROWS; ++j) {
    const Index o = first + j * GI_BLOCK;
    Index base[GI_INS] = {};
    // Threads past the end read the last row again.
    gi_offsets(p.kept, p.kept_strides, o < Index(p.n_out) ? o : Index(p.n_out) - 1, base);
    gi_row_load_fixed(p, base, fixed[j]);
#pragma unroll
    for (int u = 0; u < GI_UNROLL; ++u) gi_row_load<GI_VEC>(p, base, Index(u * GI_VEC), packs[j][u]);
  }
#pragma unroll
  for (int j = 0; j < GI_ROWS; ++j) {
    const Index o = first + j * GI_BLOCK;
    Acc acc = Op::init();
#pragma unroll
    for (int u = 0; u < GI_UNROLL; ++u) gi_row_push<GI_VEC>(acc, packs[j][u], fixed[j], Index(u * GI_VEC));
    if (o < Index(p.n_out)) gi_store(p, o, acc);
  }
#else
  const int lane = threadIdx.x % GI_TEAM;
  const Index o = Index(blockIdx.x) * (GI_BLOCK / GI_TEAM) + threadIdx.x / GI_TEAM;
  const Index begin = Index(blockIdx.y) * Index(p.chunk);
  Index end = begin + Index(p.chunk) < Index(p.n_red) ? begin + Index(p.chunk) : Index(p.n_red);
  Index base[GI_INS];
#pragma unroll
  for (int i = 0; i < GI_INS; ++i) base[i] = 0;
  if (o < Index(p.n_out)) {
    gi_offsets(p.kept, p.kept_strides, o, base);
  } else {
    end = begin;  // this thread has no row, but the shuffles below need every thread
  }

  // Vectors begin at the first aligned element.
  Index head = 0;
#if GI_PEEL
#define GI_PLACE(i, T, STEP) Index((unsigned long long)((const T*)p.in[i] + base[i] + begin) / sizeof(T) % GI_VEC)
  head = (GI_VEC - GI_PEELED(GI_PLACE)) % GI_VEC;
  head = head < end - begin ? head : end - begin;
#undef GI_PLACE
#endif
  const Index first = begin + head;
  Fixed fixed;
  if (begin < end) gi_row_load_fixed(p, base, fixed);
  Acc acc = Op::init();
  const Index pace = Index(GI_TEAM) * GI_VEC;
  // All loads of a round are issued before the first value is used.
  Index r = first + Index(lane) * GI_VEC;
  for (; r + (GI_UNROLL - 1) * pace + GI_VEC <= end; r += GI_UNROLL * pace) {
    Packs<GI_VEC> packs[GI_UNROLL];
#pragma unroll
    for (int u = 0; u < GI_UNROLL; ++u) gi_row_load<GI_VEC>(p, base, r + u * pace, packs[u]);
#pragma unroll
    for (int u = 0; u < GI_UNROLL; ++u) gi_row_push<GI_VEC>(acc, packs[u], fixed, r + u * pace);
  }
  if (r + GI_VEC <= end) {  // the rest of a round, again with all loads first
    Packs<GI_VEC> packs[GI_UNROLL];
#pragma unroll
    for (int u = 0; u < GI_UNROLL - 1; ++u)
      if (r + u * pace + GI_VEC <= end) gi_row_load<GI_VEC>(p, base, r + u * pace, packs[u]);
#pragma unroll
    for (int u = 0; u < GI_UNROLL - 1; ++u)
      if (r + u * pace + GI_VEC <= end) gi_row_push<GI_VEC>(acc, packs[u], fixed, r + u * pace);
  }
  if (GI_VEC > 1) {  // the first and the last elements, which do not fill a vector
    const Index tail = (end - first) % GI_VEC;
    for (Index e = lane; e < head + tail; e += GI_TEAM) {
      r = e < head ? begin + e : end - tail + (e - head);
      Packs<1> packs;
      gi_row_load<1>(p, base, r, packs);
      gi_row_push<1>(acc, packs, fixed, r);
    }
  }

  gi_team_merge<GI_TEAM>(acc);
  if (lane == 0 && o < Index(p.n_out)) {
    if (p.splits > 1) {
      ((Acc*)p.scratch)[o * Index(p.splits) + blockIdx.y] = acc;
    } else {
      gi_store(p, o, acc);
    }
  }
#if GI_ONE_LAUNCH
  // A row that is split into parts has a block for each part.
  if (gi_is_last((unsigned*)p.block_counters + blockIdx.x, gridDim.y)) gi_join_row(p, Index(blockIdx.x));
#endif
#endif
}

// The second launch, if the parts are merged in a separate launch: one block for each row.
extern "C" __global__ void __launch_bounds__(GI_BLOCK) gi_finish_rows(const Params p) {
  gi_join_row(p, Index(blockIdx.x));
}
