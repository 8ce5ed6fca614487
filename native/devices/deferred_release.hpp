// Deferred release: returns imported memory to its owner after its last use on the device. Stream order
// cannot do this, because the stream that the owner uses next is unknown.
#pragma once

#include "devices/cuda.hpp"

namespace gpuinterop::cuda {

struct DeviceState;

using Finish = void (*)(void*) noexcept;

// Calls now(what) if the last use of `b` has completed, or later(what) in a later
// run_completed_releases(), which has the GIL; the calling thread may be without it. With `consumers`
// all work queued in the device's context counts as the last use. May wait for the device when too much
// is pending. Keeps no reference to `b`.
void release_when_done(DeviceState& d, const Buffer& b, bool consumers, Finish now, Finish later,
                       void* what) noexcept;

// Whether the last use of `b` has completed. False if that is unknown.
bool is_done(DeviceState& d, const Buffer& b) noexcept;

// Records all work queued in the device's context in `event`, or waits for it where the driver cannot
// record it. Both would break every capture in that context. If a capture is running,
// forbidden_by_capture() is true of the result and nothing was recorded.
CUresult record_context(DeviceState& d, CUevent event) noexcept;
bool forbidden_by_capture(CUresult code) noexcept;

bool any_pending_release() noexcept;
// Calls the pending releases whose uses have completed. They may run Python code, so a thread without the
// GIL does nothing: acquiring it could deadlock.
void run_completed_releases() noexcept;
// The same, after waiting for uses that have not completed yet.
void complete_all_releases() noexcept;

}  // namespace gpuinterop::cuda
