// Attempts to carry out in the core a call that Python can carry out too.
#pragma once

#include <nanobind/nanobind.h>

#include "interpreter/error_translation.hpp"

namespace gpuinterop {

// What run() returns; null if it failed in a way that depends on the arguments: Python carries the call out. Throws.
template <class Run>
PyObject* attempt_in_core(Run&& run) {
  try {
    PyObject* const made = run();
    if (!made) forgive();
    return made;
  } catch (const Error& error) {
    // These do not depend on the arguments; a second try would take long, or record a part.
    const bool final =
        error.kind == Kind::OutOfMemory || error.kind == Kind::Capture || error.kind == Kind::Cuda;
    if (final) throw;
  } catch (const PythonError&) {
    forgive();
  } catch (nanobind::python_error& error) {
    error.restore();
    forgive();
  }
  return nullptr;
}

}  // namespace gpuinterop
