#include "array/array.hpp"
#include "python/register.hpp"

namespace gpuinterop {

void register_array(nanobind::module_&) {}

}  // namespace gpuinterop
