#include "python/register.hpp"

namespace gpuinterop {

void register_ops(nanobind::module_&) {}

}  // namespace gpuinterop
