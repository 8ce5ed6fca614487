// Copies between pageable host memory and a device at the speed of pinned memory: several threads, each
// with two pinned blocks. While the device copies from or to one block, the thread copies the other.
#pragma once

#include "devices/cuda.hpp"

namespace gpuinterop::cuda {

// Smaller copies are left to the driver, because waking threads costs more than they gain.
constexpr int64_t kStagedBytes = int64_t(1) << 20;

// Copies between pageable memory and the device after the work that is queued on `stream`, and waits.
// Drops the GIL. False, and nothing is copied, if other copies use all threads or no pinned memory is
// free; the caller then leaves the copy to the driver. The stream must not be captured.
bool copy_staged(int device, void* dst, const void* src, int64_t nbytes, Direction direction,
                 CUstream stream, const char* where);

// Waits until no thread copies. Called at the exit of the interpreter, after which no copy begins.
void finish_staging() noexcept;

}  // namespace gpuinterop::cuda
