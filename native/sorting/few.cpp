// Sorts, running sums and searches of few elements in host memory, which take less time than a call of NumPy.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "interpreter/attempt.hpp"
#include "interpreter/error.hpp"
#include "interpreter/register.hpp"
#include "interpreter/served.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gpuinterop {

namespace {

constexpr int64_t kFew = 256, kFewTests = 32;

// Calls run(T()) for the type of the elements; false for a dtype without an order in C++.
template <class Run>
bool with_type(DTypeId dtype, Run&& run) {
  switch (dtype) {
    case kBool:
    case kUInt8: run(uint8_t()); return true;
    case kInt8: run(int8_t()); return true;
    case kInt16: run(int16_t()); return true;
    case kUInt16: run(uint16_t()); return true;
    case kInt32: run(int32_t()); return true;
    case kUInt32: run(uint32_t()); return true;
    case kInt64: run(int64_t()); return true;
    case kUInt64: run(uint64_t()); return true;
    case kFloat32: run(float()); return true;
    case kFloat64: run(double()); return true;
    default: return false;
  }
}

// NumPy's order, in which NaN is last.
template <class T>
bool is_before(T x, T y) {
  return x < y || (y != y && x == x);
}

// A few elements without gaps in host memory, of one of the two array classes. Python carries the other calls out, among
// them those that a capture records, and reports copies.
const Array* few_elements(PyObject* x, int64_t most = kFew) {
  if (!is_array(x) || ops::recorder || watching.load(std::memory_order_relaxed)) return nullptr;
  const Array& a = read_array(x, "sort");
  const bool known = Py_TYPE(x) == result_type(kFloat32) || Py_TYPE(x) == result_type(kBool);
  if (!known || a.device.is_cuda() || !a.layout.ndim() || !a.layout.is_c_contiguous() ||
      !a.layout.size() || a.layout.size() > most)
    return nullptr;
  ops::require_set("sort", a);
  return &a;
}

template <class T>
T* elements_of(const Array& a) {
  return reinterpret_cast<T*>(a.data);
}

// Array.sort along the last axis.
PyObject* sort_in_place(const Values& v) {
  const bool usual = !given(v[2]) && !given(v[3]) && !given(v[4]) && (!v[5] || v[5] == Py_False);
  const Array* const a = usual ? few_elements(v[0]) : nullptr;
  if (!a || a->readonly || (v[1] && !PyLong_CheckExact(v[1]))) return nullptr;
  const int ndim = a->layout.ndim();
  if (v[1] && count_axis(as_int64(v[1], "sort"), ndim, "sort") != ndim - 1) return nullptr;
  const int64_t n = a->layout.shape()[ndim - 1];
  ops::prepare_write(*a, "sort");
  const bool sorted = with_type(a->dtype, [&]<class T>(T) {
    T* const first = elements_of<T>(*a);
    for (T* line = first; line < first + a->layout.size(); line += n)
      if (!std::is_sorted(line, line + n, is_before<T>))
        std::stable_sort(line, line + n, is_before<T>);
  });
  if (!sorted) return nullptr;
  ops::note_write(*a);
  return PyRef::borrow(Py_None).release();
}

// ---- running sums and products ----------------------------------------------------------------------

template <class T, class R>
void scan(const T* from, R* to, int64_t n, bool products) {
  R last = to[0] = static_cast<R>(from[0]);
  for (int64_t i = 1; i < n; ++i) {
    const R next = static_cast<R>(from[i]);
    to[i] = last = products ? last * next : last + next;
  }
}

// cumsum and cumprod along the last axis. Integers are added as those of 64 bits. An array of several axes needs an axis.
PyObject* scanned(const Values& v, bool products) {
  const Array* const a = few_elements(v[0]);
  if (!a || given(v[2]) || given(v[3]) || (v[4] && v[4] != Py_False)) return nullptr;
  const int ndim = a->layout.ndim();
  const bool is_given = given(v[1]);
  if (is_given ? !PyLong_CheckExact(v[1]) : ndim > 1) return nullptr;
  if (is_given && count_axis(as_int64(v[1], "cumsum"), ndim, "cumsum") != ndim - 1) return nullptr;
  const bool floats = a->dtype == kFloat32 || a->dtype == kFloat64;
  const bool is_unsigned = kDTypes[a->dtype].kind == 'u';
  const DTypeId dtype = floats ? a->dtype : is_unsigned ? kUInt64 : kInt64;
  Array made = make_empty({}, dtype, ndim, a->layout.shape(), "cumsum");
  const int64_t n = a->layout.shape()[ndim - 1];
  const bool found = with_type(a->dtype, [&]<class T>(T) {
    // Unsigned arithmetic wraps around, as NumPy's.
    using Wide = std::conditional_t<std::is_floating_point_v<T>, T, uint64_t>;
    for (int64_t at = 0; at < a->layout.size(); at += n)
      scan(elements_of<T>(*a) + at, elements_of<Wide>(made) + at, n, products);
  });
  return found ? wrap(class_for(Py_TYPE(v[0]), dtype), std::move(made)) : nullptr;
}

// ---- distinct elements ------------------------------------------------------------------------------

enum Wanted { kIndices = 1, kInverse = 2, kCounts = 4 };

// Of few elements in order: where each distinct one begins, and how many there are. Each NaN is distinct.
struct Distinct {
  std::array<uint16_t, kFew> order, begins;
  int64_t count = 0;
};

template <class T>
void find_distinct(const T* x, int64_t n, Distinct& d) {
  for (int64_t i = 0; i < n; ++i) d.order[size_t(i)] = static_cast<uint16_t>(i);
  std::stable_sort(d.order.begin(), d.order.begin() + n,
                   [x](uint16_t i, uint16_t j) { return is_before(x[i], x[j]); });
  for (int64_t i = 0; i < n; ++i)
    if (!i || x[d.order[size_t(i)]] != x[d.order[size_t(i - 1)]])
      d.begins[size_t(d.count++)] = static_cast<uint16_t>(i);
}

PyRef places(int ndim, const int64_t* shape, int64_t** data) {
  Array made = make_empty({}, kInt64, ndim, shape, "unique");
  *data = elements_of<int64_t>(made);
  return PyRef::steal(wrap(result_type(kInt64), std::move(made)));
}

// The values, and those of the indices, the inverse and the counts that are wanted, as a tuple of a class.
PyObject* distinct(PyObject* x, int wanted, PyObject* cls) {
  const Array* const a = few_elements(x);
  if (!a) return nullptr;
  const int64_t n = a->layout.size();
  Distinct d;
  Array values;
  const bool found = with_type(a->dtype, [&]<class T>(T) {
    find_distinct(elements_of<T>(*a), n, d);
    values = make_empty({}, a->dtype, 1, &d.count, "unique");
    for (int64_t k = 0; k < d.count; ++k)
      elements_of<T>(values)[k] = elements_of<T>(*a)[d.order[d.begins[size_t(k)]]];
  });
  if (!found) return nullptr;
  auto begin = [&](int64_t k) -> int64_t { return k < d.count ? d.begins[size_t(k)] : n; };
  PyRef items[4];
  Py_ssize_t count = 0;
  const Layout layout = a->layout;
  items[count++] = PyRef::steal(wrap(class_for(Py_TYPE(x), values.dtype), std::move(values)));
  int64_t* to;
  if (wanted & kIndices) {
    items[count++] = places(1, &d.count, &to);
    for (int64_t k = 0; k < d.count; ++k) to[k] = d.order[size_t(begin(k))];
  }
  if (wanted & kInverse) {
    items[count++] = places(layout.ndim(), layout.shape(), &to);
    for (int64_t k = 0; k < d.count; ++k)
      for (int64_t i = begin(k); i < begin(k + 1); ++i) to[d.order[size_t(i)]] = k;
  }
  if (wanted & kCounts) {
    items[count++] = places(1, &d.count, &to);
    for (int64_t k = 0; k < d.count; ++k) to[k] = begin(k + 1) - begin(k);
  }
  PyObject* args[4];
  for (Py_ssize_t i = 0; i < count; ++i) args[i] = items[i].get();
  return PyRef::checked(PyObject_Vectorcall(cls, args, size_t(count), nullptr)).release();
}

PyObject* attempt_distinct(const PublicFunction& self, PyObject* const* args, Py_ssize_t nargs,
                           PyObject* names) {
  if (nargs != 1 || names) return nullptr;
  return guard((PyObject*)nullptr, [&] {
    return attempt_in_core([&] { return distinct(args[0], self.number, self.of); });
  });
}

// ---- searches -------------------------------------------------------------------------------------------

PyObject* isin(const Values& v) {
  auto is_flag = [](PyObject* o) { return !o || PyBool_Check(o); };
  const Array *const x = few_elements(v[0], 16 * kFew), *const tests =
                                                            few_elements(v[1], kFewTests);
  if (!x || !tests || x->dtype != tests->dtype || !is_flag(v[2]) || !is_flag(v[3]) || given(v[4]))
    return nullptr;
  const bool inverted = v[3] == Py_True;
  Array made = make_empty({}, kBool, x->layout.ndim(), x->layout.shape(), "isin");
  const bool found = with_type(x->dtype, [&]<class T>(T) {
    const T *const from = elements_of<T>(*x), *const test = elements_of<T>(*tests);
    const int64_t n = x->layout.size(), m = tests->layout.size();
    bool* const to = elements_of<bool>(made);
    std::fill_n(to, n, inverted);
    for (int64_t j = 0; j < m; ++j)
      for (int64_t i = 0; i < n; ++i) to[i] ^= (from[i] == test[j]) & (to[i] == inverted);
  });
  return found ? wrap(result_type(kBool), std::move(made)) : nullptr;
}

// Where to insert the elements of the second array into the first one, of one sorted axis.
PyObject* searchsorted(const Values& v) {
  const bool right = v[2] && is_text(v[2], "right");
  const Array *const x = few_elements(v[0], int64_t{1} << 20), *const values = few_elements(v[1]);
  if (!x || !values || x->layout.ndim() != 1 || x->dtype != values->dtype || given(v[3]) ||
      !(!v[2] || right || is_text(v[2], "left")))
    return nullptr;
  int64_t* to;
  PyRef made = places(values->layout.ndim(), values->layout.shape(), &to);
  const bool found = with_type(x->dtype, [&]<class T>(T) {
    const T *const first = elements_of<T>(*x), *const last = first + x->layout.size();
    const T* const value = elements_of<T>(*values);
    for (int64_t i = 0; i < values->layout.size(); ++i)
      to[i] = (right ? std::upper_bound(first, last, value[i], is_before<T>)
                     : std::lower_bound(first, last, value[i], is_before<T>)) -
              first;
  });
  return found ? made.release() : nullptr;
}

}  // namespace

void register_sorting(nb::module_& m) {
  serve({{"sort", "self axis kind order * stable descending", 1}, sort_in_place});
  serve({{"cumsum", "x axis dtype out", 1}, [](const Values& v) { return scanned(v, false); }});
  serve({{"cumprod", "x axis dtype out", 1}, [](const Values& v) { return scanned(v, true); }});
  serve({{"cumulative_sum", "x / * axis dtype out include_initial", 1},
         [](const Values& v) { return scanned(v, false); }});
  serve({{"cumulative_prod", "x / * axis dtype out include_initial", 1},
         [](const Values& v) { return scanned(v, true); }});
  serve({{"isin", "element test_elements assume_unique invert * kind", 2}, isin});
  serve({{"searchsorted", "x v side sorter", 2}, searchsorted});
  m.attr("INDICES") = int(kIndices);
  m.attr("INVERSE") = int(kInverse);
  m.attr("COUNTS") = int(kCounts);
  m.def(
      "_distinct",
      [](int wanted, nb::handle tuple) {
        const nb::object cls = nb::borrow(tuple);
        return nb::cpp_function([wanted, cls](nb::callable python) {
          return make_function(attempt_distinct, wanted, cls.ptr(), python);
        });
      },
      "wanted"_a, "tuple"_a,
      "Decorator of a function of the distinct elements of an array, of which each NaN is one: it "
      "returns them, and those of their INDICES, the INVERSE and the COUNTS that are wanted, as a "
      "tuple of a class with names. The core carries it out for few elements.");
}

}  // namespace gpuinterop
