// How code below python/ calls Python, and releases Python objects.
//
// If a thread acquires the GIL while the interpreter is shutting down, CPython before 3.14 unwinds its
// stack. That terminates the process in a noexcept function, and runs destructors that use Python
// without the GIL. Such a thread waits for the end of the process instead, as in 3.14.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <cstdint>
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

// Below this many bytes of host memory, releasing the GIL costs more than other threads gain.
constexpr int64_t kGilBytes = 1 << 20;

// Releases the GIL, if `drop` is set, until it is destroyed.
class DropGil {
 public:
  explicit DropGil(bool drop) : state_(drop ? PyEval_SaveThread() : nullptr) {}
  ~DropGil() {
    if (state_) reacquire_gil(state_);
  }
  DropGil(const DropGil&) = delete;

 private:
  PyThreadState* state_;
};

// The handler does not use its reference, but UBSan reports it as null.
#define GPUINTEROP_CATCHES_UNWINDING __attribute__((no_sanitize("undefined")))

// Runs Python code: `f` calls the C API and has no local objects with destructors.
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
// For code that may run on any thread, without the GIL, or while the interpreter is shutting down.
// If held() is false, leak the Python objects.
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
