#include "devices/buffer.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "devices/memory.hpp"
#include "interpreter/error.hpp"
#include "interpreter/iterative_free.hpp"

namespace gpuinterop {

namespace {

constexpr int64_t kAlignment = 64;
// Host memory below this size is allocated with its Buffer: one allocation, which the C library serves from the thread's
// cache. Aligned allocation bypasses that cache.
constexpr int64_t kSmall = 4096;
// From this size on request huge pages, as NumPy does, because new memory is then faster to fill.
constexpr int64_t kHuge = int64_t(4) << 20;

void count(Buffer* b) noexcept {
  Statistics& s = statistics(b->device);
  s.live_buffers.fetch_add(1, std::memory_order_relaxed);
  int64_t live = s.live_bytes.fetch_add(b->nbytes, std::memory_order_relaxed) + b->nbytes;
  int64_t peak = s.peak_bytes.load(std::memory_order_relaxed);
  while (live > peak &&
         !s.peak_bytes.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

void release_host(Buffer* b) noexcept { std::free(b->ptr); }

void use_huge_pages(char* ptr, int64_t nbytes) noexcept {
  const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t before = -reinterpret_cast<uintptr_t>(ptr) % page;
  madvise(ptr + before, size_t(nbytes) - before, MADV_HUGEPAGE);  // failure: small pages
}

void release_zeroed(Buffer* b) noexcept { std::free(b->context); }

char* aligned(uintptr_t address) noexcept {
  return reinterpret_cast<char*>((address + kAlignment - 1) & ~uintptr_t(kAlignment - 1));
}

void allocate_host(Buffer* b, bool zeroed, const char* where) {
  void* memory = nullptr;
  // The system's new pages are zeros already, which calloc knows.
  if (zeroed) b->context = memory = std::calloc(1, size_t(b->nbytes + kAlignment));
  if (zeroed ? memory != nullptr
             : posix_memalign(&memory, size_t(kAlignment), size_t(b->nbytes)) == 0) {
    b->ptr = zeroed ? aligned(reinterpret_cast<uintptr_t>(memory)) : static_cast<char*>(memory);
    if (b->nbytes >= kHuge) use_huge_pages(b->ptr, b->nbytes);
  } else {
    int64_t held = statistics(b->device).live_bytes.load(std::memory_order_relaxed);
    const int64_t page = sysconf(_SC_PAGESIZE);
    fail(Kind::OutOfMemory, where, std::to_string(b->nbytes) + " bytes of host memory",
         std::to_string(page * sysconf(_SC_AVPHYS_PAGES)) + " bytes free of " +
             std::to_string(page * sysconf(_SC_PHYS_PAGES)) + "; gpuinterop arrays hold " +
             std::to_string(held) + " bytes",
         "delete arrays that are no longer used, or process the data in smaller parts");
  }
  b->release = zeroed ? release_zeroed : release_host;
}

void free_now(Buffer* b) noexcept {
  if (b->owned) {
    Statistics& s = statistics(b->device);
    s.live_bytes.fetch_sub(b->nbytes, std::memory_order_relaxed);
    s.live_buffers.fetch_sub(1, std::memory_order_relaxed);
  }
  if (b->release) b->release(b);
  b->~Buffer();
  ::operator delete(static_cast<void*>(b));  // small memory too
}

}  // namespace

const char* memory_name(Memory m) noexcept {
  static const char* const names[] = {"host", "device", "pinned", "managed"};
  return names[static_cast<int>(m)];
}

Statistics& statistics(Device device) noexcept {
  static Statistics all[1 + kMaxDevices];  // of the host, then of the GPUs
  return all[device.is_cuda() ? 1 + std::clamp(device.id, 0, kMaxDevices - 1) : 0];
}

void BufferRef::destroy(Buffer* b) noexcept {
  // Borrowed memory may be freed before its owner, and its release frees no other buffer.
  if (b->needs_base) return free_now(b);
  free_iteratively<free_now, [](Buffer* dead) -> Buffer*& { return dead->next_dead; }>(b);
}

BufferRef allocate(Device device, int64_t nbytes, const char* where, bool zeroed) {
  if (nbytes < 0)
    fail(Kind::Bounds, where, "a number of bytes that fits 63 bits", std::to_string(nbytes),
         "check the shape: the product of its entries overflows");
  const bool together = !device.is_cuda() && nbytes < kSmall;
  const int64_t behind = together ? nbytes + kAlignment : 0;
  auto* b = new (::operator new(sizeof(Buffer) + size_t(behind))) Buffer;
  BufferRef ref(b);
  b->nbytes = nbytes;
  b->device = device;
  const uintptr_t end = reinterpret_cast<uintptr_t>(b + 1);
  if (device.is_cuda())
    cuda::allocate_buffer(b, where);
  else if (!together)
    allocate_host(b, zeroed, where);
  else if (nbytes)
    b->ptr = aligned(end);
  // else: an empty array owns no memory and its address is 0, which every protocol allows.
  if (together && zeroed && nbytes) std::memset(b->ptr, 0, size_t(nbytes));
  b->owned = true;
  count(b);
  return ref;
}

}  // namespace gpuinterop
