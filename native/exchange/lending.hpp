// Arrays as objects of other libraries, for the calls of their functions.
#pragma once

#include <nanobind/nanobind.h>

namespace gpuinterop::exchange {

// An array as an object of a library on its memory. Null: Python must convert it, and raises the error if there is one.
PyObject* export_ordinary(PyObject* x, PyObject* library);  // exchange/converter_function.cpp

void register_lending(nanobind::module_& m);

}  // namespace gpuinterop::exchange
