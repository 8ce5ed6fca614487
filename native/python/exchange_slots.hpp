// What the exchange protocols add to the Array type; both arrays end with a zero entry.
#pragma once

#include <Python.h>

namespace gpuinterop {

extern PyMethodDef exchange_methods[];
extern PyGetSetDef exchange_getset[];

}  // namespace gpuinterop
