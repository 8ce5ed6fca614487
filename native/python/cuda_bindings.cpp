#include "python/register.hpp"

namespace gpuinterop {

void register_cuda(nanobind::module_&) {}

}  // namespace gpuinterop
