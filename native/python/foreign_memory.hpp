// Arrays over foreign memory that an object describes by attributes.
#pragma once

#include <nanobind/nanobind.h>

namespace gpuinterop {

void register_borrowing(nanobind::module_& m);

}  // namespace gpuinterop
