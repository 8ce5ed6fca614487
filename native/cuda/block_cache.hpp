// Freed device memory, kept for the next array of the same size on the same stream. It
// exists only because a call of the driver's pool costs ten times as much.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "cuda/cuda.hpp"

namespace gpuinterop::cuda {

// Held for tens of nanoseconds, never across a driver call.
class SpinLock {
 public:
  void lock() noexcept;
  void unlock() noexcept { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
};

struct Block {
  void* ptr;
  int64_t bytes;    // rounded
  CUstream stream;  // of the last use
  uint32_t thread;  // of the last use, for CU_STREAM_PER_THREAD
};

class BlockCache {
 public:
  static constexpr int64_t kGranule = 512;
  static int64_t rounded(int64_t nbytes) noexcept {
    return (nbytes + kGranule - 1) & ~(kGranule - 1);
  }

  // Of all blocks together.
  void set_limit(int64_t limit) noexcept { limit_ = limit; }
  void* take(int64_t bytes, CUstream stream, uint32_t thread) noexcept;
  // False when there is no room (or no memory to remember it): the caller frees the block, or
  // empties the cache and tries again.
  bool put(const Block& block) noexcept;
  // Whether a block is worth emptying the cache for. A larger one is kept only while there is room.
  bool fits(int64_t bytes) const noexcept { return bytes <= limit_ / 4; }
  // Empties the cache and returns its blocks.
  std::vector<Block> drain();
  int64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kSlots = 1024;
  struct Bin {
    int64_t bytes = 0;  // 0: an unused slot
    CUstream stream = nullptr;
    uint32_t thread = 0;
    std::vector<void*> blocks;
  };
  Bin* find(int64_t bytes, CUstream stream, uint32_t thread, bool insert) noexcept;

  SpinLock lock_;
  std::vector<Bin> bins_;
  size_t used_ = 0;
  int64_t limit_ = 0;
  std::atomic<int64_t> bytes_{0};
};

}  // namespace gpuinterop::cuda
