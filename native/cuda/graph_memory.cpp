#include "cuda/graph_memory.hpp"

#include <algorithm>
#include <list>
#include <memory>

#include "cuda/block_cache.hpp"
#include "cuda/deferred_release.hpp"
#include "cuda/device_state.hpp"
#include "cuda/memory.hpp"

namespace gpuinterop::cuda {

namespace {

struct GraphPool {
  uint64_t capture;
  int device;
  int64_t live = 0;        // buffers that hold a block of this pool
  bool destroyed = false;  // the graph and everything made from it is destroyed
  std::vector<Block> idle;
  std::vector<Block> shared;  // that a consumer on another stream of the capture may still use
};

std::mutex
    pools_lock;  // of all pools; taken without any other lock and released before driver calls
std::list<GraphPool*> pools;
std::atomic<int> destroyed_count{0};

void CUDA_CB graph_ended(void* data) {
  std::lock_guard guard(pools_lock);
  static_cast<GraphPool*>(data)->destroyed = true;
  destroyed_count.fetch_add(1);
}

GraphPool* find_or_make(DeviceState& d, uint64_t capture, CUgraph graph, const char* where) {
  {
    std::lock_guard guard(pools_lock);
    for (GraphPool* p : pools)
      if (p->capture == capture && p->device == d.ordinal && !p->destroyed) return p;
  }
  auto fresh = std::make_unique<GraphPool>(GraphPool{0, d.ordinal});
  GraphPool* pool = fresh.get();
  {
    std::lock_guard guard(pools_lock);
    pools.push_back(pool);
    fresh.release();
  }
  // On an error the pool belongs to no capture, and is reclaimed.
  when_graph_ends(graph, pool, graph_ended, where);
  std::lock_guard guard(pools_lock);
  pool->capture = capture;
  return pool;
}

// Assigns a block without pending work to the allocator's stream, from which every stream may reuse it.
void serve_any_stream(DeviceState& d, Block& block) noexcept {
  try {
    block.stream = allocator_stream(d, "gpuinterop.capture");
    block.thread = 0;
  } catch (...) {  // no stream could be made: the block stays with its stream
  }
}

}  // namespace

void when_graph_ends(CUgraph graph, void* data, CUhostFn ended, const char* where) {
  const Driver& cu = driver();
  if (!cu.UserObjectCreate || !cu.GraphRetainUserObject || !graph) return;
  CUuserObject object = nullptr;
  CUresult code = cu.UserObjectCreate(&object, data, ended, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  if (code != CUDA_SUCCESS) ended(data);
  check(code, "cuUserObjectCreate", where);
  code = cu.GraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  if (code != CUDA_SUCCESS) cu.UserObjectRelease(object, 1);  // calls ended(data)
  check(code, "cuGraphRetainUserObject", where);
}

void allocate_graph_block(DeviceState& d, Buffer* b, uint64_t capture, CUgraph graph,
                          CUstream stream, const char* where) {
  if (capture == UINT64_MAX)
    fail(Kind::Capture, where, "a capture that is still valid",
         "a capture that an earlier call has broken",
         "end the capture; the call before this one that failed says why");
  GraphPool* pool = find_or_make(d, capture, graph, where);
  int64_t bytes = BlockCache::rounded(b->nbytes);
  uint32_t thread = stream == CU_STREAM_PER_THREAD ? thread_token() : 0;
  b->context = pool;
  {
    std::lock_guard guard(pools_lock);
    auto fits = [&](const Block& k) {
      return k.bytes == bytes && k.stream == stream && k.thread == thread;
    };
    auto it = std::find_if(pool->idle.begin(), pool->idle.end(), fits);
    ++pool->live;
    if (it != pool->idle.end()) {
      b->ptr = static_cast<char*>(it->ptr);
      *it = pool->idle.back();
      pool->idle.pop_back();
      return;
    }
  }
  // Memory of graphs that have ended since is reused before more is taken.
  if (any_destroyed_graph()) reclaim_graph_memory();
  // From a stream outside the capture, so that the memory is no node of the graph and outlives it.
  // That stream runs no kernels, so waiting for it is short.
  try {
    CUstream outside = allocator_stream(d, where);
    b->ptr = static_cast<char*>(allocate(d.ordinal, b->nbytes, outside, where));
    DeviceGuard context(d.ordinal);
    RelaxedCapture relaxed;
    check(driver().StreamSynchronize(outside), "cuStreamSynchronize", where);
  } catch (...) {
    std::lock_guard guard(pools_lock);
    --pool->live;
    throw;
  }
}

void free_graph_block(DeviceState& d, Buffer* b) noexcept {
  auto* pool = static_cast<GraphPool*>(b->context);
  auto stream = static_cast<CUstream>(b->stream);
  const uint32_t foreign_use = b->foreign_use.load();
  bool destroyed;
  {
    std::lock_guard guard(pools_lock);
    --pool->live;
    destroyed = pool->destroyed;
    if (!destroyed) {
      try {
        (foreign_use & kUsedBeside ? pool->shared : pool->idle)
            .push_back({b->ptr, BlockCache::rounded(b->nbytes), stream, b->stream_thread});
      } catch (...) {
      }
    } else if (pool->live == 0) {
      destroyed_count.fetch_add(1);  // an empty pool to delete
    }
  }
  if (!destroyed) return;
  Block block{b->ptr, b->nbytes, stream, b->stream_thread};
  // The array may have been used outside the graph since, so check its last use.
  if (foreign_use == 0 && is_done(d, *b)) serve_any_stream(d, block);
  free_block(d, block.ptr, block.bytes, block.stream, block.thread, foreign_use);
}

bool any_destroyed_graph() noexcept { return destroyed_count.load(std::memory_order_relaxed) != 0; }

void reclaim_graph_memory() noexcept {
  struct Reclaimed {
    int device;
    Block block;
    uint32_t foreign_use;
  };
  std::vector<Reclaimed> blocks;
  {
    std::lock_guard guard(pools_lock);
    destroyed_count.store(0);
    try {
      for (auto it = pools.begin(); it != pools.end();) {
        GraphPool* pool = *it;
        if (!pool->destroyed) {
          ++it;
          continue;
        }
        // This may fail, the rest cannot.
        blocks.reserve(blocks.size() + pool->idle.size() + pool->shared.size());
        for (const Block& block : pool->idle) blocks.push_back({pool->device, block, 0});
        for (const Block& block : pool->shared)
          blocks.push_back({pool->device, block, kUsedElsewhere});
        pool->idle.clear();
        pool->shared.clear();
        if (pool->live == 0) {
          delete pool;
          it = pools.erase(it);
        } else {
          ++it;
        }
      }
    } catch (...) {
      destroyed_count.store(1);  // try again later
    }
  }
  for (auto& [device, block, foreign_use] : blocks) {
    DeviceState* d = started_device(device);
    if (!d) continue;
    // The driver ends a graph after its last launch has completed.
    if (foreign_use == 0) serve_any_stream(*d, block);
    free_block(*d, block.ptr, block.bytes, block.stream, block.thread, foreign_use);
  }
}

}  // namespace gpuinterop::cuda
