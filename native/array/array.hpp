// The array: a Layout over a Buffer. One C++ value inside every Python array object.
#pragma once

#include <Python.h>

#include "array/buffer.hpp"
#include "array/dtype.hpp"
#include "array/layout.hpp"

namespace gpuinterop {

struct Array {
  Layout layout;
  char* data = nullptr;  // address of element [0,...,0]; null when empty
  BufferRef buffer;      // null for an empty array without memory
  // Owned reference or null. Null: this object is the root owner. For a view of an owner: the root
  // owner's Python object. For foreign memory, and views of it: the foreign object.
  PyObject* base = nullptr;
  Device device;
  DTypeId dtype = kFloat32;
  bool readonly = false;
  bool is_copied = false;  // DLPack's flag: we are the only owner of a copy made for us

  int64_t itemsize() const noexcept { return itemsize_of(dtype); }
  int64_t nbytes() const noexcept { return layout.size() * itemsize(); }
};

// ---- python/array_type.cpp -------------------------------------------------------------------
// The Python type gpuinterop._core.Array. Borrowed; set when the module is made.
extern PyTypeObject* array_type;
inline bool is_array(PyObject* o) noexcept { return PyObject_TypeCheck(o, array_type); }
Array& unwrap(PyObject* o) noexcept;  // o must be an Array (or subclass) instance
// New object of `type` (Array or a Python subclass; __init__ is not run). Null with a Python error.
PyObject* wrap(PyTypeObject* type, Array&& a);

// A view of `owner` (an Array object): base, buffer, device, dtype and flags as for a view; the
// caller sets layout and data.
Array view_of(PyObject* owner);
// A fresh C-ordered array that owns its memory.
Array make_empty(Device device, DTypeId dtype, int ndim, const int64_t* shape, const char* where);
// As above with the given (compact) layout.
Array make_empty(Device device, DTypeId dtype, Layout layout, const char* where);

// ---- array/copy.cpp ---------------------------------------------------------------------------
// dst[...] = src for equal shapes and dtypes, any strides, any devices; overlap is safe. On CUDA it
// is queued on the current stream; from or to the host it blocks unless `async`. May drop the GIL.
void copy_elements(const Array& dst, const Array& src, const char* where, bool async = false);
// Fills with the itemsize bytes at `item`.
void fill_elements(const Array& dst, const void* item, const char* where);

}  // namespace gpuinterop
