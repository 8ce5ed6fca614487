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
// it. False: it could not be retired, as a rule because it is being captured: nobody asks for it by its
// handle, and who needs its work waits for all of the context. Neither does anything to a stream that
// lasts.
// Between the two borrow_stream is called `again` before each use: an owner that did not keep it, and
// a driver that gave the handle to a new stream, must not mix up the work of both.
void borrow_stream(int device, CUstream stream, bool again, const char* where);
bool retire_stream(int device, CUstream stream) noexcept;
// One whose capture kept it from being retired counts as lent until end_lingering(), which the caller
// calls when the owner goes, and is retired as soon as somebody asks for it after the capture. False:
// there was no capture.
bool defer_retirement(CUstream stream) noexcept;
void end_lingering(CUstream stream) noexcept;

// Somebody will queue work on a stream that was not lent, and it may go without a word. Whoever needs
// that work later waits for all of the context, and for no handle; after end_loose_use(), for which the
// stream has to live still, for that stream's work only.
void begin_untracked_use(int device, CUstream stream, const char* where);
bool end_loose_use(int device, CUstream stream) noexcept;  // false: the same as without

// A stream that is never destroyed, such as all that this library makes.
void note_lasting(CUstream stream) noexcept;
bool is_lasting(CUstream stream) noexcept;
bool is_known_to_live(CUstream stream) noexcept;
bool any_known_to_live(bool (*holds)(CUstream) noexcept) noexcept;

// Kind::Capture where wait() would fail with it; nothing waits.
void require_wait(int device, CUstream waiter, CUstream producer, const char* where);

// wait() as a user asks for it: a stream that waits for a captured one joins that capture.
void join(int device, CUstream waiter, CUstream producer, const char* where);

// The driver reads behind whatever handle it is given. Kind::Stream for one that is no address at all.
void check_address(CUstream stream, const char* where);

// Ordinal of the device whose primary context `handle` belongs to. Kind::Context when it is in
// another context, Kind::Stream when it is no handle.
int device_of_stream(uintptr_t handle);

// Where the work of a remembered handle can be waited for, and work after it is to be queued: the one
// door from a handle at rest to a stream that lives. Kind::Capture when a capture forbids the answer.
CUstream living(DeviceState& d, CUstream stream, uint32_t token, const char* where = "free");
CUstream last_use(const Buffer& b, const char* where);  // of a buffer on CUDA

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
  CUevent event = nullptr;  // null it to keep it from the pool
  CUresult code = CUDA_SUCCESS;

 private:
  DeviceState& device;
};

}  // namespace gpuinterop::cuda
