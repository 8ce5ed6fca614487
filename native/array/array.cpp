#include "array/array.hpp"

#include "array/error.hpp"
#include "ops/graph.hpp"

namespace gpuinterop {

Array view_of(PyObject* owner) {
  const Array& source = unwrap(owner);
  Array view;
  view.buffer = source.buffer;
  // Chains are flattened: the base of a view is the root, never a view between.
  view.base = source.base ? source.base : PyRef::borrow(owner);
  view.device = source.device;
  view.dtype = source.dtype;
  view.readonly = source.readonly;
  return view;
}

std::string device_text(Device device) {
  return device.is_cuda() ? "cuda:" + std::to_string(device.id) : "cpu";
}

Array make_empty(Device device, DTypeId dtype, Layout layout, const char* where) {
  Array a;
  a.layout = std::move(layout);
  a.device = device;
  a.dtype = dtype;
  int64_t nbytes;
  if (__builtin_mul_overflow(a.layout.size(), itemsize_of(dtype), &nbytes))
    fail(Kind::Shape, where, "a shape whose bytes fit 63 bits",
         "shape " + shape_text(a.layout.ndim(), a.layout.shape()), "use smaller extents");
  if (nbytes > 0) {
    a.buffer = allocate(device, nbytes, where);
    a.data = a.buffer->ptr;
    ops::note_unset(a);
  }
  return a;
}

Array make_empty(Device device, DTypeId dtype, int ndim, const int64_t* shape, const char* where) {
  return make_empty(device, dtype, Layout::c_order(ndim, shape, where), where);
}

}  // namespace gpuinterop
