// Taking the GIL again after a blocking call.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace gpuinterop {

// Until 3.13 CPython ends a thread that asks for the GIL while the interpreter goes away by unwinding
// its stack, which ends the process where a function must not throw. Such a thread waits here for the
// end of the process instead, as 3.14 makes it wait.
inline void take_gil_again(PyThreadState* state) noexcept {
  try {
    PyEval_RestoreThread(state);
  } catch (...) {
    for (;;) pause();
  }
}

}  // namespace gpuinterop
