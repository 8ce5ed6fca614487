// Loaded before the C library: counts the bytes of all allocations, and their highest number.

#include <errno.h>
#include <malloc.h>

#include <atomic>
#include <cstddef>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

static std::atomic<long> held{0}, highest{0};

static void* counted(void* block) {
  const long now = held += static_cast<long>(malloc_usable_size(block));
  for (long seen = highest; seen < now && !highest.compare_exchange_weak(seen, now);) {
  }
  return block;
}

extern "C" {

void* malloc(size_t n) { return counted(__libc_malloc(n)); }

void* calloc(size_t n, size_t size) { return counted(__libc_calloc(n, size)); }

void* realloc(void* block, size_t n) {
  // Counted as both blocks at once only if the C library has moved it.
  const long before = static_cast<long>(malloc_usable_size(block));
  void* const moved = __libc_realloc(block, n);
  if (!moved && n) return moved;
  held -= before;
  return counted(moved);
}

void* memalign(size_t alignment, size_t n) { return counted(__libc_memalign(alignment, n)); }

void* aligned_alloc(size_t alignment, size_t n) { return memalign(alignment, n); }

int posix_memalign(void** block, size_t alignment, size_t n) {
  void* const found = memalign(alignment, n);
  if (!found) return ENOMEM;
  *block = found;
  return 0;
}

void free(void* block) {
  held -= static_cast<long>(malloc_usable_size(block));
  __libc_free(block);
}

// Bytes that are held now; they become the highest number.
long heap_start() { return highest = held.load(); }

long heap_highest() { return highest; }
}
