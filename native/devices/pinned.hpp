// Pinned host memory, and the asynchronous copies that may still read it.
#pragma once

#include "devices/cuda.hpp"

namespace gpuinterop::cuda {

// Host memory that every device can copy from and to without staging. It is reused after the noted
// copies have completed.
BufferRef allocate_pinned(int device, int64_t nbytes, const char* where);
// Small downloads go to pinned memory first, because the driver takes twice as long for pageable memory.
constexpr int64_t kMailbox = int64_t(64) << 10;
// Memory for that many bytes, or more; null if no pinned memory is free.
BufferRef take_mailbox(int device, int64_t nbytes, const char* where);
// Frees idle memory unless a graph is being captured, and returns whether there was any. Waits for the
// device.
bool release_idle_pinned() noexcept;
// Whether these bytes are in memory of allocate_pinned().
bool is_pinned_here(const void* host, int64_t nbytes) noexcept;
// An asynchronous copy from or to `host` was queued on `stream`, or recorded in a graph there.
void note_pinned_use(int device, const void* host, CUstream stream, const char* where);

}  // namespace gpuinterop::cuda
