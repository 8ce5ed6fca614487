// gpuinterop._core: registers its parts. Importing it does not load the driver.
#include <atomic>
#include <iterator>

#include "python/error_translation.hpp"
#include "python/register.hpp"

namespace {

// Types, hooks and interned names are static, one set for the process. A second interpreter would replace
// them and leave the first without. From 3.12 on Python itself refuses the module in an isolated
// interpreter, because nanobind declares it so; this check covers the others.
int claim_process(PyObject*) {
  static std::atomic<int64_t> owner{-1};
  const int64_t here = PyInterpreterState_GetID(PyInterpreterState_Get());
  int64_t first = -1;
  if (owner.compare_exchange_strong(first, here)) return 0;
  PyErr_SetString(PyExc_ImportError,
                  first == here
                      ? "import gpuinterop: expected the first load of the core in a process\n"
                        "  got: a second load, because the package was removed from sys.modules\n"
                        "  fix: keep it in sys.modules, or start a new process"
                      : "import gpuinterop: expected one interpreter for each process\n"
                        "  got: a second interpreter, such as a subinterpreter, after the one that "
                        "loaded the core\n"
                        "  fix: use threads, or a process for each interpreter (multiprocessing)");
  return -1;
}

}  // namespace

extern "C" PyObject* init_of_nanobind();

// Runs claim_process before nanobind's slots, which also write statics. The check cannot be made in this
// function: Python 3.13 calls it in the main interpreter for any other one, and frees an error that was
// raised here with the wrong allocator.
extern "C" NB_EXPORT PyObject* PyInit__core() {
  static PyModuleDef_Slot slots[8];  // zeros end it
  PyObject* module = init_of_nanobind();
  if (!module || slots[0].slot) return module;
  auto* definition = reinterpret_cast<PyModuleDef*>(module);
  size_t count = 1;
  for (const PyModuleDef_Slot* slot = definition->m_slots; slot->slot; ++slot) {
    if (count + 1 == std::size(slots)) {
      PyErr_SetString(PyExc_SystemError, "gpuinterop: nanobind's module has more slots than known");
      return nullptr;
    }
    slots[count++] = *slot;
  }
  slots[0] = {Py_mod_exec, reinterpret_cast<void*>(claim_process)};
  definition->m_slots = slots;
  return module;
}

#define PyInit__core init_of_nanobind
NB_MODULE(_core, m) {
  // A stream or an array that is still held when the process ends is not an error.
  nanobind::set_leak_warnings(false);
  m.doc() = "The native core of gpuinterop.";
  gpuinterop::register_errors();
  gpuinterop::register_hooks(m);
  gpuinterop::register_array(m);
  gpuinterop::register_cuda(m);
  gpuinterop::register_exchange(m);
  gpuinterop::register_ops(m);
  gpuinterop::register_converters(m);
  gpuinterop::register_plans(m);
  gpuinterop::register_blas(m);
  gpuinterop::register_prepared_calls(m);
}
