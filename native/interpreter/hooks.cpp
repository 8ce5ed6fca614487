// The one table of functions by which the core calls Python. Errors are raised without it: their classes
// are those of gpuinterop.errors.
#include "interpreter/hooks.hpp"

#include <cstdarg>
#include <string>

#include "interpreter/error.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

struct Entry {
  const char* name;
  const char* module;            // which fills the entry when it is imported
  PyObject* callable = nullptr;  // owned, for the life of the process
};

// In the order of enum Hook.
Entry entries[] = {
    // dtype(dtype id) -> NumPy dtype, dtype(dtype-like value, where) -> dtype id
    //   Called when an id becomes an object for the first time, and for a dtype that is not an id.
    {"dtype", "gpuinterop.arrays.dtypes"},
    // device((device type, number)) -> Device, device(device-like value) -> Device
    //   Called when a device becomes an object for the first time, and for arguments that name one.
    {"device", "gpuinterop.devices.device_spec"},
    // foreign(subject, ...)
    //   "operand", value, an array of the call or None, where -> array, number, (number, dtype id),
    //     NotImplemented: called for an operand that is neither a gpuinterop array nor a Python scalar.
    //   "assigned", value, target, where -> (an array that a copy into the target can cast, whether it was a
    //     scalar or a list, without arrays on a GPU). Called for every value that is neither such an array nor a number that
    //     scalar_bytes() stores.
    //   "out", value, where: raises the error for an `out` that is not an array.
    //   "refuse", value, where -> the error that forbids sharing the value, None if its library has none.
    //   "caller", name of a module -> whether its library accepts memory that is not contiguous, and negative
    //     strides, and whether it reads memory after its call has returned; None for an unknown library. Called
    //     when code of the module calls __dlpack__ for the first time.
    //   "check strides", array, where, name of a module: raises if its library cannot share the array for its
    //     strides.
    //   "wait", array, where: called before a write to an array whose memory is lent (arrays/loans.hpp).
    //     Returns when the loans are returned.
    //   "torch stream", device number, handle -> whether torch owns the stream and never destroys it.
    {"foreign", "gpuinterop.elementwise.operands"},
    // copied(way, bytes, where, uncounted) -> None, or raises to forbid the copy
    //   Called before a copy while a copy scope is active.
    {"copied", "gpuinterop.arrays.copy_tracking"},
    // prepare(subject, arguments by name) -> the new entry of the call cache
    //   Called when the call cache has no entry: "types" and "product types" for the dtypes and the classes
    //   of results, "kernel" for machine code, "host program" for the loops that compute an operation in host
    //   memory, "operation" for the object that keeps the functions of such a program, "reduction" and "product"
    //   for plans, "rank one" for the operation x * y + a, "cublas" to open cuBLAS. A reduction that Python
    //   carries out, such as one with where=, returns its result.
    {"prepare", "gpuinterop.elementwise.calls"},
    // encode(number, dtype id) -> (low word, high word)
    //   Called when a scalar becomes the bytes of a dtype for which the core has no rule.
    {"encode", "gpuinterop.arrays.scalars"},
    // call(operation, arguments, keywords) -> result
    //   Called for everything else: keywords other than out, wrong arguments, operands that only Python can
    //   read, and operations of several launches.
    {"call", "gpuinterop.elementwise.calls"},
};

}  // namespace

void import_module(const char* name) { PyRef::checked(PyImport_ImportModule(name)); }

PyRef call_hook(Hook hook, const char* format, ...) {
  const Entry& entry = entries[static_cast<int>(hook)];
  va_list values;
  va_start(values, format);
  const PyRef arguments = PyRef::steal(Py_VaBuildValue(format, values));
  va_end(values);
  if (!arguments) throw PythonError();
  if (!entry.callable) import_module(entry.module);
  if (!entry.callable) {  // this module is being imported
    PyErr_Format(PyExc_RuntimeError, "%s has not filled the hook %s yet", entry.module, entry.name);
    throw PythonError();
  }
  const PyRef callable = PyRef::borrow(entry.callable);
  return PyRef::checked(PyObject_CallObject(callable.get(), arguments.get()));
}

nb::object prepare_in_python(const char* subject, std::initializer_list<Named> arguments) {
  nb::dict named;
  for (const Named& argument : arguments) named[argument.name] = argument.value;
  return nb::steal(call_hook(Hook::Prepare, "(sO)", subject, named.ptr()).release());
}

PyRef call_python(PyObject* operation, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                  PyObject* names) {
  const PyRef called = PyRef::checked(operation), named = PyRef::checked(PyDict_New());
  const Py_ssize_t first = self ? 1 : 0;
  const PyRef all = PyRef::checked(PyTuple_New(first + nargs));
  if (self) PyTuple_SetItem(all.get(), 0, Py_NewRef(self));
  for (Py_ssize_t i = 0; i < nargs; ++i) PyTuple_SetItem(all.get(), first + i, Py_NewRef(args[i]));
  for (Py_ssize_t k = 0, n = names ? PyTuple_Size(names) : 0; k < n; ++k)
    if (PyDict_SetItem(named.get(), PyTuple_GetItem(names, k), args[nargs + k]) < 0)
      throw PythonError();
  return call_hook(Hook::Call, "(OOO)", called.get(), all.get(), named.get());
}

void register_hooks(nb::module_& m) {
  m.def(
      "_call_method",
      [](nb::str name, nb::args given) {
        import_module("gpuinterop.numpy_api.protocols");
        const PyRef named = PyRef::checked(PyDict_New());
        PyRef result = call_hook(Hook::Call, "(OOO)", name.ptr(), given.ptr(), named.get());
        return nb::steal(result.release());
      },
      nb::sig("def _call_method(name: str, /, *args: object) -> Any"),
      "Call a function that gpuinterop.numpy_api.protocols has registered.");
  m.def(
      "set_hooks",
      [](nb::kwargs hooks) {
        for (auto [key, function] : hooks) {
          const std::string name = nb::cast<std::string>(key);
          Entry* entry = std::begin(entries);
          while (entry != std::end(entries) && name != entry->name) ++entry;
          if (entry == std::end(entries))
            throw nb::value_error(("the core has no hook " + name).c_str());
          const PyRef replaced =
              PyRef::steal(std::exchange(entry->callable, nb::borrow(function).release().ptr()));
        }
      },
      "Fill entries of the table by which the core calls Python: set_hooks(copied=note).");
}

}  // namespace gpuinterop
