#include "cuda/pinned.hpp"

#include <algorithm>
#include <map>

#include "cuda/postpone.hpp"
#include "cuda/state.hpp"

namespace gpuinterop::cuda {

namespace {

struct Use {
  int device;
  CUstream stream;
  uint32_t thread;
};

struct Block {
  int device;
  char* ptr;
  int64_t nbytes;
  std::vector<Use> uses;  // each stream once
};

std::mutex lock;  // of what follows; released before driver calls
// Never destroyed: the last array may go when static objects have gone.
auto& blocks = *new std::map<const char*, Block*>;  // by their first byte
auto& waiting = *new std::vector<Block*>;           // for the end of a capture

// With the lock held.
Block* find(const void* host) {
  auto at = static_cast<const char*>(host);
  auto it = blocks.upper_bound(at);
  if (it == blocks.begin()) return nullptr;
  Block* block = std::prev(it)->second;
  return at < block->ptr + block->nbytes ? block : nullptr;
}

// No capture survives cuMemFreeHost: it may wait for the device.
void give_back(Block* block) noexcept {
  if (driver_is_gone()) return;
  try {
    if (any_capture()) {
      std::lock_guard guard(lock);
      waiting.push_back(block);
      return;
    }
    DeviceGuard context(block->device);
    RelaxedCapture relaxed;
    driver().MemFreeHost(block->ptr);
    delete block;
  } catch (...) {  // no context, or no memory for the list: the block is lost
  }
}

void give_back_waiting() noexcept {
  std::vector<Block*> all;
  {
    std::lock_guard guard(lock);
    all.swap(waiting);
  }
  for (Block* block : all) give_back(block);
}

// Waits for one use after the other.
void next_use(void* what) noexcept {
  auto* block = static_cast<Block*>(what);
  while (!block->uses.empty()) {
    const Use use = block->uses.back();
    block->uses.pop_back();
    DeviceState* d = started_device(use.device);
    if (!d) continue;
    Buffer last;
    last.nbytes = block->nbytes;
    last.stream = use.stream;
    last.stream_thread = use.thread;
    return when_done(*d, last, false, next_use, block);
  }
  give_back(block);
}

void release_pinned(Buffer* b) noexcept {
  auto* block = static_cast<Block*>(b->context);
  {
    std::lock_guard guard(lock);
    blocks.erase(block->ptr);
  }
  next_use(block);
  give_back_waiting();
}

}  // namespace

BufferRef allocate_pinned(int device, int64_t nbytes, const char* where) {
  give_back_waiting();
  finish_done();
  DeviceGuard context(device);
  void* ptr = nullptr;
  CUresult code;
  {
    GilDropped dropped;
    RelaxedCapture relaxed;
    code = driver().MemHostAlloc(&ptr, size_t(nbytes), CU_MEMHOSTALLOC_PORTABLE);
  }
  if (code == CUDA_ERROR_OUT_OF_MEMORY)
    fail(Kind::OutOfMemory, where, std::to_string(nbytes) + " bytes of page-locked host memory",
         "cuMemHostAlloc said " + describe(code),
         "keep less of it, or use ordinary memory: numpy.empty");
  check(code, "cuMemHostAlloc", where);
  auto* block = new Block{device, static_cast<char*>(ptr), nbytes, {}};
  auto* b = new Buffer;
  b->ptr = block->ptr;
  b->nbytes = nbytes;
  b->memory = Memory::Pinned;
  b->context = block;
  b->release = release_pinned;
  std::lock_guard guard(lock);
  blocks[block->ptr] = block;
  return BufferRef(b);
}

bool is_pinned_here(const void* host, int64_t nbytes) noexcept {
  std::lock_guard guard(lock);
  const Block* block = find(host);
  return block && static_cast<const char*>(host) + nbytes <= block->ptr + block->nbytes;
}

void note_pinned_use(int device, const void* host, CUstream stream) noexcept {
  const uint32_t thread = stream == CU_STREAM_PER_THREAD ? thread_token() : 0;
  std::lock_guard guard(lock);
  Block* block = find(host);
  if (!block) return;
  for (const Use& use : block->uses)
    if (use.device == device && use.stream == stream && use.thread == thread) return;
  try {
    block->uses.push_back({device, stream, thread});
  } catch (...) {  // waits for nothing less, and the owner may synchronise
  }
}

}  // namespace gpuinterop::cuda
