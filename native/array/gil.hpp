// How code below the border in python/ calls Python, and lets go of its objects.
//
// Until 3.13 CPython ends a thread that wants the GIL while the interpreter goes away by unwinding its
// stack: that ends the process where a function must not throw, and destructors on the way would touch
// Python without the GIL. Such a thread waits here for the end of the process instead, as 3.14 makes it
// wait.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <utility>
#ifdef __GLIBCXX__
#include <cxxabi.h>
#endif

namespace gpuinterop {

// Takes the GIL again after a blocking call.
inline void reacquire_gil(PyThreadState* state) noexcept {
  try {
    PyEval_RestoreThread(state);
  } catch (...) {
    for (;;) pause();
  }
}

// Only the handler's type matters: UBSan takes the reference in it for one to nothing.
#define GPUINTEROP_CATCHES_UNWINDING __attribute__((no_sanitize("undefined")))

// Runs Python code: `f` calls the C API and has nothing on its stack that is destroyed at its end.
template <class F>
GPUINTEROP_CATCHES_UNWINDING auto run_python(F&& f) {
#ifdef __GLIBCXX__
  try {
    return std::forward<F>(f)();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
#else
  return std::forward<F>(f)();
#endif
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

// ---- python/error_translation.cpp ------------------------------------------------------------------------
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

}  // namespace gpuinterop
