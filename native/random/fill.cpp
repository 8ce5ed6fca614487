// Random numbers in host memory. The text is that of the kernels, so the bits are too.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "elementwise/call_cache.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;
using namespace nb::literals;

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

enum class Numbers { kUniform, kNormal, kIntegers };  // as in generator.py

// What the kernels have as parameters. Integers use low, range and least, the others shift and scale.
struct Job {
  char* out;
  i64 n;
  GiState state;
  u64 low, range, least;
  double shift, scale;
};

constexpr int kBlocks = 128, kWords = 4 * kBlocks;  // that are computed before they are converted

// Round by round, because the compiler makes vectors of the inner loop.
GI_INLINE void make_words(const GiState& state, u64 first, u32 (&words)[kWords]) {
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

template <class T, Numbers Kind>
GI_INLINE void fill_floats(const Job& job) {
  constexpr int kEach = kWords * 4 / static_cast<int>(sizeof(T));
  const T shift = static_cast<T>(job.shift), scale = static_cast<T>(job.scale);
  u32 words[kWords];
  T values[kEach];
  u64 block = 0;
  for (i64 done = 0; done < job.n; done += kEach, block += kBlocks) {
    make_words(job.state, block, words);
    if constexpr (Kind == Numbers::kUniform)
      for (int i = 0; i < kEach; ++i) values[i] = gi_unit(word_at(words, i, T()));
    else
      for (int i = 0; i < kEach; i += 2)
        gi_normal_pair(word_at(words, i, T()), word_at(words, i + 1, T()), values[i],
                       values[i + 1]);
    if (shift != 0 || scale != 1)
      for (int i = 0; i < kEach; ++i) values[i] = gi_fma(scale, values[i], shift);
    const i64 count = std::min<i64>(kEach, job.n - done);
    std::memcpy(job.out + done * static_cast<i64>(sizeof(T)), values, count * sizeof(T));
  }
}

template <class T>
GI_INLINE void fill_integers(const Job& job) {
  constexpr int kEach = kWords / 2;
  u32 words[kWords];
  T values[kEach];
  u64 block = 0;
  for (i64 done = 0; done < job.n; done += kEach, block += kBlocks) {
    make_words(job.state, block, words);
    for (int i = 0; i < kEach; ++i)
      values[i] = static_cast<T>(job.low + gi_below(job.range, job.least, job.state,
                                                    block + static_cast<u64>(i) / 2, i % 2,
                                                    word_at(words, i, double())));
    const i64 count = std::min<i64>(kEach, job.n - done);
    std::memcpy(job.out + done * static_cast<i64>(sizeof(T)), values, count * sizeof(T));
  }
}

GI_INLINE void fill(const Job& job, Numbers kind, int64_t itemsize) {
  if (kind == Numbers::kUniform)
    return itemsize == 4 ? fill_floats<float, Numbers::kUniform>(job)
                         : fill_floats<double, Numbers::kUniform>(job);
  if (kind == Numbers::kNormal)
    return itemsize == 4 ? fill_floats<float, Numbers::kNormal>(job)
                         : fill_floats<double, Numbers::kNormal>(job);
  switch (itemsize) {
    case 1: return fill_integers<uint8_t>(job);
    case 2: return fill_integers<uint16_t>(job);
    case 4: return fill_integers<uint32_t>(job);
    default: return fill_integers<u64>(job);
  }
}

void fill_everywhere(const Job& job, Numbers kind, int64_t itemsize) { fill(job, kind, itemsize); }
#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2,fma"))) void fill_with_avx2(const Job& job, Numbers kind,
                                                        int64_t itemsize) {
  fill(job, kind, itemsize);
}
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
constexpr auto* fill_with_avx2 = fill_everywhere;
bool has_avx2() { return false; }
#endif

}  // namespace

void register_random(nb::module_& m) {
  m.def(
      "_random_fill",
      [](nb::handle array, int kind, nb::bytes state, u64 low, u64 range, u64 least, double shift,
         double scale, const char* where) {
        const Array a = read_array(array, where);
        const bool floats = a.dtype == kFloat32 || a.dtype == kFloat64;
        const bool integers = is_integer(a.dtype) || a.dtype == kBool;
        if (a.device.is_cuda() || !a.layout.is_c_contiguous() || state.size() != sizeof(GiState) ||
            !(static_cast<Numbers>(kind) == Numbers::kIntegers ? integers : floats))
          ops::fail_changed(where);
        ops::note_write(a);
        Job job{a.data, a.layout.size(), {}, low, range, least, shift, scale};
        std::memcpy(&job.state, state.c_str(), sizeof job.state);
        const BufferRef held = a.buffer;  // this thread may lose the GIL
        const GilRelease released(a.nbytes() >= kGilBytes / 8);
        (has_avx2() ? fill_with_avx2 : fill_everywhere)(job, static_cast<Numbers>(kind),
                                                        a.itemsize());
      },
      "array"_a, "kind"_a, "state"_a, "low"_a = 0, "range"_a = 0, "least"_a = 0, "shift"_a = 0.0,
      "scale"_a = 1.0, "where"_a = "random",
      "Fill a C-contiguous array in host memory with the numbers after a state, the bytes of a "
      "GiState. `kind`: 0 uniform, 1 normal, 2 integers.");
}

}  // namespace gpuinterop
