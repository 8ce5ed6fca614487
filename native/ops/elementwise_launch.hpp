// From a walk to a launch: which class of kernel, which accesses, which grid, which parameters.
// The classes and the parameter structs are those of gpuinterop/jit/kernels/*.cuh.
#pragma once

#include <array>
#include <cstring>

#include "ops/iteration_space.hpp"

namespace gpuinterop::ops {

enum class Class : uint8_t { Flat, Rows, General, Tile };

constexpr int kThreads = 256;                 // of a block
constexpr int kMaxParameterWords = 4096 / 8;  // the driver's bound

// Everything that a kernel is compiled for, besides the operation and the element types.
struct Shape {
  Class layout = Class::Flat;
  uint8_t ndim = 0;    // GI_ND
  uint8_t vector = 1;  // GI_V
  uint8_t unroll = 1;  // GI_U
  uint8_t wide = 0;    // GI_INDEX is 64 bits
  uint8_t tile = 0;    // GI_TILE
  char modes[kMaxOperands];
};

struct Plan {
  Shape shape;
  uint32_t grid = 0, block_x = 0, block_y = 1;
  int words = 0;
  uint64_t parameters[kMaxParameterWords];
};

void make_plan(const IterationSpace& w, Plan* p, const char* where);

}  // namespace gpuinterop::ops
