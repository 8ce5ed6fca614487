// Arrays over foreign memory described by attributes: checks the attributes, queries the driver, and holds
// the object as the owner.
#include <nanobind/nanobind.h>

#include <utility>

#include "arrays/array.hpp"
#include "arrays/type.hpp"
#include "devices/cuda.hpp"
#include "devices/stream.hpp"
#include "exchange/c_api.hpp"
#include "exchange/import.hpp"
#include "exchange/import_any.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

// The layout that Python objects describe; strides in bytes or elements, or None for C order.
Layout read_layout(PyObject* shape, PyObject* strides, int64_t item, bool in_elements,
                   const char* where) {
  int64_t extents[kMaxDims], steps[kMaxDims];
  const int n = read_ints(shape, extents, where, "shape");
  const bool dense = strides == Py_None;
  if (!dense && read_ints(strides, steps, where, "strides") != n)
    fail_with("wrong_number_of_strides", where, {int64_t{n}, repr_text(strides)});
  Layout compact = Layout::c_order(n, extents, where);
  if (dense) return compact;
  if (in_elements) return exchange::checked_layout(n, extents, steps, item, where);
  return exchange::layout_of_bytes(n, extents, steps, item, where);
}

}  // namespace

Array exchange::array_over(Checked&& c, PyObject* base, void* stream, const char* where) {
  Buffer* b = c.layout.size() ? adopt_borrowed(c, {stream}) : nullptr;
  Array a = make_array(std::move(c), b, PyRef::borrow(base == Py_None ? nullptr : base));
  if (b) join_stream_order(b, stream, where);
  return a;
}

exchange::Checked exchange::read_parts(PyObject* shape, PyObject* strides, PyObject* dtype,
                                       const char* where, bool in_elements) {
  Checked c;
  c.dtype = read_dtype(dtype, where);
  c.layout = read_layout(shape, strides, itemsize_of(c.dtype), in_elements, where);
  return c;
}

namespace {

// Checks the layout against the size of the memory, if the caller passes it or a gpuinterop array owns the
// memory.
void check_extent(const exchange::Checked& c, PyObject* base, int64_t nbytes, const char* where) {
  Array memory_owner;
  memory_owner.dtype = c.dtype;
  if (nbytes >= 0) {
    memory_owner.buffer = BufferRef(new Buffer);
    memory_owner.buffer->ptr = c.data;
    memory_owner.buffer->nbytes = nbytes;
  } else if (is_array(base)) {
    const Array& owner = unwrap(base);
    memory_owner.buffer = owner.buffer;
    const Memory memory = owner.buffer ? owner.buffer->memory : Memory::Host;
    if (owner.device != c.device && memory != Memory::Pinned && memory != Memory::Managed)
      fail(Kind::DeviceMismatch, where,
           device_text(owner.device) + ", which holds the memory of base", device_text(c.device),
           "omit the device, or copy: base.to_device(device)");
  } else {
    return;
  }
  check_reach(memory_owner, c.layout, c.data, where);
}

// Foreign memory as an object describes it. Checks the description, and the address with the driver. With
// device_id -1 the driver determines the device.
exchange::Checked described(uint64_t ptr, nb::handle shape, nb::handle strides, nb::handle dtype,
                            int device_type, int device_id, const char* where,
                            PyObject* base = Py_None, int64_t nbytes = -1,
                            bool in_elements = false) {
  exchange::Checked c =
      exchange::read_parts(shape.ptr(), strides.ptr(), dtype.ptr(), where, in_elements);
  if (c.layout.size()) c.data = reinterpret_cast<char*>(static_cast<uintptr_t>(ptr));
  if (device_id < 0 && !c.data)
    fail(Kind::Exchange, where, "a device number, because an empty array has no address",
         "an empty array without a device number", "pass the device number");
  c.device = read_device(device_type, device_id, where);
  c.memory = !c.device.is_cuda() ? Memory::Host
             : device_id < 0     ? Memory::Managed  // check_memory() uses the driver's device
                                 : Memory::Device;
  if (c.data) check_extent(c, base, nbytes, where);
  exchange::check_memory(&c, exchange::Trust::Never, false, where);
  return c;
}

// Memory that `base` keeps alive, or that has no owner. A library without an exchange protocol works on
// `stream`: the current stream waits for it, and it waits for gpuinterop's last use.
nb::object from_pointer(nb::handle cls, uint64_t ptr, nb::handle shape, nb::handle strides,
                        nb::handle dtype, int device_type, int device_id, nb::handle base,
                        bool readonly, nb::handle stream, const std::string& where_text,
                        int64_t nbytes, bool in_elements) {
  const char* where = where_text.c_str();
  exchange::Checked c = described(ptr, shape, strides, dtype, device_type, device_id, where,
                                  base.ptr(), nbytes, in_elements);
  c.readonly = readonly;
  auto* type = cls.is_none() ? result_type(c.dtype) : read_class(cls, where);
  require_holds(type, c.dtype, where);
  void* producer = stream.is_none() ? nullptr : cuda::stream_of(nb::cast<uint64_t>(stream));
  Array a = exchange::array_over(std::move(c), base.ptr(), producer, where);
  if (nbytes >= 0 && a.buffer) {
    a.buffer->ptr = a.data;
    a.buffer->nbytes = nbytes;
  }
  return nb::steal(wrap(type, std::move(a)));
}

void set_memory_reader(nb::type_object type, nb::handle reader) {
  exchange::ForeignType& p = exchange::foreign_type_of(reinterpret_cast<PyTypeObject*>(type.ptr()));
  if (p.family != exchange::Family::Other && p.family != exchange::Family::Described) return;
  const PyRef before = PyRef::steal(std::exchange(p.reader, PyRef::borrow(reader.ptr()).release()));
  p.family = exchange::Family::Described;
  p.ordinary = true;
}

}  // namespace

bool exchange::import_described(const ForeignType& p, PyObject* obj, const char* where,
                                Array* out) {
  const PyRef reader = PyRef::borrow(p.reader);
  try {
    const PyRef parts = PyRef::steal(PyObject_CallFunctionObjArgs(reader.get(), obj, nullptr));
    PyObject *shape, *strides, *dtype, *address, *stream;
    int device;
    if (!parts || !PyArg_ParseTuple(parts.get(), "OOOOiO", &shape, &strides, &dtype, &address,
                                    &device, &stream))
      throw PythonError();
    const unsigned long long ptr = PyLong_AsUnsignedLongLong(address);
    const unsigned long long producer = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(stream);
    if (PyErr_Occurred()) throw PythonError();
    *out = array_over(described(ptr, shape, strides, dtype, int(DeviceType::Cuda), device, where),
                      obj, cuda::stream_of(producer), where);
    return true;
  } catch (const PythonError&) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw;
    PyErr_Clear();
  } catch (const Error&) {
    // Python raises the error with the library's own text.
  }
  return false;
}

void register_borrowing(nb::module_& m) {
  using namespace nb::literals;
  m.def("_set_memory_reader", &set_memory_reader, "type"_a, "reader"_a,
        "Import ordinary objects of exactly this class by reader(obj), which returns (shape, "
        "strides, "
        "dtype, address, device or -1, stream).");
  m.def(
      "from_pointer", &from_pointer, "cls"_a.none(), "ptr"_a, "shape"_a, "strides"_a.none(),
      "dtype"_a, "device_type"_a, "device_id"_a, "base"_a.none(), "readonly"_a = false,
      "stream"_a = nb::none(), "where"_a = "from_pointer", "nbytes"_a = -1, "in_elements"_a = false,
      "Return an array over memory that `base` keeps alive; strides in bytes, unless in_elements. "
      "cls None: by dtype; device_id -1: the device that the driver reports.");
  m.def(
      "check_borrowed",
      [](uint64_t ptr, nb::handle shape, nb::handle strides, nb::handle dtype, int device_type,
         int device_id, const std::string& where) {
        described(ptr, shape, strides, dtype, device_type, device_id, where.c_str());
      },
      "ptr"_a, "shape"_a, "strides"_a, "dtype"_a, "device_type"_a, "device_id"_a, "where"_a,
      "Raise the errors that `from_pointer` would raise, without creating an array.");
}

}  // namespace gpuinterop
