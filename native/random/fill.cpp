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
#include "interpreter/text_arguments.hpp"

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

#include "../../gpuinterop/random/kernels/numbers.cuh"

enum class Numbers { kUniform, kNormal, kIntegers };

// What the kernels have as parameters. Integers use low, range and least, the others shift and scale.
struct Job {
  char* out;
  i64 n;
  GiState state;
  u64 low, range, least;
  double shift, scale;
};

constexpr int kBlocks = 64;  // whose words are computed before any of them is converted

GI_INLINE void make_words(const GiState& state, u64 first, u64 (&words)[4 * kBlocks]) {
  for (int i = 0; i < kBlocks; ++i) {
    u64 four[4];
    gi_block(state, first + static_cast<u64>(i), 0, four);
    std::memcpy(words + 4 * i, four, sizeof four);
  }
}

// A word of a float has 32 bits, the lower half of a word of the generator first.
template <class T, class Word, Numbers Kind>
GI_INLINE void fill_floats(const Job& job) {
  constexpr int kEach = 4 * kBlocks * static_cast<int>(sizeof(u64) / sizeof(Word));
  const T shift = static_cast<T>(job.shift), scale = static_cast<T>(job.scale);
  u64 words[4 * kBlocks];
  T values[kEach];
  Word own[kEach];
  u64 block = 0;
  for (i64 done = 0; done < job.n; done += kEach, block += kBlocks) {
    make_words(job.state, block, words);
    std::memcpy(own, words, sizeof words);
    if constexpr (std::endian::native == std::endian::big && sizeof(Word) == 4)
      for (int i = 0; i < kEach; i += 2) std::swap(own[i], own[i + 1]);
    if constexpr (Kind == Numbers::kUniform)
      for (int i = 0; i < kEach; ++i) values[i] = shift + scale * gi_unit(own[i]);
    else
      for (int i = 0; i < kEach; i += 2) {
        T x, y;
        gi_normal_pair(own[i], own[i + 1], x, y);
        values[i] = shift + scale * x;
        values[i + 1] = shift + scale * y;
      }
    const i64 count = std::min<i64>(kEach, job.n - done);
    std::memcpy(job.out + done * static_cast<i64>(sizeof(T)), values, count * sizeof(T));
  }
}

template <class T>
GI_INLINE void fill_integers(const Job& job) {
  u64 words[4 * kBlocks], block = 0;
  T values[4 * kBlocks];
  for (i64 done = 0; done < job.n; done += 4 * kBlocks, block += kBlocks) {
    make_words(job.state, block, words);
    for (int i = 0; i < 4 * kBlocks; ++i)
      values[i] =
          static_cast<T>(job.low + gi_below(job.range, job.least, job.state,
                                            block + static_cast<u64>(i) / 4, i % 4, words[i]));
    const i64 count = std::min<i64>(4 * kBlocks, job.n - done);
    std::memcpy(job.out + done * static_cast<i64>(sizeof(T)), values, count * sizeof(T));
  }
}

GI_INLINE void fill(const Job& job, Numbers kind, int64_t itemsize) {
  if (kind == Numbers::kUniform)
    return itemsize == 4 ? fill_floats<float, u32, Numbers::kUniform>(job)
                         : fill_floats<double, u64, Numbers::kUniform>(job);
  if (kind == Numbers::kNormal)
    return itemsize == 4 ? fill_floats<float, u32, Numbers::kNormal>(job)
                         : fill_floats<double, u64, Numbers::kNormal>(job);
  switch (itemsize) {
    case 1: return fill_integers<uint8_t>(job);
    case 2: return fill_integers<uint16_t>(job);
    case 4: return fill_integers<uint32_t>(job);
    default: return fill_integers<u64>(job);
  }
}

void fill_everywhere(const Job& job, Numbers kind, int64_t itemsize) { fill(job, kind, itemsize); }
#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2"))) void fill_with_avx2(const Job& job, Numbers kind,
                                                    int64_t itemsize) {
  fill(job, kind, itemsize);
}
bool has_avx2() { return __builtin_cpu_supports("avx2"); }
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
            !(kind == 2 ? integers : floats))
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
      "Fill a C-contiguous array in host memory with the numbers after a state: counter and key, "
      "as bytes. `kind`: 0 "
      "uniform, 1 normal, 2 integers.");
}

}  // namespace gpuinterop
