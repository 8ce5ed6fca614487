// Whether a stream is being captured, and whether any is.
#include <algorithm>

#include "cuda/device_state.hpp"
#include "cuda/stream.hpp"

namespace gpuinterop::cuda {

namespace {

// Streams once seen in a capture. The driver has no question "is anything being captured?", so the
// answer is the state of these. One that was not lent may be gone by now and is not asked: its capture
// counts as running until the stream is named again, or presume_captures_over().
std::mutex seen_lock;
std::vector<CUstream> seen;
std::atomic<size_t> seen_count{0};

void note_capturing(CUstream stream) noexcept {
  std::lock_guard lock(seen_lock);
  if (std::find(seen.begin(), seen.end(), stream) != seen.end()) return;
  try {
    seen.push_back(stream);
    seen_count.store(seen.size());
  } catch (...) {
  }
}

void forget_capturing(CUstream stream) noexcept {
  std::lock_guard lock(seen_lock);
  seen.erase(std::remove(seen.begin(), seen.end(), stream), seen.end());
  seen_count.store(seen.size());
}

// The default streams are those of the current context: without one the driver answers with an error.
bool can_be_asked(CUstream stream) noexcept {
  CUcontext context = nullptr;
  return !is_default(stream) || (driver().CtxGetCurrent(&context) == CUDA_SUCCESS && context);
}

uint64_t ask_for_capture(CUstream stream, CUgraph* graph) noexcept {
  const Driver& cu = driver();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUresult code = cu.StreamGetCaptureInfo
                      ? cu.StreamGetCaptureInfo(stream, &status, &id, graph, nullptr, nullptr)
                      : cu.StreamIsCapturing(stream, &status);
  if (code != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE) [[likely]] {
    if (seen_count.load(std::memory_order_relaxed) != 0) forget_capturing(stream);
    return 0;
  }
  note_capturing(stream);
  // A broken capture has no id, and neither has one of an old driver: all such count as one.
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id ? id : UINT64_MAX;
}

// Whether `holds` in the context of some device in use: the per-thread stream of which one is meant,
// nobody can tell without a context.
template <class Test>
bool anywhere(Test holds) noexcept {
  for (int i = 0; i < driver().devices && i < kMaxDevices; ++i) {
    DeviceState* d = started_device(i);
    CUcontext popped;
    if (!d || driver().CtxPushCurrent(d->primary) != CUDA_SUCCESS) continue;
    const bool found = holds();
    driver().CtxPopCurrent(&popped);
    if (found) return true;
  }
  return false;
}

// As capture_id() != 0, without a note of it.
bool is_captured(CUstream stream) noexcept {
  if (stream == CU_STREAM_LEGACY) return false;
  auto asked = [stream]() noexcept {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return driver().StreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
  };
  return can_be_asked(stream) ? asked() : anywhere(asked);
}

}  // namespace

uint64_t capture_id(CUstream stream, CUgraph* graph) noexcept {
  if (stream == CU_STREAM_LEGACY) return 0;  // cannot be captured, and must not be asked
  if (can_be_asked(stream)) [[likely]]
    return ask_for_capture(stream, graph);
  uint64_t id = 0;
  anywhere([&]() noexcept { return (id = ask_for_capture(stream, graph)) != 0; });
  return id;
}

bool is_capturing(CUstream stream) noexcept { return driver().ok && capture_id(stream) != 0; }

bool any_capture() noexcept {
  const Driver& cu = driver();
  if (!cu.ok) return false;
  bool found = false;
  for (int i = 0; i < cu.devices && i < kMaxDevices; ++i)
    if (capture_id(current_stream(i))) found = true;
  if (seen_count.load() != 0) {
    std::lock_guard lock(seen_lock);
    seen.erase(std::remove_if(seen.begin(), seen.end(),
                              [&](CUstream s) {
                                const bool active = !is_known_to_live(s) || is_captured(s);
                                found = found || active;
                                return !active;
                              }),
               seen.end());
    seen_count.store(seen.size());
  }
  // Somebody else may have begun it, on a stream that is also used here.
  found = found || any_known_to_live(is_captured);
  // The driver answers this question with an error, and harmlessly, when a blocking stream of the
  // current context is being captured.
  CUstreamCaptureStatus status;
  return found ||
         (can_be_asked(CU_STREAM_LEGACY) &&
          cu.StreamIsCapturing(CU_STREAM_LEGACY, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void presume_capture_over(CUstream stream) noexcept { forget_capturing(stream); }

void presume_captures_over() noexcept {
  std::lock_guard lock(seen_lock);
  seen.erase(
      std::remove_if(seen.begin(), seen.end(), [](CUstream s) { return !is_known_to_live(s); }),
      seen.end());
  seen_count.store(seen.size());
}

}  // namespace gpuinterop::cuda
