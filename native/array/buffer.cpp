#include "array/buffer.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "array/error.hpp"
#include "array/iterative_free.hpp"
#include "cuda/memory.hpp"

namespace gpuinterop {

namespace {

constexpr int64_t kAlignment = 64;
// Below this size a plain malloc with padding is served from the C library's thread cache, which aligned
// allocation bypasses.
constexpr int64_t kSmall = 4096;
// From this size on the system is asked for huge pages, as NumPy does: new memory is quicker to fill.
constexpr int64_t kHuge = int64_t(4) << 20;

Statistics& device_statistics(int id) noexcept {
  static Statistics all[kMaxDevices];
  return all[id < 0 || id >= kMaxDevices ? kMaxDevices - 1 : id];
}

void count(Buffer* b) noexcept {
  Statistics& s = statistics(b->device);
  s.live_buffers.fetch_add(1, std::memory_order_relaxed);
  int64_t live = s.live_bytes.fetch_add(b->nbytes, std::memory_order_relaxed) + b->nbytes;
  int64_t peak = s.peak_bytes.load(std::memory_order_relaxed);
  while (live > peak &&
         !s.peak_bytes.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

// Buffer::context holds the address that malloc returned, which differs from ptr for small blocks.
void release_host(Buffer* b) noexcept { std::free(b->context); }

void use_huge_pages(char* ptr, int64_t nbytes) noexcept {
  const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t before = -reinterpret_cast<uintptr_t>(ptr) % page;
  madvise(ptr + before, size_t(nbytes) - before, MADV_HUGEPAGE);  // failure: small pages
}

void allocate_host(Buffer* b, const char* where) {
  if (b->nbytes < kSmall) {
    b->context = std::malloc(size_t(b->nbytes + kAlignment));
    auto address = reinterpret_cast<uintptr_t>(b->context);
    if (address)
      b->ptr = reinterpret_cast<char*>((address + kAlignment - 1) & ~uintptr_t(kAlignment - 1));
  } else if (posix_memalign(&b->context, size_t(kAlignment), size_t(b->nbytes)) == 0) {
    b->ptr = static_cast<char*>(b->context);
    if (b->nbytes >= kHuge) use_huge_pages(b->ptr, b->nbytes);
  } else {
    b->context = nullptr;
  }
  if (!b->ptr) {
    int64_t held = statistics(b->device).live_bytes.load(std::memory_order_relaxed);
    const int64_t page = sysconf(_SC_PAGESIZE);
    fail(Kind::OutOfMemory, where, std::to_string(b->nbytes) + " bytes of host memory",
         std::to_string(page * sysconf(_SC_AVPHYS_PAGES)) + " bytes free of " +
             std::to_string(page * sysconf(_SC_PHYS_PAGES)) + "; gpuinterop arrays hold " +
             std::to_string(held) + " bytes",
         "delete arrays that are no longer used, or process the data in smaller parts");
  }
  b->release = release_host;
}

void free_now(Buffer* b) noexcept {
  if (b->owned) {
    Statistics& s = statistics(b->device);
    s.live_bytes.fetch_sub(b->nbytes, std::memory_order_relaxed);
    s.live_buffers.fetch_sub(1, std::memory_order_relaxed);
  }
  if (b->release) b->release(b);
  delete b;
}

}  // namespace

const char* memory_name(Memory m) noexcept {
  switch (m) {
    case Memory::Host: return "host";
    case Memory::Device: return "device";
    case Memory::Pinned: return "pinned";
    case Memory::Managed: return "managed";
  }
  return "host";
}

Statistics& statistics(Device device) noexcept {
  static Statistics host;
  return device.is_cuda() ? device_statistics(device.id) : host;
}

void BufferRef::destroy(Buffer* b) noexcept {
  // Borrowed memory may be freed before its owner, and its release frees no other buffer.
  if (b->needs_base) return free_now(b);
  free_iteratively<free_now, [](Buffer* dead) -> Buffer*& { return dead->next_dead; }>(b);
}

BufferRef allocate(Device device, int64_t nbytes, const char* where) {
  if (nbytes < 0)
    fail(Kind::Bounds, where, "a number of bytes that fits 63 bits", std::to_string(nbytes),
         "check the shape: the product of its entries overflows");
  BufferRef ref(new Buffer);
  Buffer* b = ref.get();
  b->nbytes = nbytes;
  b->device = device;
  if (device.is_cuda())
    cuda::allocate_buffer(b, where);
  else if (nbytes)
    allocate_host(b, where);
  // else: an empty array owns no memory and its address is 0, which every protocol allows.
  b->owned = true;
  count(b);
  return ref;
}

}  // namespace gpuinterop
