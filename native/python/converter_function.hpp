// imports(), exports(): decorators for converters, see the source file.
#pragma once

#include <nanobind/nanobind.h>

namespace gpuinterop {

void register_converter_functions(nanobind::module_& m);

}  // namespace gpuinterop
