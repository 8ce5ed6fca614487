// Fills an array with the numbers of consecutive blocks of Philox, GI_EACH in a thread. GI_KIND is GI_UNIFORM, GI_NORMAL or
// GI_INTEGERS; T is the element type, for integers an unsigned one. GI_SCALED: floats are multiplied and shifted.

struct Params {
  T* out;
  i64 n;
  GiState state;
#if GI_KIND == GI_INTEGERS
  u64 low, range, least;
#else
  T shift, scale;
#endif
};

constexpr int kNumbers = GI_KIND != GI_INTEGERS && sizeof(T) == 4 ? 4 : 2;  // of a block
struct alignas(kNumbers * sizeof(T)) Together {
  T v[kNumbers];
};

// The numbers of a block that has these words.
template <class U>
GI_FN void gi_numbers(const Params& p, u64 block, const u32 (&words)[4], U (&v)[kNumbers]) {
#if GI_KIND == GI_INTEGERS
  for (int i = 0; i < 2; ++i) {
    const u64 word = gi_join(words[2 * i], words[2 * i + 1]);
    v[i] = (U)(p.low + gi_below(p.range, p.least, p.state, block, i, word));
  }
#else
  if (sizeof(U) == 4) {
#pragma unroll
    for (int i = 0; i < kNumbers; i += 2) {
      if (GI_KIND == GI_UNIFORM) {
        v[i] = gi_unit(words[i]);
        v[i + 1] = gi_unit(words[i + 1]);
      } else {
        float x, y;
        gi_normal_pair(words[i], words[i + 1], x, y);
        v[i] = x;
        v[i + 1] = y;
      }
    }
  } else {
    const u64 first = gi_join(words[0], words[1]), second = gi_join(words[2], words[3]);
    double x = gi_unit(first), y = gi_unit(second);
    if (GI_KIND == GI_NORMAL) gi_normal_pair(first, second, x, y);
    v[0] = x;
    v[1] = y;
  }
  if (GI_SCALED)
    for (int i = 0; i < kNumbers; ++i) v[i] = gi_fma(p.scale, v[i], p.shift);
#endif
}

extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_random_fill(const Params p) {
  constexpr u32 kBlocks = GI_EACH * GI_THREADS;
  const i64 start = (i64)blockIdx.x * kBlocks;
  u32 words[4];
  // Where the numbers of all blocks differ in the lowest word alone, the threads have the first steps of the rounds in common.
  const u64 low = p.state.low + (u64)start, high = p.state.high + (low < (u64)start);
  if ((start + kBlocks) * kNumbers <= p.n && (u32)low <= 0u - kBlocks) {
    Together* const out = (Together*)p.out + start + threadIdx.x;
#pragma unroll
    for (u32 k = 0; k < kBlocks; k += GI_THREADS) {
      Together part;
      gi_rounds(p.state, (u32)low + threadIdx.x + k, (u32)(low >> 32), (u32)high, (u32)(high >> 32), words);
      gi_numbers(p, (u64)(start + threadIdx.x + k), words, part.v);
      out[k] = part;
    }
    return;
  }
  for (u32 k = threadIdx.x; k < kBlocks; k += GI_THREADS) {
    const i64 block = start + k;
    Together part;
    gi_block(p.state, (u64)block, 0, words);
    gi_numbers(p, (u64)block, words, part.v);
    for (int i = 0; i < kNumbers; ++i)
      if (block * kNumbers + i < p.n) p.out[block * kNumbers + i] = part.v[i];
  }
}
