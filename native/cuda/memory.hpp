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

// Returns cached memory to the driver, and the driver's to the system. Waits for the streams of that memory,
// but never while something is being captured.
void trim_memory(DeviceState& d) noexcept;

// ---- graph_memory.cpp: memory that is allocated while a stream is being captured -------------------
// The graph will use it at every launch, so it may serve other allocations of the same capture but nobody
// else until the graph is gone.

// Has ended(data) called when the last of the graph that is being recorded and its executables goes: by
// the driver, on a thread of its own, where CUDA calls are forbidden. On an error it has been called, and the
// graph holds nothing.
void when_graph_ends(CUgraph graph, void* data, CUhostFn ended, const char* where);

void allocate_graph_block(DeviceState& d, Buffer* b, uint64_t capture, CUgraph graph,
                          CUstream stream, const char* where);
void free_graph_block(DeviceState& d, Buffer* b) noexcept;

bool any_destroyed_graph() noexcept;  // some graph has ended and its memory has not been given back
void reclaim_graph_memory() noexcept;  // gives it back

}  // namespace gpuinterop::cuda
