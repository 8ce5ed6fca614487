#include "arrays/array.hpp"

#include <algorithm>

#include "interpreter/error.hpp"

namespace gpuinterop {

namespace {

// The callback of a weak reference, which it releases. `self`: a capsule of the type and the function.
PyObject* forget_type(PyObject* self, PyObject* reference) {
  const PyRef released = PyRef::steal(reference);
  const auto forget = reinterpret_cast<void (*)(PyTypeObject*)>(PyCapsule_GetContext(self));
  forget(static_cast<PyTypeObject*>(PyCapsule_GetPointer(self, nullptr)));
  Py_RETURN_NONE;
}

}  // namespace

void before_destruction(PyTypeObject* type, void (*forget)(PyTypeObject*)) {
  static PyMethodDef definition = {"forget_type", forget_type, METH_O, nullptr};
  const PyRef self = PyRef::checked(PyCapsule_New(type, nullptr, nullptr));
  PyCapsule_SetContext(self.get(), reinterpret_cast<void*>(forget));
  const PyRef callback = PyRef::checked(PyCFunction_New(&definition, self.get()));
  PyRef::checked(PyWeakref_NewRef(reinterpret_cast<PyObject*>(type), callback.get())).release();
}

constinit thread_local NoteMade note_made [[gnu::tls_model("initial-exec")]] = nullptr;

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

uint64_t alignment_of(DTypeId dtype, Device device) noexcept {
  const bool parts = is_complex(dtype) && !device.is_cuda();
  return uint64_t(parts ? itemsize_of(dtype) / 2 : itemsize_of(dtype));
}

bool bytes_fit(const Layout& l, int64_t item) noexcept {
  int64_t count = l.size(), nbytes;
  if (count == 0) {
    // Strides of an empty array are those of its other axes.
    count = 1;
    for (int i = 0; i < l.ndim(); ++i) count *= std::max<int64_t>(l.shape()[i], 1);
  }
  return !__builtin_mul_overflow(count, item, &nbytes);
}

void require_bytes(const Layout& l, int64_t item, const char* where) {
  if (!bytes_fit(l, item)) fail_with("shape_too_large", where, {shape_text(l.ndim(), l.shape())});
}

Array make_empty(Device device, DTypeId dtype, Layout layout, const char* where, bool zeroed) {
  Array a{.layout = std::move(layout), .device = device, .dtype = dtype};
  require_bytes(a.layout, a.itemsize(), where);
  if (a.nbytes() > 0) {
    a.buffer = allocate(device, a.nbytes(), where, zeroed);
    a.data = a.buffer->ptr;
    if (note_made) [[unlikely]]
      note_made(a);
  }
  return a;
}

Array empty_like(const Array& a, Device device, const char* where) {
  return make_empty(device, a.dtype, a.layout.ndim(), a.layout.shape(), where);
}

Array make_empty(Device device, DTypeId dtype, int ndim, const int64_t* shape, const char* where) {
  return make_empty(device, dtype, Layout::c_order(ndim, shape, where), where);
}

}  // namespace gpuinterop
