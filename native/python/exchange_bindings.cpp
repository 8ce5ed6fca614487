#include "python/exchange_slots.hpp"
#include "python/register.hpp"

namespace gpuinterop {

PyMethodDef exchange_methods[] = {{nullptr, nullptr, 0, nullptr}};
PyGetSetDef exchange_getset[] = {{nullptr, nullptr, nullptr, nullptr, nullptr}};

void register_exchange(nanobind::module_&) {}

}  // namespace gpuinterop
