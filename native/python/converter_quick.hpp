// Converters whose ordinary case needs no Python frame.
#pragma once

#include <nanobind/nanobind.h>

namespace gpuinterop {

void register_quick(nanobind::module_& m);

}  // namespace gpuinterop
