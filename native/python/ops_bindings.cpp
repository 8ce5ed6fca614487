#include "python/ops_slots.hpp"
#include "python/register.hpp"

namespace gpuinterop {

PyType_Slot ops_slots[] = {{0, nullptr}};
PyMethodDef ops_methods[] = {{nullptr, nullptr, 0, nullptr}};

void register_ops(nanobind::module_&) {}

}  // namespace gpuinterop
