// A counted reference to a Python object.
#pragma once

#include <Python.h>

#include <utility>

#include "interpreter/error.hpp"

namespace gpuinterop {

// A counted reference to a Python object. Copying and dropping it needs the GIL.
class PyRef {
 public:
  PyRef() noexcept = default;
  static PyRef steal(PyObject* o) noexcept {
    PyRef r;
    r.o_ = o;
    return r;
  }
  // A new reference from Python's C API, which returned null if a Python error is set.
  static PyRef checked(PyObject* o) {
    if (!o) throw PythonError();
    return steal(o);
  }
  static PyRef borrow(PyObject* o) noexcept {
    Py_XINCREF(o);
    return steal(o);
  }
  PyRef(const PyRef& o) noexcept : o_(o.o_) { Py_XINCREF(o_); }
  PyRef(PyRef&& o) noexcept : o_(std::exchange(o.o_, nullptr)) {}
  PyRef& operator=(PyRef o) noexcept {
    std::swap(o_, o.o_);
    return *this;
  }
  ~PyRef() { Py_XDECREF(o_); }
  PyObject* get() const noexcept { return o_; }
  PyObject* release() noexcept { return std::exchange(o_, nullptr); }
  explicit operator bool() const noexcept { return o_ != nullptr; }

 private:
  PyObject* o_ = nullptr;
};

}  // namespace gpuinterop
