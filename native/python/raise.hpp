// The border between C++ exceptions and Python's. Raw slots run inside guard(); functions bound by
// nanobind are covered by the translator that register_errors() installs.
#pragma once

#include <Python.h>

#include <exception>
#include <new>
#include <utility>

#include "array/error.hpp"
#include "array/gil.hpp"

namespace gpuinterop {

void register_errors();
// Sets the Python error for an Error: the class of gpuinterop.errors that belongs to its kind.
void set_python_error(const Error& e) noexcept;

// Runs f; on a C++ exception sets the Python error and returns `failed`.
template <class F, class R>
GPUINTEROP_CATCHES_UNWINDING R guard(R failed, F&& f) noexcept {
  try {
    return std::forward<F>(f)();
  } catch (const Error& e) {
    set_python_error(e);
  } catch (const PythonError&) {
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
#ifdef __GLIBCXX__
  } catch (abi::__forced_unwind&) {
    for (;;) pause();  // see array/gil.hpp
#endif
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown C++ exception");
  }
  return failed;
}

// Keeps a pending Python error across code that may set or clear one (destructors, deleters).
class ErrorSaver {
 public:
  ErrorSaver() {
    if (PyErr_Occurred()) PyErr_Fetch(&type_, &value_, &trace_);
  }
  ~ErrorSaver() {
    if (type_)
      PyErr_Restore(type_, value_, trace_);
    else if (PyErr_Occurred())
      PyErr_Clear();
  }
  ErrorSaver(const ErrorSaver&) = delete;

 private:
  PyObject *type_ = nullptr, *value_ = nullptr, *trace_ = nullptr;
};

// For code that may run on any thread, without the GIL, or while the interpreter goes away.
// held() is false when it is too late to touch Python: leak instead.
class GilForCleanup {
 public:
  GilForCleanup();
  ~GilForCleanup();
  bool held() const noexcept { return held_; }

 private:
  bool held_ = false;
  PyGILState_STATE state_{};
};

// UTF-8 text of `most` bytes at the most, "..." at its end when some was cut off. It is cut between two
// characters: Python makes no string of half a one.
std::string cut_text(std::string text, size_t most);
// repr() of an object for messages, cut at 120 bytes; never fails.
std::string repr_text(PyObject* o) noexcept;
std::string type_text(PyObject* o) noexcept;  // "torch.Tensor"

}  // namespace gpuinterop
