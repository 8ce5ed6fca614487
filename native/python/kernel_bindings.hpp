// Kernels of the user, for register_ops().
#pragma once

#include <nanobind/nanobind.h>

namespace gpuinterop {

void register_kernels(nanobind::module_& m);

}  // namespace gpuinterop
