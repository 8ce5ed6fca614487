// NumPy's arrays, by its C API, which every NumPy 2 has.
#pragma once

#include "arrays/array.hpp"

namespace gpuinterop {

// NumPy's table of C functions; null, without a Python error, if it has another ABI.
void** numpy_api();

// The fields of numpy.ndarray that NumPy's inline functions read, so that they are part of its ABI. Strides in bytes.
struct NumpyArray {
  PyObject_HEAD char* data;
  int ndim;
  Py_ssize_t *shape, *strides;
  PyObject* base;  // of a view: the array that it views
  PyObject* dtype;
  int flags;

  bool writable() const noexcept { return flags & 0x400; }
};

// The object itself if its class is numpy.ndarray, else null.
const NumpyArray* as_numpy_array(PyObject* o);
// Whether it is one of NumPy's scalars.
bool is_numpy_scalar(PyObject* o);
// A scalar of NumPy as an array of no axes.
PyRef numpy_array_of(PyObject* scalar);
// The dtype that the array has in the table; -1 for another one.
int dtype_of(const NumpyArray& a);

// A numpy.ndarray over the memory of the array object `x`, which keeps the memory alive whatever happens to `x`. On a GPU
// it has the layout only: its elements must not be read. Throws.
PyRef numpy_view(PyObject* x);

}  // namespace gpuinterop
