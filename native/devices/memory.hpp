// Allocation of device memory, for buffers and the public functions.
#pragma once

#include "devices/block_cache.hpp"
#include "devices/cuda.hpp"

namespace gpuinterop::cuda {

struct DeviceState;

// Fills ptr, stream and release of a buffer whose device and nbytes are set: memory of the calling
// thread's current stream, or of the graph that this stream is being captured into.
void allocate_buffer(Buffer* b, const char* where);

struct FreedBlock {
  DeviceState* device;
  Block block;
  uint32_t foreign_use;  // see Buffer::foreign_use
};
void free_block(FreedBlock freed) noexcept;

// Returns cached memory to the driver, and the driver's cached memory to the system. Waits for the streams of
// that memory, except those that are being captured.
void trim_memory(DeviceState& d) noexcept;

// ---- graph_memory.cpp: memory that is allocated while a stream is being captured -------------------
// The graph uses this memory at every launch. Until the graph is destroyed, only other allocations of the
// same capture may reuse it.

// Calls ended(data) when the graph that is being recorded and all its executables are destroyed. The driver
// calls it on a thread of its own, where CUDA calls are forbidden. After an error ended(data) has been
// called, and the graph holds no reference.
void when_graph_ends(CUgraph graph, void* data, CUhostFn ended, const char* where);

void allocate_graph_block(DeviceState& d, Buffer* b, uint64_t capture, CUgraph graph,
                          CUstream stream, const char* where);
void free_graph_block(DeviceState& d, Buffer* b) noexcept;

bool any_destroyed_graph() noexcept;   // some graph has ended and its memory is not yet returned
void reclaim_graph_memory() noexcept;  // returns it
// For a capture of gpuinterop: a graph with a user object takes twice as long to launch, so its graph gets one only
// before it is copied into another graph, and its owner reports its end.
void begin_graph_memory(int device, uint64_t capture);
void share_graph_memory(int device, uint64_t capture, CUgraph graph, const char* where);
// Called before the graph is destroyed. `last` is the stream of its last launch, null if there was none.
void end_graph_memory(int device, uint64_t capture, CUstream last, uint32_t thread) noexcept;

}  // namespace gpuinterop::cuda
