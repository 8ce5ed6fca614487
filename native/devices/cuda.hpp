// The CUDA functions that the rest of the core uses. The first call of any of them loads the driver.
// Streams are real handles: CU_STREAM_LEGACY (1) or CU_STREAM_PER_THREAD (2) or the driver's, never 0.
#pragma once

#include <cuda.h>

#include <string>

#include "devices/buffer.hpp"
#include "interpreter/gil.hpp"

namespace gpuinterop::cuda {

// ---- availability: never throws, loads libcuda once ------------------------------------------
bool available() noexcept;         // the driver works and there is a device
int device_count() noexcept;       // 0 when not available()
std::string unavailable_reason();  // what was tried, for messages and the doctor
void require(const char* where);   // Kind::Library / Kind::Cuda error when !available()

// Makes the device's primary context current for a scope. Costs one cuCtxGetId when it already is.
class DeviceGuard {
 public:
  // Kind::Device error for an ordinal that does not exist, Kind::Context if its context was reset.
  explicit DeviceGuard(int ordinal);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;

 private:
  bool pushed_ = false;
};

// Throws Kind::Cuda (Kind::OutOfMemory for that code) with the call's name, the code's name and meaning.
void check(CUresult code, const char* call, const char* where);

// ---- streams ----------------------------------------------------------------------------------
CUstream current_stream(int device) noexcept;  // of the calling thread; legacy by default
void set_current_stream(int device, CUstream stream) noexcept;
// A small number for the calling thread, never reused.
uint32_t thread_token() noexcept;
bool is_capturing(CUstream stream) noexcept;
bool any_capture() noexcept;  // whether some capture is known to run in the process
// `waiter` waits for all that is queued on `producer`; no host synchronisation. No-op when equal.
// During capture only what is legal there; Kind::Capture error when a capture forbids the order.
void wait(int device, CUstream waiter, CUstream producer, const char* where);
// Makes `stream` the stream of the next use of `b` (see Buffer::stream). True: it was another stream, and
// other threads may have run during the wait.
bool order_slow(Buffer* b, CUstream stream, const char* where);
inline bool order(Buffer* b, CUstream stream, const char* where) {
  if (!b) return false;
  ++b->uses;
  // The per-thread handle is another stream in every thread, so equal handles prove nothing.
  return (b->stream != stream || stream == CU_STREAM_PER_THREAD) && order_slow(b, stream, where);
}
// The same for several buffers (null: none).
inline void order_all(Buffer* const* buffers, int n, CUstream stream, const char* where) {
  for (bool again = true; again;) {
    again = false;
    for (int i = 0; i < n; ++i) again |= order(buffers[i], stream, where);
  }
}
// Queues work that uses these buffers on `stream`: call() makes the driver's calls and checks them, without the
// GIL, because they wait while the stream's queue is full (about a thousand operations). So it uses nothing
// that the GIL guards. Another thread may use the memory on its stream before the work is queued; the last
// step makes `stream` wait for that use, so that what follows either use follows both. The caller holds the
// GIL and references to the buffers.
template <class Call>
void queue(Buffer* const* buffers, int n, CUstream stream, const char* where, Call&& call) {
  order_all(buffers, n, stream, where);
  {
    GilRelease released(GilRelease::kHeld);
    call();
  }
  order_all(buffers, n, stream, where);
}
void synchronize_stream(int device, CUstream stream, const char* where);  // drops the GIL if held

// ---- memory -----------------------------------------------------------------------------------
// Stream-ordered. On failure empties the cache and tries again, then raises Kind::OutOfMemory with the
// requested, free and held bytes.
void* allocate(int device, int64_t nbytes, CUstream stream, const char* where);
void release(Buffer* b) noexcept;  // Buffer::release of memory from allocate()

enum class Direction { HostToDevice, DeviceToHost, DeviceToDevice };
// Contiguous bytes within one device (or between it and the host), on `stream`. Host copies block unless
// `async`, and drop the GIL for that time; the driver stages pageable memory.
void copy_bytes(int device, void* dst, const void* src, int64_t nbytes, Direction direction,
                CUstream stream, bool async, const char* where);
// Waits for the calling thread's current stream, unless that is being captured. Drops the GIL.
void finish_current_stream(int device, const char* where);
// Between devices. `stream` is the destination's; the copy comes after what is queued on the calling
// thread's current stream of the source, and that stream then waits for the copy.
void copy_peer(int dst_device, void* dst, int src_device, const void* src, int64_t nbytes,
               CUstream stream, const char* where);
void fill_bytes(int device, void* dst, const void* item, int itemsize, int64_t count,
                CUstream stream, const char* where);  // itemsize 1, 2 or 4

// The driver's information about a pointer. known == false: not CUDA memory (plain host, or freed).
struct PointerInfo {
  bool known = false;
  Memory memory = Memory::Device;
  int device = 0;
  bool same_context = true;     // allocated in that device's primary context (or a pool)
  void* range_start = nullptr;  // extent of the allocation, null if unknown
  int64_t range_bytes = 0;
};
PointerInfo inspect(const void* ptr) noexcept;

}  // namespace gpuinterop::cuda
