// Makes, borrows and retires streams.
#pragma once

#include <string>

#include "devices/cuda.hpp"

namespace gpuinterop::cuda {

struct DeviceState;

// A stream of gpuinterop. Buffers store the stream of their last use, so such a stream is never
// destroyed: when its Stream object is destroyed, the next Stream reuses it.
CUstream acquire_stream(int device, bool blocking, int priority, const char* where);
void recycle_stream(int device, CUstream stream, bool blocking, int priority) noexcept;

// Begins and ends the use of an external stream. In between its owner must keep it alive. After
// retire_stream the driver never gets its handle again, because the owner may destroy it. If the stream
// is being captured then, later work waits for the whole context, which no running capture allows.
// Both do nothing for a process-lifetime stream.
// borrow_stream is called with `again` before each further use, because the driver may have given the
// handle to a new stream.
void borrow_stream(int device, CUstream stream, bool again, const char* where);
void retire_stream(int device, CUstream stream) noexcept;

// Another library will queue work on a stream that was not borrowed and that its owner may destroy.
// Later work waits for the whole context; after end_untracked_use(), which needs a live stream, for that
// stream only.
void begin_untracked_use(int device, CUstream stream, const char* where);
void end_untracked_use(int device, CUstream stream) noexcept;

// Process-lifetime streams are never destroyed, such as all streams of gpuinterop.
void note_process_lifetime(CUstream stream) noexcept;
bool lives_until_exit(CUstream stream) noexcept;
bool is_known_live(CUstream stream) noexcept;
bool any_known_live(bool (*holds)(CUstream) noexcept) noexcept;

// After the capture of `stream`: memory last used there has no work pending, because recording a use has waited
// for the use before it, and the recorded one has not run. The next capture uses the stream again.
void forget_recorded_use(Buffer* b, CUstream stream) noexcept;

// wait() as a user calls it: a stream that waits for a captured one joins that capture.
void join(int device, CUstream waiter, CUstream producer, const char* where);

// The driver dereferences every handle. Kind::Stream for a handle that is not a readable address.
void check_address(CUstream stream, const char* where);

// Ordinal of the device whose primary context `handle` belongs to. Kind::Context if it is in another
// context, Kind::Stream if it is not a handle.
int device_of_stream(uintptr_t handle);

// The stream on which the work of a stored handle can be waited for. Every stored handle passes through
// this function before it reaches the driver. Kind::Capture if a capture forbids the wait.
CUstream live_stream(DeviceState& d, CUstream stream, uint32_t token, const char* where = "free");
CUstream last_use_stream(const Buffer& b, const char* where);  // of a buffer on CUDA

// A stream as Python code specifies it; 0 and 1 both mean the legacy default stream there.
inline CUstream stream_of(uint64_t number) noexcept {
  return number ? reinterpret_cast<CUstream>(static_cast<uintptr_t>(number)) : CU_STREAM_LEGACY;
}

std::string handle_text(const void* address);  // "0x55c031b17510"

// An event from the device's pool.
class EventLease {
 public:
  explicit EventLease(DeviceState& d);
  ~EventLease();
  EventLease(const EventLease&) = delete;
  CUevent event = nullptr;
  CUresult code = CUDA_SUCCESS;

 private:
  DeviceState& device;
};

}  // namespace gpuinterop::cuda
