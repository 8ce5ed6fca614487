// Arrays over foreign memory that is described by attributes: what the library's object says is
// checked, the driver is asked, and the object is held as the owner.
#include <nanobind/nanobind.h>

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
  c.dtype = dtype_id_of(dtype);
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
  if (device_id < 0) device_id = cuda::inspect(c.data).device;
  c.device = {static_cast<DeviceType>(device_type), device_id};
  c.memory = c.device.is_cuda() ? Memory::Device : Memory::Host;
  exchange::check_memory(&c, exchange::Trust::Never, false, where);
  return c;
}

// Foreign memory that `base` keeps alive, of a library without an exchange protocol of its own, which
// works on `stream`: our current stream waits for it, and it waits for our last use.
nb::object borrow(nb::handle cls, uint64_t ptr, nb::handle shape, nb::handle strides,
                  nb::handle dtype, int device_type, int device_id, nb::handle base, bool readonly,
                  uint64_t stream, const std::string& where_text) {
  const char* where = where_text.c_str();
  exchange::Checked c = described(ptr, shape, strides, dtype, device_type, device_id, where);
  c.readonly = readonly;
  Buffer* b = c.layout.size() ? exchange::adopt_borrowed(c, {cuda::stream_of(stream)}) : nullptr;
  auto* type =
      cls.is_none() ? exchange_result_type(c.dtype) : reinterpret_cast<PyTypeObject*>(cls.ptr());
  Array a = exchange::make_array(std::move(c), b, PyRef::borrow(base.ptr()));
  if (b) exchange::join_stream_order(b, cuda::stream_of(stream), where);
  return nb::steal(wrap_or_throw(type, std::move(a)));
}

}  // namespace

void register_borrowing(nb::module_& m) {
  using namespace nb::literals;
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
