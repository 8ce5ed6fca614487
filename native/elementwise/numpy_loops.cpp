#include "elementwise/host_loops.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "elementwise/own_loops.hpp"
#include "interpreter/error.hpp"

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
};

bool has_int(PyObject* object, const char* name, int value) {
  const PyRef found = PyRef::steal(PyObject_GetAttrString(object, name));
  return found && PyLong_Check(found.get()) && PyLong_AsLong(found.get()) == value;
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
      !fields.functions || !fields.name)
    return false;
  const PyRef name = PyRef::steal(PyObject_GetAttrString(ufunc, "__name__"));
  return name && PyUnicode_Check(name.get()) &&
         PyUnicode_CompareWithASCIIString(name.get(), fields.name) == 0 && fields.functions[index];
}

// The number of bytes of a letter in ufunc.types; 0 for a letter that is not a number's.
uint8_t itemsize_of_letter(char letter) {
  switch (letter) {
    case 'l':
    case 'L': return sizeof(long);
    default: {
      constexpr std::string_view kLetters = "?bhiqBHIQefdFD";
      const size_t id = kLetters.find(letter);
      return id == kLetters.npos ? 0 : static_cast<uint8_t>(itemsize_of(static_cast<DTypeId>(id)));
    }
  }
}

HostLoop in_table(const InnerLoop* table, int x) {
  if (x < 0 || x >= kOwnDTypes || !table[x]) return {};
  return {table + x, nullptr};
}

int log2_of(int64_t itemsize) { return std::countr_zero(static_cast<uint64_t>(itemsize)); }

// Places in NumPy's table of C functions, which every NumPy 2 has. The first returns the version of the
// ABI, in every NumPy; the second a PyArray_ArrFuncs.
constexpr int kGetNDArrayCVersion = 0, kGetArrFuncs = 365;
constexpr unsigned kNumPy2 = 0x02000000;
// Fields of PyArray_ArrFuncs, which are all pointers: argmax follows 21 casts and 5 functions. argmin is the last
// field, because NumPy added it later.
constexpr int kArgMax = 26, kArgMin = 46;
constexpr int kMostArguments = 8;  // of a ufunc

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

HostLoop ufunc_loop(PyObject* ufunc, int index) {
  const bool known = is_laid_out_as_documented(ufunc, index);
  if (PyErr_Occurred()) PyErr_Clear();
  if (!known) return {};
  const auto& fields = *reinterpret_cast<const UfuncFields*>(ufunc);
  HostLoop loop = {fields.functions + index, fields.data ? fields.data + index : nullptr};
  const PyRef types = PyRef::checked(PyObject_GetAttrString(ufunc, "types"));
  const PyRef signature =
      PyRef::checked(PySequence_GetItem(types.get(), index));  // such as "ff->f"
  Py_ssize_t length = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(signature.get(), &length);
  if (!text) throw PythonError();
  if (fields.nargs > kMostArguments || fields.nout > kMostResults || length != fields.nargs + 2)
    return {};
  loop.inputs = static_cast<uint8_t>(fields.nin);
  loop.results = static_cast<uint8_t>(fields.nout);
  for (int i = 0; i < fields.nout; ++i) {
    loop.itemsizes[i] = itemsize_of_letter(text[fields.nin + 2 + i]);
    if (!loop.itemsizes[i]) return {};
  }
  return loop;
}

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

const FindBest* find_best(DTypeId dtype, bool max) {
  const PyRef numpy = PyRef::steal(PyImport_ImportModule("numpy._core._multiarray_umath"));
  const PyRef capsule =
      PyRef::steal(numpy ? PyObject_GetAttrString(numpy.get(), "_ARRAY_API") : nullptr);
  auto** const api =
      capsule ? static_cast<void**>(PyCapsule_GetPointer(capsule.get(), nullptr)) : nullptr;
  if (!api) PyErr_Clear();
  if (!api || reinterpret_cast<unsigned (*)()>(api[kGetNDArrayCVersion])() != kNumPy2)
    fail(Kind::Unsupported, max ? "argmax" : "argmin", "the C API of NumPy 2",
         "a NumPy with another one", "install 'numpy<3'");
  auto* const functions =
      reinterpret_cast<FindBest* (*)(PyObject*)>(api[kGetArrFuncs])(dtype_object(dtype));
  return functions + (max ? kArgMax : kArgMin);
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
