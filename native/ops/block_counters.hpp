// Counters in GPU memory by which the blocks of one launch find out who is last (gi_is_last in
// gpuinterop/jit/kernels/reduce_common.cuh). They are 0 between launches, because every launch leaves
// them so; what must not happen is that two launches that may overlap in time count with the same.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "array/buffer.hpp"

namespace gpuinterop::ops {

// For every launch; gpuinterop/ops/reduction_plan.py keeps to it.
constexpr int64_t kTicketWords = 4096;

struct BlockCounters {
  Buffer* buffer = nullptr;
  BufferRef held;  // until the launches are queued; null when somebody else holds them
};

// Where the next launches on `stream`, the current one of `device`, may count. Costs a comparison or
// two when the stream has been here before. The caller puts the buffer in order (cuda::order_all). Called with the GIL and inside of a DeviceGuard.
BlockCounters tickets(int device, CUstream stream, const char* where);

}  // namespace gpuinterop::ops
