// How code below python/ calls Python, releases the GIL, and releases Python objects.
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

// Exported by every CPython, but not declared for the stable ABI.
extern "C" PyAPI_FUNC(int) PyGILState_Check(void);

namespace gpuinterop {

inline bool holds_gil() noexcept { return Py_IsInitialized() && PyGILState_Check(); }

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

// Releases the GIL for a scope if this thread holds it: during long work, and during driver calls that may
// wait for the device, because a host function that the device runs first may be waiting for the GIL. Other
// threads run meanwhile, so nothing that the GIL guards may be assumed afterwards.
class GilRelease {
 public:
  explicit GilRelease(bool wanted = true) noexcept
      : saved_(wanted && holds_gil() ? PyEval_SaveThread() : nullptr) {}
  enum Held { kHeld };  // the caller holds the GIL: no check
  explicit GilRelease(Held) noexcept : saved_(PyEval_SaveThread()) {}
  ~GilRelease() {
    if (saved_) reacquire_gil(saved_);
  }
  GilRelease(const GilRelease&) = delete;

 private:
  PyThreadState* saved_;
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
