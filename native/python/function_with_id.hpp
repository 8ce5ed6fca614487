// Functions of the package that carry an id: of an operation, or of a product.
#pragma once

#include <Python.h>

#include <cstdlib>

namespace gpuinterop {

struct FunctionState {
  int number;
  PyMethodDef* owned;  // freed with the function; null: static
};

inline void free_function_state(void* self) {
  auto* state = static_cast<FunctionState*>(PyModule_GetState(static_cast<PyObject*>(self)));
  if (!state || !state->owned) return;
  std::free(const_cast<char*>(state->owned->ml_name));
  std::free(const_cast<char*>(state->owned->ml_doc));
  delete state->owned;
}

// The id is the state of a module that belongs to this function alone. help(), inspect and pickle then treat
// it as a function of a module; an int as `self` would make it a method of that int.
inline PyObject* make_function_with_id(PyMethodDef* def, int number, bool owned = false) {
  static PyModuleDef home = {PyModuleDef_HEAD_INIT,
                             "gpuinterop",
                             nullptr,
                             sizeof(FunctionState),
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr,
                             free_function_state};
  PyObject* self = PyModule_Create(&home);
  PyObject* name = self ? PyUnicode_FromString("gpuinterop") : nullptr;
  PyObject* function = nullptr;
  if (name) {
    *static_cast<FunctionState*>(PyModule_GetState(self)) = {number, owned ? def : nullptr};
    function = PyCFunction_NewEx(def, self, name);
  }
  Py_XDECREF(name);
  Py_XDECREF(self);
  return function;
}

inline int number_of(PyObject* self) {
  return static_cast<FunctionState*>(PyModule_GetState(self))->number;
}

}  // namespace gpuinterop
