// Random numbers in host memory. The text is that of the kernels, so the bits are too.
#include "random/fill.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "interpreter/gil.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define GI_AVX2
#endif

namespace gpuinterop {

namespace {

#define GI_INLINE inline __attribute__((always_inline))
#define GI_FN GI_INLINE

using i64 = int64_t;
using u32 = unsigned int;
using u64 = unsigned long long;
using std::sqrt;
GI_INLINE u32 gi_bits(float x) { return std::bit_cast<u32>(x); }
GI_INLINE float gi_float(u32 b) { return std::bit_cast<float>(b); }
GI_INLINE u64 gi_bits(double x) { return std::bit_cast<u64>(x); }
GI_INLINE double gi_double(u64 b) { return std::bit_cast<double>(b); }
GI_INLINE float gi_fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
GI_INLINE double gi_fma(double x, double y, double z) { return __builtin_fma(x, y, z); }

#include "../../gpuinterop/random/kernels/numbers.cuh"

static_assert(sizeof(GiState) == sizeof(random::State));
using random::Job, random::Numbers;

// Blocks of which the words are computed before they are converted: of long arrays, and of what is left.
constexpr int kManyBlocks = 128, kFewBlocks = 16;

// Round by round, because the compiler makes vectors of the inner loop.
template <int kBlocks>
GI_INLINE void make_any_words(const GiState& state, u64 first, u32 (&words)[4 * kBlocks]) {
  u32 a[kBlocks], b[kBlocks], c[kBlocks], d[kBlocks];
  for (int i = 0; i < kBlocks; ++i) {
    const u64 low = state.low + first + static_cast<u64>(i), high = state.high + (low < state.low);
    a[i] = static_cast<u32>(low);
    b[i] = static_cast<u32>(low >> 32);
    c[i] = static_cast<u32>(high);
    d[i] = static_cast<u32>(high >> 32);
  }
  for (int round = 0; round < 10; ++round)
    for (int i = 0; i < kBlocks; ++i)
      gi_round(a[i], b[i], c[i], d[i], state.keys[2 * round], state.keys[2 * round + 1]);
  for (int i = 0; i < kBlocks; ++i) {
    words[4 * i] = a[i];
    words[4 * i + 1] = b[i];
    words[4 * i + 2] = c[i];
    words[4 * i + 3] = d[i];
  }
}
#ifdef GI_AVX2
#define GI_VECTORS __attribute__((target("avx2,fma"))) inline
using Vector = __m256i;

// The same words, of multiples of eight blocks whose numbers differ in the lower half alone. A lane of 64 bits has a word
// in its lower half, the only one that products read; the compiler makes vectors of 32 bits, and has to reorder them.
GI_VECTORS void make_words_of_lanes(const GiState& state, u64 low, u64 high, int blocks,
                                    u32* words) {
  const Vector first = _mm256_set1_epi64x(0xd2511f53), second = _mm256_set1_epi64x(0xcd9e8d57);
  for (int block = 0; block < blocks; block += 8) {
    Vector a[2], b[2], c[2], d[2];
    for (int i = 0; i < 2; ++i) {
      const u64 number = low + static_cast<u64>(block + 4 * i);
      a[i] = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<i64>(number)),
                              _mm256_set_epi64x(3, 2, 1, 0));
      b[i] = _mm256_srli_epi64(a[i], 32);
      c[i] = _mm256_set1_epi64x(static_cast<i64>(high));
      d[i] = _mm256_srli_epi64(c[i], 32);
    }
    for (int round = 0; round < 10; ++round) {
      const Vector k0 = _mm256_set1_epi64x(state.keys[2 * round]),
                   k1 = _mm256_set1_epi64x(state.keys[2 * round + 1]);
      for (int i = 0; i < 2; ++i) {
        const Vector x = _mm256_mul_epu32(a[i], first), y = _mm256_mul_epu32(c[i], second);
        a[i] = _mm256_xor_si256(_mm256_srli_epi64(y, 32), _mm256_xor_si256(b[i], k0));
        b[i] = y;
        c[i] = _mm256_xor_si256(_mm256_srli_epi64(x, 32), _mm256_xor_si256(d[i], k1));
        d[i] = x;
      }
    }
    for (int i = 0; i < 2; ++i) {
      const Vector ab = _mm256_blend_epi32(a[i], _mm256_slli_epi64(b[i], 32), 0xaa);
      const Vector cd = _mm256_blend_epi32(c[i], _mm256_slli_epi64(d[i], 32), 0xaa);
      const Vector even = _mm256_unpacklo_epi64(ab, cd), odd = _mm256_unpackhi_epi64(ab, cd);
      auto* const to = reinterpret_cast<Vector*>(words + 4 * block + 16 * i);
      _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
      _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
    }
  }
}

// The integers of multiples of four words of 64 bits, for a range of 32 bits; false if a word is refused.
GI_VECTORS bool make_products(const Job& job, const u32* words, int count, u64* found) {
  const Vector range = _mm256_set1_epi64x(static_cast<i64>(job.range)),
               start = _mm256_set1_epi64x(static_cast<i64>(job.low));
  const Vector sign = _mm256_set1_epi64x(INT64_MIN);
  const Vector least = _mm256_xor_si256(_mm256_set1_epi64x(static_cast<i64>(job.least)), sign);
  Vector refused = _mm256_setzero_si256();
  for (int i = 0; i < count; i += 4) {
    const Vector word = _mm256_loadu_si256(reinterpret_cast<const Vector*>(words + 2 * i));
    const Vector low = _mm256_mul_epu32(word, range),
                 high = _mm256_mul_epu32(_mm256_srli_epi64(word, 32), range);
    const Vector upper = _mm256_srli_epi64(_mm256_add_epi64(high, _mm256_srli_epi64(low, 32)), 32);
    const Vector lower = _mm256_add_epi64(low, _mm256_slli_epi64(high, 32));
    refused = _mm256_or_si256(refused, _mm256_cmpgt_epi64(least, _mm256_xor_si256(lower, sign)));
    _mm256_storeu_si256(reinterpret_cast<Vector*>(found + i), _mm256_add_epi64(upper, start));
  }
  return _mm256_testz_si256(refused, refused);
}
#else
void make_words_of_lanes(const GiState&, u64, u64, int, u32*) {}
bool make_products(const Job&, const u32*, int, u64*) { return false; }
#endif

// With `kVectors` the processor has AVX2.
template <int kBlocks, bool kVectors>
GI_INLINE void make_words(const GiState& state, u64 first, u32 (&words)[4 * kBlocks]) {
  const u64 low = state.low + first;
  if (kVectors && low + kBlocks > low)
    return make_words_of_lanes(state, low, state.high + (low < first), kBlocks, words);
  make_any_words<kBlocks>(state, first, words);
}
GI_INLINE u32 word_at(const u32* words, int i, float) { return words[i]; }
GI_INLINE u64 word_at(const u32* words, int i, double) {
  return gi_join(words[2 * i], words[2 * i + 1]);
}

// Numbers of some blocks, from those of the block `first` on.
template <class T, Numbers Kind, int kBlocks, bool kVectors>
GI_INLINE void make_floats(const Job& job, const GiState& state, u64 first, T* values) {
  constexpr int kCount = kBlocks * 16 / static_cast<int>(sizeof(T));
  const T shift = static_cast<T>(job.shift), scale = static_cast<T>(job.scale);
  u32 words[4 * kBlocks];
  make_words<kBlocks, kVectors>(state, first, words);
  if constexpr (Kind == Numbers::kUniform)
    for (int i = 0; i < kCount; ++i) values[i] = gi_unit(word_at(words, i, T()));
  else
    for (int i = 0; i < kCount; i += 2)
      gi_normal_pair(word_at(words, i, T()), word_at(words, i + 1, T()), values[i], values[i + 1]);
  if (shift != 0 || scale != 1)
    for (int i = 0; i < kCount; ++i) values[i] = gi_fma(scale, values[i], shift);
}

template <class T, int kBlocks, bool kVectors>
GI_INLINE void make_integers(const Job& job, const GiState& state, u64 first, T* values) {
  constexpr int kCount = 2 * kBlocks;
  u32 words[4 * kBlocks];
  make_words<kBlocks, kVectors>(state, first, words);
  u64 found[kCount];
  if (kVectors && job.range && job.range >> 32 == 0 && make_products(job, words, kCount, found)) {
    for (int i = 0; i < kCount; ++i) values[i] = static_cast<T>(found[i]);
    return;
  }
  for (int i = 0; i < kCount; ++i)
    values[i] = static_cast<T>(job.low + gi_below(job.range, job.least, state,
                                                  first + static_cast<u64>(i) / 2, i % 2,
                                                  word_at(words, i, double())));
}

template <class T, Numbers Kind, int kBlocks, bool kVectors>
GI_INLINE i64 fill_blocks(const Job& job, const GiState& state, i64 done) {
  constexpr int kEach = Kind == Numbers::kIntegers ? 2 : 16 / static_cast<int>(sizeof(T));
  const u64 first = static_cast<u64>(done) / kEach;
  T values[kEach * kBlocks];
  if constexpr (Kind == Numbers::kIntegers)
    make_integers<T, kBlocks, kVectors>(job, state, first, values);
  else
    make_floats<T, Kind, kBlocks, kVectors>(job, state, first, values);
  const i64 count = std::min<i64>(kEach * kBlocks, job.n - done);
  std::memcpy(job.out + done * static_cast<i64>(sizeof(T)), values, count * sizeof(T));
  return done + count;
}

template <class T, Numbers Kind, bool kVectors>
GI_INLINE void fill_all(const Job& job) {
  const auto state = std::bit_cast<GiState>(job.state);
  i64 done = 0;
  while (job.n - done > 8 * kFewBlocks)
    done = fill_blocks<T, Kind, kManyBlocks, kVectors>(job, state, done);
  while (done < job.n) done = fill_blocks<T, Kind, kFewBlocks, kVectors>(job, state, done);
}

template <bool kVectors>
GI_INLINE void fill_with(const Job& job, Numbers kind, int64_t itemsize) {
  if (kind == Numbers::kUniform)
    return itemsize == 4 ? fill_all<float, Numbers::kUniform, kVectors>(job)
                         : fill_all<double, Numbers::kUniform, kVectors>(job);
  if (kind == Numbers::kNormal)
    return itemsize == 4 ? fill_all<float, Numbers::kNormal, kVectors>(job)
                         : fill_all<double, Numbers::kNormal, kVectors>(job);
  switch (itemsize) {
    case 1: return fill_all<uint8_t, Numbers::kIntegers, kVectors>(job);
    case 2: return fill_all<uint16_t, Numbers::kIntegers, kVectors>(job);
    case 4: return fill_all<uint32_t, Numbers::kIntegers, kVectors>(job);
    default: return fill_all<u64, Numbers::kIntegers, kVectors>(job);
  }
}

void fill_everywhere(const Job& job, Numbers kind, int64_t itemsize) {
  fill_with<false>(job, kind, itemsize);
}
#ifdef GI_AVX2
__attribute__((target("avx2,fma"))) void fill_with_avx2(const Job& job, Numbers kind,
                                                        int64_t itemsize) {
  fill_with<true>(job, kind, itemsize);
}
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
constexpr auto* fill_with_avx2 = fill_everywhere;
bool has_avx2() { return false; }
#endif

}  // namespace

void random::fill(const Job& job, Numbers kind, int64_t itemsize) {
  static const auto run = has_avx2() ? fill_with_avx2 : fill_everywhere;
  const GilRelease released(job.n * itemsize >= kGilBytes / 8);
  run(job, kind, itemsize);
}

}  // namespace gpuinterop
