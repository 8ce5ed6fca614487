// Export by the DLPack C exchange API: the table on the Array type, and the tables of other types.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include "arrays/array.hpp"

namespace gpuinterop {

void publish_exchange_api();  // puts the table on the Array type; throws PythonError

// An object of `type` over the memory of array `x`, made by that type's table. Throws for arrays that no
// table can take: tables ignore flags and the sign of strides.
PyObject* exchange_export(PyObject* x, PyTypeObject* type);

}  // namespace gpuinterop
