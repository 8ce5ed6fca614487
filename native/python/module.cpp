// gpuinterop._core: only the list of its parts. Importing it touches no driver.
#include <atomic>

#include "python/raise.hpp"
#include "python/register.hpp"

namespace {

// Types, hooks and interned names live in statics, one set for the process. A second interpreter
// would put its own in their place and leave the first with none.
bool claim_process() {
  static std::atomic<int64_t> owner{-1};
  const int64_t here = PyInterpreterState_GetID(PyInterpreterState_Get());
  int64_t first = -1;
  if (owner.compare_exchange_strong(first, here)) return true;
  if (first == here) {
    PyErr_SetString(PyExc_ImportError,
                    "import gpuinterop: expected to load the core once in a process\n"
                    "  got: a second time, because the package was taken out of sys.modules\n"
                    "  fix: leave it there, or start a new process");
    return false;
  }
  PyErr_SetString(
      PyExc_ImportError,
      "import gpuinterop: expected one interpreter for each process\n"
      "  got: a second one, a subinterpreter perhaps, beside the one that has loaded the "
      "core\n"
      "  fix: use threads, or a process for each interpreter (multiprocessing)");
  return false;
}

}  // namespace

extern "C" PyObject* init_of_nanobind();

// Asked before nanobind's part, which writes statics as well.
extern "C" NB_EXPORT PyObject* PyInit__core() {
  return claim_process() ? init_of_nanobind() : nullptr;
}

#define PyInit__core init_of_nanobind
NB_MODULE(_core, m) {
  // A stream or an array that something still holds when the process ends is nobody's mistake.
  nanobind::set_leak_warnings(false);
  m.doc() = "The native core of gpuinterop.";
  gpuinterop::register_errors();
  gpuinterop::register_array(m);
  gpuinterop::register_cuda(m);
  gpuinterop::register_exchange(m);
  gpuinterop::register_ops(m);
  gpuinterop::register_converters(m);
  gpuinterop::register_plans(m);
  gpuinterop::register_blas(m);
}
