// Public functions of Python that the core carries out when it knows their arguments. Python says what such a function
// does, carries out the other calls, and raises the errors.
#pragma once

#include <nanobind/nanobind.h>

#include "interpreter/parameters.hpp"
#include "interpreter/references.hpp"

namespace gpuinterop {

// The function as an object: it has the name, the signature and the docstring of the one in Python.
struct PublicFunction {
  // The result; null without a Python error: Python carries the call out; with one: the call has failed. Throws nothing.
  using Attempt = PyObject* (*)(const PublicFunction& self, PyObject* const* args, Py_ssize_t nargs,
                                PyObject* names);
  PyObject_HEAD vectorcallfunc call;
  Attempt attempt;
  int number;        // for attempt()
  bool method;       // bound to instances
  PyObject* of;      // for attempt(), or null
  PyObject* python;  // the function
  PyObject* dict;    // its attributes, and the function itself as __wrapped__
  PyObject* weakrefs;
};

nanobind::object make_function(PublicFunction::Attempt attempt, int number, PyObject* of,
                               nanobind::callable python, bool method = false);

// ---- functions by name ----------------------------------------------------------------------------

using Values = std::array<PyObject*, Parameters::kMost>;  // null for arguments that are left out

struct Served {
  Parameters parameters;
  // A new reference, or null: Python carries the call out, and raises the error if there is one.
  PyObject* (*run)(const Values& values);
  PyObject* python = nullptr;  // owned; set when its module is imported
};

// Adds a function, when the core is loaded. Its module applies the decorator `served` to Python's function.
void serve(Served function);
Served& served(const char* name);

// Calls one whose module has been imported.
PyObject* call_served(const Served& function, PyObject* const* args, Py_ssize_t nargs,
                      PyObject* names);

// What the core makes of a call of such a function, without Python's; another object is called. Null, with or without an
// error: neither did.
PyObject* attempt_function(PyObject* function, PyObject* const* args, Py_ssize_t nargs,
                           PyObject* names);

// An argument for which None is the default.
inline PyObject* given(PyObject* value) { return value == Py_None ? nullptr : value; }
bool is_text(PyObject* value, const char* text);

}  // namespace gpuinterop
