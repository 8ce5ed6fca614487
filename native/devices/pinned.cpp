#include "devices/pinned.hpp"

#include <algorithm>
#include <map>
#include <memory>

#include "devices/deferred_release.hpp"
#include "devices/device_state.hpp"
#include "devices/memory.hpp"

namespace gpuinterop::cuda {

namespace {

struct Use {
  int device;
  CUstream stream;
  uint32_t thread;
};

struct PinnedBlock {
  int device;  // whose context allocated it; every device may use it
  char* ptr;
  int64_t nbytes;         // as requested
  int64_t capacity;       // as allocated
  std::vector<Use> uses;  // each stream once
  int graphs = 0;         // captured graphs that copy from or to it
  bool released = false;  // only these graphs hold it
};

constexpr int64_t kPage = 4096;

std::mutex blocks_lock;  // of the variables below; released before driver calls
// Never destroyed, because the last array may be destroyed after static objects.
auto& blocks = *new std::map<const char*, PinnedBlock*>;  // by their first byte
auto& idle = *new std::multimap<int64_t, PinnedBlock*>;   // by their capacity
// Bytes of capacity: in arrays now, the maximum so far, and in `idle`.
int64_t used_bytes = 0, most_used_bytes = 0, idle_bytes = 0;
// Idle memory up to this size is kept even if less was ever used at once.
constexpr int64_t kKeptIdleBytes = int64_t(64) << 20;

// With the lock held.
PinnedBlock* find(const void* host) {
  auto at = static_cast<const char*>(host);
  auto it = blocks.upper_bound(at);
  if (it == blocks.begin()) return nullptr;
  PinnedBlock* block = std::prev(it)->second;
  return at < block->ptr + block->nbytes ? block : nullptr;
}

// Keeps the block for reuse, because cuMemFreeHost waits for the whole device and breaks captures.
void keep_idle(PinnedBlock* block) noexcept {
  std::lock_guard guard(blocks_lock);
  block->released = true;
  if (block->graphs > 0) return;  // the last of them keeps it idle
  try {
    idle.emplace(block->capacity, block);
    idle_bytes += block->capacity;
  } catch (...) {  // no memory for the list: the block leaks
  }
}

void CUDA_CB block_graph_ended(void* data) {
  auto* block = static_cast<PinnedBlock*>(data);
  {
    std::lock_guard guard(blocks_lock);
    if (--block->graphs > 0 || !block->released) return;
  }
  keep_idle(block);
}

// An idle block of this size, at most twice as large; null if there is none.
PinnedBlock* pop_idle(int64_t nbytes) {
  std::lock_guard guard(blocks_lock);
  auto it = idle.lower_bound(nbytes);
  if (it == idle.end() || it->first / 2 > std::max(nbytes, kPage)) return nullptr;
  PinnedBlock* block = it->second;
  idle.erase(it);
  idle_bytes -= block->capacity;
  return block;
}

bool keeps_too_much() {
  std::lock_guard guard(blocks_lock);
  return idle_bytes > std::max(most_used_bytes, kKeptIdleBytes);
}

// May wait for the devices, and must not run while a stream is captured.
void free_blocks(const std::vector<PinnedBlock*>& unused) noexcept {
  for (PinnedBlock* block : unused) {
    try {
      DeviceGuard context(block->device);
      call_blocking([&] { return driver().MemFreeHost(block->ptr); });
    } catch (...) {  // the context was destroyed, and its memory with it
    }
    delete block;
  }
}

// Empties `idle`, and returns its blocks. None while a stream is captured, because a free would break the
// capture.
std::vector<PinnedBlock*> take_all_idle() {
  std::vector<PinnedBlock*> all;
  if (driver_is_gone() || any_capture()) return all;
  std::lock_guard guard(blocks_lock);
  all.reserve(idle.size());
  for (const auto& [capacity, block] : idle) all.push_back(block);
  idle.clear();
  idle_bytes = 0;
  return all;
}

// Waits for the uses one by one, then keeps the block idle.
void wait_for_next_use(void* what) noexcept {
  auto* block = static_cast<PinnedBlock*>(what);
  while (!block->uses.empty()) {
    const Use use = block->uses.back();
    block->uses.pop_back();
    DeviceState* d = started_device(use.device);
    if (!d) continue;
    Buffer last;
    last.nbytes = block->nbytes;
    last.stream = use.stream;
    last.stream_thread = use.thread;
    return release_when_done(*d, last, false, wait_for_next_use, wait_for_next_use, block);
  }
  keep_idle(block);
}

void release_pinned(Buffer* b) noexcept {
  auto* block = static_cast<PinnedBlock*>(b->context);
  {
    std::lock_guard guard(blocks_lock);
    blocks.erase(block->ptr);
    used_bytes -= block->capacity;
  }
  wait_for_next_use(block);
}

}  // namespace

BufferRef allocate_pinned(int device, int64_t nbytes, const char* where) {
  device_state(device, where);  // the device exists
  run_completed_releases();
  BufferRef ref(new Buffer);
  PinnedBlock* block = pop_idle(nbytes);
  if (!block) {
    auto fresh = std::make_unique<PinnedBlock>();
    const int64_t capacity = (nbytes + kPage - 1) / kPage * kPage;
    void* ptr = nullptr;
    // The idle blocks do not fit. A program whose sizes change would lock ever more memory, so idle
    // memory is bounded by the most that was in use at once. The allocation below may wait anyway.
    if (keeps_too_much()) release_idle_pinned();
    // This may wait for the device, and for work of the device that needs the GIL.
    auto lock_pages = [&] {
      DeviceGuard context(device);
      return call_blocking(
          [&] { return driver().MemHostAlloc(&ptr, size_t(capacity), CU_MEMHOSTALLOC_PORTABLE); });
    };
    CUresult code = lock_pages();
    if (code == CUDA_ERROR_OUT_OF_MEMORY && release_idle_pinned()) code = lock_pages();
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
      fail(Kind::OutOfMemory, where, std::to_string(nbytes) + " bytes of pinned host memory",
           "cuMemHostAlloc returned " + describe(code),
           "free pinned arrays, or use pageable memory: numpy.empty");
    check(code, "cuMemHostAlloc", where);
    fresh->device = device;
    fresh->ptr = static_cast<char*>(ptr);
    fresh->capacity = capacity;
    block = fresh.release();
  }
  block->nbytes = nbytes;
  block->released = false;
  Buffer* b = ref.get();
  b->ptr = block->ptr;
  b->nbytes = nbytes;
  b->memory = Memory::Pinned;
  b->context = block;
  b->release = release_pinned;
  std::lock_guard guard(blocks_lock);
  blocks[block->ptr] = block;
  used_bytes += block->capacity;
  most_used_bytes = std::max(most_used_bytes, used_bytes);
  return ref;
}

bool release_idle_pinned() noexcept {
  try {
    const std::vector<PinnedBlock*> all = take_all_idle();
    free_blocks(all);
    return !all.empty();
  } catch (...) {  // no memory for the list
    return false;
  }
}

bool is_pinned_here(const void* host, int64_t nbytes) noexcept {
  std::lock_guard guard(blocks_lock);
  const PinnedBlock* block = find(host);
  return block && static_cast<const char*>(host) + nbytes <= block->ptr + block->nbytes;
}

void note_pinned_use(int device, const void* host, CUstream stream, const char* where) {
  CUgraph graph = nullptr;
  const bool captured = capture_id(stream, &graph) != 0;
  const uint32_t thread = stream == CU_STREAM_PER_THREAD ? thread_token() : 0;
  PinnedBlock* block;
  {
    std::lock_guard guard(blocks_lock);
    block = find(host);
    if (!block) return;
    if (!captured) {
      for (const Use& use : block->uses)
        if (use.device == device && use.stream == stream && use.thread == thread) return;
      block->uses.push_back({device, stream, thread});
      return;
    }
    ++block->graphs;  // the graph that is being recorded holds the block
  }
  when_graph_ends(graph, block, block_graph_ended, where);
}

}  // namespace gpuinterop::cuda
