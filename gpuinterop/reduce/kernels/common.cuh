// Loads, index arithmetic and merging of threads, for reductions of rows and of columns.

struct alignas(16) GiWord16 { unsigned a, b, c, d; };
struct alignas(8) GiWord8 { unsigned a, b; };

template <int BYTES> struct GiWord { typedef void Type; };
template <> struct GiWord<16> { typedef GiWord16 Type; };
template <> struct GiWord<8> { typedef GiWord8 Type; };
template <> struct GiWord<4> { typedef unsigned Type; };
template <> struct GiWord<2> { typedef unsigned short Type; };
template <> struct GiWord<1> { typedef unsigned char Type; };

// STEP 1: one access for the whole vector (the planner has checked its alignment; complex128 takes
// one access an element). 0: one element for all. 2: an access an element, `stride` apart; those from
// `live` on, at the end of a row, repeat the first one.
template <int STEP, typename T, int VEC>
__device__ inline void gi_load(const T* at, Index stride, T (&v)[VEC], int live = VEC) {
  if (STEP == 1) {
    typedef typename GiWord<sizeof(T) * VEC <= 16 ? sizeof(T) * VEC : 16>::Type Word;
    union Bits {
      Word words[sizeof(T) * VEC / sizeof(Word)];
      T values[VEC];
      __device__ Bits() {}
    } bits;
#pragma unroll
    for (int w = 0; w < int(sizeof(bits.words) / sizeof(Word)); ++w) bits.words[w] = ((const Word*)at)[w];
#pragma unroll
    for (int k = 0; k < VEC; ++k) v[k] = bits.values[k];
  } else if (STEP == 0) {
    const T x = *at;
#pragma unroll
    for (int k = 0; k < VEC; ++k) v[k] = x;
  } else {
#pragma unroll
    for (int k = 0; k < VEC; ++k) v[k] = at[Index(k < live ? k : 0) * stride];
  }
}

// Add the offsets of element `r` of an iteration over DIMS dimensions, innermost last, to those of N arrays.
template <int DIMS, int N>
__device__ inline void gi_offsets(const long long (&extents)[DIMS], const long long (&strides)[N][DIMS],
                                  Index r, Index (&at)[N]) {
#pragma unroll
  for (int d = DIMS - 1; d >= 0; --d) {
    Index digit = r;
    if (d > 0) {
      const Index extent = Index(extents[d]);
      const Index next = r / extent;
      digit = r - next * extent;
      r = next;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) at[i] += digit * Index(strides[i][d]);
  }
}

__device__ inline Acc gi_shuffle_down(const Acc& acc, int distance, int width) {
  union Bits {
    unsigned words[(sizeof(Acc) + 3) / 4];
    Acc acc;
    __device__ Bits() {}
  } bits;
  bits.acc = acc;
#pragma unroll
  for (int w = 0; w < int(sizeof(bits.words) / 4); ++w) {
    bits.words[w] = __shfl_down_sync(0xffffffffu, bits.words[w], distance, width);
  }
  return bits.acc;
}

// Merge the accumulators of the TEAM threads of a row; the first thread has the result. Every thread of the
// block must call this.
template <int TEAM>
__device__ inline void gi_team_merge(Acc& acc) {
  const int width = TEAM < 32 ? TEAM : 32;
#pragma unroll
  for (int distance = width / 2; distance > 0; distance /= 2) {
    const Acc other = gi_shuffle_down(acc, distance, width);
    // Threads near the end of the team receive their own value; their result is not used.
    Op::merge(acc, other);
  }
  if (TEAM > 32) {
    const int warps = TEAM / 32;
    __shared__ Acc shared[GI_BLOCK / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) shared[warp] = acc;
    __syncthreads();
    if (warp % warps == 0) {
      acc = lane < warps ? shared[warp + lane] : Op::init();
#pragma unroll
      for (int distance = warps / 2; distance > 0; distance /= 2) {
        const Acc other = gi_shuffle_down(acc, distance, 32);
        Op::merge(acc, other);
      }
    }
  }
}
