#include <list>
#include <memory>

#include "devices/deferred_release.hpp"
#include "devices/device_state.hpp"
#include "devices/memory.hpp"

namespace gpuinterop::cuda {

namespace {

struct GraphPool {
  const uint64_t capture;
  DeviceState& device;
  int64_t live = 0;        // buffers that hold a block of this pool
  bool ended = false;      // no further launch will begin, so any stream may use the blocks
  bool waiting = false;    // for the last launch, before finish_pool()
  bool destroyed = false;  // the driver has no reference to this pool
  bool owned = false;      // by a capture of gpuinterop, which may be replayed
  BlockCache idle;
  std::vector<Block> shared;  // that a consumer on another stream of the capture may still use
  GraphPool(uint64_t capture, DeviceState& device) : capture(capture), device(device) {
    idle.set_limit(INT64_MAX);
  }
  bool is_unused() const { return ended && destroyed && !waiting && live == 0; }
};

// Of all pools; taken without any other lock but that of a cache, and released before driver calls.
std::mutex pools_lock;
std::list<GraphPool*> pools;
std::atomic<int> destroyed_count{0};

void CUDA_CB graph_ended(void* data) {
  std::lock_guard guard(pools_lock);
  auto* pool = static_cast<GraphPool*>(data);
  pool->destroyed = true;
  pool->ended |= !pool->owned;
  destroyed_count.fetch_add(1);
}

GraphPool* find(int device, uint64_t capture) noexcept {  // with the lock held
  for (GraphPool* p : pools)
    if (p->capture == capture && p->device.ordinal == device && !p->ended) return p;
  return nullptr;
}

GraphPool* make(DeviceState& device, uint64_t capture) {
  auto fresh = std::make_unique<GraphPool>(capture, device);
  std::lock_guard guard(pools_lock);
  pools.push_back(fresh.get());
  return fresh.release();
}

GraphPool* find_or_make(DeviceState& d, uint64_t capture, CUgraph graph, const char* where) {
  {
    std::lock_guard guard(pools_lock);
    if (GraphPool* pool = find(d.ordinal, capture)) return pool;
  }
  GraphPool* pool = make(d, capture);
  when_graph_ends(graph, pool, graph_ended, where);  // an error ends the pool, which is reclaimed
  return pool;
}

// A block without pending work belongs to the allocator's stream, from which every stream may reuse it.
Block without_work(DeviceState& d, const Block& block) noexcept {
  return {block.ptr, block.bytes, d.allocator, 0};
}

}  // namespace

void when_graph_ends(CUgraph graph, void* data, CUhostFn ended, const char* where) {
  const Driver& cu = driver();
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
         "end the capture; the error of the call that failed gives the reason");
  GraphPool* pool = find_or_make(d, capture, graph, where);
  b->context = pool;
  {
    std::lock_guard guard(pools_lock);
    ++pool->live;
    b->ptr = static_cast<char*>(
        pool->idle.take(BlockCache::rounded(b->nbytes), stream, b->stream_thread));
    if (b->ptr) return;
  }
  // Reuse the memory of graphs that have ended before allocating more.
  if (any_destroyed_graph()) reclaim_graph_memory();
  // Allocate on a stream outside the capture, so that the memory is not a node of the graph and outlives it.
  // That stream runs no kernels, so waiting for it is short; but the driver may make it wait for memory that
  // another stream frees.
  try {
    b->ptr = static_cast<char*>(allocate(d.ordinal, b->nbytes, d.allocator, where));
    DeviceGuard context(d.ordinal);
    check(call_blocking([&] { return driver().StreamSynchronize(d.allocator); }),
          "cuStreamSynchronize", where);
  } catch (...) {
    std::lock_guard guard(pools_lock);
    --pool->live;
    throw;
  }
}

void free_graph_block(DeviceState& d, Buffer* b) noexcept {
  auto* pool = static_cast<GraphPool*>(b->context);
  Block block{b->ptr, BlockCache::rounded(b->nbytes), static_cast<CUstream>(b->stream),
              b->stream_thread};
  const uint32_t foreign_use = b->foreign_use.load();
  {
    std::lock_guard guard(pools_lock);
    --pool->live;
    if (!pool->ended) {
      try {
        if (foreign_use & kUsedBeside || !pool->idle.put(block)) pool->shared.push_back(block);
      } catch (...) {  // no memory for the list: the block leaks
      }
      return;
    }
    if (pool->is_unused()) destroyed_count.fetch_add(1);  // an empty pool to delete
  }
  // The last launch, or a use outside the graph since, may still run. Filed under its stream the block would
  // serve no later capture, and a program that records again and again would fill the cache.
  if (foreign_use == 0 && is_done(d, *b)) return free_block({&d, without_work(d, block), 0});
  auto* kept = new (std::nothrow) FreedBlock{&d, without_work(d, block), 0};
  if (!kept) return free_block({&d, block, foreign_use});
  const Finish finish = [](void* what) noexcept {
    free_block(*std::unique_ptr<FreedBlock>(static_cast<FreedBlock*>(what)));
  };
  release_when_done(d, *b, foreign_use != 0, finish, finish, kept);
}

bool any_destroyed_graph() noexcept { return destroyed_count.load(std::memory_order_relaxed) != 0; }

namespace {

// With the lock held, after the last launch of the graph.
void take_blocks(GraphPool& pool, std::vector<FreedBlock>& blocks) {
  for (const Block& block : pool.idle.drain())
    blocks.push_back({&pool.device, without_work(pool.device, block), 0});
  for (const Block& block : std::exchange(pool.shared, {}))
    blocks.push_back({&pool.device, block, kUsedElsewhere});
}

void finish_pool(void* data) noexcept {
  auto* pool = static_cast<GraphPool*>(data);
  std::vector<FreedBlock> blocks;
  {
    std::lock_guard guard(pools_lock);
    pool->waiting = false;
    try {
      if (pool->ended) take_blocks(*pool, blocks);
    } catch (...) {  // no memory for the list: reclaim_graph_memory() tries again
    }
    if (pool->destroyed) destroyed_count.fetch_add(1);
  }
  for (const FreedBlock& freed : blocks) free_block(freed);
}

}  // namespace

void begin_graph_memory(int device, uint64_t capture) {
  GraphPool* pool = make(device_state(device, "gpuinterop.capture"), capture);
  std::lock_guard guard(pools_lock);
  pool->destroyed = pool->owned = true;
}

void share_graph_memory(int device, uint64_t capture, CUgraph graph, const char* where) {
  GraphPool* pool = nullptr;
  {
    std::lock_guard guard(pools_lock);
    pool = find(device, capture);
    if (!pool || !std::exchange(pool->destroyed, false)) return;
  }
  when_graph_ends(graph, pool, graph_ended, where);
}

void end_graph_memory(int device, uint64_t capture, CUstream last, uint32_t thread) noexcept {
  GraphPool* pool = nullptr;
  {
    std::lock_guard guard(pools_lock);
    pool = find(device, capture);
    if (!pool) return;
    pool->owned = false;
    pool->ended = pool->destroyed;  // a graph that contains a copy may still be launched
    pool->waiting = true;
  }
  Buffer use;
  use.device = {DeviceType::Cuda, device};
  use.nbytes = pool->idle.bytes();
  use.stream = last;
  use.stream_thread = thread;
  if (!last || is_done(pool->device, use)) return finish_pool(pool);
  release_when_done(pool->device, use, false, finish_pool, finish_pool, pool);
}

void reclaim_graph_memory() noexcept {
  std::vector<FreedBlock> blocks;
  {
    std::lock_guard guard(pools_lock);
    destroyed_count.store(0);
    try {
      for (auto it = pools.begin(); it != pools.end();) {
        GraphPool* pool = *it;
        // The driver ends a graph after its last launch has completed.
        if (pool->ended && pool->destroyed && !pool->waiting) take_blocks(*pool, blocks);
        if (pool->is_unused()) {
          delete pool;
          it = pools.erase(it);
        } else {
          ++it;
        }
      }
    } catch (...) {  // no memory for the list: blocks leak, and the rest is tried again later
      destroyed_count.store(1);
    }
  }
  for (const FreedBlock& freed : blocks) free_block(freed);
}

}  // namespace gpuinterop::cuda
