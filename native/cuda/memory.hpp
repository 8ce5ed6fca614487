// Allocation of device memory, for buffers and the public functions.
#pragma once

#include "cuda/cuda.hpp"

namespace gpuinterop::cuda {

struct DeviceState;

// Fills ptr, stream and release of a buffer whose device and nbytes are set: memory of the calling
// thread's current stream, or of the graph that this stream is being captured into.
void allocate_buffer(Buffer* b, const char* where);

// Frees a block. See Buffer::foreign_use for the last argument.
void free_block(DeviceState& d, void* ptr, int64_t nbytes, CUstream stream, uint32_t thread,
                uint32_t foreign_use) noexcept;

// Returns cached memory to the driver, and the driver's to the system. Waits for the device when
// asked to, but never while something is being captured.
void trim_memory(DeviceState& d, bool synchronize) noexcept;

}  // namespace gpuinterop::cuda
