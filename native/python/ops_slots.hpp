// Number slots, rich comparison and methods that the operations add to the Array type; both arrays end
// with a zero entry.
#pragma once

#include <Python.h>

namespace gpuinterop {

extern PyType_Slot ops_slots[];
extern PyMethodDef ops_methods[];

}  // namespace gpuinterop
