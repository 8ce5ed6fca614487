// Functions of the package that carry an id: of an operation, a reduction or a product.
#pragma once

#include <Python.h>

#include <cstdlib>
#include <cstring>
#include "interpreter/references.hpp"

namespace gpuinterop {

struct FunctionState {
  int number;
  PyMethodDef definition;  // owns its texts
};

inline FunctionState& state_of_function(PyObject* self) {
  return *static_cast<FunctionState*>(PyModule_GetState(self));
}
inline int number_of(PyObject* self) { return state_of_function(self).number; }

inline void free_texts(void* self) {
  const PyMethodDef& definition = state_of_function(static_cast<PyObject*>(self)).definition;
  std::free(const_cast<char*>(definition.ml_name));
  std::free(const_cast<char*>(definition.ml_doc));
}

// The id is the state of a module that belongs to this function alone. help(), inspect and pickle then treat
// it as a function of a module; an int as `self` would make it a method of that int.
inline PyObject* make_function_with_id(int number, const char* name, const char* doc,
                                       PyCFunction call) {
  static PyModuleDef home = {.m_base = PyModuleDef_HEAD_INIT,
                             .m_name = "gpuinterop",
                             .m_size = sizeof(FunctionState),
                             .m_free = free_texts};
  const PyRef self = PyRef::checked(PyModule_Create(&home));
  const PyRef module_name = PyRef::checked(PyUnicode_FromString("gpuinterop"));
  FunctionState& state = state_of_function(self.get());
  state = {number, {strdup(name), call, METH_FASTCALL | METH_KEYWORDS, strdup(doc)}};
  return PyRef::checked(PyCFunction_NewEx(&state.definition, self.get(), module_name.get()))
      .release();
}

}  // namespace gpuinterop
