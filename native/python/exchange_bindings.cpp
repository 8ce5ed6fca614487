#include "python/register.hpp"

namespace gpuinterop {

void register_exchange(nanobind::module_&) {}

}  // namespace gpuinterop
