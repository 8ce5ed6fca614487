// What has to happen to foreign memory once the device is through with it, when the order of streams
// cannot be relied on to bring that about: nobody knows the stream its owner will use it on next.
#pragma once

#include "cuda/cuda.hpp"

namespace gpuinterop::cuda {

struct DeviceState;

using Finish = void (*)(void*) noexcept;

// Calls now(what), if the last use of `b` has passed, or later(what) in a later run_completed_releases(), which
// has the GIL; the calling thread may be without it. With `consumers` everything that the device's
// context has queued counts as the last use. May wait for the device when too much is pending; holds
// on to nothing of `b` itself.
void release_when_done(DeviceState& d, const Buffer& b, bool consumers, Finish now, Finish later,
                       void* what) noexcept;

// Whether the last use of `b` has passed. False when nobody can tell.
bool is_done(DeviceState& d, const Buffer& b) noexcept;

// Records everything queued in the device's context in `event`, or waits for it where the driver
// cannot. Both spoil every capture in that context, so that a capture on a stream that was ever met
// here is asked for first; then, and when the driver knows of another, forbidden_by_capture() is true
// of the answer and nothing was recorded.
CUresult record_context(DeviceState& d, CUevent event) noexcept;
bool forbidden_by_capture(CUresult code) noexcept;

bool anything_pending() noexcept;
// Finishes what has passed. Finishing may run Python code, so nothing happens in a thread that does
// not hold the GIL: taking it there could close a circle of locks.
void run_completed_releases() noexcept;
// The same, after waiting for what has not passed yet.
void finish_all() noexcept;

}  // namespace gpuinterop::cuda
