// Fills an array with the numbers of consecutive blocks. A thread computes whole blocks. GI_KIND is uniform, normal or
// integers, T the element type, which for integers is unsigned.
#define GI_EACH 2  // blocks of a thread

struct Params {
  T* out;
  i64 n;
  GiState state;
#if GI_KIND == 2
  u64 low, range, least;
#else
  T shift, scale;
#endif
};

GI_FN void gi_numbers(const Params& p, u64 block, float (&v)[8]) {
  u64 words[4];
  gi_block(p.state, block, 0, words);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const u32 low = (u32)words[i], high = (u32)(words[i] >> 32);
    if (GI_KIND == 0) {
      v[2 * i] = gi_unit(low);
      v[2 * i + 1] = gi_unit(high);
    } else {
      gi_normal_pair(low, high, v[2 * i], v[2 * i + 1]);
    }
  }
}
GI_FN void gi_numbers(const Params& p, u64 block, double (&v)[4]) {
  u64 words[4];
  gi_block(p.state, block, 0, words);
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    if (GI_KIND == 0) {
      v[i] = gi_unit(words[i]);
      v[i + 1] = gi_unit(words[i + 1]);
    } else {
      gi_normal_pair(words[i], words[i + 1], v[i], v[i + 1]);
    }
  }
}

template <class U, int N>
GI_FN void gi_place_numbers(const Params& p, u64 block, U (&v)[N]) {
#if GI_KIND == 2
  u64 words[4];
  gi_block(p.state, block, 0, words);
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = (U)(p.low + gi_below(p.range, p.least, p.state, block, i, words[i]));
#else
  gi_numbers(p, block, v);
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = p.shift + p.scale * v[i];
#endif
}

constexpr int kNumbers = GI_KIND != 2 && sizeof(T) == 4 ? 8 : 4;  // of a block
constexpr int kTogether = kNumbers * sizeof(T) > 16 ? 16 / sizeof(T) : kNumbers;  // of one store
struct alignas(kTogether * sizeof(T)) Together {
  T v[kTogether];
};

extern "C" __global__ void __launch_bounds__(256) gi_random_fill(const Params p) {
#pragma unroll
  for (int k = 0; k < GI_EACH; ++k) {
    const i64 block = ((i64)blockIdx.x * GI_EACH + k) * blockDim.x + threadIdx.x, first = block * kNumbers;
    if (first >= p.n) return;
    T v[kNumbers];
    gi_place_numbers(p, (u64)block, v);
    if (first + kNumbers <= p.n) {
#pragma unroll
      for (int i = 0; i < kNumbers; i += kTogether) {
        Together part;
        for (int j = 0; j < kTogether; ++j) part.v[j] = v[i + j];
        *(Together*)(p.out + first + i) = part;
      }
    } else {
      for (int i = 0; i < kNumbers; ++i)
        if (first + i < p.n) p.out[first + i] = v[i];
    }
  }
}
