// How code below python/ releases the GIL, and releases Python objects. Any function of Python's C API may take it
// again: see interpreter/runtime.cpp.
#pragma once

#include <Python.h>

#include <cstdint>

// Exported by every CPython, but not declared for the stable ABI.
extern "C" PyAPI_FUNC(int) PyGILState_Check(void);

namespace gpuinterop {

inline bool holds_gil() noexcept { return Py_IsInitialized() && PyGILState_Check(); }

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
    if (saved_) PyEval_RestoreThread(saved_);
  }
  GilRelease(const GilRelease&) = delete;

 private:
  PyThreadState* saved_;
};

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

// ---- interpreter/error_translation.cpp ------------------------------------------------------------------------
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
