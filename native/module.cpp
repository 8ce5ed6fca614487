// gpuinterop._core: registers its parts. Importing it does not load the driver.
#include <atomic>
#include <utility>

#include "interpreter/error_translation.hpp"
#include "interpreter/register.hpp"

namespace {

int (*fill_first)(PyObject*);  // nanobind's, which registers everything
PyObject* loaded = nullptr;    // the first module, once it is complete; never freed

// Types, hooks and interned names are static, one set for the process, so the module is filled once. Python
// drops a module whose import an interrupt ends: the next import gets the contents of the first. A second
// interpreter would need its own types. From 3.12 on Python itself refuses the module in an isolated interpreter,
// because nanobind declares it so; this check covers the others.
int fill(PyObject* module) {
  static std::atomic<int64_t> owner{-1};
  const int64_t here = PyInterpreterState_GetID(PyInterpreterState_Get());
  int64_t first = -1;
  if (owner.compare_exchange_strong(first, here)) {
    if (fill_first(module)) return -1;
    loaded = Py_NewRef(module);
    return 0;
  }
  if (first == here && loaded)
    return PyDict_Update(PyModule_GetDict(module), PyModule_GetDict(loaded));
  PyErr_SetString(PyExc_ImportError,
                  first == here
                      ? "import gpuinterop: expected a core that could be loaded\n"
                        "  got: a core whose first load in this process failed\n"
                        "  fix: start a new process"
                      : "import gpuinterop: expected one interpreter for each process\n"
                        "  got: a second interpreter, such as a subinterpreter, after the one that "
                        "loaded the core\n"
                        "  fix: use threads, or a process for each interpreter (multiprocessing)");
  return -1;
}

}  // namespace

extern "C" PyObject* init_of_nanobind();

// Puts fill() in the place of nanobind's function. The checks cannot be made here: Python 3.13 calls this function
// in the main interpreter for any other one, and frees an error that was raised here with the wrong allocator.
extern "C" NB_EXPORT PyObject* PyInit__core() {
  PyObject* module = init_of_nanobind();
  if (!module || fill_first) return module;
  auto* slot = reinterpret_cast<PyModuleDef*>(module)->m_slots;
  while (slot->slot && slot->slot != Py_mod_exec) ++slot;
  if (!slot->slot) {
    PyErr_SetString(PyExc_SystemError,
                    "gpuinterop: nanobind's module has no function that fills it");
    return nullptr;
  }
  fill_first = reinterpret_cast<int (*)(PyObject*)>(
      std::exchange(slot->value, reinterpret_cast<void*>(fill)));
  return module;
}

#define PyInit__core init_of_nanobind
NB_MODULE(_core, m) {
  // A stream or an array that is still held when the process ends is not an error.
  nanobind::set_leak_warnings(false);
  m.doc() = "The native core of gpuinterop.";
  gpuinterop::register_errors();
  gpuinterop::register_hooks(m);
  gpuinterop::register_served(m);
  gpuinterop::register_array(m);
  gpuinterop::register_blocks(m);
  gpuinterop::register_downloads(m);
  gpuinterop::register_cuda(m);
  gpuinterop::register_exchange(m);
  gpuinterop::register_ops(m);
  gpuinterop::register_programs(m);
  gpuinterop::register_converters(m);
  gpuinterop::register_plans(m);
  gpuinterop::register_planned(m);
  gpuinterop::register_blas(m);
  gpuinterop::register_linalg(m);
  gpuinterop::register_fft(m);
  gpuinterop::register_creation(m);
  gpuinterop::register_random(m);
  gpuinterop::register_sorting(m);
  gpuinterop::register_prepared_calls(m);
}
