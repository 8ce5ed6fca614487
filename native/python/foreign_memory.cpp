// Arrays over foreign memory that is described by attributes: what the library's object says is
// checked, the driver is asked, and the object is held as the owner.
#include <nanobind/nanobind.h>

#include <utility>

#include "array/array.hpp"
#include "array/error.hpp"
#include "array/text_arguments.hpp"
#include "cuda/cuda.hpp"
#include "cuda/stream.hpp"
#include "exchange/import.hpp"
#include "python/array_type.hpp"
#include "python/error_translation.hpp"
#include "python/exchange_c_api.hpp"
#include "python/exchange_import.hpp"
#include "python/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

exchange::Checked exchange::read_parts(PyObject* shape, PyObject* strides, PyObject* dtype,
                                       const char* where) {
  Checked c;
  try {
    c.dtype = dtype_id_of(dtype);
  } catch (const PythonError&) {
    forgive();
    fail(Kind::DType, where, "a dtype of numbers in native byte order that gpuinterop holds",
         repr_text(dtype), "cast the array in its own library first");
  }
  int64_t extents[kMaxDims], steps[kMaxDims];
  const int n = read_ints(shape, extents, where, "shape");
  const bool dense = strides == Py_None;
  if (!dense && read_ints(strides, steps, where, "strides") != n)
    fail(Kind::Shape, where, "as many strides as extents, " + std::to_string(n), repr_text(strides),
         "pass one stride for each dimension");
  c.layout = layout_of_bytes(n, extents, dense ? nullptr : steps, itemsize_of(c.dtype), where);
  return c;
}

namespace {

// Foreign memory as an object describes it, checked as far as that goes; the driver has its say on the
// address. With device_id -1 the driver's word on the device is taken.
exchange::Checked described(uint64_t ptr, nb::handle shape, nb::handle strides, nb::handle dtype,
                            int device_type, int device_id, const char* where) {
  exchange::Checked c = exchange::read_parts(shape.ptr(), strides.ptr(), dtype.ptr(), where);
  if (c.layout.size()) c.data = reinterpret_cast<char*>(static_cast<uintptr_t>(ptr));
  if (device_id < 0 && !c.data)
    fail(Kind::Exchange, where, "memory, whose address tells the device", "an empty array",
         "pass the device's number");
  c.device = {static_cast<DeviceType>(device_type), device_id};
  c.memory = !c.device.is_cuda() ? Memory::Host
             : device_id < 0     ? Memory::Managed  // check_memory() takes the driver's word
                                 : Memory::Device;
  exchange::check_memory(&c, exchange::Trust::Never, false, where);
  return c;
}

Array array_over(exchange::Checked&& c, PyObject* base, uint64_t stream, const char* where) {
  Buffer* b = c.layout.size() ? exchange::adopt_borrowed(c, {cuda::stream_of(stream)}) : nullptr;
  Array a = exchange::make_array(std::move(c), b, PyRef::borrow(base));
  if (b) exchange::join_stream_order(b, cuda::stream_of(stream), where);
  return a;
}

// Foreign memory that `base` keeps alive, of a library without an exchange protocol of its own, which
// works on `stream`: our current stream waits for it, and it waits for our last use.
nb::object borrow(nb::handle cls, uint64_t ptr, nb::handle shape, nb::handle strides,
                  nb::handle dtype, int device_type, int device_id, nb::handle base, bool readonly,
                  uint64_t stream, const std::string& where_text) {
  const char* where = where_text.c_str();
  exchange::Checked c = described(ptr, shape, strides, dtype, device_type, device_id, where);
  c.readonly = readonly;
  auto* type =
      cls.is_none() ? exchange_result_type(c.dtype) : reinterpret_cast<PyTypeObject*>(cls.ptr());
  return nb::steal(wrap_or_throw(type, array_over(std::move(c), base.ptr(), stream, where)));
}

PyObject* set_memory_reader(PyObject*, PyObject* args) {
  PyObject *type, *reader;
  if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &type, &reader)) return nullptr;
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    exchange::ForeignType& p = exchange::foreign_type_of(reinterpret_cast<PyTypeObject*>(type));
    if (p.family != exchange::Family::Other && p.family != exchange::Family::Described)
      Py_RETURN_NONE;
    const PyRef before = PyRef::steal(std::exchange(p.reader, PyRef::borrow(reader).release()));
    p.family = exchange::Family::Described;
    p.plain = true;
    Py_RETURN_NONE;
  });
}

PyMethodDef functions[] = {
    {"_set_memory_reader", set_memory_reader, METH_VARARGS,
     "_set_memory_reader(type, reader)\n--\n\nImport ordinary objects of exactly this class by "
     "reader(obj), which returns (shape, strides, dtype, address, device or -1, stream)."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool exchange::import_described(const ForeignType& p, PyObject* obj, const char* where,
                                Array* out) {
  const PyRef reader = PyRef::borrow(p.reader);
  try {
    const PyRef parts = PyRef::steal(
        run_python([&] { return PyObject_CallFunctionObjArgs(reader.get(), obj, nullptr); }));
    PyObject *shape, *strides, *dtype, *address, *stream;
    int device;
    if (!parts || !PyArg_ParseTuple(parts.get(), "OOOOiO", &shape, &strides, &dtype, &address,
                                    &device, &stream))
      throw PythonError();
    const unsigned long long ptr = PyLong_AsUnsignedLongLong(address);
    const unsigned long long producer = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(stream);
    if (PyErr_Occurred()) throw PythonError();
    *out = array_over(described(ptr, shape, strides, dtype, int(DeviceType::Cuda), device, where),
                      obj, producer, where);
    return true;
  } catch (const PythonError&) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw;
    PyErr_Clear();
  } catch (const Error&) {
    // Python raises the error, in its own words.
  }
  return false;
}

void register_borrowing(nb::module_& m) {
  using namespace nb::literals;
  if (PyModule_AddFunctions(m.ptr(), functions) < 0) throw nb::python_error();
  m.def(
      "borrow", &borrow, "cls"_a.none(), "ptr"_a, "shape"_a, "strides"_a, "dtype"_a,
      "device_type"_a, "device_id"_a, "base"_a.none(), "readonly"_a, "stream"_a, "where"_a,
      "An array over foreign memory that `base` keeps alive; strides in bytes. cls None: by dtype; "
      "device_id -1: where the driver says.");
  m.def(
      "check_borrowed",
      [](uint64_t ptr, nb::handle shape, nb::handle strides, nb::handle dtype, int device_type,
         int device_id, const std::string& where) {
        described(ptr, shape, strides, dtype, device_type, device_id, where.c_str());
      },
      "ptr"_a, "shape"_a, "strides"_a, "dtype"_a, "device_type"_a, "device_id"_a, "where"_a,
      "Fail where `borrow` would; nothing is made.");
}

}  // namespace gpuinterop
