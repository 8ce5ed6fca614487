// Loops of the core's own, for what NumPy has no public loop of. Each is compiled twice, for the processors that every build supports and for those with
// vectors of 32 bytes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <type_traits>

#include "elementwise/host_loops.hpp"

namespace gpuinterop::ops {

namespace {

constexpr int kOwnDTypes = kBFloat16 + 1;  // those with casts: NumPy's dtypes and bfloat16

struct OwnLoops {
  InnerLoop casts[kOwnDTypes][kOwnDTypes];
  // Null where there is none.
  InnerLoop sums[kOwnDTypes], powers[kOwnDTypes], squares[kOwnDTypes], limits[kOwnDTypes],
      odds[kOwnDTypes], straightened[kOwnDTypes];
  InnerLoop copies[5], choices[5];  // by the logarithm of the itemsize
};

// A function that is compiled for the processor of its caller.
#define GI_INLINE inline __attribute__((always_inline))

// ---- casts ----------------------------------------------------------------------------------------

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
template <class T>
struct Complex {
  T re, im;
};
template <class T>
constexpr bool is_complex_type = false;
template <class T>
constexpr bool is_complex_type<Complex<T>> = true;

GI_INLINE float to_float(Half h) {
  const uint32_t sign = uint32_t(h.bits & 0x8000) << 16, magnitude = h.bits & 0x7fff;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude << 13));
  // The product is exact, even if the half is subnormal.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}
GI_INLINE float to_float(BFloat16 b) { return std::bit_cast<float>(uint32_t{b.bits} << 16); }

// Rounds to nearest, ties to even.
GI_INLINE Half to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffff;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (magnitude > 0x7f800000)  // NaN: keep the upper bits
    return {static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff))};
  if (magnitude >= 0x47800000) return {static_cast<uint16_t>(sign | 0x7c00)};
  if (magnitude < 0x38800000) {  // subnormal: this addition rounds at the last place of a half
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000))};
  }
  const uint32_t rounded = magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1);
  return {static_cast<uint16_t>(sign | rounded >> 13)};
}
GI_INLINE BFloat16 to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return {static_cast<uint16_t>((bits >> 16 & 0x8000) | 0x7fc0)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// The float from which a smaller type is rounded. A value between two floats becomes the one whose last bit is set,
// so that the smaller type has the result of a single rounding.
GI_INLINE float float_to_round(double value) {
  const auto near = static_cast<float>(value);
  const auto back = static_cast<double>(near);
  auto bits = std::bit_cast<uint32_t>(near);
  bits -= (back < 0 ? -back : back) > (value < 0 ? -value : value);
  return std::bit_cast<float>(bits | (back != value));
}
template <class T>
GI_INLINE float float_to_round(T x) {
  if constexpr (std::is_same_v<T, float> || sizeof(T) <= 2) {
    return static_cast<float>(x);
  } else if constexpr (sizeof(T) == 4) {
    return float_to_round(static_cast<double>(x));
  } else {
    // From 2^40 on one bit stands for the last 24, which a double may not hold. Two's complement needs no sign.
    constexpr T kFar = T{1} << 40, kRest = (T{1} << 24) - 1;
    const bool far = x >= kFar || (std::is_signed_v<T> && x <= -kFar);
    const T kept = far ? (x & ~kRest) | (x & kRest ? T{1} << 23 : 0) : x;
    return float_to_round(static_cast<double>(kept));
  }
}

// Casts as NumPy does: the result for a value that does not fit the integer type depends on the processor.
template <class To, class From>
GI_INLINE To convert(From x) {
  if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>)
    return convert<To>(to_float(x));
  else if constexpr (is_complex_type<From> && is_complex_type<To>)
    return {convert<decltype(To::re)>(x.re), convert<decltype(To::re)>(x.im)};
  else if constexpr (is_complex_type<From> && std::is_same_v<To, bool>)
    return x.re != 0 || x.im != 0;
  else if constexpr (is_complex_type<From>)
    return convert<To>(x.re);
  else if constexpr (is_complex_type<To>)
    return {convert<decltype(To::re)>(x), 0};
  else if constexpr (std::is_same_v<To, bool>)
    return x != 0;
  else if constexpr (std::is_same_v<To, Half>)
    return to_half(float_to_round(x));
  else if constexpr (std::is_same_v<To, BFloat16>)
    return to_bfloat16(float_to_round(x));
  else
    return static_cast<To>(x);
}

template <class T>
GI_INLINE T load(const char* at) {
  if constexpr (std::is_same_v<T, bool>) {
    return *at != 0;
  } else {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
}
template <class T>
GI_INLINE void store(char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// f of each element. Two loops, because the compiler vectorizes the one over elements without gaps.
template <class From, class To, class F>
GI_INLINE void map_elements(char** args, intptr_t n, const intptr_t* steps, F&& f) {
  if (steps[0] == sizeof(From) && steps[1] == sizeof(To)) {
    const char* __restrict from = args[0];
    char* __restrict to = args[1];
    for (intptr_t i = 0; i < n; ++i)
      store<To>(to + i * intptr_t{sizeof(To)}, f(load<From>(from + i * intptr_t{sizeof(From)})));
    return;
  }
  const char* from = args[0];
  char* to = args[1];
  const intptr_t from_step = steps[0], to_step = steps[1];
  for (intptr_t i = 0; i < n; ++i) store<To>(to + i * to_step, f(load<From>(from + i * from_step)));
}

template <class From, class To>
GI_INLINE void cast(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  if constexpr (std::is_same_v<From, bool>)  // the compiler vectorizes integers but not bools
    map_elements<uint8_t, To>(args, *n, steps,
                              [](uint8_t x) { return convert<To>(x < 1 ? x : uint8_t{1}); });
  else
    map_elements<From, To>(args, *n, steps, [](From x) { return convert<To>(x); });
}

// ---- copies and choices ---------------------------------------------------------------------------

// A type of this size, of which the compiler makes vectors.
template <int Size>
using Bits = std::conditional_t<
    Size == 16, Complex<double>,
    std::conditional_t<
        Size == 8, uint64_t,
        std::conditional_t<Size == 4, uint32_t, std::conditional_t<Size == 2, uint16_t, uint8_t>>>>;

template <int Size>
GI_INLINE void copy(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  const char* from = args[0];
  char* to = args[1];
  if (from == to && steps[0] == steps[1]) return;
  if (steps[0] == Size && steps[1] == Size) {
    std::memcpy(to, from, static_cast<size_t>(*n) * Size);
    return;
  }
  if (steps[0] == 0 && steps[1] == Size) {
    const auto value = load<Bits<Size>>(from);
    const intptr_t count = *n;  // which the compiler would read again after each store
    for (intptr_t i = 0; i < count; ++i) store(to + i * intptr_t{Size}, value);
    return;
  }
  const intptr_t from_step = steps[0], to_step = steps[1];
  intptr_t left = *n;
  for (; left >= 4; left -= 4, from += 4 * from_step, to += 4 * to_step)
    for (int i = 0; i < 4; ++i) std::memcpy(to + i * to_step, from + i * from_step, Size);
  for (; left; --left, from += from_step, to += to_step) std::memcpy(to, from, Size);
}

// X and Y: how many elements a value advances, 0 or 1.
template <class T, int X, int Y>
GI_INLINE void choose_lines(char** args, intptr_t n) {
  const auto* __restrict condition = reinterpret_cast<const uint8_t*>(args[0]);
  const auto* __restrict x = reinterpret_cast<const T*>(args[1]);
  const auto* __restrict y = reinterpret_cast<const T*>(args[2]);
  auto* __restrict to = reinterpret_cast<T*>(args[3]);
  for (intptr_t i = 0; i < n; ++i) {
    const T a = x[i * X], b = y[i * Y];
    to[i] = condition[i] ? a : b;
  }
}

template <int Size>
GI_INLINE void choose(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  if constexpr (Size <= 8) {
    const bool dense = steps[0] == 1 && steps[3] == Size;
    if (dense && steps[1] == Size && steps[2] == Size)
      return choose_lines<Bits<Size>, 1, 1>(args, *n);
    if (dense && steps[1] == Size && steps[2] == 0) return choose_lines<Bits<Size>, 1, 0>(args, *n);
    if (dense && steps[1] == 0 && steps[2] == Size) return choose_lines<Bits<Size>, 0, 1>(args, *n);
  }
  for (intptr_t i = 0; i < *n; ++i)
    std::memmove(args[3] + i * steps[3],
                 args[0][i * steps[0]] ? args[1] + i * steps[1] : args[2] + i * steps[2], Size);
}

// ---- sums into a wider dtype ----------------------------------------------------------------------

// Each part is summed in independent lanes, so that the compiler can vectorize it; parts are added in order.
template <class To, class From>
GI_INLINE To sum_line(const From* x, intptr_t n) {
  constexpr int kLanes = 16;
  constexpr intptr_t kPart = 4096;
  To total = 0;
  for (intptr_t start = 0; start < n; start += kPart) {
    const intptr_t end = n - start < kPart ? n : start + kPart;
    To lanes[kLanes] = {};
    intptr_t i = start;
    for (; i + kLanes <= end; i += kLanes)
      for (int j = 0; j < kLanes; ++j) lanes[j] += static_cast<To>(x[i + j]);
    for (; i < end; ++i) lanes[0] += static_cast<To>(x[i]);
    for (int width = kLanes / 2; width; width /= 2)
      for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
    total += lanes[0];
  }
  return total;
}

template <class To, class From>
GI_INLINE void add_wider(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  const intptr_t count = *n;
  const bool dense = steps[1] == sizeof(From);
  if (steps[0] == 0 && steps[2] == 0) {
    To sum = load<To>(args[0]);
    if (dense)
      sum += sum_line<To>(reinterpret_cast<const From*>(args[1]), count);
    else
      for (intptr_t i = 0; i < count; ++i)
        sum += static_cast<To>(load<From>(args[1] + i * steps[1]));
    store(args[2], sum);
  } else if (dense && steps[2] == sizeof(To) && args[0] == args[2]) {
    const auto* __restrict x = reinterpret_cast<const From*>(args[1]);
    auto* __restrict to = reinterpret_cast<To*>(args[2]);
    for (intptr_t i = 0; i < count; ++i) to[i] += static_cast<To>(x[i]);
  } else {
    for (intptr_t i = 0; i < count; ++i)
      store(args[2] + i * steps[2],
            load<To>(args[0] + i * steps[0]) + static_cast<To>(load<From>(args[1] + i * steps[1])));
  }
}

// ---- powers of integers ---------------------------------------------------------------------------

// NumPy raises for a negative exponent in an array, but a kernel cannot raise. Both devices return the exact power
// truncated to an integer: 1 or -1 for the bases 1 and -1, 0 for all others.
template <class T>
GI_INLINE T integer_power(T base, T exponent) {
  if constexpr (std::is_signed_v<T>) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  }
  uint64_t result = 1, factor = static_cast<uint64_t>(base);  // which wrap around
  for (auto left = static_cast<uint64_t>(exponent); left; left >>= 1, factor *= factor)
    if (left & 1) result *= factor;
  return static_cast<T>(result);
}

template <class T>
GI_INLINE void power(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  const intptr_t count = *n;
  if (steps[1] == 0 && load<T>(args[1]) == 2) {
    using Unsigned = std::make_unsigned_t<T>;
    char* at[] = {args[0], args[2]};
    const intptr_t by[] = {steps[0], steps[2]};
    return map_elements<Unsigned, Unsigned>(at, count, by, [](Unsigned x) {
      return static_cast<Unsigned>(static_cast<uint64_t>(x) * x);
    });
  }
  const char *base = args[0], *exponent = args[1];
  char* to = args[2];
  const intptr_t base_step = steps[0], exponent_step = steps[1], to_step = steps[2];
  for (intptr_t i = 0; i < count; ++i)
    store(to + i * to_step,
          integer_power(load<T>(base + i * base_step), load<T>(exponent + i * exponent_step)));
}

template <class T>
GI_INLINE void square(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  map_elements<T, T>(args, *n, steps, [](T x) { return x * x; });
}

// For the logistic function. exp(80) is a finite float, and 1 + exp(80) rounds to exp(80) in every type.
template <class T>
GI_INLINE void limit(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  map_elements<T, T>(args, *n, steps, [](T x) { return x > 80 ? T{80} : x; });
}
template <class T>
GI_INLINE void odds(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  map_elements<T, T>(args, *n, steps, [](T t) { return t / (1 + t); });
}
// For log(1 + exp(x)): y, or x where it is so large that exp(x) may be infinite.
template <class T>
GI_INLINE void straighten(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  constexpr intptr_t kItem = sizeof(T);
  if (steps[0] == kItem && steps[1] == kItem && steps[2] == kItem) {
    const auto* __restrict y = reinterpret_cast<const T*>(args[0]);
    const auto* __restrict x = reinterpret_cast<const T*>(args[1]);
    auto* __restrict to = reinterpret_cast<T*>(args[2]);
    const intptr_t count = *n;
    for (intptr_t i = 0; i < count; ++i) to[i] = x[i] > 80 ? x[i] : y[i];
    return;
  }
  for (intptr_t i = 0; i < *n; ++i) {
    const T y = load<T>(args[0] + i * steps[0]), x = load<T>(args[1] + i * steps[1]);
    store(args[2] + i * steps[2], x > 80 ? x : y);
  }
}

// ---- the tables -----------------------------------------------------------------------------------

template <InnerLoop Loop>
void everywhere(char** args, const intptr_t* n, const intptr_t* steps, void* data) {
  Loop(args, n, steps, data);
}
#if defined(__x86_64__) && defined(__GNUC__)
template <InnerLoop Loop>
__attribute__((target("avx2"))) void with_avx2(char** args, const intptr_t* n,
                                               const intptr_t* steps, void* data) {
  Loop(args, n, steps, data);
}
#define GI_COMPILED(loop) (wide ? with_avx2<loop> : everywhere<loop>)
bool has_avx2() { return __builtin_cpu_supports("avx2"); }
#else
#define GI_COMPILED(loop) everywhere<loop>
bool has_avx2() { return false; }
#endif

// The C++ types of the dtype ids from kBool to kBFloat16.
template <class... T>
struct Types {};
using Known = Types<bool, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
                    Half, float, double, Complex<float>, Complex<double>, BFloat16>;

template <class From, class... To>
void set_casts(InnerLoop* row, [[maybe_unused]] bool wide, Types<To...>) {
  ((*row++ = GI_COMPILED((cast<From, To>))), ...);
}
template <class... From>
void set_all_casts(OwnLoops& loops, bool wide, Types<From...> types) {
  static_assert(sizeof...(From) == kOwnDTypes);
  auto* row = loops.casts;
  (set_casts<From>(*row++, wide, types), ...);
}

OwnLoops make_loops([[maybe_unused]] bool wide) {
  OwnLoops loops = {};
  set_all_casts(loops, wide, Known());
#define GI_SET(dtype, T, Sum)                                                                  \
  if constexpr (!std::is_same_v<T, Sum>) loops.sums[dtype] = GI_COMPILED((add_wider<Sum, T>)); \
  loops.powers[dtype] = GI_COMPILED(power<T>);
  GI_SET(kInt8, int8_t, int64_t);
  GI_SET(kInt16, int16_t, int64_t);
  GI_SET(kInt32, int32_t, int64_t);
  GI_SET(kInt64, int64_t, int64_t);
  GI_SET(kUInt8, uint8_t, uint64_t);
  GI_SET(kUInt16, uint16_t, uint64_t);
  GI_SET(kUInt32, uint32_t, uint64_t);
  GI_SET(kUInt64, uint64_t, uint64_t);
#undef GI_SET
  loops.sums[kBool] = GI_COMPILED((add_wider<int64_t, bool>));
#define GI_SET(dtype, T)                         \
  loops.squares[dtype] = GI_COMPILED(square<T>); \
  loops.limits[dtype] = GI_COMPILED(limit<T>);   \
  loops.odds[dtype] = GI_COMPILED(odds<T>);      \
  loops.straightened[dtype] = GI_COMPILED(straighten<T>);
  GI_SET(kFloat32, float);
  GI_SET(kFloat64, double);
#undef GI_SET
  loops.sums[kFloat32] = GI_COMPILED((add_wider<double, float>));
#define GI_SET(i)                                \
  loops.copies[i] = GI_COMPILED(copy<(1 << i)>); \
  loops.choices[i] = GI_COMPILED(choose<(1 << i)>);
  GI_SET(0);
  GI_SET(1);
  GI_SET(2);
  GI_SET(3);
  GI_SET(4);
#undef GI_SET
  return loops;
}

const OwnLoops& own_loops() {
  static const OwnLoops loops = make_loops(has_avx2());
  return loops;
}

HostLoop in_table(const InnerLoop* table, int x) {
  if (x < 0 || x >= kOwnDTypes || !table[x]) return {};
  return {table + x, nullptr};
}

int log2_of(int64_t itemsize) { return std::countr_zero(static_cast<uint64_t>(itemsize)); }

// ---- functions that NumPy lacks, computed in float64 ------------------------------------------------

double gi_double(unsigned long long bits) { return std::bit_cast<double>(bits); }
#define GI_FN inline
#include "../../gpuinterop/elementwise/kernels/digamma.cuh"
#undef GI_FN

// Newton's method, corrected for the curvature. Winitzki's first approximation is good to 2e-3 everywhere; the error
// squares with each step.
double inverse_of_erf(double x) {
  constexpr double kPi = std::numbers::pi, kSlope = 2 * std::numbers::inv_sqrtpi;
  const double p = std::fabs(x);
  if (p == 1) return std::copysign(HUGE_VAL, x);
  if (!(p < 1)) return NAN;
  const double log = std::log1p(-p * p), b = 2 / (kPi * 0.147) + log / 2;
  double y = std::sqrt(std::sqrt(b * b - log / 0.147) - b);
  for (int i = 0; i < 4; ++i) {
    // Near 1 the complement keeps the digits that erf(y) - p would lose.
    double error = p > 0.5 ? 1 - p - std::erfc(y) : std::erf(y) - p;
    error /= kSlope * std::exp(-y * y);
    y -= error / (1 + y * error);
  }
  return std::copysign(y, x);
}

template <double (*F)(double)>
void each(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  for (intptr_t i = 0; i < *n; ++i) {
    double x;
    std::memcpy(&x, args[0] + i * steps[0], sizeof x);
    x = F(x);
    std::memcpy(args[1] + i * steps[1], &x, sizeof x);
  }
}

constexpr struct {
  const char* name;
  InnerLoop loop;
} special_loops[] = {
    {"erf", each<[](double x) { return std::erf(x); }>},
    {"erfc", each<[](double x) { return std::erfc(x); }>},
    {"erfinv", each<inverse_of_erf>},
    {"gamma", each<[](double x) { return std::tgamma(x); }>},
    {"lgamma", each<[](double x) { return std::lgamma(x); }>},
    {"digamma", each<gi_digamma>},
};

}  // namespace

void HostLoop::run_without_gaps(char** args, intptr_t n, const intptr_t* steps) const {
  constexpr intptr_t kHeld = 512;
  alignas(64) char held[kMostResults][kHeld * 16];
  char* at[kMostArguments];
  intptr_t by[kMostArguments];
  for (intptr_t done = 0; done < n; done += kHeld) {
    const intptr_t count = std::min(kHeld, n - done);
    for (int i = 0; i < inputs + results; ++i) {
      const bool is_result = i >= inputs;
      at[i] = is_result ? held[i - inputs] : args[i] + done * steps[i];
      by[i] = is_result ? itemsizes[i - inputs] : steps[i];
    }
    run(at, &count, by);
    for (int i = 0; i < results; ++i) {
      const int place = inputs + i;
      char* copied[] = {held[i], args[place] + done * steps[place]};
      const intptr_t copied_by[] = {by[place], steps[place]};
      own_loops().copies[log2_of(itemsizes[i])](copied, &count, copied_by, nullptr);
    }
  }
}

HostLoop cast_loop(DTypeId from, DTypeId to) {
  if (from == to) return {&own_loops().copies[log2_of(itemsize_of(from))], nullptr};
  if (from >= kOwnDTypes || to >= kOwnDTypes) return {};
  return {&own_loops().casts[from][to], nullptr};
}

HostLoop own_loop(std::string_view name, DTypeId first, DTypeId second) {
  const OwnLoops& own = own_loops();
  if (name == "cast") return cast_loop(first, second);
  if (name == "choose") return {&own.choices[log2_of(itemsize_of(second))], nullptr};
  if (name == "add") return in_table(own.sums, second);
  if (name == "power") return in_table(own.powers, first);
  if (name == "square") return in_table(own.squares, first);
  if (name == "limit") return in_table(own.limits, first);
  if (name == "odds") return in_table(own.odds, first);
  if (name == "straighten") return in_table(own.straightened, first);
  for (const auto& special : special_loops)
    if (name == special.name) return {&special.loop, nullptr};
  return {};
}

}  // namespace gpuinterop::ops
