// Freed device memory, kept for the next array of the same size on the same stream. The cache exists only
// because a call of the driver's pool costs ten times as much.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace gpuinterop::cuda {

struct Block {
  void* ptr;
  int64_t bytes;    // rounded
  CUstream stream;  // of the last use
  uint32_t thread;  // of the last use, for CU_STREAM_PER_THREAD
};

class BlockCache {
 public:
  // Small arrays have room behind their elements: old programs launch a fixed number of threads, such as
  // 400 over 100 floats, and must not write into a neighbour (docs/how-to/port-theano.md).
  static constexpr int64_t kLeast = 2048;

  static int64_t rounded(int64_t nbytes) noexcept {
    return std::max(kLeast, (nbytes + 511) & ~int64_t(511));
  }

  // The most bytes of all blocks together.
  void set_limit(int64_t limit) noexcept { limit_ = limit; }

  // The latest block, because its lines may still be in the GPU's cache; null if there is none.
  void* take(int64_t bytes, CUstream stream, uint32_t thread) noexcept {
    std::lock_guard lock(lock_);
    const auto found = blocks_.find({bytes, stream, thread});
    if (found == blocks_.end() || found->second.empty()) return nullptr;
    void* ptr = found->second.back();
    found->second.pop_back();
    add_bytes(-bytes);
    return ptr;
  }

  // False when there is no room (or no memory to remember it): the caller frees the block, or
  // empties the cache and tries again.
  bool put(const Block& block) noexcept {
    std::lock_guard lock(lock_);
    if (bytes() + block.bytes > limit_) return false;
    try {
      const Key key{block.bytes, block.stream, block.thread};
      if (blocks_.size() >= kMostKeys && !blocks_.count(key)) return false;
      blocks_[key].push_back(block.ptr);
    } catch (...) {
      return false;
    }
    add_bytes(block.bytes);
    return true;
  }

  // Whether a block is worth emptying the cache for. A larger one is kept only while there is room.
  bool fits(int64_t bytes) const noexcept { return bytes <= limit_ / 4; }

  // Empties the cache and returns its blocks.
  std::vector<Block> drain() {
    std::lock_guard lock(lock_);
    std::vector<Block> all;
    for (const auto& [key, pointers] : blocks_)
      for (void* ptr : pointers) all.push_back({ptr, key.bytes, key.stream, key.thread});
    blocks_.clear();
    bytes_.store(0, std::memory_order_relaxed);
    return all;
  }

  int64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  // With the lock held, so that a store suffices.
  void add_bytes(int64_t more) noexcept { bytes_.store(bytes() + more, std::memory_order_relaxed); }

  // Sizes that are no longer requested keep their keys until the cache is emptied.
  static constexpr size_t kMostKeys = 512;
  struct Key {
    int64_t bytes;
    CUstream stream;
    uint32_t thread;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const noexcept {
      const uint64_t h =
          uint64_t(k.bytes) / 512 + reinterpret_cast<uintptr_t>(k.stream) / 16 + k.thread * 31u;
      return size_t(h * 0x9E3779B97F4A7C15ull >> 32);
    }
  };

  std::mutex lock_;  // held for tens of nanoseconds, never across a driver call
  std::unordered_map<Key, std::vector<void*>, KeyHash> blocks_;
  int64_t limit_ = 0;
  std::atomic<int64_t> bytes_{0};
};

}  // namespace gpuinterop::cuda
