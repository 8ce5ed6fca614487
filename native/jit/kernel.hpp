// Kernels from machine code, for launches of their own and for launch plans.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <vector>

#include "jit/cuda_module.hpp"

namespace gpuinterop {

struct LoadedKernel {
  std::shared_ptr<cuda::Module> module;
  cuda::Kernel kernel;
  std::optional<std::vector<size_t>> parameters;  // bytes of each, if the driver reports them
  int max_threads;                                // of a block of this kernel on this device
};

void register_kernels(nanobind::module_& m);  // for register_ops()

}  // namespace gpuinterop
