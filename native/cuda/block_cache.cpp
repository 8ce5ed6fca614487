#include "cuda/block_cache.hpp"

#include <sched.h>

#include <mutex>

namespace gpuinterop::cuda {

void SpinLock::lock() noexcept {
  for (int spins = 0; flag_.test_and_set(std::memory_order_acquire); ++spins)
    if (spins > 100) sched_yield();  // the holder was pre-empted
}

BlockCache::Bin* BlockCache::find(int64_t bytes, CUstream stream, uint32_t thread,
                                  bool insert) noexcept {
  uint64_t h = uint64_t(bytes) / kGranule + reinterpret_cast<uintptr_t>(stream) / 16 + thread * 31u;
  h *= 0x9E3779B97F4A7C15ull;
  for (size_t i = h >> 54;; i = (i + 1) % kSlots) {
    Bin& bin = bins_[i];
    if (bin.bytes == bytes && bin.stream == stream && bin.thread == thread) return &bin;
    if (bin.bytes) continue;
    if (!insert || used_ >= kSlots / 2) return nullptr;
    bin.bytes = bytes;
    bin.stream = stream;
    bin.thread = thread;
    ++used_;
    return &bin;
  }
}

void* BlockCache::take(int64_t bytes, CUstream stream, uint32_t thread) noexcept {
  std::lock_guard lock(lock_);
  if (bins_.empty()) return nullptr;
  Bin* bin = find(bytes, stream, thread, false);
  if (!bin || bin->blocks.empty()) return nullptr;
  void* ptr = bin->blocks.back();  // the latest: its lines may still be in the GPU's cache
  bin->blocks.pop_back();
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  return ptr;
}

bool BlockCache::put(const Block& block) noexcept {
  std::lock_guard lock(lock_);
  if (bytes_.load(std::memory_order_relaxed) + block.bytes > limit_) return false;
  try {
    if (bins_.empty()) bins_.resize(kSlots);
    Bin* bin = find(block.bytes, block.stream, block.thread, true);
    if (!bin) return false;
    bin->blocks.push_back(block.ptr);
  } catch (...) {
    return false;
  }
  bytes_.fetch_add(block.bytes, std::memory_order_relaxed);
  return true;
}

std::vector<Block> BlockCache::drain() {
  std::vector<Bin> bins;
  {
    std::lock_guard lock(lock_);
    bins.swap(bins_);
    used_ = 0;
    bytes_.store(0, std::memory_order_relaxed);
  }
  std::vector<Block> blocks;
  for (Bin& bin : bins)
    for (void* ptr : bin.blocks) blocks.push_back({ptr, bin.bytes, bin.stream, bin.thread});
  return blocks;
}

}  // namespace gpuinterop::cuda
