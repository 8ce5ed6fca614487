#include "devices/stream_objects.hpp"

#include <utility>

#include "devices/device_state.hpp"
#include "devices/stream.hpp"
#include "interpreter/error_translation.hpp"

namespace gpuinterop {

Stream::Stream(Device d, bool block, int prio)
    : device(d), origin(Origin::Own), blocking(block), priority(prio) {
  if (d.is_cuda()) handle = cuda::acquire_stream(d.id, block, prio, "Stream");
}

Stream::Stream(Device d, CUstream h, nanobind::object o)
    : device(d),
      handle(h),
      origin(cuda::is_default(h) ? Origin::Default : Origin::Lent),
      owner(std::move(o)) {
  if (d.is_cuda()) cuda::device_state(d.id, "Stream");  // the device exists
}

Stream::~Stream() {
  if (!handle) return;
  if (origin == Origin::Own) {
    cuda::recycle_stream(device.id, handle, blocking, priority);
  } else {
    retire();
  }
}

void Stream::retire() noexcept {
  if (std::exchange(used_, false)) cuda::retire_stream(device.id, handle);
}

void Stream::leave() noexcept {
  // Without an owner the caller keeps it alive only during the block.
  if (--blocks_ == 0 && origin == Origin::Lent && !owner) retire();
}

void Stream::check_usable(const char* where) const {
  if (!handle) return;
  cuda::require(where);  // a handle from before a fork is invalid in this process
  cuda::require_context(cuda::device_state(device.id, where), where);
}

void Stream::enter() {
  if (origin == Origin::Lent) {
    cuda::borrow_stream(device.id, handle, used_, "Stream");
    used_ = true;
  }
  ++blocks_;
}

Event::Event(Device d, bool t, bool blocking) : device(d), timing(t) {
  if (!d.is_cuda()) return;
  cuda::DeviceGuard guard(d.id);
  unsigned flags = (t ? 0u : unsigned(CU_EVENT_DISABLE_TIMING)) |
                   (blocking ? unsigned(CU_EVENT_BLOCKING_SYNC) : 0u);
  cuda::check(cuda::call_blocking([&] { return cuda::driver().EventCreate(&handle, flags); }),
              "cuEventCreate", "Event");
}

Event::~Event() {
  // The driver keeps an event while a stream waits for it.
  if (!handle || cuda::driver_is_gone()) return;
  const cuda::DeviceState* d = cuda::started_device(device.id);
  if (!d || !cuda::context_exists(*d)) return;
  cuda::call_blocking([&] { return cuda::driver().EventDestroy(handle); });
}

}  // namespace gpuinterop
