// Memory that is allocated while a stream is being captured. The graph will use it at every launch,
// so it may serve other allocations of the same capture but nobody else until the graph is gone.
#pragma once

#include "cuda/cuda.hpp"

namespace gpuinterop::cuda {

struct DeviceState;

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
