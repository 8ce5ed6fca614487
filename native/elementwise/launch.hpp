// Launches of elementwise kernels. Python compiles each of them once (prepare_in_python), for the call cache.
#pragma once

#include "elementwise/iteration_space.hpp"
#include "jit/cuda_module.hpp"

namespace gpuinterop::ops {

using OpId = uint32_t;
// Operations that are not in the operation table. All but kScatterAdd and kSpaced move bits, and are the same for
// all types of one size. Python knows them by their names (core_body in gpuinterop/elementwise/promotion.py).
constexpr OpId kCopy = 0, kFill = 1, kGather = 2, kScatter = 3, kScatterAdd = 4, kCheckIndices = 5,
               kSelect = 6, kSpaced = 7, kJoin = 8;
constexpr const char* kOutsideTable[] = {"copy",    "fill",        "gather",
                                         "scatter", "scatter_add", "check_indices",
                                         "select",  "spaced",      "join"};

// Queues op over w's operands on the current stream of `device`. The caller holds the GIL and references to w's
// buffers, and w.size > 0.
void launch(OpId op, const IterationSpace& w, int device, const char* where);

// ---- elementwise_launch.cpp: which class of kernel, which accesses, which grid, which parameters ----
// The classes and the parameter structs are those of gpuinterop/elementwise/kernels/*.cuh.

enum class LayoutClass : uint8_t { Flat, Rows, General, Tile };

constexpr int kThreads = 256;                 // of a block
constexpr int kMaxParameterWords = 4096 / 8;  // the driver's bound

// The compile-time parameters of a kernel, besides the operation and the element types.
struct KernelVariant {
  LayoutClass layout = LayoutClass::Flat;
  uint8_t ndim = 0;    // GI_ND
  uint8_t vector = 1;  // GI_V
  uint8_t unroll = 1;  // GI_U
  uint8_t tile = 0;    // GI_TILE
  uint8_t across = 1;  // GI_ACROSS
  uint8_t skew = 1;    // GI_SKEW
  char modes
      [kMaxOperands];  // how each operand is accessed: gpuinterop/elementwise/kernels/access.cuh
};

struct ElementwiseLaunch {
  KernelVariant variant;
  cuda::Launch how;
  int words = 0;
  uint64_t parameters[kMaxParameterWords];
};

// Kernels compute positions in more than one dimension with 32 bits. Returns the dimension along which launch()
// halves an iteration with more elements, or with an operand that spans more elements; else -1. A half may be halved
// again. There are few parts, because each has or spans about 2^30 elements or more, and memory is finite.
int dimension_to_halve(const IterationSpace& w);

// Fills *p, a fresh one, at each launch. A launch plan (launch_plan.hpp) is stored for one layout instead.
void describe_launch(const IterationSpace& w, ElementwiseLaunch* p, const char* where);

}  // namespace gpuinterop::ops
