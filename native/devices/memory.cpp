// Stream-ordered device memory: the cache, the driver's pool, and blocks whose release must wait.
//
// A freed block belongs to the stream of its last use and is reused on that stream only, so the next
// owner's work follows the last owner's without any event. Three kinds of block cannot be reused at
// once: those that a consumer may still read (Buffer::foreign_use), those whose
// stream is being captured, and those that a captured graph uses (graph_memory.cpp).
#include <algorithm>
#include <string>

#include "devices/deferred_release.hpp"
#include "devices/device_state.hpp"
#include "devices/memory.hpp"
#include "devices/stream.hpp"

namespace gpuinterop::cuda {

namespace {

std::mutex deferred_lock;
std::vector<FreedBlock> deferred;
std::atomic<size_t> deferred_count{0};

// If the list cannot grow, leak the block: a leak is better than a use after free.
void defer(const FreedBlock& freed) noexcept {
  std::lock_guard lock(deferred_lock);
  try {
    deferred.push_back(freed);
    deferred_count.store(deferred.size());
  } catch (...) {
  }
}

CUresult driver_allocate(void** ptr, int64_t bytes, CUstream stream) noexcept {
  CUdeviceptr address = 0;
  // Relaxed, because new memory is independent of any capture.
  CUresult code =
      call_blocking([&] { return driver().MemAllocAsync(&address, size_t(bytes), stream); });
  *ptr = reinterpret_cast<void*>(address);
  return code;
}

// Returns a block to the driver. The device's context is current.
void driver_free(DeviceState& d, const Block& block) noexcept {
  try {
    CUstream stream = live_stream(d, block.stream, block.thread);
    if (capture_id(stream)) return defer({&d, block, 0});  // it would become a node of the graph
    call_blocking(
        [&] { return driver().MemFreeAsync(reinterpret_cast<CUdeviceptr>(block.ptr), stream); });
  } catch (...) {
    defer({&d, block, 0});
  }
}

// Appends the streams on which the blocks are freed to `streams`.
void flush(DeviceState& d, std::vector<CUstream>* streams = nullptr) noexcept {
  try {
    for (const Block& block : d.cache.drain()) {
      if (streams) {
        CUstream stream = live_stream(d, block.stream, block.thread);
        if (std::find(streams->begin(), streams->end(), stream) == streams->end())
          streams->push_back(stream);
      }
      driver_free(d, block);
    }
  } catch (...) {  // no memory for the list: the blocks leak
  }
}

// A consumer received the memory through a protocol that does not report when the consumer has finished. It
// has just released the memory, so its work is what it has queued so far. False when a capture forbids the
// wait.
bool wait_for_consumers(DeviceState& d, const Block& block, uint32_t foreign_use) noexcept {
  try {
    CUstream stream = live_stream(d, block.stream, block.thread);
    if (foreign_use & kUsedElsewhere) {
      wait_for_all(d.ordinal, stream, "free");
      return true;
    }
    if (stream == CU_STREAM_LEGACY) return true;
    if (any_capture()) return false;
    return link(d, stream, d, CU_STREAM_LEGACY) == CUDA_SUCCESS;
  } catch (...) {
    return false;
  }
}

}  // namespace

void free_block(FreedBlock freed) noexcept {
  auto& [device, block, foreign_use] = freed;
  DeviceState& d = *device;
  // The legacy stream waits for another thread's default stream, so file the block there.
  if (block.stream == CU_STREAM_PER_THREAD && block.thread != thread_token())
    block.stream = CU_STREAM_LEGACY, block.thread = 0;
  if (foreign_use == 0 && d.cache.put(block)) [[likely]]
    return;
  try {
    DeviceGuard guard(d.ordinal);
    if (foreign_use && !wait_for_consumers(d, block, foreign_use)) return defer(freed);
    if (d.cache.put(block)) return;
    if (d.cache.fits(block.bytes)) {
      // The cache is probably full of sizes that are no longer requested, so empty it.
      flush(d);
      if (d.cache.put(block)) return;
    }
    driver_free(d, block);
  } catch (...) {
    defer(freed);
  }
}

void drain_deferred() noexcept {
  run_completed_releases();
  if (deferred_count.load(std::memory_order_relaxed) == 0 && !any_destroyed_graph()) return;
  if (driver_is_gone() || any_capture()) return;
  std::vector<FreedBlock> list;
  {
    std::lock_guard lock(deferred_lock);
    list.swap(deferred);
    deferred_count.store(0);
  }
  for (const FreedBlock& freed : list) free_block(freed);
  reclaim_graph_memory();
}

void trim_memory(DeviceState& d) noexcept {
  try {
    DeviceGuard guard(d.ordinal);
    presume_captures_over();
    complete_all_releases();  // among them those of dropped captures after their last replay
    reclaim_graph_memory();   // also during a capture, when nothing else is drained
    drain_deferred();
    // The memory of graphs that have ended is freed on the allocator's stream.
    std::vector<CUstream> streams{current_stream(d.ordinal), d.allocator};
    flush(d, &streams);
    // The pool returns only memory whose streams have completed. Waiting for the context would break
    // another library's capture; waiting for streams outside a capture breaks none.
    call_blocking([&] {
      for (CUstream stream : streams)
        if (!capture_id(stream)) driver().StreamSynchronize(stream);
      return CUDA_SUCCESS;
    });
    run_completed_releases();
    call_blocking([&] { return driver().MemPoolTrimTo(d.pool, 0); });
  } catch (...) {  // if this made no room, the allocation reports it
  }
}

void* allocate(int device, int64_t nbytes, CUstream stream, const char* where) {
  DeviceState& d = device_state(device, where);
  int64_t bytes = BlockCache::rounded(nbytes);
  uint32_t thread = stream == CU_STREAM_PER_THREAD ? thread_token() : 0;
  if (any_pending_release()) [[unlikely]]
    run_completed_releases();
  if (void* ptr = d.cache.take(bytes, stream, thread)) [[likely]]
    return ptr;
  DeviceGuard guard(device);
  drain_deferred();
  // A block of a graph that has ended: no work on it is pending, so any stream can use it.
  if (void* ptr = d.cache.take(bytes, d.allocator, 0)) return ptr;
  void* ptr = nullptr;
  CUresult code = driver_allocate(&ptr, bytes, stream);
  if (code == CUDA_ERROR_OUT_OF_MEMORY) {
    trim_memory(d);
    code = driver_allocate(&ptr, bytes, stream);
  }
  if (code == CUDA_SUCCESS) [[likely]]
    return ptr;
  if (code != CUDA_ERROR_OUT_OF_MEMORY) check(code, "cuMemAllocAsync", where);
  size_t free_bytes = 0, total = 0;
  {
    RelaxedCapture relaxed;
    driver().MemGetInfo(&free_bytes, &total);
  }
  int64_t live = statistics({DeviceType::Cuda, device}).live_bytes.load(std::memory_order_relaxed);
  fail(Kind::OutOfMemory, where,
       std::to_string(nbytes) + " bytes on cuda:" + std::to_string(device),
       std::to_string(free_bytes) + " bytes free of " + std::to_string(total) +
           "; gpuinterop arrays hold " + std::to_string(live) + " bytes, nothing is cached",
       "delete arrays that are no longer used, empty other libraries' caches "
       "(torch.cuda.empty_cache(), "
       "cupy.get_default_memory_pool().free_all_blocks()), or process the data in smaller parts");
}

void release(Buffer* b) noexcept {
  DeviceState* d = started_device(b->device.id);
  if (!d || driver_is_gone()) return;  // the exit of the process frees its memory
  auto stream = static_cast<CUstream>(b->stream);
  if (!stream) stream = CU_STREAM_LEGACY;
  if (b->context) [[unlikely]]
    return free_graph_block(*d, b);
  free_block({d,
              {b->ptr, BlockCache::rounded(b->nbytes), stream, b->stream_thread},
              b->foreign_use.load(std::memory_order_relaxed)});
  if (deferred_count.load(std::memory_order_relaxed) || any_destroyed_graph()) drain_deferred();
}

void allocate_buffer(Buffer* b, const char* where) {
  int device = b->device.id;
  CUstream stream = current_stream(device);
  DeviceState& d = device_state(device, where);
  b->stream = stream;
  b->stream_thread = stream == CU_STREAM_PER_THREAD ? thread_token() : 0;
  b->memory = Memory::Device;
  if (b->nbytes == 0) return;  // no memory and nothing to release, but the device must exist
  CUgraph graph = nullptr;
  uint64_t id = 0;
  if (stream != CU_STREAM_LEGACY) {
    DeviceGuard guard(device);
    id = capture_id(stream, &graph);
  }
  if (id)
    allocate_graph_block(d, b, id, graph, stream, where);
  else
    b->ptr = static_cast<char*>(allocate(device, b->nbytes, stream, where));
  b->release = release;
}

}  // namespace gpuinterop::cuda
