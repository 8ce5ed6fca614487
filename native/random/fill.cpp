// Random numbers in host memory. The text is that of the kernels, so the bits are too.
#include "random/fill.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "interpreter/gil.hpp"

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
GI_INLINE void make_words(const GiState& state, u64 first, u32 (&words)[4 * kBlocks]) {
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
GI_INLINE u32 word_at(const u32* words, int i, float) { return words[i]; }
GI_INLINE u64 word_at(const u32* words, int i, double) {
  return gi_join(words[2 * i], words[2 * i + 1]);
}

// Numbers of some blocks, from those of the block `first` on.
template <class T, Numbers Kind, int kBlocks>
GI_INLINE void make_floats(const Job& job, const GiState& state, u64 first, T* values) {
  constexpr int kCount = kBlocks * 16 / static_cast<int>(sizeof(T));
  const T shift = static_cast<T>(job.shift), scale = static_cast<T>(job.scale);
  u32 words[4 * kBlocks];
  make_words<kBlocks>(state, first, words);
  if constexpr (Kind == Numbers::kUniform)
    for (int i = 0; i < kCount; ++i) values[i] = gi_unit(word_at(words, i, T()));
  else
    for (int i = 0; i < kCount; i += 2)
      gi_normal_pair(word_at(words, i, T()), word_at(words, i + 1, T()), values[i], values[i + 1]);
  if (shift != 0 || scale != 1)
    for (int i = 0; i < kCount; ++i) values[i] = gi_fma(scale, values[i], shift);
}

template <class T, int kBlocks>
GI_INLINE void make_integers(const Job& job, const GiState& state, u64 first, T* values) {
  constexpr int kCount = 2 * kBlocks;
  u32 words[4 * kBlocks];
  make_words<kBlocks>(state, first, words);
  if (job.range &&
      job.range >> 32 == 0) {  // the product in two halves, which processors have for vectors
    u64 rejected = 0;
    for (int i = 0; i < kCount; ++i) {
      const u64 low = words[2 * i] * job.range, high = words[2 * i + 1] * job.range;
      values[i] = static_cast<T>(job.low + ((high + (low >> 32)) >> 32));
      rejected |= low + (high << 32) < job.least;
    }
    if (!rejected) return;
  }
  for (int i = 0; i < kCount; ++i)
    values[i] = static_cast<T>(job.low + gi_below(job.range, job.least, state,
                                                  first + static_cast<u64>(i) / 2, i % 2,
                                                  word_at(words, i, double())));
}

template <class T, Numbers Kind, int kBlocks>
GI_INLINE i64 fill_blocks(const Job& job, const GiState& state, i64 done) {
  constexpr int kEach = Kind == Numbers::kIntegers ? 2 : 16 / static_cast<int>(sizeof(T));
  const u64 first = static_cast<u64>(done) / kEach;
  T values[kEach * kBlocks];
  if constexpr (Kind == Numbers::kIntegers)
    make_integers<T, kBlocks>(job, state, first, values);
  else
    make_floats<T, Kind, kBlocks>(job, state, first, values);
  const i64 count = std::min<i64>(kEach * kBlocks, job.n - done);
  std::memcpy(job.out + done * static_cast<i64>(sizeof(T)), values, count * sizeof(T));
  return done + count;
}

template <class T, Numbers Kind>
GI_INLINE void fill_all(const Job& job) {
  const auto state = std::bit_cast<GiState>(job.state);
  i64 done = 0;
  while (job.n - done > 8 * kFewBlocks) done = fill_blocks<T, Kind, kManyBlocks>(job, state, done);
  while (done < job.n) done = fill_blocks<T, Kind, kFewBlocks>(job, state, done);
}

GI_INLINE void fill_with(const Job& job, Numbers kind, int64_t itemsize) {
  if (kind == Numbers::kUniform)
    return itemsize == 4 ? fill_all<float, Numbers::kUniform>(job)
                         : fill_all<double, Numbers::kUniform>(job);
  if (kind == Numbers::kNormal)
    return itemsize == 4 ? fill_all<float, Numbers::kNormal>(job)
                         : fill_all<double, Numbers::kNormal>(job);
  switch (itemsize) {
    case 1: return fill_all<uint8_t, Numbers::kIntegers>(job);
    case 2: return fill_all<uint16_t, Numbers::kIntegers>(job);
    case 4: return fill_all<uint32_t, Numbers::kIntegers>(job);
    default: return fill_all<u64, Numbers::kIntegers>(job);
  }
}

void fill_everywhere(const Job& job, Numbers kind, int64_t itemsize) {
  fill_with(job, kind, itemsize);
}
#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2,fma"))) void fill_with_avx2(const Job& job, Numbers kind,
                                                        int64_t itemsize) {
  fill_with(job, kind, itemsize);
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
