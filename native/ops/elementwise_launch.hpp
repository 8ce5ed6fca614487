// From a walk to a launch: which class of kernel, which accesses, which grid, which parameters.
// The classes and the parameter structs are those of gpuinterop/jit/kernels/*.cuh.
#pragma once

#include <array>
#include <cstring>

#include "ops/iteration_space.hpp"

namespace gpuinterop::ops {

enum class Class : uint8_t { Flat, Rows, General, Tile };

constexpr int kThreads = 256;                 // of a block, unless tuned otherwise
constexpr int kMaxParameterWords = 4096 / 8;  // the driver's bound

// Everything that a kernel is compiled for, besides the operation and the element types.
struct Shape {
  Class layout = Class::Flat;
  uint8_t ndim = 0;               // GI_ND
  uint8_t vector = 1;             // GI_V
  uint8_t unroll = 1;             // GI_U
  uint8_t wide = 0;               // GI_INDEX is 64 bits
  uint8_t tile = 0;               // GI_TILE
  uint8_t warps = kThreads / 32;  // GI_THREADS / 32
  uint8_t loop = 0;               // GI_LOOP: a block goes on behind the end of the grid
  char modes[kMaxOperands];
};

struct Plan {
  Shape shape;
  uint32_t grid = 0, block_x = 0, block_y = 1;
  int words = 0;
  uint64_t parameters[kMaxParameterWords];
};

// Knobs that the benchmarks turn; the defaults are what was measured to be best.
struct Tuning {
  int flat_bytes = 16;  // bytes of the widest operand a thread has in flight
  int rows_unroll = 4;
  int general_unroll = 4;
  int tile_edge = 64;
  int64_t small = 1 << 19;  // below this many elements more threads beat more work per thread
  int threads = kThreads;   // of a block, flat and rows
  int64_t blocks = 0;  // at most this many blocks, which then loop (flat); 0: as many as it takes
  int stream = 0;      // 1: read with a streaming hint, 2: write so, 3: both
  int64_t stream_bytes =
      1 << 26;  // operands of at least this size get the hint: no cache holds them
};
extern Tuning tuning;

void make_plan(const IterationSpace& w, Plan* p, const char* where);

}  // namespace gpuinterop::ops
