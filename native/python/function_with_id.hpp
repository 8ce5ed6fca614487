// Functions of the package that carry an id: of an operation, or of a product.
#pragma once

#include <Python.h>

namespace gpuinterop {

// The id is the state of a module that belongs to this function alone. help(), inspect and pickle then treat
// it as a function of a module; an int as `self` would make it a method of that int.
inline PyObject* make_function_with_id(PyMethodDef* def, int number) {
  static PyModuleDef home = {PyModuleDef_HEAD_INIT,
                             "gpuinterop",
                             nullptr,
                             sizeof(int),
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr};
  PyObject* self = PyModule_Create(&home);
  PyObject* name = self ? PyUnicode_FromString("gpuinterop") : nullptr;
  PyObject* function = nullptr;
  if (name) {
    *static_cast<int*>(PyModule_GetState(self)) = number;
    function = PyCFunction_NewEx(def, self, name);
  }
  Py_XDECREF(name);
  Py_XDECREF(self);
  return function;
}

inline int number_of(PyObject* self) { return *static_cast<int*>(PyModule_GetState(self)); }

}  // namespace gpuinterop
