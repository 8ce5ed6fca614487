// Streams beyond what kernels need: making, lending and retiring them.
#pragma once

#include <string>

#include "cuda/cuda.hpp"

namespace gpuinterop::cuda {

struct DeviceState;

// A stream of this library. Buffers remember the stream of their last use, so such a stream is never
// destroyed: when its Stream object goes it waits here for the next one.
CUstream acquire_stream(int device, bool blocking, int priority, const char* where);
void recycle_stream(int device, CUstream stream, bool blocking, int priority) noexcept;

// A foreign stream comes into use here, and goes out of use. Between the two its owner must keep it
// alive; after the second its handle is never given to the driver again, for the owner may destroy
// it. False: it could not be retired (it is being captured), so the owner must be kept for good.
// Between the two adopt_stream is called `again` before each use: an owner that did not keep it, and
// a driver that gave the handle to a new stream, must not mix up the work of both.
void adopt_stream(int device, CUstream stream, bool again, const char* where);
bool retire_stream(int device, CUstream stream) noexcept;

// For any_capture(): a stream that this library has made, and whether `holds` of one lent to it.
void note_own(CUstream stream) noexcept;
bool any_lent(bool (*holds)(CUstream) noexcept) noexcept;

// wait() as a user asks for it: a stream that waits for a captured one joins that capture.
void join(int device, CUstream waiter, CUstream producer, const char* where);

// The driver reads behind whatever handle it is given. Kind::Stream for one that is no address at all.
void check_address(CUstream stream, const char* where);

// Ordinal of the device whose primary context `handle` belongs to. Kind::Context when it is in
// another context, Kind::Stream when it is no handle.
int device_of_stream(uintptr_t handle);

// Where work after the last use of a buffer is to be queued.
CUstream living(DeviceState& d, CUstream stream, uint32_t token);

// A stream as Python code names it; 0 and 1 are both the legacy default stream there.
inline CUstream stream_of(uint64_t number) noexcept {
  return number ? reinterpret_cast<CUstream>(static_cast<uintptr_t>(number)) : CU_STREAM_LEGACY;
}

std::string handle_text(CUstream stream);  // "0x55c031b17510"

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
