// Arrays over foreign memory that is described by attributes: what the library's object says is
// checked, the driver is asked, and the object is held as the owner.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "array/array.hpp"
#include "array/error.hpp"
#include "cuda/cuda.hpp"
#include "cuda/stream.hpp"
#include "exchange/import.hpp"
#include "python/array_type.hpp"
#include "python/error_translation.hpp"
#include "python/exchange_c_api.hpp"
#include "python/foreign_memory.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

// Strides in bytes, of the same number as `extents`, as elements.
void read_strides(PyObject* strides, int n, const int64_t* extents, int64_t item, int64_t* steps,
                  const char* where) {
  if (read_ints(strides, steps, where, "strides") != n)
    fail(Kind::Shape, where, "as many strides as extents, " + std::to_string(n), repr_text(strides),
         "pass one stride for each dimension");
  for (int i = 0; i < n; ++i) {
    if (steps[i] % item && extents[i] > 1)
      fail(Kind::Contiguity, where,
           "strides of whole elements, " + std::to_string(item) + " bytes each",
           shape_text(n, steps) + " (bytes)", "copy the array in its own library first");
    steps[i] /= item;
  }
}

PyObject* finish(exchange::Checked&& c, PyTypeObject* cls, PyObject* base, CUstream stream,
                 const char* where) {
  Buffer* b = c.layout.size() ? exchange::adopt_borrowed(c, {stream}) : nullptr;
  if (!cls) cls = exchange_result_type(c.dtype);
  Array a = exchange::make_array(std::move(c), b, PyRef::borrow(base));
  if (b) exchange::join_stream_order(b, stream, where);
  PyObject* o = wrap(cls, std::move(a));
  if (!o) throw PythonError();
  return o;
}

// The driver's word on memory that an object describes; fails as `borrow` would.
void ask_driver(exchange::Checked* c, int device_type, int device_id, const char* where) {
  if (device_id < 0 && !c->data)
    fail(Kind::Exchange, where, "memory, whose address tells the device", "an empty array",
         "pass the device's number");
  if (device_id < 0) device_id = cuda::inspect(c->data).device;
  c->device = {static_cast<DeviceType>(device_type), device_id};
  c->memory = c->device.is_cuda() ? Memory::Device : Memory::Host;
  exchange::check_memory(c, exchange::Trust::Never, false, where);
}

// What `borrow` would refuse; nothing is made.
void check_borrowed(uint64_t ptr, nb::handle shape, nb::handle strides, nb::handle dtype,
                    int device_type, int device_id, const std::string& where) {
  int64_t extents[kMaxDims], steps[kMaxDims];
  const int n = read_ints(shape.ptr(), extents, where.c_str(), "shape");
  exchange::Checked c;
  c.dtype = dtype_id_of(dtype.ptr());
  read_strides(strides.ptr(), n, extents, itemsize_of(c.dtype), steps, where.c_str());
  c.layout = exchange::checked_layout(n, extents, steps, itemsize_of(c.dtype), where.c_str());
  c.data = c.layout.size() ? reinterpret_cast<char*>(static_cast<uintptr_t>(ptr)) : nullptr;
  ask_driver(&c, device_type, device_id, where.c_str());
}

// Foreign memory that `base` keeps alive, of a library without an exchange protocol of its own. The
// address is asked of the driver: device, context and the extent of the allocation must agree; with
// device_id -1 the driver's word on the device is taken. The library is taken to work on `stream`:
// our current stream waits for it here, and it waits for our last use.
nb::object borrow(nb::handle cls, uint64_t ptr, nb::handle shape, nb::handle strides,
                  nb::handle dtype, int device_type, int device_id, nb::handle base, bool readonly,
                  uint64_t stream, const std::string& where_text) {
  const char* where = where_text.c_str();
  int64_t extents[kMaxDims], steps[kMaxDims];
  const int n = read_ints(shape.ptr(), extents, where, "shape");
  exchange::Checked c;
  c.dtype = dtype_id_of(dtype.ptr());
  read_strides(strides.ptr(), n, extents, itemsize_of(c.dtype), steps, where);
  c.layout = exchange::checked_layout(n, extents, steps, itemsize_of(c.dtype), where);
  c.data = c.layout.size() ? reinterpret_cast<char*>(static_cast<uintptr_t>(ptr)) : nullptr;
  c.readonly = readonly;
  ask_driver(&c, device_type, device_id, where);
  auto* type = cls.is_none() ? nullptr : reinterpret_cast<PyTypeObject*>(cls.ptr());
  return nb::steal(finish(std::move(c), type, base.ptr(), cuda::stream_of(stream), where));
}

}  // namespace

void register_borrowing(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "borrow", &borrow, "cls"_a.none(), "ptr"_a, "shape"_a, "strides"_a, "dtype"_a,
      "device_type"_a, "device_id"_a, "base"_a.none(), "readonly"_a, "stream"_a, "where"_a,
      "An array over foreign memory that `base` keeps alive; strides in bytes. cls None: by dtype; "
      "device_id -1: where the driver says.");
  m.def("check_borrowed", &check_borrowed, "ptr"_a, "shape"_a, "strides"_a, "dtype"_a,
        "device_type"_a, "device_id"_a, "where"_a, "Fail where `borrow` would; nothing is made.");
}

}  // namespace gpuinterop
