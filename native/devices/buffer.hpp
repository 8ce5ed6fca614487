// A piece of memory with a reference count. Arrays and exported capsules share it. Dropping the last
// reference frees it, on any thread, with or without the GIL.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace gpuinterop {

// DLPack's device types. Each array has one of these two; pinned host memory counts as Cpu, managed memory
// as the Cuda device that the pointer belongs to.
enum class DeviceType : int32_t { Cpu = 1, Cuda = 2 };
struct Device {
  DeviceType type = DeviceType::Cpu;
  int32_t id = 0;
  bool is_cuda() const noexcept { return type == DeviceType::Cuda; }
  bool operator==(const Device& o) const noexcept { return type == o.type && id == o.id; }
  bool operator!=(const Device& o) const noexcept { return !(*this == o); }
};
constexpr int kMaxDevices = 64;  // further GPUs are not used

enum class Memory : uint8_t { Host, Device, Pinned, Managed };
const char* memory_name(Memory m) noexcept;  // "host", "device", "pinned" or "managed"

// Bits of Buffer::foreign_use.
constexpr uint32_t kUsedOnLegacy = 1;   // by a consumer on the legacy stream
constexpr uint32_t kUsedElsewhere = 2;  // by a consumer on another stream
// By a consumer whose stream may differ from that of the last use. Set together with kUsedElsewhere. A
// capture cannot wait for the whole context, so no other array of the same graph gets such memory.
constexpr uint32_t kUsedBeside = 4;
constexpr uint32_t kLoanReturned = 1u << 31;  // of Buffer::loans, on CUDA

struct Buffer {
  std::atomic<int64_t> refs{1};
  char* ptr = nullptr;  // lowest address that may be touched; null when nbytes is 0
  int64_t nbytes = 0;   // bytes from ptr on; -1: not known (a raw foreign pointer)
  Device device;
  Memory memory = Memory::Host;
  bool owned = false;       // allocated by this library (counted in the statistics)
  bool readonly = false;    // the producer forbids writing
  bool needs_base = false;  // foreign memory kept alive by a Python object, Array::base: code that
                            // holds the buffer outside an Array must hold that object too
  bool unset = false;       // host: a result of a capture that no replay or write has filled yet
  // CUDA only. The stream of the last use, always a real handle (CU_STREAM_LEGACY, never 0), or null before
  // the first use of imported memory. Every use on another stream first waits for last_stream() and then
  // replaces it (cuda::order), so uses of one buffer form a chain and freeing on this stream is safe.
  void* stream = nullptr;
  uint32_t stream_thread = 0;  // the thread, if stream is CU_STREAM_PER_THREAD: see cuda::order
  uint32_t uses = 0;           // how often cuda::order was called for it
  // The thread on which a consumer last borrowed the memory: it queues work on that thread's stream, at any
  // time until it returns.
  uint32_t borrower = 0;
  // The consumers that received the memory, as bits (the constants above). Freeing waits for them, because
  // DLPack's deleter does not pass the stream on which the consumer worked.
  std::atomic<uint32_t> foreign_use{0};
  // Loans to consumers that read when they compute, which may be long after the export (arrays/loans.hpp):
  // the number of outstanding loans, and kLoanReturned if a device may still work on returned ones. 0 for
  // nearly all memory.
  std::atomic<uint32_t> loans{0};
  // Frees the memory and the object that keeps it alive. Called once, possibly without the GIL; must not throw.
  void (*release)(Buffer*) noexcept = nullptr;
  void* context = nullptr;      // argument of the release function
  Buffer* next_dead = nullptr;  // see iterative_free.hpp
  // Imported CUDA memory: the stream on which its owner goes on using it (exchange::Producer). It is a
  // member, not a part of `context`, so that an import makes one allocation.
  void* producer = nullptr;
  bool producer_elsewhere = false, producer_alive = false;
};

// The stream of the last use, or, before the first one, the producer's if that stream exists as long as the memory.
inline void* last_stream(const Buffer& b) noexcept {
  return b.stream || !b.producer_alive ? b.stream : b.producer;
}

class BufferRef {
 public:
  BufferRef() noexcept = default;
  explicit BufferRef(Buffer* stolen) noexcept : b_(stolen) {}
  BufferRef(const BufferRef& o) noexcept : b_(o.b_) {
    if (b_) b_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  BufferRef(BufferRef&& o) noexcept : b_(std::exchange(o.b_, nullptr)) {}
  BufferRef& operator=(BufferRef o) noexcept {
    std::swap(b_, o.b_);
    return *this;
  }
  ~BufferRef() { reset(); }
  void reset() noexcept {
    Buffer* b = release();
    // A count of 1 means no other thread holds a reference, so skip the atomic decrement.
    if (b && (b->refs.load(std::memory_order_acquire) == 1 ||
              b->refs.fetch_sub(1, std::memory_order_acq_rel) == 1))
      destroy(b);
  }
  Buffer* get() const noexcept { return b_; }
  Buffer* release() noexcept { return std::exchange(b_, nullptr); }
  Buffer* operator->() const noexcept { return b_; }
  explicit operator bool() const noexcept { return b_ != nullptr; }

 private:
  static void destroy(Buffer* b) noexcept;  // buffer.cpp: statistics, release, delete
  Buffer* b_ = nullptr;
};

// Fresh memory, 64-byte aligned on the host (XLA's rule for sharing), from the stream-ordered pool
// on CUDA, where it belongs to the calling thread's current stream. Kind::OutOfMemory on failure.
BufferRef allocate(Device device, int64_t nbytes, const char* where, bool zeroed = false);

struct Statistics {
  std::atomic<int64_t> live_bytes{0}, live_buffers{0}, peak_bytes{0};
  std::atomic<int64_t> live_arrays{0};
  // Python objects are made and destroyed with the GIL held, so this needs no atomic addition.
  void count_array(int64_t change) noexcept {
    live_arrays.store(live_arrays.load(std::memory_order_relaxed) + change,
                      std::memory_order_relaxed);
  }
};
Statistics& statistics(Device device) noexcept;

}  // namespace gpuinterop
