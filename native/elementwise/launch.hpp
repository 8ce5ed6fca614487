// Launches of elementwise kernels. Python compiles each of them once (prepare_in_python), for the call cache.
#pragma once

#include "elementwise/iteration_space.hpp"

namespace gpuinterop::ops {

using OpId = uint32_t;
// Operations that are not in the operation table. All but kScatterAdd and kSpaced move bits, and are the same for
// all types of one size. Python knows them by their names (core_body in gpuinterop/elementwise/promotion.py).
constexpr OpId kCopy = 0, kFill = 1, kGather = 2, kScatter = 3, kScatterAdd = 4, kCheckIndices = 5,
               kSelect = 6, kSpaced = 7, kJoin = 8, kTriangle = 9;
constexpr const char* kOutsideTable[] = {"copy",        "fill",          "gather", "scatter",
                                         "scatter_add", "check_indices", "select", "spaced",
                                         "join",        "triangle"};

// Queues op over w's operands on the current stream of `device`. The caller holds the GIL and references to w's
// buffers, and w.size > 0.
void launch(OpId op, const IterationSpace& w, int device, const char* where);

}  // namespace gpuinterop::ops
