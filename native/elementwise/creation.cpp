// zeros(), arange() and the other functions that make arrays of plain arguments: a shape of ints, a dtype and a device
// that are known, a number that fits. Python's function of the same name (gpuinterop/creation.py) serves or refuses
// every other call.
#include <dlpack/dlpack.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "elementwise/operands.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/function_with_id.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/parameters.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

// What gpuinterop.devices.device_spec.default_device() reads: the getter of the blocks' devices, and the module's names.
PyObject *entered_devices = nullptr, *device_names = nullptr;  // kept until the process ends

// That device, without Python code of the package; null if it is not known yet.
PyObject* default_device() {
  static PyObject* const key =
      PyRef::checked(PyUnicode_InternFromString("_process_default")).release();
  if (!entered_devices) return nullptr;
  const PyRef blocks = PyRef::checked(PyObject_CallNoArgs(entered_devices));
  const Py_ssize_t n = PyTuple_Size(blocks.get());
  if (n > 0)
    return PyTuple_GetItem(blocks.get(), n - 1);  // each device has one object, which lives on
  return PyDict_GetItem(device_names, key);
}

// None: Python reads it.
std::optional<Device> plain_device(PyObject* spec) {
  if (!spec || spec == Py_None) spec = default_device();
  if (!spec || spec == Py_None) return {};
  if (PyUnicode_CheckExact(spec))
    return PyUnicode_CompareWithASCIIString(spec, "cpu") == 0 ? std::optional<Device>(Device{})
                                                              : std::nullopt;
  return find_device(spec);
}

// The dtype of an argument that may be null; an int is no dtype, although the core has numbers for them.
std::optional<DTypeId> plain_dtype(PyObject* dtype, DTypeId otherwise, const char* where) {
  if (!dtype || dtype == Py_None) return otherwise;
  if (PyLong_Check(dtype)) return {};
  return read_dtype(dtype, where);
}

bool is_small(long long n) { return -(1 << 24) <= n && n <= (1 << 24); }

// The bytes of a number that fills an array. Without a dtype, float32 has to represent an int exactly.
bool plain_value(PyObject* value, bool has_dtype, DTypeId dtype, unsigned char* item) {
  if (!PyFloat_CheckExact(value) && !PyLong_CheckExact(value) && !PyBool_Check(value)) return false;
  if (!has_dtype && !PyFloat_CheckExact(value)) {
    if (!PyLong_CheckExact(value)) return false;
    int overflow = 0;
    if (!is_small(PyLong_AsLongLongAndOverflow(value, &overflow)) || overflow) return false;
  }
  return scalar_bytes(value, dtype, item);
}

PyObject* number(long n) {
  static PyObject* const numbers[] = {PyRef::checked(PyLong_FromLong(0)).release(),
                                      PyRef::checked(PyLong_FromLong(1)).release()};
  return numbers[n];
}

struct Request {
  Device device;
  DTypeId dtype;
  Layout layout;
  PyObject* value;  // of every element; null for none
  bool has_dtype;   // else a given value must be exact in float32
};

// Null if Python makes the array.
PyObject* make_filled(Request&& r, const char* where) {
  unsigned char item[16];
  if (r.value && !plain_value(r.value, r.has_dtype, r.dtype, item)) return nullptr;
  const Array made = make_empty(r.device, r.dtype, std::move(r.layout), where);
  if (r.value) {
    ops::require_recorded(made.device);
    ops::prepare_write(made, where);
    fill_elements(made, item, where);
  }
  return wrap(result_type(made.dtype), Array(made));
}

// (shape, [value,] dtype=None, *, device=None)
template <class Value>
PyObject* of_shape(PyObject* shape, PyObject* dtype, PyObject* device, Value value,
                   const char* where, PyObject* order = nullptr) {
  if (order && (!PyUnicode_CheckExact(order) || PyUnicode_CompareWithASCIIString(order, "C") != 0))
    return nullptr;
  const auto id = plain_dtype(dtype, kFloat32, where);
  const auto place = id ? plain_device(device) : std::nullopt;
  if (!place) return nullptr;
  int64_t extents[kMaxDims];
  const int n = read_ints(shape, extents, where, "shape");
  return make_filled({*place, *id, Layout::c_order(n, extents, where), value,
                      !(!dtype || dtype == Py_None) || value == number(0) || value == number(1)},
                     where);
}

// (x, [value,] dtype=None, *, device=None)
PyObject* like(PyObject* x, PyObject* dtype, PyObject* device, PyObject* value, const char* where) {
  if (!is_array(x)) return nullptr;
  const Array& a = read_array(x, where);
  const auto id = plain_dtype(dtype, a.dtype, where);
  const bool same = !device || device == Py_None;
  const auto place = same ? std::optional(a.device) : plain_device(device);
  if (!id || !place) return nullptr;
  const Layout& l = unwrap(x).layout;  // reading the dtype may have run code that changed it
  return make_filled({*place, *id, Layout::c_order(l.ndim(), l.shape(), where), value, true},
                     where);
}

// ---- evenly spaced values ----------------------------------------------------------------------

std::optional<long long> plain_int(PyObject* o) {
  int overflow = 0;
  if (!PyLong_CheckExact(o)) return {};
  const long long n = PyLong_AsLongLongAndOverflow(o, &overflow);
  return overflow ? std::nullopt : std::optional(n);
}

// A float, or an int that float64 represents.
std::optional<double> plain_float(PyObject* o) {
  if (PyFloat_CheckExact(o)) {
    const double x = PyFloat_AsDouble(o);
    return std::isfinite(x) ? std::optional(x) : std::nullopt;
  }
  const auto n = plain_int(o);
  return n && std::abs(*n) <= (1LL << 53) ? std::optional(double(*n)) : std::nullopt;
}

template <class T, class At>
void write_values(const Array& host, At&& at) {
  T* const out = reinterpret_cast<T*>(host.data);
  for (int64_t i = 0, n = host.layout.size(); i < n; ++i) out[i] = static_cast<T>(at(i));
}

// Whether `n` is a value of the dtype; float32 only up to 2**24.
bool holds(DTypeId dtype, long long n) {
  const DTypeRow& row = kDTypes[dtype];
  if (row.code == kDLFloat) return dtype == kFloat64 ? std::abs(n) <= 1LL << 53 : is_small(n);
  const bool is_signed = row.code == kDLInt;
  const int bits = row.bits - is_signed;
  return (is_signed || n >= 0) && (bits >= 63 || (n >> bits) == (n < 0 ? -1 : 0));
}

// The host computes the values, so that every bit is NumPy's. Null if Python does.
template <class At>
PyObject* make_spaced(int64_t count, DTypeId dtype, Device device, At&& at, const char* where) {
  const Array host = make_empty(Device{}, dtype, 1, &count, where);
  switch (dtype) {
    case kFloat32: write_values<float>(host, at); break;
    case kFloat64: write_values<double>(host, at); break;
    default:
      if (!is_integer(dtype)) return nullptr;
      // Two's complement: the same bytes for signed and unsigned ones.
      switch (itemsize_of(dtype)) {
        case 1: write_values<int8_t>(host, at); break;
        case 2: write_values<int16_t>(host, at); break;
        case 4: write_values<int32_t>(host, at); break;
        default: write_values<int64_t>(host, at);
      }
  }
  PyTypeObject* const type = result_type(dtype);
  if (!device.is_cuda()) return wrap(type, Array(host));
  const Array made = make_empty(device, dtype, 1, &count, where);
  const Uncounted guard(true);
  copy_elements(made, host, where);
  return wrap(type, Array(made));
}

// As numpy.arange computes them. A long range is left to Python, which computes it in parts.
constexpr int64_t kMostSpaced = 1 << 16;

PyObject* arange(PyObject* start, PyObject* stop, PyObject* step, PyObject* dtype,
                 PyObject* device) {
  const char* where = "arange";
  if (!stop || stop == Py_None) stop = std::exchange(start, number(0));
  if (!step) step = number(1);
  if (ops::recorder) return nullptr;
  const auto id = plain_dtype(dtype, kFloat32, where);
  const auto place = id ? plain_device(device) : std::nullopt;
  if (!place) return nullptr;
  const auto a = plain_int(start), b = plain_int(stop), c = plain_int(step);
  if (a && b && c) {
    if (!*c || (!is_integer(*id) && *id != kFloat32 && *id != kFloat64)) return nullptr;
    const __int128 span = __int128{*b} - *a, by = *c;
    const __int128 count =
        (span > 0) != (by > 0) || !span ? 0 : (span + by - (by > 0 ? 1 : -1)) / by;
    if (count > kMostSpaced) return nullptr;
    const int64_t n = static_cast<int64_t>(count), first = *a, each = *c;
    if (n && (!holds(*id, first) || !holds(*id, first + (n - 1) * each))) return nullptr;
    return make_spaced(n, *id, *place, [=](int64_t i) { return first + i * each; }, where);
  }
  const auto first = plain_float(start), end = plain_float(stop), by = plain_float(step);
  if (!first || !end || !by || !*by || (*id != kFloat32 && *id != kFloat64)) return nullptr;
  const double second = *first + *by, each = second - *first, steps = (*end - *first) / *by;
  const double last = *first + std::ceil(steps) * each;
  const double most = *id == kFloat32 ? double{std::numeric_limits<float>::max()} : HUGE_VAL;
  if (!(steps <= kMostSpaced) || (steps == 0 && *end != *first) || !(std::abs(last) < most) ||
      !(std::abs(*first) < most) || !(std::abs(second) < most))
    return nullptr;
  const auto count = static_cast<int64_t>(std::max(0.0, std::ceil(steps)));
  auto at = [=](int64_t i) { return i == 1 ? second : *first + double(i) * each; };
  return make_spaced(count, *id, *place, at, where);
}

PyObject* linspace(PyObject* start, PyObject* stop, PyObject* num, PyObject* endpoint,
                   PyObject* dtype, PyObject* device) {
  const char* where = "linspace";
  if (ops::recorder || (endpoint && !PyBool_Check(endpoint))) return nullptr;
  const auto id = plain_dtype(dtype, kFloat32, where);
  const auto place = id ? plain_device(device) : std::nullopt;
  const auto first = plain_float(start), last = plain_float(stop);
  const auto count = num ? plain_int(num) : 50;
  if (!place || !first || !last || !count || *count < 0 || *count > kMostSpaced ||
      (*id != kFloat32 && *id != kFloat64))
    return nullptr;
  const double most = *id == kFloat32 ? double{std::numeric_limits<float>::max()} : HUGE_VAL;
  const double span = *last - *first;
  if (!(std::abs(*first) < most && std::abs(*last) < most && std::abs(span) < HUGE_VAL))
    return nullptr;
  const bool closed = endpoint != Py_False;
  const double parts = double(*count - closed), step = parts > 0 ? span / parts : 0;
  auto at = [=, n = *count](int64_t i) {
    if (closed && n > 1 && i == n - 1) return *last;
    const double steps = double(i);
    return (step != 0 ? steps * step : parts > 0 ? steps / parts * span : steps * span) + *first;
  };
  return make_spaced(*count, *id, *place, at, where);
}

// ---- the functions -----------------------------------------------------------------------------

struct Maker {
  Parameters parameters;
  PyObject* (*make)(const std::array<PyObject*, Parameters::kMost>& v);
};

const Maker* makers() {
  static const Maker table[] = {
      {{"empty", "shape dtype * device order", 1},
       [](const auto& v) { return of_shape(v[0], v[1], v[2], (PyObject*)nullptr, "empty", v[3]); }},
      {{"zeros", "shape dtype * device", 1},
       [](const auto& v) { return of_shape(v[0], v[1], v[2], number(0), "zeros"); }},
      {{"ones", "shape dtype * device", 1},
       [](const auto& v) { return of_shape(v[0], v[1], v[2], number(1), "ones"); }},
      {{"full", "shape value dtype * device", 2},
       [](const auto& v) { return of_shape(v[0], v[2], v[3], v[1], "full"); }},
      {{"empty_like", "x dtype * device", 1},
       [](const auto& v) { return like(v[0], v[1], v[2], nullptr, "empty_like"); }},
      {{"zeros_like", "x dtype * device", 1},
       [](const auto& v) { return like(v[0], v[1], v[2], number(0), "zeros_like"); }},
      {{"ones_like", "x dtype * device", 1},
       [](const auto& v) { return like(v[0], v[1], v[2], number(1), "ones_like"); }},
      {{"full_like", "x value dtype * device", 2},
       [](const auto& v) { return like(v[0], v[2], v[3], v[1], "full_like"); }},
      {{"arange", "start stop step dtype * device", 1},
       [](const auto& v) { return arange(v[0], v[1], v[2], v[3], v[4]); }},
      {{"linspace", "start stop num endpoint * dtype device", 2},
       [](const auto& v) { return linspace(v[0], v[1], v[2], v[3], v[4], v[5]); }},
  };
  return table;
}
constexpr int kMakers = 10;

PyObject* call_maker(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  const Maker& maker = makers()[number_of(self)];
  if (PyObject* made = maker.make(maker.parameters.read(args, nargs, names))) return made;
  static PyObject* const entry = PyRef::checked(PyUnicode_InternFromString("entry")).release();
  const PyRef python = PyRef::checked(PyObject_GetAttr(self, entry));
  return PyObject_Vectorcall(python.get(), args, size_t(nargs), names);
}

}  // namespace

void register_creation(nb::module_& m) {
  m.def(
      "_set_default_devices",
      [](nb::object entered, nb::dict names) {
        entered_devices = entered.release().ptr();
        device_names = names.release().ptr();
      },
      nb::arg("entered"), nb::arg("names"),
      "Say where the default device is: `entered` returns the devices of the running blocks, and "
      "`names` has `_process_default`.");
  m.def(
      "_maker",
      [](const char* name, const char* doc, nb::object python) {
        int number = 0;
        while (number < kMakers && makers()[number].parameters.function != name) ++number;
        if (number == kMakers) throw nb::value_error("no such function");
        nb::object function =
            nb::steal(make_function_with_id(number, name, doc, as_method(guarded<call_maker>)));
        nb::setattr(PyCFunction_GetSelf(function.ptr()), "entry", python);
        return function;
      },
      nb::arg("name"), nb::arg("doc"), nb::arg("python"),
      "Return a function that makes arrays; `python` carries out the calls that the core does "
      "not.");
}

}  // namespace gpuinterop
