// zeros(), arange() and the other functions that make arrays, for a shape of ints, a dtype and a device that are known, a
// number that fits.
#include <dlpack/dlpack.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "elementwise/launch.hpp"
#include "elementwise/operands.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/register.hpp"
#include "interpreter/served.hpp"

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
std::optional<Device> known_device(PyObject* spec) {
  if (!spec || spec == Py_None) spec = default_device();
  if (!spec || spec == Py_None) return {};
  if (!PyUnicode_CheckExact(spec)) return find_device(spec);
  if (is_text(spec, "cpu")) return Device{};
  if (is_text(spec, "cuda")) {  // the default device if that is a GPU, else the first one
    PyObject* const found = default_device();
    const auto device = found && found != Py_None ? find_device(found) : std::nullopt;
    if (device && device->is_cuda()) return device;
    static PyObject* const first = PyRef::checked(PyUnicode_FromString("cuda:0")).release();
    spec = first;
  }
  // A text with a number names one device.
  static PyObject* const known = PyRef::checked(PyDict_New()).release();
  if (PyObject* const device = PyDict_GetItem(known, spec)) return find_device(device);
  const Py_ssize_t n = PyUnicode_GetLength(spec);
  const Py_UCS4 last = n > 0 ? PyUnicode_ReadChar(spec, n - 1) : 0;
  if (last < '0' || last > '9' || PyDict_Size(known) >= 256) return {};
  const PyRef device = call_hook(Hook::Device, "(O)", spec);
  if (PyDict_SetItem(known, spec, device.get()) < 0) throw PythonError();
  return find_device(device.get());
}

// The dtype of an argument that may be null; an int is no dtype, although the core has numbers for them.
std::optional<DTypeId> known_dtype(PyObject* dtype, DTypeId otherwise, const char* where) {
  if (!dtype || dtype == Py_None) return otherwise;
  if (PyLong_Check(dtype)) return {};
  return read_dtype(dtype, where);
}

bool is_small(long long n) { return -(1 << 24) <= n && n <= (1 << 24); }

// The bytes of a number that fills an array. Without a dtype, float32 has to represent an int exactly.
bool known_value(PyObject* value, bool has_dtype, DTypeId dtype, unsigned char* item) {
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
  if (r.value && !known_value(r.value, r.has_dtype, r.dtype, item)) return nullptr;
  const Array made = make_empty(r.device, r.dtype, std::move(r.layout), where);
  if (r.value) {
    ops::require_recorded(made.device);
    ops::prepare_write(made, where);
    fill_elements(made, item, where);
  }
  return wrap(result_type(made.dtype), Array(made));
}

// (shape, [fill_value,] dtype=None, *, device=None)
template <class Value>
PyObject* of_shape(PyObject* shape, PyObject* dtype, PyObject* device, Value value,
                   const char* where, PyObject* order = nullptr) {
  if (order && !is_text(order, "C")) return nullptr;
  const auto id = known_dtype(dtype, kFloat32, where);
  const auto place = id ? known_device(device) : std::nullopt;
  if (!place) return nullptr;
  int64_t extents[kMaxDims];
  const int n = read_ints(shape, extents, where, "shape");
  return make_filled({*place, *id, Layout::c_order(n, extents, where), value,
                      !(!dtype || dtype == Py_None) || value == number(0) || value == number(1)},
                     where);
}

// (x, [fill_value,] dtype=None, *, device=None)
PyObject* like(PyObject* x, PyObject* dtype, PyObject* device, PyObject* value, const char* where) {
  if (!is_array(x)) return nullptr;
  const Array& a = read_array(x, where);
  const auto id = known_dtype(dtype, a.dtype, where);
  const bool same = !device || device == Py_None;
  const auto place = same ? std::optional(a.device) : known_device(device);
  if (!id || !place) return nullptr;
  const Layout& l = unwrap(x).layout;  // reading the dtype may have run code that changed it
  return make_filled({*place, *id, Layout::c_order(l.ndim(), l.shape(), where), value, true},
                     where);
}

// ---- evenly spaced values ----------------------------------------------------------------------

std::optional<long long> known_int(PyObject* o) {
  int overflow = 0;
  if (!PyLong_CheckExact(o)) return {};
  const long long n = PyLong_AsLongLongAndOverflow(o, &overflow);
  return overflow ? std::nullopt : std::optional(n);
}

// A float, or an int that float64 represents.
std::optional<double> known_float(PyObject* o) {
  if (PyFloat_Check(o)) {
    const double x = PyFloat_AsDouble(o);
    return std::isfinite(x) ? std::optional(x) : std::nullopt;
  }
  const auto n = known_int(o);
  return n && std::abs(*n) <= (1LL << 53) ? std::optional(double(*n)) : std::nullopt;
}

// Whether `n` is a value of the dtype; float32 only up to 2**24.
bool holds(DTypeId dtype, long long n) {
  const DTypeRow& row = kDTypes[dtype];
  if (row.code == kDLFloat) return dtype == kFloat64 ? std::abs(n) <= 1LL << 53 : is_small(n);
  const bool is_signed = row.code == kDLInt;
  const int bits = row.bits - is_signed;
  return (is_signed || n >= 0) && (bits >= 63 || (n >> bits) == (n < 0 ? -1 : 0));
}

// The values first + i * step, computed as W (int64 or float64). Element `odd` is `value`; -1: there is none.
template <class W>
struct Spaced {
  int64_t count;
  W first, step;
  int64_t odd = -1;
  W value = 0;
};

template <class T, class W>
void write_spaced(const Array& host, const Spaced<W>& s) {
  T* const out = reinterpret_cast<T*>(host.data);
  const GilRelease released(host.nbytes() >= kGilBytes);
  for (int64_t i = 0; i < s.count; ++i)
    out[i] = static_cast<T>(i == s.odd ? s.value : s.first + static_cast<W>(i) * s.step);
}

template <class W>
void write_on_host(const Array& host, const Spaced<W>& s) {
  switch (host.dtype) {
    case kFloat32: return write_spaced<float>(host, s);
    case kFloat64: return write_spaced<double>(host, s);
    default: break;
  }
  // Two's complement: the same bytes for signed and unsigned ones.
  switch (host.itemsize()) {
    case 1: return write_spaced<int8_t>(host, s);
    case 2: return write_spaced<int16_t>(host, s);
    case 4: return write_spaced<int32_t>(host, s);
    default: return write_spaced<int64_t>(host, s);
  }
}

// The kernel finds the number of an element by its address: see core_body() in gpuinterop/elementwise/promotion.py.
template <class W>
void write_on_gpu(const Array& made, const Spaced<W>& s, const char* where) {
  ops::require_recorded(made.device);
  ops::note_fresh(made);
  ops::IterationSpace w;
  w.add_array(made);
  w.address[0] = true;
  w.add_constant({reinterpret_cast<uint64_t>(made.data)}, kUInt64);
  w.add_constant({static_cast<uint64_t>(s.odd)}, kInt64);
  for (const W x : {s.first, s.step, s.value})
    w.add_constant({std::bit_cast<uint64_t>(x)}, std::is_same_v<W, double> ? kFloat64 : kInt64);
  w.inputs = w.operands;
  w.add_array(made);
  ops::build_iteration_space(w, 1, &s.count);
  ops::launch(ops::kSpaced, w, made.device.id, where);
}

// Every bit is NumPy's, on both devices.
template <class W>
PyObject* make_spaced(const Spaced<W>& s, DTypeId dtype, Device device, const char* where) {
  const Array made = make_empty(device, dtype, 1, &s.count, where);
  if (s.count && device.is_cuda())
    write_on_gpu(made, s, where);
  else if (s.count)
    write_on_host(made, s);
  return wrap(result_type(dtype), Array(made));
}

constexpr double kMostSpaced = 1e15;

PyObject* arange(PyObject* start, PyObject* stop, PyObject* step, PyObject* dtype,
                 PyObject* device) {
  const char* where = "arange";
  if (!stop || stop == Py_None) stop = std::exchange(start, number(0));
  if (!step) step = number(1);
  if (ops::recording_on_host()) return nullptr;
  const auto id = known_dtype(dtype, kFloat32, where);
  const auto place = id ? known_device(device) : std::nullopt;
  if (!place || (!is_integer(*id) && *id != kFloat32 && *id != kFloat64)) return nullptr;
  const auto a = known_int(start), b = known_int(stop), c = known_int(step);
  if (a && b && c) {
    if (!*c) return nullptr;
    const __int128 span = __int128{*b} - *a, by = *c;
    const __int128 count =
        (span > 0) != (by > 0) || !span ? 0 : (span + by - (by > 0 ? 1 : -1)) / by;
    if (double(count) > kMostSpaced) return nullptr;
    const Spaced<int64_t> s{static_cast<int64_t>(count), *a, *c};
    if (s.count && (!holds(*id, s.first) || !holds(*id, s.first + (s.count - 1) * s.step)))
      return nullptr;
    return make_spaced(s, *id, *place, where);
  }
  const auto first = known_float(start), end = known_float(stop), by = known_float(step);
  if (!first || !end || !by || !*by || is_integer(*id)) return nullptr;
  const double second = *first + *by, each = second - *first, steps = (*end - *first) / *by;
  const double last = *first + std::ceil(steps) * each;
  const double most = *id == kFloat32 ? double{std::numeric_limits<float>::max()} : HUGE_VAL;
  if (!(steps <= kMostSpaced) || (steps == 0 && *end != *first) || !(std::abs(last) < most) ||
      !(std::abs(*first) < most) || !(std::abs(second) < most))
    return nullptr;
  const auto count = static_cast<int64_t>(std::max(0.0, std::ceil(steps)));
  return make_spaced(Spaced<double>{count, *first, each, 1, second}, *id, *place, where);
}

PyObject* linspace(PyObject* start, PyObject* stop, PyObject* num, PyObject* endpoint,
                   PyObject* dtype, PyObject* device) {
  const char* where = "linspace";
  if (ops::recording_on_host() || (endpoint && !PyBool_Check(endpoint))) return nullptr;
  const auto id = known_dtype(dtype, kFloat32, where);
  const auto place = id ? known_device(device) : std::nullopt;
  const auto first = known_float(start), last = known_float(stop);
  const auto count = num ? known_int(num) : 50;
  if (!place || !first || !last || !count || *count < 0 || double(*count) > kMostSpaced ||
      (*id != kFloat32 && *id != kFloat64))
    return nullptr;
  const double most = *id == kFloat32 ? double{std::numeric_limits<float>::max()} : HUGE_VAL;
  const double span = *last - *first;
  if (!(std::abs(*first) < most && std::abs(*last) < most && std::abs(span) < HUGE_VAL))
    return nullptr;
  const bool closed = endpoint != Py_False;
  const double parts = double(*count - closed), step = parts > 0 ? span / parts : 0;
  if (step == 0 && parts > 0 && span != 0) return nullptr;  // NumPy divides in another order
  return make_spaced(
      Spaced<double>{*count, *first, step, closed && *count > 1 ? *count - 1 : -1, *last}, *id,
      *place, where);
}

PyObject* eye(PyObject* rows, PyObject* columns, PyObject* k, PyObject* dtype, PyObject* device) {
  const char* where = "eye";
  const auto n = known_int(rows);
  const auto m = given(columns) ? known_int(columns) : n;
  const auto diagonal = k ? known_int(k) : 0;
  const auto id = known_dtype(dtype, kFloat32, where);
  const auto place = id ? known_device(device) : std::nullopt;
  if (!n || !m || !diagonal || !place) return nullptr;
  const int64_t shape[] = {*n, *m};
  PyRef made = PyRef::steal(
      make_filled({*place, *id, Layout::c_order(2, shape, where), number(0), true}, where));
  unsigned char one[16];
  if (!made || !scalar_bytes(number(1), *id, one)) return nullptr;
  const int64_t below = std::max<int64_t>(-*diagonal, 0), right = std::max<int64_t>(*diagonal, 0);
  if (below >= *n || right >= *m) return made.release();
  Array ones = unwrap(made.get());
  const int64_t length = std::min(*n - below, *m - right), step = *m + 1;
  ones.layout = Layout(1, &length, &step);
  ones.data += (below * *m + right) * ones.itemsize();
  fill_elements(ones, one, where);
  return made.release();
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
  serve({{"empty", "shape dtype * device order", 1}, [](const Values& v) {
           return of_shape(v[0], v[1], v[2], (PyObject*)nullptr, "empty", v[3]);
         }});
  serve({{"zeros", "shape dtype * device", 1},
         [](const Values& v) { return of_shape(v[0], v[1], v[2], number(0), "zeros"); }});
  serve({{"ones", "shape dtype * device", 1},
         [](const Values& v) { return of_shape(v[0], v[1], v[2], number(1), "ones"); }});
  serve({{"full", "shape fill_value dtype * device", 2},
         [](const Values& v) { return of_shape(v[0], v[2], v[3], v[1], "full"); }});
  serve({{"empty_like", "x dtype * device", 1},
         [](const Values& v) { return like(v[0], v[1], v[2], nullptr, "empty_like"); }});
  serve({{"zeros_like", "x dtype * device", 1},
         [](const Values& v) { return like(v[0], v[1], v[2], number(0), "zeros_like"); }});
  serve({{"ones_like", "x dtype * device", 1},
         [](const Values& v) { return like(v[0], v[1], v[2], number(1), "ones_like"); }});
  serve({{"full_like", "x fill_value dtype * device", 2},
         [](const Values& v) { return like(v[0], v[2], v[3], v[1], "full_like"); }});
  serve({{"arange", "start stop step dtype * device", 1},
         [](const Values& v) { return arange(v[0], v[1], v[2], v[3], v[4]); }});
  serve({{"linspace", "start stop num endpoint * dtype device", 2},
         [](const Values& v) { return linspace(v[0], v[1], v[2], v[3], v[4], v[5]); }});
  serve({{"eye", "n m k dtype * device", 1},
         [](const Values& v) { return eye(v[0], v[1], v[2], v[3], v[4]); }});
}

}  // namespace gpuinterop
