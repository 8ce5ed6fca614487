// Values of arrays for Python: downloads, single elements, and copies between arrays.

#include <dlpack/dlpack.h>

#include <cstring>
#include <utility>
#include <vector>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "devices/pinned.hpp"
#include "devices/staging.hpp"
#include "elementwise/host_loops.hpp"
#include "elementwise/operands.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

// `cls` may be None: the class of new arrays of the dtype.
PyTypeObject* class_of_new(nb::handle cls, DTypeId dtype, const char* where) {
  if (cls.is_none()) return result_type(dtype);
  PyTypeObject* const type = read_class(cls, where);
  require_holds(type, dtype, where);
  return type;
}

nb::object empty(nb::handle cls, nb::handle shape, nb::handle dtype, int device_type, int device_id,
                 const std::string& order, const char* where) {
  int64_t extents[kMaxDims];
  const int n = read_ints(shape.ptr(), extents, where, "shape");
  const Device device = read_device(device_type, device_id, where);
  if (order != "C" && order != "F") fail_with("wrong_order", where, {"CF", "'" + order + "'"});
  Layout layout =
      order == "F" ? Layout::f_order(n, extents, where) : Layout::c_order(n, extents, where);
  const DTypeId id = read_dtype(dtype, where);
  PyTypeObject* const type = class_of_new(cls, id, where);
  return nb::steal(wrap(type, make_empty(device, id, std::move(layout), where)));
}

nb::object full(nb::handle cls, nb::handle shape, nb::handle value, nb::handle dtype,
                int device_type, int device_id, const char* where) {
  int64_t extents[kMaxDims];
  const int n = read_ints(shape.ptr(), extents, where, "shape");
  const Device device = read_device(device_type, device_id, where);
  const DTypeId id = read_dtype(dtype, where);
  PyTypeObject* const type = class_of_new(cls, id, where);
  unsigned char item[16] = {};
  const auto is_set = [](unsigned char byte) { return byte != 0; };
  const bool zeroed = !device.is_cuda() && !ops::recording_on_host() &&
                      scalar_bytes(value.ptr(), id, item) &&
                      std::none_of(item, item + itemsize_of(id), is_set);
  const Array made = make_empty(device, id, Layout::c_order(n, extents, where), where, zeroed);
  PyRef result = PyRef::steal(wrap(type, Array(made)));
  if (!zeroed) assign(made, type, value.ptr(), where);
  return nb::steal(result.release());
}

// The first field of NumPy's PyArrayObject, which its ABI fixes.
struct NumpyFields {
  PyObject_HEAD char* data;
};

char* address_of(PyObject* numpy_array) {
  static bool checked = false, documented = false;
  auto* data = reinterpret_cast<NumpyFields*>(numpy_array)->data;
  if (documented) return data;
  const PyRef parts = PyRef::checked(PyObject_GetAttrString(numpy_array, "__array_interface__"));
  unsigned long long address;
  int readonly;
  if (!PyArg_ParseTuple(PyDict_GetItemString(parts.get(), "data"), "Kp", &address, &readonly))
    throw PythonError();
  auto* reported = reinterpret_cast<char*>(static_cast<uintptr_t>(address));
  if (!std::exchange(checked, true)) documented = reported == data;
  return reported;
}

// A new NumPy array like `source`; `base` of the result is its object.
Array new_numpy_array(const Array& source, const char* where) {
  static PyObject* empty = nullptr;
  if (!empty) {
    const PyRef numpy = PyRef::checked(PyImport_ImportModule("numpy"));
    empty = PyRef::checked(PyObject_GetAttrString(numpy.get(), "empty")).release();
  }
  const Layout& l = source.layout;
  const PyRef shape = PyRef::steal(int_tuple(l.ndim(), l.shape(), 1));
  PyObject* args[] = {shape.get(), dtype_object(source.dtype)};
  const PyRef array = PyRef::checked(PyObject_Vectorcall(empty, args, 2, nullptr));
  Array host;
  host.layout = Layout::c_order(l.ndim(), l.shape(), where);
  host.dtype = source.dtype;
  host.data = address_of(array.get());
  host.base = array;
  return host;
}

// Makes the copy of get() and numpy.asarray().
nb::object download(const Array& source, const char* where, bool uncounted) {
  if (!source.device.is_cuda()) ops::require_values(where, source);
  const Array host = new_numpy_array(source, where);
  const Uncounted guard(uncounted);
  copy_elements(host, source, where);
  return nb::borrow(host.base.get());
}

// Makes the copies of get() for arrays on one device. Waits once for those below a mebibyte (kStagedBytes), and
// for each larger one.
nb::list download_all(const nb::list& arrays) {
  struct Queued {
    Array landed, host;
  };
  const char* where = "get";
  std::vector<Queued> queued;
  nb::list results;
  int device = 0;
  for (const nb::handle x : arrays) {
    const Array source = read_array(x, where);
    const Array host = new_numpy_array(source, where);
    results.append(nb::borrow(host.base.get()));
    device = source.device.id;
    // A capture refuses the copy that waits; an empty array has nothing to copy.
    const bool small = source.nbytes() < cuda::kStagedBytes && source.layout.size();
    BufferRef mailbox;
    if (small && !cuda::is_capturing(cuda::current_stream(device)))
      mailbox = cuda::take_mailbox(device, source.nbytes(), where);
    if (!mailbox) {
      copy_elements(host, source, where);
      continue;
    }
    Array landed = host;
    landed.base = {};
    landed.data = mailbox->ptr;
    landed.buffer = std::move(mailbox);
    copy_elements(landed, source, where, true);
    queued.push_back({std::move(landed), host});
  }
  if (!queued.empty()) cuda::finish_current_stream(device, where);
  for (const Queued& q : queued) std::memcpy(q.host.data, q.landed.data, size_t(q.host.nbytes()));
  return results;
}

// Whether `index` names an element, by the rule of item(): none for the only element, one for the flattened
// array, or one for each axis. `offset` counts elements from the array's address.
bool find_element(const Layout& l, int n, const int64_t* index, int64_t* offset) {
  const int ndim = l.ndim();
  if (n == 0) return l.size() == 1;
  int64_t places[kMaxDims];
  if (n == 1) {
    int64_t flat = index[0] < 0 ? index[0] + l.size() : index[0];
    if (flat < 0 || flat >= l.size()) return false;
    for (int d = ndim - 1; d >= 0; --d) {
      places[d] = flat % l.shape()[d];
      flat /= l.shape()[d];
    }
  } else if (n == ndim) {
    for (int d = 0; d < ndim; ++d) {
      places[d] = index[d] < 0 ? index[d] + l.shape()[d] : index[d];
      if (places[d] < 0 || places[d] >= l.shape()[d]) return false;
    }
  } else {
    return false;
  }
  for (int d = 0; d < ndim; ++d) *offset += places[d] * l.strides()[d];
  return true;
}

template <class T>
T read_as(const void* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// A Python scalar from the bytes of an element; null for dtypes that NumPy converts.
PyObject* scalar_from(DTypeId dtype, const void* bytes) {
  const DTypeRow& row = kDTypes[dtype];
  if (dtype == kBool) return PyBool_FromLong(read_as<uint8_t>(bytes));
  if (dtype == kFloat32) return PyFloat_FromDouble(read_as<float>(bytes));
  if (dtype == kFloat64) return PyFloat_FromDouble(read_as<double>(bytes));
  const bool is_signed = row.code == kDLInt;
  if (!is_signed && row.code != kDLUInt) return nullptr;
  switch (row.bits) {
    case 8: return PyLong_FromLong(is_signed ? read_as<int8_t>(bytes) : read_as<uint8_t>(bytes));
    case 16: return PyLong_FromLong(is_signed ? read_as<int16_t>(bytes) : read_as<uint16_t>(bytes));
    case 32:
      return PyLong_FromLongLong(is_signed ? read_as<int32_t>(bytes)
                                           : int64_t{read_as<uint32_t>(bytes)});
    case 64:
      return is_signed ? PyLong_FromLongLong(read_as<int64_t>(bytes))
                       : PyLong_FromUnsignedLongLong(read_as<uint64_t>(bytes));
    default: return nullptr;
  }
}

// NotImplemented for an index that names no element: Python raises the error.
nb::object element(nb::handle x, nb::tuple index, const char* where) {
  const nb::object none = nb::borrow(Py_NotImplemented);
  int64_t places[kMaxDims];
  const size_t n = index.size();
  if (n > kMaxDims) return none;
  for (size_t i = 0; i < n; ++i) {  // first, because an __index__ may change the array
    places[i] = PyNumber_AsSsize_t(nb::object(index[i]).ptr(), PyExc_IndexError);
    if (places[i] != -1 || !PyErr_Occurred()) continue;
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_IndexError))
      throw PythonError();
    PyErr_Clear();
    return none;
  }
  Array source = read_array(x, where);
  int64_t offset = 0;
  if (!find_element(source.layout, static_cast<int>(n), places, &offset)) return none;
  source.data += offset * source.itemsize();
  source.layout = Layout();
  alignas(16) char bytes[16];
  Array host;
  host.dtype = source.dtype;
  host.data = bytes;
  if (!source.device.is_cuda()) ops::require_values(where, source);
  const Uncounted guard(true);
  copy_elements(host, source, where);
  if (PyObject* made = scalar_from(source.dtype, bytes)) return nb::steal(made);
  if (PyErr_Occurred()) throw PythonError();
  return download(host, where, true).attr("item")();
}

void copy_into(Array target, Array source, bool async, const char* where, bool uncounted,
               bool casts) {
  if (target.dtype != source.dtype && !(casts && copy_takes_dtypes(target, source)))
    fail(Kind::DType, where, "equal dtypes",
         std::string(kDTypes[target.dtype].name) + " and " + kDTypes[source.dtype].name,
         "cast first: x.astype(dtype)");
  if (target.readonly) fail_with("read_only", where);
  ops::require_apart(target, source, where);
  source.layout = source.layout.broadcast_to(target.layout.ndim(), target.layout.shape(), where);
  ops::prepare_write(target, where);
  const Uncounted guard(uncounted);
  copy_elements(target, source, where, async);
}

}  // namespace

void register_downloads(nb::module_& m) {
  using namespace nb::literals;
  m.def("full", &full, "cls"_a.none(), "shape"_a.none(), "value"_a.none(), "dtype"_a,
        "device_type"_a, "device_id"_a, "where"_a, "Return a C-ordered array of one value.");
  m.def("empty", &empty, "cls"_a.none(), "shape"_a.none(), "dtype"_a, "device_type"_a,
        "device_id"_a, "order"_a = "C", "where"_a = "empty",
        "Return an uninitialized array of `cls`.");
  m.def(
      "copy_into", &copy_into, "dst"_a, "src"_a, "non_blocking"_a = false, "where"_a = "copy_into",
      "uncounted"_a = false, "casts"_a = false,
      "Copy src into dst, between any strides and devices, for equal dtypes, or, with `casts`, on "
      "one device. uncounted: dst is a result, or one of the two holds Python scalars, so copy "
      "scopes do not count this copy.");
  m.def("download", &download, "x"_a, "where"_a = "download", "uncounted"_a = false,
        "Return a new NumPy array with the elements of an array on any device.");
  m.def("download_all", &download_all, "arrays"_a,
        "Return new NumPy arrays with the elements of arrays on one GPU.");
  m.def("_element", &element, "x"_a, "index"_a, "where"_a,
        "Return x.item(*index), or NotImplemented if the index names no element.");
}

}  // namespace gpuinterop
