#include "ops/host_loops.hpp"

#include <bit>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

namespace gpuinterop::ops {

namespace {

// ---- NumPy's ufuncs -------------------------------------------------------------------------------

// The first fields of NumPy's PyUFuncObject. See docs/adr/0022-numpys-inner-loops.md.
struct UfuncFields {
  PyObject_HEAD int nin, nout, nargs;
  int identity;
  const InnerLoop* functions;
  void* const* data;
  int ntypes;
  int flags;
  const char* name;
  const char* types;  // nargs type numbers for each loop
};

bool has_int(PyObject* object, const char* name, int value) {
  const PyRef found = PyRef::steal(PyObject_GetAttrString(object, name));
  return found && PyLong_Check(found.get()) && PyLong_AsLong(found.get()) == value;
}

// Whether the type numbers at `types` are those of the text "ff->f".
bool has_types(PyObject* text, const char* types, int nin, int nargs) {
  // By NumPy's type number, which its ABI fixes.
  constexpr char kLetters[] = "?bBhHiIlLqQfdgFDGOSUVMme";
  if (!PyUnicode_Check(text) || PyUnicode_GetLength(text) != nargs + 2) return false;
  for (int i = 0; i < nargs; ++i) {
    const int number = types[i];
    if (number < 0 || number >= static_cast<int>(sizeof kLetters - 1)) return false;
    if (PyUnicode_ReadChar(text, i < nin ? i : i + 2) != static_cast<Py_UCS4>(kLetters[number]))
      return false;
  }
  return true;
}

// Compares the fields with what the object reports, the pointers last.
bool is_laid_out_as_documented(PyObject* ufunc, int index) {
  const PyRef size = PyRef::steal(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(ufunc)), "__basicsize__"));
  if (!size || PyLong_AsSsize_t(size.get()) < static_cast<Py_ssize_t>(sizeof(UfuncFields)))
    return false;
  const auto& fields = *reinterpret_cast<const UfuncFields*>(ufunc);
  if (!has_int(ufunc, "nin", fields.nin) || !has_int(ufunc, "nout", fields.nout) ||
      !has_int(ufunc, "nargs", fields.nargs) || !has_int(ufunc, "ntypes", fields.ntypes) ||
      fields.nargs != fields.nin + fields.nout || index < 0 || index >= fields.ntypes ||
      !fields.functions || !fields.types || !fields.name)
    return false;
  const PyRef name = PyRef::steal(PyObject_GetAttrString(ufunc, "__name__"));
  const PyRef types = PyRef::steal(PyObject_GetAttrString(ufunc, "types"));
  if (!name || !PyUnicode_Check(name.get()) || !types || !PyList_Check(types.get()) ||
      PyList_Size(types.get()) != fields.ntypes ||
      PyUnicode_CompareWithASCIIString(name.get(), fields.name) != 0)
    return false;
  for (int i = 0; i < fields.ntypes; ++i)
    if (!has_types(PyList_GetItem(types.get(), i), fields.types + i * fields.nargs, fields.nin,
                   fields.nargs))
      return false;
  return fields.functions[index] != nullptr;
}

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

float to_float(Half h) {
  const uint32_t sign = uint32_t(h.bits & 0x8000) << 16, magnitude = h.bits & 0x7fff;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude << 13));
  // The product is exact, also where the half is subnormal.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}
float to_float(BFloat16 b) { return std::bit_cast<float>(uint32_t{b.bits} << 16); }

// Rounds to nearest, ties to even.
Half to_half(float value) {
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
// A float whose last bit is set if the double lies between two floats, so that it is rounded once.
Half to_half(double value) {
  const float near = static_cast<float>(value);
  if (static_cast<double>(near) == value || value != value) return to_half(near);
  uint32_t bits = std::bit_cast<uint32_t>(near);
  if ((near < 0 ? -static_cast<double>(near) : static_cast<double>(near)) >
      (value < 0 ? -value : value))
    --bits;
  return to_half(std::bit_cast<float>(bits | 1));
}
BFloat16 to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return {static_cast<uint16_t>((bits >> 16 & 0x8000) | 0x7fc0)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// As NumPy casts: what does not fit an integer depends on the processor.
template <class To, class From>
To convert(From x) {
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
  else if constexpr (std::is_same_v<To, Half> && std::is_same_v<From, double>)
    return to_half(x);
  else if constexpr (std::is_same_v<To, Half>)
    return to_half(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, BFloat16>)
    return to_bfloat16(static_cast<float>(x));
  else
    return static_cast<To>(x);
}

template <class T>
T load(const char* at) {
  if constexpr (std::is_same_v<T, bool>) {
    return *at != 0;
  } else {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
}

template <class From, class To>
void cast(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  const char* from = args[0];
  char* to = args[1];
  auto run = [&](intptr_t from_step, intptr_t to_step) {
    for (intptr_t i = 0; i < *n; ++i) {
      const To value = convert<To>(load<From>(from + i * from_step));
      std::memcpy(to + i * to_step, &value, sizeof value);
    }
  };
  if (steps[0] == sizeof(From) && steps[1] == sizeof(To))
    run(sizeof(From), sizeof(To));  // which the compiler vectorizes
  else
    run(steps[0], steps[1]);
}

template <int Size>
void copy(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  const char* from = args[0];
  char* to = args[1];
  if (from == to && steps[0] == steps[1]) return;
  if (steps[0] == Size && steps[1] == Size) {
    std::memcpy(to, from, static_cast<size_t>(*n) * Size);
    return;
  }
  for (intptr_t i = 0; i < *n; ++i) std::memcpy(to + i * steps[1], from + i * steps[0], Size);
}

template <int Size>
void choose(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  char *condition = args[0], *x = args[1], *y = args[2], *to = args[3];
  for (intptr_t i = 0; i < *n; ++i) {
    std::memmove(to, *condition ? x : y, Size);
    condition += steps[0];
    x += steps[1];
    y += steps[2];
    to += steps[3];
  }
}

// The sum of a contiguous line: partial sums of a short part are independent, and parts follow each other.
template <class To, class From>
inline __attribute__((always_inline)) To sum_line(const From* x, intptr_t n) {
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
#if defined(__x86_64__) && defined(__GNUC__)
// The same with vectors of 32 bytes.
template <class To, class From>
__attribute__((target("avx2"))) To sum_line_avx2(const From* x, intptr_t n) {
  return sum_line<To>(x, n);
}
template <class To, class From>
To sum_of_line(const From* x, intptr_t n) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  return has_avx2 ? sum_line_avx2<To>(x, n) : sum_line<To>(x, n);
}
#else
template <class To, class From>
To sum_of_line(const From* x, intptr_t n) {
  return sum_line<To>(x, n);
}
#endif

template <class To, class From>
void add_wider(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  const char *accumulator = args[0], *x = args[1];
  char* to = args[2];
  if (steps[0] == 0 && steps[2] == 0) {
    To sum = load<To>(accumulator);
    if (steps[1] == sizeof(From)) {
      sum += sum_of_line<To>(reinterpret_cast<const From*>(x), *n);
    } else {
      for (intptr_t i = 0; i < *n; ++i) sum += static_cast<To>(load<From>(x + i * steps[1]));
    }
    std::memcpy(to, &sum, sizeof sum);
    return;
  }
  auto run = [&](intptr_t x_step, intptr_t step) {
    for (intptr_t i = 0; i < *n; ++i) {
      const To sum = load<To>(accumulator + i * step) + static_cast<To>(load<From>(x + i * x_step));
      std::memcpy(to + i * step, &sum, sizeof sum);
    }
  };
  if (steps[1] == sizeof(From))
    run(sizeof(From), sizeof(To));
  else
    run(steps[1], sizeof(To));
}

constexpr InnerLoop kSums[] = {add_wider<int64_t, bool>,
                               add_wider<int64_t, int8_t>,
                               add_wider<int64_t, int16_t>,
                               add_wider<int64_t, int32_t>,
                               nullptr,
                               add_wider<uint64_t, uint8_t>,
                               add_wider<uint64_t, uint16_t>,
                               add_wider<uint64_t, uint32_t>,
                               nullptr,
                               nullptr,
                               add_wider<double, float>};

// The C++ types of the dtype ids from kBool to kBFloat16.
template <class... T>
struct Types {};
using Known = Types<bool, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
                    Half, float, double, Complex<float>, Complex<double>, BFloat16>;
constexpr int kKnown = kBFloat16 + 1;

template <class From, class... To>
constexpr void add_casts(InnerLoop* row, Types<To...>) {
  int i = 0;
  ((row[i++] = cast<From, To>), ...);
}
template <class... From>
constexpr auto all_casts(Types<From...> types) {
  struct {
    InnerLoop of[kKnown][kKnown];
  } table = {};
  static_assert(sizeof...(From) == kKnown);
  int i = 0;
  (add_casts<From>(table.of[i++], types), ...);
  return table;
}
constexpr auto kCasts = all_casts(Known());

constexpr InnerLoop kCopies[] = {copy<1>, copy<2>, copy<4>, copy<8>, copy<16>};
constexpr InnerLoop kChoices[] = {choose<1>, choose<2>, choose<4>, choose<8>, choose<16>};

int log2_of(int64_t itemsize) { return std::countr_zero(static_cast<uint64_t>(itemsize)); }

}  // namespace

HostLoop ufunc_loop(PyObject* ufunc, int index) {
  const bool known = is_laid_out_as_documented(ufunc, index);
  if (PyErr_Occurred()) PyErr_Clear();
  if (!known) return {};
  const auto& fields = *reinterpret_cast<const UfuncFields*>(ufunc);
  return {fields.functions + index, fields.data ? fields.data + index : nullptr};
}

HostLoop cast_loop(DTypeId from, DTypeId to) {
  if (from == to) return {&kCopies[log2_of(itemsize_of(from))], nullptr};
  if (from >= kKnown || to >= kKnown) return {};
  return {&kCasts.of[from][to], nullptr};
}

HostLoop sum_loop(DTypeId x) {
  if (x >= std::size(kSums) || !kSums[x]) return {};
  return {&kSums[x], nullptr};
}

HostLoop choice_loop(int64_t itemsize) { return {&kChoices[log2_of(itemsize)], nullptr}; }

}  // namespace gpuinterop::ops
