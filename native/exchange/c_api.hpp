// Export by the DLPack C exchange API: the table on the Array type, and the tables of other types.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include "arrays/array.hpp"

namespace gpuinterop {

void publish_exchange_api();  // puts the table on the Array type; throws PythonError

// The default class of an imported array: CudaNdarray for float32, else GpuArray.
PyTypeObject* exchange_result_type(DTypeId dtype) noexcept;

// The classes for float32 and for other dtypes; imports the module that gives them if it has not been loaded.
nanobind::tuple exchange_result_classes();
void set_exchange_result_types(nanobind::handle float32_class, nanobind::handle other_class);
// An object of `type` over the memory of array `x`, made by that type's table. Throws for arrays that no
// table can take: tables ignore flags and the sign of strides.
PyObject* exchange_export(PyObject* x, PyTypeObject* type);

}  // namespace gpuinterop
