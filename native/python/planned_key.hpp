// What of an operand a plan depends on, as bytes.
#pragma once

#include <string>

#include "array/array.hpp"

namespace gpuinterop {

inline void append_key(std::string& key, PyObject* array) {
  const Array& a = unwrap(array);
  struct {
    PyTypeObject* type;
    int32_t device;
    DTypeId dtype;
    uint8_t ndim, alignment, readonly;
  } head = {};
  head.type = Py_TYPE(array);
  head.device = a.device.is_cuda() ? a.device.id : -1;
  head.dtype = a.dtype;
  head.ndim = static_cast<uint8_t>(a.layout.ndim());
  head.alignment = static_cast<uint8_t>(reinterpret_cast<uintptr_t>(a.data) & 15);
  head.readonly = a.readonly;
  key.append(reinterpret_cast<const char*>(&head), sizeof head);
  // shape and strides lie side by side
  key.append(reinterpret_cast<const char*>(a.layout.shape()),
             2 * sizeof(int64_t) * a.layout.ndim());
}

}  // namespace gpuinterop
