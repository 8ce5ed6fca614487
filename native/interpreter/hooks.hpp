// The functions by which the core calls Python. The table in interpreter/hooks.cpp gives for each the module that
// registers it and the calls.
#pragma once
#include <nanobind/nanobind.h>

#include <initializer_list>

#include "interpreter/references.hpp"

namespace gpuinterop {

enum class Hook { Dtype, Device, Foreign, Copied, Prepare, Encode, Call };

// Calls the hook with arguments in the notation of Py_BuildValue: call_hook(Hook::Dtype, "(i)", 3).
// Imports the module that fills the entry if it is empty. Throws PythonError.
PyRef call_hook(Hook hook, const char* format, ...);

// An argument by name. Cast to a Python object at once, so it needs the GIL.
struct Named {
  const char* name;
  nanobind::object value;
  template <class T>
  Named(const char* n, const T& v) : name(n), value(nanobind::cast(v)) {}
};
// Calls Hook::Prepare for a call that no cache knows: prepare_in_python("kernel", {{"op", 3}, {"modes", modes}}). The subject's
// function in Python has parameters of these names, and raises TypeError for any other name. Throws PythonError.
nanobind::object prepare_in_python(const char* subject,
                                   std::initializer_list<Named> arguments = {});

// A field of a named tuple that Python has made for the core. PythonError for a field that it lacks.
template <class T>
T field(nanobind::handle tuple, const char* name) {
  return nanobind::cast<T>(tuple.attr(name));
}

// Calls Hook::Call with the arguments of a vectorcall, `self` first unless it is null. `operation`: a new
// reference to a name or an id. Throws PythonError.
PyRef call_python(PyObject* operation, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                  PyObject* names);

// Imports a module of the package that registers something with the core. Throws PythonError.
void import_module(const char* name);

}  // namespace gpuinterop
