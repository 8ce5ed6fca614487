// Kernels of the user, for register_ops(), and what every loader of code from Python shares.
#pragma once

#include <nanobind/nanobind.h>

namespace gpuinterop {

void register_kernels(nanobind::module_& m);

// compile(fresh: bool) -> bytes, for cuda::load_or_recompile.
inline auto code_from(nanobind::callable compile) {
  return [compile](bool fresh) { return nanobind::cast<nanobind::bytes>(compile(fresh)); };
}

}  // namespace gpuinterop
